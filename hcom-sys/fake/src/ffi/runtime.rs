//! Start and end, versions, devices and contexts.
#![expect(unsafe_code, reason = "the C interface hands over raw pointers")]
#![allow(
    non_snake_case,
    clippy::missing_safety_doc,
    reason = "names and contracts are those of the C interface"
)]

use std::collections::BTreeMap;
use std::ffi::{c_char, c_void};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use hcom_sys::bindings::{
    self as sys, aclCannAttr, aclDeviceInfo, aclError, aclSysParamOpt, aclrtContext,
    aclrtFloatOverflowMode, aclrtLastErrLevel, aclrtRunMode, aclrtStream,
};

use super::{acl, put};
use crate::error::{self, Failure, refuse};
use crate::handle::to_pointer;
use crate::memory::lock;
use crate::{code, config, device};

/// Hands the functions of this file to the macro `$callback`, with their signatures.
#[macro_export]
#[doc(hidden)]
macro_rules! for_each_device_symbol {
    ($callback:ident) => {
        $callback! {
            fn aclInit(configPath: *const c_char) -> aclError;
            fn aclFinalize() -> aclError;
            fn aclFinalizeReference(refCount: *mut u64) -> aclError;
            fn aclGetRecentErrMsg() -> *const c_char;
            fn aclrtPeekAtLastError(level: aclrtLastErrLevel) -> aclError;
            fn aclrtGetLastError(level: aclrtLastErrLevel) -> aclError;
            fn aclrtGetSocName() -> *const c_char;
            fn aclrtGetVersion(majorVersion: *mut i32, minorVersion: *mut i32, patchVersion: *mut i32) -> aclError;
            fn aclGetCannAttributeList(cannAttrList: *mut *const aclCannAttr, num: *mut usize) -> aclError;
            fn aclGetCannAttribute(cannAttr: aclCannAttr, value: *mut i32) -> aclError;
            fn aclGetDeviceCapability(deviceId: u32, deviceInfo: aclDeviceInfo, value: *mut i64) -> aclError;
            fn aclrtGetDeviceCount(count: *mut u32) -> aclError;
            fn aclrtSetDevice(deviceId: i32) -> aclError;
            fn aclrtResetDevice(deviceId: i32) -> aclError;
            fn aclrtResetDeviceForce(deviceId: i32) -> aclError;
            fn aclrtGetDevice(deviceId: *mut i32) -> aclError;
            fn aclrtGetRunMode(runMode: *mut aclrtRunMode) -> aclError;
            fn aclrtSynchronizeDevice() -> aclError;
            fn aclrtSynchronizeDeviceWithTimeout(timeout: i32) -> aclError;
            fn aclrtDeviceTaskAbort(deviceId: i32, timeout: u32) -> aclError;
            fn aclrtDeviceCanAccessPeer(canAccessPeer: *mut i32, deviceId: i32, peerDeviceId: i32) -> aclError;
            fn aclrtDeviceEnablePeerAccess(peerDeviceId: i32, flags: u32) -> aclError;
            fn aclrtDeviceDisablePeerAccess(peerDeviceId: i32) -> aclError;
            fn aclrtSetDeviceSatMode(mode: aclrtFloatOverflowMode) -> aclError;
            fn aclrtGetDeviceSatMode(mode: *mut aclrtFloatOverflowMode) -> aclError;
            fn aclrtCreateContext(context: *mut aclrtContext, deviceId: i32) -> aclError;
            fn aclrtDestroyContext(context: aclrtContext) -> aclError;
            fn aclrtSetCurrentContext(context: aclrtContext) -> aclError;
            fn aclrtGetCurrentContext(context: *mut aclrtContext) -> aclError;
            fn aclrtCtxGetCurrentDefaultStream(stream: *mut aclrtStream) -> aclError;
            fn aclrtCtxSetSysParamOpt(opt: aclSysParamOpt, value: i64) -> aclError;
            fn aclrtCtxGetSysParamOpt(opt: aclSysParamOpt, value: *mut i64) -> aclError;
            fn aclrtSetSysParamOpt(opt: aclSysParamOpt, value: i64) -> aclError;
            fn aclrtGetSysParamOpt(opt: aclSysParamOpt, value: *mut i64) -> aclError;
        }
    };
}

/// How often `aclInit` was called and not undone.
static USERS: AtomicU64 = AtomicU64::new(0);

/// Whether `aclInit` was called and not undone.
pub(super) fn is_initialised() -> bool {
    USERS.load(Ordering::SeqCst) > 0
}

/// `aclInit`. The configuration file's content does not matter to this library.
pub unsafe extern "C" fn aclInit(_config_path: *const c_char) -> aclError {
    acl("aclInit", || {
        config::get().map_err(|text| Failure::new(code::INVALID_PARAM, text))?;
        if USERS.fetch_add(1, Ordering::SeqCst) > 0 {
            return refuse(
                code::REPEAT_INIT,
                "already initialised; the call is counted",
            );
        }
        Ok(())
    })
}

/// `aclFinalize`
pub unsafe extern "C" fn aclFinalize() -> aclError {
    acl("aclFinalize", || {
        if USERS.swap(0, Ordering::SeqCst) == 0 {
            return refuse(code::REPEAT_FINALIZE, "not initialised");
        }
        Ok(())
    })
}

/// `aclFinalizeReference`
pub unsafe extern "C" fn aclFinalizeReference(ref_count: *mut u64) -> aclError {
    acl("aclFinalizeReference", || {
        let down = USERS.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |users| {
            users.checked_sub(1)
        });
        let Ok(users) = down else {
            return refuse(code::REPEAT_FINALIZE, "not initialised");
        };
        // SAFETY: the caller passes null or a place for the answer.
        unsafe { put(ref_count, code::INVALID_PARAM, users - 1) }
    })
}

/// `aclGetRecentErrMsg`
pub unsafe extern "C" fn aclGetRecentErrMsg() -> *const c_char {
    error::last_as_c()
}

/// `aclrtPeekAtLastError`
pub unsafe extern "C" fn aclrtPeekAtLastError(_level: aclrtLastErrLevel) -> aclError {
    error::last_code(false)
}

/// `aclrtGetLastError`
pub unsafe extern "C" fn aclrtGetLastError(_level: aclrtLastErrLevel) -> aclError {
    error::last_code(true)
}

/// `aclrtGetSocName`
pub unsafe extern "C" fn aclrtGetSocName() -> *const c_char {
    config::or_default().soc.name.as_ptr()
}

/// `aclrtGetVersion`
pub unsafe extern "C" fn aclrtGetVersion(
    major: *mut i32,
    minor: *mut i32,
    patch: *mut i32,
) -> aclError {
    acl("aclrtGetVersion", || {
        // SAFETY: the caller passes null or places for the answers.
        unsafe {
            put(major, code::INVALID_PARAM, sys::ACL_MAJOR_VERSION)?;
            put(minor, code::INVALID_PARAM, sys::ACL_MINOR_VERSION)?;
            put(patch, code::INVALID_PARAM, 0)
        }
    })
}

/// `aclGetCannAttributeList`
pub unsafe extern "C" fn aclGetCannAttributeList(
    list: *mut *const aclCannAttr,
    num: *mut usize,
) -> aclError {
    static ATTRIBUTES: [aclCannAttr; 2] = [sys::ACL_CANN_ATTR_INF_NAN, sys::ACL_CANN_ATTR_BF16];
    acl("aclGetCannAttributeList", || {
        // SAFETY: the caller passes null or places for the answers.
        unsafe {
            put(list, code::INVALID_PARAM, ATTRIBUTES.as_ptr())?;
            put(num, code::INVALID_PARAM, ATTRIBUTES.len())
        }
    })
}

/// `aclGetCannAttribute`
pub unsafe extern "C" fn aclGetCannAttribute(attribute: aclCannAttr, value: *mut i32) -> aclError {
    acl("aclGetCannAttribute", || {
        let answer = match attribute {
            sys::ACL_CANN_ATTR_INF_NAN | sys::ACL_CANN_ATTR_BF16 => 1,
            sys::ACL_CANN_ATTR_JIT_COMPILE => 0,
            other => return refuse(code::INVALID_PARAM, format!("attribute {}", other.0)),
        };
        // SAFETY: the caller passes null or a place for the answer.
        unsafe { put(value, code::INVALID_PARAM, answer) }
    })
}

/// `aclGetDeviceCapability`: core numbers of the processor this runs on.
pub unsafe extern "C" fn aclGetDeviceCapability(
    id: u32,
    info: aclDeviceInfo,
    value: *mut i64,
) -> aclError {
    acl("aclGetDeviceCapability", || {
        device::check(id as i32)?;
        let cores = rustix::thread::sched_getaffinity(None).map_or(1, |set| set.count());
        let answer = match info {
            sys::ACL_DEVICE_INFO_AI_CORE_NUM | sys::ACL_DEVICE_INFO_VECTOR_CORE_NUM => {
                i64::from(cores)
            }
            sys::ACL_DEVICE_INFO_L2_SIZE => 192 << 20,
            other => {
                return refuse(
                    code::INVALID_PARAM,
                    format!("device information {}", other.0),
                );
            }
        };
        // SAFETY: the caller passes null or a place for the answer.
        unsafe { put(value, code::INVALID_PARAM, answer) }
    })
}

/// `aclrtGetDeviceCount`
pub unsafe extern "C" fn aclrtGetDeviceCount(count: *mut u32) -> aclError {
    acl("aclrtGetDeviceCount", || {
        let devices = config::get()
            .map_err(|text| Failure::new(code::INVALID_PARAM, text))?
            .devices;
        // SAFETY: the caller passes null or a place for the answer.
        unsafe { put(count, code::INVALID_PARAM, devices) }
    })
}

/// `aclrtSetDevice`
pub unsafe extern "C" fn aclrtSetDevice(id: i32) -> aclError {
    acl("aclrtSetDevice", || device::set(id))
}

/// `aclrtResetDevice`
pub unsafe extern "C" fn aclrtResetDevice(id: i32) -> aclError {
    acl("aclrtResetDevice", || device::reset(id, false))
}

/// `aclrtResetDeviceForce`
pub unsafe extern "C" fn aclrtResetDeviceForce(id: i32) -> aclError {
    acl("aclrtResetDeviceForce", || device::reset(id, true))
}

/// `aclrtGetDevice`
pub unsafe extern "C" fn aclrtGetDevice(id: *mut i32) -> aclError {
    acl("aclrtGetDevice", || {
        let current = device::current()?.device.id as i32;
        // SAFETY: the caller passes null or a place for the answer.
        unsafe { put(id, code::INVALID_PARAM, current) }
    })
}

/// `aclrtGetRunMode`
pub unsafe extern "C" fn aclrtGetRunMode(mode: *mut aclrtRunMode) -> aclError {
    // SAFETY: the caller passes null or a place for the answer.
    acl("aclrtGetRunMode", || unsafe {
        put(mode, code::INVALID_PARAM, sys::ACL_HOST)
    })
}

/// `aclrtSynchronizeDevice`
pub unsafe extern "C" fn aclrtSynchronizeDevice() -> aclError {
    acl("aclrtSynchronizeDevice", || {
        device::synchronize(&device::current()?.device, None)
    })
}

/// `aclrtSynchronizeDeviceWithTimeout`
pub unsafe extern "C" fn aclrtSynchronizeDeviceWithTimeout(timeout: i32) -> aclError {
    acl("aclrtSynchronizeDeviceWithTimeout", || {
        let limit = limit(timeout)?;
        device::synchronize(&device::current()?.device, limit)
    })
}

/// A timeout of the C interface in milliseconds, -1 for ever.
pub(super) fn limit(timeout: i32) -> error::Outcome<Option<Duration>> {
    match timeout {
        -1 => Ok(None),
        0.. => Ok(Some(Duration::from_millis(timeout as u64))),
        _ => refuse(code::RT_PARAM, format!("a timeout of {timeout} ms")),
    }
}

/// `aclrtDeviceTaskAbort`: aborts every stream of the device.
pub unsafe extern "C" fn aclrtDeviceTaskAbort(id: i32, _timeout: u32) -> aclError {
    acl("aclrtDeviceTaskAbort", || {
        let id = device::check(id)?;
        for stream in crate::stream::STREAMS.all() {
            if stream.device.id == id {
                stream.abort();
            }
        }
        Ok(())
    })
}

/// `aclrtDeviceCanAccessPeer`: always, between different devices.
pub unsafe extern "C" fn aclrtDeviceCanAccessPeer(can: *mut i32, id: i32, peer: i32) -> aclError {
    acl("aclrtDeviceCanAccessPeer", || {
        if device::check(id)? == device::check(peer)? {
            return refuse(
                code::INVALID_PARAM,
                format!("device {id} is no peer of itself"),
            );
        }
        // SAFETY: the caller passes null or a place for the answer.
        unsafe { put(can, code::INVALID_PARAM, 1) }
    })
}

/// `aclrtDeviceEnablePeerAccess`: nothing to do.
pub unsafe extern "C" fn aclrtDeviceEnablePeerAccess(peer: i32, flags: u32) -> aclError {
    acl("aclrtDeviceEnablePeerAccess", || {
        device::current()?;
        device::check(peer)?;
        if flags != 0 {
            return refuse(code::INVALID_PARAM, format!("flags {flags}, expected 0"));
        }
        Ok(())
    })
}

/// `aclrtDeviceDisablePeerAccess`: nothing to do.
pub unsafe extern "C" fn aclrtDeviceDisablePeerAccess(peer: i32) -> aclError {
    acl("aclrtDeviceDisablePeerAccess", || {
        device::current()?;
        device::check(peer).map(|_| ())
    })
}

/// The saturation mode; floats of this library are never saturated, so it is only remembered.
static SATURATION: AtomicU32 = AtomicU32::new(1);

/// `aclrtSetDeviceSatMode`
pub unsafe extern "C" fn aclrtSetDeviceSatMode(mode: aclrtFloatOverflowMode) -> aclError {
    acl("aclrtSetDeviceSatMode", || {
        if mode.0 > 1 {
            return refuse(
                code::INVALID_PARAM,
                format!("overflow mode {}, expected 0 or 1", mode.0),
            );
        }
        SATURATION.store(mode.0, Ordering::SeqCst);
        Ok(())
    })
}

/// `aclrtGetDeviceSatMode`
pub unsafe extern "C" fn aclrtGetDeviceSatMode(mode: *mut aclrtFloatOverflowMode) -> aclError {
    acl("aclrtGetDeviceSatMode", || {
        let answer = aclrtFloatOverflowMode(SATURATION.load(Ordering::SeqCst));
        // SAFETY: the caller passes null or a place for the answer.
        unsafe { put(mode, code::INVALID_PARAM, answer) }
    })
}

/// `aclrtCreateContext`
pub unsafe extern "C" fn aclrtCreateContext(context: *mut aclrtContext, id: i32) -> aclError {
    acl("aclrtCreateContext", || {
        if context.is_null() {
            return refuse(code::INVALID_PARAM, "a place for the context is null");
        }
        let handle = device::create_context(id)?;
        // SAFETY: not null, so the caller passes a place for the answer.
        unsafe { put(context, code::INVALID_PARAM, to_pointer(handle)) }
    })
}

/// `aclrtDestroyContext`
pub unsafe extern "C" fn aclrtDestroyContext(context: aclrtContext) -> aclError {
    acl("aclrtDestroyContext", || {
        not_null(context)?;
        device::destroy_context(context)
    })
}

/// `aclrtSetCurrentContext`
pub unsafe extern "C" fn aclrtSetCurrentContext(context: aclrtContext) -> aclError {
    acl("aclrtSetCurrentContext", || {
        not_null(context)?;
        device::set_current(context)
    })
}

/// `aclrtGetCurrentContext`
pub unsafe extern "C" fn aclrtGetCurrentContext(context: *mut aclrtContext) -> aclError {
    acl("aclrtGetCurrentContext", || {
        let current = to_pointer(device::current()?.handle);
        // SAFETY: the caller passes null or a place for the answer.
        unsafe { put(context, code::INVALID_PARAM, current) }
    })
}

/// `aclrtCtxGetCurrentDefaultStream`
pub unsafe extern "C" fn aclrtCtxGetCurrentDefaultStream(stream: *mut aclrtStream) -> aclError {
    acl("aclrtCtxGetCurrentDefaultStream", || {
        let default = to_pointer(device::current()?.default_stream.handle);
        // SAFETY: the caller passes null or a place for the answer.
        unsafe { put(stream, code::INVALID_PARAM, default) }
    })
}

/// The parameters of the process.
static PARAMETERS: Mutex<BTreeMap<u32, i64>> = Mutex::new(BTreeMap::new());

fn set_parameter(
    parameters: &Mutex<BTreeMap<u32, i64>>,
    opt: aclSysParamOpt,
    value: i64,
) -> error::Outcome {
    known_parameter(opt)?;
    lock(parameters).insert(opt.0, value);
    Ok(())
}

fn known_parameter(opt: aclSysParamOpt) -> error::Outcome {
    if opt.0 > sys::ACL_OPT_ENABLE_KERNEL_EARLY_START.0 {
        return refuse(code::INVALID_PARAM, format!("system parameter {}", opt.0));
    }
    Ok(())
}

/// `aclrtCtxSetSysParamOpt`: remembered; every operation here is deterministic anyway.
pub unsafe extern "C" fn aclrtCtxSetSysParamOpt(opt: aclSysParamOpt, value: i64) -> aclError {
    acl("aclrtCtxSetSysParamOpt", || {
        set_parameter(&device::current()?.parameters, opt, value)
    })
}

/// `aclrtCtxGetSysParamOpt`
pub unsafe extern "C" fn aclrtCtxGetSysParamOpt(opt: aclSysParamOpt, value: *mut i64) -> aclError {
    acl("aclrtCtxGetSysParamOpt", || {
        known_parameter(opt)?;
        let set = lock(&device::current()?.parameters).get(&opt.0).copied();
        let answer = set.ok_or_else(|| {
            let text = format!("system parameter {} was never set for this context", opt.0);
            Failure::new(code::SYSPARAM_UNSET, text)
        })?;
        // SAFETY: the caller passes null or a place for the answer.
        unsafe { put(value, code::INVALID_PARAM, answer) }
    })
}

/// `aclrtSetSysParamOpt`: remembered; every operation here is deterministic anyway.
pub unsafe extern "C" fn aclrtSetSysParamOpt(opt: aclSysParamOpt, value: i64) -> aclError {
    acl("aclrtSetSysParamOpt", || {
        set_parameter(&PARAMETERS, opt, value)
    })
}

/// `aclrtGetSysParamOpt`: 0 for a parameter that was never set.
pub unsafe extern "C" fn aclrtGetSysParamOpt(opt: aclSysParamOpt, value: *mut i64) -> aclError {
    acl("aclrtGetSysParamOpt", || {
        known_parameter(opt)?;
        let answer = lock(&PARAMETERS).get(&opt.0).copied().unwrap_or(0);
        // SAFETY: the caller passes null or a place for the answer.
        unsafe { put(value, code::INVALID_PARAM, answer) }
    })
}

pub(super) fn not_null(pointer: *const c_void) -> error::Outcome {
    if pointer.is_null() {
        return refuse(code::INVALID_PARAM, "the handle is null");
    }
    Ok(())
}
