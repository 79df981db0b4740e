//! `reduce(tensor, reduction, root, group)`: the root's tensor becomes the element-wise reduction
//! of all ranks' tensors; the other ranks keep theirs.
//!
//! What a reduction needs around the collective is done by the root alone, so a mean is divided
//! there and nowhere else.

use crate::reduction::{self, Keep};
use crate::{Context, ConvertError, Reduction, Root};
use hcom_ir::{GroupId, ValueId};

const CALL: &str = "reduce";

/// Adds a reduce of `tensor` and returns the value it has afterwards: on the root the reduction,
/// elsewhere `tensor` itself.
///
/// # Errors
/// [`ConvertError::NotInGroup`]; [`ConvertError::RankNotInGroup`] for the root;
/// [`ConvertError::Reduction`].
pub fn convert(
    context: &mut Context<'_>,
    tensor: ValueId,
    reduction: Reduction,
    root: Root,
    group: GroupId,
) -> Result<ValueId, ConvertError> {
    let root = context.group_rank(CALL, "root", root, group)?;
    reduction::lower(CALL, context, tensor, reduction, group, &Keep::Root(root))
}

#[cfg(test)]
mod tests {
    use crate::context::tests::{check, fixed};
    use crate::{Call, Root};
    use expect_test::{Expect, expect};
    use hcom_ir::{DType, ReduceOp};

    fn reduce(op: ReduceOp, root: Root, rank: u32, expected: Expect) {
        let call = Call::Reduce {
            reduction: op.into(),
            root,
        };
        check([fixed(DType::F32, &[2])], &[1, 3], rank, &call, expected);
    }

    #[test]
    fn the_root_has_the_reduction_and_the_others_keep_theirs() {
        reduce(
            ReduceOp::Avg,
            Root::Global(3),
            3,
            expect![[r#"
            hcom 1
            group @g = ranks(1, 3)
            graph @f(%x: f32[2]) -> f32[2] {
              %1 = reduce %x, op = sum, root = 1, group = @g
              %2 = fill shape = [], value = 2.0, dtype = f32
              %3 = div %1, %2
              return y = %3
            }
        "#]],
        );
        reduce(
            ReduceOp::Sum,
            Root::Group(1),
            1,
            expect![[r#"
            hcom 1
            group @g = ranks(1, 3)
            graph @f(%x: f32[2]) -> f32[2] {
              %1 = reduce %x, op = sum, root = 1, group = @g
              return y = %x
            }
        "#]],
        );
    }

    #[test]
    fn a_root_outside_the_group_is_refused() {
        reduce(
            ReduceOp::Sum,
            Root::Global(0),
            1,
            expect!["reduce: root 0 is not in group g (ranks [1, 3])"],
        );
        reduce(
            ReduceOp::Sum,
            Root::Group(2),
            1,
            expect!["reduce: root 2 (group rank) is not in group g (ranks [1, 3])"],
        );
    }
}
