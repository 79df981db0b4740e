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
//! - inputs are written after their last reader, and only if they may be;
//! - events are recorded before they are waited for, once, and all lanes begin after lane 0 began
//!   and are joined into it at the end;
//! - a communicator stays on one lane, collectives keep their order where they must, and two that
//!   share more than one rank never run at the same time.
//!
//! [`across_ranks`] shows that the plans of several ranks together contain no cycle of waits.

use hcom_ir::{Def, Graph, Id, NodeId, Op, ValueId};
use rustc_hash::FxHashMap;
use thiserror::Error;

use super::{Mode, Plan, Root, Step, Task, Work};
use crate::memory::Home;

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
    /// An input that may not be written is written.
    #[error("{task} writes input %{input}, which is not mutable")]
    ReadOnly {
        /// The task.
        task: String,
        /// Name of the input.
        input: String,
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

/// A stretch of memory; `start..end` are bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Region {
    space: Space,
    start: u64,
    end: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Space {
    Input(usize),
    Constant(NodeId),
    Output(usize),
    Arena,
}

/// Something that lies in memory for a while.
struct Content {
    region: Region,
    /// The task that writes it; nothing for what is there at the start.
    writer: Option<usize>,
    readers: Vec<usize>,
    /// Whether it is needed after the plan has ended.
    kept: bool,
    name: String,
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
    let mut checker = Checker {
        graph,
        plan,
        before: vec![Vec::new(); plan.tasks.tasks.len()],
        place: vec![0; plan.tasks.tasks.len()],
        issued: Vec::new(),
    };
    checker.replay()?;
    checker.launches()?;
    let contents = checker.contents()?;
    checker.memory(&contents)?;
    checker.channels()?;
    checker.order(pinned)?;
    checker.host_waits()
}

impl Checker<'_> {
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
        for lane in 0..lanes {
            if clocks[0][lane] < clocks[lane][lane] {
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
                Op::Constant | Op::Reshape => true,
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

    /// The value whose memory `value` names: itself unless it is a reshape.
    fn origin(&self, mut value: ValueId) -> ValueId {
        while let Def::Node { node, .. } = self.graph.value(value).def
            && self.graph.node(node).op == Op::Reshape
        {
            value = self.graph.node(node).operands[0];
        }
        value
    }

    fn region(&self, root: Root, bytes: u64) -> Region {
        let (space, start) = match root {
            Root::Input(input) => (Space::Input(input), 0),
            Root::Constant(node) => (Space::Constant(node), 0),
            Root::Output(output) => (Space::Output(output), 0),
            Root::Buffer(buffer) => match self.plan.layout.buffers[buffer] {
                Home::Arena(offset) => (Space::Arena, offset),
                Home::Output(output) => (Space::Output(output), 0),
            },
        };
        Region {
            space,
            start,
            end: start + bytes,
        }
    }

    fn value_bytes(&self, value: ValueId) -> u64 {
        self.graph.ty(value).bytes().unwrap_or(0)
    }

    /// Everything that lies in memory, from the graph; checks that tasks use the memory in which
    /// their operands were left.
    fn contents(&self) -> Result<Vec<Content>, Violation> {
        let mut contents: Vec<Content> = Vec::new();
        let mut of_value: FxHashMap<ValueId, usize> = FxHashMap::default();
        let named = |value: ValueId| format!("%{}", self.graph.value(value).name);
        for (index, input) in self.graph.inputs().iter().enumerate() {
            of_value.insert(input.value, contents.len());
            contents.push(Content {
                region: self.region(Root::Input(index), self.value_bytes(input.value)),
                writer: None,
                readers: Vec::new(),
                kept: false,
                name: named(input.value),
            });
        }
        for (id, node) in self
            .graph
            .nodes()
            .filter(|(_, node)| node.op == Op::Constant)
        {
            let value = node.results[0];
            of_value.insert(value, contents.len());
            contents.push(Content {
                region: self.region(Root::Constant(id), self.value_bytes(value)),
                writer: None,
                readers: Vec::new(),
                kept: true,
                name: named(value),
            });
        }
        // Writers first, so that a reader issued too early is still matched with its writer.
        for &task in &self.issued {
            if let Work::Node(node) = self.task(task).work {
                let node = self.graph.node(node);
                for (&value, &root) in node.results.iter().zip(&self.task(task).results) {
                    of_value.insert(value, contents.len());
                    contents.push(Content {
                        region: self.region(root, self.value_bytes(value)),
                        writer: Some(task),
                        readers: Vec::new(),
                        kept: false,
                        name: named(value),
                    });
                }
            }
        }
        let mut snapshots: FxHashMap<ValueId, Vec<usize>> = FxHashMap::default();
        for &task in &self.issued {
            self.read(task, &mut contents, &of_value, &mut snapshots)?;
            let scratch = &self.plan.layout.scratch[task];
            for (&offset, &bytes) in scratch.iter().zip(&self.task(task).lowered.scratch) {
                contents.push(Content {
                    region: Region {
                        space: Space::Arena,
                        start: offset,
                        end: offset + bytes,
                    },
                    writer: Some(task),
                    readers: Vec::new(),
                    kept: false,
                    name: format!("temporary memory of {}", self.describe(task)),
                });
            }
        }
        self.outputs(&mut contents, &of_value)?;
        Ok(contents)
    }

    /// Registers what `task` reads, and what it writes beyond the results of its node.
    fn read(
        &self,
        task: usize,
        contents: &mut Vec<Content>,
        of_value: &FxHashMap<ValueId, usize>,
        snapshots: &mut FxHashMap<ValueId, Vec<usize>>,
    ) -> Result<(), Violation> {
        let wiring = |value: ValueId| Violation::Wiring {
            task: self.describe(task),
            value: self.graph.value(value).name.clone(),
        };
        let roots = &self.task(task).operands;
        match self.task(task).work {
            Work::Node(id) if self.graph.node(id).op == Op::CopyToInput => {
                let node = self.graph.node(id);
                let (value, input) = (node.operands[0], node.operands[1]);
                let from = self.region(roots[0], self.value_bytes(value));
                let origin = self.origin(value);
                let candidates = snapshots.get(&origin).cloned().unwrap_or_default();
                let content = candidates
                    .into_iter()
                    .chain([of_value[&origin]])
                    .find(|&content| contents[content].region == from)
                    .ok_or_else(|| wiring(value))?;
                contents[content].readers.push(task);
                let Def::Input(index) = self.graph.value(input).def else {
                    return Err(wiring(input));
                };
                let declared = &self.graph.inputs()[index as usize];
                if !declared.mutable {
                    return Err(Violation::ReadOnly {
                        task: self.describe(task),
                        input: declared.name.clone(),
                    });
                }
                let target = self.region(Root::Input(index as usize), self.value_bytes(input));
                if self.region(roots[1], self.value_bytes(input)) != target {
                    return Err(wiring(input));
                }
                contents.push(Content {
                    region: target,
                    writer: Some(task),
                    readers: Vec::new(),
                    kept: true,
                    name: format!("the new value of %{}", declared.name),
                });
            }
            Work::Node(id) => {
                for (&value, &root) in self.graph.node(id).operands.iter().zip(roots) {
                    let content = of_value[&self.origin(value)];
                    if contents[content].region != self.region(root, self.value_bytes(value)) {
                        return Err(wiring(value));
                    }
                    contents[content].readers.push(task);
                }
            }
            Work::CopyOut { value, .. } | Work::Snapshot { value } => {
                let bytes = self.value_bytes(value);
                let content = of_value[&self.origin(value)];
                if contents[content].region != self.region(roots[0], bytes) {
                    return Err(wiring(value));
                }
                contents[content].readers.push(task);
                if let Work::Snapshot { .. } = self.task(task).work {
                    snapshots
                        .entry(self.origin(value))
                        .or_default()
                        .push(contents.len());
                }
                contents.push(Content {
                    region: self.region(self.task(task).results[0], bytes),
                    writer: Some(task),
                    readers: Vec::new(),
                    kept: matches!(self.task(task).work, Work::CopyOut { .. }),
                    name: self.describe(task),
                });
            }
        }
        Ok(())
    }

    /// Each output's array must end up with the output's value.
    fn outputs(
        &self,
        contents: &mut [Content],
        of_value: &FxHashMap<ValueId, usize>,
    ) -> Result<(), Violation> {
        for (output, &value) in self.graph.outputs().iter().enumerate() {
            let region = self.region(Root::Output(output), self.value_bytes(value));
            let copied = self.issued.iter().any(|&task| {
                self.task(task).work == (Work::CopyOut { output, value })
                    && self.task(task).results[0] == Root::Output(output)
            });
            if copied {
                continue;
            }
            let content = &mut contents[of_value[&self.origin(value)]];
            if content.region != region {
                return Err(Violation::Wiring {
                    task: format!("output {output}"),
                    value: self.graph.value(value).name.clone(),
                });
            }
            content.kept = true;
        }
        Ok(())
    }

    fn memory(&self, contents: &[Content]) -> Result<(), Violation> {
        let arena_bytes = self.plan.layout.arena_bytes;
        for content in contents {
            if let Some(writer) = content.writer {
                if content.region.space == Space::Arena && content.region.end > arena_bytes {
                    return Err(Violation::OutOfArena {
                        task: self.describe(writer),
                        arena_bytes,
                    });
                }
                if let Some(&reader) = content
                    .readers
                    .iter()
                    .find(|&&reader| !self.precedes(writer, reader))
                {
                    return Err(Violation::Dependency {
                        reader: self.describe(reader),
                        writer: self.describe(writer),
                    });
                }
            }
        }
        let mut by_place: Vec<usize> = (0..contents.len()).collect();
        by_place.sort_by_key(|&c| (contents[c].region.space, contents[c].region.start));
        for (at, &a) in by_place.iter().enumerate() {
            for &b in &by_place[at + 1..] {
                let (x, y) = (&contents[a], &contents[b]);
                if x.region.space != y.region.space || y.region.start >= x.region.end {
                    break;
                }
                if y.region.start == y.region.end {
                    continue;
                }
                if !self.gone_before(x, y) && !self.gone_before(y, x) {
                    let (kept, writer) = if y.writer.is_some() { (x, y) } else { (y, x) };
                    return Err(Violation::Overlap {
                        writer: writer
                            .writer
                            .map_or_else(|| "the caller".into(), |w| self.describe(w)),
                        kept: kept.name.clone(),
                    });
                }
            }
        }
        Ok(())
    }

    /// Whether nobody needs `old` any more when `new` is written over it.
    fn gone_before(&self, old: &Content, new: &Content) -> bool {
        let Some(writer) = new.writer else {
            return false;
        };
        if old.kept || old.writer == new.writer {
            return false;
        }
        let in_place = old.region == new.region
            && match self.task(writer).work {
                Work::Node(id) => {
                    matches!(self.graph.node(id).op, Op::AllReduce | Op::Broadcast)
                        && self.graph.node(id).operands.len() == 1
                }
                _ => false,
            };
        old.writer
            .is_none_or(|old_writer| self.precedes(old_writer, writer))
            && old
                .readers
                .iter()
                .all(|&reader| self.precedes(reader, writer) || (in_place && reader == writer))
    }

    fn channels(&self) -> Result<(), Violation> {
        let mut lane_of: FxHashMap<usize, usize> = FxHashMap::default();
        let mut channel_of: FxHashMap<usize, usize> = FxHashMap::default();
        for &task in &self.issued {
            let lane = self.plan.lane_of[task];
            let Some(channel) = self.task(task).channel else {
                continue;
            };
            let shared_lane = self.plan.mode != Mode::Overlapped && lane == 0;
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
                let [one, other] =
                    [a, b].map(|task| self.task(task).channel.map(|c| &self.plan.tasks.channels[c]));
                let (Some(one), Some(other)) = (one, other) else { continue };
                let ranks = &other.group.ranks;
                let shared = one.group.ranks.iter().filter(|rank| ranks.contains(rank)).count();
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

/// Proves that the plans of several ranks do not wait for each other in a circle: there is an order
/// of all collectives of all groups in which every rank can execute its own.
///
/// # Errors
/// [`Violation::Cycle`] with one circle.
pub fn across_ranks(ranks: &[(&Graph, &Plan)]) -> Result<(), Violation> {
    // A collective is known on all its members as the n-th of its channel.
    let mut index_of: FxHashMap<(Vec<u32>, bool, usize), usize> = FxHashMap::default();
    let mut names: Vec<String> = Vec::new();
    let mut next: Vec<Vec<usize>> = Vec::new();
    for &(graph, plan) in ranks {
        let mut checker = Checker {
            graph,
            plan,
            before: vec![Vec::new(); plan.tasks.tasks.len()],
            place: vec![0; plan.tasks.tasks.len()],
            issued: Vec::new(),
        };
        checker.replay()?;
        let mut counts: FxHashMap<usize, usize> = FxHashMap::default();
        let mut own: Vec<(usize, usize)> = Vec::new();
        for &task in &checker.issued {
            let Some(channel) = checker.task(task).channel else {
                continue;
            };
            let count = counts.entry(channel).or_default();
            *count += 1;
            let spec = &plan.tasks.channels[channel];
            let key = (spec.group.ranks.clone(), spec.point_to_point, *count);
            let node = *index_of.entry(key).or_insert_with(|| {
                names.push(checker.describe(task));
                next.push(Vec::new());
                names.len() - 1
            });
            own.push((task, node));
        }
        for (at, &(first, node)) in own.iter().enumerate() {
            for &(second, later) in &own[at + 1..] {
                if checker.precedes(first, second) {
                    next[node].push(later);
                }
            }
        }
    }
    match find_cycle(&next) {
        Some(cycle) => Err(Violation::Cycle {
            cycle: cycle.into_iter().map(|node| names[node].clone()).collect(),
        }),
        None => Ok(()),
    }
}

fn find_cycle(next: &[Vec<usize>]) -> Option<Vec<usize>> {
    // 0 unseen, 1 on the current path, 2 done.
    let mut state = vec![0u8; next.len()];
    for root in 0..next.len() {
        if state[root] != 0 {
            continue;
        }
        let mut path: Vec<(usize, usize)> = vec![(root, 0)];
        state[root] = 1;
        while let Some(&mut (node, ref mut edge)) = path.last_mut() {
            if let Some(&follower) = next[node].get(*edge) {
                *edge += 1;
                match state[follower] {
                    0 => {
                        state[follower] = 1;
                        path.push((follower, 0));
                    }
                    1 => {
                        let from = path.iter().position(|&(node, _)| node == follower)?;
                        return Some(path[from..].iter().map(|&(node, _)| node).collect());
                    }
                    _ => {}
                }
            } else {
                state[node] = 2;
                path.pop();
            }
        }
    }
    None
}
