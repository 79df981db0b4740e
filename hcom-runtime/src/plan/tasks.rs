//! From the nodes of a graph to tasks with memory and dependencies.
//!
//! A task is what one lane executes without interruption. Most nodes are one task; a reshape is
//! none, it only gives its operand's memory another name. Three tasks come from no node: a copy
//! into an output whose value lives elsewhere, the snapshot of an input that is both written and
//! the source of another write, and the writes of inputs themselves, which move to the end.

use hcom_ir::{Class, Def, Graph, Group, Id, Node, NodeId, Op, ValueId};
use smallvec::SmallVec;

use crate::{
    aclnn::{self, Call, CollectiveKind, Lowered, Member, Place},
    error::Error,
};

/// The memory a value lives in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Root {
    /// The caller's array for this input.
    Input(usize),
    /// The data of a constant node.
    Constant(NodeId),
    /// A fresh array that becomes this output.
    Output(usize),
    /// Buffer `n` of the plan, see [`Tasks::buffers`].
    Buffer(usize),
}

/// Where a task comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Work {
    Node(NodeId),
    /// Fills output `n` with a value that lives elsewhere.
    CopyOut {
        output: usize,
        value: ValueId,
    },
    /// Keeps the old value of an input that a write needs after the input itself is written.
    Snapshot {
        value: ValueId,
    },
}

/// A piece of work of one lane.
#[derive(Clone, Debug)]
pub(crate) struct Task {
    pub(crate) work: Work,
    /// Index into [`Tasks::channels`] for communication.
    pub(crate) channel: Option<usize>,
    pub(crate) operands: SmallVec<[Root; 3]>,
    pub(crate) results: SmallVec<[Root; 1]>,
    pub(crate) lowered: Lowered,
    /// Tasks that must finish first; indices below the own one, ascending.
    pub(crate) after: Vec<usize>,
}

/// A communicator the plan needs: one per group, and one per pair of ranks for their
/// point-to-point traffic, which is no part of any group's sequence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Channel {
    pub(crate) group: Group,
    pub(crate) point_to_point: bool,
}

impl Channel {
    /// Whether both are the same communicator; a group is its ranks, whatever its name.
    fn is(&self, other: &Channel) -> bool {
        self.group.ranks == other.group.ranks && self.point_to_point == other.point_to_point
    }

    /// How many ranks are members of both.
    pub(crate) fn shared_members(&self, other: &Channel) -> usize {
        self.group
            .ranks
            .iter()
            .filter(|rank| other.group.ranks.contains(rank))
            .count()
    }
}

/// The tasks of a graph in program order; writes of inputs come last.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tasks {
    pub(crate) tasks: Vec<Task>,
    pub(crate) channels: Vec<Channel>,
    /// Bytes of each buffer.
    pub(crate) buffers: Vec<u64>,
    /// The memory of each value, by index.
    pub(crate) roots: Vec<Root>,
}

impl Tasks {
    /// The tasks of `graph` on global rank `rank`.
    pub(crate) fn new(graph: &Graph, rank: u32) -> Result<Tasks, Error> {
        let mut tasks = Tasks::default();
        tasks.find_roots(graph);
        let claimed = tasks.claim_outputs(graph);
        tasks.add_nodes(graph, rank)?;
        let sources = tasks.add_snapshots(graph);
        tasks.add_output_copies(graph, &claimed);
        tasks.add_writes(graph, &sources)?;
        tasks.add_fences(graph);
        for (index, task) in tasks.tasks.iter_mut().enumerate() {
            task.after.sort_unstable();
            task.after.dedup();
            debug_assert!(task.after.iter().all(|&before| before < index));
        }
        Ok(tasks)
    }

    fn buffer(&mut self, bytes: u64) -> Root {
        self.buffers.push(bytes);
        Root::Buffer(self.buffers.len() - 1)
    }

    pub(crate) fn root(&self, value: ValueId) -> Root {
        self.roots[value.index()]
    }

    fn find_roots(&mut self, graph: &Graph) {
        for (_, value) in graph.values() {
            let root = match value.def {
                Def::Input(input) => Root::Input(input as usize),
                Def::Node { node, .. } => match graph.node(node).op {
                    Op::Constant => Root::Constant(node),
                    op if op.class() == Class::View => self.root(graph.node(node).operands[0]),
                    _ => self.buffer(aclnn::bytes(&value.ty)),
                },
            };
            self.roots.push(root);
        }
    }

    /// Lets the first output that names a buffer be that buffer. Returns which outputs got one.
    fn claim_outputs(&mut self, graph: &Graph) -> Vec<bool> {
        graph
            .outputs()
            .iter()
            .enumerate()
            .map(|(output, &value)| {
                let root = self.root(value);
                if !matches!(root, Root::Buffer(_)) {
                    return false;
                }
                for other in self.roots.iter_mut().filter(|other| **other == root) {
                    *other = Root::Output(output);
                }
                true
            })
            .collect()
    }

    fn add_nodes(&mut self, graph: &Graph, rank: u32) -> Result<(), Error> {
        for (id, node) in graph.nodes() {
            if node.op == Op::Constant || matches!(node.op.class(), Class::View | Class::Write) {
                continue;
            }
            let (channel, member) = self.channel(graph, id, node, rank)?;
            let mut lowered = lower(graph, node, member)?;
            if let Some(pair) = channel.map(|channel| &self.channels[channel])
                && pair.point_to_point
            {
                address_pair(&mut lowered, u32::from(pair.group.ranks[0] == rank));
            }
            self.tasks.push(Task {
                work: Work::Node(id),
                channel,
                operands: node
                    .operands
                    .iter()
                    .map(|&value| self.root(value))
                    .collect(),
                results: node.results.iter().map(|&value| self.root(value)).collect(),
                lowered,
                after: Vec::new(),
            });
        }
        let producers = self.producers();
        for task in &mut self.tasks {
            task.after
                .extend(task.operands.iter().filter_map(|root| producers.get(root)));
        }
        Ok(())
    }

    /// The task that produces each root; inputs and constants have none.
    fn producers(&self) -> rustc_hash::FxHashMap<Root, usize> {
        self.tasks
            .iter()
            .enumerate()
            .flat_map(|(index, task)| task.results.iter().map(move |&root| (root, index)))
            .collect()
    }

    fn channel(
        &mut self,
        graph: &Graph,
        id: NodeId,
        node: &Node,
        rank: u32,
    ) -> Result<(Option<usize>, Option<Member>), Error> {
        let Some(group) = node.group() else {
            return Ok((None, None));
        };
        let group = graph.group(group);
        let own = group.rank_of(rank).ok_or_else(|| Error::NotMember {
            rank,
            group: group.name.clone(),
            ranks: group.ranks.clone(),
            node: graph.print_node(id),
        })?;
        let member = Member {
            rank: own,
            group_size: group.group_size(),
        };
        if member.group_size == 1 {
            return Ok((None, Some(member)));
        }
        let point_to_point = node.op.class() == Class::PointToPoint;
        let channel = Channel {
            group: if point_to_point {
                pair(group, node, rank)
            } else {
                group.clone()
            },
            point_to_point,
        };
        let known = self.channels.iter().position(|known| known.is(&channel));
        let index = known.unwrap_or_else(|| {
            self.channels.push(channel);
            self.channels.len() - 1
        });
        Ok((Some(index), Some(member)))
    }

    fn add_copy(&mut self, work: Work, from: Root, to: Root, bytes: u64) {
        let lowered = Lowered {
            calls: vec![Call::Copy {
                from: Place::Operand(0),
                to: Place::Result(0),
                bytes,
            }],
            ..Lowered::default()
        };
        let after = self.producers().get(&from).copied().into_iter().collect();
        self.tasks.push(Task {
            work,
            channel: None,
            operands: [from].into_iter().collect(),
            results: [to].into_iter().collect(),
            lowered,
            after,
        });
    }

    /// For each write of an input, the memory it reads. An input that another write overwrites is
    /// copied first.
    fn add_snapshots(&mut self, graph: &Graph) -> Vec<(NodeId, Root)> {
        let writes: Vec<(NodeId, ValueId, Root)> = graph
            .nodes()
            .filter(|(_, node)| node.op == Op::CopyToInput)
            .map(|(id, node)| (id, node.operands[0], self.root(node.operands[1])))
            .collect();
        writes
            .iter()
            .map(|&(id, value, written)| {
                let source = self.root(value);
                let overwritten = writes.iter().any(|&(_, _, target)| target == source);
                if !overwritten || source == written {
                    return (id, source);
                }
                let bytes = aclnn::bytes(graph.ty(value));
                let copy = self.buffer(bytes);
                self.add_copy(Work::Snapshot { value }, source, copy, bytes);
                (id, copy)
            })
            .collect()
    }

    fn add_output_copies(&mut self, graph: &Graph, claimed: &[bool]) {
        for (output, &value) in graph.outputs().iter().enumerate() {
            if !claimed[output] {
                let bytes = aclnn::bytes(graph.ty(value));
                let from = self.root(value);
                self.add_copy(
                    Work::CopyOut { output, value },
                    from,
                    Root::Output(output),
                    bytes,
                );
            }
        }
    }

    fn add_writes(&mut self, graph: &Graph, sources: &[(NodeId, Root)]) -> Result<(), Error> {
        let producers = self.producers();
        let readers = self.tasks.len();
        for &(id, source) in sources {
            let node = graph.node(id);
            let target = self.root(node.operands[1]);
            if source == target {
                continue;
            }
            let after = (0..readers)
                .filter(|&task| self.tasks[task].operands.contains(&target))
                .chain(producers.get(&source).copied())
                .collect();
            self.tasks.push(Task {
                work: Work::Node(id),
                channel: None,
                operands: [source, target].into_iter().collect(),
                results: SmallVec::new(),
                lowered: lower(graph, node, None)?,
                after,
            });
        }
        Ok(())
    }

    /// A barrier, and custom work that may communicate, comes after everything before it in the
    /// program and before everything after it.
    fn add_fences(&mut self, graph: &Graph) {
        let mut fence: Option<usize> = None;
        let mut open: Vec<usize> = Vec::new();
        for index in 0..self.tasks.len() {
            let is_fence = match self.tasks[index].work {
                Work::Node(id) => {
                    let node = graph.node(id);
                    matches!(node.op.class(), Class::Barrier | Class::Custom) && node.has_effect()
                }
                _ => false,
            };
            if is_fence {
                self.tasks[index].after.append(&mut open);
                self.tasks[index].after.extend(fence);
                fence = Some(index);
            } else {
                self.tasks[index].after.extend(fence);
                open.push(index);
            }
        }
    }
}

/// The pair of ranks that a send or receive connects, in ascending order.
fn pair(group: &Group, node: &Node, rank: u32) -> Group {
    let peer = u32::try_from(node.attrs.int("peer"))
        .ok()
        .and_then(|peer| group.global_rank(peer));
    let mut ranks = vec![
        rank,
        peer.expect("the graph's type rules keep ranks in range"),
    ];
    ranks.sort_unstable();
    Group::new(group.name.clone(), ranks)
}

/// Makes sends and receives address group rank `peer` of their pair.
fn address_pair(lowered: &mut Lowered, peer: u32) {
    for call in &mut lowered.calls {
        if let Call::Collective(collective) = call {
            match &mut collective.kind {
                CollectiveKind::Send { peer: to } | CollectiveKind::Recv { peer: to } => *to = peer,
                _ => {}
            }
        }
    }
}

fn lower(graph: &Graph, node: &Node, member: Option<Member>) -> Result<Lowered, Error> {
    let operands: SmallVec<[&hcom_ir::Type; 4]> =
        node.operands.iter().map(|&value| graph.ty(value)).collect();
    let results: SmallVec<[&hcom_ir::Type; 2]> =
        node.results.iter().map(|&value| graph.ty(value)).collect();
    aclnn::lower(&aclnn::Site {
        op: node.op,
        attrs: &node.attrs,
        operands: &operands,
        results: &results,
        member,
    })
}
