//! Device memory and copies.

#![expect(unsafe_code, reason = "calls into the device library")]

use std::{
    any::Any,
    ffi::c_void,
    fmt,
    ptr::{NonNull, null_mut},
    sync::Arc,
};

use hcom_ir::{DType, Type};
use hcom_sys::bindings as c;

use super::{Driver, Handle, Stream};
use crate::{Array, Runtime, error::Error};

/// How long giving memory back waits for the device, in milliseconds.
const SETTLE_MS: i32 = 5000;

/// A block of device memory.
pub(crate) struct Memory {
    driver: Arc<Driver>,
    address: Handle,
    bytes: u64,
    /// Who provides the memory, unless it was allocated here.
    owner: Option<Owner>,
}

/// Keeps memory of somebody else valid until it is dropped.
type Owner = Box<dyn Any + Send + Sync>;

impl fmt::Debug for Memory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes at {:p}", self.bytes, self.address.0)
    }
}

impl Memory {
    /// Allocates `bytes` bytes, at least 1, of unspecified content.
    pub(crate) fn allocate(driver: &Arc<Driver>, bytes: u64) -> Result<Memory, Error> {
        let malloc = driver.library.aclrtMalloc()?;
        let mut address = null_mut();
        let size = usize::try_from(bytes).unwrap_or(usize::MAX);
        // SAFETY: `address` is a valid place for the answer.
        let code = unsafe { malloc(&mut address, size, c::ACL_MEM_MALLOC_HUGE_FIRST) };
        driver.check("aclrtMalloc", code)?;
        Ok(Memory {
            driver: driver.clone(),
            address: Handle(address),
            bytes,
            owner: None,
        })
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    pub(crate) fn address(&self) -> *mut c_void {
        self.address.0
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        let owner = self.owner.take();
        if let Err(error) = self.driver.attach() {
            std::mem::forget(owner);
            self.driver.note(Err(error));
            return;
        }
        if !self.driver.settle(SETTLE_MS) {
            // Work that may still touch the memory goes on: leaking it is the only safe way out.
            std::mem::forget(owner);
            return;
        }
        if owner.is_some() {
            return;
        }
        let freed = self
            .driver
            .library
            .aclrtFree()
            .map_err(Error::from)
            .and_then(|free| {
                // SAFETY: the address comes from `aclrtMalloc`, is freed once, and the device is idle,
                // so no queued work refers to it.
                self.driver
                    .check("aclrtFree", unsafe { free(self.address.0) })
            });
        self.driver.note(freed);
    }
}

/// A stretch of a block: it keeps the block alive and never reaches beyond its end.
#[derive(Clone, Debug)]
pub(crate) struct Place {
    memory: Arc<Memory>,
    offset: u64,
    bytes: u64,
}

impl Place {
    /// `bytes` bytes from byte `offset` of `memory`.
    ///
    /// # Panics
    /// When they are not all inside: the plan is wrong.
    pub(crate) fn new(memory: Arc<Memory>, offset: u64, bytes: u64) -> Place {
        let end = offset.checked_add(bytes);
        assert!(
            end.is_some_and(|end| end <= memory.bytes),
            "{bytes} bytes at {offset} of a block of {} bytes",
            memory.bytes
        );
        Place {
            memory,
            offset,
            bytes,
        }
    }

    /// `bytes` bytes from byte `offset` of this one.
    ///
    /// # Panics
    /// When they are not all inside the block.
    pub(crate) fn part(&self, offset: u64, bytes: u64) -> Place {
        Place::new(self.memory.clone(), self.offset + offset, bytes)
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    pub(crate) fn address(&self) -> *mut c_void {
        self.memory
            .address()
            .wrapping_byte_add(self.offset as usize)
    }

    /// Where the host finds the place; `None` when the library has no such address.
    pub(crate) fn host_address(&self) -> Option<NonNull<c_void>> {
        let find = self.memory.driver.library.hcomExtHostPointer().ok()?;
        let mut host = null_mut();
        let bytes = usize::try_from(self.bytes).ok()?.max(1);
        // SAFETY: `host` is a valid place for the answer; the library checks the range.
        let code = unsafe { find(self.address(), bytes, &mut host) };
        self.memory.driver.check("hcomExtHostPointer", code).ok()?;
        NonNull::new(host)
    }

    /// Queues a copy of the first `bytes` bytes into `to`; nothing when both are the same memory.
    ///
    /// # Panics
    /// When either is shorter.
    pub(crate) fn copy_to(&self, to: &Place, bytes: u64, stream: &Stream) -> Result<(), Error> {
        assert!(
            bytes <= self.bytes && bytes <= to.bytes,
            "copies stay inside their places"
        );
        if self.address() == to.address() || bytes == 0 {
            return Ok(());
        }
        let copy = self.memory.driver.library.aclrtMemcpyAsync()?;
        let bytes = bytes as usize;
        // SAFETY: both ends are valid for `bytes` bytes of device memory, which is freed only when
        // the device is idle.
        let code = unsafe {
            copy(
                to.address(),
                bytes,
                self.address(),
                bytes,
                c::ACL_MEMCPY_DEVICE_TO_DEVICE,
                stream.raw(),
            )
        };
        self.memory.driver.check("aclrtMemcpyAsync", code)
    }

    /// Writes `data` to the beginning at once, whatever is queued.
    ///
    /// # Panics
    /// When the place is shorter.
    pub(crate) fn write(&self, data: &[u8]) -> Result<(), Error> {
        assert!(
            data.len() as u64 <= self.bytes,
            "writes stay inside their place"
        );
        let copy = self.memory.driver.library.aclrtMemcpy()?;
        // SAFETY: `data` is valid for its length and so is the device memory; the call returns
        // after the copy.
        let code = unsafe {
            copy(
                self.address(),
                data.len(),
                data.as_ptr().cast(),
                data.len(),
                c::ACL_MEMCPY_HOST_TO_DEVICE,
            )
        };
        self.memory.driver.check("aclrtMemcpy", code)
    }

    /// Reads the beginning into `data` at once, whatever is queued.
    ///
    /// # Panics
    /// When the place is shorter.
    pub(crate) fn read(&self, data: &mut [u8]) -> Result<(), Error> {
        assert!(
            data.len() as u64 <= self.bytes,
            "reads stay inside their place"
        );
        let copy = self.memory.driver.library.aclrtMemcpy()?;
        // SAFETY: `data` is valid for its length and so is the device memory; the call returns
        // after the copy.
        let code = unsafe {
            copy(
                data.as_mut_ptr().cast(),
                data.len(),
                self.address(),
                data.len(),
                c::ACL_MEMCPY_DEVICE_TO_HOST,
            )
        };
        self.memory.driver.check("aclrtMemcpy", code)
    }

    /// Sets every byte to 0 at once, whatever is queued.
    pub(crate) fn clear(&self) -> Result<(), Error> {
        let set = self.memory.driver.library.aclrtMemset()?;
        let bytes = self.bytes as usize;
        // SAFETY: the place lies inside its block.
        let code = unsafe { set(self.address(), bytes, 0, bytes) };
        self.memory.driver.check("aclrtMemset", code)
    }

    /// Queues a write of `value` to word `index`. `None` when the library cannot.
    pub(crate) fn write_word(
        &self,
        index: usize,
        value: u64,
        stream: &Stream,
    ) -> Option<Result<(), Error>> {
        let write = self.memory.driver.library.aclrtValueWrite().ok()?;
        assert!(
            (index as u64 + 1) * 8 <= self.bytes,
            "writes stay inside their place"
        );
        let address = self.address().wrapping_byte_add(index * 8);
        // SAFETY: the word lies inside the block, which outlives the work on it: memory is freed
        // only when the device is idle.
        let code = unsafe { write(address, value, 0, stream.raw()) };
        Some(self.memory.driver.check("aclrtValueWrite", code))
    }
}

impl Array {
    /// An array over device memory that somebody else owns. `owner` is dropped when neither the
    /// array nor the device uses the memory any more.
    ///
    /// # Errors
    /// [`Error::DataSize`] when the size of the array exceeds 64 bits; the failure of the job.
    ///
    /// # Safety
    /// `address` is aligned for `dtype` and points to memory of the runtime's device that holds the
    /// whole array, row-major, and stays valid until `owner` is dropped. Until then nobody else
    /// writes it, and nobody reads it after the array was given to something that writes it, except
    /// in an order that the device guarantees.
    pub unsafe fn from_raw(
        runtime: &Runtime,
        address: *mut c_void,
        dtype: DType,
        shape: &[u64],
        owner: Box<dyn Any + Send + Sync>,
    ) -> Result<Array, Error> {
        let ty = Type::fixed(dtype, shape);
        let Some(bytes) = ty.bytes() else {
            return Err(Error::DataSize {
                ty: ty.to_string(),
                expected: u64::MAX,
                got: 0,
            });
        };
        let inner = runtime.inner();
        drop(inner.begin()?);
        let memory = Memory {
            driver: inner.driver.clone(),
            address: Handle(address),
            bytes,
            owner: Some(owner),
        };
        Ok(Array::foreign(inner, memory, dtype, shape))
    }
}
