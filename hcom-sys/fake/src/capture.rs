//! Captured graphs: work recorded instead of run, and replayed by queueing it again.
//!
//! A capture begins on one stream. A stream that waits for an event recorded inside joins it, and must come back: the
//! last thing on it is a record that another captured stream waits for. Each joined stream becomes a lane of the graph
//! with a stream of its own; lane 0 is the stream that a replay is started on. A replay queues every step in the order
//! of the capture, with fresh records for its events, so replays may follow each other without waiting, and collectives
//! keep the order in which they were captured.
//!
//! A failure in a lane reaches the replay's stream through the event that joins the lane. A lane that failed stays
//! failed: the graph must be captured again.

use std::cell::Cell;
use std::ffi::c_void;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, ThreadId};

use crate::code;
use crate::error::{Failure, Outcome, refuse};
use crate::event::{Record, Recording, Waiting};
use crate::handle::{self, Table};
use crate::memory::lock;
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
}

enum Step {
    Work(Arc<dyn Work>),
    Record(usize),
    Wait(usize),
}

static ACTIVE: Mutex<Vec<Arc<Capture>>> = Mutex::new(Vec::new());
/// How many captures go on, so that calls need no lock while there is none.
static COUNT: AtomicUsize = AtomicUsize::new(0);

/// Refuses a call that does not go through a stream while a capture forbids it.
///
/// # Errors
/// 107030, and the capture is broken.
pub(crate) fn allow_call() -> Outcome {
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
            return refuse(
                code::CAPTURE_FORBIDS,
                "a capture is going on that forbids calls outside streams",
            );
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
        self.step(stream, Step::Work(work));
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
/// relaxed): the capture goes on. 507903 when it is broken, 107025 when a stream did not come back: it is over.
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
    let lanes = inside.streams[1..]
        .iter()
        .map(|stream| Stream::create(stream.device.clone(), stream.priority, stream.flags))
        .collect();
    let model = Model {
        steps: inside.steps,
        lanes,
        records: inside.records,
        running: Arc::default(),
    };
    MODELS.insert(capture.model, Arc::new(model));
    Ok(capture.model)
}

/// A captured graph.
pub(crate) struct Model {
    steps: Vec<(usize, Step)>,
    /// The streams of lanes 1 and up.
    lanes: Vec<Arc<Stream>>,
    records: usize,
    running: Arc<AtomicUsize>,
}

/// All living graphs.
static MODELS: Table<Model> = Table::new();

fn find(model: *const c_void) -> Outcome<Arc<Model>> {
    if model.is_null() {
        return refuse(code::INVALID_PARAM, "the graph is null");
    }
    match MODELS.get(model) {
        Some(model) => Ok(model),
        None => refuse(
            code::HANDLE,
            format!("{:#x} names no living graph", model.addr()),
        ),
    }
}

/// Queues one replay of the graph on `stream`.
///
/// # Errors
/// 107027 on a captured stream; those of [`Stream::enqueue`].
pub(crate) fn execute(model: *const c_void, stream: &Arc<Stream>) -> Outcome {
    let model = find(model)?;
    if stream.capture().is_some() {
        return refuse(
            code::STREAM_CAPTURED,
            "a graph cannot be replayed inside a capture",
        );
    }
    model.running.fetch_add(1, Ordering::SeqCst);
    let done = Arc::new(Done(model.running.clone()));
    let records: Vec<Arc<Record>> = (0..model.records).map(|_| Arc::default()).collect();
    for (lane, step) in &model.steps {
        let stream = if *lane == 0 {
            stream
        } else {
            &model.lanes[*lane - 1]
        };
        let work: Arc<dyn Work> = match step {
            Step::Work(work) => work.clone(),
            Step::Record(record) => Arc::new(Recording(records[*record].clone())),
            Step::Wait(record) => Arc::new(Waiting::new(records[*record].clone(), None)),
        };
        if let Err(failure) = stream.enqueue(work) {
            // What was queued already must not wait for what never will be.
            for record in &records {
                record.fail(&failure);
            }
            done.skip(0, &failure);
            return Err(failure);
        }
    }
    stream
        .enqueue(done.clone())
        .map(|_| ())
        .inspect_err(|failure| done.skip(0, failure))
}

/// The end of a replay.
struct Done(Arc<AtomicUsize>);

impl Work for Done {
    fn name(&self) -> &str {
        "the end of a graph"
    }
    fn run(&self, _: u64, _: &Stream) -> Outcome {
        self.0.fetch_sub(1, Ordering::SeqCst);
        Ok(())
    }
    fn skip(&self, _: u64, _: &Failure) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Destroys the graph.
///
/// # Errors
/// 107037 while a replay runs.
pub(crate) fn destroy(model: *const c_void) -> Outcome {
    let found = find(model)?;
    if found.running.load(Ordering::SeqCst) > 0 {
        return refuse(
            code::MODEL_RUNNING,
            "a replay of the graph is still running",
        );
    }
    MODELS.remove(model);
    for lane in &found.lanes {
        lane.close();
    }
    Ok(())
}
