//! Where kernels meet the processor: matrix multiplication, loops compiled for wide vectors, and stores past the caches.
#![expect(
    unsafe_code,
    reason = "calls code compiled for CPU features found at run time; strided matrix multiplication"
)]

use std::marker::PhantomData;
use std::sync::LazyLock;

use crate::aclnn::dtype::Type;
use crate::aclnn::layout::Layout;
use crate::span::Element;
use crate::span::strided::Storage;

/// Runs `f`, compiled for AVX-512 or AVX2 where the CPU has it; as it is with `HCOM_FAKE_PORTABLE=1`.
///
/// The loops in `f` get wide vectors when they are inlined, so keep `f` and what it calls small or
/// `#[inline(always)]`. Results do not depend on the path: fused multiply-adds are not enabled.
#[inline]
pub(crate) fn wide<R>(f: impl FnOnce() -> R) -> R {
    #[cfg(target_arch = "x86_64")]
    {
        #[target_feature(enable = "avx2")]
        fn avx2<R>(f: impl FnOnce() -> R) -> R {
            f()
        }
        #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
        fn avx512<R>(f: impl FnOnce() -> R) -> R {
            f()
        }
        match *VECTORS {
            // SAFETY: the CPU has what the name says, as `VECTORS` asked.
            Vectors::Avx512 => return unsafe { avx512(f) },
            // SAFETY: as above.
            Vectors::Avx2 => return unsafe { avx2(f) },
            Vectors::Portable => {}
        }
    }
    f()
}

/// What loops may use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Vectors {
    Portable,
    Avx2,
    Avx512,
}

static VECTORS: LazyLock<Vectors> = LazyLock::new(|| {
    if std::env::var_os("HCOM_FAKE_PORTABLE").is_some_and(|value| value == "1") {
        return Vectors::Portable;
    }
    #[cfg(target_arch = "x86_64")]
    {
        let has_all = std::arch::is_x86_feature_detected!("avx512f")
            && std::arch::is_x86_feature_detected!("avx512bw")
            && std::arch::is_x86_feature_detected!("avx512dq")
            && std::arch::is_x86_feature_detected!("avx512vl");
        if has_all {
            return Vectors::Avx512;
        }
        if std::arch::is_x86_feature_detected!("avx2") {
            return Vectors::Avx2;
        }
    }
    Vectors::Portable
});

/// Bytes of a cache line, to which streaming stores must be aligned.
pub(crate) const LINE: usize = 64;

/// Stores a block past the caches where the processor can, else through them.
///
/// # Safety
/// `to` is writable for the size of the block and aligned to [`LINE`], and the block's size is a multiple of it.
#[inline(always)]
pub(crate) unsafe fn stream<T: Element, const N: usize>(to: *mut u8, block: &[T; N]) {
    debug_assert!(to.addr().is_multiple_of(LINE) && size_of_val(block).is_multiple_of(LINE));
    let from = block.as_ptr().cast::<u8>();
    #[cfg(target_arch = "x86_64")]
    for at in (0..size_of_val(block)).step_by(16) {
        use std::arch::x86_64::{_mm_loadu_si128, _mm_stream_si128};
        // SAFETY: inside the block and the place, as the caller promises; SSE2 is part of the architecture.
        unsafe { _mm_stream_si128(to.add(at).cast(), _mm_loadu_si128(from.add(at).cast())) };
    }
    #[cfg(not(target_arch = "x86_64"))]
    // SAFETY: as the caller promises.
    unsafe {
        std::ptr::copy_nonoverlapping(from, to, size_of_val(block));
    }
}

/// Whether [`stream`] goes past the caches.
pub(crate) fn can_stream() -> bool {
    cfg!(target_arch = "x86_64") && *VECTORS != Vectors::Portable
}

/// Makes streamed stores count as written before any later store: other cores must not see the latter first.
pub(crate) fn finish_streaming() {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: no operands; part of the architecture.
    unsafe {
        std::arch::x86_64::_mm_sfence();
    }
}

/// A matrix of `f32` somewhere in memory, with any strides.
pub(crate) struct Matrix<'a> {
    rows: usize,
    cols: usize,
    row_stride: isize,
    col_stride: isize,
    base: *mut f32,
    buffer: PhantomData<&'a mut [f32]>,
}

impl<'a> Matrix<'a> {
    /// `rows` × `cols` floats of a local buffer, row by row.
    ///
    /// # Panics
    /// When the buffer is too short.
    pub(crate) fn local(buffer: &'a mut [f32], rows: usize, cols: usize) -> Matrix<'a> {
        assert!(buffer.len() >= rows * cols);
        Matrix {
            rows,
            cols,
            row_stride: cols as isize,
            col_stride: 1,
            base: buffer.as_mut_ptr(),
            buffer: PhantomData,
        }
    }

    /// Rows and columns exchanged, without a copy.
    pub(crate) fn transposed(self) -> Matrix<'a> {
        Matrix {
            rows: self.cols,
            cols: self.rows,
            row_stride: self.col_stride,
            col_stride: self.row_stride,
            ..self
        }
    }

    /// The elements of `storage` that the layout of rank 2 names, without a copy. `None` when they are not `f32` at
    /// an address that is a multiple of 4.
    pub(crate) fn device(storage: &'a Storage, layout: &Layout) -> Option<Matrix<'a>> {
        let (&[rows, cols], &[row_stride, col_stride]) =
            (layout.dims.as_slice(), layout.strides.as_slice())
        else {
            panic!("a matrix has two dimensions, not those of {layout:?}");
        };
        let span = storage.elements(layout);
        let base = span.base().cast::<f32>();
        (span.dtype() == Type::F32 && base.is_aligned()).then_some(Matrix {
            rows,
            cols,
            row_stride,
            col_stride,
            base,
            buffer: PhantomData,
        })
    }
}

/// `c = a · b`, in `f32`.
///
/// # Panics
/// When the sizes do not fit.
pub(crate) fn multiply(a: &Matrix<'_>, b: &Matrix<'_>, c: &mut Matrix<'_>) {
    assert!(a.rows == c.rows && a.cols == b.rows && b.cols == c.cols);
    if c.rows == 0 || c.cols == 0 {
        return;
    }
    // SAFETY: the constructors saw to it that each matrix lies inside a buffer or mapped device memory that is
    // borrowed for its lifetime, at addresses aligned for f32. The sizes fit, as asserted above. The callee
    // works on raw pointers and accepts any strides.
    unsafe {
        matrixmultiply::sgemm(
            a.rows,
            a.cols,
            b.cols,
            1.0,
            a.base,
            a.row_stride,
            a.col_stride,
            b.base,
            b.row_stride,
            b.col_stride,
            0.0,
            c.base,
            c.row_stride,
            c.col_stride,
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shm::Region;
    use crate::span::Span;

    #[test]
    fn multiplication_takes_any_strides() {
        let mut a = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0];
        let mut c = [f32::NAN; 4];
        let span = Span::inside(&Region::anonymous(4096).unwrap(), 0, 24).unwrap();
        span.write(0, &[1.0f32, 10.0, 100.0, 2.0, 20.0, 200.0]);
        let storage = Storage::new(span, 0, Type::F32);
        let b = Matrix::device(&storage, &Layout::contiguous(&[2, 3]).permute(&[1, 0])).unwrap();
        multiply(
            &Matrix::local(&mut a, 2, 3),
            &b,
            &mut Matrix::local(&mut c, 2, 2),
        );
        assert_eq!(c, [321.0, 642.0, 654.0, 1308.0]);
    }

    #[test]
    fn an_empty_inner_dimension_gives_zeros() {
        let mut c = [f32::NAN; 6];
        multiply(
            &Matrix::local(&mut [], 2, 0),
            &Matrix::local(&mut [], 0, 3),
            &mut Matrix::local(&mut c, 2, 3),
        );
        assert_eq!(c, [0.0; 6]);
    }
}
