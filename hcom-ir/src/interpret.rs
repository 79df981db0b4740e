//! The oracle: what a program means, one rank after the other, on plain data.
//!
//! All ranks of a world run in lock step: each runs until it communicates, and communication takes
//! place when all its ranks have arrived. Sends wait for their receives. So a mismatch or a
//! deadlock is found and reported, never waited for. Nothing is scheduled, fused or reordered.
//!
//! Numbers: elementwise results are correctly rounded where the operation is basic arithmetic or a
//! square root; local reductions, products of matrices, softmax and norms accumulate in `f64` and
//! round once. Reductions over ranks run in rank order, in `f32` for `f16`, `bf16` and `f32` (and the
//! parts of `c64`), and round once at the end.

mod collective;
mod compute;
mod data;
mod linear;
mod movement;

use std::borrow::Borrow;
use std::fmt;
use std::sync::Arc;

use crate::arena::{Id as _, NodeId, ValueId};
use crate::graph::{Def, Graph};
use crate::group::Group;
use crate::literal::Literal;
use crate::op::Class;
use crate::order::{
    Channel, Mismatch, Row, Transfer, Unpaired, check_rows, row, rows, transfer, transfers,
};

/// What one rank has when its graph has run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RankResult {
    /// The outputs, in order.
    pub outputs: Vec<Literal>,
    /// The inputs, with those written by `copy_to_input` replaced.
    pub inputs_after: Vec<Literal>,
}

/// Why a program has no result.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum InterpretError {
    /// The number of input lists is not that of the graphs.
    #[error("{graphs} ranks have {inputs} lists of inputs")]
    WorldSize {
        /// Number of graphs.
        graphs: usize,
        /// Number of lists of inputs.
        inputs: usize,
    },
    /// A graph has symbols without values.
    #[error("the graph of rank {rank} has the symbols {symbols}; bind it first")]
    NotFixed {
        /// Global rank.
        rank: u32,
        /// Their names.
        symbols: String,
    },
    /// An input is missing, superfluous or of another type.
    #[error("input {input} of rank {rank}: expected {expected}, got {got}")]
    Input {
        /// Global rank.
        rank: u32,
        /// Position.
        input: usize,
        /// The declared input.
        expected: String,
        /// What was given.
        got: String,
    },
    /// A rank communicates in a group it does not belong to, or that exceeds the world.
    #[error("rank {rank}, world size {world_size}: `{node}` uses group {group}")]
    Group {
        /// Global rank.
        rank: u32,
        /// Number of ranks.
        world_size: usize,
        /// The node.
        node: String,
        /// The group.
        group: Group,
    },
    /// The ranks of a group arrive at different operations.
    #[error("group {group}: {mismatch}")]
    Mismatch {
        /// The group.
        group: Group,
        /// Both sides.
        mismatch: Box<Mismatch>,
    },
    /// A send and its receive differ.
    #[error(transparent)]
    Unpaired(Box<Unpaired>),
    /// No rank can go on.
    #[error("deadlock: {}", Waiting::list(.0))]
    Deadlock(Vec<Waiting>),
    /// An index is outside its dimension.
    #[error("rank {rank}: `{node}`: index {index} is outside 0..{size}")]
    Index {
        /// Global rank.
        rank: u32,
        /// The node.
        node: String,
        /// The index.
        index: i64,
        /// Size of the dimension.
        size: u64,
    },
    /// Custom work has no meaning here.
    #[error("rank {rank}: `{node}` is opaque and cannot be interpreted")]
    Custom {
        /// Global rank.
        rank: u32,
        /// The node.
        node: String,
    },
}

/// A rank that cannot go on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Waiting {
    /// Global rank.
    pub rank: u32,
    /// The node it waits in.
    pub node: String,
    /// The global ranks that have not arrived.
    pub missing: Vec<u32>,
}

impl Waiting {
    fn list(all: &[Waiting]) -> String {
        let all: Vec<String> = all.iter().map(ToString::to_string).collect();
        all.join("; ")
    }
}

impl fmt::Display for Waiting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "rank {} waits in `{}` for {:?}",
            self.rank, self.node, self.missing
        )
    }
}

/// Runs `graphs[r]` as global rank `r`, with `inputs[r]`, on all ranks together.
///
/// Fails when inputs do not fit, ranks disagree, no rank can go on, or a graph contains custom work.
pub fn interpret<G: Borrow<Graph>>(
    graphs: &[G],
    inputs: &[Vec<Literal>],
) -> Result<Vec<RankResult>, InterpretError> {
    if graphs.len() != inputs.len() {
        return Err(InterpretError::WorldSize {
            graphs: graphs.len(),
            inputs: inputs.len(),
        });
    }
    let ranks = graphs.iter().zip(inputs).zip(0u32..);
    let ranks = ranks.map(|((graph, inputs), rank)| Rank::new(rank, graph.borrow(), inputs));
    let mut world = World {
        ranks: ranks.collect::<Result<_, _>>()?,
    };
    world.run()?;
    Ok(world.ranks.into_iter().map(Rank::finish).collect())
}

/// What a failed computation reports; the rank and the node are added by the caller.
enum Fault {
    Index { index: i64, size: u64 },
    Custom,
}

struct Rank<'a> {
    rank: u32,
    graph: &'a Graph,
    values: Vec<Option<Arc<Literal>>>,
    inputs_after: Vec<Arc<Literal>>,
    /// Position of the next node.
    next: usize,
}

/// What a rank waits for.
enum Stop {
    Done,
    Group(Group),
    Transfer(Transfer),
}

impl<'a> Rank<'a> {
    fn new(rank: u32, graph: &'a Graph, inputs: &[Literal]) -> Result<Self, InterpretError> {
        if !graph.is_fixed() {
            return Err(InterpretError::NotFixed {
                rank,
                symbols: graph.symbols().join(", "),
            });
        }
        for at in 0..graph.inputs().len().max(inputs.len()) {
            let declared = graph.inputs().get(at);
            let expected = declared.map(|input| graph.ty(input.value));
            let got = inputs.get(at).map(Literal::ty);
            let data = inputs.get(at).map_or(Ok(()), Literal::check);
            if expected != got.as_ref() || data.is_err() {
                let name = declared.map_or(String::new(), |input| format!("%{}: ", input.name));
                return Err(InterpretError::Input {
                    rank,
                    input: at,
                    expected: expected.map_or("none".to_owned(), |ty| format!("{name}{ty}")),
                    got: match (got, data) {
                        (Some(ty), Ok(())) => ty.to_string(),
                        (_, Err(diagnostic)) => diagnostic.message.to_string(),
                        (None, _) => "none".to_owned(),
                    },
                });
            }
        }
        let inputs_after: Vec<Arc<Literal>> = inputs.iter().cloned().map(Arc::new).collect();
        let mut values = vec![None; graph.values().len()];
        for (input, data) in graph.inputs().iter().zip(&inputs_after) {
            values[input.value.index()] = Some(data.clone());
        }
        Ok(Self {
            rank,
            graph,
            values,
            inputs_after,
            next: 0,
        })
    }

    fn value(&self, value: ValueId) -> &Arc<Literal> {
        self.values[value.index()]
            .as_ref()
            .expect("a valid graph defines values before their use")
    }

    fn node_text(&self) -> String {
        self.graph.print_node(self.node())
    }

    fn node(&self) -> NodeId {
        NodeId::from_index(self.next)
    }

    /// Runs up to the next communication.
    fn advance(&mut self) -> Result<(), InterpretError> {
        while self.next < self.graph.nodes().len() {
            let node = self.graph.node(self.node());
            if node.op.is_communication() {
                return Ok(());
            }
            let operands: Vec<Arc<Literal>> = node
                .operands
                .iter()
                .map(|&value| self.value(value).clone())
                .collect();
            if node.op.class() == Class::Write {
                if let Def::Input(input) = self.graph.value(node.operands[1]).def {
                    self.inputs_after[input as usize] = operands[0].clone();
                }
            } else {
                let operands: Vec<&Literal> = operands.iter().map(|data| &**data).collect();
                let results = compute::run(self.graph, self.node(), &operands);
                let results = results.map_err(|fault| self.fault(fault))?;
                self.set(results);
                continue;
            }
            self.next += 1;
        }
        Ok(())
    }

    fn fault(&self, fault: Fault) -> InterpretError {
        let (rank, node) = (self.rank, self.node_text());
        match fault {
            Fault::Index { index, size } => InterpretError::Index {
                rank,
                node,
                index,
                size,
            },
            Fault::Custom => InterpretError::Custom { rank, node },
        }
    }

    /// Gives the current node its results and goes on.
    fn set(&mut self, results: Vec<Literal>) {
        let node = self.graph.node(self.node());
        for (&value, data) in node.results.iter().zip(results) {
            self.values[value.index()] = Some(Arc::new(data));
        }
        self.next += 1;
    }

    fn stop(&self) -> Stop {
        if self.next >= self.graph.nodes().len() {
            return Stop::Done;
        }
        let node = self.graph.node(self.node());
        let group = self
            .graph
            .group(node.group().expect("communication has a group"));
        if node.op.class() != Class::PointToPoint {
            return Stop::Group(group.clone());
        }
        let transfer = transfer(self.graph, self.node(), self.rank);
        Stop::Transfer(transfer.expect("point-to-point has a peer in its group"))
    }

    /// The entry of the current collective.
    fn row(&self) -> Row {
        row(self.graph, self.node()).expect("a collective is in the sequence of its group")
    }

    /// How many entries its group has before the current collective.
    fn position(&self) -> u64 {
        let group = self
            .graph
            .node(self.node())
            .group()
            .expect("communication has a group");
        let before = rows(self.graph, group)
            .into_iter()
            .filter(|(id, _)| *id < self.node());
        before.count() as u64
    }

    fn finish(self) -> RankResult {
        let outputs = self
            .graph
            .outputs()
            .iter()
            .map(|&value| (**self.value(value)).clone())
            .collect();
        let inputs_after = self
            .inputs_after
            .iter()
            .map(|data| (**data).clone())
            .collect();
        RankResult {
            outputs,
            inputs_after,
        }
    }
}

struct World<'a> {
    ranks: Vec<Rank<'a>>,
}

impl World<'_> {
    fn run(&mut self) -> Result<(), InterpretError> {
        loop {
            for rank in &mut self.ranks {
                rank.advance()?;
            }
            let stops: Vec<Stop> = self.ranks.iter().map(Rank::stop).collect();
            if stops.iter().all(|stop| matches!(stop, Stop::Done)) {
                return Ok(());
            }
            self.check_members(&stops)?;
            let mut moved = false;
            for rank in 0..stops.len() {
                moved |= match &stops[rank] {
                    Stop::Done => false,
                    Stop::Group(group) => self.meet(group, rank, &stops)?,
                    Stop::Transfer(transfer) => self.transfer(transfer, &stops)?,
                };
            }
            if !moved {
                return Err(InterpretError::Deadlock(self.waiting(&stops)));
            }
        }
    }

    fn check_members(&self, stops: &[Stop]) -> Result<(), InterpretError> {
        for (rank, stop) in self.ranks.iter().zip(stops) {
            if matches!(stop, Stop::Done) {
                continue;
            }
            let node = rank.graph.node(rank.node());
            let group = rank
                .graph
                .group(node.group().expect("communication has a group"));
            let beyond = group
                .ranks
                .iter()
                .any(|&member| member as usize >= self.ranks.len());
            if beyond || group.rank_of(rank.rank).is_none() {
                return Err(InterpretError::Group {
                    rank: rank.rank,
                    world_size: self.ranks.len(),
                    node: rank.node_text(),
                    group: group.clone(),
                });
            }
        }
        Ok(())
    }

    /// Runs the collective of `group` when all members have arrived and `rank` is the first of them.
    fn meet(&mut self, group: &Group, rank: usize, stops: &[Stop]) -> Result<bool, InterpretError> {
        let members: Vec<usize> = group.ranks.iter().map(|&member| member as usize).collect();
        let here = |member: &usize| matches!(&stops[*member], Stop::Group(other) if other.ranks == group.ranks);
        if members[0] != rank || !members.iter().all(here) {
            return Ok(false);
        }
        let sequences: Vec<[Row; 1]> = members
            .iter()
            .map(|&member| [self.ranks[member].row()])
            .collect();
        if let Err(mut mismatch) = check_rows(&group.ranks, &sequences) {
            mismatch.seq += self.ranks[rank].position();
            return Err(InterpretError::Mismatch {
                group: group.clone(),
                mismatch,
            });
        }
        let nodes = members.iter().map(|&member| {
            let rank = &self.ranks[member];
            let node = rank.graph.node(rank.node());
            (
                node,
                node.operands
                    .first()
                    .map(|&value| rank.value(value).clone()),
            )
        });
        let (nodes, operands): (Vec<_>, Vec<_>) = nodes.unzip();
        let operands: Vec<&Literal> = operands.iter().flatten().map(|data| &**data).collect();
        let results = collective::run(&nodes, &operands);
        for (&member, results) in members.iter().zip(results) {
            self.ranks[member].set(results);
        }
        Ok(true)
    }

    /// Moves data when both sides have arrived; the sending side does it.
    fn transfer(&mut self, transfer: &Transfer, stops: &[Stop]) -> Result<bool, InterpretError> {
        if !transfer.send {
            return Ok(false);
        }
        let Channel {
            source,
            destination,
            ..
        } = transfer.channel;
        let recv = match &stops[destination as usize] {
            Stop::Transfer(recv) if !recv.send && recv.channel == transfer.channel => recv,
            _ => return Ok(false),
        };
        let node = self.ranks[source as usize].node();
        if (recv.dtype, recv.count) != (transfer.dtype, transfer.count) {
            let before = transfers(self.ranks[source as usize].graph, source);
            let before = before.iter().filter(|(id, other)| {
                *id < node && other.send && other.channel == transfer.channel
            });
            return Err(InterpretError::Unpaired(Box::new(Unpaired {
                channel: transfer.channel,
                seq: before.count() as u64 + 1,
                send: Some(transfer.clone()),
                recv: Some(recv.clone()),
            })));
        }
        let sender = &mut self.ranks[source as usize];
        let data = (**sender.value(sender.graph.node(node).operands[0])).clone();
        sender.set(Vec::new());
        let receiver = &mut self.ranks[destination as usize];
        let result = receiver.graph.node(receiver.node()).results[0];
        let shape = receiver
            .graph
            .ty(result)
            .shape
            .as_fixed()
            .expect("the graph is fixed");
        receiver.set(vec![Literal { shape, ..data }]);
        Ok(true)
    }

    fn waiting(&self, stops: &[Stop]) -> Vec<Waiting> {
        let waiting = self.ranks.iter().zip(stops).filter_map(|(rank, stop)| {
            let missing = match stop {
                Stop::Done => return None,
                Stop::Group(group) => group
                    .ranks
                    .iter()
                    .copied()
                    .filter(|&member| {
                        !matches!(&stops[member as usize], Stop::Group(other) if other.ranks == group.ranks)
                    })
                    .collect(),
                Stop::Transfer(transfer) => vec![if transfer.send {
                    transfer.channel.destination
                } else {
                    transfer.channel.source
                }],
            };
            Some(Waiting { rank: rank.rank, node: rank.node_text(), missing })
        });
        waiting.collect()
    }
}
