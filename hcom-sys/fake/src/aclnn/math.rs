//! The functions that elementwise operators apply, as plain loops over slices.

use super::compute::Compute;
use crate::simd::wide;

/// A function of one number.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Unary {
    Neg,
    Abs,
    Exp,
    Log,
    Sqrt,
    Rsqrt,
    Tanh,
    Sigmoid,
    Relu,
    Gelu,
    GeluTanh,
    Silu,
    Sin,
    Cos,
    Reciprocal,
}

/// A function of two numbers of one type.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Binary {
    Add,
    Sub,
    Mul,
    Div,
    /// The quotient rounded toward 0. Integers divided by 0 give 0, of which CANN promises nothing.
    DivTrunc,
    /// The quotient rounded down. Integers divided by 0 give 0.
    DivFloor,
    Maximum,
    Minimum,
    Pow,
    /// Conjunction of the bits of integers; as the next two.
    And,
    Or,
    Xor,
}

/// A relation of two numbers; false where one is not a number.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Relation {
    Equal,
    Less,
    Greater,
    /// Holds where one is not a number.
    NotEqual,
    GreaterOrEqual,
}

/// What elementwise operators do with a compute type.
pub(crate) trait Math: Compute {
    /// `x = f(x)`.
    fn unary(f: Unary, x: &mut [Self]);
    /// `x = f(x, y)`. Integers wrap.
    fn binary(f: Binary, x: &mut [Self], y: &[Self]);
}

/// `x[i]` becomes 1 where the relation holds, else 0.
pub(crate) fn relate<C: Compute>(relation: Relation, x: &mut [C], y: &[C]) {
    let truth = |holds| if holds { C::ONE } else { C::ZERO };
    match relation {
        Relation::Equal => zip(x, y, |x, y| truth(x == y)),
        Relation::Less => zip(x, y, |x, y| truth(x < y)),
        Relation::Greater => zip(x, y, |x, y| truth(x > y)),
        Relation::NotEqual => zip(x, y, |x, y| truth(x != y)),
        Relation::GreaterOrEqual => zip(x, y, |x, y| truth(x >= y)),
    }
}

#[inline(always)]
fn map<C: Copy>(x: &mut [C], f: impl Fn(C) -> C) {
    wide(
        #[inline(always)]
        || {
            for x in x {
                *x = f(*x);
            }
        },
    );
}

#[inline(always)]
fn zip<C: Copy>(x: &mut [C], y: &[C], f: impl Fn(C, C) -> C) {
    wide(
        #[inline(always)]
        || {
            for (x, y) in x.iter_mut().zip(y) {
                *x = f(*x, *y);
            }
        },
    );
}

/// The larger number; not a number if one is not.
#[inline(always)]
pub(crate) fn larger<C: Compute>(x: C, y: C) -> C {
    if x.is_nan() || x > y { x } else { y }
}

/// The smaller number; not a number if one is not.
#[inline(always)]
pub(crate) fn smaller<C: Compute>(x: C, y: C) -> C {
    if x.is_nan() || x < y { x } else { y }
}

/// `e^x` within 1.5 units of the last place, without branches, so that loops over it use wide vectors.
///
/// `x = n·ln 2 + r` with `|r| ≤ ln 2 / 2`; `e^r` by its Taylor polynomial of degree 7, `2^n` by its bits, in two
/// factors so that the result may be subnormal or infinite.
#[inline(always)]
fn exp_f32(x: f32) -> f32 {
    // Adding 1.5·2^23 leaves the nearest integer in the low bits of the sum.
    const ROUND: f32 = 12_582_912.0;
    // ln 2 in two parts; the first has so few bits that n·LN2_HIGH is exact.
    const LN2_HIGH: f32 = 0.693_359_4;
    const LN2_LOW: f32 = -2.121_944_4e-4;
    // Beyond these bounds the result is 0 or infinite. Comparisons keep what is not a number.
    let x = if x > 89.0 { 89.0 } else { x };
    let x = if x < -104.0 { -104.0 } else { x };
    let rounded = x * std::f32::consts::LOG2_E + ROUND;
    let n = rounded.to_bits().wrapping_sub(ROUND.to_bits()) as i32;
    let whole = rounded - ROUND;
    let r = x - whole * LN2_HIGH - whole * LN2_LOW;
    let mut p = 1.0 / 5040.0;
    p = p * r + 1.0 / 720.0;
    p = p * r + 1.0 / 120.0;
    p = p * r + 1.0 / 24.0;
    p = p * r + 1.0 / 6.0;
    p = p * r + 0.5;
    p = p * r * r + r + 1.0;
    let half = n >> 1;
    let power = |n: i32| f32::from_bits((n.wrapping_add(127) as u32) << 23);
    p * power(half) * power(n.wrapping_sub(half))
}

/// `x·Φ(x) = x·erfc(-x/√2)/2` within a few units of the last place, without branches.
///
/// `erfc(z) = e^(-z²) · t · P(t)` with `t = 1/(1 + 0.35·z)`: `P` interpolates `erfc(z)·e^(z²)/t` at the ten Chebyshev
/// nodes of `t` for `0 ≤ z ≤ 10`, which leaves a relative error of 1e-8; beyond, `e^(-z²)` is 0 in single precision.
#[inline(always)]
fn gelu_f32(x: f32) -> f32 {
    const P: [f32; 10] = [
        0.036_654_73,
        -0.149_543_54,
        0.159_641_22,
        0.001_045_613_2,
        0.063_405_11,
        0.158_554_67,
        0.146_915_78,
        0.188_806_4,
        0.197_030_74,
        0.197_489_27,
    ];
    let size = x.abs();
    let size = if size > 20.0 { 20.0 } else { size };
    let t = 1.0 / (1.0 + 0.35 * std::f32::consts::FRAC_1_SQRT_2 * size);
    let mut p = P[0];
    for &coefficient in &P[1..] {
        p = p * t + coefficient;
    }
    // The square of the first twelve bits is exact, so the exponential keeps its digits in the tail.
    let high = f32::from_bits(size.to_bits() & 0xFFFF_F000);
    let rest = (size - high) * (size + high);
    let tail = p * t * exp_f32(-0.5 * high * high) * exp_f32(-0.5 * rest);
    x * (0.5 * if x < 0.0 { tail } else { 2.0 - tail })
}

#[inline(always)]
fn sigmoid_f32(x: f32) -> f32 {
    1.0 / (1.0 + exp_f32(-x))
}

/// √(2/π), of the tanh form of gelu.
const GELU_SCALE: f32 = 0.797_884_6;
/// Coefficient of x³ in the tanh form of gelu.
const GELU_CUBE: f32 = 0.044_715;

impl Math for f32 {
    fn unary(f: Unary, x: &mut [f32]) {
        match f {
            Unary::Neg => map(x, |x| -x),
            Unary::Abs => map(x, f32::abs),
            Unary::Exp => map(x, exp_f32),
            Unary::Log => map(x, f32::ln),
            Unary::Sqrt => map(x, f32::sqrt),
            Unary::Rsqrt => map(x, |x| 1.0 / x.sqrt()),
            Unary::Tanh => map(x, f32::tanh),
            Unary::Sigmoid => map(x, sigmoid_f32),
            Unary::Relu => map(x, |x| if x < 0.0 { 0.0 } else { x }),
            Unary::Gelu => map(x, gelu_f32),
            // 1 + tanh(u) = 2·sigmoid(2u).
            Unary::GeluTanh => map(x, |x| {
                x * sigmoid_f32(2.0 * GELU_SCALE * (x + GELU_CUBE * x * x * x))
            }),
            Unary::Silu => map(x, |x| x * sigmoid_f32(x)),
            Unary::Sin => map(x, f32::sin),
            Unary::Cos => map(x, f32::cos),
            Unary::Reciprocal => map(x, f32::recip),
        }
    }

    fn binary(f: Binary, x: &mut [f32], y: &[f32]) {
        match f {
            Binary::Add => zip(x, y, |x, y| x + y),
            Binary::Sub => zip(x, y, |x, y| x - y),
            Binary::Mul => zip(x, y, |x, y| x * y),
            Binary::Div => zip(x, y, |x, y| x / y),
            Binary::DivTrunc => zip(x, y, |x, y| (x / y).trunc()),
            Binary::DivFloor => zip(x, y, |x, y| (x / y).floor()),
            Binary::Maximum => zip(x, y, larger),
            Binary::Minimum => zip(x, y, smaller),
            Binary::Pow => zip(x, y, f32::powf),
            Binary::And | Binary::Or | Binary::Xor => unreachable!("{f:?} of floats is refused"),
        }
    }
}

impl Math for f64 {
    fn unary(f: Unary, x: &mut [f64]) {
        match f {
            Unary::Neg => map(x, |x| -x),
            Unary::Abs => map(x, f64::abs),
            Unary::Exp => map(x, f64::exp),
            Unary::Log => map(x, f64::ln),
            Unary::Sqrt => map(x, f64::sqrt),
            Unary::Rsqrt => map(x, |x| 1.0 / x.sqrt()),
            Unary::Tanh => map(x, f64::tanh),
            Unary::Sigmoid => map(x, |x| 1.0 / (1.0 + (-x).exp())),
            Unary::Relu => map(x, |x| if x < 0.0 { 0.0 } else { x }),
            Unary::Sin => map(x, f64::sin),
            Unary::Cos => map(x, f64::cos),
            Unary::Reciprocal => map(x, f64::recip),
            Unary::Gelu | Unary::GeluTanh | Unary::Silu => {
                unreachable!("{f:?} of DOUBLE is refused")
            }
        }
    }

    fn binary(f: Binary, x: &mut [f64], y: &[f64]) {
        match f {
            Binary::Add => zip(x, y, |x, y| x + y),
            Binary::Sub => zip(x, y, |x, y| x - y),
            Binary::Mul => zip(x, y, |x, y| x * y),
            Binary::Div => zip(x, y, |x, y| x / y),
            Binary::DivTrunc => zip(x, y, |x, y| (x / y).trunc()),
            Binary::DivFloor => zip(x, y, |x, y| (x / y).floor()),
            Binary::Maximum => zip(x, y, larger),
            Binary::Minimum => zip(x, y, smaller),
            Binary::Pow => zip(x, y, f64::powf),
            Binary::And | Binary::Or | Binary::Xor => unreachable!("{f:?} of floats is refused"),
        }
    }
}

/// `base^exponent` modulo 2^64. A negative exponent gives the reciprocal rounded toward 0: 0 unless `base` is ±1.
fn pow_i64(base: i64, exponent: i64) -> i64 {
    if exponent < 0 {
        return match base {
            1 => 1,
            -1 if exponent % 2 == 0 => 1,
            -1 => -1,
            _ => 0,
        };
    }
    let (mut result, mut square, mut rest) = (1i64, base, exponent);
    while rest > 0 {
        if rest & 1 == 1 {
            result = result.wrapping_mul(square);
        }
        square = square.wrapping_mul(square);
        rest >>= 1;
    }
    result
}

/// `x / y` rounded toward 0, modulo 2^64; 0 if `y` is.
fn trunc_div(x: i64, y: i64) -> i64 {
    if y == 0 { 0 } else { x.wrapping_div(y) }
}

/// `x / y` rounded down, modulo 2^64; 0 if `y` is.
fn floor_div(x: i64, y: i64) -> i64 {
    let quotient = trunc_div(x, y);
    let inexact = y != 0 && x.wrapping_rem(y) != 0;
    if inexact && (x < 0) != (y < 0) {
        quotient - 1
    } else {
        quotient
    }
}

impl Math for i64 {
    fn unary(f: Unary, x: &mut [i64]) {
        match f {
            Unary::Neg => map(x, i64::wrapping_neg),
            Unary::Abs => map(x, i64::wrapping_abs),
            Unary::Relu => map(x, |x| x.max(0)),
            _ => unreachable!("{f:?} computes in floats"),
        }
    }

    fn binary(f: Binary, x: &mut [i64], y: &[i64]) {
        match f {
            Binary::Add => zip(x, y, i64::wrapping_add),
            Binary::Sub => zip(x, y, i64::wrapping_sub),
            Binary::Mul => zip(x, y, i64::wrapping_mul),
            Binary::Maximum => zip(x, y, i64::max),
            Binary::Minimum => zip(x, y, i64::min),
            Binary::Pow => zip(x, y, pow_i64),
            Binary::DivTrunc => zip(x, y, trunc_div),
            Binary::DivFloor => zip(x, y, floor_div),
            Binary::And => zip(x, y, |x, y| x & y),
            Binary::Or => zip(x, y, |x, y| x | y),
            Binary::Xor => zip(x, y, |x, y| x ^ y),
            Binary::Div => unreachable!("true division computes in floats"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exp_is_accurate_over_its_range() {
        let mut worst = 0f64;
        for i in -1_030_000..=890_000 {
            let x = i as f32 * 1e-4;
            let (exact, got) = (f64::from(x).exp(), exp_f32(x));
            if exact > f64::from(f32::MAX) {
                assert_eq!(got, f32::INFINITY, "{x}");
            } else {
                let unit = f64::from(exact as f32) * f64::from(f32::EPSILON);
                let error = (f64::from(got) - exact).abs() / unit.max(2f64.powi(-149));
                worst = worst.max(error);
            }
        }
        assert!(worst < 1.5, "{worst} units");
        assert_eq!(exp_f32(f32::NEG_INFINITY), 0.0);
        assert_eq!(exp_f32(f32::INFINITY), f32::INFINITY);
        assert_eq!(exp_f32(0.0), 1.0);
        assert!(exp_f32(f32::NAN).is_nan());
    }

    #[test]
    fn gelu_is_accurate_in_its_tail_too() {
        for i in -130_000..=130_000 {
            let x = i as f32 * 1e-4;
            let wide = f64::from(x);
            let exact = 0.5 * wide * libm::erfc(-wide * std::f64::consts::FRAC_1_SQRT_2);
            let error = (f64::from(gelu_f32(x)) - exact).abs();
            let unit = exact.abs() * f64::from(f32::EPSILON);
            assert!(error <= 4.0 * unit.max(1e-45), "{x}: {error} for {exact}");
        }
        assert_eq!(gelu_f32(f32::INFINITY), f32::INFINITY);
        assert!(gelu_f32(f32::NAN).is_nan());
    }

    #[test]
    fn integer_powers() {
        assert_eq!(pow_i64(-3, 3), -27);
        assert_eq!(pow_i64(3, 0), 1);
        assert_eq!(pow_i64(2, -1), 0);
        assert_eq!(pow_i64(-1, -3), -1);
        assert_eq!(pow_i64(0, -1), 0);
        assert_eq!(pow_i64(3, 64), 3i64.wrapping_pow(64));
    }

    #[test]
    fn what_is_not_a_number_wins() {
        for (x, y) in [(f32::NAN, 1.0), (1.0, f32::NAN)] {
            assert!(larger(x, y).is_nan() && smaller(x, y).is_nan());
        }
    }
}
