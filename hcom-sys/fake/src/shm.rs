//! Memory that several processes see: sealed memory files, their mappings and atomic words inside them.
//!
//! Everything that maps or unmaps lives here. A [`Region`] owns one mapping of one memory file (or of anonymous
//! memory) and unmaps it when the last owner is gone, so a pointer into it stays valid as long as its `Arc` lives.
//! The file is sealed against shrinking, so that no peer can turn an access of ours into a bus error.
#![expect(
    unsafe_code,
    reason = "mapping memory and viewing parts of it as atomics"
)]

use std::collections::HashMap;
use std::ffi::c_void;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicU32, AtomicU64};
use std::sync::{Arc, LazyLock, Mutex, PoisonError, Weak};

use rustix::fs::{FallocateFlags, MemfdFlags, SealFlags};
use rustix::mm::{MapFlags, ProtFlags};

/// The page size assumed when whole pages are given back: a multiple of it on every Linux is fine.
pub(crate) const PAGE: usize = 65536;

/// A mapping, shared and writable, that lives as long as this value.
#[derive(Debug)]
pub(crate) struct Region {
    base: NonNull<u8>,
    bytes: usize,
    file: Option<OwnedFd>,
}

// SAFETY: a `Region` only names a mapping; all access to the bytes goes through atomics or through raw pointers whose
// users state why their access is allowed. The mapping itself is valid in every thread.
unsafe impl Send for Region {}
// SAFETY: as above; no method hands out a reference to plain bytes.
unsafe impl Sync for Region {}

/// Regions by the identity of their file, so that a process maps each file once.
type Mapped = HashMap<(u64, u64), Weak<Region>>;
static MAPPED: LazyLock<Mutex<Mapped>> = LazyLock::new(Mutex::default);

impl Region {
    /// Creates a memory file of `bytes` (sparse, no name anywhere), seals its size and maps it whole.
    ///
    /// # Errors
    /// What the system answers when files or address space are short.
    pub(crate) fn create(name: &str, bytes: usize) -> io::Result<Arc<Self>> {
        let file = rustix::fs::memfd_create(name, MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
        rustix::fs::ftruncate(&file, bytes as u64)?;
        rustix::fs::fcntl_add_seals(&file, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)?;
        Self::adopt(file)
    }

    /// Maps a memory file that this process or a peer created; a file that is mapped already is not mapped again.
    ///
    /// # Errors
    /// `InvalidInput` when the file could still shrink; else what the system answers.
    pub(crate) fn adopt(file: OwnedFd) -> io::Result<Arc<Self>> {
        let seals = rustix::fs::fcntl_get_seals(&file)?;
        if !seals.contains(SealFlags::SHRINK) {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                "a memory file that is not sealed against shrinking",
            ));
        }
        let stat = rustix::fs::fstat(&file)?;
        let identity = (stat.st_dev, stat.st_ino);
        let mut mapped = MAPPED.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(region) = mapped.get(&identity).and_then(Weak::upgrade) {
            return Ok(region);
        }
        let bytes = usize::try_from(stat.st_size).map_err(io::Error::other)?;
        // SAFETY: a new mapping at an address the kernel chooses replaces nothing.
        let base = unsafe {
            rustix::mm::mmap(
                ptr::null_mut(),
                bytes,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::SHARED | MapFlags::NORESERVE,
                &file,
                0,
            )?
        };
        let region = Arc::new(Self::new(base, bytes, Some(file))?);
        mapped.retain(|_, region| region.strong_count() > 0);
        mapped.insert(identity, Arc::downgrade(&region));
        Ok(region)
    }

    /// Maps `bytes` of zeroed memory that only this process (and its threads) can see.
    ///
    /// # Errors
    /// What the system answers when memory is short.
    pub(crate) fn anonymous(bytes: usize) -> io::Result<Arc<Self>> {
        // SAFETY: a new mapping at an address the kernel chooses replaces nothing.
        let base = unsafe {
            rustix::mm::mmap_anonymous(
                ptr::null_mut(),
                bytes,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::PRIVATE,
            )?
        };
        Ok(Arc::new(Self::new(base, bytes, None)?))
    }

    /// Takes `bytes` of address space without access rights: a touch faults.
    ///
    /// # Errors
    /// What the system answers when address space is short.
    pub(crate) fn inaccessible(bytes: usize) -> io::Result<Arc<Self>> {
        // SAFETY: a new mapping at an address the kernel chooses replaces nothing.
        let base = unsafe {
            rustix::mm::mmap_anonymous(
                ptr::null_mut(),
                bytes,
                ProtFlags::empty(),
                MapFlags::PRIVATE | MapFlags::NORESERVE,
            )?
        };
        Ok(Arc::new(Self::new(base, bytes, None)?))
    }

    /// Lets `at..at + bytes` of this mapping show what lies in `other` from `offset` on.
    ///
    /// # Errors
    /// What the system answers.
    ///
    /// # Panics
    /// When a range does not lie inside: they are checked by this crate's callers.
    pub(crate) fn show(
        &self,
        at: usize,
        other: &Self,
        offset: usize,
        bytes: usize,
    ) -> io::Result<()> {
        assert!(at + bytes <= self.bytes && offset + bytes <= other.bytes);
        let file = other.file.as_ref().expect("a memory file");
        // SAFETY: only pages of this value's own mapping are replaced (checked); spans into it stay mapped.
        unsafe {
            rustix::mm::mmap(
                self.base().add(at).cast(),
                bytes,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::SHARED | MapFlags::FIXED | MapFlags::NORESERVE,
                file,
                offset as u64,
            )?
        };
        Ok(())
    }

    /// Takes the contents of `at..at + bytes` away: private zeros, so that work still queued there finds memory.
    ///
    /// # Errors
    /// What the system answers.
    ///
    /// # Panics
    /// When the range does not lie inside.
    pub(crate) fn hide(&self, at: usize, bytes: usize) -> io::Result<()> {
        assert!(at + bytes <= self.bytes);
        // SAFETY: as in `show`.
        unsafe {
            rustix::mm::mmap_anonymous(
                self.base().add(at).cast(),
                bytes,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::PRIVATE | MapFlags::FIXED | MapFlags::NORESERVE,
            )?
        };
        Ok(())
    }

    fn new(base: *mut c_void, bytes: usize, file: Option<OwnedFd>) -> io::Result<Self> {
        let base = NonNull::new(base.cast())
            .ok_or_else(|| io::Error::other("the kernel mapped at address zero"))?;
        Ok(Self { base, bytes, file })
    }

    /// The first byte of the mapping in this process.
    pub(crate) fn base(&self) -> *mut u8 {
        self.base.as_ptr()
    }

    /// The length of the mapping in bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// The memory file, to hand to a peer; `None` for private memory.
    pub(crate) fn file(&self) -> Option<BorrowedFd<'_>> {
        self.file.as_ref().map(AsFd::as_fd)
    }

    /// Gives the whole pages in `offset..offset + bytes` back to the system; they read as zero afterwards. Pages that
    /// only partly lie in the range stay. A failure only costs memory and is not reported.
    pub(crate) fn punch(&self, offset: usize, bytes: usize) {
        let first = offset.next_multiple_of(PAGE);
        let end = (offset + bytes) / PAGE * PAGE;
        if let (Some(file), true) = (&self.file, first < end) {
            let mode = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
            let _ = rustix::fs::fallocate(file, mode, first as u64, (end - first) as u64);
        }
    }

    /// The four bytes at `offset` as an atomic word.
    ///
    /// # Panics
    /// When the word is misaligned or outside: offsets are computed by this crate only.
    pub(crate) fn word32(&self, offset: usize) -> &AtomicU32 {
        assert!(offset.is_multiple_of(4) && offset + 4 <= self.bytes);
        // SAFETY: the word lies inside the mapping (checked), which outlives the borrow of `self`, and is aligned
        // (checked; mappings start at a page). All processes reach these control words through atomics only.
        unsafe { AtomicU32::from_ptr(self.base().add(offset).cast()) }
    }

    /// The eight bytes at `offset` as an atomic word.
    ///
    /// # Panics
    /// When the word is misaligned or outside: offsets are computed by this crate only.
    pub(crate) fn word64(&self, offset: usize) -> &AtomicU64 {
        assert!(offset.is_multiple_of(8) && offset + 8 <= self.bytes);
        // SAFETY: as in `word32`.
        unsafe { AtomicU64::from_ptr(self.base().add(offset).cast()) }
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        // SAFETY: this value owns the mapping; nothing that points into it outlives the last `Arc` of it.
        let _ = unsafe { rustix::mm::munmap(self.base.as_ptr().cast(), self.bytes) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::Ordering;

    #[test]
    fn a_file_is_mapped_once_and_seen_by_all() {
        let region = Region::create("test", 1 << 20).unwrap();
        let copy = region.file().unwrap().try_clone_to_owned().unwrap();
        let again = Region::adopt(copy).unwrap();
        assert!(Arc::ptr_eq(&region, &again));
        region.word64(64).store(77, Ordering::Relaxed);
        assert_eq!(again.word64(64).load(Ordering::Relaxed), 77);
    }

    #[test]
    fn a_punched_hole_reads_as_zero_and_its_neighbours_stay() {
        let region = Region::create("test", 4 * PAGE).unwrap();
        for page in 0..4 {
            region
                .word32(page * PAGE)
                .store(page as u32 + 1, Ordering::Relaxed);
        }
        region.punch(PAGE - 8, PAGE + 16);
        let read: Vec<u32> = (0..4)
            .map(|page| region.word32(page * PAGE).load(Ordering::Relaxed))
            .collect();
        assert_eq!(read, [1, 0, 3, 4]);
    }

    #[test]
    fn a_file_that_can_shrink_is_refused() {
        let file =
            rustix::fs::memfd_create("test", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)
                .unwrap();
        rustix::fs::ftruncate(&file, 4096).unwrap();
        assert_eq!(
            Region::adopt(file).unwrap_err().kind(),
            io::ErrorKind::InvalidInput
        );
    }
}
