//! Elementwise operations, fills and ranges.

use hcom_ir::{Attr, DType, Op};

use super::{Arg, Kernel, Lowered, Scalar, Site, View};
use crate::error::Error;

pub(super) fn lower(site: &Site<'_>, to: &mut Lowered) -> Result<(), Error> {
    match site.op {
        Op::Neg => unary(site, to, Kernel::Neg),
        Op::Abs => unary(site, to, Kernel::Abs),
        Op::Exp => unary(site, to, Kernel::Exp),
        Op::Log => unary(site, to, Kernel::Log),
        Op::Sqrt => unary(site, to, Kernel::Sqrt),
        Op::Rsqrt => unary(site, to, Kernel::Rsqrt),
        Op::Tanh => unary(site, to, Kernel::Tanh),
        Op::Sigmoid => unary(site, to, Kernel::Sigmoid),
        Op::Relu => unary(site, to, Kernel::Relu),
        Op::Silu => unary(site, to, Kernel::Silu),
        Op::Gelu => {
            // The library's codes: 0 is the error function, 1 the hyperbolic tangent.
            let approximate = i64::from(site.attrs.text("approximate") == "tanh");
            to.push(
                Kernel::GeluV2,
                [
                    site.operand(0).into(),
                    Arg::Int(approximate),
                    site.result(0).into(),
                ],
            );
        }
        Op::Cast => to.push(
            Kernel::Cast,
            [
                site.operand(0).into(),
                Arg::DType(site.results[0].dtype),
                site.result(0).into(),
            ],
        ),
        Op::Add | Op::Mul if site.operands[0].dtype == DType::Bool => {
            let kernel = if site.op == Op::Add {
                Kernel::Maximum
            } else {
                Kernel::Minimum
            };
            // Bytes of 0 and 1: the larger one is the logical or, the smaller one the and.
            let [a, b, y] = [site.operand(0), site.operand(1), site.result(0)]
                .map(|view| Arg::from(view.reread(DType::U8)));
            to.push(kernel, [a, b, y]);
        }
        Op::Add | Op::BiasAdd => add(to, site.operand(0), site.operand(1), site.result(0)),
        Op::Sub => with_alpha(
            to,
            Kernel::Sub,
            site.operand(0),
            site.operand(1),
            site.result(0),
        ),
        Op::Mul => binary(site, to, Kernel::Mul),
        Op::Div if site.operands[0].dtype.is_integer() => divide_integers(site, to)?,
        Op::BitAnd => bits(site, to, Kernel::BitwiseAndTensor),
        Op::BitOr => bits(site, to, Kernel::BitwiseOrTensor),
        Op::BitXor => bits(site, to, Kernel::BitwiseXorTensor),
        Op::Div => binary(site, to, Kernel::Div),
        Op::Maximum => binary(site, to, Kernel::Maximum),
        Op::Minimum => binary(site, to, Kernel::Minimum),
        Op::Pow => binary(site, to, Kernel::PowTensorTensor),
        Op::Equal => binary(site, to, Kernel::EqTensor),
        Op::Less => binary(site, to, Kernel::LtTensor),
        Op::Greater => binary(site, to, Kernel::GtTensor),
        Op::Where => to.push(
            Kernel::SWhere,
            [
                site.operand(0).into(),
                site.operand(1).into(),
                site.operand(2).into(),
                site.result(0).into(),
            ],
        ),
        Op::Fill => to.push(
            Kernel::InplaceFillScalar,
            [site.result(0).into(), number(site, "value")],
        ),
        Op::Arange => to.push(
            Kernel::Arange,
            [
                number(site, "start"),
                number(site, "end"),
                number(site, "step"),
                site.result(0).into(),
            ],
        ),
        op => unreachable!("{op} is not elementwise"),
    }
    Ok(())
}

fn unary(site: &Site<'_>, to: &mut Lowered, kernel: Kernel) {
    to.push(kernel, [site.operand(0).into(), site.result(0).into()]);
}

fn binary(site: &Site<'_>, to: &mut Lowered, kernel: Kernel) {
    to.push(
        kernel,
        [
            site.operand(0).into(),
            site.operand(1).into(),
            site.result(0).into(),
        ],
    );
}

/// Bits have no sign: unsigned integers are read as the signed ones of their size.
fn bits(site: &Site<'_>, to: &mut Lowered, kernel: Kernel) {
    let signed = |view: View| {
        let dtype = match view.dtype {
            DType::U8 => DType::I8,
            DType::U16 => DType::I16,
            DType::U32 => DType::I32,
            DType::U64 => DType::I64,
            same => same,
        };
        Arg::from(view.reread(dtype))
    };
    let args = [site.operand(0), site.operand(1), site.result(0)].map(signed);
    to.push(kernel, args);
}

/// The quotient rounded toward zero, 0 where the divisor is. The library leaves a division by zero
/// undefined, so such elements are divided by 1 and replaced.
fn divide_integers(site: &Site<'_>, to: &mut Lowered) -> Result<(), Error> {
    /// The library's code for rounding toward zero.
    const TRUNCATE: i32 = 1;
    let dtype = site.operands[0].dtype;
    if dtype == DType::U64 {
        return Err(site.refuse("the device library has no unsigned division of 64 bits"));
    }
    let wide = |to: &mut Lowered, view: View| {
        if dtype == DType::I64 {
            return view;
        }
        let wide = to.scratch(DType::I64, view.shape.clone());
        let cast = Arg::DType(DType::I64);
        to.push(Kernel::Cast, [view.into(), cast, wide.clone().into()]);
        wide
    };
    let number = |to: &mut Lowered, value| {
        let number = to.scratch(DType::I64, []);
        to.fill(number.clone(), value);
        number
    };
    let (a, b) = (wide(to, site.operand(0)), wide(to, site.operand(1)));
    let (zero, one) = (number(to, 0.0), number(to, 1.0));
    let by_zero = to.scratch(DType::Bool, b.shape.clone());
    let divisor = to.scratch(DType::I64, b.shape.clone());
    let y = site.result(0);
    let quotient = to.scratch(DType::I64, y.shape.clone());
    let result = match dtype {
        DType::I64 => y.clone(),
        _ => to.scratch(DType::I64, y.shape.clone()),
    };
    let mut push = |kernel, args: &[&View]| {
        let args: Vec<Arg> = args.iter().map(|&view| view.clone().into()).collect();
        to.push(kernel, args);
    };
    push(Kernel::EqTensor, &[&b, &zero, &by_zero]);
    push(Kernel::SWhere, &[&by_zero, &one, &b, &divisor]);
    let args = [
        a.into(),
        divisor.into(),
        Arg::Mode(TRUNCATE),
        quotient.clone().into(),
    ];
    to.push(Kernel::DivMod, args);
    to.push(
        Kernel::SWhere,
        [
            by_zero.into(),
            zero.into(),
            quotient.into(),
            result.clone().into(),
        ],
    );
    if dtype != DType::I64 {
        to.push(Kernel::Cast, [result.into(), Arg::DType(dtype), y.into()]);
    }
    Ok(())
}

/// `y = a + b`, broadcast.
pub(super) fn add(to: &mut Lowered, a: View, b: View, y: View) {
    with_alpha(to, Kernel::Add, a, b, y);
}

fn with_alpha(to: &mut Lowered, kernel: Kernel, a: View, b: View, y: View) {
    let one = Scalar::of(1.0, a.dtype);
    to.push(kernel, [a.into(), b.into(), Arg::Scalar(one), y.into()]);
}

/// The attribute `name`, which may be an integer, a float or a size, for the result's type.
fn number(site: &Site<'_>, name: &str) -> Arg {
    let dtype = site.results[0].dtype;
    let integer = match site.attrs.get(name) {
        Some(Attr::Int(value)) => Some(*value),
        Some(Attr::Dim(dim)) => dim.as_fixed().and_then(|value| i64::try_from(value).ok()),
        _ => None,
    };
    Arg::Scalar(match integer {
        Some(value) if dtype.is_integer() => Scalar::I64(value),
        Some(value) => Scalar::of(value as f64, dtype),
        None => Scalar::of(site.attrs.float(name), dtype),
    })
}
