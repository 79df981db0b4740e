//! Lifetimes of values in program order.

use crate::arena::{Id as _, NodeId, ValueId};
use crate::graph::{Def, Graph};

/// From where to where a value is needed when the nodes run in program order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Lifetime {
    /// The node that defines it; `None` for an input, which exists from the start.
    pub start: Option<NodeId>,
    /// Its last use.
    pub end: End,
}

/// The last use of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum End {
    /// Nothing reads it.
    Unused,
    /// This node is the last to read it.
    Node(NodeId),
    /// The graph returns it.
    Output,
}

/// The lifetime of every value, by index.
pub fn lifetimes(graph: &Graph) -> Vec<Lifetime> {
    let mut lifetimes: Vec<Lifetime> = graph
        .values()
        .map(|(_, value)| Lifetime {
            start: match value.def {
                Def::Input(_) => None,
                Def::Node { node, .. } => Some(node),
            },
            end: End::Unused,
        })
        .collect();
    for (id, node) in graph.nodes() {
        for operand in &node.operands {
            lifetimes[operand.index()].end = End::Node(id);
        }
    }
    for output in graph.outputs() {
        lifetimes[output.index()].end = End::Output;
    }
    lifetimes
}

/// The largest number of bytes of node results alive at once in program order, views counted as
/// memory of their own; `None` when a size is a symbol. Inputs belong to the caller and are not
/// counted.
pub fn peak_bytes(graph: &Graph) -> Option<u64> {
    let lifetimes = lifetimes(graph);
    let bytes = |value: ValueId| graph.ty(value).bytes();
    let (mut alive, mut peak) = (0u64, 0u64);
    let mut ending: Vec<Vec<ValueId>> = vec![Vec::new(); graph.nodes().len()];
    for (value, lifetime) in graph.values().map(|(value, _)| value).zip(&lifetimes) {
        match (lifetime.start, lifetime.end) {
            (Some(_), End::Node(node)) => ending[node.index()].push(value),
            (Some(node), End::Unused) => ending[node.index()].push(value),
            _ => {}
        }
    }
    for (id, node) in graph.nodes() {
        for &result in &node.results {
            alive = alive.checked_add(bytes(result)?)?;
        }
        peak = peak.max(alive);
        for &value in &ending[id.index()] {
            alive -= bytes(value)?;
        }
    }
    Some(peak)
}
