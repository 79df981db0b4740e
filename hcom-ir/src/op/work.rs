//! Arithmetic and traffic of an operation.

use smallvec::SmallVec;

use crate::arena::NodeId;
use crate::graph::Graph;
use crate::op::attr::{Attr, Attrs};
use crate::op::info;
use crate::types::Type;

/// What one execution of an operation asks of a machine, before anything is known about it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Work {
    /// Arithmetic operations on elements; a multiply-add counts as two.
    pub flops: u64,
    /// Bytes read and written in local memory.
    pub bytes: u64,
}

/// One use of an operation with fixed shapes.
#[derive(Clone, Copy, Debug)]
pub struct Job<'a> {
    /// Types of the operands.
    pub operands: &'a [&'a Type],
    /// Types of the results.
    pub results: &'a [&'a Type],
    /// Complete attributes.
    pub attrs: &'a Attrs,
    /// Ranks in the group, 1 without a group.
    pub group_size: u64,
}

pub(crate) fn of(graph: &Graph, id: NodeId) -> Option<Work> {
    let node = graph.node(id);
    let operands: SmallVec<[&Type; 3]> =
        node.operands.iter().map(|&value| graph.ty(value)).collect();
    let results: SmallVec<[&Type; 1]> = node.results.iter().map(|&value| graph.ty(value)).collect();
    if !operands
        .iter()
        .chain(&results)
        .all(|ty| ty.bytes().is_some())
    {
        return None;
    }
    let group_size = node
        .group()
        .map_or(1, |group| u64::from(graph.group(group).group_size()));
    Some((info(node.op).work)(&Job {
        operands: &operands,
        results: &results,
        attrs: &node.attrs,
        group_size,
    }))
}

/// Arithmetic operations counted for one exponential, logarithm, root or power.
const TRANSCENDENTAL: u64 = 10;

impl Job<'_> {
    fn read(&self) -> u64 {
        self.operands
            .iter()
            .fold(0, |sum, ty| sum.saturating_add(bytes(ty)))
    }

    fn written(&self) -> u64 {
        self.results
            .iter()
            .fold(0, |sum, ty| sum.saturating_add(bytes(ty)))
    }

    fn traffic(&self) -> u64 {
        self.read().saturating_add(self.written())
    }

    fn flops(&self, flops: u64) -> Work {
        Work {
            flops,
            bytes: self.traffic(),
        }
    }
}

/// The sizes are fixed and below 2^64 bytes, which the caller of a work formula guarantees.
fn bytes(ty: &Type) -> u64 {
    ty.bytes().unwrap_or(0)
}

fn elements(ty: &Type) -> u64 {
    ty.elements().unwrap_or(0)
}

fn size(ty: &Type, from_end: usize) -> u64 {
    let dims = ty.shape.dims();
    dims.len()
        .checked_sub(from_end)
        .and_then(|index| dims[index].as_fixed())
        .unwrap_or(1)
}

/// No data.
pub(super) fn nothing(_job: &Job<'_>) -> Work {
    Work::default()
}

/// The same memory under another shape.
pub(super) fn view(_job: &Job<'_>) -> Work {
    Work::default()
}

/// Writes its result.
pub(super) fn source(job: &Job<'_>) -> Work {
    Work {
        flops: 0,
        bytes: job.written(),
    }
}

/// Reads and writes what results; a write of an input counts its value twice.
pub(super) fn movement(job: &Job<'_>) -> Work {
    Work {
        flops: 0,
        bytes: job.traffic(),
    }
}

/// Reads one element and one index per element of the result.
pub(super) fn gather(job: &Job<'_>) -> Work {
    let indices = job.operands.get(1).map_or(0, |ty| bytes(ty));
    Work {
        flops: 0,
        bytes: job.written().saturating_mul(2).saturating_add(indices),
    }
}

/// One operation per element of the result.
pub(super) fn pointwise(job: &Job<'_>) -> Work {
    job.flops(elements(job.results[0]))
}

/// An expensive function per element of the result.
pub(super) fn transcendental(job: &Job<'_>) -> Work {
    job.flops(elements(job.results[0]).saturating_mul(TRANSCENDENTAL))
}

/// One operation per element of the operand.
pub(super) fn reduction(job: &Job<'_>) -> Work {
    job.flops(elements(job.operands[0]))
}

/// Maximum, difference, exponential, sum and quotient per element.
pub(super) fn softmax(job: &Job<'_>) -> Work {
    job.flops(elements(job.operands[0]).saturating_mul(TRANSCENDENTAL + 4))
}

/// Two passes for the moments, then difference, scale and shift per element.
pub(super) fn norm(job: &Job<'_>) -> Work {
    job.flops(elements(job.operands[0]).saturating_mul(8))
}

/// `2 m n k` per matrix of the result.
pub(super) fn matmul(job: &Job<'_>) -> Work {
    let transposed = matches!(job.attrs.get("transpose_a"), Some(Attr::Bool(true)));
    let k = size(job.operands[0], if transposed { 2 } else { 1 });
    job.flops(elements(job.results[0]).saturating_mul(k).saturating_mul(2))
}

/// Both products and the softmax; the scores stay in fast memory.
pub(super) fn attention(job: &Job<'_>) -> Work {
    let (q, v) = (job.operands[0], job.operands[2]);
    let (m, d, n, e) = (size(q, 2), size(q, 1), size(v, 2), size(v, 1));
    let batch = elements(q).checked_div(m.saturating_mul(d)).unwrap_or(0);
    let scores = batch.saturating_mul(m).saturating_mul(n);
    let per_score = d
        .saturating_add(e)
        .saturating_mul(2)
        .saturating_add(TRANSCENDENTAL + 4);
    job.flops(scores.saturating_mul(per_score))
}

/// Reduces the operand with each of the other ranks.
pub(super) fn all_reduce(job: &Job<'_>) -> Work {
    job.flops(elements(job.operands[0]).saturating_mul(job.group_size.saturating_sub(1)))
}

/// Reduces its own piece with each of the other ranks.
pub(super) fn reduce_scatter(job: &Job<'_>) -> Work {
    job.flops(elements(job.results[0]).saturating_mul(job.group_size.saturating_sub(1)))
}

/// Moves the operand out and the result in.
pub(super) fn exchange(job: &Job<'_>) -> Work {
    movement(job)
}
