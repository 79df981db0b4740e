//! `gather(outputs, input, root, group)`: tensor `i` of the root's list becomes rank `i`'s input.
//!
//! The root gives one output per rank, each with as many elements as an input; the other ranks give
//! none.

use crate::context::{all_elements, elements};
use crate::{Context, ConvertError, Root};
use hcom_ir::{Attrs, GroupId, Op, Type, ValueId};

const CALL: &str = "gather";

/// Adds a gather of `input` and returns, on the root, the pieces in the shapes of `outputs`.
///
/// # Errors
/// [`ConvertError::NotInGroup`]; [`ConvertError::RankNotInGroup`] for the root;
/// [`ConvertError::ListLength`] if the root does not give one output per rank;
/// [`ConvertError::Operand`] if another rank gives any; [`ConvertError::ListElement`] if one has
/// another element type or number of elements than `input`; [`ConvertError::Symbolic`].
pub fn convert(
    context: &mut Context<'_>,
    outputs: &[Type],
    input: ValueId,
    root: Root,
    group: GroupId,
) -> Result<Vec<ValueId>, ConvertError> {
    let root = context.group_rank(CALL, "root", root, group)?;
    let is_root = context.own_rank(CALL, group)? == root;
    let ty = context.builder.ty(input).clone();
    let count = elements(CALL, &ty)?;
    if is_root {
        context.one_per_rank(CALL, outputs, ty.dtype, group)?;
        let counts = all_elements(CALL, outputs)?;
        if let Some(index) = counts.iter().position(|own| *own != count) {
            return Err(ConvertError::ListElement {
                call: CALL,
                index,
                got: Box::new(outputs[index].clone()),
                expected: format!("{count} elements, as the input {ty} has"),
            });
        }
    } else if !outputs.is_empty() {
        return Err(ConvertError::Operand { call: CALL });
    }
    let packed = context.packed(CALL, &[input])?;
    let attrs = Attrs::new().with("root", root).with("group", group);
    let gathered = context.push(Op::GatherTo, &[packed], attrs)?;
    if is_root {
        context.unpacked(CALL, gathered, outputs)
    } else {
        Ok(Vec::new())
    }
}

#[cfg(test)]
mod tests {
    use crate::context::tests::{check, fixed};
    use crate::{Call, Root};
    use expect_test::{Expect, expect};
    use hcom_ir::DType::I32;

    fn gather(outputs: &[&[u64]], rank: u32, expected: Expect) {
        let call = Call::Gather {
            outputs: outputs.iter().map(|shape| fixed(I32, shape)).collect(),
            root: Root::Group(0),
        };
        check([fixed(I32, &[2, 2])], &[1, 3], rank, &call, expected);
    }

    #[test]
    fn the_root_takes_it_apart() {
        gather(
            &[&[2, 2], &[4]],
            1,
            expect![[r#"
            hcom 1
            group @g = ranks(1, 3)
            graph @f(%x: i32[2, 2]) -> (i32[2, 2], i32[4]) {
              %1 = reshape %x, shape = [4]
              %2 = gather_to %1, root = 0, group = @g
              %3, %4 = split %2, dim = 0, sizes = [4, 4]
              %5 = reshape %3, shape = [2, 2]
              return y0 = %5, y1 = %4
            }
        "#]],
        );
        gather(
            &[],
            3,
            expect![[r#"
            hcom 1
            group @g = ranks(1, 3)
            graph @f(%x: i32[2, 2]) {
              %1 = reshape %x, shape = [4]
              %2 = gather_to %1, root = 0, group = @g
            }
        "#]],
        );
    }

    #[test]
    fn lists_that_do_not_fit_are_refused() {
        gather(
            &[&[4]],
            1,
            expect!["gather: the list has 1 tensors, expected 2, one per rank of the group"],
        );
        gather(
            &[&[4], &[5]],
            1,
            expect![
                "gather: tensor 1 of the list is i32[5], expected 4 elements, as the input i32[2, 2] has"
            ],
        );
        gather(&[&[4], &[4]], 3, expect!["gather: wrong number of tensors"]);
    }
}
