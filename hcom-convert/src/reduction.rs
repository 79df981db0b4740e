//! What a reduction means for an element type, and how it becomes one the device library has.
//!
//! The library of the common chips reduces signed integers, 16-bit and 32-bit floats and `f64` by
//! sum, product, minimum and maximum. Lowered onto those:
//!
//! | reduction | element type | nodes |
//! |---|---|---|
//! | any of the four | unsigned integers | in a wider signed type, cast back, which wraps; u64 in i64, for min and max with 2⁶³ added before and after |
//! | prod | i16, bf16 | in i32, f32 |
//! | avg | f16, bf16 | cast to f32, sum, divide by the group's size, cast back: the sum of values near the type's largest does not overflow, and is rounded once |
//! | avg | f32, f64 | sum, divide |
//! | avg | integers up to 32 bits | cast to a type that holds the sum of any group, sum, cast to f64, divide, cast back, which truncates toward zero: exact for groups of up to 2²⁰ ranks |
//! | sum, max, bor | bool | maximum over 0/1: logical or |
//! | prod, min, band | bool | minimum over 0/1: logical and |
//! | premul_sum | floats | multiply by the factor, sum; 16-bit floats in f32 as above |
//!
//! Complex numbers have a sum only: that of their parts. What is refused, and why, is in
//! [`support`](crate::support), which is made from the decisions taken here.

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
        flip,
        scale,
        op,
        mean,
    } = checked_plan(call, reduction, dtype)?;
    let mut value = context.cast(tensor, wide)?;
    if let Some(factor) = scale {
        let factor = context.scalar(factor, wide)?;
        value = context.push(Op::Mul, &[value, factor], Attrs::new())?;
    }
    if flip {
        value = flipped(context, value)?;
    }
    value = collective(context, value, op)?;
    if flip {
        value = flipped(context, value)?;
    }
    if let Some(quotient) = mean {
        value = context.cast(value, quotient)?;
        let size = context.scalar(f64::from(group_size), quotient)?;
        value = context.push(Op::Div, &[value, size], Attrs::new())?;
    }
    context.cast(value, dtype)
}

/// `value` of i64 plus half the range, which maps the order of unsigned integers to that of signed
/// ones and back.
fn flipped(context: &mut Context<'_>, value: ValueId) -> Result<ValueId, ConvertError> {
    let half = context.scalar(i64::MIN, DType::I64)?;
    context.push(Op::Add, &[value, half], Attrs::new())
}

/// How one reduction is carried out.
#[derive(Debug)]
pub(crate) struct Plan {
    /// Element type during the collective.
    wide: DType,
    /// Whether half the range is added before and after the collective, so that signed integers
    /// order as unsigned ones.
    flip: bool,
    /// Factor before the collective.
    scale: Option<f64>,
    /// The library's operator.
    op: ReduceOp,
    /// The type in which the group's size divides the result, if it does.
    mean: Option<DType>,
}

impl Plan {
    /// Element type and operator of the collective.
    pub(crate) fn carrier(&self) -> (DType, ReduceOp) {
        (self.wide, self.op)
    }

    /// The steps for elements of `dtype`; `None` when the collective alone does it.
    pub(crate) fn steps(&self, dtype: DType, asked: ReduceOp) -> Option<String> {
        let mut steps = Vec::new();
        if self.wide != dtype {
            steps.push(format!("cast to {}", self.wide));
        }
        if self.scale.is_some() {
            steps.push("multiply by the factor".to_owned());
        }
        let flip = || self.flip.then(|| "add 2^63".to_owned());
        steps.extend(flip());
        steps.push(self.op.to_string());
        steps.extend(flip());
        let mut now = self.wide;
        if let Some(quotient) = self.mean {
            if quotient != now {
                steps.push(format!("cast to {quotient}"));
                now = quotient;
            }
            steps.push("divide by the group's size".to_owned());
        }
        if now != dtype {
            steps.push(format!("cast to {dtype}"));
        }
        (steps.len() > 1 || self.op != asked).then(|| steps.join(", "))
    }
}

/// How to carry out `reduction` on elements of `dtype`, or why it is refused.
pub(crate) fn plan(reduction: Reduction, dtype: DType) -> Result<Plan, &'static str> {
    let op = reduction.op;
    let plan = |wide, op| Plan {
        wide,
        flip: false,
        scale: None,
        op,
        mean: None,
    };
    let logical = dtype == DType::Bool;
    match op {
        ReduceOp::Min | ReduceOp::Max if dtype.is_complex() => Err("complex numbers have no order"),
        ReduceOp::Prod | ReduceOp::Avg | ReduceOp::PremulSum if dtype.is_complex() => Err(
            "the device library does not compute with complex numbers; sum them, or reduce real and imaginary parts as floats",
        ),
        ReduceOp::PremulSum => {
            let factor = reduction.factor.ok_or("no factor was given")?;
            if !dtype.is_float() {
                return Err("the factor is a real number; cast the tensor to a float first");
            }
            Ok(Plan {
                scale: Some(factor),
                ..plan(wide(dtype), ReduceOp::Sum)
            })
        }
        ReduceOp::Sum | ReduceOp::Max | ReduceOp::Bor if logical => {
            Ok(plan(wide(dtype), ReduceOp::Max))
        }
        ReduceOp::Prod | ReduceOp::Min | ReduceOp::Band if logical => {
            Ok(plan(wide(dtype), ReduceOp::Min))
        }
        ReduceOp::Avg if logical => {
            Err("a mean of booleans is no boolean; cast the tensor to a number first")
        }
        ReduceOp::Avg if matches!(dtype, DType::I64 | DType::U64) => {
            Err("the device library divides integers as floats; cast the tensor to f64 first")
        }
        ReduceOp::Avg => Ok(Plan {
            mean: Some(match dtype.is_integer() {
                true => DType::F64,
                false => wide(dtype),
            }),
            ..plan(wide(dtype), ReduceOp::Sum)
        }),
        ReduceOp::Band | ReduceOp::Bor | ReduceOp::Bxor if !(logical || dtype.is_integer()) => {
            Err("only integers and booleans have bits to combine")
        }
        ReduceOp::Band | ReduceOp::Bor | ReduceOp::Bxor => {
            Err("the device library has no bitwise reduction")
        }
        ReduceOp::Sum | ReduceOp::Prod if dtype == DType::U64 => Ok(plan(DType::I64, op)),
        ReduceOp::Min | ReduceOp::Max if dtype == DType::U64 => Ok(Plan {
            flip: true,
            ..plan(DType::I64, op)
        }),
        op if dtype.is_integer() && !dtype.is_signed() => Ok(plan(wide(dtype), op)),
        ReduceOp::Prod if matches!(dtype, DType::I16 | DType::BF16) => Ok(plan(wide(dtype), op)),
        op => Ok(plan(dtype, op)),
    }
}

/// A type in which the sum over any group is exact or rounded once, where there is one.
fn wide(dtype: DType) -> DType {
    match dtype {
        DType::F16 | DType::BF16 => DType::F32,
        // Of a bool only 0 and 1 are reduced, by minimum and maximum.
        DType::Bool | DType::I8 | DType::I16 | DType::U8 => DType::I32,
        DType::I32 | DType::U16 | DType::U32 => DType::I64,
        other => other,
    }
}
