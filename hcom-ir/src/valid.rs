//! The rules of a whole graph.

pub(crate) mod order;

use crate::diag::Diagnostics;
use crate::graph::Graph;

pub(crate) fn validate(_graph: &Graph) -> Result<(), Diagnostics> {
    Ok(())
}
