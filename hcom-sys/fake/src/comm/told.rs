//! Memory that a communicator is told of: reserved ranges with what is active in them, and symmetric windows.
//!
//! Here all ranks reach each other's device memory anyway, so that being told changes no transfer. What is told is
//! checked as on a card, and kept until it is taken back or the communicator is destroyed.

use std::collections::BTreeMap;
use std::ffi::c_void;
use std::sync::{Arc, Mutex};

use hcom_sys::bindings::{self as sys, HcclResult};

use super::Communicator;
use crate::error::{Outcome, refuse};
use crate::handle::{self, Table};
use crate::memory::{self, lock};
use crate::reserved;

/// Spans by their first address.
type Spans<T> = BTreeMap<usize, (usize, T)>;

/// What one communicator was told.
#[derive(Default)]
pub(super) struct Told {
    /// Ranges, and the active parts of each.
    ranges: Mutex<Spans<Spans<()>>>,
}

/// A symmetric window.
struct Window {
    handle: usize,
    communicator: usize,
    address: usize,
    bytes: usize,
}

static WINDOWS: Table<Window> = Table::new();

fn no<T>(code: HcclResult, text: impl Into<String>) -> Outcome<T> {
    refuse(code.0 as i32, text)
}

fn not_null(what: &str, pointer: *const c_void) -> Outcome {
    if pointer.is_null() {
        return no(sys::HCCL_E_PTR, format!("{what} is null"));
    }
    Ok(())
}

/// Checks what must be 0 and what must not.
fn plain(bytes: usize, zeros: &[(&str, u64)]) -> Outcome {
    if bytes == 0 {
        return no(sys::HCCL_E_PARA, "the size is 0");
    }
    for (name, value) in zeros {
        if *value != 0 {
            return no(sys::HCCL_E_PARA, format!("{name} is {value}; expected 0"));
        }
    }
    Ok(())
}

/// What belongs to the span around `bytes` at `address`, if one holds them all.
fn around<T>(spans: &mut Spans<T>, address: usize, bytes: usize) -> Option<&mut T> {
    let (&start, (length, of)) = spans.range_mut(..=address).next_back()?;
    let inside = address - start <= *length && bytes <= *length - (address - start);
    inside.then_some(of)
}

/// Adds a span.
///
/// # Errors
/// `HCCL_E_PARA` when it overlaps another one.
fn add<T>(spans: &mut Spans<T>, address: usize, bytes: usize, of: T) -> Outcome {
    let Some(end) = address.checked_add(bytes) else {
        return no(
            sys::HCCL_E_PARA,
            format!("{bytes} bytes at {address:#x} reach past all addresses"),
        );
    };
    let before = spans.range(..end).next_back();
    if let Some((start, (length, _))) =
        before.filter(|(start, (length, _))| *start + length > address)
    {
        return no(
            sys::HCCL_E_PARA,
            format!("{bytes} bytes at {address:#x} overlap the {length} at {start:#x}"),
        );
    }
    spans.insert(address, (bytes, of));
    Ok(())
}

impl Communicator {
    /// Is told of a reserved range.
    ///
    /// # Errors
    /// `HCCL_E_PTR` for null; `HCCL_E_PARA` for addresses outside one reservation, an overlap, or a value that must be 0.
    pub(crate) fn set_range(
        &self,
        base: *const c_void,
        bytes: usize,
        zeros: [(&str, u64); 2],
    ) -> Outcome {
        not_null("the range", base)?;
        plain(bytes, &zeros)?;
        if !reserved::holds(base.addr(), bytes) {
            return no(
                sys::HCCL_E_PARA,
                format!(
                    "{bytes} bytes at {base:p} lie in no reservation of aclrtReserveMemAddress"
                ),
            );
        }
        add(
            &mut lock(&self.told.ranges),
            base.addr(),
            bytes,
            Spans::new(),
        )
    }

    /// Forgets the range that starts at `base`.
    ///
    /// # Errors
    /// `HCCL_E_PTR` for null; `HCCL_E_PARA` when none starts there or something in it is active.
    pub(crate) fn unset_range(&self, base: *const c_void) -> Outcome {
        not_null("the range", base)?;
        let mut ranges = lock(&self.told.ranges);
        match ranges.get(&base.addr()) {
            None => no(
                sys::HCCL_E_PARA,
                format!("no range of this communicator starts at {base:p}"),
            ),
            Some((_, active)) if !active.is_empty() => no(
                sys::HCCL_E_PARA,
                format!(
                    "{} parts of the range at {base:p} are still active",
                    active.len()
                ),
            ),
            Some(_) => {
                ranges.remove(&base.addr());
                Ok(())
            }
        }
    }

    /// Makes mapped memory inside a range active.
    ///
    /// # Errors
    /// `HCCL_E_PTR` for null; `HCCL_E_PARA` outside the ranges, where nothing is mapped, over another active part, or for
    /// a value that must be 0.
    pub(crate) fn activate(
        &self,
        pointer: *const c_void,
        bytes: usize,
        zeros: [(&str, u64); 2],
    ) -> Outcome {
        not_null("the memory", pointer)?;
        plain(bytes, &zeros)?;
        let mut ranges = lock(&self.told.ranges);
        let Some(active) = around(&mut ranges, pointer.addr(), bytes) else {
            return no(
                sys::HCCL_E_PARA,
                format!("{bytes} bytes at {pointer:p} lie in no range of HcclCommSetMemoryRange"),
            );
        };
        if let Some(Err(text)) = reserved::find(pointer.addr(), bytes) {
            return no(sys::HCCL_E_PARA, text);
        }
        add(active, pointer.addr(), bytes, ())
    }

    /// Undoes [`Self::activate`].
    ///
    /// # Errors
    /// `HCCL_E_PTR` for null; `HCCL_E_PARA` when no active part starts there.
    pub(crate) fn deactivate(&self, pointer: *const c_void) -> Outcome {
        not_null("the memory", pointer)?;
        let mut ranges = lock(&self.told.ranges);
        let removed = around(&mut ranges, pointer.addr(), 0)
            .and_then(|active| active.remove(&pointer.addr()));
        match removed {
            Some(_) => Ok(()),
            None => no(
                sys::HCCL_E_PARA,
                format!("nothing active starts at {pointer:p}"),
            ),
        }
    }

    /// Registers device memory as a symmetric window; its handle.
    ///
    /// # Errors
    /// `HCCL_E_PTR` for null; `HCCL_E_PARA` for a size of 0, a flag that is not 1, or bytes that are no device memory.
    pub(crate) fn register_window(
        &self,
        pointer: *const c_void,
        bytes: usize,
        flag: u32,
    ) -> Outcome<usize> {
        not_null("the window", pointer)?;
        plain(bytes, &[])?;
        if flag != 1 {
            return no(sys::HCCL_E_PARA, format!("flag is {flag}; expected 1"));
        }
        if let Err(failure) = memory::span(pointer, bytes) {
            return no(sys::HCCL_E_PARA, failure.text);
        }
        let handle = handle::fresh();
        let window = Window {
            handle,
            communicator: self.handle,
            address: pointer.addr(),
            bytes,
        };
        WINDOWS.insert(handle, Arc::new(window));
        Ok(handle)
    }

    /// The window of this communicator around `bytes` at `pointer`, and where in it they begin.
    ///
    /// # Errors
    /// `HCCL_E_PTR` for null; `HCCL_E_NOT_FOUND` when no window holds them.
    pub(crate) fn find_window(
        &self,
        pointer: *const c_void,
        bytes: usize,
    ) -> Outcome<(usize, usize)> {
        not_null("the address", pointer)?;
        let inside = |window: &Window| {
            let at = pointer.addr().checked_sub(window.address)?;
            let fits = at <= window.bytes && bytes <= window.bytes - at;
            (window.communicator == self.handle && fits).then_some((window.handle, at))
        };
        match WINDOWS.all().iter().find_map(|window| inside(window)) {
            Some(found) => Ok(found),
            None => no(
                sys::HCCL_E_NOT_FOUND,
                format!("{bytes} bytes at {pointer:p} lie in no window"),
            ),
        }
    }

    /// Ends the windows of a communicator that is destroyed.
    pub(super) fn forget_windows(&self) {
        for window in WINDOWS.all() {
            if window.communicator == self.handle {
                WINDOWS.remove(handle::to_pointer(window.handle));
            }
        }
    }
}

/// Ends a window.
///
/// # Errors
/// `HCCL_E_PTR` for null, `HCCL_E_PARA` for an unknown handle.
pub(crate) fn deregister_window(window: *const c_void) -> Outcome {
    not_null("the window", window)?;
    match WINDOWS.remove(window) {
        Some(_) => Ok(()),
        None => no(
            sys::HCCL_E_PARA,
            format!("{:#x} names no window", window.addr()),
        ),
    }
}
