//! A proof that a plan is safe, made without the planner's code.
//!
//! [`check`] replays the steps of a plan over vector clocks and derives from the graph alone what
//! every task must read and write. It shows:
//!
//! - every node that does something is launched exactly once, with the memory its operands were
//!   written to;
//! - a value is written before it is read, across lanes too;
//! - no memory is written while the value in it is still needed; writing into an operand's memory
//!   happens only in collectives that allow it and only when nobody else reads the operand;
//! - inputs are written after their last reader;
//! - events are recorded before they are waited for, once, and all lanes begin after lane 0 began
//!   and are joined into it at the end;
//! - a communicator stays on one lane, collectives keep their order where they must, and two that
//!   share more than one rank never run at the same time.
//!
//! [`across_ranks`] shows that the plans of several ranks together contain no cycle of waits.

use hcom_ir::{Class, Graph, Id, NodeId, Op};
use rustc_hash::FxHashMap;
use thiserror::Error;

use super::{Mode, Plan, Step, Task, Work};

mod across;
mod contents;

pub use across::across_ranks;

/// A rule that a plan breaks.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum Violation {
    /// A node is not launched exactly once.
    #[error("`{node}` is launched {times} times")]
    Launches {
        /// The node, printed.
        node: String,
        /// How often.
        times: usize,
    },
    /// A task reads other memory than the value was written to.
    #[error("{task} does not use the memory of %{value}")]
    Wiring {
        /// The task.
        task: String,
        /// Name of the value.
        value: String,
    },
    /// A value may be read before it is written.
    #[error("{reader} may start before {writer} has finished")]
    Dependency {
        /// The task that reads.
        reader: String,
        /// The task that writes.
        writer: String,
    },
    /// Memory may be written while the value in it is still needed.
    #[error("{writer} may overwrite {kept} while it is needed")]
    Overlap {
        /// The task that writes.
        writer: String,
        /// What lies in the memory.
        kept: String,
    },
    /// Memory outside of the arena.
    #[error("{task} uses memory beyond the arena of {arena_bytes} bytes")]
    OutOfArena {
        /// The task.
        task: String,
        /// Size of the arena.
        arena_bytes: u64,
    },
    /// A wait comes before its record, or an event is recorded twice.
    #[error("event {event} is {what}")]
    Event {
        /// The event.
        event: usize,
        /// What is wrong.
        what: &'static str,
    },
    /// A lane begins on its own or is not joined at the end.
    #[error("lane {lane} {what}")]
    Join {
        /// The lane.
        lane: usize,
        /// What is wrong.
        what: &'static str,
    },
    /// A communicator is used on two lanes, or a lane uses two of them.
    #[error("group {group} is used on lane {lane}, which is not its own")]
    Channel {
        /// Name of the group.
        group: String,
        /// The lane.
        lane: usize,
    },
    /// Collectives are issued in another order than the program's although they are pinned.
    #[error("{later} is issued before {earlier}, which comes first in the program")]
    Order {
        /// First in the program.
        earlier: String,
        /// First in the plan.
        later: String,
    },
    /// Two collectives whose groups share more than one rank may run at the same time.
    #[error("{a} and {b} share more than one rank and may run at the same time")]
    Concurrent {
        /// One of them.
        a: String,
        /// The other one.
        b: String,
    },
    /// The host does not wait where the mode says so.
    #[error("the host does not wait after {task}")]
    NotSplit {
        /// The collective.
        task: String,
    },
    /// Collectives of several ranks wait for each other in a circle.
    #[error("collectives wait for each other in a circle: {}", .cycle.join(" -> "))]
    Cycle {
        /// The collectives, each before the next.
        cycle: Vec<String>,
    },
}

struct Checker<'a> {
    graph: &'a Graph,
    plan: &'a Plan,
    /// For each task, how many tasks of each lane have finished when it starts.
    before: Vec<Vec<usize>>,
    /// 1-based place of each task in its lane.
    place: Vec<usize>,
    /// Tasks in order of issue.
    issued: Vec<usize>,
}

/// Proves that `plan` executes `graph` safely. `pinned` says that collectives must keep their
/// order in the program.
///
/// # Errors
/// The first rule found broken.
pub fn check(graph: &Graph, plan: &Plan, pinned: bool) -> Result<(), Violation> {
    let checker = Checker::new(graph, plan)?;
    checker.launches()?;
    let contents = checker.contents()?;
    checker.memory(&contents)?;
    checker.channels()?;
    checker.order(pinned)?;
    checker.host_waits()
}

impl<'a> Checker<'a> {
    fn new(graph: &'a Graph, plan: &'a Plan) -> Result<Checker<'a>, Violation> {
        let tasks = plan.tasks.tasks.len();
        let mut checker = Checker {
            graph,
            plan,
            before: vec![Vec::new(); tasks],
            place: vec![0; tasks],
            issued: Vec::new(),
        };
        checker.replay()?;
        Ok(checker)
    }

    fn task(&self, index: usize) -> &Task {
        &self.plan.tasks.tasks[index]
    }

    fn describe(&self, index: usize) -> String {
        match self.task(index).work {
            Work::Node(node) => format!("`{}`", self.graph.print_node(node)),
            Work::CopyOut { output, .. } => format!("the copy to output {output}"),
            Work::Snapshot { value } => {
                format!("the snapshot of %{}", self.graph.value(value).name)
            }
        }
    }

    /// Whether `first` has finished before `second` starts, whatever the timing.
    fn precedes(&self, first: usize, second: usize) -> bool {
        self.before[second][self.plan.lane_of[first]] >= self.place[first]
    }

    /// Executes the steps over vector clocks. Position 0 of lane 0 is the start of the plan.
    fn replay(&mut self) -> Result<(), Violation> {
        let lanes = self.plan.lanes.len();
        let mut clocks = vec![vec![0usize; lanes]; lanes];
        let mut begun = vec![false; lanes];
        begun[0] = true;
        let mut events: Vec<Option<(Vec<usize>, bool)>> = vec![None; self.plan.events];
        let mut recorded = vec![false; self.plan.events];
        for &step in &self.plan.steps {
            match step {
                Step::Launch { task } => {
                    let lane = self.plan.lane_of[task];
                    if !begun[lane] {
                        return Err(Violation::Join {
                            lane,
                            what: "begins before the plan does",
                        });
                    }
                    self.before[task] = clocks[lane].clone();
                    clocks[lane][lane] += 1;
                    self.place[task] = clocks[lane][lane];
                    self.issued.push(task);
                }
                Step::Record { event, lane } => {
                    if recorded[event] {
                        return Err(Violation::Event {
                            event,
                            what: "recorded twice",
                        });
                    }
                    recorded[event] = true;
                    events[event] = Some((clocks[lane].clone(), begun[lane]));
                }
                Step::Wait { event, lane } => {
                    let Some((clock, origin_begun)) = &events[event] else {
                        return Err(Violation::Event {
                            event,
                            what: "waited for before it is recorded",
                        });
                    };
                    begun[lane] |= *origin_begun;
                    for (mine, theirs) in clocks[lane].iter_mut().zip(clock) {
                        *mine = (*mine).max(*theirs);
                    }
                }
                Step::Synchronise => {}
            }
        }
        for (lane, clock) in clocks.iter().enumerate() {
            if clocks[0][lane] < clock[lane] {
                return Err(Violation::Join {
                    lane,
                    what: "is not joined at the end",
                });
            }
        }
        Ok(())
    }

    fn launches(&self) -> Result<(), Violation> {
        let mut times: FxHashMap<NodeId, usize> = FxHashMap::default();
        for &task in &self.issued {
            if let Work::Node(node) = self.task(task).work {
                *times.entry(node).or_default() += 1;
            }
        }
        for (id, node) in self.graph.nodes() {
            let needless = match node.op {
                Op::Constant => true,
                op if op.class() == Class::View => true,
                Op::CopyToInput => self.origin(node.operands[0]) == node.operands[1],
                _ => false,
            };
            let times = times.get(&id).copied().unwrap_or(0);
            if times != usize::from(!needless) {
                return Err(Violation::Launches {
                    node: self.graph.print_node(id),
                    times,
                });
            }
        }
        Ok(())
    }

    fn channels(&self) -> Result<(), Violation> {
        let mut lane_of: FxHashMap<usize, usize> = FxHashMap::default();
        let mut channel_of: FxHashMap<usize, usize> = FxHashMap::default();
        for &task in &self.issued {
            let lane = self.plan.lane_of[task];
            let Some(channel) = self.task(task).channel else {
                continue;
            };
            let shared_lane = !self.plan.mode.overlaps() && lane == 0;
            let right = *lane_of.entry(channel).or_insert(lane) == lane
                && (shared_lane || *channel_of.entry(lane).or_insert(channel) == channel)
                && (shared_lane || lane != 0);
            if !right {
                let group = self.plan.tasks.channels[channel].group.name.clone();
                return Err(Violation::Channel { group, lane });
            }
        }
        Ok(())
    }

    fn order(&self, pinned: bool) -> Result<(), Violation> {
        let communication: Vec<(usize, NodeId)> = self
            .issued
            .iter()
            .filter_map(|&task| match self.task(task).work {
                Work::Node(id) if self.task(task).channel.is_some() => Some((task, id)),
                _ => None,
            })
            .collect();
        for (at, &(a, a_node)) in communication.iter().enumerate() {
            for &(b, b_node) in &communication[at + 1..] {
                let [one, other] = [a, b].map(|task| {
                    self.task(task)
                        .channel
                        .map(|c| &self.plan.tasks.channels[c])
                });
                let (Some(one), Some(other)) = (one, other) else {
                    continue;
                };
                let ranks = &other.group.ranks;
                let shared = one
                    .group
                    .ranks
                    .iter()
                    .filter(|rank| ranks.contains(rank))
                    .count();
                let transfer = one.point_to_point || other.point_to_point;
                let related = if transfer { one == other } else { shared > 0 };
                if pinned && related && a_node.index() > b_node.index() {
                    return Err(Violation::Order {
                        earlier: self.describe(b),
                        later: self.describe(a),
                    });
                }
                if !transfer && shared > 1 && !self.precedes(a, b) && !self.precedes(b, a) {
                    return Err(Violation::Concurrent {
                        a: self.describe(a),
                        b: self.describe(b),
                    });
                }
            }
        }
        Ok(())
    }

    fn host_waits(&self) -> Result<(), Violation> {
        if self.plan.mode != Mode::Split {
            return Ok(());
        }
        for (at, step) in self.plan.steps.iter().enumerate() {
            if let Step::Launch { task } = *step
                && self.task(task).channel.is_some()
                && self.plan.steps.get(at + 1) != Some(&Step::Synchronise)
            {
                return Err(Violation::NotSplit {
                    task: self.describe(task),
                });
            }
        }
        Ok(())
    }
}
