//! Orders in which the nodes of a graph may be listed, and so issued.
//!
//! Whichever is asked for, nodes with an effect outside the graph (communication, opaque work)
//! stay in program order among each other: the sequence of a group's collectives is what its ranks
//! agree on, and a sort by shape alone may differ from rank to rank.

use std::collections::VecDeque;
use std::fmt;
use std::str::FromStr;

use crate::arena::{Id as _, NodeId};
use crate::diag::Diagnostics;
use crate::graph::{Def, Graph};
use crate::op::{Class, Op};
use crate::pass::{self, Rewrite};

/// How the nodes of a graph are sorted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum TopologyOrder {
    /// Depth first: what a node makes possible comes right after it.
    Dfs,
    /// Breadth first: all that is possible comes before what it makes possible.
    Bfs,
    /// Reverse depth first: what a node needs comes right before it, from the last node back.
    Rdfs,
    /// As the program lists them. Graphs with more than one send or receive always use this.
    #[default]
    StableRdfs,
}

impl TopologyOrder {
    /// Every order.
    pub const ALL: [TopologyOrder; 4] = [
        TopologyOrder::Dfs,
        TopologyOrder::Bfs,
        TopologyOrder::Rdfs,
        TopologyOrder::StableRdfs,
    ];

    /// The name: `dfs`, `bfs`, `rdfs` or `stable_rdfs`.
    pub const fn name(self) -> &'static str {
        match self {
            TopologyOrder::Dfs => "dfs",
            TopologyOrder::Bfs => "bfs",
            TopologyOrder::Rdfs => "rdfs",
            TopologyOrder::StableRdfs => "stable_rdfs",
        }
    }
}

impl fmt::Display for TopologyOrder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// The text names no order.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("unknown order `{0}`; one of dfs, bfs, rdfs, stable_rdfs")]
pub struct UnknownOrder(pub String);

impl FromStr for TopologyOrder {
    type Err = UnknownOrder;

    fn from_str(text: &str) -> Result<Self, UnknownOrder> {
        let named = |order: &TopologyOrder| order.name() == text;
        let found = TopologyOrder::ALL.into_iter().find(named);
        found.ok_or_else(|| UnknownOrder(text.to_owned()))
    }
}

/// The graph with its nodes in `order`, computing the same.
///
/// # Errors
/// Those of [`Graph::validate`], for a graph that was not valid before.
pub fn sort(graph: &Graph, order: TopologyOrder) -> Result<Graph, Diagnostics> {
    let transfers = graph
        .nodes()
        .filter(|(_, node)| node.op.class() == Class::PointToPoint);
    if order == TopologyOrder::StableRdfs || transfers.count() > 1 {
        return Ok(graph.clone());
    }
    let before = dependencies(graph);
    let sorted = match order {
        TopologyOrder::Dfs => forward(&before, true),
        TopologyOrder::Bfs => forward(&before, false),
        TopologyOrder::Rdfs | TopologyOrder::StableRdfs => backward(&before),
    };
    let sorted: Vec<NodeId> = sorted.into_iter().map(NodeId::from_index).collect();
    pass::rebuild(graph, &sorted, &Rewrite::default())
}

/// For each node the nodes that come before it in every order, by index.
fn dependencies(graph: &Graph) -> Vec<Vec<usize>> {
    let mut before: Vec<Vec<usize>> = Vec::with_capacity(graph.nodes().len());
    let mut readers: Vec<Vec<usize>> = vec![Vec::new(); graph.values().len()];
    let mut effect = None;
    for (id, node) in graph.nodes() {
        let index = id.index();
        let producer = |value| match graph.value(value).def {
            Def::Node { node, .. } => Some(node.index()),
            Def::Input(_) => None,
        };
        let mut own: Vec<usize> = node.operands.iter().copied().filter_map(producer).collect();
        if node.op == Op::CopyToInput {
            // Nothing reads an input after it was written.
            own.extend(&readers[node.operands[1].index()]);
        } else if node.has_effect() {
            own.extend(effect.replace(index));
        }
        for operand in &node.operands {
            readers[operand.index()].push(index);
        }
        own.sort_unstable();
        own.dedup();
        before.push(own);
    }
    before
}

/// Takes the front of the nodes that are possible until none is left. What a node makes possible
/// goes to the front or, not depth first, to the end.
fn forward(before: &[Vec<usize>], depth_first: bool) -> Vec<usize> {
    let mut missing: Vec<usize> = before.iter().map(Vec::len).collect();
    let mut after: Vec<Vec<usize>> = vec![Vec::new(); before.len()];
    for (node, before) in before.iter().enumerate() {
        for &earlier in before {
            after[earlier].push(node);
        }
    }
    let mut possible: VecDeque<usize> = (0..before.len()).filter(|&n| missing[n] == 0).collect();
    let mut sorted = Vec::with_capacity(before.len());
    while let Some(node) = possible.pop_front() {
        sorted.push(node);
        let mut next = Vec::new();
        for &later in &after[node] {
            missing[later] -= 1;
            if missing[later] == 0 {
                next.push(later);
            }
        }
        match depth_first {
            true => next
                .into_iter()
                .rev()
                .for_each(|later| possible.push_front(later)),
            false => possible.extend(next),
        }
    }
    sorted
}

/// Each node after what it needs, from the nodes that nothing needs.
fn backward(before: &[Vec<usize>]) -> Vec<usize> {
    let mut needed = vec![false; before.len()];
    for &earlier in before.iter().flatten() {
        needed[earlier] = true;
    }
    let mut listed = vec![false; before.len()];
    let mut sorted = Vec::with_capacity(before.len());
    for last in (0..before.len()).filter(|&node| !needed[node]) {
        // A node with the number of its needs that have been looked at.
        let mut path = vec![(last, 0)];
        while let Some((node, looked)) = path.last_mut() {
            match before[*node].get(*looked) {
                Some(&need) => {
                    *looked += 1;
                    if !listed[need] {
                        path.push((need, 0));
                    }
                }
                None => {
                    if !std::mem::replace(&mut listed[*node], true) {
                        sorted.push(*node);
                    }
                    path.pop();
                }
            }
        }
    }
    sorted
}
