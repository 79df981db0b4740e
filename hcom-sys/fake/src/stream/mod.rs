//! Streams: queues of work, each with a thread of its own that runs it in order.
//!
//! # Who runs the work
//! Waking a thread costs more than most collectives, so a thread that waits for a stream runs its *brief* work itself:
//! what never sleeps, and can stop and be taken up again by somebody else. [`Keeper`] says whose turn it is. At any time
//! at most one thread runs work of a stream, the one that moved it from `queue` to `running` under the lock.
//!
//! - The worker keeps the queue from the moment when something is queued that is not brief, or a waiting thread met
//!   work that has to sleep, until the queue is empty.
//! - Else the queue is free: threads in [`Stream::synchronize`] take from it. The worker looks in every half
//!   millisecond, and keeps a queue that nobody serves; without work for a while it sleeps until it is woken.
//! - A stream that nobody waits for while it has work (`is_served`) wakes its worker for brief work too.
//!
//! # Failure
//! The first task that fails leaves its error with the stream. Later tasks are skipped, not run on data that never
//! came, until a synchronisation has reported the error; in stop-on-failure mode for good. An event recorded by a
//! skipped task carries the error along, so a stream that waits for it fails too.

mod serve;
#[cfg(test)]
mod tests;
mod worker;

use std::collections::VecDeque;
use std::ffi::c_void;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::ThreadId;
use std::time::{Duration, Instant};

use crate::capture::{self, Capture};
use crate::code;
use crate::device::{self, Device};
use crate::error::{Failure, Outcome, fail, last, refuse};
use crate::fault;
use crate::group::Update;
use crate::handle::{self, Table};
use crate::memory::lock;

/// One piece of work. It can be run more than once: a captured graph replays it.
pub(crate) trait Work: Send + Sync {
    /// What it is called in messages.
    fn name(&self) -> &str;
    /// Called when the work is queued, in the order of the queue; the number comes back in `run` or `skip`.
    fn admit(&self) -> u64 {
        0
    }
    /// Does it. Work that waits must end soon once [`Stream::aborted`] is true and [`Work::interrupt`] was called.
    fn run(&self, admission: u64, stream: &Stream) -> Outcome;
    /// Called instead of `run` when earlier work failed or the stream was aborted.
    fn skip(&self, _admission: u64, _cause: &Failure) {}
    /// Wakes a running `run` that waits, to look at the stream again.
    fn interrupt(&self) {}
    /// Whether [`Work::attempt`] may be called, so that nobody has to be woken for it while a thread waits for the
    /// stream.
    fn is_brief(&self) -> bool {
        false
    }
    /// Called when brief work is queued as the first of its stream: lets others see what they wait for. Never waits.
    fn announce(&self, _admission: u64, _stream: &Stream) {}
    /// Does brief work as far as it gets without sleeping; `None` when it has to wait. Whoever calls this or `run` next
    /// goes on where it stopped.
    fn attempt(&self, admission: u64, stream: &Stream) -> Option<Outcome> {
        Some(self.run(admission, stream))
    }
}

struct Entry {
    work: Arc<dyn Work>,
    admission: u64,
}

/// Who takes the next piece of work.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Keeper {
    /// The worker, until the queue is empty.
    #[default]
    Worker,
    /// Whoever waits for the stream, as long as the work is brief; the worker looks in now and then.
    Anybody,
    /// As before, and the worker sleeps.
    AnybodyElse,
}

#[derive(Default)]
struct State {
    queue: VecDeque<Entry>,
    running: Option<Arc<dyn Work>>,
    submitted: u64,
    completed: u64,
    error: Option<Failure>,
    stop_on_failure: bool,
    closing: bool,
    capture: Option<Arc<Capture>>,
    /// The update of captured tasks that takes what is queued.
    update: Option<Arc<Update>>,
    worker: Option<ThreadId>,
    keeper: Keeper,
    /// Whether threads that wait for the stream found work to do lately.
    is_served: bool,
    /// Threads in `progress`, so that a worker with no audience does not ring.
    waiting: u32,
}

/// A stream of one device.
pub(crate) struct Stream {
    /// Its name for programs.
    pub handle: usize,
    /// A small number for messages.
    pub id: i32,
    /// Where it runs.
    pub device: Arc<Device>,
    /// As given at creation, 0 the highest.
    pub priority: u32,
    /// As given at creation.
    pub flags: u32,
    /// Whether it is what a null stream means in its context.
    pub is_default: AtomicBool,
    /// What programs set on it and may ask for again.
    pub settings: Mutex<Settings>,
    state: Mutex<State>,
    arrived: Condvar,
    progress: Condvar,
    aborted: AtomicBool,
}

/// Attributes of a stream that are kept for the program.
#[derive(Default)]
pub(crate) struct Settings {
    /// Limits of cores: cube, vector.
    pub limits: [Option<u32>; 2],
    /// `ACL_STOP_ON_FAILURE` or `ACL_CONTINUE_ON_FAILURE`.
    pub failure_mode: u64,
    /// Whether overflows are to be detected.
    pub overflow: u32,
    /// The program's tag.
    pub tag: u32,
    /// Whether operators' information is to be cached.
    pub cache_info: u32,
}

/// All living streams.
pub(crate) static STREAMS: Table<Stream> = Table::new();

impl Stream {
    /// Creates a stream; its thread starts with its first work.
    pub(crate) fn create(device: Arc<Device>, priority: u32, flags: u32) -> Arc<Self> {
        static NEXT: AtomicI32 = AtomicI32::new(0);
        fault::plan_from_environment();
        let stream = Arc::new(Self {
            handle: handle::fresh(),
            id: NEXT.fetch_add(1, Ordering::Relaxed),
            device,
            priority,
            flags,
            is_default: AtomicBool::new(false),
            settings: Mutex::default(),
            state: Mutex::default(),
            arrived: Condvar::new(),
            progress: Condvar::new(),
            aborted: AtomicBool::new(false),
        });
        STREAMS.insert(stream.handle, stream.clone());
        stream
    }

    /// Whether the stream was aborted: work that waits must give up.
    pub(crate) fn aborted(&self) -> bool {
        self.aborted.load(Ordering::SeqCst)
    }

    /// The error of work that an abort caught.
    pub(crate) fn abort_failure(&self) -> Failure {
        Failure::new(
            code::STREAM_ABORT,
            format!("stream {} was aborted", self.id),
        )
    }

    /// The capture that the stream takes part in.
    pub(crate) fn capture(&self) -> Option<Arc<Capture>> {
        lock(&self.state).capture.clone()
    }

    /// Lets the stream take part in a capture, or no longer.
    pub(crate) fn set_capture(&self, capture: Option<Arc<Capture>>) {
        lock(&self.state).capture = capture;
    }

    /// Begins an update that takes what is queued, or ends it; the one before.
    pub(crate) fn set_update(&self, update: Option<Arc<Update>>) -> Option<Arc<Update>> {
        std::mem::replace(&mut lock(&self.state).update, update)
    }

    /// Refuses what asks for the state of a stream that only records.
    fn not_captured(&self, state: &State) -> Outcome {
        match &state.capture {
            None => Ok(()),
            Some(capture) => {
                capture.break_off();
                refuse(
                    code::STREAM_CAPTURED,
                    format!("stream {} is being captured", self.id),
                )
            }
        }
    }

    /// Queues work, or records it while the stream is captured; returns how many pieces were queued so far.
    ///
    /// # Errors
    /// 107023 after an abort; the stream's error in stop-on-failure mode; a resource error when no thread starts.
    pub(crate) fn enqueue(self: &Arc<Self>, work: Arc<dyn Work>) -> Outcome<u64> {
        let mut state = lock(&self.state);
        self.takes_work(&state)?;
        if self.is_default.load(Ordering::Relaxed) {
            capture::allow_default_stream()?;
        }
        let work = fault::in_task(work);
        if let Some(capture) = state.capture.clone() {
            drop(state);
            capture.take(self, work);
            return Ok(0);
        }
        if let Some(update) = state.update.clone() {
            drop(state);
            update.take(work);
            return Ok(0);
        }
        self.push(&mut state, std::iter::once(work))?;
        Ok(state.submitted)
    }

    /// Queues several pieces of work at once, in this order, on a stream that is not captured.
    ///
    /// # Errors
    /// As [`Stream::enqueue`].
    pub(crate) fn enqueue_all(
        self: &Arc<Self>,
        works: impl Iterator<Item = Arc<dyn Work>>,
    ) -> Outcome {
        let mut state = lock(&self.state);
        self.takes_work(&state)?;
        if self.is_default.load(Ordering::Relaxed) {
            capture::allow_default_stream()?;
        }
        let works = works.map(fault::in_task);
        if let Some(update) = state.update.clone() {
            drop(state);
            works.for_each(|work| update.take(work));
            return Ok(());
        }
        self.push(&mut state, works)
    }

    fn takes_work(&self, state: &State) -> Outcome {
        if self.aborted() {
            return Err(self.abort_failure());
        }
        if state.closing {
            return refuse(code::HANDLE, format!("stream {} was destroyed", self.id));
        }
        match (state.stop_on_failure, &state.error) {
            (true, Some(error)) => Err(error.clone()),
            _ => Ok(()),
        }
    }

    /// Waits until the first `position` pieces of work are done, whatever became of them.
    pub(crate) fn wait_for(&self, position: u64) {
        let mut state = lock(&self.state);
        while state.completed < position {
            let served;
            (state, served) = self.serve(state);
            if !served {
                state = self.wait_for_progress(state, None);
            }
        }
    }

    /// Waits until everything queued so far is done, whatever became of it.
    pub(crate) fn wait_for_all(&self) {
        let target = lock(&self.state).submitted;
        self.wait_for(target);
    }

    /// Queues a function; see [`submit`].
    pub(crate) fn enqueue_function(
        self: &Arc<Self>,
        name: &'static str,
        function: impl Fn() -> Result<(), i32> + Send + Sync + 'static,
    ) -> Outcome<u64> {
        self.enqueue(Arc::new(Function { name, function }))
    }

    /// Waits until everything queued so far is done, and reports the first failure.
    ///
    /// # Errors
    /// That failure; 107023 after an abort; 507046 when `limit` passes first.
    pub(crate) fn synchronize(&self, limit: Option<Duration>) -> Outcome {
        let deadline = limit.map(|limit| Instant::now() + limit);
        let mut state = lock(&self.state);
        self.not_captured(&state)?;
        let target = state.submitted;
        let mut served = 0u32;
        loop {
            if self.aborted() {
                return Err(self.abort_failure());
            }
            if state.completed >= target {
                let error = if state.stop_on_failure {
                    state.error.clone()
                } else {
                    state.error.take()
                };
                return error.map_or(Ok(()), Err);
            }
            let has_served;
            (state, has_served) = self.serve(state);
            served += u32::from(has_served);
            // The clock costs as much as a small piece of work.
            if has_served && !served.is_multiple_of(64) {
                continue;
            }
            let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
            if left == Some(Duration::ZERO) {
                let name = state
                    .running
                    .as_ref()
                    .map_or("queued work", |work| work.name());
                return refuse(
                    code::SYNC_TIMEOUT,
                    format!("stream {} is still busy with {name}", self.id),
                );
            }
            if !has_served {
                state = self.wait_for_progress(state, left);
            }
        }
    }

    /// Sleeps until something was done, or `limit` passed, or for no reason.
    fn wait_for_progress<'a>(
        &self,
        mut state: MutexGuard<'a, State>,
        limit: Option<Duration>,
    ) -> MutexGuard<'a, State> {
        state.waiting += 1;
        let mut state = match limit {
            None => self
                .progress
                .wait(state)
                .unwrap_or_else(PoisonError::into_inner),
            Some(limit) => {
                self.progress
                    .wait_timeout(state, limit)
                    .unwrap_or_else(PoisonError::into_inner)
                    .0
            }
        };
        state.waiting -= 1;
        state
    }

    /// Whether everything queued so far is done.
    ///
    /// # Errors
    /// The failure that the next synchronisation reports, which stays pending.
    pub(crate) fn query(&self) -> Outcome<bool> {
        let state = lock(&self.state);
        self.not_captured(&state)?;
        if self.aborted() {
            return Err(self.abort_failure());
        }
        match &state.error {
            Some(error) if state.completed == state.submitted => Err(error.clone()),
            _ => Ok(state.completed == state.submitted),
        }
    }

    /// Chooses whether a failure stops the stream for good.
    pub(crate) fn stop_on_failure(&self, stop: bool) {
        lock(&self.state).stop_on_failure = stop;
    }

    /// Drops queued work and interrupts what runs; every later use is an error. Returns when the running work has
    /// ended, or after two seconds when it does not notice (a host function, say).
    pub(crate) fn abort(&self) {
        self.aborted.store(true, Ordering::SeqCst);
        let mut state = lock(&self.state);
        let dropped = std::mem::take(&mut state.queue);
        let running = state.running.clone();
        let on_worker = state.worker == Some(std::thread::current().id());
        drop(state);
        let cause = self.abort_failure();
        let count = dropped.len() as u64;
        for entry in dropped {
            entry.work.skip(entry.admission, &cause);
        }
        if let Some(running) = running {
            running.interrupt();
        }
        let mut state = lock(&self.state);
        state.completed += count;
        self.progress.notify_all();
        if on_worker {
            return;
        }
        let deadline = Instant::now() + Duration::from_secs(2);
        while state.running.is_some() {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            state = self.wait_for_progress(state, Some(left));
        }
    }

    /// Ends the stream: it takes no more work, finishes what it has (after [`Stream::abort`], nothing) and its thread
    /// ends. Does not wait.
    pub(crate) fn close(&self) {
        STREAMS.remove(handle::to_pointer(self.handle));
        let mut state = lock(&self.state);
        state.closing = true;
        state.keeper = Keeper::Worker;
        self.arrived.notify_one();
    }
}

/// The stream that `stream` names for a thread that may use it: null is the default stream of the current context.
///
/// # Errors
/// 107002 without a current context; 107017 for an unknown handle; 107003 for a stream of another device.
pub(crate) fn find(stream: *const c_void) -> Outcome<Arc<Stream>> {
    let context = device::current()?;
    if stream.is_null() {
        return Ok(context.default_stream.clone());
    }
    let Some(found) = STREAMS.get(stream) else {
        return refuse(
            code::HANDLE,
            format!("{:#x} names no living stream", stream.addr()),
        );
    };
    if found.device.id != context.device.id {
        return refuse(
            code::STREAM_CONTEXT,
            format!(
                "stream {} belongs to device {}, the current device is {}",
                found.id, found.device.id, context.device.id
            ),
        );
    }
    Ok(found)
}

/// Work made of a function.
struct Function<F> {
    name: &'static str,
    function: F,
}

impl<F: Fn() -> Result<(), i32> + Send + Sync> Work for Function<F> {
    fn name(&self) -> &str {
        self.name
    }
    fn run(&self, _: u64, stream: &Stream) -> Outcome {
        if !fault::at_kernel(self.name, stream)? {
            return Ok(());
        }
        (self.function)().map_err(|code| {
            let text = last().unwrap_or_else(|| format!("{} failed with {code}", self.name));
            Failure::new(code, text)
        })
    }
}

/// Queues `work` on `stream` (null: the default stream of the current context). It may run many times when the stream
/// is being captured. On failure it returns a code, and keeps its text with [`crate::error::fail`].
///
/// Returns 0, or the code of [`find`] or [`Stream::enqueue`] with the thread's error text set.
pub(crate) fn submit(
    stream: *mut c_void,
    name: &'static str,
    work: impl Fn() -> Result<(), i32> + Send + Sync + 'static,
) -> i32 {
    match find(stream).and_then(|stream| stream.enqueue_function(name, work)) {
        Ok(_) => 0,
        Err(failure) => fail(failure.code, failure.text),
    }
}
