//! `reduce_scatter(output, inputs, reduction, group)`: rank `i`'s output becomes the reduction of
//! the tensors `i` of all ranks' lists.
//!
//! Every rank gives the same sizes, in any shapes; those of `inputs[i]` are those of rank `i`'s
//! output. Where they are equal it is a `reduce_scatter`, otherwise a `reduce_scatter_uneven`.

use crate::context::{all_elements, elements};
use crate::reduction::{self, Keep};
use crate::{Context, ConvertError, Reduction};
use hcom_ir::{GroupId, Type, ValueId};

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
    let keep = match counts.iter().all(|other| *other == count) {
        true => Keep::Block(0),
        false => Keep::Rows(counts),
    };
    let piece = reduction::lower(CALL, context, packed, reduction, group, &keep)?;
    context.reshape(piece, output)
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
                  %3 = all_to_all %2, send_counts = [2, 1], recv_counts = [1, 1], group = @g
                  %4, %5 = split %3, dim = 0, sizes = [1, 1]
                  %6 = mul %4, %5
                  return y = %6
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
                  %4 = all_to_all %3, send_counts = [2, 0], recv_counts = [0, 0], group = @g
                  %5, %6 = split %4, dim = 0, sizes = [0, 0]
                  %7 = add %5, %6
                  %8 = fill shape = [], value = 2, dtype = i64
                  %9 = div %7, %8
                  %10 = cast %9, to = i32
                  return y = %10
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
