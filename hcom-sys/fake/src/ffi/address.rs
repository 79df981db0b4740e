//! Reserved addresses, physical memory, and memory of other processes.
#![expect(unsafe_code, reason = "the C interface hands over raw pointers")]
#![allow(
    non_snake_case,
    clippy::missing_safety_doc,
    reason = "names and contracts are those of the C interface"
)]

use std::collections::BTreeMap;
use std::ffi::{CStr, c_char, c_void};
use std::sync::{Arc, Mutex};

use hcom_sys::bindings::{
    self as sys, aclError, aclrtDrvMemHandle, aclrtMemAccessDesc, aclrtMemGranularityOptions,
    aclrtMemHandleType, aclrtPhysicalMemProp,
};

use super::{acl, put};
use crate::error::{Failure, Outcome, refuse};
use crate::handle::{self, Table, to_pointer};
use crate::memory::{self, lock};
use crate::reserved::{self, PAGE, Physical};
use crate::share::{Export, Kind, Memory};
use crate::{code, device};

/// Hands the functions of this file to the macro `$callback`, with their signatures.
#[macro_export]
#[doc(hidden)]
macro_rules! for_each_address_symbol {
    ($callback:ident) => {
        $callback! {
            fn aclrtReserveMemAddress(virPtr: *mut *mut c_void, size: usize, alignment: usize, expectPtr: *mut c_void, flags: u64) -> aclError;
            fn aclrtReleaseMemAddress(virPtr: *mut c_void) -> aclError;
            fn aclrtMallocPhysical(handle: *mut aclrtDrvMemHandle, size: usize, prop: *const aclrtPhysicalMemProp, flags: u64) -> aclError;
            fn aclrtFreePhysical(handle: aclrtDrvMemHandle) -> aclError;
            fn aclrtMapMem(virPtr: *mut c_void, size: usize, offset: usize, handle: aclrtDrvMemHandle, flags: u64) -> aclError;
            fn aclrtUnmapMem(virPtr: *mut c_void) -> aclError;
            fn aclrtMemSetAccess(virPtr: *mut c_void, size: usize, desc: *mut aclrtMemAccessDesc, count: usize) -> aclError;
            fn aclrtMemGetAllocationGranularity(prop: *mut aclrtPhysicalMemProp, option: aclrtMemGranularityOptions, granularity: *mut usize) -> aclError;
            fn aclrtMemExportToShareableHandle(handle: aclrtDrvMemHandle, handleType: aclrtMemHandleType, flags: u64, shareableHandle: *mut u64) -> aclError;
            fn aclrtMemImportFromShareableHandle(shareableHandle: u64, deviceId: i32, handle: *mut aclrtDrvMemHandle) -> aclError;
            fn aclrtMemSetPidToShareableHandle(shareableHandle: u64, pid: *mut i32, pidNum: usize) -> aclError;
            fn aclrtIpcMemGetExportKey(devPtr: *mut c_void, size: usize, key: *mut c_char, len: usize, flags: u64) -> aclError;
            fn aclrtIpcMemImportByKey(devPtr: *mut *mut c_void, key: *const c_char, flags: u64) -> aclError;
            fn aclrtIpcMemSetImportPid(key: *const c_char, pid: *mut i32, num: usize) -> aclError;
            fn aclrtIpcMemClose(key: *const c_char) -> aclError;
        }
    };
}

/// A huge page.
const HUGE: usize = 2 << 20;

/// `aclrtReserveMemAddress`: a wished address is not looked at.
pub unsafe extern "C" fn aclrtReserveMemAddress(
    place: *mut *mut c_void,
    size: usize,
    alignment: usize,
    _wish: *mut c_void,
    flags: u64,
) -> aclError {
    acl("aclrtReserveMemAddress", || {
        if place.is_null() || size == 0 {
            return refuse(
                code::INVALID_PARAM,
                "expected a place for the pointer and a size above 0",
            );
        }
        if flags > 1 || alignment > PAGE {
            return refuse(
                code::RT_PARAM,
                format!("flags {flags} and alignment {alignment}, expected at most 1 and {PAGE}"),
            );
        }
        let pointer = reserved::reserve(size)?;
        // SAFETY: not null, so the caller passes a place for the answer.
        unsafe { put(place, code::INVALID_PARAM, pointer) }
    })
}

/// `aclrtReleaseMemAddress`
pub unsafe extern "C" fn aclrtReleaseMemAddress(pointer: *mut c_void) -> aclError {
    acl("aclrtReleaseMemAddress", || reserved::release(pointer))
}

static PHYSICAL: Table<Physical> = Table::new();

/// The memory that a handle names.
///
/// # Errors
/// 107017 for an unknown handle.
pub(super) fn physical(handle: aclrtDrvMemHandle) -> Outcome<Arc<Physical>> {
    match PHYSICAL.get(handle) {
        Some(physical) => Ok(physical),
        None => refuse(
            code::HANDLE,
            format!("{:#x} names no physical memory", handle.addr()),
        ),
    }
}

/// The multiple that sizes of such memory must have.
///
/// # Safety
/// `prop` is null or properties.
unsafe fn granularity(prop: *const aclrtPhysicalMemProp) -> Outcome<(i32, usize)> {
    // SAFETY: as the caller promises.
    let Some(prop) = (unsafe { prop.as_ref() }) else {
        return refuse(code::INVALID_PARAM, "the properties are null");
    };
    if prop.location.type_ != sys::ACL_MEM_LOCATION_TYPE_DEVICE {
        return refuse(
            code::NOT_SUPPORTED,
            format!(
                "physical memory at location type {}, only of devices",
                prop.location.type_.0
            ),
        );
    }
    let unit = match prop.memAttr {
        sys::ACL_HBM_MEM_NORMAL
        | sys::ACL_DDR_MEM_NORMAL
        | sys::ACL_MEM_NORMAL
        | sys::ACL_HBM_MEM_P2P_NORMAL
        | sys::ACL_DDR_MEM_P2P_NORMAL
        | sys::ACL_MEM_P2P_NORMAL => PAGE,
        _ => HUGE,
    };
    Ok((prop.location.id as i32, unit))
}

/// `aclrtMallocPhysical`
pub unsafe extern "C" fn aclrtMallocPhysical(
    place: *mut aclrtDrvMemHandle,
    size: usize,
    prop: *const aclrtPhysicalMemProp,
    flags: u64,
) -> aclError {
    acl("aclrtMallocPhysical", || {
        // SAFETY: the caller passes null or properties.
        let (id, unit) = unsafe { granularity(prop)? };
        if place.is_null() || size == 0 || !size.is_multiple_of(unit) || flags != 0 {
            return refuse(
                code::RT_PARAM,
                format!("{size} bytes with flags {flags}, expected a multiple of {unit} and 0"),
            );
        }
        let device = device::of(id)?;
        let Some(memory) = Physical::allocate(&device.arena, size) else {
            return Err(device.out_of_memory(size));
        };
        let handle = handle::fresh();
        PHYSICAL.insert(handle, Arc::new(memory));
        // SAFETY: not null, so the caller passes a place for the answer.
        unsafe { put(place, code::INVALID_PARAM, to_pointer(handle)) }
    })
}

/// `aclrtFreePhysical`: mapped memory stays until it is unmapped.
pub unsafe extern "C" fn aclrtFreePhysical(handle: aclrtDrvMemHandle) -> aclError {
    acl("aclrtFreePhysical", || {
        physical(handle)?;
        PHYSICAL.remove(handle);
        Ok(())
    })
}

/// `aclrtMapMem`
pub unsafe extern "C" fn aclrtMapMem(
    pointer: *mut c_void,
    size: usize,
    offset: usize,
    handle: aclrtDrvMemHandle,
    flags: u64,
) -> aclError {
    acl("aclrtMapMem", || {
        if offset != 0 || flags != 0 {
            return refuse(
                code::RT_PARAM,
                format!("offset {offset} and flags {flags}, expected 0 and 0"),
            );
        }
        reserved::map(pointer, size, physical(handle)?)
    })
}

/// `aclrtUnmapMem`
pub unsafe extern "C" fn aclrtUnmapMem(pointer: *mut c_void) -> aclError {
    acl("aclrtUnmapMem", || reserved::unmap(pointer))
}

/// `aclrtMemSetAccess`: every device of this process reaches all memory anyway.
pub unsafe extern "C" fn aclrtMemSetAccess(
    pointer: *mut c_void,
    size: usize,
    desc: *mut aclrtMemAccessDesc,
    count: usize,
) -> aclError {
    acl("aclrtMemSetAccess", || {
        if desc.is_null() || count == 0 {
            return refuse(code::INVALID_PARAM, "expected at least one description");
        }
        memory::span(pointer, size).map(|_| ())
    })
}

/// `aclrtMemGetAllocationGranularity`
pub unsafe extern "C" fn aclrtMemGetAllocationGranularity(
    prop: *mut aclrtPhysicalMemProp,
    option: aclrtMemGranularityOptions,
    place: *mut usize,
) -> aclError {
    acl("aclrtMemGetAllocationGranularity", || {
        if option.0 > sys::ACL_RT_MEM_ALLOC_GRANULARITY_RECOMMENDED.0 {
            return refuse(code::INVALID_PARAM, format!("option {}", option.0));
        }
        // SAFETY: the caller passes null or properties.
        let (_, unit) = unsafe { granularity(prop)? };
        // SAFETY: the caller passes null or a place for the answer.
        unsafe { put(place, code::INVALID_PARAM, unit) }
    })
}

/// `aclrtMemExportToShareableHandle`
pub unsafe extern "C" fn aclrtMemExportToShareableHandle(
    handle: aclrtDrvMemHandle,
    _kind: aclrtMemHandleType,
    flags: u64,
    place: *mut u64,
) -> aclError {
    acl("aclrtMemExportToShareableHandle", || {
        if flags > sys::ACL_RT_VMM_EXPORT_FLAG_DISABLE_PID_VALIDATION {
            return refuse(code::RT_PARAM, format!("flags {flags}, expected 0 or 1"));
        }
        let physical = physical(handle)?;
        let export = Export::create(Kind::Memory)?;
        export.describe(&physical.memory, flags == 1);
        // SAFETY: the caller passes null or a place for the answer.
        unsafe { put(place, code::INVALID_PARAM, export.number()) }
    })
}

/// `aclrtMemImportFromShareableHandle`
pub unsafe extern "C" fn aclrtMemImportFromShareableHandle(
    number: u64,
    id: i32,
    place: *mut aclrtDrvMemHandle,
) -> aclError {
    acl("aclrtMemImportFromShareableHandle", || {
        device::check(id)?;
        let memory = Export::open(number, 0, Kind::Memory)?.memory(number)?;
        let handle = handle::fresh();
        PHYSICAL.insert(handle, Arc::new(Physical::foreign(memory)));
        // SAFETY: the caller passes null or a place for the answer.
        unsafe { put(place, code::INVALID_PARAM, to_pointer(handle)) }
    })
}

/// # Safety
/// `pids` is null or has `count` readable numbers.
unsafe fn pids<'a>(pids: *const i32, count: usize) -> Outcome<&'a [i32]> {
    if pids.is_null() || count == 0 {
        return refuse(code::INVALID_PARAM, "expected at least one process");
    }
    // SAFETY: not null, and readable as the caller promises.
    Ok(unsafe { std::slice::from_raw_parts(pids, count) })
}

/// `aclrtMemSetPidToShareableHandle`
pub unsafe extern "C" fn aclrtMemSetPidToShareableHandle(
    number: u64,
    list: *mut i32,
    count: usize,
) -> aclError {
    acl("aclrtMemSetPidToShareableHandle", || {
        // SAFETY: the caller passes `count` numbers.
        let pids = unsafe { pids(list, count)? };
        Export::open(number, 0, Kind::Memory)?.allow(pids)
    })
}

/// Bytes of a key with its terminator.
const KEY: usize = 65;

/// Keys of this process: what they export.
static EXPORTED: Mutex<BTreeMap<String, Export>> = Mutex::new(BTreeMap::new());
/// Keys of other processes: where what they name is mapped.
static IMPORTED: Mutex<BTreeMap<String, usize>> = Mutex::new(BTreeMap::new());

/// # Safety
/// `key` is null or ends with a zero.
unsafe fn text(key: *const c_char) -> Outcome<String> {
    if key.is_null() {
        return refuse(code::INVALID_PARAM, "the key is null");
    }
    // SAFETY: not null, and ends with a zero as the caller promises.
    Ok(unsafe { CStr::from_ptr(key) }
        .to_string_lossy()
        .into_owned())
}

/// `aclrtIpcMemGetExportKey`
pub unsafe extern "C" fn aclrtIpcMemGetExportKey(
    pointer: *mut c_void,
    size: usize,
    key: *mut c_char,
    length: usize,
    flags: u64,
) -> aclError {
    acl("aclrtIpcMemGetExportKey", || {
        if key.is_null() || length < KEY || size == 0 {
            return refuse(
                code::INVALID_PARAM,
                format!("a key of {length} bytes for {size} bytes, expected {KEY} and more than 0"),
            );
        }
        let device = device::of(memory::device_of(pointer) as i32)?;
        let offset = device
            .arena
            .offset(pointer.addr(), size)
            .map_err(|text| Failure::new(code::RT_PARAM, text))?;
        let export = Export::create(Kind::Memory)?;
        let memory = Memory {
            region: device.arena.region().clone(),
            offset,
            bytes: size,
            device: device.id,
        };
        export.describe(
            &memory,
            flags == sys::ACL_RT_IPC_MEM_EXPORT_FLAG_DISABLE_PID_VALIDATION,
        );
        let text = export.key();
        // SAFETY: not null, and the caller says that `length` bytes may be written, more than a key has.
        unsafe {
            std::ptr::copy_nonoverlapping(text.as_ptr(), key.cast(), text.len());
            key.add(text.len()).write(0);
        }
        lock(&EXPORTED).insert(text, export);
        Ok(())
    })
}

/// `aclrtIpcMemImportByKey`
pub unsafe extern "C" fn aclrtIpcMemImportByKey(
    place: *mut *mut c_void,
    key: *const c_char,
    flags: u64,
) -> aclError {
    acl("aclrtIpcMemImportByKey", || {
        if place.is_null() || flags > sys::ACL_RT_IPC_MEM_IMPORT_FLAG_ENABLE_PEER_ACCESS {
            return refuse(
                code::INVALID_PARAM,
                format!("a null place, or flags {flags}"),
            );
        }
        device::current()?;
        // SAFETY: the caller passes null or text that ends with a zero.
        let key = unsafe { text(key)? };
        let export = Export::open_key(&key, Kind::Memory)?;
        let mut memory = export.memory(u64::from_str_radix(&key[..16], 16).unwrap_or_default())?;
        let inside = memory.offset % PAGE;
        memory.offset -= inside;
        memory.bytes = (memory.bytes + inside).next_multiple_of(PAGE);
        let bytes = memory.bytes;
        let window = reserved::reserve(bytes)?;
        reserved::map(window, bytes, Arc::new(Physical::foreign(memory)))?;
        lock(&IMPORTED).insert(key, window.expose_provenance());
        // SAFETY: not null, so the caller passes a place for the answer.
        unsafe { put(place, code::INVALID_PARAM, window.wrapping_byte_add(inside)) }
    })
}

/// `aclrtIpcMemSetImportPid`
pub unsafe extern "C" fn aclrtIpcMemSetImportPid(
    key: *const c_char,
    list: *mut i32,
    count: usize,
) -> aclError {
    acl("aclrtIpcMemSetImportPid", || {
        // SAFETY: the caller passes `count` numbers, and null or text that ends with a zero.
        let (pids, key) = unsafe { (pids(list, count)?, text(key)?) };
        match lock(&EXPORTED).get(&key) {
            Some(export) => export.allow(pids),
            None => refuse(code::HANDLE, format!("this process exports no {key:?}")),
        }
    })
}

/// `aclrtIpcMemClose`: ends the export, or the mapping of a process that imported it.
pub unsafe extern "C" fn aclrtIpcMemClose(key: *const c_char) -> aclError {
    acl("aclrtIpcMemClose", || {
        // SAFETY: the caller passes null or text that ends with a zero.
        let key = unsafe { text(key)? };
        let imported = lock(&IMPORTED).remove(&key);
        let exported = lock(&EXPORTED).remove(&key);
        if let Some(export) = &exported {
            export.close();
        }
        if let Some(address) = imported {
            let window = std::ptr::with_exposed_provenance(address);
            reserved::unmap(window)?;
            return reserved::release(window);
        }
        if exported.is_none() {
            return refuse(
                code::HANDLE,
                format!("{key:?} is neither exported nor imported"),
            );
        }
        Ok(())
    })
}
