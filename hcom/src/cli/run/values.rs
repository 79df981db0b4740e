//! Tensors as JSON: nested lists, or `{"dtype", "shape", "data": [flat]}`.
//!
//! NaN and the infinities are strings, a complex number is `[re, im]`, integers are exact.

use std::fmt::{Debug, Write as _};

use half::{bf16, f16};
use hcom_ir::{DType, Element, Literal};
use serde_json::Value;

/// Where a value does not fit its type.
#[derive(Debug, PartialEq)]
pub(super) struct Mistake {
    /// The place inside the value, such as `[1][0]`; empty for the whole.
    pub(super) place: String,
    pub(super) expected: String,
    pub(super) got: String,
}

/// Reads a value of the given element type and shape.
pub(super) fn parse(value: &Value, dtype: DType, shape: &[u64]) -> Result<Literal, Mistake> {
    let mut bytes = Vec::new();
    match value {
        Value::Object(fields) => {
            let data = fields.get("data");
            let same = fields.get("dtype").and_then(Value::as_str) == Some(dtype.name())
                && fields.get("shape") == Some(&Value::from(shape));
            let (Some(data), true) = (data, same && fields.len() == 3) else {
                return Err(Mistake {
                    place: String::new(),
                    expected: format!(r#"{{"dtype": "{dtype}", "shape": {shape:?}, "data": […]}}"#),
                    got: shown(&Value::Object(
                        fields
                            .iter()
                            .map(|(name, field)| match field {
                                Value::Array(_) if name == "data" => {
                                    (name.clone(), Value::from("…"))
                                }
                                _ => (name.clone(), field.clone()),
                            })
                            .collect(),
                    )),
                });
            };
            let count: u64 = shape.iter().product();
            nested(data, dtype, &[count], &mut vec![], &mut bytes).map_err(|mistake| Mistake {
                place: format!(".data{}", mistake.place),
                ..mistake
            })?;
        }
        _ => nested(value, dtype, shape, &mut vec![], &mut bytes)?,
    }
    Ok(Literal {
        dtype,
        shape: shape.to_vec(),
        bytes,
    })
}

fn nested(
    value: &Value,
    dtype: DType,
    shape: &[u64],
    place: &mut Vec<usize>,
    bytes: &mut Vec<u8>,
) -> Result<(), Mistake> {
    let mistake = |place: &[usize], expected: String| Mistake {
        place: place.iter().map(|index| format!("[{index}]")).collect(),
        expected,
        got: shown(value),
    };
    let [size, inner @ ..] = shape else {
        return element(value, dtype, bytes).map_err(|expected| mistake(place, expected));
    };
    match value {
        Value::Array(items) if items.len() as u64 == *size => {
            for (index, item) in items.iter().enumerate() {
                place.push(index);
                nested(item, dtype, inner, place, bytes)?;
                place.pop();
            }
            Ok(())
        }
        Value::Array(items) => Err(Mistake {
            got: format!("a list of {}", items.len()),
            ..mistake(place, format!("a list of {size}"))
        }),
        _ => Err(mistake(place, format!("a list of {size}"))),
    }
}

/// Appends one element; the error says what was expected.
fn element(value: &Value, dtype: DType, bytes: &mut Vec<u8>) -> Result<(), String> {
    let real = |value: &Value| {
        let number = match value {
            Value::String(text) => match text.as_str() {
                "NaN" => Some(f64::NAN),
                "Infinity" => Some(f64::INFINITY),
                "-Infinity" => Some(f64::NEG_INFINITY),
                _ => None,
            },
            _ => value.as_f64(),
        };
        number.ok_or_else(|| format!(r#"a number, "NaN", "Infinity" or "-Infinity" ({dtype})"#))
    };
    let complex = |value: &Value| match value.as_array().map(Vec::as_slice) {
        Some([re, im]) => Ok([real(re)?, real(im)?]),
        _ => Err(format!("[re, im] ({dtype})")),
    };
    match dtype {
        DType::Bool => match (value.as_bool(), value.as_u64()) {
            (Some(truth), _) => truth.write_le(bytes),
            (None, Some(bit @ 0..=1)) => (bit == 1).write_le(bytes),
            _ => return Err("true, false, 0 or 1 (bool)".into()),
        },
        DType::I8 => integer::<i8>(value, bytes)?,
        DType::I16 => integer::<i16>(value, bytes)?,
        DType::I32 => integer::<i32>(value, bytes)?,
        DType::I64 => integer::<i64>(value, bytes)?,
        DType::U8 => integer::<u8>(value, bytes)?,
        DType::U16 => integer::<u16>(value, bytes)?,
        DType::U32 => integer::<u32>(value, bytes)?,
        DType::U64 => integer::<u64>(value, bytes)?,
        DType::F16 => f16::from_f64(real(value)?).write_le(bytes),
        DType::BF16 => bf16::from_f64(real(value)?).write_le(bytes),
        DType::F32 => (real(value)? as f32).write_le(bytes),
        DType::F64 => real(value)?.write_le(bytes),
        DType::C64 => complex(value)?.map(|part| part as f32).write_le(bytes),
        DType::C128 => complex(value)?.write_le(bytes),
    }
    Ok(())
}

fn integer<T: Element + TryFrom<i128> + IntegerRange>(
    value: &Value,
    bytes: &mut Vec<u8>,
) -> Result<(), String> {
    let exact = value
        .as_i64()
        .map(i128::from)
        .or_else(|| value.as_u64().map(i128::from));
    match exact.and_then(|number| T::try_from(number).ok()) {
        Some(number) => {
            number.write_le(bytes);
            Ok(())
        }
        None => Err(format!(
            "an integer from {} to {} ({})",
            T::LEAST,
            T::MOST,
            T::DTYPE
        )),
    }
}

trait IntegerRange {
    const LEAST: i128;
    const MOST: i128;
}

macro_rules! integer_ranges {
    ($($ty:ty),*) => {$(
        impl IntegerRange for $ty {
            const LEAST: i128 = <$ty>::MIN as i128;
            const MOST: i128 = <$ty>::MAX as i128;
        }
    )*};
}

integer_ranges!(i8, i16, i32, i64, u8, u16, u32, u64);

/// A value as a message shows it: short.
fn shown(value: &Value) -> String {
    const LONGEST: usize = 120;
    let text = value.to_string();
    match text.char_indices().nth(LONGEST) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text,
    }
}

/// Appends a value as nested lists.
pub(super) fn write(out: &mut String, literal: &Literal) {
    match literal.dtype {
        DType::Bool => elements::<bool>(out, literal, display),
        DType::I8 => elements::<i8>(out, literal, display),
        DType::I16 => elements::<i16>(out, literal, display),
        DType::I32 => elements::<i32>(out, literal, display),
        DType::I64 => elements::<i64>(out, literal, display),
        DType::U8 => elements::<u8>(out, literal, display),
        DType::U16 => elements::<u16>(out, literal, display),
        DType::U32 => elements::<u32>(out, literal, display),
        DType::U64 => elements::<u64>(out, literal, display),
        DType::F16 => elements::<f16>(out, literal, |out, value| real(out, value.to_f32())),
        DType::BF16 => elements::<bf16>(out, literal, |out, value| real(out, value.to_f32())),
        DType::F32 => elements::<f32>(out, literal, real),
        DType::F64 => elements::<f64>(out, literal, real),
        DType::C64 => elements::<[f32; 2]>(out, literal, complex),
        DType::C128 => elements::<[f64; 2]>(out, literal, complex),
    }
}

fn elements<T: Element>(out: &mut String, literal: &Literal, one: impl Fn(&mut String, T)) {
    let mut bytes = literal.bytes.chunks_exact(T::DTYPE.bytes() as usize);
    list(out, &literal.shape, &mut |out| {
        if let Some(bytes) = bytes.next() {
            one(out, T::read_le(bytes));
        }
    });
}

fn list(out: &mut String, shape: &[u64], one: &mut impl FnMut(&mut String)) {
    let [size, inner @ ..] = shape else {
        return one(out);
    };
    out.push('[');
    for index in 0..*size {
        if index > 0 {
            out.push_str(", ");
        }
        list(out, inner, one);
    }
    out.push(']');
}

fn display(out: &mut String, value: impl std::fmt::Display) {
    let _ = write!(out, "{value}");
}

/// The shortest number that reads back as this one.
fn real<T: Copy + Debug + Into<f64>>(out: &mut String, value: T) {
    let wide: f64 = value.into();
    let _ = match wide {
        _ if wide.is_nan() => write!(out, r#""NaN""#),
        f64::INFINITY => write!(out, r#""Infinity""#),
        f64::NEG_INFINITY => write!(out, r#""-Infinity""#),
        _ => write!(out, "{value:?}"),
    };
}

fn complex<T: Copy + Debug + Into<f64>>(out: &mut String, [re, im]: [T; 2]) {
    out.push('[');
    real(out, re);
    out.push_str(", ");
    real(out, im);
    out.push(']');
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Parses and prints again.
    #[track_caller]
    fn check(json: &str, dtype: DType, shape: &[u64], expected: &str) {
        let literal = parse(&serde_json::from_str(json).unwrap(), dtype, shape).unwrap();
        let mut out = String::new();
        write(&mut out, &literal);
        assert_eq!(out, expected);
        // What is printed reads back as the same bits.
        assert_eq!(
            parse(&serde_json::from_str(&out).unwrap(), dtype, shape).unwrap(),
            literal
        );
    }

    #[track_caller]
    fn refused(json: &str, dtype: DType, shape: &[u64], place: &str, expected: &str, got: &str) {
        let mistake = parse(&serde_json::from_str(json).unwrap(), dtype, shape).unwrap_err();
        assert_eq!(
            (&*mistake.place, &*mistake.expected, &*mistake.got),
            (place, expected, got)
        );
    }

    #[test]
    fn nested_lists_and_flat_data() {
        check(
            "[[1, 2], [3, 4.5]]",
            DType::F32,
            &[2, 2],
            "[[1.0, 2.0], [3.0, 4.5]]",
        );
        check(
            r#"{"dtype": "i32", "shape": [2, 1], "data": [7, -8]}"#,
            DType::I32,
            &[2, 1],
            "[[7], [-8]]",
        );
        check("3", DType::F64, &[], "3.0");
    }

    #[test]
    fn sizes_of_zero() {
        check("[]", DType::F32, &[0, 3], "[]");
        check("[[], []]", DType::F32, &[2, 0], "[[], []]");
        check(
            r#"{"dtype": "f32", "shape": [2, 0], "data": []}"#,
            DType::F32,
            &[2, 0],
            "[[], []]",
        );
    }

    #[test]
    fn integers_are_exact_to_the_ends_of_their_range() {
        check(
            "[9223372036854775807, -9223372036854775808]",
            DType::I64,
            &[2],
            "[9223372036854775807, -9223372036854775808]",
        );
        check(
            "[18446744073709551615]",
            DType::U64,
            &[1],
            "[18446744073709551615]",
        );
        refused(
            "[18446744073709551616]",
            DType::U64,
            &[1],
            "[0]",
            "an integer from 0 to 18446744073709551615 (u64)",
            "1.8446744073709552e+19",
        );
        refused(
            "[1, 300]",
            DType::U8,
            &[2],
            "[1]",
            "an integer from 0 to 255 (u8)",
            "300",
        );
        refused(
            "[1.5]",
            DType::I32,
            &[1],
            "[0]",
            "an integer from -2147483648 to 2147483647 (i32)",
            "1.5",
        );
    }

    #[test]
    fn floats_print_short_and_have_names_where_json_has_no_number() {
        check(
            r#"["NaN", "Infinity", "-Infinity", -0.0]"#,
            DType::F32,
            &[4],
            r#"["NaN", "Infinity", "-Infinity", -0.0]"#,
        );
        check(
            "[0.1, 1e-40, 3.4028235e38]",
            DType::F32,
            &[3],
            "[0.1, 1e-40, 3.4028235e38]",
        );
        check("[0.1, 65504]", DType::F16, &[2], "[0.099975586, 65504.0]");
        check("[0.1]", DType::BF16, &[1], "[0.100097656]");
        refused(
            r#"["nan"]"#,
            DType::F32,
            &[1],
            "[0]",
            r#"a number, "NaN", "Infinity" or "-Infinity" (f32)"#,
            r#""nan""#,
        );
    }

    #[test]
    fn complex_numbers_and_truth_values() {
        check(
            r#"[[1, -2], [0, "Infinity"]]"#,
            DType::C64,
            &[2],
            r#"[[1.0, -2.0], [0.0, "Infinity"]]"#,
        );
        check("[true, 0, 1]", DType::Bool, &[3], "[true, false, true]");
        refused("[[1]]", DType::C128, &[1], "[0]", "[re, im] (c128)", "[1]");
        refused(
            "[2]",
            DType::Bool,
            &[1],
            "[0]",
            "true, false, 0 or 1 (bool)",
            "2",
        );
    }

    #[test]
    fn a_wrong_shape_is_shown_where_it_is_wrong() {
        refused(
            "[[1, 2], [3]]",
            DType::F32,
            &[2, 2],
            "[1]",
            "a list of 2",
            "a list of 1",
        );
        refused("[1, 2]", DType::F32, &[2, 2], "[0]", "a list of 2", "1");
        refused(
            "[1, 2]",
            DType::F32,
            &[],
            "",
            r#"a number, "NaN", "Infinity" or "-Infinity" (f32)"#,
            "[1,2]",
        );
        refused(
            r#"{"dtype": "f16", "shape": [1], "data": [1]}"#,
            DType::F32,
            &[1],
            "",
            r#"{"dtype": "f32", "shape": [1], "data": […]}"#,
            r#"{"dtype":"f16","shape":[1],"data":"…"}"#,
        );
    }
}
