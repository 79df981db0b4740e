//! `all_to_all(outputs, inputs, group)`: tensor `j` of rank `i`'s inputs becomes tensor `i` of rank
//! `j`'s outputs.
//!
//! The tensors may have any sizes, none included, as long as both ends agree, which is checked
//! across ranks. They travel as one `all_to_all` with splits.

use crate::context::all_elements;
use crate::{Context, ConvertError};
use hcom_ir::{Attrs, GroupId, Op, Type, ValueId};

const CALL: &str = "all_to_all";

/// Adds an all_to_all of `inputs` and returns what this rank receives in the shapes of `outputs`.
///
/// # Errors
/// [`ConvertError::NotInGroup`]; [`ConvertError::ListLength`] if a list does not have one tensor
/// per rank; [`ConvertError::ListElement`] if the element types differ;
/// [`ConvertError::Symbolic`].
pub fn convert(
    context: &mut Context<'_>,
    outputs: &[Type],
    inputs: &[ValueId],
    group: GroupId,
) -> Result<Vec<ValueId>, ConvertError> {
    let types = context.types(inputs);
    let dtype = types.first().map_or(hcom_ir::DType::F32, |ty| ty.dtype);
    context.one_per_rank(CALL, &types, dtype, group)?;
    context.one_per_rank(CALL, outputs, dtype, group)?;
    let attrs = Attrs::new()
        .with("send_counts", all_elements(CALL, &types)?)
        .with("recv_counts", all_elements(CALL, outputs)?)
        .with("group", group);
    let packed = context.packed(CALL, inputs)?;
    let exchanged = context.push(Op::AllToAll, &[packed], attrs)?;
    context.unpacked(CALL, exchanged, outputs)
}

#[cfg(test)]
mod tests {
    use crate::Call;
    use crate::context::tests::{check, fixed};
    use expect_test::{Expect, expect};
    use hcom_ir::DType::{self, F32, I32};

    fn exchange(inputs: &[&[u64]], outputs: &[(DType, &[u64])], expected: Expect) {
        let outputs = outputs.iter().map(|(dtype, shape)| fixed(*dtype, shape));
        let call = Call::AllToAll {
            outputs: outputs.collect(),
        };
        let inputs = inputs.iter().map(|shape| fixed(F32, shape));
        check(inputs, &[0, 1], 0, &call, expected);
    }

    #[test]
    fn one_exchange_with_splits() {
        exchange(
            &[&[2], &[1, 2]],
            &[(F32, &[2]), (F32, &[3, 1])],
            expect![[r#"
                hcom 1
                group @g = ranks(0, 1)
                graph @f(%x0: f32[2], %x1: f32[1, 2]) -> (f32[2], f32[3, 1]) {
                  %2 = reshape %x1, shape = [2]
                  %3 = concat %x0, %2, dim = 0
                  %4 = all_to_all %3, send_counts = [2, 2], recv_counts = [2, 3], group = @g
                  %5, %6 = split %4, dim = 0, sizes = [2, 3]
                  %7 = reshape %6, shape = [3, 1]
                  return y0 = %5, y1 = %7
                }
            "#]],
        );
        exchange(
            &[&[0], &[2]],
            &[(F32, &[0]), (F32, &[])],
            expect![[r#"
            hcom 1
            group @g = ranks(0, 1)
            graph @f(%x0: f32[0], %x1: f32[2]) -> (f32[0], f32[]) {
              %2 = concat %x0, %x1, dim = 0
              %3 = all_to_all %2, send_counts = [0, 2], recv_counts = [0, 1], group = @g
              %4, %5 = split %3, dim = 0, sizes = [0, 1]
              %6 = reshape %5, shape = []
              return y0 = %4, y1 = %6
            }
        "#]],
        );
    }

    #[test]
    fn lists_that_do_not_fit_are_refused() {
        exchange(
            &[&[2]],
            &[(F32, &[2])],
            expect!["all_to_all: the list has 1 tensors, expected 2, one per rank of the group"],
        );
        exchange(
            &[&[2], &[2]],
            &[(F32, &[2]), (I32, &[2])],
            expect!["all_to_all: tensor 1 of the list is i32[2], expected elements of f32"],
        );
    }
}
