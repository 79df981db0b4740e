//! The plan: what each stream executes, in which order, and in which memory.
//!
//! Graph → tasks → order (list scheduling) → lanes → events → memory → [`Step`]s, one module each.
//! Everything here is a pure function of the graph, the own rank, the mode and the cost model;
//! [`check`] proves the outcome without any of this code.

use hcom_ir::{CostModel, Graph};

use crate::{crosscheck::Uniformity, error::Error, memory::Layout};

pub mod check;
mod events;
mod schedule;
mod streams;
mod tasks;

pub(crate) use events::Synchronisation;
pub(crate) use tasks::{Channel, Root, Task, Tasks, Work};

/// How a plan is laid out over streams. The results are equal bit by bit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Mode {
    /// One compute stream and one stream per communicator, joined by events.
    #[default]
    Overlapped,
    /// Everything on the compute stream, in program order.
    SingleStream,
    /// As [`Mode::SingleStream`], and the host waits for the device after every collective: what a
    /// graph that is cut at its collectives costs.
    Split,
    /// As [`Mode::Overlapped`], recorded once when the graph is compiled and started as one launch
    /// by each execution.
    Replay,
}

impl Mode {
    /// All modes.
    pub const ALL: [Mode; 4] = [
        Mode::Overlapped,
        Mode::SingleStream,
        Mode::Split,
        Mode::Replay,
    ];

    /// The name in reports: `overlapped`, `single_stream`, `split` or `replay`.
    pub fn name(self) -> &'static str {
        match self {
            Mode::Overlapped => "overlapped",
            Mode::SingleStream => "single_stream",
            Mode::Split => "split",
            Mode::Replay => "replay",
        }
    }

    /// Whether each communicator has a stream of its own.
    pub(crate) fn overlaps(self) -> bool {
        matches!(self, Mode::Overlapped | Mode::Replay)
    }
}

/// What the host issues, in this order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Execute a task on its lane.
    Launch {
        /// Index of the task.
        task: usize,
    },
    /// Mark the point a lane has reached.
    Record {
        /// The event.
        event: usize,
        /// The lane that reaches it.
        lane: usize,
    },
    /// Hold a lane until an event has been reached.
    Wait {
        /// The event.
        event: usize,
        /// The lane that waits.
        lane: usize,
    },
    /// The host waits until lane 0 is idle.
    Synchronise,
}

/// What a lane is for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lane {
    /// `compute`, or the name of a group, with ` p2p` for point-to-point traffic.
    pub name: String,
}

/// A plan for one rank. See the [module](self).
#[derive(Clone, Debug)]
pub struct Plan {
    pub(crate) mode: Mode,
    pub(crate) tasks: Tasks,
    pub(crate) lane_of: Vec<usize>,
    pub(crate) lanes: Vec<Lane>,
    pub(crate) steps: Vec<Step>,
    pub(crate) events: usize,
    pub(crate) layout: Layout,
    pub(crate) predicted_us: f64,
    /// Expected duration of each task.
    pub(crate) durations_us: Vec<f64>,
}

impl Plan {
    /// Plans `graph` for global rank `rank`. With [`Uniformity::Uniform`] the cost model must be the
    /// same on all ranks.
    pub(crate) fn new(
        graph: &Graph,
        rank: u32,
        mode: Mode,
        uniformity: &Uniformity,
        cost: &CostModel,
    ) -> Result<Plan, Error> {
        let tasks = Tasks::new(graph, rank)?;
        let lanes = streams::lanes(&tasks, mode);
        let lane_of = streams::assign(&tasks, mode);
        let pinned = *uniformity != Uniformity::Uniform;
        let durations_us = streams::durations_us(graph, &tasks, cost);
        let jobs = streams::jobs(&tasks, &lane_of, pinned, &durations_us);
        let mut after: Vec<Vec<usize>> =
            tasks.tasks.iter().map(|task| task.after.clone()).collect();
        let (order, predicted_us) = match mode {
            Mode::Overlapped | Mode::Replay => {
                let scheduled = schedule::list_schedule(&jobs, lanes.len(), |a, b| {
                    streams::exclusive(&tasks, a, b)
                });
                for &(first, second) in &scheduled.added {
                    after[second].push(first);
                }
                let makespan = scheduled.makespan_us();
                (scheduled.order, makespan)
            }
            Mode::SingleStream | Mode::Split => (
                (0..jobs.len()).collect(),
                jobs.iter().map(|job| job.duration_us).sum(),
            ),
        };
        let sync = join(&order, &lane_of, after, lanes.len());
        let layout = Layout::new(&tasks, &order, &lane_of, &sync);
        let steps = steps(&order, &lane_of, &tasks, &sync, mode);
        Ok(Plan {
            mode,
            lanes,
            lane_of,
            steps,
            events: sync.events,
            layout,
            predicted_us,
            durations_us,
            tasks,
        })
    }

    /// How it is laid out.
    pub fn mode(&self) -> Mode {
        self.mode
    }

    /// The lanes; the first one computes. Each becomes a stream.
    pub fn lanes(&self) -> &[Lane] {
        &self.lanes
    }

    /// What the host issues, in order.
    pub fn steps(&self) -> &[Step] {
        &self.steps
    }

    /// Number of events, the fewest that keep every dependency for this order.
    pub fn events(&self) -> usize {
        self.events
    }

    /// Size of the arena that holds all intermediate values, in bytes.
    pub fn arena_bytes(&self) -> u64 {
        self.layout.arena_bytes
    }

    /// What the intermediate values would take without sharing memory, in bytes.
    pub fn unshared_bytes(&self) -> u64 {
        self.layout.unshared_bytes
    }

    /// Expected duration of a step by the cost model, in microseconds.
    pub fn predicted_us(&self) -> f64 {
        self.predicted_us
    }

    /// Number of collectives, sends, receives and barriers that involve other ranks.
    pub fn collectives(&self) -> usize {
        let tasks = self.tasks.tasks.iter();
        tasks.filter(|task| task.channel.is_some()).count()
    }
}

/// Adds a start and an end on lane 0 to the tasks, so that every lane begins after whatever lane 0
/// did before the plan and ends before whatever it does after, and places the events. The start is
/// job `tasks`, the end job `tasks + 1`.
fn join(
    order: &[usize],
    lane_of: &[usize],
    mut after: Vec<Vec<usize>>,
    lanes: usize,
) -> Synchronisation {
    let count = order.len();
    let (start, end) = (count, count + 1);
    let mut lane: Vec<usize> = lane_of.to_vec();
    lane.extend([0, 0]);
    let mut last: Vec<Option<usize>> = vec![None; lanes];
    for &task in order {
        if after[task].is_empty() && last[lane[task]].is_none() {
            after[task].push(start);
        }
        last[lane[task]] = Some(task);
    }
    after.push(Vec::new());
    after.push(last.into_iter().flatten().collect());
    let mut whole = Vec::with_capacity(count + 2);
    whole.push(start);
    whole.extend_from_slice(order);
    whole.push(end);
    events::synchronise(&whole, &lane, &after, lanes)
}

fn steps(
    order: &[usize],
    lane_of: &[usize],
    tasks: &Tasks,
    sync: &Synchronisation,
    mode: Mode,
) -> Vec<Step> {
    let (start, end) = (order.len(), order.len() + 1);
    let mut steps = Vec::with_capacity(order.len() + 2 * sync.events + 2);
    if let Some(event) = sync.record[start] {
        steps.push(Step::Record { event, lane: 0 });
    }
    let event = |job: usize| sync.record[job].expect("what is waited for is recorded");
    for &task in order {
        let lane = lane_of[task];
        steps.extend(sync.waits[task].iter().map(|&job| Step::Wait {
            event: event(job),
            lane,
        }));
        steps.push(Step::Launch { task });
        if let Some(event) = sync.record[task] {
            steps.push(Step::Record { event, lane });
        }
        if mode == Mode::Split && tasks.tasks[task].channel.is_some() {
            steps.push(Step::Synchronise);
        }
    }
    steps.extend(sync.waits[end].iter().map(|&job| Step::Wait {
        event: event(job),
        lane: 0,
    }));
    steps
}

#[cfg(test)]
mod tests;
