//! Reductions: many sources into one destination, the same bits on every rank.
//!
//! Sources are combined in rank order, whoever does it. f16 and bf16 are accumulated in f32 and rounded once. Integers
//! wrap. The minimum and the maximum of anything with a NaN is a NaN.

use half::slice::HalfFloatSliceExt;
use half::{bf16, f16};
use hcom_sys::bindings::{self as sys, HcclDataType, HcclReduceOp};

use crate::span::Span;
use crate::span::combine::{BLOCK, Lane, Stores, combine};

/// A reduction of one pair.
#[derive(Clone, Copy)]
enum Op {
    Sum,
    Prod,
    Max,
    Min,
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
        impl Lane for $ty {
            type Wide = Self;
            #[inline(always)]
            fn widen(block: &[Self; BLOCK]) -> [Self; BLOCK] {
                *block
            }
            #[inline(always)]
            fn narrow(block: &[Self; BLOCK]) -> [Self; BLOCK] {
                *block
            }
        }
    )*};
}
as_itself!(i8, i16, i32, i64, u64, f32, f64);

impl Lane for f16 {
    type Wide = f32;
    #[inline(always)]
    fn widen(block: &[Self; BLOCK]) -> [f32; BLOCK] {
        let mut wide = [0.0; BLOCK];
        block.convert_to_f32_slice(&mut wide);
        wide
    }
    #[inline(always)]
    fn narrow(block: &[f32; BLOCK]) -> [Self; BLOCK] {
        let mut narrow = [Self::ZERO; BLOCK];
        narrow.convert_from_f32_slice(block);
        narrow
    }
}

/// The upper half of an `f32`: shifts and one rounding, which become vector instructions as they stand.
impl Lane for bf16 {
    type Wide = f32;
    #[inline(always)]
    fn widen(block: &[Self; BLOCK]) -> [f32; BLOCK] {
        let mut wide = [0.0; BLOCK];
        for (wide, half) in wide.iter_mut().zip(block) {
            *wide = f32::from_bits(u32::from(half.to_bits()) << 16);
        }
        wide
    }
    #[inline(always)]
    fn narrow(block: &[f32; BLOCK]) -> [Self; BLOCK] {
        let mut narrow = [Self::ZERO; BLOCK];
        for (narrow, value) in narrow.iter_mut().zip(block) {
            let bits = value.to_bits();
            // To the nearest, ties to even; a NaN stays one.
            let rounded = bits.wrapping_add(0x7fff + (bits >> 16 & 1)) >> 16;
            let nan = bits >> 16 | 0x40;
            let is_nan = bits & 0x7fff_ffff > 0x7f80_0000;
            *narrow = Self::from_bits(if is_nan { nan } else { rounded } as u16);
        }
        narrow
    }
}

/// Whether [`reduce`] knows `dtype`.
pub(crate) fn knows(dtype: HcclDataType) -> bool {
    with_type(dtype, |_| ()).is_some()
}

/// Combines `sources` (rank order) element by element into every one of `targets`. All have the same length, a
/// multiple of the element size; a target may be one of the sources, else it is apart from all.
///
/// # Panics
/// For a type or reduction that is not known: the calls refuse those.
pub(crate) fn reduce(
    dtype: HcclDataType,
    op: HcclReduceOp,
    targets: &[Span],
    sources: &[Span],
    stores: Stores,
) {
    let op = match op {
        sys::HCCL_REDUCE_SUM => Op::Sum,
        sys::HCCL_REDUCE_PROD => Op::Prod,
        sys::HCCL_REDUCE_MAX => Op::Max,
        sys::HCCL_REDUCE_MIN => Op::Min,
        other => panic!("reduction {}", other.0),
    };
    with_type(dtype, |run| run(op, targets, sources, stores)).expect("a known type");
}

type Run = fn(Op, &[Span], &[Span], Stores);

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

fn run<T: Lane<Wide: Arithmetic>>(op: Op, targets: &[Span], sources: &[Span], stores: Stores) {
    // The reduction is chosen outside the loops, so that each loop is one vector instruction after another.
    macro_rules! each {
        ($op:expr) => {
            combine::<T>(
                targets,
                sources,
                stores,
                #[inline(always)]
                |a, b| a.combine($op, b),
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
    use crate::span::Element;

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
        let targets = [target[0].clone(), sources[0].clone()];
        reduce(dtype, op, &targets, sources, Stores::Cached);
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
    fn bf16_rounds_as_the_library_of_halves_does() {
        for bits in (0..u32::MAX - 9973).step_by(9973).chain([
            0x7f80_0000,
            0xff80_0001,
            0x7fff_ffff,
            0x3f80_8000,
        ]) {
            let mut block = [0.0; BLOCK];
            block[3] = f32::from_bits(bits);
            let narrow = bf16::narrow(&block)[3];
            assert_eq!(
                narrow.to_bits(),
                bf16::from_f32(block[3]).to_bits(),
                "{bits:#x}"
            );
        }
    }

    #[test]
    fn stores_past_the_caches_leave_the_same_values() {
        let region = Region::create("test", 1 << 20).unwrap();
        for (offset, elements) in [(0, 4096), (64, 1000), (4, 777)] {
            let span =
                |index: usize| Span::inside(&region, index * 65536 + offset, elements * 4).unwrap();
            let values = |rank: usize| {
                (0..elements)
                    .map(|i| (i * 3 + rank) as f32)
                    .collect::<Vec<_>>()
            };
            span(0).write(0, &values(0));
            span(1).write(0, &values(1));
            let (targets, sources) = ([span(2), span(1)], [span(0), span(1)]);
            let (dtype, op) = (sys::HCCL_DATA_TYPE_FP32, sys::HCCL_REDUCE_SUM);
            reduce(dtype, op, &targets, &sources, Stores::Streaming);
            let right: Vec<f32> = (0..elements).map(|i| (i * 6 + 1) as f32).collect();
            assert_eq!(span(2).to_vec::<f32>(), right);
            assert_eq!(span(1).to_vec::<f32>(), right);
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
