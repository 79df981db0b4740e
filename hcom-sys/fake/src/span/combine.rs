//! Combining ranges of device memory into others, block by block through registers.
//!
//! A block is read from every source before it is written to any target, so a target may be one of the sources. Every
//! source is read once and every target written once; nothing goes through buffers in memory.

use std::ptr;

use super::{Element, Span};
use crate::simd::{self, wide};

/// Elements of a block: a few vector registers of any type.
pub(crate) const BLOCK: usize = 64;

/// How results are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stores {
    /// Through the caches of this core.
    Cached,
    /// Past them, straight to memory: cheaper when another core owns the lines, or when they do not fit anyway.
    Streaming,
}

/// A type that is combined in itself or in a wider one.
pub(crate) trait Lane: Element {
    /// What is combined.
    type Wide: Copy + Default;
    /// Turns a block into what is combined.
    fn widen(block: &[Self; BLOCK]) -> [Self::Wide; BLOCK];
    /// Rounds a combined block, once.
    fn narrow(block: &[Self::Wide; BLOCK]) -> [Self; BLOCK];
}

/// Combines `sources`, in their order, element by element into every one of `targets`. All have the same length, a
/// multiple of the element size; each target is one of the sources or apart from all.
///
/// # Panics
/// When the lengths differ.
#[inline(always)]
pub(crate) fn combine<T: Lane>(
    targets: &[Span],
    sources: &[Span],
    stores: Stores,
    pair: impl Fn(T::Wide, T::Wide) -> T::Wide + Copy,
) {
    let Some((first, rest)) = sources.split_first() else {
        return;
    };
    let bytes = first.bytes();
    assert!(targets.iter().chain(rest).all(|span| span.bytes() == bytes));
    let elements = bytes / size_of::<T>();
    let aligned = |span: &Span| span.address().is_multiple_of(simd::LINE);
    let stores = match stores {
        Stores::Streaming if simd::can_stream() && targets.iter().all(aligned) => Stores::Streaming,
        _ => Stores::Cached,
    };
    wide(
        #[inline(always)]
        || {
            for start in (0..elements).step_by(BLOCK) {
                let count = BLOCK.min(elements - start);
                let mut sum = T::widen(&load(first, start, count));
                for source in rest {
                    let next = T::widen(&load(source, start, count));
                    for (sum, next) in sum.iter_mut().zip(next) {
                        *sum = pair(*sum, next);
                    }
                }
                let block = T::narrow(&sum);
                for target in targets {
                    store(target, start, count, &block, stores);
                }
            }
        },
    );
    if stores == Stores::Streaming {
        simd::finish_streaming();
    }
}

/// Reads `count` elements from `start` on; what is missing to a block is zero.
#[inline(always)]
fn load<T: Lane>(span: &Span, start: usize, count: usize) -> [T; BLOCK] {
    let mut block = [T::default(); BLOCK];
    debug_assert!((start + count) * size_of::<T>() <= span.bytes());
    // SAFETY: the elements lie inside the span, whose length `combine` compared with that of the first, and are mapped
    // while it lives; any bits are an `Element`. A full block is copied with a length that the compiler knows.
    unsafe {
        let from = span.base.cast::<T>().add(start);
        if count == BLOCK {
            ptr::copy_nonoverlapping(
                from.cast::<u8>(),
                block.as_mut_ptr().cast(),
                size_of_val(&block),
            );
        } else {
            ptr::copy_nonoverlapping(
                from.cast::<u8>(),
                block.as_mut_ptr().cast(),
                count * size_of::<T>(),
            );
        }
    }
    block
}

/// Writes the first `count` elements of a block from `start` on.
#[inline(always)]
fn store<T: Lane>(span: &Span, start: usize, count: usize, block: &[T; BLOCK], stores: Stores) {
    debug_assert!((start + count) * size_of::<T>() <= span.bytes());
    // SAFETY: as in `load`, and device memory is writable. For streaming stores the span is aligned to cache lines
    // (`combine` saw to it), and so is every block, whose size is a multiple of a line.
    unsafe {
        let to = span.base.cast::<T>().add(start);
        match (count, stores) {
            (BLOCK, Stores::Streaming) => simd::stream(to.cast(), block),
            (BLOCK, Stores::Cached) => {
                ptr::copy_nonoverlapping(
                    block.as_ptr().cast::<u8>(),
                    to.cast(),
                    size_of_val(block),
                );
            }
            _ => {
                ptr::copy_nonoverlapping(
                    block.as_ptr().cast::<u8>(),
                    to.cast(),
                    count * size_of::<T>(),
                );
            }
        }
    }
}
