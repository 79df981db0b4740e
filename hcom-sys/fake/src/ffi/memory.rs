//! Memory: allocation, copies, words.
#![expect(unsafe_code, reason = "the C interface hands over raw pointers")]
#![allow(
    non_snake_case,
    clippy::missing_safety_doc,
    reason = "names and contracts are those of the C interface"
)]

use std::ffi::c_void;

use hcom_sys::bindings::{
    self as sys, aclError, aclrtHostRegisterType, aclrtMallocConfig, aclrtMemAttr,
    aclrtMemLocation, aclrtMemMallocPolicy, aclrtMemcpyKind, aclrtPtrAttributes, aclrtStream,
};

use super::{acl, put};
use crate::capture;
use crate::code;
use crate::copy::{self, Owner, Side, Until};
use crate::device;
use crate::error::{Outcome, refuse};
use crate::memory::{self, Place};
use crate::span::Span;
use crate::stream;

/// Hands the functions of this file to the macro `$callback`, with their signatures.
#[macro_export]
#[doc(hidden)]
macro_rules! for_each_memory_symbol {
    ($callback:ident) => {
        $callback! {
            fn aclrtMalloc(devPtr: *mut *mut c_void, size: usize, policy: aclrtMemMallocPolicy) -> aclError;
            fn aclrtMallocAlign32(devPtr: *mut *mut c_void, size: usize, policy: aclrtMemMallocPolicy) -> aclError;
            fn aclrtMallocCached(devPtr: *mut *mut c_void, size: usize, policy: aclrtMemMallocPolicy) -> aclError;
            fn aclrtMallocWithCfg(devPtr: *mut *mut c_void, size: usize, policy: aclrtMemMallocPolicy, cfg: *mut aclrtMallocConfig) -> aclError;
            fn aclrtFree(devPtr: *mut c_void) -> aclError;
            fn aclrtFreeWithDevSync(devPtr: *mut c_void) -> aclError;
            fn aclrtMallocHost(hostPtr: *mut *mut c_void, size: usize) -> aclError;
            fn aclrtFreeHost(hostPtr: *mut c_void) -> aclError;
            fn aclrtGetMemInfo(attr: aclrtMemAttr, free: *mut usize, total: *mut usize) -> aclError;
            fn aclrtPointerGetAttributes(ptr: *const c_void, attributes: *mut aclrtPtrAttributes) -> aclError;
            fn aclrtHostRegister(ptr: *mut c_void, size: u64, type_: aclrtHostRegisterType, devPtr: *mut *mut c_void) -> aclError;
            fn aclrtHostUnregister(ptr: *mut c_void) -> aclError;
            fn aclrtMemcpy(dst: *mut c_void, destMax: usize, src: *const c_void, count: usize, kind: aclrtMemcpyKind) -> aclError;
            fn aclrtMemcpyAsync(dst: *mut c_void, destMax: usize, src: *const c_void, count: usize, kind: aclrtMemcpyKind, stream: aclrtStream) -> aclError;
            fn aclrtMemset(devPtr: *mut c_void, maxCount: usize, value: i32, count: usize) -> aclError;
            fn aclrtMemsetAsync(devPtr: *mut c_void, maxCount: usize, value: i32, count: usize, stream: aclrtStream) -> aclError;
            fn aclrtValueWrite(devAddr: *mut c_void, value: u64, flag: u32, stream: aclrtStream) -> aclError;
            fn aclrtValueWait(devAddr: *mut c_void, value: u64, flag: u32, stream: aclrtStream) -> aclError;
        }
    };
}

/// # Safety
/// `place` is null or a place for a pointer.
unsafe fn allocate(place: *mut *mut c_void, size: usize) -> Outcome {
    if place.is_null() || size == 0 {
        return refuse(
            code::INVALID_PARAM,
            "expected a place for the pointer and a size above 0",
        );
    }
    let device = device::current()?.device.clone();
    let Some(pointer) = device.arena.allocate(size) else {
        return Err(device.out_of_memory(size));
    };
    // SAFETY: not null, so the caller passes a place for the answer.
    unsafe { put(place, code::INVALID_PARAM, pointer) }
}

/// `aclrtMalloc`: where the pages come from does not matter here, so every policy is the same.
pub unsafe extern "C" fn aclrtMalloc(
    place: *mut *mut c_void,
    size: usize,
    _policy: aclrtMemMallocPolicy,
) -> aclError {
    // SAFETY: passed on as it came.
    acl("aclrtMalloc", || unsafe { allocate(place, size) })
}

/// `aclrtMallocAlign32`
pub unsafe extern "C" fn aclrtMallocAlign32(
    place: *mut *mut c_void,
    size: usize,
    _policy: aclrtMemMallocPolicy,
) -> aclError {
    // SAFETY: passed on as it came.
    acl("aclrtMallocAlign32", || unsafe { allocate(place, size) })
}

/// `aclrtMallocCached`
pub unsafe extern "C" fn aclrtMallocCached(
    place: *mut *mut c_void,
    size: usize,
    _policy: aclrtMemMallocPolicy,
) -> aclError {
    // SAFETY: passed on as it came.
    acl("aclrtMallocCached", || unsafe { allocate(place, size) })
}

/// `aclrtMallocWithCfg`
pub unsafe extern "C" fn aclrtMallocWithCfg(
    place: *mut *mut c_void,
    size: usize,
    _policy: aclrtMemMallocPolicy,
    _config: *mut aclrtMallocConfig,
) -> aclError {
    // SAFETY: passed on as it came.
    acl("aclrtMallocWithCfg", || unsafe { allocate(place, size) })
}

fn release(pointer: *mut c_void) -> Outcome {
    if pointer.is_null() {
        return refuse(code::INVALID_PARAM, "the pointer is null");
    }
    memory::free(pointer)
}

/// `aclrtFree`
pub unsafe extern "C" fn aclrtFree(pointer: *mut c_void) -> aclError {
    acl("aclrtFree", || release(pointer))
}

/// `aclrtFreeWithDevSync`
pub unsafe extern "C" fn aclrtFreeWithDevSync(pointer: *mut c_void) -> aclError {
    acl("aclrtFreeWithDevSync", || {
        device::synchronize(&device::current()?.device, None)?;
        release(pointer)
    })
}

/// `aclrtMallocHost`
pub unsafe extern "C" fn aclrtMallocHost(place: *mut *mut c_void, size: usize) -> aclError {
    acl("aclrtMallocHost", || {
        if place.is_null() || size == 0 {
            return refuse(
                code::INVALID_PARAM,
                "expected a place for the pointer and a size above 0",
            );
        }
        let pointer = memory::allocate_host(size)?;
        // SAFETY: not null, so the caller passes a place for the answer.
        unsafe { put(place, code::INVALID_PARAM, pointer) }
    })
}

/// `aclrtFreeHost`
pub unsafe extern "C" fn aclrtFreeHost(pointer: *mut c_void) -> aclError {
    acl("aclrtFreeHost", || {
        if pointer.is_null() {
            return refuse(code::INVALID_PARAM, "the pointer is null");
        }
        memory::free_host(pointer)
    })
}

/// `aclrtGetMemInfo`: all device memory is HBM.
pub unsafe extern "C" fn aclrtGetMemInfo(
    attr: aclrtMemAttr,
    free: *mut usize,
    total: *mut usize,
) -> aclError {
    acl("aclrtGetMemInfo", || {
        let (left, all) = match attr {
            sys::ACL_HBM_MEM | sys::ACL_HBM_MEM_HUGE | sys::ACL_HBM_MEM_NORMAL => {
                device::current()?.device.arena.usage()
            }
            _ => {
                device::current()?;
                (0, 0)
            }
        };
        // SAFETY: the caller passes null or places for the answers.
        unsafe {
            put(free, code::INVALID_PARAM, left)?;
            put(total, code::INVALID_PARAM, all)
        }
    })
}

/// `aclrtPointerGetAttributes`
pub unsafe extern "C" fn aclrtPointerGetAttributes(
    pointer: *const c_void,
    attributes: *mut aclrtPtrAttributes,
) -> aclError {
    acl("aclrtPointerGetAttributes", || {
        if pointer.is_null() {
            return refuse(code::INVALID_PARAM, "the pointer is null");
        }
        let (id, type_) = match memory::place(pointer, 1)? {
            Place::Device(_) => (
                memory::device_of(pointer),
                sys::ACL_MEM_LOCATION_TYPE_DEVICE,
            ),
            Place::Pinned(_) | Place::Registered => (0, sys::ACL_MEM_LOCATION_TYPE_HOST),
            Place::Pageable => (0, sys::ACL_MEM_LOCATION_TYPE_UNREGISTERED),
        };
        let answer = aclrtPtrAttributes {
            location: aclrtMemLocation { id, type_ },
            pageSize: 4096,
            ..Default::default()
        };
        // SAFETY: the caller passes null or a place for the answer.
        unsafe { put(attributes, code::INVALID_PARAM, answer) }
    })
}

/// `aclrtHostRegister`: the device address of registered memory is its host address.
pub unsafe extern "C" fn aclrtHostRegister(
    pointer: *mut c_void,
    size: u64,
    _kind: aclrtHostRegisterType,
    device_pointer: *mut *mut c_void,
) -> aclError {
    acl("aclrtHostRegister", || {
        if pointer.is_null() || size == 0 || device_pointer.is_null() {
            return refuse(
                code::INVALID_PARAM,
                "expected two pointers and a size above 0",
            );
        }
        memory::register_host(pointer, size as usize)?;
        // SAFETY: not null, so the caller passes a place for the answer.
        unsafe { put(device_pointer, code::INVALID_PARAM, pointer) }
    })
}

/// `aclrtHostUnregister`
pub unsafe extern "C" fn aclrtHostUnregister(pointer: *mut c_void) -> aclError {
    acl("aclrtHostUnregister", || {
        if pointer.is_null() {
            return refuse(code::INVALID_PARAM, "the pointer is null");
        }
        memory::unregister_host(pointer)
    })
}

/// One side of a copy.
///
/// # Safety
/// Host memory at `pointer` is valid for `bytes` bytes until the copy is done, as the C interface demands.
pub(super) unsafe fn side(pointer: *mut c_void, bytes: usize) -> Outcome<Side> {
    if pointer.is_null() {
        return refuse(code::INVALID_PARAM, "a pointer is null");
    }
    // SAFETY: memory of the program, valid as the caller promises.
    let foreign = || unsafe { Span::foreign(pointer.cast(), bytes) };
    let (span, owner) = match memory::place(pointer, bytes)? {
        Place::Device(span) => (span, Owner::Device),
        Place::Pinned(span) => (span, Owner::Pinned),
        Place::Registered => (foreign(), Owner::Pinned),
        Place::Pageable => (foreign(), Owner::Pageable),
    };
    Ok(Side {
        pointer,
        span,
        owner,
    })
}

/// # Safety
/// As [`side`] for both pointers.
pub(super) unsafe fn sides(
    to: *mut c_void,
    room: usize,
    from: *const c_void,
    bytes: usize,
    kind: aclrtMemcpyKind,
) -> Outcome<(Side, Side)> {
    if to.is_null() || from.is_null() {
        return refuse(code::INVALID_PARAM, "a pointer is null");
    }
    if kind.0 > sys::ACL_MEMCPY_HOST_TO_BUF_TO_DEVICE.0 {
        return refuse(code::INVALID_PARAM, format!("copy kind {}", kind.0));
    }
    if room < bytes {
        return refuse(code::RT_PARAM, format!("{bytes} bytes into {room}"));
    }
    // SAFETY: passed on as it came.
    unsafe { Ok((side(to, bytes)?, side(from.cast_mut(), bytes)?)) }
}

/// `aclrtMemcpy`: now, not in the order of any stream.
pub unsafe extern "C" fn aclrtMemcpy(
    to: *mut c_void,
    room: usize,
    from: *const c_void,
    bytes: usize,
    kind: aclrtMemcpyKind,
) -> aclError {
    acl("aclrtMemcpy", || {
        if bytes == 0 {
            return Ok(());
        }
        device::current()?;
        capture::allow_call()?;
        // SAFETY: the caller passes memory valid for the copy.
        let (to, from) = unsafe { sides(to, room, from, bytes, kind)? };
        to.span.copy_from(&from.span);
        Ok(())
    })
}

/// `aclrtMemcpyAsync`
pub unsafe extern "C" fn aclrtMemcpyAsync(
    to: *mut c_void,
    room: usize,
    from: *const c_void,
    bytes: usize,
    kind: aclrtMemcpyKind,
    stream: aclrtStream,
) -> aclError {
    acl("aclrtMemcpyAsync", || {
        if bytes == 0 {
            return Ok(());
        }
        let stream = stream::find(stream)?;
        // SAFETY: the caller keeps the memory valid until the stream has done the copy.
        let (to, from) = unsafe { sides(to, room, from, bytes, kind)? };
        copy::enqueue(to, from, &stream)
    })
}

/// # Safety
/// As [`side`].
pub(super) unsafe fn filled(pointer: *mut c_void, room: usize, bytes: usize) -> Outcome<Side> {
    if room < bytes {
        return refuse(code::RT_PARAM, format!("{bytes} bytes into {room}"));
    }
    // SAFETY: passed on as it came.
    unsafe { side(pointer, bytes) }
}

/// `aclrtMemset`
pub unsafe extern "C" fn aclrtMemset(
    pointer: *mut c_void,
    room: usize,
    value: i32,
    bytes: usize,
) -> aclError {
    acl("aclrtMemset", || {
        device::current()?;
        capture::allow_call()?;
        // SAFETY: the caller passes memory valid for the call.
        unsafe { filled(pointer, room, bytes)? }
            .span
            .fill(value as u8);
        Ok(())
    })
}

/// `aclrtMemsetAsync`
pub unsafe extern "C" fn aclrtMemsetAsync(
    pointer: *mut c_void,
    room: usize,
    value: i32,
    bytes: usize,
    stream: aclrtStream,
) -> aclError {
    acl("aclrtMemsetAsync", || {
        let stream = stream::find(stream)?;
        // SAFETY: the caller keeps the memory valid until the stream has done the work.
        let side = unsafe { filled(pointer, room, bytes)? };
        copy::fill(side, value as u8, &stream)
    })
}

/// `aclrtValueWrite`: 64 bits, in device or pinned memory.
pub unsafe extern "C" fn aclrtValueWrite(
    pointer: *mut c_void,
    value: u64,
    flag: u32,
    stream: aclrtStream,
) -> aclError {
    acl("aclrtValueWrite", || {
        if flag != 0 {
            return refuse(code::RT_PARAM, format!("flag {flag}, expected 0"));
        }
        let stream = stream::find(stream)?;
        // SAFETY: the caller keeps the memory valid until the stream has done the work.
        let side = unsafe { side(pointer, 8)? };
        copy::word(side, value, None, &stream)
    })
}

/// `aclrtValueWait`: 64 bits, in device or pinned memory.
pub unsafe extern "C" fn aclrtValueWait(
    pointer: *mut c_void,
    value: u64,
    flag: u32,
    stream: aclrtStream,
) -> aclError {
    acl("aclrtValueWait", || {
        let Some(until) = Until::from_flag(flag) else {
            return refuse(code::RT_PARAM, format!("flag {flag}, expected 0 to 3"));
        };
        let stream = stream::find(stream)?;
        // SAFETY: the caller keeps the memory valid until the stream has done the work.
        let side = unsafe { side(pointer, 8)? };
        copy::word(side, value, Some(until), &stream)
    })
}
