//! `all_gather_into_tensor_uneven(output, input, output_splits, group)`: every rank's output
//! becomes all ranks' inputs, which may have different numbers of rows, in group order.
//!
//! `output_splits[i]` is the number of rows of rank `i`'s input, none included; without splits the
//! output is cut evenly. Every rank gives the same splits.

use crate::all_to_all_single::{checked, even};
use crate::{Context, ConvertError};
use hcom_ir::{Attrs, Dim, GroupId, Op, Type, ValueId};

const CALL: &str = "all_gather_into_tensor_uneven";

/// Adds an uneven all_gather of `input` and returns it.
///
/// # Errors
/// [`ConvertError::NotInGroup`]; [`ConvertError::NoDimension`] for a scalar;
/// [`ConvertError::NotDivisible`] without splits; [`ConvertError::Splits`] for another number of
/// splits than ranks, another sum than the output's rows, or another entry of this rank than its
/// own rows; [`ConvertError::Output`].
pub fn convert(
    context: &mut Context<'_>,
    output: &Type,
    input: ValueId,
    output_splits: Option<&[Dim]>,
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
    let expected = Type::new(ty.dtype, ty.shape.clone().with_dim(0, output_rows.clone()));
    if *output != expected {
        return Err(ConvertError::Output {
            call: CALL,
            expected: Box::new(expected),
            got: Box::new(output.clone()),
            input: Box::new(ty.clone()),
            group_size,
        });
    }
    let counts = match output_splits {
        Some(splits) => checked(CALL, "output", splits, output_rows, group_size)?,
        None => even(CALL, output_rows, group_size)?,
    };
    if counts[own] != *rows {
        return Err(ConvertError::Splits {
            call: CALL,
            side: "output",
            splits: counts,
            reason: format!("entry {own} is this rank's, whose input has {rows} rows"),
        });
    }
    let attrs = Attrs::new().with("counts", counts).with("group", group);
    context.push(Op::AllGatherUneven, &[input], attrs)
}

#[cfg(test)]
mod tests {
    use crate::Call;
    use crate::context::tests::{check, dims, fixed};
    use expect_test::{Expect, expect};
    use hcom_ir::DType::F32;

    fn gather(input: &[u64], output: &[u64], splits: Option<&[u64]>, expected: Expect) {
        let call = Call::AllGatherUneven {
            output: fixed(F32, output),
            output_splits: splits.map(dims),
        };
        check([fixed(F32, input)], &[0, 1], 1, &call, expected);
    }

    #[test]
    fn rows_differ_by_rank() {
        gather(
            &[1, 2],
            &[4, 2],
            Some(&[3, 1]),
            expect![[r#"
            hcom 1
            group @g = ranks(0, 1)
            graph @f(%x: f32[1, 2]) -> f32[4, 2] {
              %1 = all_gather_uneven %x, counts = [3, 1], group = @g
              return y = %1
            }
        "#]],
        );
        gather(
            &[2],
            &[4],
            None,
            expect![[r#"
            hcom 1
            group @g = ranks(0, 1)
            graph @f(%x: f32[2]) -> f32[4] {
              %1 = all_gather_uneven %x, counts = [2, 2], group = @g
              return y = %1
            }
        "#]],
        );
    }

    #[test]
    fn what_does_not_add_up_is_refused() {
        gather(
            &[1],
            &[4],
            Some(&[4]),
            expect![
                "all_gather_into_tensor_uneven: output splits [4]: expected 2 entries, one per rank of the group"
            ],
        );
        gather(
            &[1],
            &[5],
            Some(&[3, 1]),
            expect![
                "all_gather_into_tensor_uneven: output splits [3, 1]: they sum to 4, the output has 5 rows"
            ],
        );
        gather(
            &[1],
            &[4],
            Some(&[1, 3]),
            expect![
                "all_gather_into_tensor_uneven: output splits [1, 3]: entry 1 is this rank's, whose input has 1 rows"
            ],
        );
        gather(
            &[1],
            &[3],
            None,
            expect![
                "all_gather_into_tensor_uneven: dimension 0 has size 3, not divisible by the group size 2"
            ],
        );
        gather(
            &[1, 3],
            &[4, 2],
            Some(&[3, 1]),
            expect![
                "all_gather_into_tensor_uneven: the output is f32[4, 2], expected f32[4, 3] (input f32[1, 3], group size 2)"
            ],
        );
    }
}
