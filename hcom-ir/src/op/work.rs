//! Arithmetic and traffic of an operation.

use crate::arena::NodeId;
use crate::graph::Graph;
use crate::op::attr::Attrs;
use crate::types::Type;

/// What one execution of an operation costs a machine, before anything is known about it.
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

pub(crate) fn of(_graph: &Graph, _node: NodeId) -> Option<Work> {
    None
}

pub(super) fn all_reduce(_job: &Job<'_>) -> Work {
    Work::default()
}

pub(super) fn attention(_job: &Job<'_>) -> Work {
    Work::default()
}

pub(super) fn exchange(_job: &Job<'_>) -> Work {
    Work::default()
}

pub(super) fn gather(_job: &Job<'_>) -> Work {
    Work::default()
}

pub(super) fn matmul(_job: &Job<'_>) -> Work {
    Work::default()
}

pub(super) fn movement(_job: &Job<'_>) -> Work {
    Work::default()
}

pub(super) fn norm(_job: &Job<'_>) -> Work {
    Work::default()
}

pub(super) fn nothing(_job: &Job<'_>) -> Work {
    Work::default()
}

pub(super) fn pointwise(_job: &Job<'_>) -> Work {
    Work::default()
}

pub(super) fn reduce_scatter(_job: &Job<'_>) -> Work {
    Work::default()
}

pub(super) fn reduction(_job: &Job<'_>) -> Work {
    Work::default()
}

pub(super) fn softmax(_job: &Job<'_>) -> Work {
    Work::default()
}

pub(super) fn source(_job: &Job<'_>) -> Work {
    Work::default()
}

pub(super) fn transcendental(_job: &Job<'_>) -> Work {
    Work::default()
}

pub(super) fn view(_job: &Job<'_>) -> Work {
    Work::default()
}
