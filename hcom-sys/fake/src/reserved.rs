//! Reserved device addresses and the memory mapped into them.
//!
//! A reservation is a window of address space without access rights; mapping puts pages of a memory file there. In
//! strict mode programs see the addresses of a second window, which stays without access rights.

use std::collections::BTreeMap;
use std::ffi::c_void;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use crate::code;
use crate::config;
use crate::error::{Failure, Outcome, refuse};
use crate::memory::{Arena, lock};
use crate::share::Memory;
use crate::shm::Region;
use crate::span::Span;

/// The smallest page there is.
pub(crate) const PAGE: usize = 4096;

/// Memory without an address: of a device of this process, or opened from another one.
pub(crate) struct Physical {
    /// Where the bytes are.
    pub memory: Memory,
    /// Who gets them back.
    arena: Option<Arc<Arena>>,
}

impl Physical {
    /// Takes `bytes` (whole pages) of a device; `None` when it has not as many in one piece.
    pub(crate) fn allocate(arena: &Arc<Arena>, bytes: usize) -> Option<Self> {
        let offset = arena.take_pages(bytes, PAGE)?;
        let memory = Memory {
            region: arena.region().clone(),
            offset,
            bytes,
            device: arena.device(),
        };
        Some(Self {
            memory,
            arena: Some(arena.clone()),
        })
    }

    /// Memory that another process exports.
    pub(crate) fn foreign(memory: Memory) -> Self {
        Self {
            memory,
            arena: None,
        }
    }
}

impl Drop for Physical {
    fn drop(&mut self) {
        if let Some(arena) = &self.arena {
            arena.give_back(self.memory.offset);
        }
    }
}

struct Window {
    /// Where this process reads and writes.
    inside: Arc<Region>,
    /// Where the program's addresses are.
    outside: Arc<Region>,
    /// What is mapped, by offset.
    pieces: BTreeMap<usize, (usize, Arc<Physical>)>,
}

/// Reservations by their first address.
static WINDOWS: Mutex<BTreeMap<usize, Window>> = Mutex::new(BTreeMap::new());
/// How many there are, so that looking up other addresses needs no lock.
static COUNT: AtomicUsize = AtomicUsize::new(0);

/// Reserves `bytes` of addresses, rounded up to pages.
///
/// # Errors
/// 207001 when there is no address space.
pub(crate) fn reserve(bytes: usize) -> Outcome<*mut c_void> {
    let bytes = bytes.next_multiple_of(PAGE);
    let region = || {
        Region::inaccessible(bytes).map_err(|error| {
            Failure::new(
                code::OUT_OF_MEMORY,
                format!("{bytes} bytes of address space: {error}"),
            )
        })
    };
    let inside = region()?;
    let outside = if config::or_default().strict {
        region()?
    } else {
        inside.clone()
    };
    let base = outside.base();
    let window = Window {
        inside,
        outside,
        pieces: BTreeMap::new(),
    };
    lock(&WINDOWS).insert(base.addr(), window);
    COUNT.fetch_add(1, Ordering::SeqCst);
    Ok(base.cast())
}

/// Gives a reservation back.
///
/// # Errors
/// 107000 when none starts there, or something is still mapped.
pub(crate) fn release(pointer: *const c_void) -> Outcome {
    let mut windows = lock(&WINDOWS);
    match windows.get(&pointer.addr()) {
        Some(window) if window.pieces.is_empty() => {
            windows.remove(&pointer.addr());
            COUNT.fetch_sub(1, Ordering::SeqCst);
            Ok(())
        }
        Some(_) => refuse(
            code::RT_PARAM,
            "memory is still mapped there; call aclrtUnmapMem",
        ),
        None => refuse(
            code::RT_PARAM,
            format!("no reservation starts at {pointer:p}"),
        ),
    }
}

/// Runs `body` on the window around `address`, with the address as an offset.
fn within<T>(address: usize, body: impl FnOnce(&mut Window, usize) -> T) -> Option<T> {
    if COUNT.load(Ordering::Relaxed) == 0 {
        return None;
    }
    let mut windows = lock(&WINDOWS);
    let (&start, window) = windows.range_mut(..=address).next_back()?;
    (address - start < window.outside.bytes()).then(|| body(window, address - start))
}

/// Whether `bytes` at `address` lie in one reservation, mapped or not.
pub(crate) fn holds(address: usize, bytes: usize) -> bool {
    within(address, |window, at| bytes <= window.outside.bytes() - at).unwrap_or(false)
}

/// Maps `bytes` of `physical` at `pointer`.
///
/// # Errors
/// 107000 outside reservations, over other mappings, or for other sizes than the memory has.
pub(crate) fn map(pointer: *const c_void, bytes: usize, physical: Arc<Physical>) -> Outcome {
    let mapped = within(pointer.addr(), |window, at| {
        let memory = &physical.memory;
        if bytes != memory.bytes || !at.is_multiple_of(PAGE) {
            return refuse(
                code::RT_PARAM,
                format!(
                    "{bytes} bytes at {pointer:p}, expected all {} at a page",
                    memory.bytes
                ),
            );
        }
        if bytes > window.outside.bytes() - at {
            return refuse(
                code::RT_PARAM,
                "the mapping would reach past the reservation",
            );
        }
        let before = window.pieces.range(..at + bytes).next_back();
        if before.is_some_and(|(&start, &(length, _))| start + length > at) {
            return refuse(code::RT_PARAM, "something is mapped there already");
        }
        window
            .inside
            .show(at, &memory.region, memory.offset, bytes)
            .map_err(|error| Failure::new(code::RESOURCE, format!("no mapping: {error}")))?;
        window.pieces.insert(at, (bytes, physical.clone()));
        Ok(())
    });
    mapped.unwrap_or_else(|| {
        refuse(
            code::RT_PARAM,
            format!("{pointer:p} lies in no reservation"),
        )
    })
}

/// Undoes [`map`].
///
/// # Errors
/// 107000 when no mapping starts there.
pub(crate) fn unmap(pointer: *const c_void) -> Outcome {
    let piece = within(pointer.addr(), |window, at| {
        let (bytes, physical) = window.pieces.remove(&at)?;
        // Failing to take pages away only leaves them visible.
        let _ = window.inside.hide(at, bytes);
        Some(physical)
    });
    match piece.flatten() {
        Some(_) => Ok(()),
        None => refuse(code::RT_PARAM, format!("no mapping starts at {pointer:p}")),
    }
}

/// What lies at an address of a reservation.
pub(crate) struct Found {
    /// The bytes.
    pub span: Span,
    /// The device they belong to.
    pub device: u32,
    /// The file they lie in, and where, when they lie there in one piece.
    pub in_file: Option<(Arc<Region>, usize)>,
}

/// Looks up `bytes` at `address`; `None` outside all reservations.
pub(crate) fn find(address: usize, bytes: usize) -> Option<Result<Found, String>> {
    within(address, |window, at| {
        let mut covered = at;
        let mut first: Option<(usize, &Arc<Physical>)> = None;
        let mut in_one = true;
        for (&start, (length, physical)) in window.pieces.range(..(at + bytes).max(at + 1)) {
            if start + length <= at {
                continue;
            }
            if start > covered {
                break;
            }
            match first {
                None => first = Some((at - start, physical)),
                Some((_, before)) => {
                    in_one &= Arc::ptr_eq(&before.memory.region, &physical.memory.region)
                        && before.memory.offset + before.memory.bytes == physical.memory.offset;
                }
            }
            covered = start + length;
        }
        let Some((delta, physical)) = first.filter(|_| covered >= at + bytes) else {
            return Err(format!(
                "{bytes} bytes at {address:#x} are reserved, but not all mapped"
            ));
        };
        let memory = &physical.memory;
        Ok(Found {
            span: Span::inside(&window.inside, at, bytes).expect("mapped pieces lie inside"),
            device: memory.device,
            in_file: in_one.then(|| (memory.region.clone(), memory.offset + delta)),
        })
    })
}
