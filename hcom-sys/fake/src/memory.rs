//! Device memory and pinned host memory.
//!
//! Each device of this process is one [`Arena`]: a sparse memory file as large as the device, mapped once, with an
//! allocator inside. A device address is an address of this process: that of the mapped byte, or, in strict mode, one
//! in a reservation without access rights that lies beside the mapping. Whoever touches device bytes asks [`span`]
//! first, which checks the range against the live allocations.
//!
//! Freeing punches the pages out of the file but never unmaps them: work that still runs on freed memory reads zeros
//! instead of breaking the process.

use std::collections::BTreeMap;
use std::ffi::c_void;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};

use crate::code;
use crate::error::{Outcome, refuse};
use crate::reserved;
use crate::shm::Region;
use crate::span::Span;

/// Device allocations start at multiples of this.
const ALIGN: usize = 512;
/// What `aclrtMalloc` adds behind every allocation on the chips modelled here.
const TAIL: usize = 32;

/// Locks, whatever a panicking thread left behind: every critical section here keeps its data whole.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The memory of one device.
#[derive(Debug)]
pub(crate) struct Arena {
    device: u32,
    region: Arc<Region>,
    /// In strict mode, the addresses that stand for the bytes of `region`.
    shadow: Option<Arc<Region>>,
    blocks: Mutex<Blocks>,
}

#[derive(Debug)]
struct Blocks {
    /// Free extents by offset; no two touch.
    free: BTreeMap<usize, usize>,
    /// Live allocations by offset: bytes asked for, extent taken.
    live: BTreeMap<usize, (usize, usize)>,
    free_bytes: usize,
}

/// All arenas of this process. Few (one per device used), never removed.
static ARENAS: RwLock<Vec<Arc<Arena>>> = RwLock::new(Vec::new());

impl Arena {
    /// Creates the memory of a device and makes its addresses known.
    pub(crate) fn create(device: u32, bytes: usize, strict: bool) -> io::Result<Arc<Self>> {
        let region = Region::create("hcom-fake-device", bytes)?;
        let shadow = strict.then(|| Region::inaccessible(bytes)).transpose()?;
        // Offset zero stays free, so that no offset handed to a peer looks like "nothing".
        let blocks = Blocks {
            free: BTreeMap::from([(ALIGN, bytes - ALIGN)]),
            live: BTreeMap::new(),
            free_bytes: bytes - ALIGN,
        };
        let arena = Arc::new(Self {
            device,
            region,
            shadow,
            blocks: Mutex::new(blocks),
        });
        ARENAS
            .write()
            .unwrap_or_else(PoisonError::into_inner)
            .push(arena.clone());
        Ok(arena)
    }

    /// The memory file and its mapping.
    pub(crate) fn region(&self) -> &Arc<Region> {
        &self.region
    }

    fn base(&self) -> usize {
        self.shadow.as_ref().unwrap_or(&self.region).base().addr()
    }

    /// Free and total bytes.
    pub(crate) fn usage(&self) -> (usize, usize) {
        (lock(&self.blocks).free_bytes, self.region.bytes())
    }

    /// Allocates `bytes` (not 0); the address is what programs see. `None` when no extent is large enough.
    pub(crate) fn allocate(&self, bytes: usize) -> Option<*mut c_void> {
        let extent = bytes.checked_add(TAIL)?.checked_next_multiple_of(ALIGN)?;
        let mut blocks = lock(&self.blocks);
        let (&offset, &length) = blocks.free.iter().find(|&(_, &length)| length >= extent)?;
        blocks.free.remove(&offset);
        if length > extent {
            blocks.free.insert(offset + extent, length - extent);
        }
        blocks.live.insert(offset, (bytes, extent));
        blocks.free_bytes -= extent;
        drop(blocks);
        let base = self.shadow.as_ref().unwrap_or(&self.region).base();
        Some(base.wrapping_add(offset).cast())
    }

    /// The device this is the memory of.
    pub(crate) fn device(&self) -> u32 {
        self.device
    }

    /// Takes `bytes` (a multiple of `page`) that start at a multiple of `page`; their offset.
    pub(crate) fn take_pages(&self, bytes: usize, page: usize) -> Option<usize> {
        let mut blocks = lock(&self.blocks);
        let (offset, length, start) = blocks.free.iter().find_map(|(&offset, &length)| {
            let start = offset.next_multiple_of(page);
            (start - offset + bytes <= length).then_some((offset, length, start))
        })?;
        blocks.free.remove(&offset);
        if start > offset {
            blocks.free.insert(offset, start - offset);
        }
        if offset + length > start + bytes {
            let rest = offset + length - start - bytes;
            blocks.free.insert(start + bytes, rest);
        }
        blocks.live.insert(start, (bytes, bytes));
        blocks.free_bytes -= bytes;
        Some(start)
    }

    /// Frees the allocation at `address`; false when there is none.
    fn free(&self, address: usize) -> bool {
        self.give_back(address - self.base())
    }

    /// Frees the allocation at `offset`; false when there is none.
    pub(crate) fn give_back(&self, offset: usize) -> bool {
        let mut blocks = lock(&self.blocks);
        let Some((_, extent)) = blocks.live.remove(&offset) else {
            return false;
        };
        blocks.free_bytes += extent;
        let (mut start, mut length) = (offset, extent);
        if let Some((&before, &bytes)) = blocks.free.range(..offset).next_back()
            && before + bytes == start
        {
            blocks.free.remove(&before);
            start = before;
            length += bytes;
        }
        if let Some(bytes) = blocks.free.remove(&(offset + extent)) {
            length += bytes;
        }
        blocks.free.insert(start, length);
        // Under the lock: nobody may be given these pages before they are punched.
        const PAGE: usize = crate::shm::PAGE;
        let first = start.max(offset / PAGE * PAGE);
        let end = (start + length).min((offset + extent).next_multiple_of(PAGE));
        self.region.punch(first, end - first);
        true
    }

    /// Where `bytes` at `address` lie in the memory file, when they lie inside one live allocation.
    fn locate(&self, address: usize, bytes: usize) -> Result<usize, String> {
        let offset = address - self.base();
        let blocks = lock(&self.blocks);
        match blocks.live.range(..=offset).next_back() {
            Some((&start, &(size, _)))
                if offset - start <= size && bytes <= size - (offset - start) =>
            {
                Ok(offset)
            }
            Some((&start, &(size, extent))) if offset < start + extent => Err(format!(
                "{bytes} bytes at {address:#x} reach past the allocation of {size} bytes that starts {} bytes before",
                offset - start
            )),
            _ => Err(format!("{address:#x} lies in no live allocation")),
        }
    }

    /// The offset of `bytes` at `address` in this device's memory.
    ///
    /// # Errors
    /// A sentence that says what is wrong with the range.
    pub(crate) fn offset(&self, address: usize, bytes: usize) -> Result<usize, String> {
        if self.contains(address) {
            return self.locate(address, bytes);
        }
        match reserved::find(address, bytes) {
            Some(found) => match found?.in_file {
                Some((region, offset)) if Arc::ptr_eq(&region, &self.region) => Ok(offset),
                _ => Err(format!(
                    "{bytes} bytes at {address:#x} do not lie in this device's memory in one piece"
                )),
            },
            None => Err(format!("{address:#x} is no address of this device")),
        }
    }

    fn contains(&self, address: usize) -> bool {
        (self.base()..self.base() + self.region.bytes()).contains(&address)
    }
}

fn arena_of(address: usize) -> Option<Arc<Arena>> {
    let arenas = ARENAS.read().unwrap_or_else(PoisonError::into_inner);
    arenas.iter().find(|arena| arena.contains(address)).cloned()
}

/// Whether `pointer` is an address of device memory (allocated or not).
pub(crate) fn is_device(pointer: *const c_void) -> bool {
    arena_of(pointer.addr()).is_some() || reserved::find(pointer.addr(), 0).is_some()
}

/// The device that an address of device memory belongs to; 0 for other addresses.
pub(crate) fn device_of(pointer: *const c_void) -> u32 {
    let reserved = || match reserved::find(pointer.addr(), 0) {
        Some(Ok(found)) => found.device,
        _ => 0,
    };
    arena_of(pointer.addr()).map_or_else(reserved, |arena| arena.device)
}

/// The bytes at device address `pointer`, if they all lie inside one live allocation.
///
/// # Errors
/// `ACL_ERROR_RT_PARAM_INVALID` with a sentence that says what is wrong with the range.
pub(crate) fn span(pointer: *const c_void, bytes: usize) -> Outcome<Span> {
    let address = pointer.addr();
    let Some(arena) = arena_of(address) else {
        if let Some(found) = reserved::find(address, bytes) {
            return found
                .map(|found| found.span)
                .or_else(|text| refuse(code::RT_PARAM, text));
        }
        return refuse(code::RT_PARAM, format!("{address:#x} is no device address"));
    };
    match arena.locate(address, bytes) {
        Ok(offset) => {
            Ok(Span::inside(&arena.region, offset, bytes).expect("allocations lie inside"))
        }
        Err(text) => refuse(code::RT_PARAM, text),
    }
}

/// Frees the device allocation at `pointer`.
///
/// # Errors
/// `ACL_ERROR_RT_PARAM_INVALID` when no allocation starts there.
pub(crate) fn free(pointer: *const c_void) -> Outcome {
    match arena_of(pointer.addr()) {
        Some(arena) if arena.free(pointer.addr()) => Ok(()),
        _ => refuse(
            code::RT_PARAM,
            format!(
                "{:#x} is not the start of a live device allocation",
                pointer.addr()
            ),
        ),
    }
}

/// Pinned host memory: allocated here, or the program's own and only registered.
enum Pinned {
    Ours(Arc<Region>),
    Registered,
}

/// Pinned ranges by first address: their length and owner.
static PINNED: Mutex<BTreeMap<usize, (usize, Pinned)>> = Mutex::new(BTreeMap::new());

/// Allocates `bytes` (not 0) of pinned host memory.
///
/// # Errors
/// `ACL_ERROR_RT_MEMORY_ALLOCATION` when the host has none.
pub(crate) fn allocate_host(bytes: usize) -> Outcome<*mut c_void> {
    match Region::anonymous(bytes) {
        Ok(region) => {
            let base = region.base();
            lock(&PINNED).insert(base.addr(), (bytes, Pinned::Ours(region)));
            Ok(base.cast())
        }
        Err(error) => refuse(
            code::OUT_OF_MEMORY,
            format!("{bytes} bytes of pinned host memory: {error}"),
        ),
    }
}

/// Frees pinned host memory; work that is still queued keeps it alive until it is done.
///
/// # Errors
/// `ACL_ERROR_RT_PARAM_INVALID` when `pointer` did not come from [`allocate_host`].
pub(crate) fn free_host(pointer: *const c_void) -> Outcome {
    let mut pinned = lock(&PINNED);
    match pinned.get(&pointer.addr()) {
        Some((_, Pinned::Ours(_))) => {
            pinned.remove(&pointer.addr());
            Ok(())
        }
        _ => refuse(
            code::RT_PARAM,
            format!(
                "{:#x} is not the start of pinned host memory",
                pointer.addr()
            ),
        ),
    }
}

/// Marks the program's own memory as pinned.
///
/// # Errors
/// `ACL_ERROR_HOST_MEMORY_ALREADY_REGISTERED` when a pinned range starts there.
pub(crate) fn register_host(pointer: *const c_void, bytes: usize) -> Outcome {
    let mut pinned = lock(&PINNED);
    if pinned.contains_key(&pointer.addr()) {
        return refuse(
            code::HOST_REGISTERED,
            format!("{:#x} is pinned already", pointer.addr()),
        );
    }
    pinned.insert(pointer.addr(), (bytes, Pinned::Registered));
    Ok(())
}

/// Undoes [`register_host`].
///
/// # Errors
/// `ACL_ERROR_HOST_MEMORY_NOT_REGISTERED` when it was not registered.
pub(crate) fn unregister_host(pointer: *const c_void) -> Outcome {
    let mut pinned = lock(&PINNED);
    if !matches!(pinned.get(&pointer.addr()), Some((_, Pinned::Registered))) {
        return refuse(
            code::HOST_UNREGISTERED,
            format!("{:#x} is not registered", pointer.addr()),
        );
    }
    pinned.remove(&pointer.addr());
    Ok(())
}

/// What kind of memory an address belongs to.
pub(crate) enum Place {
    /// Checked device memory.
    Device(Span),
    /// Pinned host memory of this crate.
    Pinned(Span),
    /// Host memory that the program pinned.
    Registered,
    /// Any other host memory: nothing is known about it.
    Pageable,
}

/// Finds out where `bytes` at `pointer` lie.
///
/// # Errors
/// `ACL_ERROR_RT_PARAM_INVALID` for a device range outside one live allocation.
pub(crate) fn place(pointer: *const c_void, bytes: usize) -> Outcome<Place> {
    if is_device(pointer) {
        return span(pointer, bytes).map(Place::Device);
    }
    let address = pointer.addr();
    let pinned = lock(&PINNED);
    Ok(match pinned.range(..=address).next_back() {
        Some((&start, &(length, ref owner)))
            if address - start <= length && bytes <= length - (address - start) =>
        {
            match owner {
                Pinned::Ours(region) => Place::Pinned(
                    Span::inside(region, address - start, bytes)
                        .expect("checked against the length"),
                ),
                Pinned::Registered => Place::Registered,
            }
        }
        _ => Place::Pageable,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn arena(strict: bool) -> Arc<Arena> {
        Arena::create(0, 1 << 20, strict).unwrap()
    }

    #[test]
    fn freed_memory_is_joined_and_given_out_again() {
        let arena = arena(false);
        let (free, total) = arena.usage();
        assert_eq!(total, 1 << 20);
        let blocks: Vec<_> = (1..=5).map(|i| arena.allocate(i * 1000).unwrap()).collect();
        assert!(
            blocks
                .iter()
                .all(|block| block.addr().is_multiple_of(ALIGN))
        );
        for index in [1, 3, 2, 0, 4] {
            free_block(blocks[index]);
        }
        assert_eq!(arena.usage().0, free);
        assert!(arena.allocate(free - TAIL).is_some(), "one extent again");
        assert!(arena.allocate(1).is_none());
    }

    fn free_block(block: *mut c_void) {
        free(block).unwrap();
    }

    #[test]
    fn a_range_is_checked_against_its_allocation() {
        let arena = arena(true);
        let block = arena.allocate(1000).unwrap();
        let inside = span(block.wrapping_byte_add(990), 10).unwrap();
        inside.write(0, &[7u8; 10]);
        assert_eq!(
            span(block, 1000).unwrap().to_vec::<u8>()[989..992],
            [0, 7, 7]
        );
        let past = span(block.wrapping_byte_add(990), 11).unwrap_err();
        assert_eq!(past.code, code::RT_PARAM);
        assert!(
            past.text
                .contains("reach past the allocation of 1000 bytes"),
            "{}",
            past.text
        );
        free_block(block);
        assert!(
            span(block, 1)
                .unwrap_err()
                .text
                .contains("no live allocation")
        );
        assert!(free(block).is_err());
        assert_ne!(
            inside.address(),
            block.addr() + 990,
            "strict: not where the program sees it"
        );
    }

    #[test]
    fn pinned_memory_outlives_its_free_while_it_is_used() {
        let block = allocate_host(100).unwrap();
        let Place::Pinned(span) = place(block.wrapping_byte_add(50), 50).unwrap() else {
            panic!("pinned")
        };
        assert!(matches!(place(block, 101).unwrap(), Place::Pageable));
        free_host(block).unwrap();
        span.write(0, &[1u8; 50]);
        assert!(free_host(block).is_err());
    }
}
