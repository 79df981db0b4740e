//! Passes: rewrites of a graph, each followed by validation.
//!
//! A pass looks at a graph and says what shall change; the driver makes the new graph, checks it,
//! and names the pass in any error. Ids of one graph mean nothing in the next.

mod dead_code;

use rustc_hash::{FxHashMap, FxHashSet};

pub use dead_code::DeadCode;

use crate::arena::{NodeId, ValueId};
use crate::builder::Builder;
use crate::diag::{Code, Diagnostic, Diagnostics};
use crate::graph::Graph;

/// What a pass wants changed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rewrite {
    /// Nodes to leave out.
    pub removed: FxHashSet<NodeId>,
    /// Values to be read in place of others. The replacement is defined before every use of the
    /// value it replaces.
    pub replaced: FxHashMap<ValueId, ValueId>,
}

impl Rewrite {
    /// Whether nothing changes.
    pub fn is_empty(&self) -> bool {
        self.removed.is_empty() && self.replaced.is_empty()
    }
}

/// A transformation of graphs that keeps their meaning.
pub trait Pass {
    /// The name in messages.
    fn name(&self) -> &'static str;

    /// What to change in a valid graph.
    fn run(&self, graph: &Graph) -> Rewrite;
}

/// A pass made something that is no graph. This is a mistake in the pass, not in the program.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("pass `{pass}` made an invalid graph:\n{found}")]
pub struct PassError {
    /// The pass.
    pub pass: &'static str,
    /// What is wrong.
    pub found: Diagnostics,
}

/// Runs the passes one after the other.
pub fn run(graph: &Graph, passes: &[&dyn Pass]) -> Result<Graph, PassError> {
    let mut graph = graph.clone();
    for pass in passes {
        let rewrite = pass.run(&graph);
        if !rewrite.is_empty() {
            let error = |found| PassError {
                pass: pass.name(),
                found,
            };
            graph = apply(&graph, &rewrite).map_err(error)?;
        }
    }
    Ok(graph)
}

/// The graph with the changes made. Fails when it is not valid.
pub fn apply(graph: &Graph, rewrite: &Rewrite) -> Result<Graph, Diagnostics> {
    let kept = graph.nodes().map(|(id, _)| id);
    let kept: Vec<NodeId> = kept.filter(|id| !rewrite.removed.contains(id)).collect();
    rebuild(graph, &kept, rewrite)
}

/// The graph of these nodes in this order, with the replacements made.
pub(crate) fn rebuild(
    graph: &Graph,
    nodes: &[NodeId],
    rewrite: &Rewrite,
) -> Result<Graph, Diagnostics> {
    let mut builder = Builder::new(graph.name());
    for symbol in graph.symbols() {
        builder.symbol(symbol);
    }
    for guard in graph.guards() {
        builder.guard(guard.clone());
    }
    for (_, group) in graph.groups() {
        builder.group(group.clone());
    }
    let mut values: FxHashMap<ValueId, ValueId> = FxHashMap::default();
    for input in graph.inputs() {
        let value = builder.input(&input.name, graph.ty(input.value).clone(), input.mutable);
        values.insert(input.value, value);
    }
    let resolve = |values: &FxHashMap<ValueId, ValueId>, value: ValueId| {
        let wanted = rewrite.replaced.get(&value).copied().unwrap_or(value);
        values.get(&wanted).copied().ok_or_else(|| {
            let name = &graph.value(wanted).name;
            Diagnostic::new(
                Code::Reference,
                format!("`%{name}` is used but not defined before its use"),
            )
        })
    };
    for &id in nodes {
        let node = graph.node(id);
        let operands = node.operands.iter().map(|&value| resolve(&values, value));
        let operands = operands
            .collect::<Result<Vec<ValueId>, Diagnostic>>()
            .map_err(|diagnostic| {
                diagnostic
                    .at(node.location.clone())
                    .node(graph.print_node(id))
            })?;
        let names: Vec<&str> = node
            .results
            .iter()
            .map(|&value| &*graph.value(value).name)
            .collect();
        builder.set_location(node.location.clone());
        let results = builder.push_named(node.op, &operands, node.attrs.clone(), &names)?;
        values.extend(node.results.iter().copied().zip(results));
    }
    let outputs = graph.output_names().iter().zip(graph.outputs());
    let outputs = outputs.map(|(name, &value)| Ok((name.clone(), resolve(&values, value)?)));
    builder.finish(outputs.collect::<Result<_, Diagnostic>>()?)
}
