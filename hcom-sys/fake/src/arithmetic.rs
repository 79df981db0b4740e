//! `aclrtReduceAsync`: combining one range of device memory into another.

use half::{bf16, f16};
use hcom_sys::bindings::{self as sys, aclDataType, aclrtReduceKind};

use crate::code;
use crate::error::{Outcome, refuse};
use crate::span::{Element, Span};

/// Elements read at a time.
const CHUNK: usize = 4096;

/// Combines the second range into the first.
pub(crate) type Combine = Box<dyn Fn(&Span, &Span) + Send + Sync>;

fn each<T: Element>(pair: impl Fn(T, T) -> T + Send + Sync + 'static) -> Combine {
    Box::new(move |to, from| {
        let count = to.bytes() / size_of::<T>();
        let (mut a, mut b) = (vec![T::default(); CHUNK], vec![T::default(); CHUNK]);
        for first in (0..count).step_by(CHUNK) {
            let length = CHUNK.min(count - first);
            to.read(first, &mut a[..length]);
            from.read(first, &mut b[..length]);
            for (a, b) in a.iter_mut().zip(&b) {
                *a = pair(*a, *b);
            }
            to.write(first, &a[..length]);
        }
    })
}

#[derive(Clone, Copy)]
enum Op {
    Sum,
    Max,
    Min,
}

/// The work of one pair of types.
///
/// # Errors
/// 100000 for a kind that is none, 207000 for a type the chips do not reduce.
pub(crate) fn combine(kind: aclrtReduceKind, dtype: aclDataType) -> Outcome<Combine> {
    let op = match kind {
        sys::ACL_RT_MEMCPY_SDMA_AUTOMATIC_SUM => Op::Sum,
        sys::ACL_RT_MEMCPY_SDMA_AUTOMATIC_MAX => Op::Max,
        sys::ACL_RT_MEMCPY_SDMA_AUTOMATIC_MIN => Op::Min,
        other => return refuse(code::INVALID_PARAM, format!("reduction {}", other.0)),
    };
    macro_rules! integer {
        ($ty:ty) => {
            each::<$ty>(move |a, b| match op {
                Op::Sum => a.wrapping_add(b),
                Op::Max => a.max(b),
                Op::Min => a.min(b),
            })
        };
    }
    fn float(op: Op, a: f32, b: f32) -> f32 {
        match op {
            Op::Sum => a + b,
            // What is no number stays.
            Op::Max if a > b || a.is_nan() => a,
            Op::Min if a < b || a.is_nan() => a,
            Op::Max | Op::Min => b,
        }
    }
    Ok(match dtype {
        sys::ACL_INT8 => integer!(i8),
        sys::ACL_INT16 => integer!(i16),
        sys::ACL_INT32 => integer!(i32),
        sys::ACL_UINT32 => integer!(u32),
        sys::ACL_FLOAT => each::<f32>(move |a, b| float(op, a, b)),
        sys::ACL_FLOAT16 => {
            each::<f16>(move |a, b| f16::from_f32(float(op, a.to_f32(), b.to_f32())))
        }
        sys::ACL_BF16 => {
            each::<bf16>(move |a, b| bf16::from_f32(float(op, a.to_f32(), b.to_f32())))
        }
        other => {
            return refuse(
                code::NOT_SUPPORTED,
                format!(
                    "data type {}, expected INT8, INT16, INT32, UINT32, FLOAT16, BF16 or FLOAT",
                    other.0
                ),
            );
        }
    })
}
