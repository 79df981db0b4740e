//! Copies of rows and of several ranges, and the later forms of calls about host memory.
#![expect(unsafe_code, reason = "the C interface hands over raw pointers")]
#![allow(
    non_snake_case,
    clippy::missing_safety_doc,
    reason = "names and contracts are those of the C interface"
)]

use std::ffi::c_void;

use hcom_sys::bindings::{
    self as sys, aclError, aclrtMallocConfig, aclrtMemcpyBatchAttr, aclrtMemcpyKind, aclrtStream,
};

use super::memory::{aclrtMallocHost, aclrtMemcpyAsync, filled, sides};
use super::{acl, put};
use crate::copy::{self, Owner, Side};
use crate::error::{Outcome, refuse};
use crate::memory::{self, Place};
use crate::{capture, code, device, stream};

/// Hands the functions of this file to the macro `$callback`, with their signatures.
#[macro_export]
#[doc(hidden)]
macro_rules! for_each_copy_symbol {
    ($callback:ident) => {
        $callback! {
            fn aclrtMemcpyAsyncWithCondition(dst: *mut c_void, destMax: usize, src: *const c_void, count: usize, kind: aclrtMemcpyKind, stream: aclrtStream) -> aclError;
            fn aclrtMemcpy2d(dst: *mut c_void, dpitch: usize, src: *const c_void, spitch: usize, width: usize, height: usize, kind: aclrtMemcpyKind) -> aclError;
            fn aclrtMemcpy2dAsync(dst: *mut c_void, dpitch: usize, src: *const c_void, spitch: usize, width: usize, height: usize, kind: aclrtMemcpyKind, stream: aclrtStream) -> aclError;
            fn aclrtMemcpyBatch(dsts: *mut *mut c_void, destMaxs: *mut usize, srcs: *mut *mut c_void, sizes: *mut usize, numBatches: usize, attrs: *mut aclrtMemcpyBatchAttr, attrsIndexes: *mut usize, numAttrs: usize, failIndex: *mut usize) -> aclError;
            fn aclrtMemcpyBatchAsync(dsts: *mut *mut c_void, destMaxs: *mut usize, srcs: *mut *mut c_void, sizes: *mut usize, numBatches: usize, attrs: *mut aclrtMemcpyBatchAttr, attrsIndexes: *mut usize, numAttrs: usize, failIndex: *mut usize, stream: aclrtStream) -> aclError;
            fn aclrtMallocHostWithCfg(ptr: *mut *mut c_void, size: u64, cfg: *mut aclrtMallocConfig) -> aclError;
            fn aclrtHostRegisterV2(ptr: *mut c_void, size: u64, flag: u32) -> aclError;
            fn aclrtHostGetDevicePointer(pHost: *mut c_void, pDevice: *mut *mut c_void, flag: u32) -> aclError;
            fn aclrtMemsetD32(ptr: *mut c_void, memSize: usize, value: u32, N: usize) -> aclError;
        }
    };
}

/// The rows of a copy between pitched ranges.
///
/// # Safety
/// As [`sides`] for all rows of both.
unsafe fn rows(
    to: *mut c_void,
    to_pitch: usize,
    from: *const c_void,
    from_pitch: usize,
    width: usize,
    height: usize,
    kind: aclrtMemcpyKind,
) -> Outcome<Vec<(Side, Side)>> {
    if width == 0 || height == 0 || to_pitch < width || from_pitch < width {
        return refuse(
            code::INVALID_PARAM,
            format!("{height} rows of {width} bytes, {to_pitch} and {from_pitch} bytes apart"),
        );
    }
    let row = |at: usize| {
        let to = to.wrapping_byte_add(at * to_pitch);
        let from = from.wrapping_byte_add(at * from_pitch);
        // SAFETY: passed on as it came; the row is part of the range.
        unsafe { sides(to, width, from, width, kind) }
    };
    if to.is_null() || from.is_null() {
        return refuse(code::INVALID_PARAM, "a pointer is null");
    }
    (0..height).map(row).collect()
}

/// `aclrtMemcpy2d`: now, not in the order of any stream.
pub unsafe extern "C" fn aclrtMemcpy2d(
    to: *mut c_void,
    to_pitch: usize,
    from: *const c_void,
    from_pitch: usize,
    width: usize,
    height: usize,
    kind: aclrtMemcpyKind,
) -> aclError {
    acl("aclrtMemcpy2d", || {
        device::current()?;
        capture::allow_call()?;
        // SAFETY: the caller passes memory valid for the copy.
        for (to, from) in unsafe { rows(to, to_pitch, from, from_pitch, width, height, kind)? } {
            to.span.copy_from(&from.span);
        }
        Ok(())
    })
}

/// `aclrtMemcpy2dAsync`
pub unsafe extern "C" fn aclrtMemcpy2dAsync(
    to: *mut c_void,
    to_pitch: usize,
    from: *const c_void,
    from_pitch: usize,
    width: usize,
    height: usize,
    kind: aclrtMemcpyKind,
    stream: aclrtStream,
) -> aclError {
    acl("aclrtMemcpy2dAsync", || {
        let stream = stream::find(stream)?;
        // SAFETY: the caller keeps the memory valid until the stream has done the copy.
        let rows = unsafe { rows(to, to_pitch, from, from_pitch, width, height, kind)? };
        copy::enqueue_all(rows, &stream)
    })
}

/// The copies of a batch; the answer says which one is wrong.
///
/// # Safety
/// The arrays have `count` entries, and each copy is as [`sides`] demands.
unsafe fn batch(
    to: *mut *mut c_void,
    room: *mut usize,
    from: *mut *mut c_void,
    bytes: *mut usize,
    count: usize,
    failed: *mut usize,
) -> Outcome<Vec<(Side, Side)>> {
    if to.is_null() || room.is_null() || from.is_null() || bytes.is_null() || count == 0 {
        return refuse(
            code::INVALID_PARAM,
            "expected four arrays with at least one entry",
        );
    }
    let one = |at: usize| {
        // SAFETY: the arrays are not null and have `count` entries, as the caller promises.
        let (to, room, from, bytes) =
            unsafe { (*to.add(at), *room.add(at), *from.add(at), *bytes.add(at)) };
        // SAFETY: passed on as it came.
        let (to, from) = unsafe { sides(to, room, from, bytes, sys::ACL_MEMCPY_DEFAULT)? };
        if (to.owner == Owner::Device) == (from.owner == Owner::Device) {
            return refuse(
                code::INVALID_PARAM,
                "a batch copies between host and device",
            );
        }
        Ok((to, from))
    };
    (0..count)
        .map(|at| {
            one(at).inspect_err(|_| {
                // SAFETY: the caller passes null or a place for the index; null is no reason to fail differently.
                let _ = unsafe { put(failed, code::INVALID_PARAM, at) };
            })
        })
        .collect()
}

/// `aclrtMemcpyBatch`: the attributes say where addresses lie, which is known anyway.
pub unsafe extern "C" fn aclrtMemcpyBatch(
    to: *mut *mut c_void,
    room: *mut usize,
    from: *mut *mut c_void,
    bytes: *mut usize,
    count: usize,
    _attributes: *mut aclrtMemcpyBatchAttr,
    _indices: *mut usize,
    _attribute_count: usize,
    failed: *mut usize,
) -> aclError {
    acl("aclrtMemcpyBatch", || {
        device::current()?;
        capture::allow_call()?;
        // SAFETY: the caller passes arrays of `count` entries and memory valid for the copies.
        for (to, from) in unsafe { batch(to, room, from, bytes, count, failed)? } {
            to.span.copy_from(&from.span);
        }
        Ok(())
    })
}

/// `aclrtMemcpyBatchAsync`
pub unsafe extern "C" fn aclrtMemcpyBatchAsync(
    to: *mut *mut c_void,
    room: *mut usize,
    from: *mut *mut c_void,
    bytes: *mut usize,
    count: usize,
    _attributes: *mut aclrtMemcpyBatchAttr,
    _indices: *mut usize,
    _attribute_count: usize,
    failed: *mut usize,
    stream: aclrtStream,
) -> aclError {
    acl("aclrtMemcpyBatchAsync", || {
        let stream = stream::find(stream)?;
        // SAFETY: the caller passes arrays of `count` entries, and keeps the memory valid until the copies are done.
        let copies = unsafe { batch(to, room, from, bytes, count, failed)? };
        copy::enqueue_all(copies, &stream)
    })
}

/// `aclrtMemcpyAsyncWithCondition`
pub unsafe extern "C" fn aclrtMemcpyAsyncWithCondition(
    to: *mut c_void,
    room: usize,
    from: *const c_void,
    bytes: usize,
    kind: aclrtMemcpyKind,
    stream: aclrtStream,
) -> aclError {
    // SAFETY: passed on as it came.
    unsafe { aclrtMemcpyAsync(to, room, from, bytes, kind, stream) }
}

/// `aclrtMallocHostWithCfg`
pub unsafe extern "C" fn aclrtMallocHostWithCfg(
    place: *mut *mut c_void,
    size: u64,
    _config: *mut aclrtMallocConfig,
) -> aclError {
    // SAFETY: passed on as it came.
    unsafe { aclrtMallocHost(place, size as usize) }
}

/// `aclrtHostRegisterV2`
pub unsafe extern "C" fn aclrtHostRegisterV2(
    pointer: *mut c_void,
    size: u64,
    flag: u32,
) -> aclError {
    acl("aclrtHostRegisterV2", || {
        let known = sys::ACL_HOST_REG_MAPPED
            | sys::ACL_HOST_REG_IOMEMORY
            | sys::ACL_HOST_REG_READONLY
            | sys::ACL_HOST_REG_PINNED;
        if pointer.is_null() || size == 0 || flag & !known != 0 {
            return refuse(
                code::INVALID_PARAM,
                format!("{size} bytes at {pointer:p} with flag {flag:#x}"),
            );
        }
        memory::register_host(pointer, size as usize)
    })
}

/// `aclrtHostGetDevicePointer`: the host address.
pub unsafe extern "C" fn aclrtHostGetDevicePointer(
    pointer: *mut c_void,
    place: *mut *mut c_void,
    flag: u32,
) -> aclError {
    acl("aclrtHostGetDevicePointer", || {
        if flag != 0 {
            return refuse(code::INVALID_PARAM, format!("flag {flag}, expected 0"));
        }
        if !matches!(
            memory::place(pointer, 1)?,
            Place::Pinned(_) | Place::Registered
        ) {
            return refuse(
                code::HOST_UNREGISTERED,
                format!("{pointer:p} is not registered"),
            );
        }
        // SAFETY: the caller passes null or a place for the answer.
        unsafe { put(place, code::INVALID_PARAM, pointer) }
    })
}

/// `aclrtMemsetD32`: now, not in the order of any stream.
pub unsafe extern "C" fn aclrtMemsetD32(
    pointer: *mut c_void,
    room: usize,
    value: u32,
    count: usize,
) -> aclError {
    acl("aclrtMemsetD32", || {
        device::current()?;
        capture::allow_call()?;
        let bytes = count.saturating_mul(4);
        // SAFETY: the caller passes memory valid for the call.
        let side = unsafe { filled(pointer, room, bytes)? };
        let words = vec![value; count.min(1 << 16)];
        for first in (0..count).step_by(1 << 16) {
            side.span
                .write(first, &words[..words.len().min(count - first)]);
        }
        Ok(())
    })
}
