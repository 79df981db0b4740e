//! Everything in which the graphs of all ranks of a world do not fit each other.

use std::borrow::Borrow;
use std::collections::BTreeMap;
use std::fmt;

use serde::Serialize;

use super::{
    Channel, Mismatch, RankColumns, Row, Transfer, Unpaired, difference, rank_difference, rows,
    transfers,
};
use crate::graph::Graph;
use crate::group::Group;

/// One thing that would hang or be wrong if the graphs ran together.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
#[non_exhaustive]
pub enum Difference {
    /// Two members run different operations at the same place in the sequence of their group.
    Sequence {
        /// The group, by the name it has on the first of the two ranks.
        group: Group,
        /// Both sides.
        mismatch: Mismatch,
    },
    /// A send without its receive, or the other way round, or a pair that differs.
    Transfer {
        /// Both sides.
        unpaired: Unpaired,
    },
    /// A group has a rank that the world does not have.
    MissingRank {
        /// The group.
        group: Group,
        /// The rank.
        rank: u32,
        /// Number of ranks in the world.
        world_size: u32,
    },
    /// A rank communicates in a group that it does not belong to.
    NotMember {
        /// The rank.
        rank: u32,
        /// The group.
        group: Group,
        /// The first such operation in text.
        node: String,
        /// Where the program calls it.
        location: Option<String>,
    },
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Difference::Sequence { group, mismatch } => write!(
                f,
                "group {group}: {mismatch}; all members of a group must run the same sequence of collectives"
            ),
            Difference::Transfer { unpaired } => write!(
                f,
                "{unpaired}; sends and receives must match in order, element count and element type"
            ),
            Difference::MissingRank {
                group,
                rank,
                world_size,
            } => write!(
                f,
                "group {group}: there is no rank {rank} in a world of {world_size}; give a graph for every rank"
            ),
            Difference::NotMember {
                rank,
                group,
                node,
                location,
            } => {
                write!(f, "rank {rank} runs `{node}`")?;
                if let Some(location) = location {
                    write!(f, " ({location})")?;
                }
                write!(f, ", but is not in group {group}; only members may run it")
            }
        }
    }
}

/// Compares the graphs of all ranks, whose sizes are fixed; `graphs[r]` is that of global rank `r`.
///
/// Two members of a group are compared up to the first place where they run different kinds of
/// operations: what comes after has nothing to stand beside. Groups are their ranks, whatever their
/// names.
///
/// # Panics
/// When a size in a graph is a symbol.
pub fn differences<G: Borrow<Graph>>(graphs: &[G]) -> Vec<Difference> {
    let world_size = graphs.len() as u32;
    let mut found = Vec::new();
    let mut groups: BTreeMap<&[u32], &Group> = BTreeMap::new();
    for (rank, graph) in (0..).zip(graphs) {
        let graph: &Graph = graph.borrow();
        for (id, group) in graph.groups() {
            let mut nodes = graph.nodes().filter(|(_, node)| node.group() == Some(id));
            let Some((first, node)) = nodes.next() else {
                continue;
            };
            groups.entry(&group.ranks).or_insert(group);
            if !group.ranks.contains(&rank) {
                found.push(Difference::NotMember {
                    rank,
                    group: group.clone(),
                    node: graph.print_node(first),
                    location: node.location.as_ref().map(ToString::to_string),
                });
            }
        }
    }
    for (ranks, group) in groups {
        if let Some(&rank) = ranks.iter().find(|&&rank| rank >= world_size) {
            found.push(Difference::MissingRank {
                group: group.clone(),
                rank,
                world_size,
            });
            continue;
        }
        let sequences: Vec<Vec<Row>> = ranks
            .iter()
            .map(|&rank| {
                let graph: &Graph = graphs[rank as usize].borrow();
                let own = graph.groups().find(|(_, own)| own.ranks == ranks);
                let rows = own.map(|(id, _)| rows(graph, id)).unwrap_or_default();
                rows.into_iter().map(|(_, row)| row).collect()
            })
            .collect();
        let of_group = |mismatch| Difference::Sequence {
            group: group.clone(),
            mismatch,
        };
        found.extend(compare(ranks, &sequences).map(of_group));
    }
    let all: Vec<Transfer> = (0..)
        .zip(graphs)
        .flat_map(|(rank, graph)| transfers(graph.borrow(), rank))
        .map(|(_, transfer)| transfer)
        .collect();
    let transfers = unpaired(&all).into_iter();
    found.extend(transfers.map(|unpaired| Difference::Transfer { unpaired }));
    found
}

/// All differences between the sequences of a group, by position.
pub(super) fn compare<R: AsRef<[Row]>>(
    ranks: &[u32],
    sequences: &[R],
) -> impl Iterator<Item = Mismatch> {
    let entry = move |of: usize, at: usize| sequences[of].as_ref().get(at);
    let lengths = sequences.iter().map(|sequence| sequence.as_ref().len());
    let longest = lengths.max().unwrap_or(0);
    // Members whose sequence still stands beside that of the first.
    let mut beside: Vec<usize> = (1..sequences.len()).collect();
    (0..longest).flat_map(move |at| {
        let mut found = Vec::new();
        let mut report = |what: String, left: usize, right: usize| {
            let row = |of: usize| entry(of, at).cloned().map(Box::new);
            found.push(Mismatch {
                seq: at as u64 + 1,
                what,
                ranks: [left, right].map(|of| ranks.get(of).copied().unwrap_or(of as u32)),
                left: row(left),
                right: row(right),
            });
        };
        let mut fits = beside.len() + 1 == sequences.len();
        beside.retain(|&of| match (entry(0, at), entry(of, at)) {
            (None, None) => false,
            (Some(left), Some(right)) => match difference(left, right) {
                None => true,
                Some(what) => {
                    fits = false;
                    report(what, 0, of);
                    left.uniform.kind == right.uniform.kind
                }
            },
            _ => {
                fits = false;
                report("the sequences have different lengths".to_owned(), 0, of);
                false
            }
        });
        if fits && beside.len() + 1 == sequences.len() {
            let rows = sequences.iter().map(|sequence| &sequence.as_ref()[at]);
            let columns: Vec<&RankColumns> = rows.map(|row| &row.rank).collect();
            if let Some((left, right, what)) = rank_difference(&columns) {
                report(what, left, right);
            }
        }
        found
    })
}

/// The transfers that have no partner or another one, by channel.
pub(super) fn unpaired<'a>(all: impl IntoIterator<Item = &'a Transfer>) -> Vec<Unpaired> {
    let mut channels: BTreeMap<Channel, [Vec<&Transfer>; 2]> = BTreeMap::new();
    let mut pairs: BTreeMap<(u32, u32), [Vec<&Transfer>; 2]> = BTreeMap::new();
    for transfer in all {
        let (channel, side) = (transfer.channel, usize::from(!transfer.send));
        channels.entry(channel).or_default()[side].push(transfer);
        let pair = (channel.source, channel.destination);
        pairs.entry(pair).or_default()[side].push(transfer);
    }
    let unpaired = channels.into_iter().flat_map(|(channel, [sends, recvs])| {
        (0..sends.len().max(recvs.len())).filter_map(move |position| {
            let (send, recv) = (sends.get(position).copied(), recvs.get(position).copied());
            let fits = matches!((send, recv), (Some(send), Some(recv)) if (send.dtype, send.count) == (recv.dtype, recv.count));
            (!fits).then(|| Unpaired {
                channel,
                seq: position as u64 + 1,
                send: send.cloned(),
                recv: recv.cloned(),
            })
        })
    });
    // Of each pair of ranks the first whose tags differ: what comes after has moved.
    let crossed = pairs.into_values().filter_map(|[sends, recvs]| {
        let mut both = (1..).zip(sends.into_iter().zip(recvs));
        let (seq, (send, recv)) =
            both.find(|(_, (send, recv))| send.channel.tag != recv.channel.tag)?;
        Some(Unpaired {
            channel: send.channel,
            seq,
            send: Some(send.clone()),
            recv: Some(recv.clone()),
        })
    });
    // Only transfers that have their partners can be in another order.
    let unpaired: Vec<Unpaired> = unpaired.collect();
    match unpaired.is_empty() {
        true => crossed.collect(),
        false => unpaired,
    }
}
