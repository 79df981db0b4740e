//! Conversion between what is stored and what is computed with.

use half::slice::HalfFloatSliceExt;
use half::{bf16, f16};

use super::dtype::Type;
use super::object::Scalar;
use crate::span::Element;
use crate::span::strided::Elements;

/// Elements that a kernel works on at once; the buffers of a ternary operator fit the first-level cache.
pub(crate) const BLOCK: usize = 1024;

/// Elements converted at once between memory and a block.
const CHUNK: usize = 256;

/// A type that kernels compute in. Reading widens exactly (wide integers round when read as floats); writing rounds
/// once, to nearest even. Integers narrow by wrapping, floats become integers by truncation with saturation, and a
/// truth value is whether the number differs from 0.
pub(crate) trait Compute: Element + PartialOrd + Send + Sync {
    /// Zero.
    const ZERO: Self;
    /// One.
    const ONE: Self;

    /// Reads the elements of `at` from number `start` on into all of `into`.
    fn read(at: &Elements<'_>, start: usize, into: &mut [Self]);
    /// Writes all of `from` to the elements of `at` from number `start` on.
    fn write(at: &Elements<'_>, start: usize, from: &[Self]);
    /// The value of a scalar, rounded or truncated.
    fn from_scalar(value: Scalar) -> Self;
    /// Whether this is not a number.
    fn is_nan(self) -> bool;
}

fn load<S: Element, C>(at: &Elements<'_>, start: usize, into: &mut [C], widen: impl Fn(S) -> C) {
    let mut chunk = [S::default(); CHUNK];
    for (n, into) in into.chunks_mut(CHUNK).enumerate() {
        let chunk = &mut chunk[..into.len()];
        at.gather(start + n * CHUNK, chunk);
        for (to, from) in into.iter_mut().zip(chunk) {
            *to = widen(*from);
        }
    }
}

fn store<S: Element, C: Copy>(
    at: &Elements<'_>,
    start: usize,
    from: &[C],
    narrow: impl Fn(C) -> S,
) {
    let mut chunk = [S::default(); CHUNK];
    for (n, from) in from.chunks(CHUNK).enumerate() {
        let chunk = &mut chunk[..from.len()];
        for (to, from) in chunk.iter_mut().zip(from) {
            *to = narrow(*from);
        }
        at.scatter(start + n * CHUNK, chunk);
    }
}

/// [`load`] for 16-bit floats, by the CPU's own conversion where it has one.
fn load_half<S: Element>(at: &Elements<'_>, start: usize, into: &mut [f32])
where
    [S]: HalfFloatSliceExt,
{
    let mut chunk = [S::default(); CHUNK];
    for (n, into) in into.chunks_mut(CHUNK).enumerate() {
        let chunk = &mut chunk[..into.len()];
        at.gather(start + n * CHUNK, chunk);
        chunk.convert_to_f32_slice(into);
    }
}

/// [`store`] for 16-bit floats, by the CPU's own conversion where it has one.
fn store_half<S: Element>(at: &Elements<'_>, start: usize, from: &[f32])
where
    [S]: HalfFloatSliceExt,
{
    let mut chunk = [S::default(); CHUNK];
    for (n, from) in from.chunks(CHUNK).enumerate() {
        let chunk = &mut chunk[..from.len()];
        chunk.convert_from_f32_slice(from);
        at.scatter(start + n * CHUNK, chunk);
    }
}

/// The `f32` next to `value` whose last bit tells of lost digits, so that rounding it to 16 bits equals rounding
/// `value` itself.
fn round_to_odd(value: f64) -> f32 {
    let near = value as f32;
    if f64::from(near) == value || value.is_nan() {
        return near;
    }
    let toward_zero = if f64::from(near).abs() > value.abs() {
        near.to_bits() - 1
    } else {
        near.to_bits()
    };
    f32::from_bits(toward_zero | 1)
}

macro_rules! compute {
    ($c:ident is $own:ident; from_scalar: $from_scalar:expr; is_nan: $is_nan:expr;
     load: $load_f16:expr, $load_bf16:expr; store: $store_f16:expr, $store_bf16:expr) => {
        impl Compute for $c {
            const ZERO: $c = 0 as $c;
            const ONE: $c = 1 as $c;

            #[allow(clippy::unnecessary_cast, reason = "one of the types is $c itself")]
            fn read(at: &Elements<'_>, start: usize, into: &mut [$c]) {
                match at.dtype() {
                    own if own == Type::$own => at.gather(start, into),
                    Type::F16 => $load_f16(at, start, into),
                    Type::BF16 => $load_bf16(at, start, into),
                    Type::F32 => load(at, start, into, |x: f32| x as $c),
                    Type::F64 => load(at, start, into, |x: f64| x as $c),
                    Type::I8 => load(at, start, into, |x: i8| x as $c),
                    Type::I16 => load(at, start, into, |x: i16| x as $c),
                    Type::I32 => load(at, start, into, |x: i32| x as $c),
                    Type::I64 => load(at, start, into, |x: i64| x as $c),
                    Type::U8 => load(at, start, into, |x: u8| x as $c),
                    Type::U16 => load(at, start, into, |x: u16| x as $c),
                    Type::U32 => load(at, start, into, |x: u32| x as $c),
                    Type::U64 => load(at, start, into, |x: u64| x as $c),
                    Type::Bool => load(at, start, into, |x: u8| u8::from(x != 0) as $c),
                    Type::C64 | Type::C128 => unreachable!("complex numbers are only moved"),
                }
            }

            #[allow(clippy::unnecessary_cast, reason = "one of the types is $c itself")]
            fn write(at: &Elements<'_>, start: usize, from: &[$c]) {
                match at.dtype() {
                    own if own == Type::$own => at.scatter(start, from),
                    Type::F16 => $store_f16(at, start, from),
                    Type::BF16 => $store_bf16(at, start, from),
                    Type::F32 => store(at, start, from, |x: $c| x as f32),
                    Type::F64 => store(at, start, from, |x: $c| x as f64),
                    Type::I8 => store(at, start, from, |x: $c| x as i8),
                    Type::I16 => store(at, start, from, |x: $c| x as i16),
                    Type::I32 => store(at, start, from, |x: $c| x as i32),
                    Type::I64 => store(at, start, from, |x: $c| x as i64),
                    Type::U8 => store(at, start, from, |x: $c| x as u8),
                    Type::U16 => store(at, start, from, |x: $c| x as u16),
                    Type::U32 => store(at, start, from, |x: $c| x as u32),
                    Type::U64 => store(at, start, from, |x: $c| x as u64),
                    Type::Bool => store(at, start, from, |x: $c| u8::from(x != 0 as $c)),
                    Type::C64 | Type::C128 => unreachable!("complex numbers are only moved"),
                }
            }

            fn from_scalar(value: Scalar) -> $c {
                $from_scalar(value) as $c
            }

            #[inline(always)]
            fn is_nan(self) -> bool {
                $is_nan(self)
            }
        }
    };
}

compute!(f32 is F32; from_scalar: Scalar::to_f64; is_nan: f32::is_nan;
    load: load_half::<f16>, load_half::<bf16>; store: store_half::<f16>, store_half::<bf16>);
compute!(f64 is F64; from_scalar: Scalar::to_f64; is_nan: f64::is_nan;
    load: |s, i, to| load(s, i, to, f16::to_f64), |s, i, to| load(s, i, to, bf16::to_f64);
    store: |s, i, from| store(s, i, from, |x| f16::from_f32(round_to_odd(x))),
           |s, i, from| store(s, i, from, |x| bf16::from_f32(round_to_odd(x))));
compute!(i64 is I64; from_scalar: Scalar::to_i64; is_nan: |_| false;
    load: |s, i, to| load(s, i, to, |x: f16| x.to_f32() as i64),
          |s, i, to| load(s, i, to, |x: bf16| x.to_f32() as i64);
    store: |s, i, from| store(s, i, from, |x| f16::from_f32(round_to_odd(x as f64))),
           |s, i, from| store(s, i, from, |x| bf16::from_f32(round_to_odd(x as f64))));
compute!(u64 is U64; from_scalar: Scalar::to_i64; is_nan: |_| false;
    load: |s, i, to| load(s, i, to, |x: f16| x.to_f32() as u64),
          |s, i, to| load(s, i, to, |x: bf16| x.to_f32() as u64);
    store: |s, i, from| store(s, i, from, |x| f16::from_f32(round_to_odd(x as f64))),
           |s, i, from| store(s, i, from, |x| bf16::from_f32(round_to_odd(x as f64))));

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn doubles_round_to_halves_once() {
        // 1 + 2^-11 lies between two halves; the tiny excess, lost in f32, decides.
        let just_above = 1.0 + 2f64.powi(-11) + 2f64.powi(-40);
        assert_eq!(
            f16::from_f32(round_to_odd(just_above)).to_f32(),
            1.0 + 2f32.powi(-10)
        );
        assert_eq!(
            f16::from_f32(round_to_odd(1.0 + 2f64.powi(-11))).to_f32(),
            1.0
        );
        assert_eq!(f16::from_f32(round_to_odd(-1e300)), f16::NEG_INFINITY);
        assert!(f16::from_f32(round_to_odd(f64::NAN)).is_nan());
    }
}
