//! What a reduction means for an element type, and how it becomes one the device library has.
//!
//! The library reduces numbers by sum, product, minimum and maximum. Lowered onto those:
//!
//! | reduction | element type | nodes |
//! |---|---|---|
//! | avg | f16, bf16 | cast to f32, sum, divide by the group's size, cast back: the sum of values near the type's largest does not overflow, and is rounded once |
//! | avg | other floats, complex | sum, divide |
//! | avg | integers up to 32 bits | cast to a type that holds the sum of any group, sum, cast to f64, divide, cast back, which truncates toward zero: exact for groups of up to 2²⁰ ranks |
//! | sum, max, bor | bool | maximum over 0/1: logical or |
//! | prod, min, band | bool | minimum over 0/1: logical and |
//! | premul_sum | floats, complex | multiply by the factor, sum; 16-bit floats in f32 as above |
//!
//! Refused: avg and bxor of bool, avg of 64-bit integers (the library divides integers as floats),
//! min and max of complex numbers (they have no order), bitwise reductions of numbers (the library
//! has none), premul_sum without a factor or of integers.

use crate::{Context, ConvertError};
use hcom_ir::{Attrs, DType, GroupId, Op, ReduceOp, ValueId};

/// A reduction operator with the factor that [`ReduceOp::PremulSum`] needs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Reduction {
    /// The operator.
    pub op: ReduceOp,
    /// Multiplies every rank's elements before they are summed.
    pub factor: Option<f64>,
}

impl Reduction {
    /// The sum of every rank's elements times `factor`.
    pub fn premul_sum(factor: f64) -> Reduction {
        Reduction {
            op: ReduceOp::PremulSum,
            factor: Some(factor),
        }
    }
}

impl From<ReduceOp> for Reduction {
    fn from(op: ReduceOp) -> Reduction {
        Reduction { op, factor: None }
    }
}

/// Fails if `reduction` is refused for elements of `dtype`, before anything is added.
///
/// # Errors
/// [`ConvertError::Reduction`].
pub(crate) fn check(
    call: &'static str,
    reduction: Reduction,
    dtype: DType,
) -> Result<(), ConvertError> {
    checked_plan(call, reduction, dtype).map(drop)
}

fn checked_plan(
    call: &'static str,
    reduction: Reduction,
    dtype: DType,
) -> Result<Plan, ConvertError> {
    plan(reduction, dtype).map_err(|reason| ConvertError::Reduction {
        call,
        op: reduction.op,
        dtype,
        reason,
    })
}

/// Adds `collective` with an operator of the library, and around it what `reduction` needs.
///
/// # Errors
/// [`ConvertError::Reduction`], and what `collective` returns.
pub(crate) fn lower<'a>(
    call: &'static str,
    context: &mut Context<'a>,
    tensor: ValueId,
    reduction: Reduction,
    group: GroupId,
    collective: impl FnOnce(&mut Context<'a>, ValueId, ReduceOp) -> Result<ValueId, ConvertError>,
) -> Result<ValueId, ConvertError> {
    let dtype = context.builder.ty(tensor).dtype;
    let group_size = context.member_of(call, group)?.group_size();
    let Plan {
        wide,
        scale,
        op,
        mean,
    } = checked_plan(call, reduction, dtype)?;
    let mut value = context.cast(tensor, wide)?;
    if let Some(factor) = scale {
        let factor = context.scalar(factor, wide)?;
        value = context.push(Op::Mul, &[value, factor], Attrs::new())?;
    }
    value = collective(context, value, op)?;
    if let Some(quotient) = mean {
        value = context.cast(value, quotient)?;
        let size = context.scalar(f64::from(group_size), quotient)?;
        value = context.push(Op::Div, &[value, size], Attrs::new())?;
    }
    context.cast(value, dtype)
}

/// How one reduction is carried out.
struct Plan {
    /// Element type during the collective.
    wide: DType,
    /// Factor before the collective.
    scale: Option<f64>,
    /// The library's operator.
    op: ReduceOp,
    /// The type in which the group's size divides the result, if it does.
    mean: Option<DType>,
}

fn plan(reduction: Reduction, dtype: DType) -> Result<Plan, &'static str> {
    let plain = |op| Plan {
        wide: dtype,
        scale: None,
        op,
        mean: None,
    };
    match reduction.op {
        ReduceOp::PremulSum => {
            let factor = reduction.factor.ok_or("no factor was given")?;
            if !(dtype.is_float() || dtype.is_complex()) {
                return Err("the factor is a real number; cast the tensor to a float first");
            }
            Ok(Plan {
                wide: wide(dtype),
                scale: Some(factor),
                op: ReduceOp::Sum,
                mean: None,
            })
        }
        ReduceOp::Sum | ReduceOp::Max | ReduceOp::Bor if dtype == DType::Bool => Ok(Plan {
            wide: wide(dtype),
            ..plain(ReduceOp::Max)
        }),
        ReduceOp::Prod | ReduceOp::Min | ReduceOp::Band if dtype == DType::Bool => Ok(Plan {
            wide: wide(dtype),
            ..plain(ReduceOp::Min)
        }),
        ReduceOp::Avg if dtype == DType::Bool => {
            Err("a mean of booleans is no boolean; cast the tensor to a number first")
        }
        ReduceOp::Avg if matches!(dtype, DType::I64 | DType::U64) => {
            Err("the device library divides integers as floats; cast the tensor to f64 first")
        }
        ReduceOp::Avg => Ok(Plan {
            wide: wide(dtype),
            scale: None,
            op: ReduceOp::Sum,
            mean: Some(if dtype.is_integer() {
                DType::F64
            } else {
                wide(dtype)
            }),
        }),
        ReduceOp::Min | ReduceOp::Max if dtype.is_complex() => Err("complex numbers have no order"),
        ReduceOp::Band | ReduceOp::Bor | ReduceOp::Bxor => {
            Err("the device library has no bitwise reduction")
        }
        op => Ok(plain(op)),
    }
}

/// A type in which the sum over any group is exact or rounded once, where there is one.
fn wide(dtype: DType) -> DType {
    match dtype {
        DType::F16 | DType::BF16 => DType::F32,
        // Only 0 and 1 are reduced, by minimum and maximum.
        DType::Bool | DType::I8 | DType::I16 | DType::U8 => DType::I32,
        DType::I32 | DType::U16 | DType::U32 => DType::I64,
        other => other,
    }
}
