//! Dense constant data.

use half::{bf16, f16};

use crate::diag::{Code, Diagnostic};
use crate::types::{DType, Type};

/// Constant data: dense, little endian, row-major.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Literal {
    /// Element type.
    pub dtype: DType,
    /// Sizes, outermost first; empty for a scalar.
    pub shape: Vec<u64>,
    /// `elements × dtype.bytes()` bytes.
    pub bytes: Vec<u8>,
}

impl Literal {
    /// A literal of these bytes. Fails when their number does not follow from type and shape, or
    /// a `bool` byte is neither 0 nor 1.
    pub fn new(dtype: DType, shape: Vec<u64>, bytes: Vec<u8>) -> Result<Self, Diagnostic> {
        let literal = Self {
            dtype,
            shape,
            bytes,
        };
        literal.check().map(|()| literal)
    }

    /// A literal of these elements, row-major. Fails when their number is not the product of
    /// `shape`.
    pub fn from_slice<T: Element>(shape: &[u64], elements: &[T]) -> Result<Self, Diagnostic> {
        let mut bytes = Vec::with_capacity(elements.len() * T::DTYPE.bytes() as usize);
        for element in elements {
            element.write_le(&mut bytes);
        }
        Self::new(T::DTYPE, shape.to_vec(), bytes)
    }

    /// A literal of rank 0.
    pub fn scalar<T: Element>(element: T) -> Self {
        let mut bytes = Vec::new();
        element.write_le(&mut bytes);
        Self {
            dtype: T::DTYPE,
            shape: Vec::new(),
            bytes,
        }
    }

    /// The elements, row-major; `None` when `T` is not the element type.
    pub fn to_vec<T: Element>(&self) -> Option<Vec<T>> {
        let bytes = T::DTYPE.bytes() as usize;
        (self.dtype == T::DTYPE).then(|| self.bytes.chunks_exact(bytes).map(T::read_le).collect())
    }

    /// The type of the value.
    pub fn ty(&self) -> Type {
        Type::fixed(self.dtype, &self.shape)
    }

    /// Number of elements.
    pub fn elements(&self) -> u64 {
        self.bytes.len() as u64 / self.dtype.bytes()
    }

    pub(crate) fn check(&self) -> Result<(), Diagnostic> {
        let expected = self.ty().bytes();
        if expected != Some(self.bytes.len() as u64) {
            let expected = match expected {
                Some(bytes) => format!("{bytes} bytes for {}", self.ty()),
                None => format!("a type below 2^64 bytes, not {}", self.ty()),
            };
            return Err(Diagnostic::new(
                Code::Attribute,
                "the data of the literal does not fit its type",
            )
            .expected(expected)
            .got(format!("{} bytes", self.bytes.len())));
        }
        if self.dtype == DType::Bool && self.bytes.iter().any(|&byte| byte > 1) {
            return Err(Diagnostic::new(
                Code::Attribute,
                "a bool literal holds a byte other than 0 and 1",
            ));
        }
        Ok(())
    }
}

/// A Rust type that is the element type of literals.
pub trait Element: Copy + sealed::Sealed {
    /// The element type.
    const DTYPE: DType;
    /// Appends the little-endian bytes of the element.
    fn write_le(&self, bytes: &mut Vec<u8>);
    /// Reads an element from exactly `DTYPE.bytes()` little-endian bytes.
    ///
    /// # Panics
    /// When `bytes` has another length.
    fn read_le(bytes: &[u8]) -> Self;
}

mod sealed {
    pub trait Sealed {}
}

macro_rules! element {
    ($($type:ty => $dtype:ident,)*) => {$(
        impl sealed::Sealed for $type {}

        impl Element for $type {
            const DTYPE: DType = DType::$dtype;

            fn write_le(&self, bytes: &mut Vec<u8>) {
                bytes.extend_from_slice(&self.to_le_bytes());
            }

            fn read_le(bytes: &[u8]) -> Self {
                Self::from_le_bytes(bytes.try_into().expect("as many bytes as the element has"))
            }
        }
    )*};
}

element! {
    i8 => I8, i16 => I16, i32 => I32, i64 => I64,
    u8 => U8, u16 => U16, u32 => U32, u64 => U64,
    f16 => F16, bf16 => BF16, f32 => F32, f64 => F64,
}

impl sealed::Sealed for bool {}

impl Element for bool {
    const DTYPE: DType = DType::Bool;

    fn write_le(&self, bytes: &mut Vec<u8>) {
        bytes.push(u8::from(*self));
    }

    fn read_le(bytes: &[u8]) -> Self {
        bytes[0] != 0
    }
}

macro_rules! complex {
    ($($part:ty => $dtype:ident,)*) => {$(
        impl sealed::Sealed for [$part; 2] {}

        impl Element for [$part; 2] {
            const DTYPE: DType = DType::$dtype;

            fn write_le(&self, bytes: &mut Vec<u8>) {
                self[0].write_le(bytes);
                self[1].write_le(bytes);
            }

            fn read_le(bytes: &[u8]) -> Self {
                let (re, im) = bytes.split_at(bytes.len() / 2);
                [<$part>::read_le(re), <$part>::read_le(im)]
            }
        }
    )*};
}

complex! { f32 => C64, f64 => C128, }

/// The nearest `f16`, ties to even.
pub(crate) fn f16_from_f64(value: f64) -> f16 {
    if value.is_nan() {
        f16::NAN
    } else {
        f16::from_f32(to_odd(value))
    }
}

/// The nearest `bf16`, ties to even.
pub(crate) fn bf16_from_f64(value: f64) -> bf16 {
    if value.is_nan() {
        bf16::NAN
    } else {
        bf16::from_f32(to_odd(value))
    }
}

/// Rounds to an `f32` such that rounding that to fewer bits gives the same as rounding at once: an
/// inexact result is cut and its last bit set.
fn to_odd(value: f64) -> f32 {
    let nearest = value as f32;
    if f64::from(nearest) == value {
        return nearest;
    }
    let away = u32::from(f64::from(nearest).abs() > value.abs());
    f32::from_bits((nearest.to_bits() - away) | 1)
}
