//! Removal of nodes whose results nothing reads.

use super::{Pass, Rewrite};
use crate::arena::Id as _;
use crate::graph::Graph;
use crate::op::Class;

/// Removes nodes without an effect whose results nothing reads.
///
/// Collectives, sends, receives, barriers, custom work that is not pure and writes of inputs stay:
/// another rank may use the result that this one does not.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DeadCode {
    /// The caller states that every rank runs this very graph. Then a collective whose result nothing
    /// reads is removed too, since it goes on all ranks. Sends, receives and barriers still stay.
    pub same_graph_on_all_ranks: bool,
}

impl Pass for DeadCode {
    fn name(&self) -> &'static str {
        "dead-code"
    }

    fn run(&self, graph: &Graph) -> Rewrite {
        let mut used = vec![false; graph.values().len()];
        for output in graph.outputs() {
            used[output.index()] = true;
        }
        let mut rewrite = Rewrite::default();
        for (id, node) in graph.nodes().rev() {
            let removable = !node.has_effect()
                || (self.same_graph_on_all_ranks && node.op.class() == Class::Collective);
            if removable && node.results.iter().all(|result| !used[result.index()]) {
                rewrite.removed.insert(id);
                continue;
            }
            for operand in &node.operands {
                used[operand.index()] = true;
            }
        }
        rewrite
    }
}
