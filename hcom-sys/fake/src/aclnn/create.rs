//! Operators that copy, convert or make values.

use super::compute::{BLOCK, Compute};
use super::dtype::{ALL, CONVERTIBLE, Class, FLOATS, NUMBERS, Type};
use super::elementwise::blocks;
use super::executor::{Arg, Operand, Plan, bad};
use super::in_words;
use super::object::{Number, Scalar, Tensor};
use crate::error::Outcome;
use crate::random::Generator;
use crate::span::Element;
use crate::span::strided::Elements;

/// Copies all elements in the order of their indices, converting where the types differ. Complex numbers only copy to
/// their own type.
pub(crate) fn copy(from: &Elements<'_>, to: &Elements<'_>) {
    fn words<S: Element>(from: &Elements<'_>, to: &Elements<'_>) {
        let mut values = [S::default(); BLOCK];
        blocks(to.len(), |start, len| {
            from.gather(start, &mut values[..len]);
            to.scatter(start, &values[..len]);
        });
    }
    fn convert<C: Compute>(from: &Elements<'_>, to: &Elements<'_>) {
        let mut values = [C::ZERO; BLOCK];
        blocks(to.len(), |start, len| {
            C::read(from, start, &mut values[..len]);
            C::write(to, start, &values[..len]);
        });
    }
    if from.dtype() == to.dtype() {
        return in_words!(from.dtype(), S => words::<S>(from, to));
    }
    match from.dtype().class() {
        Class::F32 => convert::<f32>(from, to),
        Class::F64 => convert::<f64>(from, to),
        Class::I64 => convert::<i64>(from, to),
        Class::U64 => convert::<u64>(from, to),
    }
}

/// Sets all elements to a scalar, converted to their type.
pub(crate) fn fill(to: &Elements<'_>, value: Scalar) {
    fn real<C: Compute>(to: &Elements<'_>, value: C) {
        blocks(to.len(), |start, len| {
            C::write(to, start, &[value; BLOCK][..len])
        });
    }
    fn words<S: Element>(to: &Elements<'_>, value: S) {
        blocks(to.len(), |start, len| {
            to.scatter(start, &[value; BLOCK][..len])
        });
    }
    let (re, im) = match value.value {
        Number::Complex(re, im) => (re, im),
        _ => (value.to_f64(), 0.0),
    };
    match to.dtype() {
        Type::C128 => words(to, [re.to_bits(), im.to_bits()]),
        Type::C64 => {
            let [a, b, c, d] = (re as f32).to_ne_bytes();
            let [e, f, g, h] = (im as f32).to_ne_bytes();
            words(to, u64::from_ne_bytes([a, b, c, d, e, f, g, h]));
        }
        dtype => match dtype.class() {
            Class::F32 | Class::F64 => real(to, f64::from_scalar(value)),
            Class::I64 => real(to, i64::from_scalar(value)),
            Class::U64 => real(to, i64::from_scalar(value) as u64),
        },
    }
}

/// Refuses a conversion between types that is not one between real numbers or from a type to itself.
pub(crate) fn expect_convertible(from: &Operand, to: &Operand) -> Outcome {
    if from.dtype == to.dtype {
        return Ok(());
    }
    from.expect_types(CONVERTIBLE)?;
    to.expect_types(CONVERTIBLE)
}

/// aclnnCast: `out = x` converted to `dtype`, which is the type of `out`. Floats become integers by truncation and
/// saturate, integers wrap. All real types; complex numbers only to their own type.
pub(crate) fn cast(x: Arg<Tensor>, dtype: i32, out: Arg<Tensor>) -> Outcome<Plan> {
    let (x, out) = (x.input()?, out.output()?);
    if dtype != out.dtype.acl() {
        let expected = format!("the data type of {}, {}", out.name, out.dtype);
        return Err(bad("dtype", expected, format_args!("aclDataType {dtype}")));
    }
    expect_convertible(&x, &out)?;
    out.expect_dims(x.dims())?;
    Ok(copying(x, out))
}

/// aclnnInplaceCopy: writes `source`, broadcast and converted, to `target`. All real types; complex numbers only to
/// their own type.
pub(crate) fn inplace_copy(target: Arg<Tensor>, source: Arg<Tensor>) -> Outcome<Plan> {
    let (target, source) = (target.output()?, source.input()?);
    expect_convertible(&source, &target)?;
    let (from, to) = (source.broadcast_to(target.dims())?, target.layout.clone());
    Ok(Plan::new([target, source], move |[target, source]| {
        copy(&source.elements(&from), &target.elements(&to));
    }))
}

/// aclnnInplaceFillTensor: sets every element of `target` to the one element of `value`, converted. Types as for
/// aclnnInplaceCopy.
pub(crate) fn inplace_fill_tensor(target: Arg<Tensor>, value: Arg<Tensor>) -> Outcome<Plan> {
    value.input()?.expect_single()?;
    inplace_copy(target, value)
}

/// A plan that copies one operand to another of the same shape.
pub(crate) fn copying(from: Operand, to: Operand) -> Plan {
    let (from_at, to_at) = (from.layout.clone(), to.layout.clone());
    Plan::new([from, to], move |[from, to]| {
        copy(&from.elements(&from_at), &to.elements(&to_at))
    })
}

/// aclnnInplaceFillScalar: sets every element of `target` to `value`. All types; a complex value only in complex
/// numbers.
pub(crate) fn inplace_fill(target: Arg<Tensor>, value: Arg<Scalar>) -> Outcome<Plan> {
    let (target, value_name, value) = (target.output()?, value.name, *value.get()?);
    target.expect_types(ALL)?;
    if value.dtype.is_complex() && !target.dtype.is_complex() {
        return Err(bad(
            value_name,
            format_args!("a scalar that casts to {}", target.dtype),
            value.dtype,
        ));
    }
    let at = target.layout.clone();
    Ok(Plan::new([target], move |[target]| {
        fill(&target.elements(&at), value)
    }))
}

/// aclnnInplaceZero, aclnnInplaceOne: sets every element of `target` to this number. All types.
pub(crate) fn inplace_number(target: Arg<Tensor>, number: i64) -> Outcome<Plan> {
    let scalar = Scalar::from_bytes(Type::I64, &number.to_ne_bytes());
    inplace_fill(target, Arg::fixed("value", scalar))
}

/// Whether a sequence may reach its end.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum End {
    Excluded,
    Included,
}

/// aclnnArange and aclnnRange: `out[i] = start + i·step` up to `end`, which aclnnArange leaves out and aclnnRange takes
/// in. Real numbers except BOOL; floats are computed in DOUBLE and rounded once.
pub(crate) fn arange(
    bound: End,
    start: Arg<Scalar>,
    end: Arg<Scalar>,
    step: Arg<Scalar>,
    out: Arg<Tensor>,
) -> Outcome<Plan> {
    let scalars = [start.get()?, end.get()?, step.get()?].map(|scalar| *scalar);
    let out = out.output()?;
    out.expect_types(NUMBERS)?;
    for (name, scalar) in [start.name, end.name, step.name].into_iter().zip(&scalars) {
        if scalar.dtype.is_complex() || !scalar.to_f64().is_finite() {
            return Err(bad(
                name,
                "a finite real number",
                format_args!("{:?}", scalar.value),
            ));
        }
    }
    let integers = scalars.iter().all(|scalar| !scalar.dtype.is_float());
    let [first, last, by] = scalars;
    let (distance, by_f64) = (last.to_f64() - first.to_f64(), by.to_f64());
    if by_f64 == 0.0 || distance != 0.0 && (distance < 0.0) != (by_f64 < 0.0) {
        let expected = format!("a step from {} towards {}", first.to_f64(), last.to_f64());
        return Err(bad(step.name, expected, by_f64));
    }
    let len = if integers {
        let [first, last, by] = scalars.map(|scalar| i128::from(scalar.to_i64()));
        let (distance, by) = ((last - first).unsigned_abs(), by.unsigned_abs());
        match bound {
            End::Excluded => distance.div_ceil(by) as usize,
            End::Included => (distance / by) as usize + 1,
        }
    } else {
        match bound {
            End::Excluded => (distance / by_f64).ceil() as usize,
            End::Included => (distance / by_f64).floor() as usize + 1,
        }
    };
    out.expect_dims(&[len])?;
    let at = out.layout.clone();
    let count_in_integers = integers && !out.dtype.is_float();
    Ok(Plan::new([out], move |[out]| {
        let out = out.elements(&at);
        if count_in_integers {
            let (first, by) = (first.to_i64(), by.to_i64());
            let mut values = [0i64; BLOCK];
            blocks(out.len(), |start, len| {
                for (i, value) in values[..len].iter_mut().enumerate() {
                    *value = first.wrapping_add(by.wrapping_mul((start + i) as i64));
                }
                i64::write(&out, start, &values[..len]);
            });
        } else {
            let mut values = [0f64; BLOCK];
            blocks(out.len(), |start, len| {
                for (i, value) in values[..len].iter_mut().enumerate() {
                    *value = first.to_f64() + by_f64 * (start + i) as f64;
                }
                f64::write(&out, start, &values[..len]);
            });
        }
    }))
}

/// aclnnInplaceNormal: fills `target` with numbers of the bell curve around `mean` of width `deviation`, the same for
/// the same `seed` and `offset`. Floats.
pub(crate) fn inplace_normal(
    target: Arg<Tensor>,
    mean: f32,
    deviation: f32,
    seed: i64,
    offset: i64,
) -> Outcome<Plan> {
    let target = target.output()?;
    target.expect_types(FLOATS)?;
    if deviation.is_nan() || deviation < 0.0 {
        return Err(bad("std", "at least 0", deviation));
    }
    let (mean, deviation) = (f64::from(mean), f64::from(deviation));
    Ok(random(
        target,
        seed as u64,
        offset as u64,
        move |generator| mean + deviation * generator.normal(),
    ))
}

/// aclnnInplaceUniform: fills `target` with numbers from `from` to below `to`, the same for the same `seed` and
/// `offset`; rounding to a narrow float may give `to`. Real numbers except BOOL.
pub(crate) fn inplace_uniform(
    target: Arg<Tensor>,
    from: f64,
    to: f64,
    seed: u64,
    offset: u64,
) -> Outcome<Plan> {
    let target = target.output()?;
    target.expect_types(NUMBERS)?;
    let width = to - from;
    if !(width >= 0.0 && width.is_finite()) {
        return Err(bad(
            "to",
            format_args!("a finite number of at least {from}"),
            to,
        ));
    }
    Ok(random(target, seed, offset, move |generator| {
        from + width * generator.unit()
    }))
}

fn random(
    target: Operand,
    seed: u64,
    offset: u64,
    number: impl Fn(&mut Generator) -> f64 + Send + Sync + 'static,
) -> Plan {
    let at = target.layout.clone();
    Plan::new([target], move |[target]| {
        let (target, mut generator) = (target.elements(&at), Generator::new(seed, offset));
        let mut values = [0f64; BLOCK];
        blocks(target.len(), |start, len| {
            values[..len].fill_with(|| number(&mut generator));
            f64::write(&target, start, &values[..len]);
        });
    })
}
