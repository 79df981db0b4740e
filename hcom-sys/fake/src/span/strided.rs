//! Strided access to the elements of a tensor in device memory.
//!
//! Kernels never hold a reference into device memory: they copy runs of elements into local buffers, compute, and
//! copy the results back. So an output may share memory with an input, and another stream or another process that
//! writes the same bytes at the wrong time gets a wrong number, as on a card, and nothing worse.

use crate::aclnn::dtype::Type;
use std::marker::PhantomData;
use std::ptr;

use super::{Element, Span};
use crate::aclnn::layout::{Dims, Layout, MAX_VIEW_RANK, Strides};
use crate::error::Outcome;

/// The part of device memory that one tensor of an operator covers.
pub(crate) struct Storage {
    /// `None` without elements.
    span: Option<Span>,
    first: isize,
    dtype: Type,
}

impl Storage {
    /// The memory of a tensor whose storage starts at device address `address` and whose elements are where `layout`
    /// says.
    ///
    /// # Errors
    /// When it is not all inside one live allocation of a device.
    pub(crate) fn resolve(address: usize, dtype: Type, layout: &Layout) -> Outcome<Storage> {
        let Some((first, last)) = layout.extent() else {
            return Ok(Storage {
                span: None,
                first: 0,
                dtype,
            });
        };
        let start = address.wrapping_add_signed(first * dtype.bytes() as isize);
        let bytes = (last - first + 1) as usize * dtype.bytes();
        let span = crate::memory::span(ptr::without_provenance(start), bytes)?;
        Ok(Storage::new(span, first, dtype))
    }

    /// Memory whose first element has the offset `first` in the layouts of [`Storage::elements`].
    pub(crate) fn new(span: Span, first: isize, dtype: Type) -> Storage {
        Storage {
            span: Some(span),
            first,
            dtype,
        }
    }

    /// The elements of this memory that `layout` names.
    ///
    /// # Panics
    /// When the layout leaves the memory: a mistake of the operator, which derives its layouts from the tensor's own.
    pub(crate) fn elements(&self, layout: &Layout) -> Elements<'_> {
        let merged = layout.coalesced();
        let base = match (layout.extent(), &self.span) {
            (Some((low, high)), Some(span)) => {
                let len = span.bytes() / self.dtype.bytes();
                let inside = low >= self.first && high - self.first < len as isize;
                assert!(inside, "{layout:?} leaves the memory of {len} elements");
                let start = (layout.offset - self.first) * self.dtype.bytes() as isize;
                span.as_ptr().wrapping_offset(start)
            }
            (None, _) => ptr::null_mut(),
            (Some(_), None) => panic!("{layout:?} leaves the memory without elements"),
        };
        Elements {
            base,
            len: layout.len(),
            dims: merged.dims,
            strides: merged.strides,
            dtype: self.dtype,
            memory: PhantomData,
        }
    }
}

/// The elements of a tensor in row-major order of their indices, wherever they lie.
pub(crate) struct Elements<'a> {
    base: *mut u8,
    len: usize,
    dims: Dims,
    strides: Strides,
    dtype: Type,
    memory: PhantomData<&'a Storage>,
}

impl Elements<'_> {
    /// Number of elements.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Type of the elements.
    pub(crate) fn dtype(&self) -> Type {
        self.dtype
    }

    /// Address of the first element, for callers that walk the memory themselves.
    pub(crate) fn base(&self) -> *mut u8 {
        self.base
    }

    /// Copies the elements from number `start` on into `into`, all of it.
    pub(crate) fn gather<S: Element>(&self, start: usize, into: &mut [S]) {
        self.check::<S>(start, into.len());
        self.runs(start, into.len(), |done, offset, stride, len| {
            let into = &mut into[done..done + len];
            let from = self.base.cast::<S>().wrapping_offset(offset);
            match stride {
                // SAFETY: `check` and the constructor keep the run inside the span, whose maker vouched for it; a local buffer does not overlap it. Bytes are copied, so alignment does not matter.
                1 => unsafe {
                    ptr::copy_nonoverlapping(
                        from.cast::<u8>(),
                        into.as_mut_ptr().cast(),
                        size_of_val(into),
                    );
                },
                // SAFETY: as above, one element.
                0 => into.fill(unsafe { from.read_unaligned() }),
                _ => {
                    for (i, value) in into.iter_mut().enumerate() {
                        // SAFETY: as above, element `i` of the run.
                        *value =
                            unsafe { from.wrapping_offset(i as isize * stride).read_unaligned() };
                    }
                }
            }
        });
    }

    /// Copies all of `from` to the elements from number `start` on.
    pub(crate) fn scatter<S: Element>(&self, start: usize, from: &[S]) {
        self.check::<S>(start, from.len());
        self.runs(start, from.len(), |done, offset, stride, len| {
            let from = &from[done..done + len];
            let into = self.base.cast::<S>().wrapping_offset(offset);
            if stride == 1 {
                // SAFETY: `check` and the constructor keep the run inside the span, whose maker vouched for it; a local buffer does not overlap it. Bytes are copied, so alignment does not matter.
                unsafe {
                    ptr::copy_nonoverlapping(
                        from.as_ptr().cast(),
                        into.cast::<u8>(),
                        size_of_val(from),
                    );
                }
            } else {
                for (i, &value) in from.iter().enumerate() {
                    // SAFETY: as above, element `i` of the run.
                    unsafe {
                        into.wrapping_offset(i as isize * stride)
                            .write_unaligned(value)
                    };
                }
            }
        });
    }

    fn check<S: Element>(&self, start: usize, count: usize) {
        assert_eq!(
            size_of::<S>(),
            self.dtype.bytes(),
            "access to {} by another size",
            self.dtype
        );
        let inside = start.checked_add(count).is_some_and(|end| end <= self.len);
        assert!(inside, "elements {start} and {count} on of {}", self.len);
    }

    /// Calls `run(elements done, offset from base, stride, length)` for each piece of `start..start + count` that
    /// lies in one innermost dimension.
    fn runs(&self, start: usize, count: usize, mut run: impl FnMut(usize, isize, isize, usize)) {
        if count == 0 {
            return;
        }
        let last = self.dims.len() - 1;
        let mut index = [0; MAX_VIEW_RANK];
        let (mut rest, mut offset) = (start, 0);
        for d in (0..=last).rev() {
            index[d] = rest % self.dims[d];
            rest /= self.dims[d];
            offset += index[d] as isize * self.strides[d];
        }
        let mut done = 0;
        loop {
            let len = (self.dims[last] - index[last]).min(count - done);
            run(done, offset, self.strides[last], len);
            done += len;
            if done == count {
                return;
            }
            offset -= index[last] as isize * self.strides[last];
            index[last] = 0;
            // Some outer dimension still has a next index, because elements are left.
            let mut d = last - 1;
            loop {
                index[d] += 1;
                offset += self.strides[d];
                if index[d] < self.dims[d] {
                    break;
                }
                offset -= self.dims[d] as isize * self.strides[d];
                index[d] = 0;
                d -= 1;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shm::Region;

    fn storage(data: &[u32]) -> Storage {
        let region = Region::anonymous(4096).unwrap();
        let span = Span::inside(&region, 64, data.len() * 4).unwrap();
        span.write(0, data);
        Storage::new(span, 0, Type::U32)
    }

    fn all(elements: &Elements<'_>) -> Vec<u32> {
        let mut out = vec![0; elements.len()];
        elements.gather(0, &mut out);
        out
    }

    #[test]
    fn views_read_in_their_own_order() {
        let storage = storage(&(0..24).collect::<Vec<_>>());
        let t = Layout::contiguous(&[2, 3, 4]);
        assert_eq!(all(&storage.elements(&t)), (0..24).collect::<Vec<_>>());
        let swapped = t.permute(&[2, 0, 1]);
        let expected: Vec<u32> = (0..4)
            .flat_map(|k| (0..6).map(move |ij| ij * 4 + k))
            .collect();
        assert_eq!(all(&storage.elements(&swapped)), expected);
        for start in 0..24 {
            let mut part = vec![0; (24 - start).min(5)];
            storage.elements(&swapped).gather(start, &mut part);
            assert_eq!(part, expected[start..start + part.len()]);
        }
        let row = Layout::contiguous(&[4]).broadcast_to(&[2, 4]).unwrap();
        assert_eq!(all(&storage.elements(&row)), [0, 1, 2, 3, 0, 1, 2, 3]);
        let one = t.narrow(0, 1, 1, 1).narrow(1, 2, 1, 1).narrow(2, 3, 1, 1);
        assert_eq!(all(&storage.elements(&one)), [23]);
    }

    #[test]
    fn negative_strides_and_writes() {
        let storage = storage(&[0, 1, 2, 3, 4, 5]);
        let back = Layout {
            dims: [6].as_slice().into(),
            strides: [-1].as_slice().into(),
            offset: 5,
        };
        let span = storage.elements(&back);
        assert_eq!(all(&span), [5, 4, 3, 2, 1, 0]);
        span.scatter(4, &[70, 71]);
        assert_eq!(
            all(&storage.elements(&Layout::contiguous(&[6]))),
            [71, 70, 2, 3, 4, 5]
        );
    }

    #[test]
    #[should_panic(expected = "leaves the memory")]
    fn a_layout_outside_is_refused() {
        storage(&[0; 4]).elements(&Layout::contiguous(&[5]));
    }
}
