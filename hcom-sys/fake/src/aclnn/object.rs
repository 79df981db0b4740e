//! The objects that a caller describes operands with: tensors, scalars, arrays and lists of them.

use std::ptr;
use std::sync::Arc;

use super::dtype::Type;
use crate::handle::{self, Table};

/// Live objects of one kind.
pub(crate) struct Registry<T> {
    /// Name of the kind in C.
    pub(crate) kind: &'static str,
    table: Table<T>,
}

impl<T> Registry<T> {
    pub(crate) const fn new(kind: &'static str) -> Registry<T> {
        Registry {
            kind,
            table: Table::new(),
        }
    }

    /// Takes the object over and returns its handle.
    pub(crate) fn insert(&self, object: T) -> usize {
        let handle = handle::fresh();
        self.table.insert(handle, Arc::new(object));
        handle
    }

    /// The object, if it is live.
    pub(crate) fn get(&self, handle: usize) -> Option<Arc<T>> {
        self.table.get(ptr::without_provenance(handle))
    }

    /// Ends the handle; the object itself lives on where it is still in use.
    pub(crate) fn remove(&self, handle: usize) -> Option<Arc<T>> {
        self.table.remove(ptr::without_provenance(handle))
    }
}

impl<T: Clone> Registry<T> {
    /// Changes what the handle stands for from now on; who holds the object already keeps what they have.
    pub(crate) fn update<R>(&self, handle: usize, change: impl FnOnce(&mut T) -> R) -> Option<R> {
        let mut object = T::clone(&*self.get(handle)?);
        let result = change(&mut object);
        self.table.insert(handle, Arc::new(object));
        Some(result)
    }
}

/// A tensor as its creator described it; operators check it when they meet it.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Tensor {
    /// Sizes of the dimensions.
    pub(crate) dims: Vec<i64>,
    /// Distances in elements.
    pub(crate) strides: Vec<i64>,
    /// Element 0 in elements from the start of the storage.
    pub(crate) offset: i64,
    /// `aclDataType`, known or not.
    pub(crate) dtype: i32,
    /// `aclFormat`, known or not.
    pub(crate) format: i32,
    /// Sizes of the storage.
    pub(crate) storage: Vec<i64>,
    /// Device address of the storage.
    pub(crate) address: usize,
}

/// A number with its type.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Scalar {
    pub(crate) dtype: Type,
    pub(crate) value: Number,
}

/// The value of a scalar in the widest form of its category.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Number {
    Int(i64),
    UInt(u64),
    Float(f64),
    Complex(f64, f64),
}

impl Scalar {
    /// A scalar from its bytes in memory order; there must be as many as the type has.
    pub(crate) fn from_bytes(dtype: Type, bytes: &[u8]) -> Scalar {
        fn array<const N: usize>(bytes: &[u8]) -> [u8; N] {
            bytes
                .try_into()
                .expect("the caller passes as many bytes as the type has")
        }
        let value = match dtype {
            Type::Bool => Number::Int((bytes[0] != 0).into()),
            Type::I8 => Number::Int(i8::from_ne_bytes(array(bytes)).into()),
            Type::I16 => Number::Int(i16::from_ne_bytes(array(bytes)).into()),
            Type::I32 => Number::Int(i32::from_ne_bytes(array(bytes)).into()),
            Type::I64 => Number::Int(i64::from_ne_bytes(array(bytes))),
            Type::U8 => Number::Int(bytes[0].into()),
            Type::U16 => Number::Int(u16::from_ne_bytes(array(bytes)).into()),
            Type::U32 => Number::Int(u32::from_ne_bytes(array(bytes)).into()),
            Type::U64 => Number::UInt(u64::from_ne_bytes(array(bytes))),
            Type::F16 => Number::Float(half::f16::from_ne_bytes(array(bytes)).to_f64()),
            Type::BF16 => Number::Float(half::bf16::from_ne_bytes(array(bytes)).to_f64()),
            Type::F32 => Number::Float(f32::from_ne_bytes(array(bytes)).into()),
            Type::F64 => Number::Float(f64::from_ne_bytes(array(bytes))),
            Type::C64 => Number::Complex(
                f32::from_ne_bytes(array(&bytes[..4])).into(),
                f32::from_ne_bytes(array(&bytes[4..])).into(),
            ),
            Type::C128 => Number::Complex(
                f64::from_ne_bytes(array(&bytes[..8])),
                f64::from_ne_bytes(array(&bytes[8..])),
            ),
        };
        Scalar { dtype, value }
    }

    /// The value as a float; the real part of a complex number.
    pub(crate) fn to_f64(self) -> f64 {
        match self.value {
            Number::Int(x) => x as f64,
            Number::UInt(x) => x as f64,
            Number::Float(x) | Number::Complex(x, _) => x,
        }
    }

    /// The value as an integer, truncated; the real part of a complex number.
    pub(crate) fn to_i64(self) -> i64 {
        match self.value {
            Number::Int(x) => x,
            Number::UInt(x) => x as i64,
            Number::Float(x) | Number::Complex(x, _) => x as i64,
        }
    }
}

pub(crate) static TENSORS: Registry<Tensor> = Registry::new("aclTensor");
pub(crate) static SCALARS: Registry<Scalar> = Registry::new("aclScalar");
pub(crate) static INT_ARRAYS: Registry<Vec<i64>> = Registry::new("aclIntArray");
pub(crate) static FLOAT_ARRAYS: Registry<Vec<f32>> = Registry::new("aclFloatArray");
pub(crate) static BOOL_ARRAYS: Registry<Vec<bool>> = Registry::new("aclBoolArray");
/// Handles of the member tensors, which the list owns.
pub(crate) static TENSOR_LISTS: Registry<Vec<usize>> = Registry::new("aclTensorList");
/// Handles of the member scalars, which the list owns.
pub(crate) static SCALAR_LISTS: Registry<Vec<usize>> = Registry::new("aclScalarList");

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn handles_are_not_used_again() {
        static NUMBERS: Registry<i32> = Registry::new("number");
        let first = NUMBERS.insert(1);
        assert_eq!(NUMBERS.update(first, |n| std::mem::replace(n, 5)), Some(1));
        assert_eq!(NUMBERS.remove(first).as_deref(), Some(&5));
        let second = NUMBERS.insert(2);
        assert_ne!(first, second);
        assert_eq!(NUMBERS.get(first), None);
        assert_eq!(NUMBERS.remove(first), None);
        assert_eq!(NUMBERS.get(second).as_deref(), Some(&2));
    }
}
