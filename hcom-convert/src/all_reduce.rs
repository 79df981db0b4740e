//! `all_reduce(tensor, reduction, group)`: every rank's tensor becomes the element-wise reduction
//! of all ranks' tensors.
//!
//! What the device library does not reduce by itself (the mean, booleans, a scaled sum) is lowered
//! as [`reduction`](crate::reduction) says.

use crate::{Context, ConvertError, Reduction, reduction};
use hcom_ir::{Attrs, GroupId, Op, ValueId};

const CALL: &str = "all_reduce";

/// Adds an all_reduce of `tensor` and returns the value it has afterwards: same type, same value
/// on every rank.
///
/// # Errors
/// [`ConvertError::NotInGroup`]; [`ConvertError::Reduction`] for a reduction without a meaning for
/// the element type.
pub fn convert(
    context: &mut Context<'_>,
    tensor: ValueId,
    reduction: Reduction,
    group: GroupId,
) -> Result<ValueId, ConvertError> {
    let group_size = context.member_of(CALL, group)?.group_size();
    reduction::lower(
        CALL,
        context,
        tensor,
        reduction,
        group_size,
        |context, x, op| {
            let attrs = Attrs::new().with("op", op).with("group", group);
            context.push(Op::AllReduce, &[x], attrs)
        },
    )
}

#[cfg(test)]
mod tests {
    use crate::context::tests::{check, fixed};
    use crate::{Call, Reduction};
    use expect_test::{Expect, expect};
    use hcom_ir::{DType, ReduceOp};

    fn all_reduce(dtype: DType, reduction: impl Into<Reduction>, expected: Expect) {
        let call = Call::AllReduce {
            reduction: reduction.into(),
        };
        check(Some(fixed(dtype, &[2, 3])), &[0, 1], 0, &call, expected);
    }

    #[test]
    fn what_the_library_has_is_one_node() {
        all_reduce(DType::F32, ReduceOp::Sum, expect![[r#""#]]);
        all_reduce(DType::I64, ReduceOp::Max, expect![[r#""#]]);
    }

    #[test]
    fn a_mean_of_16_bit_floats_is_summed_in_32_bit() {
        all_reduce(DType::F16, ReduceOp::Avg, expect![[r#""#]]);
        all_reduce(DType::F32, ReduceOp::Avg, expect![[r#""#]]);
    }

    #[test]
    fn a_mean_of_integers_is_summed_wide() {
        all_reduce(DType::I32, ReduceOp::Avg, expect![[r#""#]]);
    }

    #[test]
    fn booleans_reduce_logically() {
        all_reduce(DType::Bool, ReduceOp::Sum, expect![[r#""#]]);
        all_reduce(DType::Bool, ReduceOp::Prod, expect![[r#""#]]);
    }

    #[test]
    fn a_scaled_sum_scales_before_it_sums() {
        all_reduce(DType::F32, Reduction::premul_sum(0.5), expect![[r#""#]]);
    }

    #[test]
    fn reductions_without_a_meaning_are_refused() {
        all_reduce(DType::Bool, ReduceOp::Avg, expect![[r#""#]]);
        all_reduce(DType::C64, ReduceOp::Max, expect![[r#""#]]);
        all_reduce(DType::F32, ReduceOp::Band, expect![[r#""#]]);
        all_reduce(DType::I32, ReduceOp::Bxor, expect![[r#""#]]);
        all_reduce(DType::F32, ReduceOp::PremulSum, expect![[r#""#]]);
        all_reduce(DType::I32, Reduction::premul_sum(0.5), expect![[r#""#]]);
    }

    #[test]
    fn an_outsider_is_refused() {
        let call = Call::AllReduce {
            reduction: ReduceOp::Sum.into(),
        };
        let ty = Some(fixed(DType::F32, &[1]));
        check(ty, &[1, 3], 2, &call, expect![[r#""#]]);
    }
}
