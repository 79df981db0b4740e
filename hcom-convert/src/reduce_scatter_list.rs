//! `reduce_scatter(output, inputs, reduction, group)`: rank `i`'s output becomes the reduction of
//! the tensors `i` of all ranks' lists.
//!
//! Every rank gives the same sizes, in any shapes; those of `inputs[i]` are those of rank `i`'s
//! output. Where they are equal it is a `reduce_scatter`, otherwise a `reduce_scatter_uneven`. The
//! device library has no uneven product: every rank takes its part of an `all_reduce` then.

use crate::context::{all_elements, elements};
use crate::{Context, ConvertError, Reduction, reduction};
use hcom_ir::{Attrs, Dim, GroupId, Op, ReduceOp, Type, ValueId};

const CALL: &str = "reduce_scatter";

/// Adds a reduce_scatter of `inputs` and returns this rank's piece in the shape of `output`.
///
/// # Errors
/// [`ConvertError::NotInGroup`]; [`ConvertError::ListLength`]; [`ConvertError::ListElement`] for
/// another element type, or if this rank's own entry has another number of elements than `output`;
/// [`ConvertError::Reduction`]; [`ConvertError::Symbolic`].
pub fn convert(
    context: &mut Context<'_>,
    output: &Type,
    inputs: &[ValueId],
    reduction: Reduction,
    group: GroupId,
) -> Result<ValueId, ConvertError> {
    let own = context.own_rank(CALL, group)? as usize;
    let types = context.types(inputs);
    context.one_per_rank(CALL, &types, output.dtype, group)?;
    let counts = all_elements(CALL, &types)?;
    let count = elements(CALL, output)?;
    if counts[own] != count {
        return Err(ConvertError::ListElement {
            call: CALL,
            index: own,
            got: Box::new(types[own].clone()),
            expected: format!("{count} elements, as this rank's output {output} has"),
        });
    }
    reduction::check(CALL, reduction, output.dtype)?;
    let packed = context.packed(CALL, inputs)?;
    let piece =
        reduction::lower(
            CALL,
            context,
            packed,
            reduction,
            group,
            |context, x, op| match counts.iter().all(|other| *other == count) {
                true => {
                    let attrs = Attrs::new().with("op", op).with("dim", 0);
                    context.push(Op::ReduceScatter, &[x], attrs.with("group", group))
                }
                false => uneven(context, x, op, counts, own, group),
            },
        )?;
    context.reshape(piece, output)
}

/// The op that reduces lists of unequal sizes: the library has no uneven product.
pub(crate) fn uneven_op(op: ReduceOp) -> Op {
    match op {
        ReduceOp::Prod => Op::AllReduce,
        _ => Op::ReduceScatterUneven,
    }
}

/// The reduction of the rows that are this rank's.
fn uneven(
    context: &mut Context<'_>,
    x: ValueId,
    op: ReduceOp,
    counts: Vec<u64>,
    own: usize,
    group: GroupId,
) -> Result<ValueId, ConvertError> {
    if uneven_op(op) == Op::ReduceScatterUneven {
        let attrs = Attrs::new()
            .with("op", op)
            .with("rows", Dim::fixed(counts[own]))
            .with("counts", counts)
            .with("group", group);
        return context.push(Op::ReduceScatterUneven, &[x], attrs);
    }
    let attrs = Attrs::new().with("op", op).with("group", group);
    let all = context.push(Op::AllReduce, &[x], attrs)?;
    let start: u64 = counts[..own].iter().sum();
    let attrs = Attrs::new()
        .with("dim", 0)
        .with("start", Dim::fixed(start))
        .with("end", Dim::fixed(start + counts[own]));
    context.push(Op::Slice, &[all], attrs)
}

#[cfg(test)]
mod tests {
    use crate::Call;
    use crate::context::tests::{check, fixed};
    use expect_test::{Expect, expect};
    use hcom_ir::DType::I32;
    use hcom_ir::ReduceOp::{self, Avg, Max, Prod, Sum};

    fn reduce_scatter(inputs: &[&[u64]], output: &[u64], op: ReduceOp, expected: Expect) {
        let call = Call::ReduceScatterList {
            reduction: op.into(),
            output: fixed(I32, output),
        };
        let inputs = inputs.iter().map(|shape| fixed(I32, shape));
        check(inputs, &[0, 1], 1, &call, expected);
    }

    #[test]
    fn equal_sizes() {
        reduce_scatter(
            &[&[2], &[1, 2]],
            &[2],
            Max,
            expect![[r#"
            hcom 1
            group @g = ranks(0, 1)
            graph @f(%x0: i32[2], %x1: i32[1, 2]) -> i32[2] {
              %2 = reshape %x1, shape = [2]
              %3 = concat %x0, %2, dim = 0
              %4 = reduce_scatter %3, op = max, group = @g
              return y = %4
            }
        "#]],
        );
    }

    #[test]
    fn unequal_sizes() {
        reduce_scatter(
            &[&[2], &[1]],
            &[1],
            Sum,
            expect![[r#"
            hcom 1
            group @g = ranks(0, 1)
            graph @f(%x0: i32[2], %x1: i32[1]) -> i32[1] {
              %2 = concat %x0, %x1, dim = 0
              %3 = reduce_scatter_uneven %2, op = sum, counts = [2, 1], rows = 1, group = @g
              return y = %3
            }
        "#]],
        );
        reduce_scatter(
            &[&[2], &[1]],
            &[1],
            Prod,
            expect![[r#"
            hcom 1
            group @g = ranks(0, 1)
            graph @f(%x0: i32[2], %x1: i32[1]) -> i32[1] {
              %2 = concat %x0, %x1, dim = 0
              %3 = all_reduce %2, op = prod, group = @g
              %4 = slice %3, dim = 0, start = 2, end = 3
              return y = %4
            }
        "#]],
        );
        reduce_scatter(
            &[&[2], &[0]],
            &[0],
            Avg,
            expect![[r#"
            hcom 1
            group @g = ranks(0, 1)
            graph @f(%x0: i32[2], %x1: i32[0]) -> i32[0] {
              %2 = concat %x0, %x1, dim = 0
              %3 = cast %2, to = i64
              %4 = reduce_scatter_uneven %3, op = sum, counts = [2, 0], rows = 0, group = @g
              %5 = cast %4, to = f64
              %6 = fill shape = [], value = 2.0, dtype = f64
              %7 = div %5, %6
              %8 = cast %7, to = i32
              return y = %8
            }
        "#]],
        );
    }

    #[test]
    fn lists_that_do_not_fit_are_refused() {
        reduce_scatter(
            &[&[2]],
            &[2],
            Sum,
            expect![
                "reduce_scatter: the list has 1 tensors, expected 2, one per rank of the group"
            ],
        );
        reduce_scatter(
            &[&[2], &[1]],
            &[2],
            Sum,
            expect![
                "reduce_scatter: tensor 1 of the list is i32[1], expected 2 elements, as this rank's output i32[2] has"
            ],
        );
    }
}
