//! The thread of a stream.

use std::num::NonZeroU64;
use std::panic::{self, AssertUnwindSafe};
use std::sync::{Arc, PoisonError};
use std::thread::{Builder, ThreadId};

use super::{Entry, Stream};
use crate::code;
use crate::error::{Failure, Outcome};
use crate::memory::lock;

/// Offers of the core to others before an idle thread sleeps: about 15 µs on an idle machine.
const LAST_LOOKS: u32 = 30;

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
    while let Some((entry, cause)) = next(stream) {
        let outcome = match cause {
            Some(cause) => {
                entry.work.skip(entry.admission, &cause);
                Ok(())
            }
            None => run(&entry, stream),
        };
        let mut state = lock(&stream.state);
        state.running = None;
        state.completed += 1;
        if let (None, Err(failure)) = (&state.error, outcome) {
            state.error = Some(failure);
        }
        if state.waiting > 0 {
            stream.progress.notify_all();
        }
    }
}

/// Waits for the next piece of work; with it comes the reason to skip it, if there is one.
fn next(stream: &Stream) -> Option<(Entry, Option<Failure>)> {
    let mut state = lock(&stream.state);
    // Waking a sleeper costs more than most tasks here, so an idle thread looks a few more times first.
    for _ in 0..LAST_LOOKS {
        if !state.queue.is_empty() || state.closing {
            break;
        }
        drop(state);
        rustix::thread::sched_yield();
        state = lock(&stream.state);
    }
    loop {
        if let Some(entry) = state.queue.pop_front() {
            state.running = Some(entry.work.clone());
            let cause = if stream.aborted() {
                Some(stream.abort_failure())
            } else {
                state.error.clone()
            };
            return Some((entry, cause));
        }
        if state.closing {
            return None;
        }
        state.idle = true;
        state = stream
            .arrived
            .wait(state)
            .unwrap_or_else(PoisonError::into_inner);
    }
}

fn run(entry: &Entry, stream: &Stream) -> Outcome {
    let work = AssertUnwindSafe(|| entry.work.run(entry.admission, stream));
    panic::catch_unwind(work).unwrap_or_else(|panic| {
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
