//! Type rules: result types from operand types and attributes.

use smallvec::SmallVec;

use crate::diag::{Code, Diagnostic};
use crate::group::Group;
use crate::op::attr::Attrs;
use crate::op::{Op, info};
use crate::shape::Guard;
use crate::types::Type;

/// One use of an operation, to be typed.
#[derive(Clone, Copy, Debug)]
pub struct Site<'a> {
    /// The operation.
    pub op: Op,
    /// Types of the operands; their number is right.
    pub operands: &'a [&'a Type],
    /// Complete attributes of the right kinds.
    pub attrs: &'a Attrs,
    /// The groups of the graph, by id.
    pub groups: &'a [Group],
    /// The names of the symbols, by id.
    pub symbols: &'a [String],
}

/// Result types, and conditions on the symbols under which they hold.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Inferred {
    /// One type per result.
    pub types: SmallVec<[Type; 1]>,
    /// Conditions that the types rest on.
    pub guards: SmallVec<[Guard; 1]>,
}

/// The result types of `op` for operands of these types. `attrs` must be complete, as
/// [`complete`](crate::complete) makes them. Fails when the operands or attributes do not fit.
pub fn infer(
    op: Op,
    operands: &[&Type],
    attrs: &Attrs,
    groups: &[Group],
    symbols: &[String],
) -> Result<Inferred, Diagnostic> {
    (info(op).infer)(&Site {
        op,
        operands,
        attrs,
        groups,
        symbols,
    })
}

pub(super) fn all_gather(site: &Site<'_>) -> Result<Inferred, Diagnostic> {
    Err(Diagnostic::new(
        Code::Type,
        format!("`{}` has no type rule", site.op),
    ))
}

pub(super) fn all_gather_uneven(site: &Site<'_>) -> Result<Inferred, Diagnostic> {
    Err(Diagnostic::new(
        Code::Type,
        format!("`{}` has no type rule", site.op),
    ))
}

pub(super) fn all_reduce(site: &Site<'_>) -> Result<Inferred, Diagnostic> {
    Err(Diagnostic::new(
        Code::Type,
        format!("`{}` has no type rule", site.op),
    ))
}

pub(super) fn all_to_all(site: &Site<'_>) -> Result<Inferred, Diagnostic> {
    Err(Diagnostic::new(
        Code::Type,
        format!("`{}` has no type rule", site.op),
    ))
}

pub(super) fn arange(site: &Site<'_>) -> Result<Inferred, Diagnostic> {
    Err(Diagnostic::new(
        Code::Type,
        format!("`{}` has no type rule", site.op),
    ))
}

pub(super) fn argmax(site: &Site<'_>) -> Result<Inferred, Diagnostic> {
    Err(Diagnostic::new(
        Code::Type,
        format!("`{}` has no type rule", site.op),
    ))
}

pub(super) fn arithmetic(site: &Site<'_>) -> Result<Inferred, Diagnostic> {
    Err(Diagnostic::new(
        Code::Type,
        format!("`{}` has no type rule", site.op),
    ))
}

pub(super) fn attention(site: &Site<'_>) -> Result<Inferred, Diagnostic> {
    Err(Diagnostic::new(
        Code::Type,
        format!("`{}` has no type rule", site.op),
    ))
}

pub(super) fn barrier(site: &Site<'_>) -> Result<Inferred, Diagnostic> {
    Err(Diagnostic::new(
        Code::Type,
        format!("`{}` has no type rule", site.op),
    ))
}

pub(super) fn bias_add(site: &Site<'_>) -> Result<Inferred, Diagnostic> {
    Err(Diagnostic::new(
        Code::Type,
        format!("`{}` has no type rule", site.op),
    ))
}

pub(super) fn broadcast(site: &Site<'_>) -> Result<Inferred, Diagnostic> {
    Err(Diagnostic::new(
        Code::Type,
        format!("`{}` has no type rule", site.op),
    ))
}

pub(super) fn cast(site: &Site<'_>) -> Result<Inferred, Diagnostic> {
    Err(Diagnostic::new(
        Code::Type,
        format!("`{}` has no type rule", site.op),
    ))
}

pub(super) fn compare_equal(site: &Site<'_>) -> Result<Inferred, Diagnostic> {
    Err(Diagnostic::new(
        Code::Type,
        format!("`{}` has no type rule", site.op),
    ))
}

pub(super) fn compare_ordered(site: &Site<'_>) -> Result<Inferred, Diagnostic> {
    Err(Diagnostic::new(
        Code::Type,
        format!("`{}` has no type rule", site.op),
    ))
}

pub(super) fn concat(site: &Site<'_>) -> Result<Inferred, Diagnostic> {
    Err(Diagnostic::new(
        Code::Type,
        format!("`{}` has no type rule", site.op),
    ))
}

pub(super) fn constant(site: &Site<'_>) -> Result<Inferred, Diagnostic> {
    Err(Diagnostic::new(
        Code::Type,
        format!("`{}` has no type rule", site.op),
    ))
}

pub(super) fn copy_to_input(site: &Site<'_>) -> Result<Inferred, Diagnostic> {
    Err(Diagnostic::new(
        Code::Type,
        format!("`{}` has no type rule", site.op),
    ))
}

pub(super) fn custom(site: &Site<'_>) -> Result<Inferred, Diagnostic> {
    Err(Diagnostic::new(
        Code::Type,
        format!("`{}` has no type rule", site.op),
    ))
}

pub(super) fn embedding(site: &Site<'_>) -> Result<Inferred, Diagnostic> {
    Err(Diagnostic::new(
        Code::Type,
        format!("`{}` has no type rule", site.op),
    ))
}

pub(super) fn expand(site: &Site<'_>) -> Result<Inferred, Diagnostic> {
    Err(Diagnostic::new(
        Code::Type,
        format!("`{}` has no type rule", site.op),
    ))
}

pub(super) fn fill(site: &Site<'_>) -> Result<Inferred, Diagnostic> {
    Err(Diagnostic::new(
        Code::Type,
        format!("`{}` has no type rule", site.op),
    ))
}

pub(super) fn floating(site: &Site<'_>) -> Result<Inferred, Diagnostic> {
    Err(Diagnostic::new(
        Code::Type,
        format!("`{}` has no type rule", site.op),
    ))
}

pub(super) fn gather(site: &Site<'_>) -> Result<Inferred, Diagnostic> {
    Err(Diagnostic::new(
        Code::Type,
        format!("`{}` has no type rule", site.op),
    ))
}

pub(super) fn gather_to(site: &Site<'_>) -> Result<Inferred, Diagnostic> {
    Err(Diagnostic::new(
        Code::Type,
        format!("`{}` has no type rule", site.op),
    ))
}

pub(super) fn matmul(site: &Site<'_>) -> Result<Inferred, Diagnostic> {
    Err(Diagnostic::new(
        Code::Type,
        format!("`{}` has no type rule", site.op),
    ))
}

pub(super) fn max(site: &Site<'_>) -> Result<Inferred, Diagnostic> {
    Err(Diagnostic::new(
        Code::Type,
        format!("`{}` has no type rule", site.op),
    ))
}

pub(super) fn mean(site: &Site<'_>) -> Result<Inferred, Diagnostic> {
    Err(Diagnostic::new(
        Code::Type,
        format!("`{}` has no type rule", site.op),
    ))
}

pub(super) fn norm(site: &Site<'_>) -> Result<Inferred, Diagnostic> {
    Err(Diagnostic::new(
        Code::Type,
        format!("`{}` has no type rule", site.op),
    ))
}

pub(super) fn numeric(site: &Site<'_>) -> Result<Inferred, Diagnostic> {
    Err(Diagnostic::new(
        Code::Type,
        format!("`{}` has no type rule", site.op),
    ))
}

pub(super) fn ordered(site: &Site<'_>) -> Result<Inferred, Diagnostic> {
    Err(Diagnostic::new(
        Code::Type,
        format!("`{}` has no type rule", site.op),
    ))
}

pub(super) fn pad(site: &Site<'_>) -> Result<Inferred, Diagnostic> {
    Err(Diagnostic::new(
        Code::Type,
        format!("`{}` has no type rule", site.op),
    ))
}

pub(super) fn power(site: &Site<'_>) -> Result<Inferred, Diagnostic> {
    Err(Diagnostic::new(
        Code::Type,
        format!("`{}` has no type rule", site.op),
    ))
}

pub(super) fn real(site: &Site<'_>) -> Result<Inferred, Diagnostic> {
    Err(Diagnostic::new(
        Code::Type,
        format!("`{}` has no type rule", site.op),
    ))
}

pub(super) fn recv(site: &Site<'_>) -> Result<Inferred, Diagnostic> {
    Err(Diagnostic::new(
        Code::Type,
        format!("`{}` has no type rule", site.op),
    ))
}

pub(super) fn reduce(site: &Site<'_>) -> Result<Inferred, Diagnostic> {
    Err(Diagnostic::new(
        Code::Type,
        format!("`{}` has no type rule", site.op),
    ))
}

pub(super) fn reduce_scatter(site: &Site<'_>) -> Result<Inferred, Diagnostic> {
    Err(Diagnostic::new(
        Code::Type,
        format!("`{}` has no type rule", site.op),
    ))
}

pub(super) fn reduce_scatter_uneven(site: &Site<'_>) -> Result<Inferred, Diagnostic> {
    Err(Diagnostic::new(
        Code::Type,
        format!("`{}` has no type rule", site.op),
    ))
}

pub(super) fn reshape(site: &Site<'_>) -> Result<Inferred, Diagnostic> {
    Err(Diagnostic::new(
        Code::Type,
        format!("`{}` has no type rule", site.op),
    ))
}

pub(super) fn same(site: &Site<'_>) -> Result<Inferred, Diagnostic> {
    Err(Diagnostic::new(
        Code::Type,
        format!("`{}` has no type rule", site.op),
    ))
}

pub(super) fn scatter(site: &Site<'_>) -> Result<Inferred, Diagnostic> {
    Err(Diagnostic::new(
        Code::Type,
        format!("`{}` has no type rule", site.op),
    ))
}

pub(super) fn select(site: &Site<'_>) -> Result<Inferred, Diagnostic> {
    Err(Diagnostic::new(
        Code::Type,
        format!("`{}` has no type rule", site.op),
    ))
}

pub(super) fn send(site: &Site<'_>) -> Result<Inferred, Diagnostic> {
    Err(Diagnostic::new(
        Code::Type,
        format!("`{}` has no type rule", site.op),
    ))
}

pub(super) fn signed_arithmetic(site: &Site<'_>) -> Result<Inferred, Diagnostic> {
    Err(Diagnostic::new(
        Code::Type,
        format!("`{}` has no type rule", site.op),
    ))
}

pub(super) fn slice(site: &Site<'_>) -> Result<Inferred, Diagnostic> {
    Err(Diagnostic::new(
        Code::Type,
        format!("`{}` has no type rule", site.op),
    ))
}

pub(super) fn softmax(site: &Site<'_>) -> Result<Inferred, Diagnostic> {
    Err(Diagnostic::new(
        Code::Type,
        format!("`{}` has no type rule", site.op),
    ))
}

pub(super) fn split(site: &Site<'_>) -> Result<Inferred, Diagnostic> {
    Err(Diagnostic::new(
        Code::Type,
        format!("`{}` has no type rule", site.op),
    ))
}

pub(super) fn sum(site: &Site<'_>) -> Result<Inferred, Diagnostic> {
    Err(Diagnostic::new(
        Code::Type,
        format!("`{}` has no type rule", site.op),
    ))
}

pub(super) fn transpose(site: &Site<'_>) -> Result<Inferred, Diagnostic> {
    Err(Diagnostic::new(
        Code::Type,
        format!("`{}` has no type rule", site.op),
    ))
}

pub(super) fn triangle(site: &Site<'_>) -> Result<Inferred, Diagnostic> {
    Err(Diagnostic::new(
        Code::Type,
        format!("`{}` has no type rule", site.op),
    ))
}
