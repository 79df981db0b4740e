//! `all_reduce(tensor, reduction, group)`: every rank's tensor becomes the element-wise reduction
//! of all ranks' tensors.
//!
//! What the device library does not reduce by itself (the mean, booleans, a scaled sum) is lowered
//! as [`reduction`] says.

use crate::reduction::{self, Keep};
use crate::{Context, ConvertError, Reduction};
use hcom_ir::{GroupId, ValueId};

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
    reduction::lower(CALL, context, tensor, reduction, group, &Keep::All)
}

#[cfg(test)]
mod tests {
    use crate::context::tests::{convert_on, fixed};
    use crate::{Call, Reduction};
    use hcom_ir::DType::{self, Bool, C64, F16, F32, F64, I32, I64};
    use hcom_ir::ReduceOp::{Avg, Band, Bxor, Max, PremulSum, Prod, Sum};

    /// Converts an all_reduce of a `[2, 3]` tensor in a group of two and compares its nodes, one
    /// per line, or the error.
    #[track_caller]
    fn all_reduce(dtype: DType, reduction: impl Into<Reduction>, expected: &[&str]) {
        let call = Call::AllReduce {
            reduction: reduction.into(),
        };
        let text = match convert_on([fixed(dtype, &[2, 3])], &[0, 1], 0, &call) {
            Ok(graph) => graph.to_string(),
            Err(error) => error.to_string(),
        };
        let nodes: Vec<&str> = match text.starts_with("hcom") {
            true => text
                .lines()
                .map(str::trim)
                .filter(|line| line.starts_with('%'))
                .collect(),
            false => vec![&text],
        };
        assert_eq!(nodes, expected);
    }

    #[test]
    fn what_the_library_has_is_one_node() {
        all_reduce(F32, Sum, &["%1 = all_reduce %x, op = sum, group = @g"]);
        all_reduce(I64, Max, &["%1 = all_reduce %x, op = max, group = @g"]);
    }

    #[test]
    fn means_are_summed_in_a_type_that_holds_the_sum() {
        all_reduce(
            F16,
            Avg,
            &[
                "%1 = cast %x, to = f32",
                "%2 = all_reduce %1, op = sum, group = @g",
                "%3 = fill shape = [], value = 2.0, dtype = f32",
                "%4 = div %2, %3",
                "%5 = cast %4, to = f16",
            ],
        );
        all_reduce(
            F32,
            Avg,
            &[
                "%1 = all_reduce %x, op = sum, group = @g",
                "%2 = fill shape = [], value = 2.0, dtype = f32",
                "%3 = div %1, %2",
            ],
        );
        all_reduce(
            I32,
            Avg,
            &[
                "%1 = cast %x, to = i64",
                "%2 = all_reduce %1, op = sum, group = @g",
                "%3 = fill shape = [], value = 2, dtype = i64",
                "%4 = div %2, %3",
                "%5 = cast %4, to = i32",
            ],
        );
    }

    #[test]
    fn booleans_reduce_logically() {
        for (op, by) in [(Sum, "max"), (Prod, "min")] {
            let reduced = format!("%2 = all_reduce %1, op = {by}, group = @g");
            let nodes = ["%1 = cast %x, to = i8", &reduced, "%3 = cast %2, to = bool"];
            all_reduce(Bool, op, &nodes);
        }
        all_reduce(
            Bool,
            Bxor,
            &[
                "%1 = cast %x, to = i32",
                "%2 = all_reduce %1, op = sum, group = @g",
                "%3 = fill shape = [], value = 1, dtype = i32",
                "%4 = bit_and %2, %3",
                "%5 = cast %4, to = bool",
            ],
        );
    }

    #[test]
    fn a_scaled_sum_scales_before_it_sums() {
        all_reduce(
            F32,
            Reduction::premul_sum(0.5),
            &[
                "%1 = fill shape = [], value = 0.5, dtype = f32",
                "%2 = mul %x, %1",
                "%3 = all_reduce %2, op = sum, group = @g",
            ],
        );
    }

    #[test]
    fn what_the_library_lacks_is_gathered_and_folded_in_rank_order() {
        all_reduce(
            F64,
            Max,
            &[
                "%1 = reshape %x, shape = [1, 2, 3]",
                "%2 = all_gather %1, group = @g",
                "%3, %4 = split %2, dim = 0, sizes = [1, 1]",
                "%5 = maximum %3, %4",
                "%6 = reshape %5, shape = [2, 3]",
            ],
        );
    }

    #[test]
    fn complex_numbers_reduce_by_their_parts() {
        all_reduce(
            C64,
            Sum,
            &[
                "%1 = as_real %x",
                "%2 = all_reduce %1, op = sum, group = @g",
                "%3 = as_complex %2",
            ],
        );
    }

    #[test]
    fn reductions_without_a_meaning_are_refused() {
        let refused = |dtype, reduction: Reduction, reason: &str| {
            all_reduce(dtype, reduction, &[&format!("all_reduce: {reason}")]);
        };
        refused(
            Bool,
            Avg.into(),
            "avg of bool: a mean of booleans is no boolean; cast the tensor to a number first",
        );
        refused(C64, Max.into(), "max of c64: complex numbers have no order");
        refused(
            F32,
            Band.into(),
            "band of f32: only integers and booleans have bits to combine",
        );
        refused(
            F32,
            PremulSum.into(),
            "premul_sum of f32: no factor was given",
        );
        refused(
            I32,
            Reduction::premul_sum(0.5),
            "premul_sum of i32: the factor is a real number; cast the tensor to a float first",
        );
    }
}
