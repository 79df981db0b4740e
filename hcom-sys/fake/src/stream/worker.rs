//! The thread of a stream.

use std::num::NonZeroU64;
use std::panic::{self, AssertUnwindSafe};
use std::sync::{Arc, MutexGuard, PoisonError};
use std::thread::{Builder, ThreadId};
use std::time::Duration;

use super::{Entry, Keeper, State, Stream};
use crate::code;
use crate::error::{Failure, Outcome};
use crate::memory::lock;

/// Offers of the core to others before an idle thread sleeps: about 15 µs on an idle machine.
const LAST_LOOKS: u32 = 30;

/// How often the thread looks at a queue that others may serve. Work that nobody serves waits for two looks at most.
const LOOK_IN: Duration = Duration::from_micros(500);
/// After so many looks at an empty queue the thread sleeps until it is woken.
const QUIET_LOOKS: u32 = 40;

/// Starts the thread. It lives until the stream is closed and never longer than the process: nothing joins it.
pub(super) fn start(stream: &Arc<Stream>) -> Outcome<ThreadId> {
    let name = format!("hcom-stream-{}", stream.id);
    let owned = stream.clone();
    match Builder::new().name(name).spawn(move || serve(&owned)) {
        Ok(thread) => Ok(thread.thread().id()),
        Err(error) => Err(Failure::new(
            code::RESOURCE,
            format!("no thread for a stream: {error}"),
        )),
    }
}

fn serve(stream: &Stream) {
    // Modelled transfers sleep for microseconds; the default slack of 50 would drown them.
    let _ = rustix::thread::set_current_timer_slack(NonZeroU64::new(1));
    let mut state = lock(&stream.state);
    loop {
        let next = match state.keeper {
            Keeper::Worker => stream.take(&mut state),
            Keeper::Anybody | Keeper::AnybodyElse => None,
        };
        if let Some((entry, cause)) = next {
            drop(state);
            let outcome = match cause {
                Some(cause) => {
                    entry.work.skip(entry.admission, &cause);
                    Ok(())
                }
                None => guarded(&entry, || entry.work.run(entry.admission, stream)),
            };
            state = lock(&stream.state);
            stream.finish(&mut state, outcome);
        } else if state.closing && state.queue.is_empty() {
            return;
        } else {
            state = rest(stream, state);
        }
    }
}

/// Waits until there may be something to do for the worker.
fn rest<'a>(stream: &'a Stream, mut state: MutexGuard<'a, State>) -> MutexGuard<'a, State> {
    if state.keeper == Keeper::Worker {
        if state.running.is_some() {
            // A waiting thread finishes what it began, and rings then.
            return asleep(stream, state);
        }
        if state.is_served {
            state.keeper = Keeper::Anybody;
        }
        for _ in 0..LAST_LOOKS {
            drop(state);
            rustix::thread::sched_yield();
            state = lock(&stream.state);
            let has_work = state.keeper == Keeper::Worker && !state.queue.is_empty();
            if has_work || state.closing {
                return state;
            }
        }
        state.keeper = Keeper::Anybody;
    }
    let mut quiet = 0;
    while state.keeper == Keeper::Anybody {
        let (submitted, completed) = (state.submitted, state.completed);
        let had_work = !state.queue.is_empty();
        let timed_out;
        (state, timed_out) = look_in(stream, state);
        if !timed_out {
            continue;
        }
        if had_work && state.completed == completed && state.running.is_none() {
            state.is_served = false;
            state.keeper = Keeper::Worker;
        } else if state.queue.is_empty() && state.submitted == submitted {
            quiet += 1;
            if quiet == QUIET_LOOKS {
                state.keeper = Keeper::AnybodyElse;
            }
        } else {
            quiet = 0;
        }
    }
    while state.keeper == Keeper::AnybodyElse {
        state = asleep(stream, state);
    }
    state
}

fn asleep<'a>(stream: &Stream, state: MutexGuard<'a, State>) -> MutexGuard<'a, State> {
    stream
        .arrived
        .wait(state)
        .unwrap_or_else(PoisonError::into_inner)
}

/// Sleeps until it is rung for or, as the answer says, until it is time to look at the queue.
fn look_in<'a>(stream: &Stream, state: MutexGuard<'a, State>) -> (MutexGuard<'a, State>, bool) {
    let (state, outcome) = stream
        .arrived
        .wait_timeout(state, LOOK_IN)
        .unwrap_or_else(PoisonError::into_inner);
    (state, outcome.timed_out())
}

/// Does brief work as far as it gets without sleeping, or skips it for `cause`.
pub(super) fn attempt(entry: &Entry, cause: Option<Failure>, stream: &Stream) -> Option<Outcome> {
    if let Some(cause) = cause {
        entry.work.skip(entry.admission, &cause);
        return Some(Ok(()));
    }
    let mut paused = false;
    let outcome = guarded(entry, || {
        let outcome = entry.work.attempt(entry.admission, stream);
        paused = outcome.is_none();
        outcome.unwrap_or(Ok(()))
    });
    (!paused).then_some(outcome)
}

/// Turns a panic into a failure.
fn guarded(entry: &Entry, work: impl FnOnce() -> Outcome) -> Outcome {
    panic::catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|panic| {
        let what = panic
            .downcast_ref::<String>()
            .map(String::as_str)
            .or_else(|| panic.downcast_ref::<&str>().copied())
            .unwrap_or("no message");
        let failure = Failure::new(
            code::INTERNAL,
            format!("{} panicked: {what}", entry.work.name()),
        );
        entry.work.skip(entry.admission, &failure);
        Err(failure)
    })
}
