//! The text form of constant data.
//!
//! Small literals are nested lists of numbers that read back bit for bit; large ones, and those
//! with NaNs other than the usual one, are the bytes in hexadecimal.

use std::fmt::{self, Write as _};

use half::{bf16, f16};

use crate::literal::{Element, Literal, bf16_from_f64, f16_from_f64};
use crate::types::DType;

/// Literals of more elements are printed as bytes.
const MAX_READABLE: u64 = 64;

/// Writes the literal; in brief, the bytes of one that is not readable are left out.
pub(super) fn print(literal: &Literal, brief: bool, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    write!(f, "{} ", literal.ty())?;
    if brief && (literal.check().is_err() || !is_readable(literal)) {
        return f.write_str("hex \"…\"");
    }
    if !is_readable(literal) {
        f.write_str("hex \"")?;
        for byte in &literal.bytes {
            write!(f, "{byte:02x}")?;
        }
        return f.write_char('"');
    }
    let mut elements = literal.bytes.chunks_exact(literal.dtype.bytes() as usize);
    print_nested(literal.dtype, &literal.shape, &mut elements, f)
}

fn is_readable(literal: &Literal) -> bool {
    // Sizes of 0 print the lists around them, so they count as 1.
    let lists = literal
        .shape
        .iter()
        .try_fold(1u64, |product, &size| product.checked_mul(size.max(1)));
    let element = literal.dtype.bytes() as usize;
    lists.is_some_and(|lists| lists <= MAX_READABLE)
        && literal
            .bytes
            .chunks_exact(element)
            .all(|bytes| match literal.dtype {
                DType::F16 => usual(f16::read_le(bytes), f16::is_nan, f16::NAN),
                DType::BF16 => usual(bf16::read_le(bytes), bf16::is_nan, bf16::NAN),
                DType::F32 => usual(f32::read_le(bytes), f32::is_nan, f32::NAN),
                DType::F64 => usual(f64::read_le(bytes), f64::is_nan, f64::NAN),
                DType::C64 => <[f32; 2]>::read_le(bytes)
                    .into_iter()
                    .all(|x| usual(x, f32::is_nan, f32::NAN)),
                DType::C128 => <[f64; 2]>::read_le(bytes)
                    .into_iter()
                    .all(|x| usual(x, f64::is_nan, f64::NAN)),
                _ => true,
            })
}

/// Whether the value is a number or has the bits of the NaN that `nan` stands for.
fn usual<T: Element>(value: T, is_nan: impl Fn(T) -> bool, nan: T) -> bool {
    let bits = |value: T| {
        let mut bytes = Vec::new();
        value.write_le(&mut bytes);
        bytes
    };
    !is_nan(value) || bits(value) == bits(nan)
}

fn print_nested<'a>(
    dtype: DType,
    shape: &[u64],
    elements: &mut impl Iterator<Item = &'a [u8]>,
    f: &mut fmt::Formatter<'_>,
) -> fmt::Result {
    let Some((&size, inner)) = shape.split_first() else {
        return elements
            .next()
            .map_or(Ok(()), |bytes| print_element(dtype, bytes, f));
    };
    f.write_char('[')?;
    for index in 0..size {
        if index > 0 {
            f.write_str(", ")?;
        }
        print_nested(dtype, inner, elements, f)?;
    }
    f.write_char(']')
}

fn print_element(dtype: DType, bytes: &[u8], f: &mut fmt::Formatter<'_>) -> fmt::Result {
    match dtype {
        DType::Bool => write!(f, "{}", bool::read_le(bytes)),
        DType::I8 => write!(f, "{}", i8::read_le(bytes)),
        DType::I16 => write!(f, "{}", i16::read_le(bytes)),
        DType::I32 => write!(f, "{}", i32::read_le(bytes)),
        DType::I64 => write!(f, "{}", i64::read_le(bytes)),
        DType::U8 => write!(f, "{}", u8::read_le(bytes)),
        DType::U16 => write!(f, "{}", u16::read_le(bytes)),
        DType::U32 => write!(f, "{}", u32::read_le(bytes)),
        DType::U64 => write!(f, "{}", u64::read_le(bytes)),
        DType::F16 => single(f16::read_le(bytes).to_f32(), f),
        DType::BF16 => single(bf16::read_le(bytes).to_f32(), f),
        DType::F32 => single(f32::read_le(bytes), f),
        DType::F64 => double(f64::read_le(bytes), f),
        DType::C64 => {
            let [re, im] = <[f32; 2]>::read_le(bytes);
            f.write_char('(')?;
            single(re, f)?;
            f.write_str(", ")?;
            single(im, f)?;
            f.write_char(')')
        }
        DType::C128 => {
            let [re, im] = <[f64; 2]>::read_le(bytes);
            f.write_char('(')?;
            double(re, f)?;
            f.write_str(", ")?;
            double(im, f)?;
            f.write_char(')')
        }
    }
}

fn single(value: f32, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    shortest(&format!("{value:?}"), f)
}

fn double(value: f64, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    shortest(&format!("{value:?}"), f)
}

/// The shortest digits that read back to the same value, without a trailing `.0`.
fn shortest(digits: &str, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    match digits {
        "NaN" => f.write_str("nan"),
        digits => f.write_str(digits.strip_suffix(".0").unwrap_or(digits)),
    }
}

/// Appends the element written as `text` (a sign, then digits or `nan` or `inf`) to `bytes`; `None`
/// when it is no value of the real type `dtype`.
pub(super) fn read_element(dtype: DType, text: &str, bytes: &mut Vec<u8>) -> Option<()> {
    fn push<T: Element>(value: T, bytes: &mut Vec<u8>) {
        value.write_le(bytes);
    }
    match dtype {
        DType::Bool => push(text.parse::<bool>().ok()?, bytes),
        DType::I8 => push(text.parse::<i8>().ok()?, bytes),
        DType::I16 => push(text.parse::<i16>().ok()?, bytes),
        DType::I32 => push(text.parse::<i32>().ok()?, bytes),
        DType::I64 => push(text.parse::<i64>().ok()?, bytes),
        DType::U8 => push(text.parse::<u8>().ok()?, bytes),
        DType::U16 => push(text.parse::<u16>().ok()?, bytes),
        DType::U32 => push(text.parse::<u32>().ok()?, bytes),
        DType::U64 => push(text.parse::<u64>().ok()?, bytes),
        DType::F16 => push(f16_from_f64(read_f64(text)?), bytes),
        DType::BF16 => push(bf16_from_f64(read_f64(text)?), bytes),
        DType::F32 | DType::C64 => push(
            if text == "nan" {
                f32::NAN
            } else {
                text.parse::<f32>().ok()?
            },
            bytes,
        ),
        DType::F64 | DType::C128 => push(read_f64(text)?, bytes),
    }
    Some(())
}

/// A float; `nan` has the bits of [`f64::NAN`].
pub(super) fn read_f64(text: &str) -> Option<f64> {
    if text == "nan" {
        Some(f64::NAN)
    } else {
        text.parse().ok()
    }
}

/// The bytes written as pairs of hexadecimal digits.
pub(super) fn read_hex(text: &str) -> Option<Vec<u8>> {
    let digit = |byte: u8| char::from(byte).to_digit(16).map(|digit| digit as u8);
    let pairs = text.as_bytes().chunks_exact(2);
    if !pairs.remainder().is_empty() {
        return None;
    }
    pairs
        .map(|pair| Some(digit(pair[0])? << 4 | digit(pair[1])?))
        .collect()
}
