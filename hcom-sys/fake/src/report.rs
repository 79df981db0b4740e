//! Callbacks that a thread of the program runs: queued on a stream, run inside `aclrtProcessReport`.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::code;
use crate::error::{Failure, Outcome, refuse};
use crate::memory::lock;
use crate::stream::{Stream, Work};

/// Something to call.
pub(crate) type Call = Arc<dyn Fn() + Send + Sync>;

/// A call that waits for its thread.
struct Pending {
    call: Call,
    done: Option<Arc<Gate>>,
}

/// Whether a call that its stream waits for has run.
#[derive(Default)]
struct Gate {
    open: Mutex<bool>,
    changed: Condvar,
}

/// The calls for one thread.
#[derive(Default)]
struct Mailbox {
    calls: Mutex<VecDeque<Pending>>,
    arrived: Condvar,
    /// Streams that send here.
    streams: Mutex<u32>,
}

#[derive(Default)]
struct Subscriptions {
    threads: BTreeMap<u64, Arc<Mailbox>>,
    streams: BTreeMap<usize, u64>,
}

static SUBSCRIPTIONS: Mutex<Subscriptions> = Mutex::new(Subscriptions {
    threads: BTreeMap::new(),
    streams: BTreeMap::new(),
});

/// Lets `thread` run the callbacks of `stream`.
///
/// # Errors
/// 107011 when the stream has a thread already.
pub(crate) fn subscribe(thread: u64, stream: &Stream) -> Outcome {
    let mut all = lock(&SUBSCRIPTIONS);
    if let Some(other) = all.streams.get(&stream.handle) {
        return refuse(
            code::STREAM_SUBSCRIBE,
            format!(
                "stream {} has its callbacks run by thread {other:#x}",
                stream.id
            ),
        );
    }
    all.streams.insert(stream.handle, thread);
    *lock(&all.threads.entry(thread).or_default().streams) += 1;
    Ok(())
}

/// Undoes [`subscribe`].
///
/// # Errors
/// 107011 when the stream has no thread, 107012 when it is another.
pub(crate) fn unsubscribe(thread: u64, stream: &Stream) -> Outcome {
    let mut all = lock(&SUBSCRIPTIONS);
    match all.streams.get(&stream.handle) {
        None => refuse(
            code::STREAM_SUBSCRIBE,
            format!("stream {} has no thread for its callbacks", stream.id),
        ),
        Some(&other) if other != thread => refuse(
            code::THREAD_SUBSCRIBE,
            format!(
                "stream {} has its callbacks run by thread {other:#x}",
                stream.id
            ),
        ),
        Some(_) => {
            all.streams.remove(&stream.handle);
            let mailbox = all.threads[&thread].clone();
            let mut streams = lock(&mailbox.streams);
            *streams -= 1;
            if *streams == 0 {
                all.threads.remove(&thread);
                mailbox.arrived.notify_all();
            }
            Ok(())
        }
    }
}

struct Calling {
    mailbox: Arc<Mailbox>,
    call: Call,
    blocks: bool,
}

impl Work for Calling {
    fn name(&self) -> &str {
        "a callback"
    }
    fn run(&self, _: u64, stream: &Stream) -> Outcome {
        let done = self.blocks.then(Arc::<Gate>::default);
        lock(&self.mailbox.calls).push_back(Pending {
            call: self.call.clone(),
            done: done.clone(),
        });
        self.mailbox.arrived.notify_all();
        let Some(gate) = done else { return Ok(()) };
        let mut open = lock(&gate.open);
        while !*open {
            if stream.aborted() {
                return Err(stream.abort_failure());
            }
            // Short, because an abort has no way to ring this bell.
            let wait = gate.changed.wait_timeout(open, Duration::from_millis(20));
            open = wait.unwrap_or_else(PoisonError::into_inner).0;
        }
        Ok(())
    }
}

/// Queues `call` on `stream` for the thread that subscribed; with `blocks` the stream waits for it.
///
/// # Errors
/// 107015 when no thread did; those of [`Stream::enqueue`].
pub(crate) fn launch(call: Call, blocks: bool, stream: &Arc<Stream>) -> Outcome {
    let all = lock(&SUBSCRIPTIONS);
    let Some(thread) = all.streams.get(&stream.handle) else {
        return refuse(
            code::NO_CALLBACK_THREAD,
            format!(
                "stream {} has no thread for its callbacks: call aclrtSubscribeReport",
                stream.id
            ),
        );
    };
    let mailbox = all.threads[thread].clone();
    drop(all);
    let calling = Calling {
        mailbox,
        call,
        blocks,
    };
    stream.enqueue(Arc::new(calling)).map(|_| ())
}

/// Runs the next callback for `thread`, waiting at most `limit`.
///
/// # Errors
/// 107012 when the thread is not subscribed (any more), 107019 when nothing comes in time.
pub(crate) fn process(thread: u64, limit: Option<Duration>) -> Outcome {
    let unknown = || {
        Failure::new(
            code::THREAD_SUBSCRIBE,
            format!("thread {thread:#x} runs the callbacks of no stream"),
        )
    };
    let mailbox = lock(&SUBSCRIPTIONS).threads.get(&thread).cloned();
    let mailbox = mailbox.ok_or_else(unknown)?;
    let deadline = limit.map(|limit| Instant::now() + limit);
    let mut calls = lock(&mailbox.calls);
    let next = loop {
        if let Some(next) = calls.pop_front() {
            break next;
        }
        if *lock(&mailbox.streams) == 0 {
            return Err(unknown());
        }
        let left = deadline.map_or(Duration::MAX, |deadline| {
            deadline.saturating_duration_since(Instant::now())
        });
        if left.is_zero() {
            return refuse(code::WAIT_TIMEOUT, "no callback arrived in time");
        }
        calls = if left == Duration::MAX {
            let woken = mailbox.arrived.wait(calls);
            woken.unwrap_or_else(PoisonError::into_inner)
        } else {
            let woken = mailbox.arrived.wait_timeout(calls, left);
            woken.unwrap_or_else(PoisonError::into_inner).0
        };
    };
    drop(calls);
    (next.call)();
    if let Some(gate) = next.done {
        *lock(&gate.open) = true;
        gate.changed.notify_all();
    }
    Ok(())
}
