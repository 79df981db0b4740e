//! What the graphs of several ranks have in common where each rank's depends on its own data.
//!
//! Splits of an exchange differ from rank to rank, and may differ anew at each launch. A rank that
//! has launched its part before must then not assume that the others have: they may hold other
//! splits, which have to be compared, and one of them may have to compile. So such a graph is
//! known by the graphs of all members of its groups together.

use std::time::Instant;

use hcom_ir::{Graph, Group, Node, Op};

use crate::{Error, control::Control, failure::Failure, runtime::Inner};

/// Whether ranks may have this graph with splits of their own.
pub fn varies_by_rank(graph: &Graph) -> bool {
    graph.nodes().any(|(_, node)| has_splits(node))
}

fn has_splits(node: &Node) -> bool {
    node.op == Op::AllToAll && node.attrs.get("send_counts").is_some()
}

/// A digest of `graph` and of the graphs that the other members of those of its groups with splits
/// are about to launch.
pub(crate) fn digest(inner: &Inner, graph: &Graph) -> Result<[u8; 32], Error> {
    let control: &dyn Control = &*inner.control;
    let own = blake3::hash(graph.to_string().as_bytes());
    let split = graph.nodes().filter(|(_, node)| has_splits(node));
    let mut groups: Vec<&Group> = split
        .filter_map(|(_, node)| node.group())
        .map(|id| graph.group(id))
        .collect();
    groups.sort_by_key(|group| &group.ranks);
    groups.dedup();
    let mut all = blake3::Hasher::new();
    all.update(own.as_bytes());
    for group in groups {
        let deadline = Instant::now() + inner.settings().timeout;
        let parts = control
            .all_gather(&group.ranks, "splits of a launch", own.as_bytes(), deadline)
            .map_err(|error| {
                inner.watchdog.fail(Failure {
                    group: Some(group.name.clone()),
                    ..error.into_failure(control.rank())
                })
            })?;
        for part in parts {
            all.update(&part);
        }
    }
    Ok(*all.finalize().as_bytes())
}
