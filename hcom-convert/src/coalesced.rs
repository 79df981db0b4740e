//! The coalesced calls: `all_reduce_coalesced`, `all_gather_into_tensor_coalesced` and
//! `reduce_scatter_tensor_coalesced` do to each tensor of a list what the call without that ending
//! does to one.
//!
//! The tensors of one element type travel together, as one collective, so that its fixed time is
//! paid once. Every element is computed as it is alone: contributions are combined in rank order.

use crate::context::{all_elements, elements};
use crate::reduction::{self, Keep};
use crate::{Context, ConvertError, Reduction};
use hcom_ir::{Attrs, DType, Dim, GroupId, Op, Shape, Type, ValueId};

/// Adds an all_reduce of each of `tensors` and returns the values they have afterwards.
///
/// # Errors
/// [`ConvertError::NotInGroup`]; [`ConvertError::Reduction`]; [`ConvertError::Symbolic`].
pub fn all_reduce(
    context: &mut Context<'_>,
    tensors: &[ValueId],
    reduction: Reduction,
    group: GroupId,
) -> Result<Vec<ValueId>, ConvertError> {
    const CALL: &str = "all_reduce_coalesced";
    context.member_of(CALL, group)?;
    let types = context.types(tensors);
    all_elements(CALL, &types)?;
    reducible(CALL, reduction, &types)?;
    by_type(context, tensors, |context, positions| {
        let tensors: Vec<ValueId> = positions.iter().map(|&index| tensors[index]).collect();
        let types = context.types(&tensors);
        let packed = context.packed(CALL, &tensors)?;
        let reduced = reduction::lower(CALL, context, packed, reduction, group, &Keep::All)?;
        context.unpacked(CALL, reduced, &types)
    })
}

/// Adds an all_gather of each of `inputs` and returns them in the shapes of `outputs`.
///
/// # Errors
/// [`ConvertError::NotInGroup`]; [`ConvertError::Operand`] unless there is one output per input;
/// [`ConvertError::ListElement`] for an output of another element type, or that does not hold
/// `group_size` times the input's elements; [`ConvertError::Symbolic`].
pub fn all_gather(
    context: &mut Context<'_>,
    outputs: &[Type],
    inputs: &[ValueId],
    group: GroupId,
) -> Result<Vec<ValueId>, ConvertError> {
    const CALL: &str = "all_gather_into_tensor_coalesced";
    let group_size = context.member_of(CALL, group)?.group_size();
    let types = context.types(inputs);
    check(CALL, &types, outputs, |ty| times(CALL, ty, group_size))?;
    by_type(context, inputs, |context, positions| {
        let sizes = sizes(CALL, &types, positions)?;
        let rows = rows(context, inputs, positions, Dim::fixed(1), &sizes)?;
        let attrs = Attrs::new().with("dim", 0).with("group", group);
        let gathered = context.push(Op::AllGather, &[rows], attrs)?;
        columns(context, gathered, positions, &sizes, outputs)
    })
}

/// Adds a reduce_scatter of each of `inputs` and returns this rank's blocks in the shapes of
/// `outputs`.
///
/// # Errors
/// As [`all_gather`], with an input that holds `group_size` times the output's elements;
/// [`ConvertError::Reduction`].
pub fn reduce_scatter(
    context: &mut Context<'_>,
    outputs: &[Type],
    inputs: &[ValueId],
    reduction: Reduction,
    group: GroupId,
) -> Result<Vec<ValueId>, ConvertError> {
    const CALL: &str = "reduce_scatter_tensor_coalesced";
    let group_size = context.member_of(CALL, group)?.group_size();
    let types = context.types(inputs);
    check(CALL, outputs, &types, |ty| times(CALL, ty, group_size))?;
    reducible(CALL, reduction, &types)?;
    by_type(context, inputs, |context, positions| {
        let sizes = sizes(CALL, outputs, positions)?;
        let ranks = Dim::fixed(u64::from(group_size));
        let rows = rows(context, inputs, positions, ranks, &sizes)?;
        let own = reduction::lower(CALL, context, rows, reduction, group, &Keep::Block(0))?;
        columns(context, own, positions, &sizes, outputs)
    })
}

/// Fails unless `list` has a tensor for each of `others`, of its element type, with as many elements
/// as `expected` says for it.
fn check(
    call: &'static str,
    others: &[Type],
    list: &[Type],
    expected: impl Fn(&Type) -> Result<Dim, ConvertError>,
) -> Result<(), ConvertError> {
    if others.len() != list.len() {
        return Err(ConvertError::Operand { call });
    }
    for (index, (other, ty)) in others.iter().zip(list).enumerate() {
        let count = expected(other)?;
        if other.dtype != ty.dtype || elements(call, ty)? != count {
            return Err(ConvertError::ListElement {
                call,
                index,
                got: Box::new(ty.clone()),
                expected: format!(
                    "{count} elements of {}, which {other} asks for",
                    other.dtype
                ),
            });
        }
    }
    Ok(())
}

/// Fails if the reduction is refused for one of the types, before anything is added.
fn reducible(call: &'static str, reduction: Reduction, types: &[Type]) -> Result<(), ConvertError> {
    types
        .iter()
        .try_for_each(|ty| reduction::check(call, reduction, ty.dtype))
}

/// The elements of `group_size` tensors of type `ty`.
fn times(call: &'static str, ty: &Type, group_size: u32) -> Result<Dim, ConvertError> {
    elements(call, ty)?
        .mul(u64::from(group_size))
        .map_err(|source| ConvertError::Size { call, source })
}

/// Hands the positions of the values of each element type, in order of appearance, to `convert`,
/// and puts what it returns for them back in their places.
fn by_type<'a>(
    context: &mut Context<'a>,
    values: &[ValueId],
    mut convert: impl FnMut(&mut Context<'a>, &[usize]) -> Result<Vec<ValueId>, ConvertError>,
) -> Result<Vec<ValueId>, ConvertError> {
    let types: Vec<DType> = values
        .iter()
        .map(|&value| context.builder.ty(value).dtype)
        .collect();
    let mut results = values.to_vec();
    for (first, dtype) in types.iter().enumerate() {
        if types[..first].contains(dtype) {
            continue;
        }
        let positions: Vec<usize> = (first..types.len())
            .filter(|&at| types[at] == *dtype)
            .collect();
        let converted = convert(context, &positions)?;
        for (position, value) in positions.into_iter().zip(converted) {
            results[position] = value;
        }
    }
    Ok(results)
}

fn sizes(
    call: &'static str,
    types: &[Type],
    positions: &[usize],
) -> Result<Vec<Dim>, ConvertError> {
    let types: Vec<Type> = positions
        .iter()
        .map(|&index| types[index].clone())
        .collect();
    all_elements(call, &types)
}

/// The values at `positions` side by side, each as `rows` rows of its `sizes`.
fn rows(
    context: &mut Context<'_>,
    values: &[ValueId],
    positions: &[usize],
    rows: Dim,
    sizes: &[Dim],
) -> Result<ValueId, ConvertError> {
    let mut parts = Vec::with_capacity(positions.len());
    for (&position, size) in positions.iter().zip(sizes) {
        let value = values[position];
        let dtype = context.builder.ty(value).dtype;
        let ty = Type::new(dtype, Shape::new([rows.clone(), size.clone()]));
        parts.push(context.reshape(value, &ty)?);
    }
    context.joined(&parts, 1)
}

/// `value` cut into columns of `sizes`, in the shapes of the `outputs` at `positions`.
fn columns(
    context: &mut Context<'_>,
    value: ValueId,
    positions: &[usize],
    sizes: &[Dim],
    outputs: &[Type],
) -> Result<Vec<ValueId>, ConvertError> {
    let parts = context.split(value, 1, sizes.to_vec())?;
    let shaped = parts.into_iter().zip(positions);
    shaped
        .map(|(part, &position)| context.reshape(part, &outputs[position]))
        .collect()
}

#[cfg(test)]
mod tests {
    use crate::Call;
    use crate::context::tests::{check, fixed};
    use expect_test::{Expect, expect};
    use hcom_ir::DType::{self, F32, I32};
    use hcom_ir::ReduceOp::Sum;

    fn coalesced(call: &Call, inputs: &[(DType, &[u64])], expected: Expect) {
        let inputs = inputs.iter().map(|(dtype, shape)| fixed(*dtype, shape));
        check(inputs, &[0, 1], 0, call, expected);
    }

    #[test]
    fn tensors_of_one_type_are_reduced_together() {
        let call = Call::AllReduceCoalesced {
            reduction: Sum.into(),
        };
        coalesced(
            &call,
            &[(F32, &[2]), (I32, &[3]), (F32, &[2, 2])],
            expect![[r#"
            hcom 1
            group @g = ranks(0, 1)
            graph @f(%x0: f32[2], %x1: i32[3], %x2: f32[2, 2]) -> (f32[2], i32[3], f32[2, 2]) {
              %3 = reshape %x2, shape = [4]
              %4 = concat %x0, %3, dim = 0
              %5 = all_reduce %4, op = sum, group = @g
              %6, %7 = split %5, dim = 0, sizes = [2, 4]
              %8 = reshape %7, shape = [2, 2]
              %9 = all_reduce %x1, op = sum, group = @g
              return y0 = %6, y1 = %9, y2 = %8
            }
        "#]],
        );
    }

    #[test]
    fn gathered_rows_are_cut_by_columns() {
        let call = Call::AllGatherCoalesced {
            outputs: vec![fixed(F32, &[4]), fixed(F32, &[2, 3])],
        };
        coalesced(
            &call,
            &[(F32, &[2]), (F32, &[1, 3])],
            expect![[r#"
            hcom 1
            group @g = ranks(0, 1)
            graph @f(%x0: f32[2], %x1: f32[1, 3]) -> (f32[4], f32[2, 3]) {
              %2 = reshape %x0, shape = [1, 2]
              %3 = concat %2, %x1, dim = 1
              %4 = all_gather %3, group = @g
              %5, %6 = split %4, dim = 1, sizes = [2, 3]
              %7 = reshape %5, shape = [4]
              return y0 = %7, y1 = %6
            }
        "#]],
        );
    }

    #[test]
    fn blocks_of_each_tensor_are_scattered_together() {
        let call = Call::ReduceScatterCoalesced {
            reduction: Sum.into(),
            outputs: vec![fixed(F32, &[1]), fixed(F32, &[2, 2])],
        };
        coalesced(
            &call,
            &[(F32, &[2]), (F32, &[4, 2])],
            expect![[r#"
            hcom 1
            group @g = ranks(0, 1)
            graph @f(%x0: f32[2], %x1: f32[4, 2]) -> (f32[1], f32[2, 2]) {
              %2 = reshape %x0, shape = [2, 1]
              %3 = reshape %x1, shape = [2, 4]
              %4 = concat %2, %3, dim = 1
              %5 = reduce_scatter %4, op = sum, group = @g
              %6, %7 = split %5, dim = 1, sizes = [1, 4]
              %8 = reshape %6, shape = [1]
              %9 = reshape %7, shape = [2, 2]
              return y0 = %8, y1 = %9
            }
        "#]],
        );
    }

    #[test]
    fn outputs_that_do_not_fit_are_refused() {
        let call = Call::AllGatherCoalesced {
            outputs: vec![fixed(F32, &[5])],
        };
        coalesced(
            &call,
            &[(F32, &[2])],
            expect![
                "all_gather_into_tensor_coalesced: tensor 0 of the list is f32[5], expected 4 elements of f32, which f32[2] asks for"
            ],
        );
    }
}
