//! `all_to_all_single(output, input, output_splits, input_splits, group)`: dimension 0 of the
//! input is cut into one piece per rank, piece `i` goes to rank `i`, and the pieces received make
//! the output in rank order.
//!
//! Splits are rows of dimension 0, on either side; a side without splits is cut evenly. All ranks of
//! the group give splits, or none does: a call without any is an even `all_to_all`, which the
//! library carries out otherwise, and the check across ranks reports a mix.

use crate::{Context, ConvertError};
use hcom_ir::{Attrs, Dim, DimError, GroupId, Op, Type, ValueId};

const CALL: &str = "all_to_all_single";

/// Rows of dimension 0 per rank, on both sides of an exchange; `None` cuts evenly.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Splits {
    /// Rows received from each rank.
    pub output: Option<Vec<Dim>>,
    /// Rows sent to each rank.
    pub input: Option<Vec<Dim>>,
}

/// Adds an all_to_all of `input` and returns what this rank receives in the shape of `output`.
///
/// # Errors
/// [`ConvertError::NotInGroup`]; [`ConvertError::NoDimension`] for a scalar;
/// [`ConvertError::NotDivisible`] where rows without splits cannot be cut evenly;
/// [`ConvertError::Splits`] for another number of splits than ranks, or another sum than rows;
/// [`ConvertError::Output`] for an output of another element type or number of elements.
pub fn convert(
    context: &mut Context<'_>,
    output: &Type,
    input: ValueId,
    splits: &Splits,
    group: GroupId,
) -> Result<ValueId, ConvertError> {
    let group_size = context.member_of(CALL, group)?.group_size();
    let ty = context.builder.ty(input).clone();
    let Some(rows) = ty.shape.dims().first().cloned() else {
        return Err(ConvertError::NoDimension {
            call: CALL,
            dim: 0,
            rank: 0,
        });
    };
    let refuse_output = |expected: Type| ConvertError::Output {
        call: CALL,
        expected: Box::new(expected),
        got: Box::new(output.clone()),
        input: Box::new(ty.clone()),
        group_size,
    };
    let (received, attrs) = if splits.output.is_none() && splits.input.is_none() {
        even(CALL, &rows, group_size)?;
        (rows, Attrs::new())
    } else {
        let send = match &splits.input {
            Some(splits) => checked(CALL, "input", splits, &rows, group_size)?,
            None => even(CALL, &rows, group_size)?,
        };
        let Some(output_rows) = output.shape.dims().first() else {
            return Err(refuse_output(ty.clone()));
        };
        let recv = match &splits.output {
            Some(splits) => checked(CALL, "output", splits, output_rows, group_size)?,
            None => even(CALL, output_rows, group_size)?,
        };
        let attrs = Attrs::new()
            .with("send_counts", send)
            .with("recv_counts", recv);
        (output_rows.clone(), attrs)
    };
    let expected = Type::new(ty.dtype, ty.shape.clone().with_dim(0, received));
    let fits = match (output.elements(), expected.elements()) {
        (Some(output), Some(expected)) => output == expected,
        _ => output.shape == expected.shape,
    };
    if output.dtype != ty.dtype || !fits {
        return Err(refuse_output(expected));
    }
    let exchanged = context.push(Op::AllToAll, &[input], attrs.with("group", group))?;
    context.reshape(exchanged, output)
}

/// Equal pieces of `rows`.
pub(crate) fn even(
    call: &'static str,
    rows: &Dim,
    group_size: u32,
) -> Result<Vec<Dim>, ConvertError> {
    match rows.div(u64::from(group_size)) {
        Ok((piece, _)) => Ok(vec![piece; group_size as usize]),
        Err(DimError::NotDivisible { .. }) => Err(ConvertError::NotDivisible {
            call,
            dim: 0,
            size: rows.to_string(),
            group_size,
        }),
        Err(source) => Err(ConvertError::Size { call, source }),
    }
}

/// `splits`, if they are one per rank and make up `rows`.
pub(crate) fn checked(
    call: &'static str,
    side: &'static str,
    splits: &[Dim],
    rows: &Dim,
    group_size: u32,
) -> Result<Vec<Dim>, ConvertError> {
    let refuse = |reason| ConvertError::Splits {
        call,
        side,
        splits: splits.to_vec(),
        reason,
    };
    if splits.len() != group_size as usize {
        return Err(refuse(format!(
            "expected {group_size} entries, one per rank of the group"
        )));
    }
    let sum = splits
        .iter()
        .try_fold(Dim::fixed(0), |sum, rows| sum.add(rows))
        .map_err(|source| ConvertError::Size { call, source })?;
    if sum != *rows {
        return Err(refuse(format!(
            "they sum to {sum}, the {side} has {rows} rows"
        )));
    }
    Ok(splits.to_vec())
}

#[cfg(test)]
mod tests {
    use super::Splits;
    use crate::Call;
    use crate::context::tests::{check, dims, fixed};
    use expect_test::{Expect, expect};
    use hcom_ir::DType::F32;

    fn exchange(input: &[u64], output: &[u64], splits: [Option<&[u64]>; 2], expected: Expect) {
        let [output_splits, input_splits] = splits.map(|side| side.map(dims));
        let call = Call::AllToAllSingle {
            output: fixed(F32, output),
            splits: Splits {
                output: output_splits,
                input: input_splits,
            },
        };
        check([fixed(F32, input)], &[0, 1], 0, &call, expected);
    }

    #[test]
    fn without_splits() {
        exchange(
            &[4, 3],
            &[4, 3],
            [None, None],
            expect![[r#"
            hcom 1
            group @g = ranks(0, 1)
            graph @f(%x: f32[4, 3]) -> f32[4, 3] {
              %1 = all_to_all %x, group = @g
              return y = %1
            }
        "#]],
        );
        exchange(
            &[2, 3],
            &[6],
            [None, None],
            expect![[r#"
            hcom 1
            group @g = ranks(0, 1)
            graph @f(%x: f32[2, 3]) -> f32[6] {
              %1 = all_to_all %x, group = @g
              %2 = reshape %1, shape = [6]
              return y = %2
            }
        "#]],
        );
    }

    #[test]
    fn with_splits_on_either_side() {
        exchange(
            &[3, 2],
            &[4, 2],
            [None, Some(&[1, 2])],
            expect![[r#"
            hcom 1
            group @g = ranks(0, 1)
            graph @f(%x: f32[3, 2]) -> f32[4, 2] {
              %1 = all_to_all %x, send_counts = [1, 2], recv_counts = [2, 2], group = @g
              return y = %1
            }
        "#]],
        );
        exchange(
            &[4],
            &[1],
            [Some(&[0, 1]), None],
            expect![[r#"
            hcom 1
            group @g = ranks(0, 1)
            graph @f(%x: f32[4]) -> f32[1] {
              %1 = all_to_all %x, send_counts = [2, 2], recv_counts = [0, 1], group = @g
              return y = %1
            }
        "#]],
        );
        exchange(
            &[0],
            &[0],
            [Some(&[0, 0]), Some(&[0, 0])],
            expect![[r#"
            hcom 1
            group @g = ranks(0, 1)
            graph @f(%x: f32[0]) -> f32[0] {
              %1 = all_to_all %x, send_counts = [0, 0], recv_counts = [0, 0], group = @g
              return y = %1
            }
        "#]],
        );
    }

    #[test]
    fn what_does_not_add_up_is_refused() {
        exchange(
            &[5],
            &[5],
            [None, None],
            expect!["all_to_all_single: dimension 0 has size 5, not divisible by the group size 2"],
        );
        exchange(
            &[],
            &[],
            [None, None],
            expect!["all_to_all_single: the input has 0 dimensions, none with index 0"],
        );
        exchange(
            &[3],
            &[3],
            [None, Some(&[3])],
            expect![
                "all_to_all_single: input splits [3]: expected 2 entries, one per rank of the group"
            ],
        );
        exchange(
            &[3],
            &[4],
            [None, Some(&[1, 1])],
            expect!["all_to_all_single: input splits [1, 1]: they sum to 2, the input has 3 rows"],
        );
        exchange(
            &[3],
            &[4],
            [Some(&[1, 2]), Some(&[1, 2])],
            expect![
                "all_to_all_single: output splits [1, 2]: they sum to 3, the output has 4 rows"
            ],
        );
        exchange(
            &[4, 2],
            &[3, 2],
            [None, None],
            expect![
                "all_to_all_single: the output is f32[3, 2], expected f32[4, 2] (input f32[4, 2], group size 2)"
            ],
        );
    }
}
