//! The one place that touches device bytes: a [`Span`] is a range of memory this process may read and write.
//!
//! Bytes are only ever copied in and out; no reference to them is handed out, because another stream, another process
//! or the program itself may write them at the same time. A program that lets two writers race gets torn values, as on
//! a card; it cannot break this process, since every bit pattern is a value of every [`Element`].
#![expect(
    unsafe_code,
    reason = "copying into and out of memory that is shared with other processes"
)]

pub(crate) mod combine;
pub(crate) mod strided;

use std::ptr;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use half::{bf16, f16};

use crate::shm::Region;

/// A number as it lies in device memory.
///
/// # Safety
/// Every bit pattern of `size_of::<Self>()` bytes is a value, and the type has no padding.
pub(crate) unsafe trait Element: Copy + Default + Send + Sync + 'static {}

macro_rules! elements {
    ($($ty:ty),*) => {$(
        // SAFETY: plain numbers without padding; any bits are a value.
        unsafe impl Element for $ty {}
    )*};
}
elements!(
    u8, i8, u16, i16, u32, i32, u64, i64, f32, f64, f16, bf16, [u64; 2]
);

/// A range of bytes with whatever keeps them mapped.
#[derive(Clone, Debug)]
pub(crate) struct Span {
    base: *mut u8,
    bytes: usize,
    /// `None` for memory of the program, which it keeps alive (see [`Span::foreign`]).
    region: Option<Arc<Region>>,
}

// SAFETY: the bytes stay mapped in all threads while the span lives (owned by `region`, or promised by the caller of
// `foreign`), and races on them are harmless as the module's documentation says.
unsafe impl Send for Span {}
// SAFETY: as above.
unsafe impl Sync for Span {}

impl Span {
    /// The bytes `offset..offset + bytes` of `region`; `None` when they do not all lie inside.
    pub(crate) fn inside(region: &Arc<Region>, offset: usize, bytes: usize) -> Option<Self> {
        let end = offset.checked_add(bytes)?;
        (end <= region.bytes()).then(|| Self {
            base: region.base().wrapping_add(offset),
            bytes,
            region: Some(region.clone()),
        })
    }

    /// Memory of the program, as it comes through the C interface.
    ///
    /// # Safety
    /// `base..base + bytes` must be readable and, if the span is written, writable, as long as the span or a clone of
    /// it lives.
    pub(crate) unsafe fn foreign(base: *mut u8, bytes: usize) -> Self {
        Self {
            base,
            bytes,
            region: None,
        }
    }

    /// The length in bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Where the bytes lie in this process: for tests of overlap and alignment.
    pub(crate) fn address(&self) -> usize {
        self.base.addr()
    }

    /// The first byte, for kernels that take pointers.
    pub(crate) fn as_ptr(&self) -> *mut u8 {
        self.base
    }

    /// The part `offset..offset + bytes`.
    ///
    /// # Panics
    /// When the part does not lie inside.
    pub(crate) fn part(&self, offset: usize, bytes: usize) -> Self {
        assert!(
            offset
                .checked_add(bytes)
                .is_some_and(|end| end <= self.bytes)
        );
        Self {
            base: self.base.wrapping_add(offset),
            bytes,
            region: self.region.clone(),
        }
    }

    /// Whether the two ranges share a byte in this process.
    pub(crate) fn overlaps(&self, other: &Self) -> bool {
        self.bytes > 0
            && other.bytes > 0
            && self.address() < other.address() + other.bytes
            && other.address() < self.address() + self.bytes
    }

    /// Copies elements `first..first + out.len()` out; any alignment.
    ///
    /// # Panics
    /// When they do not lie inside.
    pub(crate) fn read<T: Element>(&self, first: usize, out: &mut [T]) {
        let at = self.offset_of::<T>(first, out.len());
        // SAFETY: the source lies inside the span (checked by `offset_of`) and is mapped while `self` lives; `out` is
        // ours alone; `Element` makes any bytes a value.
        unsafe {
            ptr::copy(self.base.add(at), out.as_mut_ptr().cast(), size_of_val(out));
        }
    }

    /// Copies `values` to the elements from `first` on; any alignment.
    ///
    /// # Panics
    /// When they do not lie inside.
    pub(crate) fn write<T: Element>(&self, first: usize, values: &[T]) {
        let at = self.offset_of::<T>(first, values.len());
        // SAFETY: the destination lies inside the span (checked by `offset_of`) and is mapped and writable while
        // `self` lives; `Element` has no padding, so all bytes of `values` are initialised.
        unsafe {
            ptr::copy(
                values.as_ptr().cast(),
                self.base.add(at),
                size_of_val(values),
            );
        }
    }

    /// All elements, read at once.
    #[cfg(test)]
    pub(crate) fn to_vec<T: Element>(&self) -> Vec<T> {
        let mut out = vec![T::default(); self.bytes / size_of::<T>()];
        self.read(0, &mut out);
        out
    }

    /// Copies all of `source` here; the two may overlap.
    ///
    /// # Panics
    /// When the lengths differ.
    pub(crate) fn copy_from(&self, source: &Self) {
        assert_eq!(self.bytes, source.bytes);
        // SAFETY: both ranges are mapped while their spans live; `copy` allows them to overlap.
        unsafe { ptr::copy(source.base, self.base, self.bytes) }
    }

    /// Sets every byte.
    pub(crate) fn fill(&self, byte: u8) {
        // SAFETY: the range is mapped and writable while `self` lives.
        unsafe { ptr::write_bytes(self.base, byte, self.bytes) }
    }

    /// The first eight bytes as an atomic word; `None` when they are misaligned or fewer.
    pub(crate) fn word64(&self) -> Option<&AtomicU64> {
        (self.bytes >= 8 && self.address().is_multiple_of(8)).then(|| {
            // SAFETY: eight aligned bytes inside the range (checked), mapped while `self` lives.
            unsafe { AtomicU64::from_ptr(self.base.cast()) }
        })
    }

    fn offset_of<T>(&self, first: usize, count: usize) -> usize {
        let end = first
            .checked_add(count)
            .and_then(|end| end.checked_mul(size_of::<T>()));
        assert!(
            end.is_some_and(|end| end <= self.bytes),
            "elements outside the span"
        );
        first * size_of::<T>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_go_in_and_out_at_any_alignment() {
        let region = Region::anonymous(4096).unwrap();
        let span = Span::inside(&region, 3, 40).unwrap();
        span.write(1, &[1.5f32, -2.0, 3.25]);
        let mut out = [0f32; 3];
        span.read(1, &mut out);
        assert_eq!(out, [1.5, -2.0, 3.25]);
        assert!(span.word64().is_none());
        assert!(Span::inside(&region, 4090, 7).is_none());
    }

    #[test]
    #[should_panic(expected = "outside")]
    fn a_read_past_the_end_is_caught() {
        let region = Region::anonymous(4096).unwrap();
        Span::inside(&region, 0, 10)
            .unwrap()
            .read(2, &mut [0f32; 1]);
    }

    #[test]
    fn overlapping_parts_move_as_if_through_a_buffer() {
        let region = Region::anonymous(4096).unwrap();
        let span = Span::inside(&region, 0, 8).unwrap();
        span.write(0, &[1u8, 2, 3, 4, 5, 6, 7, 8]);
        let (low, high) = (span.part(0, 6), span.part(2, 6));
        assert!(low.overlaps(&high));
        high.copy_from(&low);
        assert_eq!(span.to_vec::<u8>(), [1, 2, 1, 2, 3, 4, 5, 6]);
    }
}
