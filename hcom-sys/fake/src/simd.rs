//! The two places where kernels meet the processor: matrix multiplication, and loops compiled for wide vectors.
#![expect(
    unsafe_code,
    reason = "calls code compiled for CPU features found at run time; strided matrix multiplication"
)]

use std::marker::PhantomData;

use crate::aclnn::dtype::Type;
use crate::aclnn::layout::Layout;
use crate::span::strided::Storage;

/// Runs `f`, compiled for AVX2 where the CPU has it.
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
        if std::arch::is_x86_feature_detected!("avx2") {
            // SAFETY: the CPU has AVX2, as just asked.
            return unsafe { avx2(f) };
        }
    }
    f()
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
