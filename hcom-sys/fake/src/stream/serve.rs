//! How work enters the queue of a stream and who takes it out; see [`super`].

use std::sync::{Arc, MutexGuard};

use super::{Entry, Keeper, State, Stream, Work, worker};
use crate::error::{Failure, Outcome};
use crate::memory::lock;

impl Stream {
    /// Queues work under the lock.
    pub(super) fn push(
        self: &Arc<Self>,
        state: &mut State,
        works: impl Iterator<Item = Arc<dyn Work>>,
    ) -> Outcome {
        if state.worker.is_none() {
            state.worker = Some(worker::start(self)?);
        }
        for work in works {
            let admission = work.admit();
            let brief = work.is_brief();
            let is_first = state.queue.is_empty() && state.running.is_none();
            if brief && is_first && state.error.is_none() {
                work.announce(admission, self);
            }
            state.queue.push_back(Entry { work, admission });
            state.submitted += 1;
            if !(brief && state.is_served) {
                self.hand_over(state);
            } else if state.keeper == Keeper::AnybodyElse {
                state.keeper = Keeper::Anybody;
                self.arrived.notify_one();
            }
        }
        Ok(())
    }

    /// Lets the worker keep the queue.
    fn hand_over(&self, state: &mut State) {
        if state.keeper != Keeper::Worker {
            state.keeper = Keeper::Worker;
            self.arrived.notify_one();
        }
    }

    /// Takes the next piece of work to run it; with it comes the reason to skip it, if there is one.
    pub(super) fn take(&self, state: &mut State) -> Option<(Entry, Option<Failure>)> {
        if state.running.is_some() {
            return None;
        }
        let entry = state.queue.pop_front()?;
        state.running = Some(entry.work.clone());
        let cause = if self.aborted() {
            Some(self.abort_failure())
        } else {
            state.error.clone()
        };
        Some((entry, cause))
    }

    /// Notes what became of the running work.
    pub(super) fn finish(&self, state: &mut State, outcome: Outcome) {
        state.running = None;
        state.completed += 1;
        if let (None, Err(failure)) = (&state.error, outcome) {
            state.error = Some(failure);
        }
        if state.waiting > 0 {
            self.progress.notify_all();
        }
    }

    /// Runs the next piece of work in this thread if that is brief and nobody else keeps the queue; says whether it did.
    pub(super) fn serve<'a>(
        &'a self,
        mut state: MutexGuard<'a, State>,
    ) -> (MutexGuard<'a, State>, bool) {
        let next = state.queue.front().map(|entry| &entry.work);
        if !state
            .running
            .as_ref()
            .or(next)
            .is_some_and(|work| work.is_brief())
        {
            return (state, false);
        }
        state.is_served = true;
        let next = match state.keeper {
            Keeper::Worker => None,
            Keeper::Anybody | Keeper::AnybodyElse => self.take(&mut state),
        };
        let Some((entry, cause)) = next else {
            return (state, false);
        };
        drop(state);
        let outcome = worker::attempt(&entry, cause, self);
        let mut state = lock(&self.state);
        match outcome {
            Some(outcome) => self.finish(&mut state, outcome),
            None if self.aborted() => {
                // The abort took the rest of the queue and waits for this piece.
                let cause = self.abort_failure();
                drop(state);
                entry.work.skip(entry.admission, &cause);
                state = lock(&self.state);
                self.finish(&mut state, Err(cause));
            }
            None => {
                state.running = None;
                state.queue.push_front(entry);
                self.hand_over(&mut state);
            }
        }
        if state.keeper == Keeper::Worker {
            // It may have come meanwhile and found the stream busy.
            self.arrived.notify_one();
        } else if state
            .queue
            .front()
            .is_some_and(|next| !next.work.is_brief())
        {
            self.hand_over(&mut state);
        }
        (state, true)
    }
}
