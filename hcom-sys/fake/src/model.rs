//! Recorded graphs and their replay.
//!
//! A graph has lanes, one per stream that took part. Lane 0 is the stream that a replay is started on, each other lane
//! has a stream of its own. A replay queues every step in the order of the recording, with fresh records for its
//! events, so replays may follow each other without waiting, and collectives keep their order.
//!
//! A failure in a lane reaches the replay's stream through the event that joins the lane. A lane that failed stays
//! failed: the graph must be recorded again.
//!
//! A graph with jumps between labels cannot be queued ahead: its replay is one piece of work that walks over the steps.

use std::collections::HashMap;
use std::ffi::c_void;
use std::fmt::Write as _;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use crate::code;
use crate::error::{Failure, Outcome, refuse};
use crate::event::{Event, Record, Recording, Waiting};
use crate::handle::Table;
use crate::memory::{self, lock};
use crate::stream::{Stream, Work};

/// One recorded step of a lane.
pub(crate) enum Step {
    /// Something that runs.
    Work(Arc<dyn Work>),
    /// A record inside the graph, by number.
    Record(usize),
    /// A wait for one.
    Wait(usize),
    /// A record of an event outside.
    RecordOutside(Arc<Event>),
    /// A wait for an event outside.
    WaitOutside(Arc<Event>),
    /// A label, by handle.
    Label(usize),
    /// A jump to the label whose index stands at a device address.
    Jump {
        /// The address.
        index: usize,
        /// The labels to choose from.
        labels: Vec<usize>,
    },
    /// The end of the graph.
    End,
}

impl Step {
    fn is_outside(&self) -> bool {
        matches!(self, Self::RecordOutside(_) | Self::WaitOutside(_))
    }

    /// What a replay with these records queues for a step inside the graph.
    fn work(&self, records: &[Arc<Record>]) -> Option<Arc<dyn Work>> {
        Some(match self {
            Self::Work(work) => work.clone(),
            Self::Record(record) => Arc::new(Recording(records[*record].clone())),
            Self::Wait(record) => Arc::new(Waiting::new(records[*record].clone(), None)),
            Self::RecordOutside(_) | Self::WaitOutside(_) => return None,
            Self::Label(_) | Self::Jump { .. } | Self::End => return None,
        })
    }

    /// What it is called in a dump.
    fn describe(&self) -> (&str, String) {
        match self {
            Self::Work(work) => ("task", work.name().to_owned()),
            Self::Record(number) => ("event record", format!("event {number}")),
            Self::Wait(number) => ("event wait", format!("event {number}")),
            Self::RecordOutside(_) => ("event record", "external".to_owned()),
            Self::WaitOutside(_) => ("event wait", "external".to_owned()),
            Self::Label(handle) => ("label", format!("label {handle:#x}")),
            Self::Jump { labels, .. } => ("jump", format!("one of {} labels", labels.len())),
            Self::End => ("end", String::new()),
        }
    }
}

/// A recorded graph.
pub(crate) struct Model {
    steps: Vec<(usize, Step)>,
    /// The streams of lanes 1 and up.
    lanes: Vec<Arc<Stream>>,
    records: usize,
    jumps: bool,
    running: Arc<AtomicUsize>,
    name: Mutex<String>,
}

/// All living graphs.
static MODELS: Table<Model> = Table::new();

fn insert(handle: usize, streams: &[Arc<Stream>], steps: Vec<(usize, Step)>, records: usize) {
    let jumps = steps
        .iter()
        .any(|(_, step)| matches!(step, Step::Jump { .. }));
    let lanes = streams[1..]
        .iter()
        .map(|stream| Stream::create(stream.device.clone(), stream.priority, 0))
        .collect();
    let model = Model {
        steps,
        lanes,
        records,
        jumps,
        running: Arc::default(),
        name: Mutex::default(),
    };
    MODELS.insert(handle, Arc::new(model));
}

/// Keeps a captured graph under its handle.
pub(crate) fn keep(
    handle: usize,
    streams: &[Arc<Stream>],
    steps: Vec<(usize, Step)>,
    records: usize,
) {
    insert(handle, streams, steps, records);
}

/// Keeps a built graph under its handle: its lanes start with the replay, which ends when all have ended.
pub(crate) fn keep_built(
    handle: usize,
    streams: &[Arc<Stream>],
    steps: Vec<(usize, Step)>,
    mut records: usize,
) {
    let others = 1..streams.len();
    let (start, first_end) = (records, records + 1);
    records += streams.len();
    let mut all = vec![(0, Step::Record(start))];
    all.extend(others.clone().map(|lane| (lane, Step::Wait(start))));
    all.extend(steps);
    for lane in others {
        all.push((lane, Step::Record(first_end + lane - 1)));
        all.push((0, Step::Wait(first_end + lane - 1)));
    }
    insert(handle, streams, all, records);
}

/// The graph that `model` names.
///
/// # Errors
/// 100000 for null, 107017 for an unknown handle.
pub(crate) fn find(model: *const c_void) -> Outcome<Arc<Model>> {
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
    if let Err(failure) = queue(&model, stream) {
        done.skip(0, &failure);
        return Err(failure);
    }
    stream
        .enqueue(done.clone())
        .map(|_| ())
        .inspect_err(|failure| done.skip(0, failure))
}

fn queue(model: &Arc<Model>, stream: &Arc<Stream>) -> Outcome {
    if model.jumps {
        return stream.enqueue(Arc::new(Walk(model.clone()))).map(|_| ());
    }
    let records: Vec<Arc<Record>> = (0..model.records).map(|_| Arc::default()).collect();
    let lane_of = |lane: usize| match lane {
        0 => stream,
        lane => &model.lanes[lane - 1],
    };
    // Neighbours on one lane are queued at once.
    let together = |(lane, step): &(usize, Step), (other, next): &(usize, Step)| {
        lane == other && !step.is_outside() && !next.is_outside()
    };
    for steps in model.steps.chunk_by(together) {
        let stream = lane_of(steps[0].0);
        let queued = match &steps[0].1 {
            Step::RecordOutside(event) => event.record(stream),
            Step::WaitOutside(event) => event.wait_on(stream, None),
            _ => stream.enqueue_all(steps.iter().filter_map(|(_, step)| step.work(&records))),
        };
        if let Err(failure) = queued {
            // What was queued already must not wait for what never will be.
            for record in &records {
                record.fail(&failure);
            }
            return Err(failure);
        }
    }
    Ok(())
}

/// A replay of a graph with jumps.
struct Walk(Arc<Model>);

/// Jumps of one walk after which it counts as endless.
const MOST_JUMPS: u32 = 1 << 20;

impl Walk {
    /// The step to go on at: behind the label that the word at `index` chooses.
    fn target(&self, index: usize, labels: &[usize]) -> Outcome<usize> {
        let mut word = [0u32];
        memory::span(std::ptr::without_provenance(index), 4)
            .map_err(|failure| Failure::new(code::DEVICE_MEMORY, failure.text))?
            .read(0, &mut word);
        let chosen = labels[(word[0] as usize).min(labels.len() - 1)];
        let at = self.0.steps.iter().position(|(_, step)| match step {
            Step::Label(label) => *label == chosen,
            _ => false,
        });
        at.ok_or_else(|| {
            Failure::new(
                code::TASK_FAILED,
                format!("a jump to label {chosen:#x}, which is not set in the graph"),
            )
        })
    }
}

impl Work for Walk {
    fn name(&self) -> &str {
        "a graph with jumps"
    }
    fn run(&self, _: u64, stream: &Stream) -> Outcome {
        let steps = &self.0.steps;
        let (mut at, mut jumps) = (0, 0);
        while let Some((lane, step)) = steps.get(at) {
            if stream.aborted() {
                return Err(stream.abort_failure());
            }
            match step {
                Step::Work(work) => work.run(work.admit(), stream)?,
                Step::Jump { index, labels } => {
                    jumps += 1;
                    if jumps > MOST_JUMPS {
                        return refuse(code::TASK_FAILED, "a graph that jumps without end");
                    }
                    at = self.target(*index, labels)?;
                    continue;
                }
                Step::End => break,
                // One thread runs all lanes, one behind the other, so inner events hold at once.
                Step::Record(_) | Step::Wait(_) | Step::Label(_) => {}
                Step::RecordOutside(_) | Step::WaitOutside(_) => {
                    return refuse(code::NOT_SUPPORTED, "external events in a graph with jumps");
                }
            }
            // On to the next step of this lane; behind its last, to the first of the next lane.
            at = (at + 1..steps.len())
                .find(|&next| steps[next].0 == *lane)
                .or_else(|| steps.iter().position(|(other, _)| *other == lane + 1))
                .unwrap_or(steps.len());
        }
        Ok(())
    }
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

impl Model {
    /// Names it.
    pub(crate) fn set_name(&self, name: String) {
        *lock(&self.name) = name;
    }

    /// Its name, empty when it has none.
    pub(crate) fn name(&self) -> String {
        lock(&self.name).clone()
    }

    /// The graph as JSON: its lanes, and the tasks of each in order. With `verbose` each task says its place in the
    /// whole recording.
    pub(crate) fn to_json(&self, handle: usize, verbose: bool) -> String {
        let mut lanes: HashMap<usize, String> = HashMap::new();
        for (at, (lane, step)) in self.steps.iter().enumerate() {
            let (kind, name) = step.describe();
            let text = lanes.entry(*lane).or_default();
            let comma = if text.is_empty() { "" } else { "," };
            let place = if verbose {
                format!(", \"step\": {at}")
            } else {
                String::new()
            };
            let _ = write!(
                text,
                "{comma}\n      {{\"type\": \"{kind}\", \"name\": {name:?}{place}}}"
            );
        }
        let mut streams = String::new();
        for lane in 0..=self.lanes.len() {
            let comma = if lane == 0 { "" } else { "," };
            let tasks = lanes.remove(&lane).unwrap_or_default();
            let _ = write!(
                streams,
                "{comma}\n    {{\"lane\": {lane}, \"tasks\": [{tasks}\n    ]}}"
            );
        }
        format!(
            "{{\n  \"model\": {handle},\n  \"name\": {:?},\n  \"streams\": [{streams}\n  ]\n}}\n",
            self.name()
        )
    }
}
