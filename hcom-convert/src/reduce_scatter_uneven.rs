//! `reduce_scatter_tensor_uneven(output, input, input_splits, reduction, group)`: the inputs of all
//! ranks are reduced element by element, and rank `i` keeps `input_splits[i]` rows of the result.
//!
//! Without splits the input is cut evenly. Every rank gives the same splits. As in the call's
//! origin, there is no product; [`reduce_scatter`](crate::reduce_scatter_list) has one.

use crate::all_to_all_single::{checked, even};
use crate::reduction::{self, Keep};
use crate::{Context, ConvertError, Reduction};
use hcom_ir::{Dim, GroupId, ReduceOp, Type, ValueId};

pub(crate) const CALL: &str = "reduce_scatter_tensor_uneven";

/// Adds an uneven reduce_scatter of `input` and returns this rank's rows.
///
/// # Errors
/// [`ConvertError::NotInGroup`]; [`ConvertError::NoDimension`] for a scalar;
/// [`ConvertError::NotDivisible`] without splits; [`ConvertError::Splits`] for another number of
/// splits than ranks, another sum than the input's rows, or another entry of this rank than the
/// output's rows; [`ConvertError::Output`]; [`ConvertError::Reduction`], for a product too.
pub fn convert(
    context: &mut Context<'_>,
    output: &Type,
    input: ValueId,
    input_splits: Option<&[Dim]>,
    reduction: Reduction,
    group: GroupId,
) -> Result<ValueId, ConvertError> {
    let own = context.own_rank(CALL, group)? as usize;
    let group_size = context.member_of(CALL, group)?.group_size();
    let ty = context.builder.ty(input).clone();
    let (Some(rows), Some(output_rows)) = (ty.shape.dims().first(), output.shape.dims().first())
    else {
        return Err(ConvertError::NoDimension {
            call: CALL,
            dim: 0,
            rank: 0,
        });
    };
    if let Some(reason) = refusal(reduction.op) {
        return Err(ConvertError::Reduction {
            call: CALL,
            op: reduction.op,
            dtype: ty.dtype,
            reason,
        });
    }
    let counts = match input_splits {
        Some(splits) => checked(CALL, "input", splits, rows, group_size)?,
        None => even(CALL, rows, group_size)?,
    };
    let expected = Type::new(ty.dtype, ty.shape.clone().with_dim(0, counts[own].clone()));
    if *output_rows != counts[own] {
        return Err(ConvertError::Splits {
            call: CALL,
            side: "input",
            splits: counts,
            reason: format!("entry {own} is this rank's, whose output has {output_rows} rows"),
        });
    }
    if *output != expected {
        return Err(ConvertError::Output {
            call: CALL,
            expected: Box::new(expected),
            got: Box::new(output.clone()),
            input: Box::new(ty.clone()),
            group_size,
        });
    }
    reduction::lower(CALL, context, input, reduction, group, &Keep::Rows(counts))
}

/// Why this call refuses a reduction that others have.
pub(crate) fn refusal(op: ReduceOp) -> Option<&'static str> {
    (op == ReduceOp::Prod).then_some("this call has no product; use reduce_scatter with a list")
}

#[cfg(test)]
mod tests {
    use crate::Call;
    use crate::context::tests::{check, dims, fixed};
    use expect_test::{Expect, expect};
    use hcom_ir::DType::F32;
    use hcom_ir::ReduceOp::{self, Avg, Max, Prod, Sum};

    fn scatter(
        input: &[u64],
        output: &[u64],
        splits: Option<&[u64]>,
        op: ReduceOp,
        expected: Expect,
    ) {
        let call = Call::ReduceScatterUneven {
            reduction: op.into(),
            output: fixed(F32, output),
            input_splits: splits.map(dims),
        };
        check([fixed(F32, input)], &[0, 1], 1, &call, expected);
    }

    #[test]
    fn rows_differ_by_rank() {
        scatter(
            &[4, 2],
            &[1, 2],
            Some(&[3, 1]),
            Max,
            expect![[r#"
            hcom 1
            group @g = ranks(0, 1)
            graph @f(%x: f32[4, 2]) -> f32[1, 2] {
              %1 = reduce_scatter_uneven %x, op = max, counts = [3, 1], rows = 1, group = @g
              return y = %1
            }
        "#]],
        );
        scatter(
            &[4],
            &[2],
            None,
            Avg,
            expect![[r#"
            hcom 1
            group @g = ranks(0, 1)
            graph @f(%x: f32[4]) -> f32[2] {
              %1 = reduce_scatter_uneven %x, op = sum, counts = [2, 2], rows = 2, group = @g
              %2 = fill shape = [], value = 2.0, dtype = f32
              %3 = div %1, %2
              return y = %3
            }
        "#]],
        );
    }

    #[test]
    fn what_does_not_add_up_is_refused() {
        scatter(
            &[4],
            &[1],
            Some(&[4]),
            Sum,
            expect![
                "reduce_scatter_tensor_uneven: input splits [4]: expected 2 entries, one per rank of the group"
            ],
        );
        scatter(
            &[5],
            &[1],
            Some(&[3, 1]),
            Sum,
            expect![
                "reduce_scatter_tensor_uneven: input splits [3, 1]: they sum to 4, the input has 5 rows"
            ],
        );
        scatter(
            &[4],
            &[2],
            Some(&[3, 1]),
            Sum,
            expect![
                "reduce_scatter_tensor_uneven: input splits [3, 1]: entry 1 is this rank's, whose output has 2 rows"
            ],
        );
        scatter(
            &[3],
            &[1],
            None,
            Sum,
            expect![
                "reduce_scatter_tensor_uneven: dimension 0 has size 3, not divisible by the group size 2"
            ],
        );
        scatter(
            &[4],
            &[1],
            Some(&[3, 1]),
            Prod,
            expect![
                "reduce_scatter_tensor_uneven: prod of f32: this call has no product; use reduce_scatter with a list"
            ],
        );
    }
}
