//! The check across ranks that precedes the first launch of a graph.
//!
//! Every rank describes what its graph does in each group: the sequence of collectives, and the sends
//! and receives. The members of the group compare a hash of it, and the full rows only when the hashes
//! differ or when there are columns that no hash can compare. A difference is the failure of the job:
//! every rank returns it, with both sides of the first entry that differs. So what would hang or
//! deliver wrong values on the device never gets there.
//!
//! The same exchange tells whether all ranks plan from the same input; see [`Uniformity`].
//!
//! The exchanges are keyed by those who take part and nothing else: ranks that compile different
//! graphs at the same time meet here and learn about it. They are taken in the order of their ranks,
//! which is the same on every rank, so two groups never wait for each other.

use std::{
    borrow::Cow,
    fmt,
    time::{Duration, Instant},
};

use hcom_ir::{
    Graph,
    order::{self, Mismatch, RankColumns, Row, Transfer, Unpaired},
};
use serde::{Deserialize, Serialize};

use crate::{
    control::Control,
    failure::{Failure, FailureKind},
};

/// Whether all ranks that share a graph's groups plan from the same input.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Uniformity {
    /// Graph, planner settings and version are the same on all of them; the data of constants may
    /// differ. Every pass is allowed, since every rank decides alike.
    Uniform,
    /// They differ. Collectives keep their program order.
    Pinned {
        /// What differs, and between which ranks.
        reason: String,
    },
}

impl fmt::Display for Uniformity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Uniformity::Uniform => f.write_str("uniform"),
            Uniformity::Pinned { reason } => write!(f, "pinned: {reason}"),
        }
    }
}

/// What ranks show each other first.
#[derive(Serialize, Deserialize)]
struct Summary {
    /// Hash of the columns that must be equal.
    rows: [u8; 32],
    /// Whether there is more to compare than that hash.
    more: bool,
    /// Digest of what the planner reads of the graph.
    graph: [u8; 32],
    /// Everything else the planner reads.
    settings: [u8; 32],
}

/// What ranks show each other when the summaries do not settle it.
#[derive(Default, Serialize, Deserialize)]
struct Details {
    rows: Vec<Row>,
    transfers: Vec<Transfer>,
}

/// Checks `graph`, whose sizes are fixed, against the graphs of the other ranks.
///
/// Every member of every group in which the graph communicates calls this at the same time.
/// `settings` is what decides the plan besides the graph, as bytes; `timeout` limits the wait for a
/// late rank.
///
/// # Errors
/// The failure of the job, which has been spread to all ranks: sequences that differ, sends without
/// receives, or a member that did not come. `seq` counts the entries of this graph.
///
/// # Panics
/// When a size in the graph is a symbol.
pub fn check(
    control: &dyn Control,
    graph: &Graph,
    settings: &[u8],
    timeout: Duration,
) -> Result<Uniformity, Failure> {
    compare(control, graph, settings, timeout).map_err(|failure| {
        control.fail(&failure);
        control.failure().unwrap_or(failure)
    })
}

/// What ranks compare with each other, and who they are.
struct Traffic<'a> {
    name: &'a str,
    ranks: Cow<'a, [u32]>,
    details: Details,
}

/// All traffic of `rank`, in an order that all ranks share.
///
/// In a group with collectives all members take part, so its transfers are compared there. In a group
/// without, members that neither send nor receive know of nothing: each pair compares its own.
fn traffic(graph: &Graph, rank: u32) -> Vec<Traffic<'_>> {
    let mut traffic: Vec<Traffic<'_>> = graph
        .groups()
        .filter(|(_, group)| group.ranks.contains(&rank))
        .map(|(id, group)| Traffic {
            name: &group.name,
            ranks: Cow::Borrowed(&group.ranks[..]),
            details: Details {
                rows: order::rows(graph, id)
                    .into_iter()
                    .map(|(_, row)| row)
                    .collect(),
                transfers: Vec::new(),
            },
        })
        .filter(|traffic| !traffic.details.rows.is_empty())
        .collect();
    let groups = traffic.len();
    for (node, transfer) in order::transfers(graph, rank) {
        let Some(group) = graph.node(node).group().map(|id| graph.group(id)) else {
            continue;
        };
        let channel = transfer.channel;
        let mut pair = [channel.source, channel.destination];
        pair.sort_unstable();
        let of_group = traffic[..groups]
            .iter()
            .position(|known| *known.ranks == group.ranks[..]);
        let of_pair = || {
            let pairs = traffic[groups..].iter();
            let position = pairs.into_iter().position(|known| *known.ranks == pair)?;
            Some(groups + position)
        };
        let place = of_group.or_else(of_pair).unwrap_or(traffic.len());
        if place == traffic.len() {
            traffic.push(Traffic {
                name: &group.name,
                ranks: Cow::Owned(pair.to_vec()),
                details: Details::default(),
            });
        }
        traffic[place].details.transfers.push(transfer);
    }
    // A pair comes after the group of the same two ranks: the sort is stable.
    traffic.sort_by(|a, b| a.ranks.cmp(&b.ranks));
    traffic
}

fn compare(
    control: &dyn Control,
    graph: &Graph,
    settings: &[u8],
    timeout: Duration,
) -> Result<Uniformity, Failure> {
    let mut uniformity = Uniformity::Uniform;
    let graph_digest = order::planner_digest(graph, &[]);
    for traffic in traffic(graph, control.rank()) {
        let details = &traffic.details;
        let own = Summary {
            rows: order::rows_hash(&details.rows),
            more: !details.transfers.is_empty()
                || details.rows.iter().any(|row| row.rank != RankColumns::Even),
            graph: graph_digest,
            settings: settings_digest(settings),
        };
        let deadline = Instant::now() + timeout;
        let summaries = exchange(control, &traffic, "cross-rank check", &own, deadline)?;
        if summaries
            .iter()
            .any(|other| other.more || other.rows != own.rows)
        {
            let all = exchange(
                control,
                &traffic,
                "cross-rank check, rows",
                details,
                deadline,
            )?;
            compare_details(&traffic, &all, control.rank())?;
        }
        if uniformity == Uniformity::Uniform {
            uniformity = compare_summaries(&traffic.ranks, &summaries);
        }
    }
    Ok(uniformity)
}

fn settings_digest(settings: &[u8]) -> [u8; 32] {
    let mut hasher = blake3::Hasher::new();
    hasher.update(env!("CARGO_PKG_VERSION").as_bytes());
    hasher.update(&[0]);
    hasher.update(settings);
    *hasher.finalize().as_bytes()
}

/// Exchanges `own` among the members of a group.
fn exchange<T: Serialize + for<'de> Deserialize<'de>>(
    control: &dyn Control,
    traffic: &Traffic<'_>,
    key: &str,
    own: &T,
    deadline: Instant,
) -> Result<Vec<T>, Failure> {
    let bytes = postcard::to_stdvec(own).expect("rows hold only sized sequences");
    let parts = control
        .all_gather(&traffic.ranks, key, &bytes, deadline)
        .map_err(|error| Failure {
            group: Some(traffic.name.to_string()),
            ..error.into_failure(control.rank())
        })?;
    let read = |(part, &from): (&Vec<u8>, &u32)| {
        postcard::from_bytes(part).map_err(|_| Failure {
            op: Some(key.to_string()),
            group: Some(traffic.name.to_string()),
            ranks: vec![from],
            got: Some(format!("rank {from} sent something unreadable")),
            help: Some("run the same version of hcom on every rank".into()),
            ..Failure::new(FailureKind::Mismatch, control.rank())
        })
    };
    parts.iter().zip(traffic.ranks.iter()).map(read).collect()
}

fn compare_summaries(ranks: &[u32], summaries: &[Summary]) -> Uniformity {
    let (first, first_rank) = (&summaries[0], ranks[0]);
    for (other, rank) in summaries.iter().zip(ranks) {
        let what = if other.graph != first.graph {
            "graph"
        } else if other.settings != first.settings {
            "version or planner settings"
        } else {
            continue;
        };
        return Uniformity::Pinned {
            reason: format!("{what} of rank {rank} and of rank {first_rank} differ"),
        };
    }
    Uniformity::Uniform
}

fn compare_details(traffic: &Traffic<'_>, all: &[Details], rank: u32) -> Result<(), Failure> {
    let rows: Vec<&[Row]> = all.iter().map(|details| details.rows.as_slice()).collect();
    let base = Failure {
        group: Some(traffic.name.to_string()),
        ..Failure::new(FailureKind::Mismatch, rank)
    };
    order::check_rows(&traffic.ranks, &rows)
        .map_err(|mismatch| of_rows(*mismatch, base.clone()))?;
    order::check_transfers(all.iter().flat_map(|details| &details.transfers))
        .map_err(|unpaired| of_transfers(*unpaired, base))
}

fn of_rows(mismatch: Mismatch, base: Failure) -> Failure {
    let [first, second] = mismatch.ranks;
    let side = |row: &Option<Box<Row>>, rank: u32| match row {
        None => format!("no further operation on rank {rank}"),
        Some(row) => match &row.location {
            None => format!("`{row}` on rank {rank}"),
            Some(location) => format!("`{row}` on rank {rank} ({location})"),
        },
    };
    let named = mismatch.left.as_ref().or(mismatch.right.as_ref());
    Failure {
        op: named.map(|row| row.uniform.kind.clone()),
        seq: Some(mismatch.seq),
        ranks: vec![first, second],
        node: named.map(|row| row.node.clone()),
        expected: Some(side(&mismatch.left, first)),
        got: Some(side(&mismatch.right, second)),
        help: Some(format!(
            "{}; all members of the group must run the same sequence of collectives",
            mismatch.what
        )),
        ..base
    }
}

fn of_transfers(unpaired: Unpaired, base: Failure) -> Failure {
    let channel = unpaired.channel;
    let side = |verb: &str, transfer: &Option<Transfer>, rank: u32| match transfer {
        None => format!("rank {rank} {verb} nothing more"),
        Some(transfer) => format!("rank {rank} {verb} {}", unpaired.content(transfer)),
    };
    let op = if unpaired.send.is_some() {
        "send"
    } else {
        "recv"
    };
    let node = unpaired.send.as_ref().or(unpaired.recv.as_ref());
    Failure {
        op: Some(op.into()),
        seq: Some(unpaired.seq),
        ranks: vec![channel.source, channel.destination],
        node: node.map(|transfer| transfer.node.clone()),
        expected: Some(side("sends", &unpaired.send, channel.source)),
        got: Some(side("receives", &unpaired.recv, channel.destination)),
        help: Some(format!(
            "from rank {} to rank {} with tag {}, sends and receives must match in order, element \
             count and element type, and tags in one order",
            channel.source, channel.destination, channel.tag
        )),
        ..base
    }
}
