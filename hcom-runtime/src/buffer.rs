//! Arrays in device memory, and the pool they come from.
//!
//! A rank issues everything through its compute stream: what other streams do begins after work of
//! that stream and ends before later work of it. Memory that an array gives back may therefore be
//! taken by work that is issued later without waiting for anything.

use std::{
    collections::BTreeMap,
    ffi::c_void,
    fmt,
    sync::{Arc, Mutex, PoisonError},
};

use hcom_ir::{DType, Type};

use crate::{
    error::Error,
    raw::{Driver, Memory, Place},
    runtime::Inner,
};

/// Blocks of device memory, free ones by size.
#[derive(Debug)]
pub(crate) struct Pool {
    driver: Arc<Driver>,
    free: Mutex<BTreeMap<u64, Vec<Arc<Memory>>>>,
}

impl Pool {
    pub(crate) fn new(driver: &Arc<Driver>) -> Pool {
        Pool {
            driver: driver.clone(),
            free: Mutex::default(),
        }
    }

    /// A block of at least `bytes` bytes, and whether it was never used.
    fn take(&self, bytes: u64) -> Result<(Arc<Memory>, bool), Error> {
        let size = rounded(bytes);
        let known = self.free().get_mut(&size).and_then(Vec::pop);
        if let Some(block) = known {
            return Ok((block, false));
        }
        let made = Memory::allocate(&self.driver, size).or_else(|error| {
            // Memory may be there in sizes that nobody asks for any more.
            let unused = std::mem::take(&mut *self.free());
            if unused.is_empty() {
                return Err(error);
            }
            drop(unused);
            Memory::allocate(&self.driver, size)
        })?;
        Ok((Arc::new(made), true))
    }

    fn give(&self, block: Arc<Memory>) {
        self.free().entry(block.bytes()).or_default().push(block);
    }

    fn free(&self) -> std::sync::MutexGuard<'_, BTreeMap<u64, Vec<Arc<Memory>>>> {
        self.free.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The size of the block that serves a request: blocks of similar requests are interchangeable, and
/// at most an eighth of one is lost.
fn rounded(bytes: u64) -> u64 {
    let step = (bytes.next_power_of_two() / 16).max(512);
    bytes.max(1).div_ceil(step) * step
}

/// A block on loan from the pool of a runtime.
pub(crate) struct Block {
    runtime: Arc<Inner>,
    memory: Option<Arc<Memory>>,
    pooled: bool,
}

impl Block {
    /// A block, and whether nothing that was issued may still use it.
    pub(crate) fn take(runtime: &Arc<Inner>, bytes: u64) -> Result<(Block, bool), Error> {
        let (memory, fresh) = runtime.pool.take(bytes)?;
        let block = Block {
            runtime: runtime.clone(),
            memory: Some(memory),
            pooled: true,
        };
        Ok((block, fresh))
    }

    fn memory(&self) -> &Arc<Memory> {
        self.memory
            .as_ref()
            .expect("a block holds its memory until it is dropped")
    }

    /// The first `bytes` bytes.
    pub(crate) fn place(&self, bytes: u64) -> Place {
        Place::new(self.memory().clone(), 0, bytes)
    }

    /// `bytes` bytes from byte `offset`.
    pub(crate) fn part(&self, offset: u64, bytes: u64) -> Place {
        Place::new(self.memory().clone(), offset, bytes)
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        if let Some(memory) = self.memory.take()
            && self.pooled
        {
            self.runtime.pool.give(memory);
        }
    }
}

/// A contiguous array in device memory of one rank. Clones share the memory.
///
/// The content is there once everything issued before has been executed; [`Array::to_host`] waits.
#[derive(Clone)]
pub struct Array(Arc<Content>);

struct Content {
    block: Block,
    ty: Type,
    shape: Vec<u64>,
    bytes: u64,
}

impl fmt::Debug for Array {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Array({} at {:p})", self.0.ty, self.ptr())
    }
}

impl Array {
    pub(crate) fn new(block: Block, dtype: DType, shape: &[u64]) -> Array {
        let ty = Type::fixed(dtype, shape);
        let bytes = ty.bytes().unwrap_or(0);
        Array(Arc::new(Content {
            block,
            ty,
            shape: shape.to_vec(),
            bytes,
        }))
    }

    pub(crate) fn foreign(
        runtime: &Arc<Inner>,
        memory: Memory,
        dtype: DType,
        shape: &[u64],
    ) -> Array {
        let block = Block {
            runtime: runtime.clone(),
            memory: Some(Arc::new(memory)),
            pooled: false,
        };
        Array::new(block, dtype, shape)
    }

    /// Element type.
    pub fn dtype(&self) -> DType {
        self.0.ty.dtype
    }

    /// Sizes, outermost first.
    pub fn shape(&self) -> &[u64] {
        &self.0.shape
    }

    /// Size of the data in bytes.
    pub fn byte_len(&self) -> u64 {
        self.0.bytes
    }

    /// Device address of the first element. The memory is valid as long as the array.
    pub fn ptr(&self) -> *mut c_void {
        self.0.block.memory().address()
    }

    /// Whether both are the same memory.
    pub fn same_memory(&self, other: &Array) -> bool {
        self.ptr() == other.ptr()
    }

    /// Waits for everything that was issued before and copies the data to the host: little endian,
    /// row-major.
    ///
    /// # Errors
    /// [`Error::Failure`] when the job has failed, and what went wrong in anything that was issued
    /// before.
    pub fn to_host(&self) -> Result<Vec<u8>, Error> {
        let mut bytes = vec![0; self.0.bytes as usize];
        self.0.block.runtime.read(&self.place(), &mut bytes)?;
        Ok(bytes)
    }

    pub(crate) fn ty(&self) -> &Type {
        &self.0.ty
    }

    pub(crate) fn place(&self) -> Place {
        self.0.block.place(self.0.bytes)
    }

    pub(crate) fn runtime(&self) -> &Arc<Inner> {
        &self.0.block.runtime
    }
}

#[cfg(test)]
mod tests {
    use super::rounded;

    #[test]
    fn similar_requests_share_a_size_and_little_is_lost() {
        assert_eq!([0, 1, 512, 513].map(rounded), [512, 512, 512, 1024]);
        assert_eq!(rounded(1_000_000), rounded(990_000));
        for bytes in (1..5_000_000).step_by(4999) {
            let size = rounded(bytes);
            assert!(
                size >= bytes && size - bytes <= (bytes / 8).max(512),
                "{bytes} {size}"
            );
        }
    }
}
