//! The rules of a whole graph. Each part collects everything it finds; later parts rely on the
//! references that [`ids`] has checked.

pub(crate) mod groups;
pub(crate) mod ids;
pub(crate) mod order;
pub(crate) mod types;

use crate::arena::NodeId;
use crate::diag::{Diagnostic, Diagnostics};
use crate::graph::Graph;

pub(crate) fn validate(graph: &Graph) -> Result<(), Diagnostics> {
    let mut found = Diagnostics::default();
    ids::validate(graph, &mut found.0);
    groups::validate(graph, &mut found.0);
    if found.0.is_empty() {
        types::validate(graph, &mut found.0);
        order::validate(graph, &mut found.0);
    }
    found.into_result(())
}

/// Adds the place and the text of `node` to a diagnostic about it.
fn about(graph: &Graph, node: NodeId, diagnostic: Diagnostic) -> Diagnostic {
    diagnostic
        .at(graph.node(node).location.clone())
        .node(graph.print_node(node))
}
