//! `reduce_scatter_tensor(output, input, reduction, group)`: the inputs of all ranks are reduced
//! element by element, and rank `i` of the group keeps block `i`.
//!
//! Dimension 0 of the input is cut into one block per rank, `[n, …]` giving `[n / group_size, …]`;
//! the output may have any shape with that many elements, so `[group_size, …]` may give `[…]`.

use crate::reduction::{self, Keep};
use crate::{Context, ConvertError, Reduction};
use hcom_ir::{DimError, GroupId, Type, ValueId};

const CALL: &str = "reduce_scatter_tensor";

/// Adds a reduce_scatter of `input` and returns this rank's block in the shape of `output`.
///
/// # Errors
/// [`ConvertError::NotInGroup`]; [`ConvertError::NoDimension`] for a
/// scalar; [`ConvertError::NotDivisible`] if
/// the group's size does not divide dimension 0; [`ConvertError::Output`] if `output` has another
/// element type or number of elements; [`ConvertError::Reduction`].
pub fn convert(
    context: &mut Context<'_>,
    output: &Type,
    input: ValueId,
    reduction: Reduction,
    group: GroupId,
) -> Result<ValueId, ConvertError> {
    let group_size = context.member_of(CALL, group)?.group_size();
    let ty = context.builder.ty(input).clone();
    let block = block(&ty, 0, group_size)?;
    let fits = match (output.elements(), block.elements()) {
        (Some(output), Some(scattered)) => output == scattered,
        _ => output.shape == block.shape,
    };
    if output.dtype != ty.dtype || !fits {
        return Err(ConvertError::Output {
            call: CALL,
            expected: Box::new(block),
            got: Box::new(output.clone()),
            input: Box::new(ty),
            group_size,
        });
    }
    let scattered = along(context, input, 0, reduction, group)?;
    context.reshape(scattered, output)
}

/// Adds a reduce_scatter of `input` cut along `dim` and returns this rank's block.
///
/// # Errors
/// As [`convert`], apart from the output.
pub fn along(
    context: &mut Context<'_>,
    input: ValueId,
    dim: u32,
    reduction: Reduction,
    group: GroupId,
) -> Result<ValueId, ConvertError> {
    let group_size = context.member_of(CALL, group)?.group_size();
    block(context.builder.ty(input), dim, group_size)?;
    reduction::lower(CALL, context, input, reduction, group, &Keep::Block(dim))
}

/// The type of one rank's block.
fn block(input: &Type, dim: u32, group_size: u32) -> Result<Type, ConvertError> {
    let Some(size) = input.shape.dims().get(dim as usize) else {
        return Err(ConvertError::NoDimension {
            call: CALL,
            dim,
            rank: input.shape.rank(),
        });
    };
    match size.div(u64::from(group_size)) {
        // With symbols, the node itself carries the guard.
        Ok((rows, _)) => Ok(Type::new(
            input.dtype,
            input.shape.clone().with_dim(dim as usize, rows),
        )),
        Err(DimError::NotDivisible { .. }) => Err(ConvertError::NotDivisible {
            call: CALL,
            dim,
            size: size.to_string(),
            group_size,
        }),
        Err(source) => Err(ConvertError::Size { call: CALL, source }),
    }
}

#[cfg(test)]
mod tests {
    use crate::Call;
    use crate::context::tests::{check, fixed};
    use expect_test::{Expect, expect};
    use hcom_ir::DType::{self, F32, I32};
    use hcom_ir::ReduceOp::{self, Avg, Sum};

    fn reduce_scatter(input: &[u64], output: (DType, &[u64]), op: ReduceOp, expected: Expect) {
        let call = Call::ReduceScatter {
            reduction: op.into(),
            output: fixed(output.0, output.1),
        };
        check([fixed(I32, input)], &[0, 1], 0, &call, expected);
    }

    #[test]
    fn dimension_0_is_cut() {
        reduce_scatter(
            &[4],
            (I32, &[2]),
            Sum,
            expect![[r#"
                hcom 1
                group @g = ranks(0, 1)
                graph @f(%x: i32[4]) -> i32[2] {
                  %1 = reduce_scatter %x, op = sum, group = @g
                  return y = %1
                }
            "#]],
        );
    }

    #[test]
    fn a_stacked_input_loses_its_first_dimension() {
        reduce_scatter(
            &[2, 3, 2],
            (I32, &[3, 2]),
            Sum,
            expect![[r#"
                hcom 1
                group @g = ranks(0, 1)
                graph @f(%x: i32[2, 3, 2]) -> i32[3, 2] {
                  %1 = reduce_scatter %x, op = sum, group = @g
                  %2 = reshape %1, shape = [3, 2]
                  return y = %2
                }
            "#]],
        );
    }

    #[test]
    fn a_mean_is_divided_after_the_scatter() {
        reduce_scatter(
            &[4],
            (I32, &[2]),
            Avg,
            expect![[r#"
                hcom 1
                group @g = ranks(0, 1)
                graph @f(%x: i32[4]) -> i32[2] {
                  %1 = cast %x, to = i64
                  %2 = reduce_scatter %1, op = sum, group = @g
                  %3 = fill shape = [], value = 2, dtype = i64
                  %4 = div %2, %3
                  %5 = cast %4, to = i32
                  return y = %5
                }
            "#]],
        );
    }

    #[test]
    fn what_cannot_be_cut_is_refused() {
        reduce_scatter(
            &[5],
            (I32, &[2]),
            Sum,
            expect![
                "reduce_scatter_tensor: dimension 0 has size 5, not divisible by the group size 2"
            ],
        );
        reduce_scatter(
            &[],
            (I32, &[]),
            Sum,
            expect!["reduce_scatter_tensor: the input has 0 dimensions, none with index 0"],
        );
    }

    #[test]
    fn an_output_that_does_not_fit_is_refused_with_both_types() {
        reduce_scatter(
            &[4],
            (I32, &[4]),
            Sum,
            expect![
                "reduce_scatter_tensor: the output is i32[4], expected i32[2] (input i32[4], group size 2)"
            ],
        );
        reduce_scatter(
            &[4],
            (F32, &[2]),
            Sum,
            expect![
                "reduce_scatter_tensor: the output is f32[2], expected i32[2] (input i32[4], group size 2)"
            ],
        );
    }
}
