//! Compiler options, profiling, operator dumps: sessions and settings that are checked and kept. Nothing is recorded.
#![expect(unsafe_code, reason = "the C interface hands over raw pointers")]
#![allow(
    non_snake_case,
    clippy::missing_safety_doc,
    reason = "names and contracts are those of the C interface"
)]

use std::collections::BTreeMap;
use std::ffi::{CStr, CString, c_char, c_void};
use std::sync::Mutex;

use hcom_sys::bindings::{
    self as sys, MsprofApi, ProfCommandHandle, aclCompileOpt, aclError, aclprofAicoreEvents,
    aclprofAicoreMetrics, aclprofConfig,
};

use super::acl;
use crate::error::{Outcome, fail, refuse};
use crate::handle::{self, Table, to_pointer};
use crate::memory::lock;
use crate::{clock, code, device};

/// Hands the functions of this file to the macro `$callback`, with their signatures.
#[macro_export]
#[doc(hidden)]
macro_rules! for_each_tool_symbol {
    ($callback:ident) => {
        $callback! {
            fn aclSetCompileopt(opt: aclCompileOpt, value: *const c_char) -> aclError;
            fn aclGetCompileopt(opt: aclCompileOpt, value: *mut c_char, length: usize) -> aclError;
            fn aclGetCompileoptSize(opt: aclCompileOpt) -> usize;
            fn aclprofInit(profilerResultPath: *const c_char, length: usize) -> aclError;
            fn aclprofFinalize() -> aclError;
            fn aclprofCreateConfig(deviceIdList: *mut u32, deviceNums: u32, aicoreMetrics: aclprofAicoreMetrics, aicoreEvents: *const aclprofAicoreEvents, dataTypeConfig: u64) -> *mut aclprofConfig;
            fn aclprofDestroyConfig(profilerConfig: *const aclprofConfig) -> aclError;
            fn aclprofStart(profilerConfig: *const aclprofConfig) -> aclError;
            fn aclprofStop(profilerConfig: *const aclprofConfig) -> aclError;
            fn MsprofRegisterCallback(moduleId: u32, handle: ProfCommandHandle) -> i32;
            fn MsprofReportApi(nonPersistantFlag: u32, api: *const MsprofApi) -> i32;
            fn MsprofReportCompactInfo(nonPersistantFlag: u32, data: *const c_void, length: u32) -> i32;
            fn MsprofReportAdditionalInfo(nonPersistantFlag: u32, data: *const c_void, length: u32) -> i32;
            fn MsprofGetHashId(hashInfo: *const c_char, length: usize) -> u64;
            fn MsprofSysCycleTime() -> u64;
            fn aclmdlInitDump() -> aclError;
            fn aclmdlSetDump(dumpCfgPath: *const c_char) -> aclError;
            fn aclmdlFinalizeDump() -> aclError;
        }
    };
}

/// Compiler options by number, where they were set.
static OPTIONS: Mutex<BTreeMap<u32, CString>> = Mutex::new(BTreeMap::new());

/// The value in force. Operators are never compiled, so that option is off unless a program set it.
fn option(opt: aclCompileOpt) -> CString {
    let default = if opt == sys::ACL_OP_JIT_COMPILE {
        c"disable"
    } else {
        c""
    };
    let set = lock(&OPTIONS).get(&opt.0).cloned();
    set.unwrap_or_else(|| default.to_owned())
}

fn known(opt: aclCompileOpt) -> Outcome {
    if opt.0 > sys::ACL_OP_DEBUG_OPTION.0 {
        return refuse(code::INVALID_PARAM, format!("compiler option {}", opt.0));
    }
    Ok(())
}

/// `aclSetCompileopt`
pub unsafe extern "C" fn aclSetCompileopt(opt: aclCompileOpt, value: *const c_char) -> aclError {
    acl("aclSetCompileopt", || {
        known(opt)?;
        if value.is_null() {
            return refuse(code::INVALID_PARAM, "the value is null");
        }
        // SAFETY: not null, so the caller passes text that ends with a zero.
        let value = unsafe { CStr::from_ptr(value) }.to_owned();
        lock(&OPTIONS).insert(opt.0, value);
        Ok(())
    })
}

/// `aclGetCompileopt`
pub unsafe extern "C" fn aclGetCompileopt(
    opt: aclCompileOpt,
    place: *mut c_char,
    room: usize,
) -> aclError {
    acl("aclGetCompileopt", || {
        known(opt)?;
        let value = option(opt);
        let bytes = value.as_bytes_with_nul();
        if place.is_null() || room < bytes.len() {
            return refuse(
                code::INVALID_PARAM,
                format!(
                    "the value needs {} bytes, the place has {room}",
                    bytes.len()
                ),
            );
        }
        // SAFETY: not null, and the caller says that `room` bytes may be written, which are enough.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), place.cast(), bytes.len()) };
        Ok(())
    })
}

/// `aclGetCompileoptSize`
pub unsafe extern "C" fn aclGetCompileoptSize(opt: aclCompileOpt) -> usize {
    option(opt).as_bytes_with_nul().len()
}

/// A profiling session: none, open, or recording with a configuration.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Session {
    None,
    Open,
    Recording,
}

static SESSION: Mutex<Session> = Mutex::new(Session::None);
static CONFIGS: Table<()> = Table::new();

/// Takes the session from one of `from` to `to`.
fn step(from: &[Session], to: Session) -> Outcome {
    let mut session = lock(&SESSION);
    if from.contains(&session.clone()) {
        *session = to;
        return Ok(());
    }
    match *session {
        Session::None => refuse(code::PROF_NOT_RUN, "call aclprofInit first"),
        Session::Open if to == Session::Open && from == [Session::Recording] => {
            refuse(code::PROF_NOT_RUN, "no recording was started")
        }
        _ => refuse(
            code::PROF_ALREADY_RUN,
            "a profiling session is open already",
        ),
    }
}

/// `aclprofInit`
pub unsafe extern "C" fn aclprofInit(path: *const c_char, length: usize) -> aclError {
    acl("aclprofInit", || {
        if path.is_null() || length == 0 {
            return refuse(code::INVALID_PARAM, "expected the path of a folder");
        }
        step(&[Session::None], Session::Open)
    })
}

/// `aclprofFinalize`
pub unsafe extern "C" fn aclprofFinalize() -> aclError {
    acl("aclprofFinalize", || {
        step(&[Session::Open, Session::Recording], Session::None)
    })
}

/// `aclprofCreateConfig`
pub unsafe extern "C" fn aclprofCreateConfig(
    devices: *mut u32,
    count: u32,
    _metrics: aclprofAicoreMetrics,
    _events: *const aclprofAicoreEvents,
    _what: u64,
) -> *mut aclprofConfig {
    let mut list: &[u32] = &[];
    if count > 0 && !devices.is_null() {
        // SAFETY: not null, so the caller passes `count` numbers.
        list = unsafe { std::slice::from_raw_parts(devices, count as usize) };
    }
    if list.len() != count as usize || list.iter().any(|&id| device::check(id as i32).is_err()) {
        fail(
            code::INVALID_PARAM,
            format!("aclprofCreateConfig: {count} devices {list:?}"),
        );
        return std::ptr::null_mut();
    }
    let handle = handle::fresh();
    CONFIGS.insert(handle, ().into());
    to_pointer(handle).cast()
}

fn config(handle: *const aclprofConfig) -> Outcome {
    match CONFIGS.get(handle.cast()) {
        Some(_) => Ok(()),
        None => refuse(
            code::INVALID_PARAM,
            format!("{:#x} names no living aclprofConfig", handle.addr()),
        ),
    }
}

/// `aclprofDestroyConfig`
pub unsafe extern "C" fn aclprofDestroyConfig(handle: *const aclprofConfig) -> aclError {
    acl("aclprofDestroyConfig", || {
        config(handle)?;
        CONFIGS.remove(handle.cast());
        Ok(())
    })
}

/// `aclprofStart`
pub unsafe extern "C" fn aclprofStart(handle: *const aclprofConfig) -> aclError {
    acl("aclprofStart", || {
        config(handle)?;
        step(&[Session::Open], Session::Recording)
    })
}

/// `aclprofStop`
pub unsafe extern "C" fn aclprofStop(handle: *const aclprofConfig) -> aclError {
    acl("aclprofStop", || {
        config(handle)?;
        step(&[Session::Recording], Session::Open)
    })
}

/// What the profiler's report functions answer for a null pointer.
const BAD_REPORT: i32 = -1;

/// `MsprofRegisterCallback`: no session ever records, so the callback is never called.
pub unsafe extern "C" fn MsprofRegisterCallback(_module: u32, handle: ProfCommandHandle) -> i32 {
    if handle.is_some() { 0 } else { BAD_REPORT }
}

/// `MsprofReportApi`: taken and dropped.
pub unsafe extern "C" fn MsprofReportApi(_flag: u32, api: *const MsprofApi) -> i32 {
    if api.is_null() { BAD_REPORT } else { 0 }
}

/// `MsprofReportCompactInfo`: taken and dropped.
pub unsafe extern "C" fn MsprofReportCompactInfo(_: u32, data: *const c_void, _: u32) -> i32 {
    if data.is_null() { BAD_REPORT } else { 0 }
}

/// `MsprofReportAdditionalInfo`: taken and dropped.
pub unsafe extern "C" fn MsprofReportAdditionalInfo(_: u32, data: *const c_void, _: u32) -> i32 {
    if data.is_null() { BAD_REPORT } else { 0 }
}

/// `MsprofGetHashId`: the FNV-1a hash of the text, 0 for none.
pub unsafe extern "C" fn MsprofGetHashId(text: *const c_char, length: usize) -> u64 {
    if text.is_null() || length == 0 {
        return 0;
    }
    // SAFETY: not null, so the caller passes `length` readable bytes.
    let bytes = unsafe { std::slice::from_raw_parts(text.cast::<u8>(), length) };
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, &byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

/// `MsprofSysCycleTime`: nanoseconds of the monotonic clock.
pub unsafe extern "C" fn MsprofSysCycleTime() -> u64 {
    clock::now()
}

/// Whether the dump service is open.
static DUMPING: Mutex<bool> = Mutex::new(false);

/// `aclmdlInitDump`
pub unsafe extern "C" fn aclmdlInitDump() -> aclError {
    acl("aclmdlInitDump", || {
        if !super::runtime::is_initialised() {
            return refuse(code::UNINITIALISED, "call aclInit first");
        }
        if std::mem::replace(&mut *lock(&DUMPING), true) {
            return refuse(code::DUMP_ALREADY_RUN, "the dump service is open already");
        }
        Ok(())
    })
}

/// `aclmdlSetDump`: the file must be there and be JSON; what it asks for are dumps of offline models, of which there
/// are none.
pub unsafe extern "C" fn aclmdlSetDump(path: *const c_char) -> aclError {
    acl("aclmdlSetDump", || {
        if !*lock(&DUMPING) {
            return refuse(code::DUMP_NOT_RUN, "call aclmdlInitDump first");
        }
        if path.is_null() {
            return refuse(code::INVALID_PARAM, "the path is null");
        }
        // SAFETY: not null, so the caller passes text that ends with a zero.
        let path = unsafe { CStr::from_ptr(path) }.to_string_lossy();
        match std::fs::read_to_string(&*path) {
            Err(error) => refuse(code::INVALID_FILE, format!("{path}: {error}")),
            Ok(text) if !text.trim_start().starts_with('{') => {
                refuse(code::PARSE_FILE, format!("{path}: no JSON object"))
            }
            Ok(_) => Ok(()),
        }
    })
}

/// `aclmdlFinalizeDump`
pub unsafe extern "C" fn aclmdlFinalizeDump() -> aclError {
    acl("aclmdlFinalizeDump", || {
        if std::mem::replace(&mut *lock(&DUMPING), false) {
            return Ok(());
        }
        refuse(code::DUMP_NOT_RUN, "the dump service is not open")
    })
}
