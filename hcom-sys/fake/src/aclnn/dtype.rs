//! Element types of tensors, their promotion and the casts that an operator may do on its own.

/// Element type of a tensor, one variant per `aclDataType` that this implementation can store.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Type {
    F32,
    F16,
    I8,
    I32,
    U8,
    I16,
    U16,
    U32,
    I64,
    U64,
    F64,
    Bool,
    C64,
    C128,
    BF16,
}

/// The type in which a kernel computes: 16-bit floats widen to `F32`, signed and small integers to `I64`
/// (sums and products wrap the same way after narrowing), `U64` stays itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Class {
    F32,
    F64,
    I64,
    U64,
}

use Type::*;

/// Types whose elements are real numbers with a fraction.
pub(crate) const FLOATS: &[Type] = &[F32, F16, BF16, F64];
/// Floats that the matrix and normalisation units accept.
pub(crate) const HALF_AND_SINGLE: &[Type] = &[F32, F16, BF16];
/// Floats and signed integers.
pub(crate) const SIGNED: &[Type] = &[F32, F16, BF16, F64, I8, I16, I32, I64];
/// Floats, signed integers and `U8`.
pub(crate) const NUMBERS: &[Type] = &[F32, F16, BF16, F64, I8, I16, I32, I64, U8];
/// [`NUMBERS`] and `Bool`.
pub(crate) const REALS: &[Type] = &[F32, F16, BF16, F64, I8, I16, I32, I64, U8, Bool];
/// Every type that converts to and from a real number.
pub(crate) const CONVERTIBLE: &[Type] = &[
    F32, F16, BF16, F64, I8, I16, I32, I64, U8, U16, U32, U64, Bool,
];
/// Every type that can be stored and moved.
pub(crate) const ALL: &[Type] = &[
    F32, F16, BF16, F64, I8, I16, I32, I64, U8, U16, U32, U64, Bool, C64, C128,
];
/// Integers and `Bool`.
pub(crate) const INTEGERS: &[Type] = &[I8, I16, I32, I64, U8, Bool];
/// Types of indices.
pub(crate) const INDICES: &[Type] = &[I32, I64];

impl Type {
    /// The type with this `aclDataType` number.
    pub(crate) fn from_acl(code: i32) -> Option<Type> {
        ALL.iter().copied().find(|ty| ty.acl() == code)
    }

    /// Number in `aclDataType`.
    pub(crate) fn acl(self) -> i32 {
        match self {
            F32 => 0,
            F16 => 1,
            I8 => 2,
            I32 => 3,
            U8 => 4,
            I16 => 6,
            U16 => 7,
            U32 => 8,
            I64 => 9,
            U64 => 10,
            F64 => 11,
            Bool => 12,
            C64 => 16,
            C128 => 17,
            BF16 => 27,
        }
    }

    /// Name as in `aclDataType`, without its prefix.
    pub(crate) fn name(self) -> &'static str {
        match self {
            F32 => "FLOAT",
            F16 => "FLOAT16",
            I8 => "INT8",
            I32 => "INT32",
            U8 => "UINT8",
            I16 => "INT16",
            U16 => "UINT16",
            U32 => "UINT32",
            I64 => "INT64",
            U64 => "UINT64",
            F64 => "DOUBLE",
            Bool => "BOOL",
            C64 => "COMPLEX64",
            C128 => "COMPLEX128",
            BF16 => "BF16",
        }
    }

    /// Size of an element in bytes.
    pub(crate) fn bytes(self) -> usize {
        match self {
            I8 | U8 | Bool => 1,
            F16 | BF16 | I16 | U16 => 2,
            F32 | I32 | U32 => 4,
            F64 | I64 | U64 | C64 => 8,
            C128 => 16,
        }
    }

    pub(crate) fn is_float(self) -> bool {
        FLOATS.contains(&self)
    }

    pub(crate) fn is_complex(self) -> bool {
        matches!(self, C64 | C128)
    }

    fn is_unsigned(self) -> bool {
        matches!(self, U8 | U16 | U32 | U64)
    }

    /// The class a kernel computes in.
    ///
    /// # Panics
    /// For complex types, which are only moved.
    pub(crate) fn class(self) -> Class {
        match self {
            F32 | F16 | BF16 => Class::F32,
            F64 => Class::F64,
            I8 | I16 | I32 | I64 | U8 | U16 | U32 | Bool => Class::I64,
            U64 => Class::U64,
            C64 | C128 => unreachable!("complex numbers are only moved"),
        }
    }

    /// Position in bool < integer < float < complex.
    fn category(self) -> u8 {
        match self {
            Bool => 0,
            ty if ty.is_complex() => 3,
            ty if ty.is_float() => 2,
            _ => 1,
        }
    }

    /// This type where it has a fraction, else `F32`: the result type of true division, means and functions such as
    /// the exponential.
    pub(crate) fn to_float(self) -> Type {
        if self.is_float() { self } else { F32 }
    }

    /// Common type of two tensors by PyTorch's rules. `None` for the pairs that PyTorch refuses (a wide unsigned
    /// integer with a signed one).
    pub(crate) fn promote(self, other: Type) -> Option<Type> {
        if self == other {
            return Some(self);
        }
        let (low, high) = if self.category() <= other.category() {
            (self, other)
        } else {
            (other, self)
        };
        if low.category() < high.category() {
            return Some(if high == C64 && low == F64 {
                C128
            } else {
                high
            });
        }
        let wide = if low.bytes() >= high.bytes() {
            low
        } else {
            high
        };
        Some(match high.category() {
            3 => C128,
            2 if low.bytes() == high.bytes() => F32,
            2 => wide,
            _ if low.is_unsigned() == high.is_unsigned() => wide,
            _ => match (low, high) {
                (U8, I8) | (I8, U8) => I16,
                (U8, signed) | (signed, U8) => signed,
                _ => return None,
            },
        })
    }

    /// Common type of a tensor of this type with a scalar: the scalar's type counts only when its category is higher.
    pub(crate) fn promote_scalar(self, scalar: Type) -> Type {
        if scalar.category() <= self.category() {
            self
        } else {
            match scalar.category() {
                1 => I64,
                2 => F32,
                _ => {
                    if self == F64 {
                        C128
                    } else {
                        C64
                    }
                }
            }
        }
    }

    /// Whether a result of this type may be stored as `to` without being asked: never from complex to real, from a
    /// fraction to an integer, or from a number to a truth value.
    pub(crate) fn can_cast(self, to: Type) -> bool {
        to.category() >= self.category()
    }
}

impl std::fmt::Display for Type {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn promotion_follows_pytorch() {
        for (a, b, expected) in [
            (F16, BF16, Some(F32)),
            (F16, F32, Some(F32)),
            (F16, I64, Some(F16)),
            (I8, U8, Some(I16)),
            (U8, I32, Some(I32)),
            (Bool, U8, Some(U8)),
            (I32, I64, Some(I64)),
            (C64, F64, Some(C128)),
            (C64, F32, Some(C64)),
            (U32, I64, None),
        ] {
            assert_eq!(a.promote(b), expected, "{a} {b}");
            assert_eq!(b.promote(a), expected, "{b} {a}");
        }
        assert_eq!(I32.promote_scalar(F64), F32);
        assert_eq!(F16.promote_scalar(F64), F16);
        assert_eq!(Bool.promote_scalar(I32), I64);
    }

    #[test]
    fn casts_never_lose_a_category() {
        assert!(F64.can_cast(F16) && I64.can_cast(I8) && Bool.can_cast(F32));
        assert!(!F32.can_cast(I64) && !I8.can_cast(Bool) && !C64.can_cast(F32));
    }

    #[test]
    fn codes_round_trip() {
        for &ty in ALL {
            assert_eq!(Type::from_acl(ty.acl()), Some(ty));
        }
        assert_eq!(Type::from_acl(5), None);
    }
}
