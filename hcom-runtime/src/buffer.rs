//! Arrays in device memory.

use hcom_ir::DType;

use crate::error::Error;

/// A contiguous array in device memory. Clones share the memory.
#[derive(Clone, Debug)]
pub struct Array {
    dtype: DType,
    shape: Vec<u64>,
}

impl Array {
    /// Element type.
    pub fn dtype(&self) -> DType {
        self.dtype
    }

    /// Sizes, outermost first.
    pub fn shape(&self) -> &[u64] {
        &self.shape
    }

    /// Size of the data in bytes.
    pub fn byte_len(&self) -> u64 {
        self.shape.iter().product::<u64>() * self.dtype.bytes()
    }

    /// Device address of the first element; dangling for an array without elements.
    pub fn ptr(&self) -> *mut std::ffi::c_void {
        std::ptr::null_mut()
    }

    /// Waits for everything that was issued before and copies the data to the host: little endian,
    /// row-major.
    ///
    /// # Errors
    /// The failure of anything that was issued before.
    pub fn to_host(&self) -> Result<Vec<u8>, Error> {
        Ok(Vec::new())
    }
}
