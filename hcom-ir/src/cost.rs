//! Estimates of time: a roofline for local work, latency and bandwidth for communication.
//!
//! Estimates rank alternatives; they are no predictions. Every figure of a preset names its source.

mod collective;
mod presets;

use serde::{Deserialize, Serialize};

use crate::arena::NodeId;
use crate::graph::Graph;
use crate::group::Group;
use crate::op::{Class, Op};
use crate::types::DType;

/// How the ranks of one level exchange data.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Algorithm {
    /// Every pair of ranks has a link of its own and all links work at once.
    Mesh,
    /// Each rank talks to its neighbour.
    Ring,
    /// Non-uniform hierarchical ring: a logarithmic number of steps.
    Nhr,
    /// Every rank reads the memory of its peers, one after the other.
    Direct,
}

/// One level of the network: ranks that see each other with the same latency and bandwidth.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Level {
    /// Members of the level: ranks for the innermost, units of the level below for the others.
    pub size: u32,
    /// How they exchange data.
    pub algorithm: Algorithm,
    /// Latency of one step in microseconds.
    pub alpha_us: f64,
    /// Bandwidth of one link in bytes per microsecond (MB/s).
    pub bytes_per_us: f64,
    /// Bytes reduced per microsecond; infinite when reduction is free.
    pub reduced_bytes_per_us: f64,
}

/// A machine: local speed and network.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CostModel {
    /// What it describes.
    pub name: String,
    /// Operations per microsecond on `f16` and `bf16` in products of matrices.
    pub half_flops_per_us: f64,
    /// Operations per microsecond on all other types, and outside products of matrices.
    pub flops_per_us: f64,
    /// Bytes of local memory read or written per microsecond.
    pub bytes_per_us: f64,
    /// Part of the peak arithmetic that is reached, 0 to 1.
    pub compute_efficiency: f64,
    /// Part of the peak bandwidth of memory that is reached, 0 to 1.
    pub memory_efficiency: f64,
    /// Fixed time of a product of matrices in microseconds.
    pub matmul_us: f64,
    /// Fixed time of any other local operation in microseconds.
    pub vector_us: f64,
    /// Fixed time of a communication operation in microseconds, beside the latency of its steps.
    pub communication_us: f64,
    /// The levels of the network, innermost first; never empty.
    pub levels: Vec<Level>,
}

impl CostModel {
    /// Estimated time of one execution of `node` in microseconds. Views and sizes of 0 are free;
    /// when a size is a symbol, only the fixed time counts.
    pub fn node(&self, graph: &Graph, node: NodeId) -> f64 {
        let (op, group) = (graph.node(node).op, graph.node(node).group());
        if let (true, Some(group)) = (op.is_communication(), group) {
            return self.collective(op, communicated_bytes(graph, node), graph.group(group));
        }
        if op.class() == Class::View {
            return 0.0;
        }
        let work = graph.work(node).unwrap_or_default();
        let product = matches!(op, Op::Matmul | Op::Attention);
        let fixed = if product {
            self.matmul_us
        } else {
            self.vector_us
        };
        let results = &graph.node(node).results;
        let dtype = results.first().map(|&value| graph.ty(value).dtype);
        let half = product && matches!(dtype, Some(DType::F16 | DType::BF16));
        let peak = if half {
            self.half_flops_per_us
        } else {
            self.flops_per_us
        };
        let compute = work.flops as f64 / (peak * self.compute_efficiency);
        let memory = work.bytes as f64 / (self.bytes_per_us * self.memory_efficiency);
        fixed + compute.max(memory)
    }

    /// Estimated time of all nodes one after the other in microseconds.
    pub fn sequential(&self, graph: &Graph) -> f64 {
        graph.nodes().map(|(node, _)| self.node(graph, node)).sum()
    }

    /// Estimated time in microseconds of a collective, barrier or transfer of `bytes` among the
    /// ranks of `group`. `bytes` is the whole: the operand of `all_reduce`, `reduce`,
    /// `reduce_scatter`, `scatter`, `broadcast` and `all_to_all`, the result of `all_gather` and
    /// `gather_to`, the value of `send` and `recv`.
    pub fn collective(&self, op: Op, bytes: u64, group: &Group) -> f64 {
        self.communication_us + collective::time(&self.levels, op, bytes as f64, group)
    }
}

/// Bytes of the larger of operand and result; 0 when a size is a symbol.
fn communicated_bytes(graph: &Graph, node: NodeId) -> u64 {
    let node = graph.node(node);
    let values = node.operands.iter().chain(&node.results);
    values
        .filter_map(|&value| graph.ty(value).bytes())
        .max()
        .unwrap_or(0)
}
