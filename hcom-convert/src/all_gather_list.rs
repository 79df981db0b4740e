//! `all_gather(outputs, input, group)`: tensor `i` of every rank's list becomes rank `i`'s input.
//!
//! Every rank gives the same sizes: `outputs[i]` has as many elements as rank `i`'s input, in any
//! shape. Where the sizes are equal it is an `all_gather`, otherwise an `all_gather_uneven`; since
//! all ranks know all sizes, all choose alike.

use crate::context::{all_elements, elements};
use crate::{Context, ConvertError};
use hcom_ir::{Attrs, GroupId, Op, Type, ValueId};

const CALL: &str = "all_gather";

/// Adds an all_gather of `input` and returns the pieces in the shapes of `outputs`.
///
/// # Errors
/// [`ConvertError::NotInGroup`]; [`ConvertError::ListLength`]; [`ConvertError::ListElement`] for
/// another element type, or if this rank's own entry has another number of elements than `input`;
/// [`ConvertError::Symbolic`].
pub fn convert(
    context: &mut Context<'_>,
    outputs: &[Type],
    input: ValueId,
    group: GroupId,
) -> Result<Vec<ValueId>, ConvertError> {
    let own = context.own_rank(CALL, group)? as usize;
    let ty = context.builder.ty(input).clone();
    context.one_per_rank(CALL, outputs, ty.dtype, group)?;
    let counts = all_elements(CALL, outputs)?;
    let count = elements(CALL, &ty)?;
    if counts[own] != count {
        return Err(ConvertError::ListElement {
            call: CALL,
            index: own,
            got: Box::new(outputs[own].clone()),
            expected: format!("{count} elements, as this rank's input {ty} has"),
        });
    }
    let packed = context.packed(CALL, &[input])?;
    let gathered = if counts.iter().all(|other| *other == count) {
        let attrs = Attrs::new().with("dim", 0).with("group", group);
        context.push(Op::AllGather, &[packed], attrs)?
    } else {
        let attrs = Attrs::new().with("counts", counts).with("group", group);
        context.push(Op::AllGatherUneven, &[packed], attrs)?
    };
    context.unpacked(CALL, gathered, outputs)
}

#[cfg(test)]
mod tests {
    use crate::Call;
    use crate::context::tests::{check, fixed};
    use expect_test::{Expect, expect};
    use hcom_ir::DType::F32;

    fn all_gather(outputs: &[&[u64]], expected: Expect) {
        let call = Call::AllGatherList {
            outputs: outputs.iter().map(|shape| fixed(F32, shape)).collect(),
        };
        check([fixed(F32, &[2, 2])], &[0, 1], 0, &call, expected);
    }

    #[test]
    fn equal_sizes() {
        all_gather(
            &[&[2, 2], &[4, 1]],
            expect![[r#"
            hcom 1
            group @g = ranks(0, 1)
            graph @f(%x: f32[2, 2]) -> (f32[2, 2], f32[4, 1]) {
              %1 = reshape %x, shape = [4]
              %2 = all_gather %1, group = @g
              %3, %4 = split %2, dim = 0, sizes = [4, 4]
              %5 = reshape %3, shape = [2, 2]
              %6 = reshape %4, shape = [4, 1]
              return y0 = %5, y1 = %6
            }
        "#]],
        );
    }

    #[test]
    fn unequal_sizes() {
        all_gather(
            &[&[2, 2], &[1, 3]],
            expect![[r#"
            hcom 1
            group @g = ranks(0, 1)
            graph @f(%x: f32[2, 2]) -> (f32[2, 2], f32[1, 3]) {
              %1 = reshape %x, shape = [4]
              %2 = all_gather_uneven %1, counts = [4, 3], group = @g
              %3, %4 = split %2, dim = 0, sizes = [4, 3]
              %5 = reshape %3, shape = [2, 2]
              %6 = reshape %4, shape = [1, 3]
              return y0 = %5, y1 = %6
            }
        "#]],
        );
        all_gather(
            &[&[4], &[0]],
            expect![[r#"
            hcom 1
            group @g = ranks(0, 1)
            graph @f(%x: f32[2, 2]) -> (f32[4], f32[0]) {
              %1 = reshape %x, shape = [4]
              %2 = all_gather_uneven %1, counts = [4, 0], group = @g
              %3, %4 = split %2, dim = 0, sizes = [4, 0]
              return y0 = %3, y1 = %4
            }
        "#]],
        );
    }

    #[test]
    fn lists_that_do_not_fit_are_refused() {
        all_gather(
            &[&[4]],
            expect!["all_gather: the list has 1 tensors, expected 2, one per rank of the group"],
        );
        all_gather(
            &[&[3], &[4]],
            expect![
                "all_gather: tensor 0 of the list is f32[3], expected 4 elements, as this rank's input f32[2, 2] has"
            ],
        );
    }
}
