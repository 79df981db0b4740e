//! `scatter(output, inputs, root, group)`: rank `i`'s output becomes tensor `i` of the root's list.
//!
//! The root gives one tensor per rank, all with as many elements as an output; the other ranks give
//! none. The device library wants a buffer of the same type on every rank, so the others put zeros
//! there, which nobody reads.

use crate::context::{all_elements, elements};
use crate::{Context, ConvertError, Root};
use hcom_ir::{Attrs, GroupId, Op, Shape, Type, ValueId};

const CALL: &str = "scatter";

/// Adds a scatter of the root's `inputs` and returns this rank's piece in the shape of `output`.
///
/// # Errors
/// [`ConvertError::NotInGroup`]; [`ConvertError::RankNotInGroup`] for the root;
/// [`ConvertError::ListLength`] if the root does not give one tensor per rank;
/// [`ConvertError::Operand`] if another rank gives any; [`ConvertError::ListElement`] if one has
/// another element type or number of elements than `output`; [`ConvertError::Symbolic`].
pub fn convert(
    context: &mut Context<'_>,
    output: &Type,
    inputs: &[ValueId],
    root: Root,
    group: GroupId,
) -> Result<ValueId, ConvertError> {
    let root = context.group_rank(CALL, "root", root, group)?;
    let group_size = context.member_of(CALL, group)?.group_size();
    let count = elements(CALL, output)?;
    let packed = if context.own_rank(CALL, group)? == root {
        let types = context.types(inputs);
        context.one_per_rank(CALL, &types, output.dtype, group)?;
        let counts = all_elements(CALL, &types)?;
        if let Some(index) = counts.iter().position(|own| *own != count) {
            return Err(ConvertError::ListElement {
                call: CALL,
                index,
                got: Box::new(types[index].clone()),
                expected: format!("{count} elements, as the output {output} has"),
            });
        }
        context.packed(CALL, inputs)?
    } else if inputs.is_empty() {
        let total = count
            .mul(u64::from(group_size))
            .map_err(|source| ConvertError::Size { call: CALL, source })?;
        let attrs = Attrs::new()
            .with("shape", Shape::new([total]))
            .with("value", 0)
            .with("dtype", output.dtype);
        context.push(Op::Fill, &[], attrs)?
    } else {
        return Err(ConvertError::Operand { call: CALL });
    };
    let attrs = Attrs::new().with("root", root).with("group", group);
    let piece = context.push(Op::Scatter, &[packed], attrs)?;
    context.reshape(piece, output)
}

#[cfg(test)]
mod tests {
    use crate::context::tests::{check, fixed};
    use crate::{Call, Root};
    use expect_test::{Expect, expect};
    use hcom_ir::DType::F32;

    fn scatter(inputs: &[&[u64]], rank: u32, expected: Expect) {
        let call = Call::Scatter {
            output: fixed(F32, &[2, 1]),
            root: Root::Global(3),
        };
        let inputs = inputs.iter().map(|shape| fixed(F32, shape));
        check(inputs, &[1, 3], rank, &call, expected);
    }

    #[test]
    fn the_root_packs_its_list_and_the_others_give_room() {
        scatter(
            &[&[2], &[1, 2]],
            3,
            expect![[r#"
            hcom 1
            group @g = ranks(1, 3)
            graph @f(%x0: f32[2], %x1: f32[1, 2]) -> f32[2, 1] {
              %2 = reshape %x1, shape = [2]
              %3 = concat %x0, %2, dim = 0
              %4 = scatter %3, root = 1, group = @g
              %5 = reshape %4, shape = [2, 1]
              return y = %5
            }
        "#]],
        );
        scatter(
            &[],
            1,
            expect![[r#"
            hcom 1
            group @g = ranks(1, 3)
            graph @f() -> f32[2, 1] {
              %0 = fill shape = [4], value = 0, dtype = f32
              %1 = scatter %0, root = 1, group = @g
              %2 = reshape %1, shape = [2, 1]
              return y = %2
            }
        "#]],
        );
    }

    #[test]
    fn lists_that_do_not_fit_are_refused() {
        scatter(
            &[&[2]],
            3,
            expect!["scatter: the list has 1 tensors, expected 2, one per rank of the group"],
        );
        scatter(
            &[&[2], &[3]],
            3,
            expect![
                "scatter: tensor 1 of the list is f32[3], expected 2 elements, as the output f32[2, 1] has"
            ],
        );
        scatter(
            &[&[2], &[2]],
            1,
            expect!["scatter: wrong number of tensors"],
        );
    }
}
