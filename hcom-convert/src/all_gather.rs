//! `all_gather_into_tensor(output, input, group)`: every rank's output becomes all ranks' inputs in
//! group order.
//!
//! The output may be the inputs concatenated along dimension 0, `[group_size * n, …]`, or stacked,
//! `[group_size, n, …]`, or any other shape with as many elements: the bytes are the same. A scalar
//! input is gathered into `[group_size]`.

use crate::{Context, ConvertError};
use hcom_ir::{Attrs, Dim, GroupId, Op, Shape, Type, ValueId};

const CALL: &str = "all_gather_into_tensor";

/// Adds an all_gather of `input` and returns it in the shape of `output`.
///
/// # Errors
/// [`ConvertError::NotInGroup`]; [`ConvertError::Output`] if `output` has another element type, or
/// does not hold `group_size` times the input's elements (with symbolic sizes: if it is neither the
/// concatenation nor the stack).
pub fn convert(
    context: &mut Context<'_>,
    output: &Type,
    input: ValueId,
    group: GroupId,
) -> Result<ValueId, ConvertError> {
    let group_size = context.member_of(CALL, group)?.group_size();
    let ty = context.builder.ty(input).clone();
    let concatenated = concatenated(&ty, group_size)?;
    let stacked = stacked(&ty, group_size);
    let fits = match (output.elements(), concatenated.elements()) {
        (Some(output), Some(gathered)) => output == gathered,
        _ => output.shape == concatenated.shape || output.shape == stacked,
    };
    if output.dtype != ty.dtype || !fits {
        return Err(ConvertError::Output {
            call: CALL,
            expected: Box::new(concatenated),
            got: Box::new(output.clone()),
            input: Box::new(ty),
            group_size,
        });
    }
    let rows = if ty.shape.rank() == 0 {
        context.reshape(input, &Type::fixed(ty.dtype, &[1]))?
    } else {
        input
    };
    let gathered = along(context, rows, 0, group)?;
    context.reshape(gathered, output)
}

/// Adds an all_gather of `input`, concatenated along `dim`, and returns it.
///
/// # Errors
/// [`ConvertError::NotInGroup`]; [`ConvertError::Graph`] if the input has no dimension `dim`.
pub fn along(
    context: &mut Context<'_>,
    input: ValueId,
    dim: u32,
    group: GroupId,
) -> Result<ValueId, ConvertError> {
    context.member_of(CALL, group)?;
    let attrs = Attrs::new().with("dim", dim).with("group", group);
    context.push(Op::AllGather, &[input], attrs)
}

/// The type of the inputs concatenated along dimension 0.
fn concatenated(input: &Type, group_size: u32) -> Result<Type, ConvertError> {
    let Some(first) = input.shape.dims().first() else {
        return Ok(Type::fixed(input.dtype, &[u64::from(group_size)]));
    };
    let rows = first
        .mul(u64::from(group_size))
        .map_err(|source| ConvertError::Size { call: CALL, source })?;
    Ok(Type::new(
        input.dtype,
        input.shape.clone().with_dim(0, rows),
    ))
}

/// The shape of the inputs stacked along a new dimension 0.
fn stacked(input: &Type, group_size: u32) -> Shape {
    let first = Dim::fixed(u64::from(group_size));
    std::iter::once(first)
        .chain(input.shape.dims().iter().cloned())
        .collect()
}

#[cfg(test)]
mod tests {
    use crate::Call;
    use crate::context::tests::{check, fixed};
    use expect_test::{Expect, expect};
    use hcom_ir::DType::{self, F32, I64};

    fn all_gather(input: &[u64], output: (DType, &[u64]), expected: Expect) {
        let call = Call::AllGather {
            output: fixed(output.0, output.1),
        };
        check([fixed(F32, input)], &[0, 1], 0, &call, expected);
    }

    #[test]
    fn concatenated() {
        all_gather(
            &[2, 2],
            (F32, &[4, 2]),
            expect![[r#"
            hcom 1
            group @g = ranks(0, 1)
            graph @f(%x: f32[2, 2]) -> f32[4, 2] {
              %1 = all_gather %x, group = @g
              return y = %1
            }
        "#]],
        );
    }

    #[test]
    fn stacked() {
        all_gather(
            &[2, 2],
            (F32, &[2, 2, 2]),
            expect![[r#"
            hcom 1
            group @g = ranks(0, 1)
            graph @f(%x: f32[2, 2]) -> f32[2, 2, 2] {
              %1 = all_gather %x, group = @g
              %2 = reshape %1, shape = [2, 2, 2]
              return y = %2
            }
        "#]],
        );
    }

    #[test]
    fn any_shape_with_as_many_elements() {
        all_gather(
            &[2, 2],
            (F32, &[8, 1]),
            expect![[r#"
            hcom 1
            group @g = ranks(0, 1)
            graph @f(%x: f32[2, 2]) -> f32[8, 1] {
              %1 = all_gather %x, group = @g
              %2 = reshape %1, shape = [8, 1]
              return y = %2
            }
        "#]],
        );
    }

    #[test]
    fn a_scalar_and_an_empty_tensor() {
        all_gather(
            &[],
            (F32, &[2]),
            expect![[r#"
            hcom 1
            group @g = ranks(0, 1)
            graph @f(%x: f32[]) -> f32[2] {
              %1 = reshape %x, shape = [1]
              %2 = all_gather %1, group = @g
              return y = %2
            }
        "#]],
        );
        all_gather(
            &[1, 0, 2],
            (F32, &[2, 0, 2]),
            expect![[r#"
            hcom 1
            group @g = ranks(0, 1)
            graph @f(%x: f32[1, 0, 2]) -> f32[2, 0, 2] {
              %1 = all_gather %x, group = @g
              return y = %1
            }
        "#]],
        );
    }

    #[test]
    fn an_output_that_does_not_fit_is_refused_with_both_types() {
        all_gather(
            &[2, 2],
            (F32, &[3, 2]),
            expect![
                "all_gather_into_tensor: the output is f32[3, 2], expected f32[4, 2] (input f32[2, 2], group size 2)"
            ],
        );
        all_gather(
            &[2, 2],
            (I64, &[4, 2]),
            expect![
                "all_gather_into_tensor: the output is i64[4, 2], expected f32[4, 2] (input f32[2, 2], group size 2)"
            ],
        );
    }
}
