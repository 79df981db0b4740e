//! `all_reduce(tensor, reduction, group)`: every rank's tensor becomes the element-wise reduction
//! of all ranks' tensors.
//!
//! What the device library does not reduce by itself (the mean, booleans, a scaled sum) is lowered
//! as [`reduction`] says.

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
    reduction::lower(CALL, context, tensor, reduction, group, |context, x, op| {
        let attrs = Attrs::new().with("op", op).with("group", group);
        context.push(Op::AllReduce, &[x], attrs)
    })
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
        check([fixed(dtype, &[2, 3])], &[0, 1], 0, &call, expected);
    }

    #[test]
    fn what_the_library_has_is_one_node() {
        all_reduce(
            DType::F32,
            ReduceOp::Sum,
            expect![[r#"
            hcom 1
            group @g = ranks(0, 1)
            graph @f(%x: f32[2, 3]) -> f32[2, 3] {
              %1 = all_reduce %x, op = sum, group = @g
              return y = %1
            }
        "#]],
        );
        all_reduce(
            DType::I64,
            ReduceOp::Max,
            expect![[r#"
            hcom 1
            group @g = ranks(0, 1)
            graph @f(%x: i64[2, 3]) -> i64[2, 3] {
              %1 = all_reduce %x, op = max, group = @g
              return y = %1
            }
        "#]],
        );
    }

    #[test]
    fn a_mean_of_16_bit_floats_is_summed_in_32_bit() {
        all_reduce(
            DType::F16,
            ReduceOp::Avg,
            expect![[r#"
            hcom 1
            group @g = ranks(0, 1)
            graph @f(%x: f16[2, 3]) -> f16[2, 3] {
              %1 = cast %x, to = f32
              %2 = all_reduce %1, op = sum, group = @g
              %3 = fill shape = [], value = 2.0, dtype = f32
              %4 = div %2, %3
              %5 = cast %4, to = f16
              return y = %5
            }
        "#]],
        );
        all_reduce(
            DType::F32,
            ReduceOp::Avg,
            expect![[r#"
            hcom 1
            group @g = ranks(0, 1)
            graph @f(%x: f32[2, 3]) -> f32[2, 3] {
              %1 = all_reduce %x, op = sum, group = @g
              %2 = fill shape = [], value = 2.0, dtype = f32
              %3 = div %1, %2
              return y = %3
            }
        "#]],
        );
    }

    #[test]
    fn a_mean_of_integers_is_summed_wide() {
        all_reduce(
            DType::I32,
            ReduceOp::Avg,
            expect![[r#"
                hcom 1
                group @g = ranks(0, 1)
                graph @f(%x: i32[2, 3]) -> i32[2, 3] {
                  %1 = cast %x, to = i64
                  %2 = all_reduce %1, op = sum, group = @g
                  %3 = cast %2, to = f64
                  %4 = fill shape = [], value = 2.0, dtype = f64
                  %5 = div %3, %4
                  %6 = cast %5, to = i32
                  return y = %6
                }
            "#]],
        );
    }

    #[test]
    fn booleans_reduce_logically() {
        all_reduce(
            DType::Bool,
            ReduceOp::Sum,
            expect![[r#"
            hcom 1
            group @g = ranks(0, 1)
            graph @f(%x: bool[2, 3]) -> bool[2, 3] {
              %1 = cast %x, to = i32
              %2 = all_reduce %1, op = max, group = @g
              %3 = cast %2, to = bool
              return y = %3
            }
        "#]],
        );
        all_reduce(
            DType::Bool,
            ReduceOp::Prod,
            expect![[r#"
            hcom 1
            group @g = ranks(0, 1)
            graph @f(%x: bool[2, 3]) -> bool[2, 3] {
              %1 = cast %x, to = i32
              %2 = all_reduce %1, op = min, group = @g
              %3 = cast %2, to = bool
              return y = %3
            }
        "#]],
        );
    }

    #[test]
    fn a_scaled_sum_scales_before_it_sums() {
        all_reduce(
            DType::F32,
            Reduction::premul_sum(0.5),
            expect![[r#"
            hcom 1
            group @g = ranks(0, 1)
            graph @f(%x: f32[2, 3]) -> f32[2, 3] {
              %1 = fill shape = [], value = 0.5, dtype = f32
              %2 = mul %x, %1
              %3 = all_reduce %2, op = sum, group = @g
              return y = %3
            }
        "#]],
        );
    }

    #[test]
    fn reductions_without_a_meaning_are_refused() {
        all_reduce(
            DType::I64,
            ReduceOp::Avg,
            expect![
                "all_reduce: avg of i64: the device library divides integers as floats; cast the tensor to f64 first"
            ],
        );
        all_reduce(
            DType::Bool,
            ReduceOp::Avg,
            expect![
                "all_reduce: avg of bool: a mean of booleans is no boolean; cast the tensor to a number first"
            ],
        );
        all_reduce(
            DType::C64,
            ReduceOp::Max,
            expect!["all_reduce: max of c64: complex numbers have no order"],
        );
        all_reduce(
            DType::F32,
            ReduceOp::Band,
            expect!["all_reduce: band of f32: only integers and booleans have bits to combine"],
        );
        all_reduce(
            DType::I32,
            ReduceOp::Bxor,
            expect!["all_reduce: bxor of i32: the device library has no bitwise reduction"],
        );
        all_reduce(
            DType::F32,
            ReduceOp::PremulSum,
            expect!["all_reduce: premul_sum of f32: no factor was given"],
        );
        all_reduce(
            DType::I32,
            Reduction::premul_sum(0.5),
            expect![
                "all_reduce: premul_sum of i32: the factor is a real number; cast the tensor to a float first"
            ],
        );
    }

    #[test]
    fn an_outsider_is_refused() {
        let call = Call::AllReduce {
            reduction: ReduceOp::Sum.into(),
        };
        let ty = [fixed(DType::F32, &[1])];
        check(
            ty,
            &[1, 3],
            2,
            &call,
            expect!["all_reduce: rank 2 is not in group g (ranks [1, 3])"],
        );
    }
}
