//! What the ranks of a group must agree on: the order of its collectives.
//!
//! Each rank describes its own graph by [`rows`] and [`transfers`]; the rows of all members are
//! compared by [`check_rows`], those of point-to-point by [`check_transfers`]; [`differences`] finds all of
//! a world's at once. A row has columns
//! that are equal on all ranks (kind, element type, reduction, root, even count) and columns that
//! each rank has its own value of, which fit by a rule. [`rows_hash`] covers the equal columns only.

mod world;

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::arena::{GroupId, NodeId};
use crate::graph::Graph;
use crate::op::attr::{Attr, ReduceOp};
use crate::op::{Class, Op};
use crate::shape::FromFn;
use crate::types::DType;

pub use world::{Difference, differences};

/// One entry of the sequence of collectives of a group.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Row {
    /// The columns that are equal on all ranks of the group.
    pub uniform: Uniform,
    /// The columns that each rank has its own values of.
    pub rank: RankColumns,
    /// The node in text, for messages; not compared.
    pub node: String,
    /// Where the program calls it, for messages; not compared.
    pub location: Option<String>,
}

/// The columns that are equal on all ranks.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Uniform {
    /// The mnemonic; for custom work in a group `custom "name"`.
    pub kind: String,
    /// The element type; `None` without data.
    pub dtype: Option<DType>,
    /// The reduction.
    pub reduce: Option<ReduceOp>,
    /// The bits of the factor of `premul_sum`.
    pub factor: Option<u64>,
    /// The root, a rank within the group.
    pub root: Option<u32>,
    /// Elements of the operand on each rank; `None` when the ranks may differ.
    pub count: Option<u64>,
}

/// The columns that differ by rank.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum RankColumns {
    /// None.
    Even,
    /// `counts` is equal on all ranks and `counts[r]` is `own` of rank `r`; in rows of `row`
    /// elements, which are equal too.
    Uneven {
        /// Rows per rank.
        counts: Vec<u64>,
        /// Rows of this rank.
        own: u64,
        /// Elements per row.
        row: u64,
    },
    /// `send[j]` of rank `i` is `recv[i]` of rank `j`; in elements.
    Splits {
        /// Elements sent to each rank.
        send: Vec<u64>,
        /// Elements received from each rank.
        recv: Vec<u64>,
    },
}

impl fmt::Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let uniform = &self.uniform;
        f.write_str(&uniform.kind)?;
        if let Some(dtype) = uniform.dtype {
            write!(f, " {dtype}")?;
        }
        if let Some(reduce) = uniform.reduce {
            write!(f, ", op = {reduce}")?;
        }
        if let Some(factor) = uniform.factor {
            write!(f, ", factor = {:?}", f64::from_bits(factor))?;
        }
        if let Some(root) = uniform.root {
            write!(f, ", root = {root}")?;
        }
        if let Some(count) = uniform.count {
            write!(f, ", count = {count}")?;
        }
        match &self.rank {
            RankColumns::Even => Ok(()),
            RankColumns::Uneven { counts, own, .. } => {
                write!(f, ", counts = {counts:?}, own rows = {own}")
            }
            RankColumns::Splits { send, recv } => write!(f, ", sends {send:?}, receives {recv:?}"),
        }
    }
}

/// The sequence of collectives and barriers of `group` in a graph whose sizes are fixed, with the
/// nodes they come from, in program order. Custom work with the attribute `group` counts.
///
/// # Panics
/// When a size in a collective of the group is a symbol.
pub fn rows(graph: &Graph, group: GroupId) -> Vec<(NodeId, Row)> {
    let members = graph
        .nodes()
        .filter(|(_, node)| node.group() == Some(group));
    members
        .filter_map(|(id, _)| Some((id, row(graph, id)?)))
        .collect()
}

/// The entry of one node in the sequence of its group; `None` when it has none: it does not
/// communicate, or from one rank to another only.
///
/// # Panics
/// When a size in the node is a symbol.
pub fn row(graph: &Graph, id: NodeId) -> Option<Row> {
    let node = graph.node(id);
    node.group()?;
    if node.op.class() == Class::PointToPoint || !node.has_effect() {
        return None;
    }
    let reduce = match node.attrs.get("op") {
        Some(Attr::Reduce(op)) => Some(*op),
        _ => None,
    };
    let factor = match node.attrs.get("factor") {
        Some(Attr::Float(factor)) => Some(factor.to_bits()),
        _ => None,
    };
    let root = match node.attrs.get("root") {
        Some(Attr::Int(root)) => u32::try_from(*root).ok(),
        _ => None,
    };
    let kind = match node.op {
        Op::Custom => format!("custom {:?}", node.attrs.text("name")),
        op => op.name().to_owned(),
    };
    let operand = node.operands.first().map(|&value| graph.ty(value));
    let count = operand.map(|ty| ty.elements().expect("the sizes of a bound graph are fixed"));
    let trailing = || {
        let dims = operand.map_or(&[][..], |ty| ty.shape.dims());
        // Saturation needs sizes that only a value without elements can have.
        dims.iter()
            .skip(1)
            .filter_map(|dim| dim.as_fixed())
            .fold(1, u64::saturating_mul)
    };
    let rank = match node.op {
        Op::AllGatherUneven | Op::ReduceScatterUneven => RankColumns::Uneven {
            counts: node.attrs.sizes("counts"),
            own: match node.op {
                Op::ReduceScatterUneven => node.attrs.size("rows"),
                _ => operand
                    .and_then(|ty| ty.shape.dims()[0].as_fixed())
                    .unwrap_or(0),
            },
            row: trailing(),
        },
        Op::AllToAll => match node.attrs.get("send_counts") {
            None => RankColumns::Even,
            Some(_) => {
                let row = trailing();
                let elements = |name| {
                    node.attrs
                        .sizes(name)
                        .iter()
                        .map(|rows| rows.saturating_mul(row))
                        .collect()
                };
                RankColumns::Splits {
                    send: elements("send_counts"),
                    recv: elements("recv_counts"),
                }
            }
        },
        _ => RankColumns::Even,
    };
    let even = rank == RankColumns::Even && node.op != Op::Custom;
    Some(Row {
        uniform: Uniform {
            kind,
            dtype: operand.map(|ty| ty.dtype),
            reduce,
            factor,
            root,
            count: count.filter(|_| even),
        },
        rank,
        node: graph.print_node(id),
        location: node.location.as_ref().map(ToString::to_string),
    })
}

/// A hash of the equal columns of a sequence. Equal hashes and no rank columns mean that the
/// sequences fit; otherwise full rows are compared.
pub fn rows_hash<'a>(rows: impl IntoIterator<Item = &'a Row>) -> [u8; 32] {
    let mut hasher = blake3::Hasher::new();
    for row in rows {
        let uniform = &row.uniform;
        // Every field is of known length or preceded by it, so different rows give different bytes.
        hasher.update(&(uniform.kind.len() as u64).to_le_bytes());
        hasher.update(uniform.kind.as_bytes());
        let numbers = [
            uniform.dtype.map(|dtype| dtype as u64),
            uniform.reduce.map(|reduce| reduce as u64),
            uniform.factor,
            uniform.root.map(u64::from),
            uniform.count,
        ];
        for number in numbers {
            hasher.update(&[u8::from(number.is_some())]);
            hasher.update(&number.unwrap_or(0).to_le_bytes());
        }
        hasher.update(&[u8::from(row.rank != RankColumns::Even)]);
    }
    *hasher.finalize().as_bytes()
}

/// The first entry in which ranks of a group differ, with both sides.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("{}", self.message())]
pub struct Mismatch {
    /// Position in the sequence, counted from 1.
    pub seq: u64,
    /// What differs.
    pub what: String,
    /// Two global ranks that differ.
    pub ranks: [u32; 2],
    /// The entry of the first of them; `None` when its sequence has ended.
    pub left: Option<Box<Row>>,
    /// The entry of the second of them; `None` when its sequence has ended.
    pub right: Option<Box<Row>>,
}

impl Mismatch {
    fn message(&self) -> String {
        let side = |rank: u32, row: &Option<Box<Row>>| match row {
            None => format!("rank {rank} has no further operation"),
            Some(row) => match &row.location {
                Some(location) => format!("rank {rank} has `{row}` ({location})"),
                None => format!("rank {rank} has `{row}`"),
            },
        };
        format!(
            "operation {} of the group: {}: {}, {}",
            self.seq,
            self.what,
            side(self.ranks[0], &self.left),
            side(self.ranks[1], &self.right)
        )
    }
}

fn difference(left: &Row, right: &Row) -> Option<String> {
    let (a, b) = (&left.uniform, &right.uniform);
    let what = if a.kind != b.kind {
        format!("the operations differ, {} and {}", a.kind, b.kind)
    } else if a.dtype != b.dtype {
        "the element types differ".to_owned()
    } else if (a.reduce, a.factor) != (b.reduce, b.factor) {
        "the reductions differ".to_owned()
    } else if a.root != b.root {
        "the roots differ".to_owned()
    } else if let (Some(a), Some(b)) = (a.count, b.count) {
        return (a != b).then(|| format!("the element counts differ, {a} and {b}"));
    } else if std::mem::discriminant(&left.rank) != std::mem::discriminant(&right.rank) {
        "one is even and the other is not".to_owned()
    } else {
        return None;
    };
    Some(what)
}

/// Compares the sequences of all members of a group. `ranks[r]` is the global rank and
/// `sequences[r]` the sequence of group rank `r`. The first difference is the error.
pub fn check_rows<R: AsRef<[Row]>>(ranks: &[u32], sequences: &[R]) -> Result<(), Box<Mismatch>> {
    match world::compare(ranks, sequences).next() {
        None => Ok(()),
        Some(mismatch) => Err(Box::new(mismatch)),
    }
}

/// Two group ranks whose columns do not fit, and why.
fn rank_difference(columns: &[&RankColumns]) -> Option<(usize, usize, String)> {
    let partner = |rank: usize| usize::from(rank == 0).min(columns.len() - 1);
    for (rank, column) in columns.iter().enumerate() {
        match column {
            RankColumns::Even => {}
            RankColumns::Uneven { counts, own, row } => {
                if let RankColumns::Uneven {
                    counts: others,
                    row: other_row,
                    ..
                } = columns[0]
                {
                    if others != counts {
                        return Some((0, rank, "the lists of counts differ".to_owned()));
                    }
                    if other_row != row {
                        return Some((0, rank, "the rows have different sizes".to_owned()));
                    }
                }
                if counts.get(rank) != Some(own) {
                    let entry = counts.get(rank).copied().unwrap_or(0);
                    let what = format!("group rank {rank} has {own} rows, its entry is {entry}");
                    return Some((partner(rank), rank, what));
                }
            }
            RankColumns::Splits { send, .. } => {
                for (peer, other) in columns.iter().enumerate() {
                    let RankColumns::Splits { recv, .. } = other else {
                        continue;
                    };
                    let (sends, expects) = (send.get(peer), recv.get(rank));
                    if sends != expects {
                        let number = |count: Option<&u64>| count.copied().unwrap_or(0);
                        let what = format!(
                            "group rank {rank} to {peer}: sends {} elements, expects {}",
                            number(sends),
                            number(expects)
                        );
                        return Some((rank, peer, what));
                    }
                }
            }
        }
    }
    None
}

/// Source, destination (global ranks) and tag of a sequence of sends or receives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Channel {
    /// Global rank that sends.
    pub source: u32,
    /// Global rank that receives.
    pub destination: u32,
    /// The tag.
    pub tag: u32,
}

/// One send or receive.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Transfer {
    /// Whether this is the sending side.
    pub send: bool,
    /// The channel.
    pub channel: Channel,
    /// Element type.
    pub dtype: DType,
    /// Number of elements.
    pub count: u64,
    /// The node in text, for messages.
    pub node: String,
}

/// The sends and receives of a graph whose sizes are fixed, run by `global_rank`, in program order.
///
/// # Panics
/// When the size of a value sent or received is a symbol.
pub fn transfers(graph: &Graph, global_rank: u32) -> Vec<(NodeId, Transfer)> {
    graph
        .nodes()
        .filter_map(|(id, _)| Some((id, transfer(graph, id, global_rank)?)))
        .collect()
}

/// The send or receive of one node, run by `global_rank`; `None` for other operations.
///
/// # Panics
/// When the size of the value is a symbol.
pub fn transfer(graph: &Graph, id: NodeId, global_rank: u32) -> Option<Transfer> {
    let node = graph.node(id);
    if node.op.class() != Class::PointToPoint {
        return None;
    }
    let peer = u32::try_from(node.attrs.int("peer")).ok()?;
    let peer = graph.group(node.group()?).global_rank(peer)?;
    let send = node.op == Op::Send;
    let value = if send {
        node.operands.first()
    } else {
        node.results.first()
    };
    let ty = graph.ty(*value?);
    let (source, destination) = if send {
        (global_rank, peer)
    } else {
        (peer, global_rank)
    };
    let tag = u32::try_from(node.attrs.int("tag")).ok()?;
    Some(Transfer {
        send,
        channel: Channel {
            source,
            destination,
            tag,
        },
        dtype: ty.dtype,
        count: ty.elements().expect("the sizes of a bound graph are fixed"),
        node: graph.print_node(id),
    })
}

/// A send without its receive, or the other way round, or a pair that differs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("{}", self.message())]
pub struct Unpaired {
    /// The channel.
    pub channel: Channel,
    /// Position on the channel, counted from 1.
    pub seq: u64,
    /// The send.
    pub send: Option<Transfer>,
    /// The receive.
    pub recv: Option<Transfer>,
}

impl Unpaired {
    /// What one of the two transfers carries; with its tag where that is not the channel's.
    pub fn content(&self, transfer: &Transfer) -> String {
        let mut text = format!("{} elements of {}", transfer.count, transfer.dtype);
        if transfer.channel.tag != self.channel.tag {
            text += &format!(" with tag {}", transfer.channel.tag);
        }
        text
    }

    fn message(&self) -> String {
        let Channel {
            source,
            destination,
            tag,
        } = self.channel;
        let side = |verb: &str, transfer: &Option<Transfer>| match transfer {
            Some(transfer) => format!("{verb} {}", self.content(transfer)),
            None => format!("{verb} nothing"),
        };
        format!(
            "transfer {} from rank {source} to rank {destination} with tag {tag}: rank {source} {}, rank {destination} {}",
            self.seq,
            side("sends", &self.send),
            side("receives", &self.recv)
        )
    }
}

/// Pairs the transfers of all ranks of a world: per channel, sends and receives match in order, count
/// and element type; between two ranks, in the order of their tags too, since a send waits for its
/// receive. The first that do not are the error.
pub fn check_transfers<'a>(
    all: impl IntoIterator<Item = &'a Transfer>,
) -> Result<(), Box<Unpaired>> {
    match world::unpaired(all).into_iter().next() {
        None => Ok(()),
        Some(unpaired) => Err(Box::new(unpaired)),
    }
}

/// A digest of what a planner reads: operations, edges, types, groups, attributes, guards; not the
/// data of constants, which differs between shards, and no names of values and places in sources.
/// `config` is what else decides the plan: configuration, cost table and version, as bytes.
///
/// Ranks with equal digests make the same plan by the same deterministic rule.
pub fn planner_digest(graph: &Graph, config: &[u8]) -> [u8; 32] {
    let mut hasher = blake3::Hasher::new();
    let mut part = |text: &dyn fmt::Display| {
        let text = text.to_string();
        hasher.update(&(text.len() as u64).to_le_bytes());
        hasher.update(text.as_bytes());
    };
    for (_, group) in graph.groups() {
        part(&FromFn(|f: &mut fmt::Formatter<'_>| {
            write!(f, "{:?}", group.ranks)
        }));
    }
    for guard in graph.guards() {
        part(&guard.display(&[]));
    }
    for input in graph.inputs() {
        part(&FromFn(|f: &mut fmt::Formatter<'_>| {
            write!(f, "input {} {}", input.mutable, graph.ty(input.value))
        }));
    }
    for (_, node) in graph.nodes() {
        part(&FromFn(|f: &mut fmt::Formatter<'_>| {
            write!(f, "{}", node.op)?;
            for operand in &node.operands {
                write!(f, " {}", operand.0)?;
            }
            for (name, attr) in node.attrs.iter() {
                match attr {
                    Attr::Literal(literal) => write!(f, ", {name} {}", literal.ty())?,
                    attr => write!(f, ", {name} {attr:?}")?,
                }
            }
            for &result in &node.results {
                write!(f, " -> {} {}", result.0, graph.ty(result))?;
            }
            Ok(())
        }));
    }
    for output in graph.outputs() {
        part(&format_args!("output {}", output.0));
    }
    hasher.update(config);
    *hasher.finalize().as_bytes()
}
