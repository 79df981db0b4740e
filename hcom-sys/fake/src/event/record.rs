//! One point of a stream, and who waits for it: other streams, and the program.
//!
//! The models below run this very file through every interleaving, with the model checker's locks in the place of
//! `super::primitives`.

use std::sync::PoisonError;
use std::time::{Duration, Instant};

use super::primitives::{Condvar, Mutex};
use crate::clock;
use crate::error::{Failure, Outcome, refuse};

/// One point of a stream.
#[derive(Default)]
pub(crate) struct Record {
    state: Mutex<Reached>,
    changed: Condvar,
}

/// Whether a point was reached, and how.
#[derive(Clone, Default)]
pub(super) struct Reached {
    /// When, in nanoseconds of the monotonic clock; `None` before.
    pub(super) at: Option<u64>,
    /// Why the work before it did not run.
    pub(super) failure: Option<Failure>,
}

impl Reached {
    /// Reached at this moment.
    pub(super) fn now(failure: Option<Failure>) -> Self {
        Self {
            at: Some(clock::now()),
            failure,
        }
    }
}

impl Record {
    /// Changes the point, and wakes whoever waits for it.
    pub(super) fn set(&self, reached: Reached) {
        *self.state.lock().unwrap_or_else(PoisonError::into_inner) = reached;
        self.changed.notify_all();
    }

    /// How the point is now.
    pub(super) fn get(&self) -> Reached {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.clone()
    }

    /// Completes the point with a failure, unless it was reached.
    pub(crate) fn fail(&self, failure: &Failure) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if state.at.is_none() {
            *state = Reached::now(Some(failure.clone()));
            self.changed.notify_all();
        }
    }

    /// Wakes whoever waits, to look around. What they shall see is stored before.
    pub(super) fn poke(&self) {
        drop(self.state.lock());
        self.changed.notify_all();
    }

    /// Waits for the point. `give_up` is asked at every wake.
    pub(super) fn wait(
        &self,
        limit: Option<Duration>,
        late: i32,
        give_up: impl Fn() -> Option<Failure>,
    ) -> Outcome {
        let deadline = limit.map(|limit| Instant::now() + limit);
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            if state.at.is_some() {
                return state.failure.clone().map_or(Ok(()), Err);
            }
            if let Some(failure) = give_up() {
                return Err(failure);
            }
            state = match deadline {
                None => self
                    .changed
                    .wait(state)
                    .unwrap_or_else(PoisonError::into_inner),
                Some(deadline) => {
                    let left = deadline.saturating_duration_since(Instant::now());
                    if left.is_zero() {
                        return refuse(late, "the event was not recorded in time");
                    }
                    self.changed
                        .wait_timeout(state, left)
                        .unwrap_or_else(PoisonError::into_inner)
                        .0
                }
            };
        }
    }
}
