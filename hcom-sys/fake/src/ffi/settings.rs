//! What can be asked and set about the installation, devices and streams besides running work on them.
#![expect(unsafe_code, reason = "the C interface hands over raw pointers")]
#![allow(
    non_snake_case,
    clippy::missing_safety_doc,
    reason = "names and contracts are those of the C interface"
)]

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::ffi::{CStr, c_char, c_void};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use hcom_sys::bindings::{
    self as sys, aclCANNPackageName, aclCANNPackageVersion, aclError, aclrtDevFeatureType,
    aclrtDevResLimitType, aclrtErrorInfo, aclrtStream, aclrtStreamAttr, aclrtStreamAttrValue,
    aclrtStreamConfigAttr, aclrtStreamConfigHandle,
};

use super::{acl, put};
use crate::error::{Failure, Outcome, refuse};
use crate::memory::lock;
use crate::soc::Soc;
use crate::stream::Stream;
use crate::{code, config, copy, device, stream};

/// Hands the functions of this file to the macro `$callback`, with their signatures.
#[macro_export]
#[doc(hidden)]
macro_rules! for_each_setting_symbol {
    ($callback:ident) => {
        $callback! {
            fn aclsysGetCANNVersion(name: aclCANNPackageName, version: *mut aclCANNPackageVersion) -> aclError;
            fn aclsysGetVersionStr(pkgName: *mut c_char, versionStr: *mut c_char) -> aclError;
            fn aclsysGetVersionNum(pkgName: *mut c_char, versionNum: *mut i32) -> aclError;
            fn aclrtCheckArchCompatibility(socVersion: *const c_char, canCompatible: *mut i32) -> aclError;
            fn aclrtGetDeviceCapability(deviceId: i32, devFeatureType: aclrtDevFeatureType, value: *mut i32) -> aclError;
            fn aclrtGetErrorVerbose(deviceId: i32, errorInfo: *mut aclrtErrorInfo) -> aclError;
            fn aclrtDeviceGetBareTgid(pid: *mut i32) -> aclError;
            fn aclrtGetLogicDevIdByUserDevId(userDevid: i32, logicDevId: *mut i32) -> aclError;
            fn aclrtGetPrimaryCtxState(deviceId: i32, flags: *mut u32, active: *mut i32) -> aclError;
            fn aclrtSetDeviceResLimit(deviceId: i32, type_: aclrtDevResLimitType, value: u32) -> aclError;
            fn aclrtGetDeviceResLimit(deviceId: i32, type_: aclrtDevResLimitType, value: *mut u32) -> aclError;
            fn aclrtResetDeviceResLimit(deviceId: i32) -> aclError;
            fn aclrtSetStreamResLimit(stream: aclrtStream, type_: aclrtDevResLimitType, value: u32) -> aclError;
            fn aclrtGetStreamResLimit(stream: aclrtStream, type_: aclrtDevResLimitType, value: *mut u32) -> aclError;
            fn aclrtResetStreamResLimit(stream: aclrtStream) -> aclError;
            fn aclrtUseStreamResInCurrentThread(stream: aclrtStream) -> aclError;
            fn aclrtUnuseStreamResInCurrentThread(stream: aclrtStream) -> aclError;
            fn aclrtGetResInCurrentThread(type_: aclrtDevResLimitType, value: *mut u32) -> aclError;
            fn aclrtSetOpExecuteTimeOut(timeout: u32) -> aclError;
            fn aclrtSetOpExecuteTimeOutV2(timeout: u64, actualTimeout: *mut u64) -> aclError;
            fn aclrtSetStreamConfigOpt(handle: *mut aclrtStreamConfigHandle, attr: aclrtStreamConfigAttr, attrValue: *const c_void, valueSize: usize) -> aclError;
            fn aclrtSetStreamAttribute(stream: aclrtStream, stmAttrType: aclrtStreamAttr, value: *mut aclrtStreamAttrValue) -> aclError;
            fn aclrtGetStreamAttribute(stream: aclrtStream, stmAttrType: aclrtStreamAttr, value: *mut aclrtStreamAttrValue) -> aclError;
            fn aclrtSetStreamOverflowSwitch(stream: aclrtStream, flag: u32) -> aclError;
            fn aclrtGetStreamOverflowSwitch(stream: aclrtStream, flag: *mut u32) -> aclError;
            fn aclrtGetOverflowStatus(outputAddr: *mut c_void, outputSize: usize, stream: aclrtStream) -> aclError;
            fn aclrtResetOverflowStatus(stream: aclrtStream) -> aclError;
        }
    };
}

/// The CANN release that this library behaves like: text, its parts, and the number that code compares.
const VERSION: (&CStr, [&CStr; 3], i32) = (c"9.0.0", [c"9", c"0", c"0"], 90_000_000);

fn fill<const N: usize>(place: &mut [c_char; N], text: &CStr) {
    for (to, from) in place.iter_mut().zip(text.to_bytes_with_nul()) {
        *to = *from as c_char;
    }
}

/// `aclsysGetCANNVersion`: all packages are of one release.
pub unsafe extern "C" fn aclsysGetCANNVersion(
    name: aclCANNPackageName,
    version: *mut aclCANNPackageVersion,
) -> aclError {
    acl("aclsysGetCANNVersion", || {
        if name.0 > sys::ACL_PKG_NAME_DRIVER.0 {
            return refuse(code::INVALID_PARAM, format!("package {}", name.0));
        }
        let (text, [major, minor, release], _) = VERSION;
        let mut answer = aclCANNPackageVersion::default();
        fill(&mut answer.version, text);
        fill(&mut answer.majorVersion, major);
        fill(&mut answer.minorVersion, minor);
        fill(&mut answer.releaseVersion, release);
        // SAFETY: the caller passes null or a place for the answer.
        unsafe { put(version, code::INVALID_PARAM, answer) }
    })
}

/// `aclsysGetVersionStr`
pub unsafe extern "C" fn aclsysGetVersionStr(name: *mut c_char, place: *mut c_char) -> aclError {
    acl("aclsysGetVersionStr", || {
        if name.is_null() {
            return refuse(code::INVALID_PARAM, "the name of the package is null");
        }
        let mut answer = [0; sys::ACL_PKG_VERSION_MAX_SIZE];
        fill(&mut answer, VERSION.0);
        // SAFETY: the caller passes null or a place for as many characters.
        unsafe { put(place.cast(), code::INVALID_PARAM, answer) }
    })
}

/// `aclsysGetVersionNum`
pub unsafe extern "C" fn aclsysGetVersionNum(name: *mut c_char, place: *mut i32) -> aclError {
    acl("aclsysGetVersionNum", || {
        if name.is_null() {
            return refuse(code::INVALID_PARAM, "the name of the package is null");
        }
        // SAFETY: the caller passes null or a place for the answer.
        unsafe { put(place, code::INVALID_PARAM, VERSION.2) }
    })
}

/// `aclrtCheckArchCompatibility`: a program for another chip of the same family runs.
pub unsafe extern "C" fn aclrtCheckArchCompatibility(
    soc: *const c_char,
    compatible: *mut i32,
) -> aclError {
    acl("aclrtCheckArchCompatibility", || {
        if soc.is_null() {
            return refuse(code::INVALID_PARAM, "the chip's name is null");
        }
        // SAFETY: not null, so the caller passes text that ends with a zero.
        let name = unsafe { CStr::from_ptr(soc) }.to_string_lossy();
        let same =
            Soc::parse(&name).is_some_and(|soc| soc.family == config::or_default().soc.family);
        // SAFETY: the caller passes null or a place for the answer.
        unsafe { put(compatible, code::INVALID_PARAM, i32::from(same)) }
    })
}

/// `aclrtGetDeviceCapability`: neither feature exists on a CPU.
pub unsafe extern "C" fn aclrtGetDeviceCapability(
    id: i32,
    feature: aclrtDevFeatureType,
    value: *mut i32,
) -> aclError {
    acl("aclrtGetDeviceCapability", || {
        device::check(id)?;
        match feature {
            sys::ACL_FEATURE_TSCPU_TASK_UPDATE_SUPPORT_AIC_AIV
            | sys::ACL_FEATURE_SYSTEM_MEMQ_EVENT_CROSS_DEV => {}
            other => return refuse(code::INVALID_PARAM, format!("feature {}", other.0)),
        }
        // SAFETY: the caller passes null or a place for the answer.
        unsafe {
            put(
                value,
                code::INVALID_PARAM,
                sys::ACL_DEV_FEATURE_NOT_SUPPORT as i32,
            )
        }
    })
}

/// `aclrtGetErrorVerbose`: a CPU has no hardware errors of an NPU to tell of.
pub unsafe extern "C" fn aclrtGetErrorVerbose(id: i32, info: *mut aclrtErrorInfo) -> aclError {
    acl("aclrtGetErrorVerbose", || {
        device::check(id)?;
        // SAFETY: the caller passes null or a place for the answer.
        unsafe { put(info, code::INVALID_PARAM, aclrtErrorInfo::default()) }
    })
}

/// `aclrtDeviceGetBareTgid`
pub unsafe extern "C" fn aclrtDeviceGetBareTgid(pid: *mut i32) -> aclError {
    acl("aclrtDeviceGetBareTgid", || {
        // SAFETY: the caller passes null or a place for the answer.
        unsafe { put(pid, code::INVALID_PARAM, std::process::id() as i32) }
    })
}

/// `aclrtGetLogicDevIdByUserDevId`: devices are not renumbered here.
pub unsafe extern "C" fn aclrtGetLogicDevIdByUserDevId(id: i32, logic: *mut i32) -> aclError {
    acl("aclrtGetLogicDevIdByUserDevId", || {
        device::check(id)?;
        // SAFETY: the caller passes null or a place for the answer.
        unsafe { put(logic, code::INVALID_PARAM, id) }
    })
}

/// `aclrtGetPrimaryCtxState`
pub unsafe extern "C" fn aclrtGetPrimaryCtxState(
    id: i32,
    flags: *mut u32,
    active: *mut i32,
) -> aclError {
    acl("aclrtGetPrimaryCtxState", || {
        let id = device::check(id)?;
        if !flags.is_null() {
            return refuse(code::INVALID_PARAM, "flags must be null");
        }
        // SAFETY: the caller passes null or a place for the answer.
        unsafe { put(active, code::INVALID_PARAM, i32::from(device::is_set(id))) }
    })
}

/// Limits of cores: cube, vector.
pub(crate) type Limits = [Option<u32>; 2];

/// Limits of devices.
static LIMITS: Mutex<BTreeMap<u32, Limits>> = Mutex::new(BTreeMap::new());

thread_local! {
    /// The stream whose limits hold for operators that this thread prepares.
    static LIMITING: RefCell<Option<Arc<Stream>>> = const { RefCell::new(None) };
}

/// Cores of a device: those of the host that this process may use.
pub(super) fn cores() -> u32 {
    rustix::thread::sched_getaffinity(None).map_or(1, |set| set.count())
}

fn kind(kind: aclrtDevResLimitType) -> Outcome<usize> {
    match kind {
        sys::ACL_RT_DEV_RES_CUBE_CORE | sys::ACL_RT_DEV_RES_VECTOR_CORE => Ok(kind.0 as usize),
        other => refuse(code::INVALID_PARAM, format!("kind of core {}", other.0)),
    }
}

fn limit(value: u32) -> Outcome<Option<u32>> {
    if value == 0 || value > cores() {
        return refuse(
            code::RT_PARAM,
            format!("{value} cores, expected 1 to {}", cores()),
        );
    }
    Ok(Some(value))
}

fn of_device(id: u32, kind: usize) -> u32 {
    let limits = lock(&LIMITS).get(&id).copied().unwrap_or_default();
    limits[kind].unwrap_or_else(cores)
}

fn of_stream(stream: &Stream, kind: usize) -> u32 {
    let own = lock(&stream.settings).limits[kind];
    own.unwrap_or_else(|| of_device(stream.device.id, kind))
}

/// `aclrtSetDeviceResLimit`: kept; kernels use the cores that the system gives them.
pub unsafe extern "C" fn aclrtSetDeviceResLimit(
    id: i32,
    which: aclrtDevResLimitType,
    value: u32,
) -> aclError {
    acl("aclrtSetDeviceResLimit", || {
        let (id, kind) = (device::check(id)?, kind(which)?);
        let limit = limit(value)?;
        lock(&LIMITS).entry(id).or_default()[kind] = limit;
        Ok(())
    })
}

/// `aclrtGetDeviceResLimit`
pub unsafe extern "C" fn aclrtGetDeviceResLimit(
    id: i32,
    which: aclrtDevResLimitType,
    value: *mut u32,
) -> aclError {
    acl("aclrtGetDeviceResLimit", || {
        let answer = of_device(device::check(id)?, kind(which)?);
        // SAFETY: the caller passes null or a place for the answer.
        unsafe { put(value, code::INVALID_PARAM, answer) }
    })
}

/// `aclrtResetDeviceResLimit`
pub unsafe extern "C" fn aclrtResetDeviceResLimit(id: i32) -> aclError {
    acl("aclrtResetDeviceResLimit", || {
        lock(&LIMITS).remove(&device::check(id)?);
        Ok(())
    })
}

/// `aclrtSetStreamResLimit`
pub unsafe extern "C" fn aclrtSetStreamResLimit(
    stream: aclrtStream,
    which: aclrtDevResLimitType,
    value: u32,
) -> aclError {
    acl("aclrtSetStreamResLimit", || {
        let (stream, kind) = (stream::find(stream)?, kind(which)?);
        lock(&stream.settings).limits[kind] = limit(value)?;
        Ok(())
    })
}

/// `aclrtGetStreamResLimit`
pub unsafe extern "C" fn aclrtGetStreamResLimit(
    stream: aclrtStream,
    which: aclrtDevResLimitType,
    value: *mut u32,
) -> aclError {
    acl("aclrtGetStreamResLimit", || {
        let answer = of_stream(&*stream::find(stream)?, kind(which)?);
        // SAFETY: the caller passes null or a place for the answer.
        unsafe { put(value, code::INVALID_PARAM, answer) }
    })
}

/// `aclrtResetStreamResLimit`
pub unsafe extern "C" fn aclrtResetStreamResLimit(stream: aclrtStream) -> aclError {
    acl("aclrtResetStreamResLimit", || {
        lock(&stream::find(stream)?.settings).limits = Limits::default();
        Ok(())
    })
}

/// `aclrtUseStreamResInCurrentThread`
pub unsafe extern "C" fn aclrtUseStreamResInCurrentThread(stream: aclrtStream) -> aclError {
    acl("aclrtUseStreamResInCurrentThread", || {
        let stream = stream::find(stream)?;
        LIMITING.with(|limiting| limiting.replace(Some(stream)));
        Ok(())
    })
}

/// `aclrtUnuseStreamResInCurrentThread`
pub unsafe extern "C" fn aclrtUnuseStreamResInCurrentThread(stream: aclrtStream) -> aclError {
    acl("aclrtUnuseStreamResInCurrentThread", || {
        stream::find(stream)?;
        LIMITING.with(RefCell::take);
        Ok(())
    })
}

/// `aclrtGetResInCurrentThread`
pub unsafe extern "C" fn aclrtGetResInCurrentThread(
    which: aclrtDevResLimitType,
    value: *mut u32,
) -> aclError {
    acl("aclrtGetResInCurrentThread", || {
        let kind = kind(which)?;
        let limiting = LIMITING.with(|limiting| limiting.borrow().clone());
        let answer = match limiting {
            Some(stream) => of_stream(&stream, kind),
            None => of_device(device::current()?.device.id, kind),
        };
        // SAFETY: the caller passes null or a place for the answer.
        unsafe { put(value, code::INVALID_PARAM, answer) }
    })
}

/// Microseconds that one operator may take, 0 for ever. Operators of this library end by themselves, so it is only
/// kept.
static EXECUTE_TIMEOUT: AtomicU64 = AtomicU64::new(0);

/// `aclrtSetOpExecuteTimeOut`: seconds.
pub unsafe extern "C" fn aclrtSetOpExecuteTimeOut(timeout: u32) -> aclError {
    EXECUTE_TIMEOUT.store(u64::from(timeout) * 1_000_000, Ordering::Relaxed);
    0
}

/// `aclrtSetOpExecuteTimeOutV2`: microseconds; 0 is without end, and reads as the largest number.
pub unsafe extern "C" fn aclrtSetOpExecuteTimeOutV2(timeout: u64, actual: *mut u64) -> aclError {
    acl("aclrtSetOpExecuteTimeOutV2", || {
        let answer = if timeout == 0 { u64::MAX } else { timeout };
        // SAFETY: the caller passes null or a place for the answer.
        unsafe { put(actual, code::INVALID_PARAM, answer)? };
        EXECUTE_TIMEOUT.store(timeout, Ordering::Relaxed);
        Ok(())
    })
}

/// `aclrtSetStreamConfigOpt`
pub unsafe extern "C" fn aclrtSetStreamConfigOpt(
    handle: *mut aclrtStreamConfigHandle,
    attr: aclrtStreamConfigAttr,
    value: *const c_void,
    bytes: usize,
) -> aclError {
    acl("aclrtSetStreamConfigOpt", || {
        // SAFETY: the caller passes null or a configuration that nobody else uses meanwhile.
        let Some(handle) = (unsafe { handle.as_mut() }) else {
            return refuse(code::INVALID_PARAM, "the configuration is null");
        };
        let expected = match attr {
            sys::ACL_RT_STREAM_PRIORITY => 4,
            sys::ACL_RT_STREAM_WORK_ADDR_PTR
            | sys::ACL_RT_STREAM_WORK_SIZE
            | sys::ACL_RT_STREAM_FLAG => 8,
            other => return refuse(code::INVALID_PARAM, format!("attribute {}", other.0)),
        };
        if value.is_null() || bytes != expected {
            return refuse(
                code::INVALID_PARAM,
                format!("{bytes} bytes at {value:p}, expected {expected}"),
            );
        }
        // SAFETY: not null, and the caller passes as many readable bytes as were checked.
        unsafe {
            match attr {
                sys::ACL_RT_STREAM_WORK_ADDR_PTR => {
                    handle.workptr = value.cast::<*mut c_void>().read_unaligned()
                }
                sys::ACL_RT_STREAM_WORK_SIZE => {
                    handle.workSize = value.cast::<usize>().read_unaligned()
                }
                sys::ACL_RT_STREAM_FLAG => handle.flag = value.cast::<usize>().read_unaligned(),
                _ => handle.priority = value.cast::<u32>().read_unaligned(),
            }
        }
        Ok(())
    })
}

/// `aclrtSetStreamAttribute`
pub unsafe extern "C" fn aclrtSetStreamAttribute(
    stream: aclrtStream,
    attr: aclrtStreamAttr,
    value: *mut aclrtStreamAttrValue,
) -> aclError {
    acl("aclrtSetStreamAttribute", || {
        let stream = stream::find(stream)?;
        // SAFETY: the caller passes null or a value.
        let Some(value) = (unsafe { value.as_ref() }) else {
            return refuse(code::INVALID_PARAM, "the value is null");
        };
        // SAFETY: every member is an integer, and the union is at least as long.
        let (word, mode) = unsafe { (value.userCustomTag, value.failureMode) };
        let mut settings = lock(&stream.settings);
        match attr {
            sys::ACL_STREAM_ATTR_FAILURE_MODE if mode <= 1 => {
                settings.failure_mode = mode;
                drop(settings);
                stream.stop_on_failure(mode == 1);
            }
            sys::ACL_STREAM_ATTR_FLOAT_OVERFLOW_CHECK if word <= 1 => settings.overflow = word,
            sys::ACL_STREAM_ATTR_USER_CUSTOM_TAG => settings.tag = word,
            sys::ACL_STREAM_ATTR_CACHE_OP_INFO if word <= 1 => settings.cache_info = word,
            sys::ACL_STREAM_ATTR_PRIORITY => {
                return refuse(code::NOT_SUPPORTED, "the priority is fixed at creation");
            }
            other => {
                return refuse(
                    code::INVALID_PARAM,
                    format!("attribute {} with value {word}", other.0),
                );
            }
        }
        Ok(())
    })
}

/// `aclrtGetStreamAttribute`
pub unsafe extern "C" fn aclrtGetStreamAttribute(
    stream: aclrtStream,
    attr: aclrtStreamAttr,
    place: *mut aclrtStreamAttrValue,
) -> aclError {
    acl("aclrtGetStreamAttribute", || {
        let stream = stream::find(stream)?;
        let settings = lock(&stream.settings);
        let answer = match attr {
            sys::ACL_STREAM_ATTR_FAILURE_MODE => settings.failure_mode,
            sys::ACL_STREAM_ATTR_FLOAT_OVERFLOW_CHECK => u64::from(settings.overflow),
            sys::ACL_STREAM_ATTR_USER_CUSTOM_TAG => u64::from(settings.tag),
            sys::ACL_STREAM_ATTR_CACHE_OP_INFO => u64::from(settings.cache_info),
            sys::ACL_STREAM_ATTR_PRIORITY => u64::from(stream.priority),
            other => return refuse(code::INVALID_PARAM, format!("attribute {}", other.0)),
        };
        let answer = aclrtStreamAttrValue {
            failureMode: answer,
        };
        // SAFETY: the caller passes null or a place for the answer.
        unsafe { put(place, code::INVALID_PARAM, answer) }
    })
}

/// `aclrtSetStreamOverflowSwitch`: kept; nothing here detects overflows.
pub unsafe extern "C" fn aclrtSetStreamOverflowSwitch(stream: aclrtStream, flag: u32) -> aclError {
    acl("aclrtSetStreamOverflowSwitch", || {
        if flag > 1 {
            return refuse(code::INVALID_PARAM, format!("flag {flag}, expected 0 or 1"));
        }
        lock(&stream::find(stream)?.settings).overflow = flag;
        Ok(())
    })
}

/// `aclrtGetStreamOverflowSwitch`
pub unsafe extern "C" fn aclrtGetStreamOverflowSwitch(
    stream: aclrtStream,
    flag: *mut u32,
) -> aclError {
    acl("aclrtGetStreamOverflowSwitch", || {
        let answer = lock(&stream::find(stream)?.settings).overflow;
        // SAFETY: the caller passes null or a place for the answer.
        unsafe { put(flag, code::INVALID_PARAM, answer) }
    })
}

/// Bytes of the overflow status.
const STATUS_BYTES: usize = 64;

/// `aclrtGetOverflowStatus`: floats of this library become infinite instead of overflowing, so the status is all
/// zeros.
pub unsafe extern "C" fn aclrtGetOverflowStatus(
    place: *mut c_void,
    bytes: usize,
    stream: aclrtStream,
) -> aclError {
    acl("aclrtGetOverflowStatus", || {
        if place.is_null() || bytes < STATUS_BYTES {
            return refuse(
                code::INVALID_PARAM,
                format!("{bytes} bytes at {place:p}, expected {STATUS_BYTES} of device memory"),
            );
        }
        let stream = stream::find(stream)?;
        let span = crate::memory::span(place, STATUS_BYTES)
            .map_err(|failure| Failure::new(code::RT_PARAM, failure.text))?;
        let side = copy::Side {
            pointer: place,
            span,
            owner: copy::Owner::Device,
        };
        copy::fill(side, 0, &stream)
    })
}

/// `aclrtResetOverflowStatus`
pub unsafe extern "C" fn aclrtResetOverflowStatus(stream: aclrtStream) -> aclError {
    acl("aclrtResetOverflowStatus", || {
        let stream = stream::find(stream)?;
        stream
            .enqueue_function("a reset of the overflow status", || Ok(()))
            .map(|_| ())
    })
}
