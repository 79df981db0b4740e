//! Numbers, data buffers, tensor descriptions and the log: what needs no device.
#![expect(unsafe_code, reason = "the C interface hands over raw pointers")]
#![allow(
    non_snake_case,
    clippy::missing_safety_doc,
    reason = "names and contracts are those of the C interface"
)]

use std::ffi::{CStr, c_char, c_int, c_void};
use std::io::Write;
use std::ptr;
use std::sync::{Arc, Mutex};

use half::f16;
use hcom_sys::bindings::{
    self as sys, aclDataBuffer, aclDataType, aclError, aclFloat16, aclFormat, aclLogLevel,
    aclMemType, aclTensorDesc,
};

use super::{acl, put};
use crate::code;
use crate::error::{Outcome, fail, refuse};
use crate::handle::{self, Table, to_pointer};
use crate::memory::lock;

/// Hands the functions of this file to the macro `$callback`, with their signatures.
#[macro_export]
#[doc(hidden)]
macro_rules! for_each_value_symbol {
    ($callback:ident) => {
        $callback! {
            fn aclDataTypeSize(dataType: aclDataType) -> usize;
            fn aclFloat16ToFloat(value: aclFloat16) -> f32;
            fn aclFloatToFloat16(value: f32) -> aclFloat16;
            fn aclCreateDataBuffer(data: *mut c_void, size: usize) -> *mut aclDataBuffer;
            fn aclDestroyDataBuffer(dataBuffer: *const aclDataBuffer) -> aclError;
            fn aclUpdateDataBuffer(dataBuffer: *mut aclDataBuffer, data: *mut c_void, size: usize) -> aclError;
            fn aclGetDataBufferAddr(dataBuffer: *const aclDataBuffer) -> *mut c_void;
            fn aclGetDataBufferSize(dataBuffer: *const aclDataBuffer) -> u32;
            fn aclGetDataBufferSizeV2(dataBuffer: *const aclDataBuffer) -> usize;
            fn aclCreateTensorDesc(dataType: aclDataType, numDims: c_int, dims: *const i64, format: aclFormat) -> *mut aclTensorDesc;
            fn aclDestroyTensorDesc(desc: *const aclTensorDesc) -> ();
            fn aclGetTensorDescType(desc: *const aclTensorDesc) -> aclDataType;
            fn aclGetTensorDescFormat(desc: *const aclTensorDesc) -> aclFormat;
            fn aclGetTensorDescNumDims(desc: *const aclTensorDesc) -> usize;
            fn aclGetTensorDescDimV2(desc: *const aclTensorDesc, index: usize, dimSize: *mut i64) -> aclError;
            fn aclSetTensorDescName(desc: *mut aclTensorDesc, name: *const c_char) -> ();
            fn aclSetTensorFormat(desc: *mut aclTensorDesc, format: aclFormat) -> aclError;
            fn aclSetTensorShape(desc: *mut aclTensorDesc, numDims: c_int, dims: *const i64) -> aclError;
            fn aclSetTensorPlaceMent(desc: *mut aclTensorDesc, memType: aclMemType) -> aclError;
        }
    };
}

/// `aclDataTypeSize`
pub unsafe extern "C" fn aclDataTypeSize(dtype: aclDataType) -> usize {
    match dtype {
        sys::ACL_INT8
        | sys::ACL_UINT8
        | sys::ACL_BOOL
        | sys::ACL_HIFLOAT8
        | sys::ACL_FLOAT8_E5M2
        | sys::ACL_FLOAT8_E4M3FN
        | sys::ACL_FLOAT8_E8M0 => 1,
        sys::ACL_FLOAT16 | sys::ACL_BF16 | sys::ACL_INT16 | sys::ACL_UINT16 => 2,
        sys::ACL_FLOAT | sys::ACL_INT32 | sys::ACL_UINT32 | sys::ACL_COMPLEX32 => 4,
        sys::ACL_DOUBLE | sys::ACL_INT64 | sys::ACL_UINT64 | sys::ACL_COMPLEX64 => 8,
        sys::ACL_COMPLEX128 => 16,
        _ => 0,
    }
}

/// `aclFloat16ToFloat`: the largest exponent counts as an ordinary one, so infinity reads as 65536.
pub unsafe extern "C" fn aclFloat16ToFloat(value: aclFloat16) -> f32 {
    let (exponent, mantissa) = (value >> 10 & 0x1f, value & 0x3ff);
    if exponent != 0x1f {
        return f16::from_bits(value).to_f32();
    }
    let magnitude = 65536.0 * (1.0 + f32::from(mantissa) / 1024.0);
    if value >> 15 == 1 {
        -magnitude
    } else {
        magnitude
    }
}

/// `aclFloatToFloat16`: what does not fit, infinity and what is no number become the largest half.
pub unsafe extern "C" fn aclFloatToFloat16(value: f32) -> aclFloat16 {
    let half = f16::from_f32(value);
    let nearest = if half.is_finite() { half } else { f16::MAX };
    nearest.to_bits() | (u16::from(value.is_sign_negative()) << 15)
}

/// An address with a length.
struct Buffer {
    address: usize,
    bytes: usize,
}

static BUFFERS: Table<Mutex<Buffer>> = Table::new();

fn buffer(handle: *const aclDataBuffer) -> Outcome<Arc<Mutex<Buffer>>> {
    match BUFFERS.get(handle.cast()) {
        Some(buffer) => Ok(buffer),
        None => refuse(
            code::INVALID_PARAM,
            format!("{:#x} names no living aclDataBuffer", handle.addr()),
        ),
    }
}

/// The answer of a function that has no code, or `absent` with the thread's error text set.
fn or<T>(name: &str, absent: T, outcome: Outcome<T>) -> T {
    outcome.unwrap_or_else(|failure| {
        fail(failure.code, format!("{name}: {}", failure.text));
        absent
    })
}

/// `aclCreateDataBuffer`
pub unsafe extern "C" fn aclCreateDataBuffer(data: *mut c_void, size: usize) -> *mut aclDataBuffer {
    let handle = handle::fresh();
    let buffer = Buffer {
        address: data.expose_provenance(),
        bytes: size,
    };
    BUFFERS.insert(handle, Arc::new(Mutex::new(buffer)));
    to_pointer(handle).cast()
}

/// `aclDestroyDataBuffer`
pub unsafe extern "C" fn aclDestroyDataBuffer(handle: *const aclDataBuffer) -> aclError {
    acl("aclDestroyDataBuffer", || {
        buffer(handle)?;
        BUFFERS.remove(handle.cast());
        Ok(())
    })
}

/// `aclUpdateDataBuffer`
pub unsafe extern "C" fn aclUpdateDataBuffer(
    handle: *mut aclDataBuffer,
    data: *mut c_void,
    size: usize,
) -> aclError {
    acl("aclUpdateDataBuffer", || {
        *lock(&*buffer(handle)?) = Buffer {
            address: data.expose_provenance(),
            bytes: size,
        };
        Ok(())
    })
}

/// `aclGetDataBufferAddr`
pub unsafe extern "C" fn aclGetDataBufferAddr(handle: *const aclDataBuffer) -> *mut c_void {
    let found = buffer(handle).map(|buffer| lock(&buffer).address);
    ptr::with_exposed_provenance_mut(or("aclGetDataBufferAddr", 0, found))
}

/// `aclGetDataBufferSize`
pub unsafe extern "C" fn aclGetDataBufferSize(handle: *const aclDataBuffer) -> u32 {
    let found = buffer(handle).map(|buffer| lock(&buffer).bytes as u32);
    or("aclGetDataBufferSize", 0, found)
}

/// `aclGetDataBufferSizeV2`
pub unsafe extern "C" fn aclGetDataBufferSizeV2(handle: *const aclDataBuffer) -> usize {
    let found = buffer(handle).map(|buffer| lock(&buffer).bytes);
    or("aclGetDataBufferSizeV2", 0, found)
}

/// Element type, sizes and layout, as set.
struct Desc {
    dtype: aclDataType,
    dims: Vec<i64>,
    format: aclFormat,
}

static DESCS: Table<Mutex<Desc>> = Table::new();

fn desc(handle: *const aclTensorDesc) -> Outcome<Arc<Mutex<Desc>>> {
    match DESCS.get(handle.cast()) {
        Some(desc) => Ok(desc),
        None => refuse(
            code::INVALID_PARAM,
            format!("{:#x} names no living aclTensorDesc", handle.addr()),
        ),
    }
}

/// # Safety
/// `dims` is null or has `count` readable numbers.
unsafe fn dims_of(count: c_int, dims: *const i64) -> Outcome<Vec<i64>> {
    match usize::try_from(count) {
        Ok(0) => Ok(Vec::new()),
        Ok(count) if !dims.is_null() => {
            // SAFETY: not null, and readable for `count` numbers as the caller promises.
            Ok(unsafe { std::slice::from_raw_parts(dims, count) }.to_vec())
        }
        _ => refuse(
            code::INVALID_PARAM,
            format!("{count} dimensions at {dims:p}"),
        ),
    }
}

/// `aclCreateTensorDesc`
pub unsafe extern "C" fn aclCreateTensorDesc(
    dtype: aclDataType,
    count: c_int,
    dims: *const i64,
    format: aclFormat,
) -> *mut aclTensorDesc {
    // SAFETY: the caller passes `count` sizes.
    let dims = unsafe { dims_of(count, dims) };
    let made = dims.map(|dims| {
        let handle = handle::fresh();
        let desc = Desc {
            dtype,
            dims,
            format,
        };
        DESCS.insert(handle, Arc::new(Mutex::new(desc)));
        handle
    });
    to_pointer(or("aclCreateTensorDesc", 0, made)).cast()
}

/// `aclDestroyTensorDesc`
pub unsafe extern "C" fn aclDestroyTensorDesc(handle: *const aclTensorDesc) {
    let found = desc(handle).map(|_| DESCS.remove(handle.cast()));
    or("aclDestroyTensorDesc", None, found);
}

/// `aclGetTensorDescType`
pub unsafe extern "C" fn aclGetTensorDescType(handle: *const aclTensorDesc) -> aclDataType {
    let found = desc(handle).map(|desc| lock(&desc).dtype);
    or("aclGetTensorDescType", sys::ACL_DT_UNDEFINED, found)
}

/// `aclGetTensorDescFormat`
pub unsafe extern "C" fn aclGetTensorDescFormat(handle: *const aclTensorDesc) -> aclFormat {
    let found = desc(handle).map(|desc| lock(&desc).format);
    or("aclGetTensorDescFormat", sys::ACL_FORMAT_UNDEFINED, found)
}

/// `aclGetTensorDescNumDims`: one size of -2 says that the rank is unknown.
pub unsafe extern "C" fn aclGetTensorDescNumDims(handle: *const aclTensorDesc) -> usize {
    let found = desc(handle).map(|desc| match lock(&desc).dims.as_slice() {
        [-2] => sys::ACL_UNKNOWN_RANK as usize,
        dims => dims.len(),
    });
    or("aclGetTensorDescNumDims", 0, found)
}

/// `aclGetTensorDescDimV2`
pub unsafe extern "C" fn aclGetTensorDescDimV2(
    handle: *const aclTensorDesc,
    index: usize,
    place: *mut i64,
) -> aclError {
    acl("aclGetTensorDescDimV2", || {
        let desc = desc(handle)?;
        let desc = lock(&desc);
        let Some(&size) = desc.dims.get(index) else {
            return refuse(
                code::INVALID_PARAM,
                format!("dimension {index} of {}", desc.dims.len()),
            );
        };
        // SAFETY: the caller passes null or a place for the answer.
        unsafe { put(place, code::INVALID_PARAM, size) }
    })
}

/// `aclSetTensorDescName`: nothing asks for the name.
pub unsafe extern "C" fn aclSetTensorDescName(handle: *mut aclTensorDesc, _name: *const c_char) {
    or("aclSetTensorDescName", (), desc(handle).map(|_| ()));
}

/// `aclSetTensorFormat`: the storage format, which nothing asks for.
pub unsafe extern "C" fn aclSetTensorFormat(handle: *mut aclTensorDesc, _: aclFormat) -> aclError {
    acl("aclSetTensorFormat", || desc(handle).map(|_| ()))
}

/// `aclSetTensorShape`: the storage shape, which nothing asks for.
pub unsafe extern "C" fn aclSetTensorShape(
    handle: *mut aclTensorDesc,
    count: c_int,
    dims: *const i64,
) -> aclError {
    acl("aclSetTensorShape", || {
        desc(handle)?;
        // SAFETY: the caller passes `count` sizes.
        unsafe { dims_of(count, dims) }.map(|_| ())
    })
}

/// `aclSetTensorPlaceMent`
pub unsafe extern "C" fn aclSetTensorPlaceMent(
    handle: *mut aclTensorDesc,
    place: aclMemType,
) -> aclError {
    acl("aclSetTensorPlaceMent", || {
        if place.0 > sys::ACL_MEMTYPE_HOST_COMPILE_INDEPENDENT.0 {
            return refuse(code::INVALID_PARAM, format!("memory type {}", place.0));
        }
        desc(handle).map(|_| ())
    })
}

/// `aclAppLog`: a line of the log, if `ASCEND_SLOG_PRINT_TO_STDOUT` is 1 and the level is at least that of
/// `ASCEND_GLOBAL_LOG_LEVEL` (error by default). What C passes behind the format cannot be read here, so the format is
/// printed as it is.
pub unsafe extern "C" fn aclAppLog(
    level: aclLogLevel,
    function: *const c_char,
    file: *const c_char,
    line: u32,
    format: *const c_char,
) {
    let set = |name: &str| std::env::var(name).ok().and_then(|text| text.parse().ok());
    let wanted: u32 = set("ASCEND_GLOBAL_LOG_LEVEL").unwrap_or(sys::ACL_ERROR.0);
    if set("ASCEND_SLOG_PRINT_TO_STDOUT") != Some(1) || level.0 < wanted {
        return;
    }
    let text = |pointer: *const c_char| {
        if pointer.is_null() {
            return "?".into();
        }
        // SAFETY: not null, so the caller passes text that ends with a zero.
        unsafe { CStr::from_ptr(pointer) }.to_string_lossy()
    };
    let names = ["DEBUG", "INFO", "WARNING", "ERROR"];
    let name = names.get(level.0 as usize).copied().unwrap_or("ERROR");
    let (function, file, format) = (text(function), text(file), text(format));
    // A log that cannot be written is no reason to fail.
    let _ = writeln!(
        std::io::stdout(),
        "[{name}] {file}:{line} {function}: {format}"
    );
}
