//! Records of an event that several processes see: numbers that only grow.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use crate::code;
use crate::error::{Failure, Outcome, refuse};
use crate::share::Export;
use crate::stream::{Stream, Work};

/// Reaches a record that other processes see.
pub(super) struct SharedRecording(pub Export, pub u64);

impl Work for SharedRecording {
    fn name(&self) -> &str {
        "an event record"
    }
    fn run(&self, _: u64, _: &Stream) -> Outcome {
        self.0.records()[1].fetch_max(self.1, Ordering::SeqCst);
        Ok(())
    }
    fn skip(&self, _: u64, _: &Failure) {
        // Others would wait for ever; they cannot be told of the failure.
        self.0.records()[1].fetch_max(self.1, Ordering::SeqCst);
    }
}

/// Waits until a shared event has reached its record `target`. Whoever reaches it may be another process that rings no
/// bell.
pub(super) fn wait_shared(
    export: &Export,
    target: u64,
    limit: Option<Duration>,
    give_up: impl Fn() -> Option<Failure>,
) -> Outcome {
    let deadline = limit.map(|limit| Instant::now() + limit);
    let mut nap = Duration::from_micros(2);
    while export.records()[1].load(Ordering::SeqCst) < target {
        if let Some(failure) = give_up() {
            return Err(failure);
        }
        if deadline.is_some_and(|deadline| Instant::now() >= deadline) {
            return refuse(
                code::EVENT_SYNC_TIMEOUT,
                "the event was not recorded in time",
            );
        }
        std::thread::sleep(nap);
        nap = (nap * 2).min(Duration::from_millis(1));
    }
    Ok(())
}

/// Waits on a stream until a shared event has reached a record, within a limit.
pub(super) struct SharedWaiting(pub Export, pub u64, pub Option<Duration>);

impl Work for SharedWaiting {
    fn name(&self) -> &str {
        "a wait for an event"
    }
    fn run(&self, _: u64, stream: &Stream) -> Outcome {
        wait_shared(&self.0, self.1, self.2, || {
            stream.aborted().then(|| stream.abort_failure())
        })
    }
}
