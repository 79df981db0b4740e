//! Element types and the types of values.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::shape::{FromFn, Shape};

/// The type of one element.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum DType {
    /// One byte, 0 or 1.
    Bool,
    /// Signed 8-bit integer.
    I8,
    /// Signed 16-bit integer.
    I16,
    /// Signed 32-bit integer.
    I32,
    /// Signed 64-bit integer.
    I64,
    /// Unsigned 8-bit integer.
    U8,
    /// Unsigned 16-bit integer.
    U16,
    /// Unsigned 32-bit integer.
    U32,
    /// Unsigned 64-bit integer.
    U64,
    /// IEEE 754 binary16.
    F16,
    /// bfloat16: the upper half of a binary32.
    BF16,
    /// IEEE 754 binary32.
    F32,
    /// IEEE 754 binary64.
    F64,
    /// Complex number of two `f32`: real part, then imaginary part.
    C64,
    /// Complex number of two `f64`: real part, then imaginary part.
    C128,
}

impl DType {
    /// Every element type, in declaration order.
    pub const ALL: [DType; 15] = [
        DType::Bool,
        DType::I8,
        DType::I16,
        DType::I32,
        DType::I64,
        DType::U8,
        DType::U16,
        DType::U32,
        DType::U64,
        DType::F16,
        DType::BF16,
        DType::F32,
        DType::F64,
        DType::C64,
        DType::C128,
    ];

    /// The name in the text form, for example `bf16`.
    pub const fn name(self) -> &'static str {
        match self {
            DType::Bool => "bool",
            DType::I8 => "i8",
            DType::I16 => "i16",
            DType::I32 => "i32",
            DType::I64 => "i64",
            DType::U8 => "u8",
            DType::U16 => "u16",
            DType::U32 => "u32",
            DType::U64 => "u64",
            DType::F16 => "f16",
            DType::BF16 => "bf16",
            DType::F32 => "f32",
            DType::F64 => "f64",
            DType::C64 => "c64",
            DType::C128 => "c128",
        }
    }

    /// Size of one element in bytes.
    pub const fn bytes(self) -> u64 {
        match self {
            DType::Bool | DType::I8 | DType::U8 => 1,
            DType::I16 | DType::U16 | DType::F16 | DType::BF16 => 2,
            DType::I32 | DType::U32 | DType::F32 => 4,
            DType::I64 | DType::U64 | DType::F64 | DType::C64 => 8,
            DType::C128 => 16,
        }
    }

    /// Whether this is a real floating-point type.
    pub const fn is_float(self) -> bool {
        matches!(self, DType::F16 | DType::BF16 | DType::F32 | DType::F64)
    }

    /// Whether this is a signed or unsigned integer; `bool` is not.
    pub const fn is_integer(self) -> bool {
        self.is_signed_integer() || matches!(self, DType::U8 | DType::U16 | DType::U32 | DType::U64)
    }

    /// Whether this is a complex type.
    pub const fn is_complex(self) -> bool {
        matches!(self, DType::C64 | DType::C128)
    }

    /// The type of the real and of the imaginary part of a complex type.
    pub const fn part(self) -> Option<DType> {
        match self {
            DType::C64 => Some(DType::F32),
            DType::C128 => Some(DType::F64),
            _ => None,
        }
    }

    /// Whether values may be negative: signed integers, floats and complex numbers.
    pub const fn is_signed(self) -> bool {
        self.is_signed_integer() || self.is_float() || self.is_complex()
    }

    const fn is_signed_integer(self) -> bool {
        matches!(self, DType::I8 | DType::I16 | DType::I32 | DType::I64)
    }
}

impl fmt::Display for DType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// The text is not the name of an element type.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "unknown element type `{0}`; one of bool i8 i16 i32 i64 u8 u16 u32 u64 f16 bf16 f32 f64 c64 c128"
)]
pub struct UnknownDType(pub String);

impl FromStr for DType {
    type Err = UnknownDType;

    fn from_str(text: &str) -> Result<Self, UnknownDType> {
        Self::ALL
            .into_iter()
            .find(|dtype| dtype.name() == text)
            .ok_or_else(|| UnknownDType(text.to_owned()))
    }
}

/// The type of a value: element type and shape. Values are dense and row-major.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Type {
    /// Element type.
    pub dtype: DType,
    /// Sizes, outermost first.
    pub shape: Shape,
}

impl Type {
    /// A type of the given element type and shape.
    pub fn new(dtype: DType, shape: Shape) -> Self {
        Self { dtype, shape }
    }

    /// A type whose sizes are all known.
    pub fn fixed(dtype: DType, dims: &[u64]) -> Self {
        Self {
            dtype,
            shape: Shape::fixed(dims),
        }
    }

    /// Number of elements; `None` when a size is a symbol or the product exceeds 64 bits.
    pub fn elements(&self) -> Option<u64> {
        self.shape.elements()
    }

    /// Size in bytes; `None` when a size is a symbol or the product exceeds 64 bits.
    pub fn bytes(&self) -> Option<u64> {
        self.elements()?.checked_mul(self.dtype.bytes())
    }

    /// This type in text, with `symbols` as the names of the symbols.
    pub fn display<'a>(&'a self, symbols: &'a [String]) -> impl fmt::Display + 'a {
        FromFn(move |f: &mut fmt::Formatter<'_>| {
            write!(f, "{}{}", self.dtype, self.shape.display(symbols))
        })
    }
}

impl fmt::Display for Type {
    /// Symbols appear as `s0`, `s1`, …; [`Type::display`] uses their names.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.display(&[]).fmt(f)
    }
}
