//! Elements as numbers of three kinds wide enough for all types.

use half::{bf16, f16};

use crate::literal::{Element, Literal, bf16_from_f64, f16_from_f64};
use crate::types::DType;

/// The elements of a literal.
pub(super) enum Data {
    /// All integers, and bool as 0 and 1.
    Int(Vec<i128>),
    /// All floats.
    Float(Vec<f64>),
    /// All complex numbers.
    Complex(Vec<[f64; 2]>),
}

fn elements<T: Element, U>(literal: &Literal, widen: impl Fn(T) -> U) -> Vec<U> {
    let size = literal.dtype.bytes() as usize;
    literal
        .bytes
        .chunks_exact(size)
        .map(|bytes| widen(T::read_le(bytes)))
        .collect()
}

pub(super) fn decode(literal: &Literal) -> Data {
    match literal.dtype {
        DType::Bool | DType::U8 => Data::Int(elements::<u8, _>(literal, i128::from)),
        DType::I8 => Data::Int(elements::<i8, _>(literal, i128::from)),
        DType::I16 => Data::Int(elements::<i16, _>(literal, i128::from)),
        DType::I32 => Data::Int(elements::<i32, _>(literal, i128::from)),
        DType::I64 => Data::Int(elements::<i64, _>(literal, i128::from)),
        DType::U16 => Data::Int(elements::<u16, _>(literal, i128::from)),
        DType::U32 => Data::Int(elements::<u32, _>(literal, i128::from)),
        DType::U64 => Data::Int(elements::<u64, _>(literal, i128::from)),
        DType::F16 => Data::Float(elements::<f16, _>(literal, f64::from)),
        DType::BF16 => Data::Float(elements::<bf16, _>(literal, f64::from)),
        DType::F32 => Data::Float(elements::<f32, _>(literal, f64::from)),
        DType::F64 => Data::Float(elements::<f64, _>(literal, |x| x)),
        DType::C64 => Data::Complex(elements::<[f32; 2], _>(literal, |[re, im]| {
            [re.into(), im.into()]
        })),
        DType::C128 => Data::Complex(elements::<[f64; 2], _>(literal, |x| x)),
    }
}

/// The integers of a literal of an integer type or bool.
pub(super) fn ints(literal: &Literal) -> Vec<i128> {
    match decode(literal) {
        Data::Int(values) => values,
        Data::Float(_) | Data::Complex(_) => unreachable!("the type rule admits integers only"),
    }
}

/// The floats of a literal of a float type.
pub(super) fn floats(literal: &Literal) -> Vec<f64> {
    match decode(literal) {
        Data::Float(values) => values,
        Data::Int(_) | Data::Complex(_) => unreachable!("the type rule admits floats only"),
    }
}

/// The complex numbers of a literal of a complex type.
pub(super) fn complexes(literal: &Literal) -> Vec<[f64; 2]> {
    match decode(literal) {
        Data::Complex(values) => values,
        Data::Int(_) | Data::Float(_) => unreachable!("the type rule admits complex numbers only"),
    }
}

fn bytes<T: Element, U: Copy>(values: &[U], narrow: impl Fn(U) -> T) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(values.len() * T::DTYPE.bytes() as usize);
    for &value in values {
        narrow(value).write_le(&mut bytes);
    }
    bytes
}

/// The sign and payload of a computed NaN depend on the processor; here there is one NaN.
fn usual(x: f64) -> f64 {
    if x.is_nan() { f64::NAN } else { x }
}

/// A literal of `dtype`, which is of the kind of the data: integers wrap, floats round to nearest,
/// bool is whether the number is not 0.
pub(super) fn encode(dtype: DType, shape: &[u64], data: &Data) -> Literal {
    let bytes = match (dtype, data) {
        (DType::Bool, Data::Int(values)) => bytes(values, |x| x != 0),
        (DType::I8, Data::Int(values)) => bytes(values, |x| x as i8),
        (DType::I16, Data::Int(values)) => bytes(values, |x| x as i16),
        (DType::I32, Data::Int(values)) => bytes(values, |x| x as i32),
        (DType::I64, Data::Int(values)) => bytes(values, |x| x as i64),
        (DType::U8, Data::Int(values)) => bytes(values, |x| x as u8),
        (DType::U16, Data::Int(values)) => bytes(values, |x| x as u16),
        (DType::U32, Data::Int(values)) => bytes(values, |x| x as u32),
        (DType::U64, Data::Int(values)) => bytes(values, |x| x as u64),
        (DType::F16, Data::Float(values)) => bytes(values, f16_from_f64),
        (DType::BF16, Data::Float(values)) => bytes(values, bf16_from_f64),
        (DType::F32, Data::Float(values)) => bytes(values, |x| usual(x) as f32),
        (DType::F64, Data::Float(values)) => bytes(values, usual),
        (DType::C64, Data::Complex(values)) => {
            bytes(values, |parts| parts.map(|x| usual(x) as f32))
        }
        (DType::C128, Data::Complex(values)) => bytes(values, |parts| parts.map(usual)),
        _ => unreachable!("the data is of the kind of {dtype}"),
    };
    Literal {
        dtype,
        shape: shape.to_vec(),
        bytes,
    }
}

/// The float nearest to `value` once it is rounded to `dtype`: an inexact result has its last bit
/// set, so that rounding to fewer bits is not done twice.
pub(super) fn int_to_float(dtype: DType, value: i128) -> f64 {
    let magnitude = value.unsigned_abs();
    if dtype == DType::F64 || magnitude < 1 << 53 {
        return value as f64;
    }
    // The magnitude is below 2^64, so 11 bits go and 53 remain.
    let cut = (magnitude >> 11) | u128::from(magnitude & 0x7ff != 0);
    let float = cut as f64 * 2048.0;
    if value < 0 { -float } else { float }
}

/// Truncates towards zero and saturates at the range of `dtype`; NaN becomes 0.
pub(super) fn float_to_int(dtype: DType, value: f64) -> i128 {
    match dtype {
        DType::Bool => i128::from(value != 0.0),
        DType::I8 => i128::from(value as i8),
        DType::I16 => i128::from(value as i16),
        DType::I32 => i128::from(value as i32),
        DType::I64 => i128::from(value as i64),
        DType::U8 => i128::from(value as u8),
        DType::U16 => i128::from(value as u16),
        DType::U32 => i128::from(value as u32),
        _ => i128::from(value as u64),
    }
}
