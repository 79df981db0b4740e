//! Recording a graph: work is kept instead of run.
//!
//! A capture begins on one stream. A stream that waits for an event recorded inside joins it, and must come back: the
//! last thing on it is a record that another captured stream waits for. Each stream becomes a lane of the graph.
//!
//! A graph can also be built: streams are bound to it one by one, and need not come together.

use std::cell::Cell;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, ThreadId};

use crate::code;
use crate::device;
use crate::error::{Outcome, refuse};
use crate::event::Event;
use crate::group::{self, Place};
use crate::handle;
use crate::memory::lock;
use crate::model::{self, Step};
use crate::stream::{Stream, Work};

/// Which other calls a capture forbids while it goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    /// Calls that do not go through a stream, in every thread.
    Global,
    /// The same, in the thread that captures.
    ThreadLocal,
    /// None.
    Relaxed,
}

impl Mode {
    /// The mode with this number in the C interface.
    pub(crate) fn from_number(number: u32) -> Option<Self> {
        [Self::Global, Self::ThreadLocal, Self::Relaxed]
            .get(number as usize)
            .copied()
    }
}

thread_local! {
    static THREAD_MODE: Cell<Mode> = const { Cell::new(Mode::Global) };
}

/// Sets this thread's mode and answers the one before.
pub(crate) fn exchange_mode(mode: Mode) -> Mode {
    THREAD_MODE.replace(mode)
}

/// A capture that goes on.
pub(crate) struct Capture {
    /// The name that the graph will have.
    pub model: usize,
    thread: ThreadId,
    mode: Mode,
    inside: Mutex<Inside>,
}

#[derive(Default)]
struct Inside {
    broken: bool,
    /// The streams taking part; their place is their lane.
    streams: Vec<Arc<Stream>>,
    steps: Vec<(usize, Step)>,
    /// How many events were recorded.
    records: usize,
    /// Whether a stream waits for an event that was never recorded.
    missing_record: bool,
    /// Open groups of tasks: the stream's handle, and what it queued since.
    groups: Vec<(usize, Vec<Arc<Place>>)>,
}

static ACTIVE: Mutex<Vec<Arc<Capture>>> = Mutex::new(Vec::new());
/// How many captures go on, so that calls need no lock while there is none.
static COUNT: AtomicUsize = AtomicUsize::new(0);

/// Refuses a call that does not go through a stream while a capture forbids it.
///
/// # Errors
/// 107030, and the capture is broken.
pub(crate) fn allow_call() -> Outcome {
    allow(
        code::CAPTURE_FORBIDS,
        "a capture is going on that forbids calls outside streams",
    )
}

/// Refuses work on a default stream while a capture forbids it.
///
/// # Errors
/// 107031, and the capture is broken.
pub(crate) fn allow_default_stream() -> Outcome {
    allow(
        code::CAPTURE_IMPLICIT,
        "a capture is going on that forbids work on the default stream",
    )
}

fn allow(code: i32, text: &str) -> Outcome {
    if COUNT.load(Ordering::Relaxed) == 0 {
        return Ok(());
    }
    let own = THREAD_MODE.get();
    for capture in lock(&ACTIVE).iter() {
        let same = capture.thread == thread::current().id();
        let forbidden = match capture.mode {
            Mode::Global => own == Mode::Global || (own == Mode::ThreadLocal && same),
            Mode::ThreadLocal => same && own != Mode::Relaxed,
            Mode::Relaxed => false,
        };
        if forbidden {
            capture.break_off();
            return refuse(code, text);
        }
    }
    Ok(())
}

impl Capture {
    /// Makes the capture useless: its end will say so.
    pub(crate) fn break_off(&self) {
        lock(&self.inside).broken = true;
    }

    /// Whether it still can become a graph.
    pub(crate) fn is_whole(&self) -> bool {
        !lock(&self.inside).broken
    }

    fn step(&self, stream: &Stream, step: Step) {
        let mut inside = lock(&self.inside);
        let lane = inside
            .streams
            .iter()
            .position(|one| one.handle == stream.handle);
        inside
            .steps
            .push((lane.expect("a stream of this capture"), step));
    }

    /// Takes work of a captured stream.
    pub(crate) fn take(&self, stream: &Stream, work: Arc<dyn Work>) {
        let mut inside = lock(&self.inside);
        let group = inside
            .groups
            .iter_mut()
            .find(|(handle, _)| *handle == stream.handle);
        let work = match group {
            Some((_, tasks)) => {
                let place = Place::new(work);
                tasks.push(place.clone());
                place
            }
            None => work,
        };
        drop(inside);
        self.step(stream, Step::Work(work));
    }

    /// Takes a step of a stream that is not work.
    pub(crate) fn take_step(&self, stream: &Stream, step: Step) {
        self.step(stream, step);
    }

    /// Takes a record (else a wait) of the event outside.
    pub(crate) fn outside(&self, stream: &Stream, event: Arc<Event>, record: bool) {
        let step = if record {
            Step::RecordOutside(event)
        } else {
            Step::WaitOutside(event)
        };
        self.step(stream, step);
    }

    /// Notes that a stream waits for an event that was never recorded: the end will say so.
    pub(crate) fn miss_record(&self) {
        lock(&self.inside).missing_record = true;
    }

    /// Takes a record on a captured stream; the number names it in [`Capture::wait`].
    pub(crate) fn record(&self, stream: &Stream) -> usize {
        let mut inside = lock(&self.inside);
        inside.records += 1;
        let record = inside.records - 1;
        drop(inside);
        self.step(stream, Step::Record(record));
        record
    }

    /// Takes a wait of `stream`, which joins the capture if it is not part of it.
    ///
    /// # Errors
    /// 107032 when the stream is part of another capture; both are broken then.
    pub(crate) fn wait(self: &Arc<Self>, stream: &Arc<Stream>, record: usize) -> Outcome {
        match stream.capture() {
            Some(other) if !Arc::ptr_eq(&other, self) => {
                other.break_off();
                self.break_off();
                return refuse(
                    code::CAPTURE_CONFLICT,
                    "the event belongs to another capture than the stream",
                );
            }
            Some(_) => {}
            None => {
                lock(&self.inside).streams.push(stream.clone());
                stream.set_capture(Some(self.clone()));
            }
        }
        self.step(stream, Step::Wait(record));
        Ok(())
    }
}

/// Begins a group of tasks on a captured stream.
///
/// # Errors
/// 107029 when it is not captured, 107033 when a group is open on it.
pub(crate) fn begin_group(stream: &Stream) -> Outcome {
    let capture = captured(stream)?;
    let mut inside = lock(&capture.inside);
    if inside
        .groups
        .iter()
        .any(|(handle, _)| *handle == stream.handle)
    {
        return refuse(code::TASK_GROUP, "a group of tasks is open on this stream");
    }
    inside.groups.push((stream.handle, Vec::new()));
    Ok(())
}

/// Ends the group of tasks of a captured stream; its handle.
///
/// # Errors
/// 107029 when it is not captured, 107033 when no group is open on it.
pub(crate) fn end_group(stream: &Stream) -> Outcome<usize> {
    let capture = captured(stream)?;
    let mut inside = lock(&capture.inside);
    let open = inside
        .groups
        .iter()
        .position(|(handle, _)| *handle == stream.handle);
    match open {
        Some(open) => Ok(group::keep(inside.groups.remove(open).1)),
        None => refuse(code::TASK_GROUP, "no group of tasks is open on this stream"),
    }
}

fn captured(stream: &Stream) -> Outcome<Arc<Capture>> {
    match stream.capture() {
        Some(capture) => Ok(capture),
        None => refuse(
            code::NOT_CAPTURED,
            format!("stream {} is not captured", stream.id),
        ),
    }
}

/// A graph that is built by binding streams to it.
pub(crate) fn build() -> Arc<Capture> {
    Arc::new(Capture {
        model: handle::fresh(),
        thread: thread::current().id(),
        mode: Mode::Relaxed,
        inside: Mutex::default(),
    })
}

impl Capture {
    /// Makes `stream` part of a graph that is built.
    ///
    /// # Errors
    /// 107027 when it is part of a graph already.
    pub(crate) fn bind(self: &Arc<Self>, stream: &Arc<Stream>) -> Outcome {
        if stream.capture().is_some() {
            return refuse(
                code::STREAM_CAPTURED,
                format!("stream {} is part of a graph already", stream.id),
            );
        }
        lock(&self.inside).streams.push(stream.clone());
        stream.set_capture(Some(self.clone()));
        Ok(())
    }

    /// Takes `stream` out of a graph that is built; its steps stay.
    ///
    /// # Errors
    /// 107005 when it is no part of it.
    pub(crate) fn unbind(&self, stream: &Stream) -> Outcome {
        let bound = stream.capture();
        if bound.is_none_or(|bound| bound.model != self.model) {
            return refuse(
                code::STREAM_MODEL,
                format!("stream {} is no part of the graph", stream.id),
            );
        }
        stream.set_capture(None);
        Ok(())
    }

    /// Ends the building of a graph.
    ///
    /// # Errors
    /// 100000 when no stream was bound.
    pub(crate) fn finish(&self) -> Outcome {
        let inside = std::mem::take(&mut *lock(&self.inside));
        if inside.streams.is_empty() {
            return refuse(code::INVALID_PARAM, "no stream was bound to the graph");
        }
        for stream in &inside.streams {
            stream.set_capture(None);
        }
        device::have_streams(&inside.streams[0].device, inside.streams.len() - 1)?;
        model::keep_built(self.model, &inside.streams, inside.steps, inside.records);
        Ok(())
    }
}

/// Begins a capture on `stream`.
///
/// # Errors
/// 107027 when the stream is captured already.
pub(crate) fn begin(stream: &Arc<Stream>, mode: Mode) -> Outcome {
    if stream.capture().is_some() {
        return refuse(
            code::STREAM_CAPTURED,
            format!("stream {} is captured already", stream.id),
        );
    }
    let inside = Inside {
        streams: vec![stream.clone()],
        ..Inside::default()
    };
    let capture = Arc::new(Capture {
        model: handle::fresh(),
        thread: thread::current().id(),
        mode,
        inside: Mutex::new(inside),
    });
    stream.set_capture(Some(capture.clone()));
    lock(&ACTIVE).push(capture);
    COUNT.fetch_add(1, Ordering::SeqCst);
    Ok(())
}

/// Ends the capture that began on `stream`; the graph's handle.
///
/// # Errors
/// 107029 when the stream is not captured, 107036 when the capture began on another, 107038 in another thread (unless
/// relaxed): the capture goes on. 507903 when it is broken, 107033 when a task group is open, 107024 when a stream waits
/// for an event that was never recorded, 107025 when a stream did not come back: it is over.
pub(crate) fn end(stream: &Arc<Stream>) -> Outcome<usize> {
    let Some(capture) = stream.capture() else {
        return refuse(
            code::NOT_CAPTURED,
            format!("stream {} is not captured", stream.id),
        );
    };
    if lock(&capture.inside).streams[0].handle != stream.handle {
        return refuse(
            code::CAPTURE_UNMATCHED,
            "the capture began on another stream",
        );
    }
    if capture.mode != Mode::Relaxed && capture.thread != thread::current().id() {
        return refuse(
            code::CAPTURE_WRONG_THREAD,
            "the capture began in another thread",
        );
    }
    let inside = std::mem::take(&mut *lock(&capture.inside));
    for stream in &inside.streams {
        stream.set_capture(None);
    }
    lock(&ACTIVE).retain(|other| !Arc::ptr_eq(other, &capture));
    COUNT.fetch_sub(1, Ordering::SeqCst);
    if inside.broken {
        return refuse(
            code::CAPTURE_INVALIDATED,
            "a call during the capture broke it",
        );
    }
    if !inside.groups.is_empty() {
        return refuse(code::TASK_GROUP, "a group of tasks is still open");
    }
    if inside.missing_record {
        return refuse(
            code::CAPTURE_DEPENDENCY,
            "a captured stream waits for an event that was never recorded",
        );
    }
    for (lane, stream) in inside.streams.iter().enumerate().skip(1) {
        let last = inside.steps.iter().rev().find(|(other, _)| *other == lane);
        let joined = matches!(last, Some((_, Step::Record(record))) if inside.steps.iter().any(|(other, step)| {
            *other != lane && matches!(step, Step::Wait(waited) if waited == record)
        }));
        if !joined {
            return refuse(
                code::CAPTURE_UNJOINED,
                format!(
                    "stream {} joined the capture and did not come back",
                    stream.id
                ),
            );
        }
    }
    device::have_streams(&stream.device, inside.streams.len() - 1)?;
    model::keep(capture.model, &inside.streams, inside.steps, inside.records);
    Ok(capture.model)
}
