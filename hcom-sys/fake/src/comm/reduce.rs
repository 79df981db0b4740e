//! Reductions: many sources into one destination, the same bits on every rank.
//!
//! Sources are combined in rank order, whoever does it. f16 and bf16 are accumulated in f32 and rounded once. Integers
//! wrap. The minimum and the maximum of anything with a NaN is a NaN.

use half::slice::HalfFloatSliceExt;
use half::{bf16, f16};
use hcom_sys::bindings::{self as sys, HcclDataType, HcclReduceOp};

use crate::simd::wide;
use crate::span::{Element, Span};

/// Elements combined at a time: the two buffers of any type stay in the first-level cache.
const CHUNK: usize = 1024;

/// A reduction of one pair.
#[derive(Clone, Copy)]
enum Op {
    Sum,
    Prod,
    Max,
    Min,
}

/// A type that is accumulated in itself or in a wider one.
trait Number: Element {
    type Wide: Copy + Default + Arithmetic;
    /// Reads elements from `first` on; `raw` is room for as many.
    fn load(from: &Span, first: usize, to: &mut [Self::Wide], raw: &mut [Self]);
    /// Writes elements from `first` on to all targets; `raw` is room for as many.
    fn store(from: &[Self::Wide], to: &[Span], first: usize, raw: &mut [Self]);
}

trait Arithmetic {
    fn combine(self, op: Op, other: Self) -> Self;
}

macro_rules! integers {
    ($($ty:ty),*) => {$(
        impl Arithmetic for $ty {
            #[inline(always)]
            fn combine(self, op: Op, other: Self) -> Self {
                match op {
                    Op::Sum => self.wrapping_add(other),
                    Op::Prod => self.wrapping_mul(other),
                    Op::Max => self.max(other),
                    Op::Min => self.min(other),
                }
            }
        }
    )*};
}
integers!(i8, i16, i32, i64, u64);

macro_rules! floats {
    ($($ty:ty),*) => {$(
        impl Arithmetic for $ty {
            #[inline(always)]
            fn combine(self, op: Op, other: Self) -> Self {
                match op {
                    Op::Sum => self + other,
                    Op::Prod => self * other,
                    // A comparison with a NaN is false, and NaN != NaN.
                    Op::Max => if self > other || self != self { self } else { other },
                    Op::Min => if self < other || self != self { self } else { other },
                }
            }
        }
    )*};
}
floats!(f32, f64);

macro_rules! as_itself {
    ($($ty:ty),*) => {$(
        impl Number for $ty {
            type Wide = Self;
            fn load(from: &Span, first: usize, to: &mut [Self], _: &mut [Self]) {
                from.read(first, to);
            }
            fn store(from: &[Self], to: &[Span], first: usize, _: &mut [Self]) {
                for target in to {
                    target.write(first, from);
                }
            }
        }
    )*};
}
as_itself!(i8, i16, i32, i64, u64, f32, f64);

macro_rules! through_f32 {
    ($($ty:ty),*) => {$(
        impl Number for $ty {
            type Wide = f32;
            fn load(from: &Span, first: usize, to: &mut [f32], raw: &mut [Self]) {
                from.read(first, raw);
                raw.convert_to_f32_slice(to);
            }
            fn store(from: &[f32], to: &[Span], first: usize, raw: &mut [Self]) {
                raw.convert_from_f32_slice(from);
                for target in to {
                    target.write(first, raw);
                }
            }
        }
    )*};
}
through_f32!(f16, bf16);

/// Whether [`reduce`] knows `dtype`.
pub(crate) fn knows(dtype: HcclDataType) -> bool {
    with_type(dtype, |_| ()).is_some()
}

/// Combines `sources` (rank order) element by element into every one of `targets`. All have the same length, a
/// multiple of the element size; a target may be one of the sources.
///
/// # Panics
/// For a type or reduction that is not known: the calls refuse those.
pub(crate) fn reduce(dtype: HcclDataType, op: HcclReduceOp, targets: &[Span], sources: &[Span]) {
    let op = match op {
        sys::HCCL_REDUCE_SUM => Op::Sum,
        sys::HCCL_REDUCE_PROD => Op::Prod,
        sys::HCCL_REDUCE_MAX => Op::Max,
        sys::HCCL_REDUCE_MIN => Op::Min,
        other => panic!("reduction {}", other.0),
    };
    with_type(dtype, |run| run(op, targets, sources)).expect("a known type");
}

type Run = fn(Op, &[Span], &[Span]);

fn with_type<R>(dtype: HcclDataType, body: impl FnOnce(Run) -> R) -> Option<R> {
    Some(match dtype {
        sys::HCCL_DATA_TYPE_INT8 => body(run::<i8>),
        sys::HCCL_DATA_TYPE_INT16 => body(run::<i16>),
        sys::HCCL_DATA_TYPE_INT32 => body(run::<i32>),
        sys::HCCL_DATA_TYPE_INT64 => body(run::<i64>),
        sys::HCCL_DATA_TYPE_UINT64 => body(run::<u64>),
        sys::HCCL_DATA_TYPE_FP16 => body(run::<f16>),
        sys::HCCL_DATA_TYPE_BFP16 => body(run::<bf16>),
        sys::HCCL_DATA_TYPE_FP32 => body(run::<f32>),
        sys::HCCL_DATA_TYPE_FP64 => body(run::<f64>),
        _ => return None,
    })
}

fn run<T: Number>(op: Op, targets: &[Span], sources: &[Span]) {
    let Some((first, rest)) = sources.split_first() else {
        return;
    };
    let elements = first.bytes() / size_of::<T>();
    let mut raw = [T::default(); CHUNK];
    let mut sum = [T::Wide::default(); CHUNK];
    let mut next = [T::Wide::default(); CHUNK];
    for start in (0..elements).step_by(CHUNK) {
        let count = CHUNK.min(elements - start);
        let (raw, sum, next) = (&mut raw[..count], &mut sum[..count], &mut next[..count]);
        T::load(first, start, sum, raw);
        for source in rest {
            T::load(source, start, next, raw);
            combine(op, sum, next);
        }
        T::store(sum, targets, start, raw);
    }
}

fn combine<W: Copy + Arithmetic>(op: Op, sum: &mut [W], next: &[W]) {
    // The reduction is chosen outside the loops, so that each loop is one vector instruction after another.
    macro_rules! each {
        ($op:expr) => {
            wide(
                #[inline(always)]
                || {
                    for (sum, &next) in sum.iter_mut().zip(next) {
                        *sum = sum.combine($op, next);
                    }
                },
            )
        };
    }
    match op {
        Op::Sum => each!(Op::Sum),
        Op::Prod => each!(Op::Prod),
        Op::Max => each!(Op::Max),
        Op::Min => each!(Op::Min),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shm::Region;

    fn reduced<T: Element>(dtype: HcclDataType, op: HcclReduceOp, sources: &[&[T]]) -> Vec<T> {
        let region = Region::anonymous(1 << 20).unwrap();
        let bytes = size_of_val(sources[0]);
        let spans: Vec<_> = (0..=sources.len())
            .map(|index| Span::inside(&region, index * (bytes + 3), bytes).unwrap())
            .collect();
        for (span, source) in spans.iter().zip(sources) {
            span.write(0, source);
        }
        let (sources, target) = spans.split_at(spans.len() - 1);
        reduce(dtype, op, &[target[0].clone(), sources[0].clone()], sources);
        let out: Vec<T> = target[0].to_vec();
        assert_eq!(
            sources[0].to_vec::<u8>(),
            target[0].to_vec::<u8>(),
            "a target may be a source"
        );
        out
    }

    #[test]
    fn integers_wrap() {
        let sources: [&[i32]; 3] = [&[i32::MAX, 3, -5], &[1, 4, 7], &[0, 5, -9]];
        assert_eq!(
            reduced(sys::HCCL_DATA_TYPE_INT32, sys::HCCL_REDUCE_SUM, &sources),
            [i32::MIN, 12, -7]
        );
        assert_eq!(
            reduced(sys::HCCL_DATA_TYPE_INT32, sys::HCCL_REDUCE_PROD, &sources),
            [0, 60, 315]
        );
        assert_eq!(
            reduced(sys::HCCL_DATA_TYPE_INT32, sys::HCCL_REDUCE_MAX, &sources),
            [i32::MAX, 5, 7]
        );
        assert_eq!(
            reduced(sys::HCCL_DATA_TYPE_INT32, sys::HCCL_REDUCE_MIN, &sources),
            [0, 3, -9]
        );
    }

    #[test]
    fn low_precision_is_rounded_once() {
        let b = bf16::from_f32;
        let h = f16::from_f32;
        let bs: [&[bf16]; 3] = [&[b(256.0)], &[b(1.0)], &[b(1.0)]];
        assert_eq!(
            reduced(sys::HCCL_DATA_TYPE_BFP16, sys::HCCL_REDUCE_SUM, &bs),
            [b(258.0)]
        );
        let hs: [&[f16]; 3] = [&[h(2048.0)], &[h(1.0)], &[h(1.0)]];
        assert_eq!(
            reduced(sys::HCCL_DATA_TYPE_FP16, sys::HCCL_REDUCE_SUM, &hs),
            [h(2050.0)]
        );
    }

    #[test]
    fn a_nan_wins_wherever_it_is() {
        for place in 0..3 {
            for op in [sys::HCCL_REDUCE_MIN, sys::HCCL_REDUCE_MAX] {
                let mut values = [1.0f32, 3.0, 4.0];
                values[place] = f32::NAN;
                let sources = values.map(|value| [value]);
                let sources: Vec<&[f32]> = sources.iter().map(|source| &source[..]).collect();
                assert!(reduced(sys::HCCL_DATA_TYPE_FP32, op, &sources)[0].is_nan());
            }
        }
    }

    #[test]
    fn long_rows_are_whole() {
        let rows: Vec<Vec<f32>> = (0..3)
            .map(|rank| (0..2500).map(|i| (i * 4 + rank) as f32).collect())
            .collect();
        let sources: Vec<&[f32]> = rows.iter().map(|row| &row[..]).collect();
        let sum = reduced(sys::HCCL_DATA_TYPE_FP32, sys::HCCL_REDUCE_SUM, &sources);
        assert!(
            sum.iter()
                .enumerate()
                .all(|(i, &value)| value == (i * 12 + 3) as f32)
        );
    }
}
