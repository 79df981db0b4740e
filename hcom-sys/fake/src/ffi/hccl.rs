//! Communicators: how they are made is in [`create`], what they do in [`operations`], what memory they are told of in
//! [`registration`].
#![expect(unsafe_code, reason = "the C interface hands over raw pointers")]
#![allow(
    non_snake_case,
    clippy::missing_safety_doc,
    reason = "names and contracts are those of the C interface"
)]

mod create;
mod operations;
mod registration;

use std::ffi::{CStr, c_char};
use std::ptr;
use std::sync::atomic::{AtomicI32, Ordering};

use hcom_sys::bindings::{
    self as sys, HcclComm, HcclCommStatus, HcclConfig, HcclConfigValue, HcclResult,
};

use super::{hccl, put};
use crate::comm::{self, Facts};
use crate::config;
use crate::error::{Outcome, refuse};
use crate::handle::to_pointer;
use crate::soc::Family;

pub use create::*;
pub use operations::*;
pub use registration::*;

/// Hands the functions of this file to the macro `$callback`, with their signatures.
#[macro_export]
#[doc(hidden)]
macro_rules! for_each_hccl_symbol {
    ($callback:ident) => {
        $callback! {
            fn HcclGetRootInfo(rootInfo: *mut HcclRootInfo) -> HcclResult;
            fn HcclCommInitRootInfo(nRanks: u32, rootInfo: *const HcclRootInfo, rank: u32, comm: *mut HcclComm) -> HcclResult;
            fn HcclCommInitRootInfoConfig(nRanks: u32, rootInfo: *const HcclRootInfo, rank: u32, config: *const HcclCommConfig, comm: *mut HcclComm) -> HcclResult;
            fn HcclCommInitClusterInfo(clusterInfo: *const c_char, rank: u32, comm: *mut HcclComm) -> HcclResult;
            fn HcclCommInitClusterInfoConfig(clusterInfo: *const c_char, rank: u32, config: *mut HcclCommConfig, comm: *mut HcclComm) -> HcclResult;
            fn HcclCreateSubCommConfig(comm: *mut HcclComm, rankNum: u32, rankIds: *mut u32, subCommId: u64, subCommRankId: u32, config: *mut HcclCommConfig, subComm: *mut HcclComm) -> HcclResult;
            fn HcclGroupStart() -> HcclResult;
            fn HcclGroupEnd() -> HcclResult;
            fn HcclGroupStatusGet(isGroupEnabled: *mut bool) -> HcclResult;
            fn HcclCommInitAll(ndev: u32, devices: *mut i32, comms: *mut HcclComm) -> HcclResult;
            fn HcclCommDestroy(comm: HcclComm) -> HcclResult;
            fn HcclGetRankSize(comm: HcclComm, rankSize: *mut u32) -> HcclResult;
            fn HcclGetRankId(comm: HcclComm, rank: *mut u32) -> HcclResult;
            fn HcclGetCommName(comm: HcclComm, commName: *mut c_char) -> HcclResult;
            fn HcclCommGetHandleWithName(commName: *const c_char, comm: *mut HcclComm) -> HcclResult;
            fn HcclCommGetStatus(commId: *const c_char, status: *mut HcclCommStatus) -> HcclResult;
            fn HcclGetCommAsyncError(comm: HcclComm, asyncError: *mut HcclResult) -> HcclResult;
            fn HcclGetErrorString(code: HcclResult) -> *const c_char;
            fn HcclGetCommConfigCapability() -> u32;
            fn HcclCommSuspend(comm: HcclComm) -> HcclResult;
            fn HcclCommResume(comm: HcclComm) -> HcclResult;
            fn HcclCommSetMemoryRange(comm: HcclComm, baseVirPtr: *mut c_void, size: usize, alignment: usize, flags: u64) -> HcclResult;
            fn HcclCommUnsetMemoryRange(comm: HcclComm, baseVirPtr: *mut c_void) -> HcclResult;
            fn HcclCommActivateCommMemory(comm: HcclComm, virPtr: *mut c_void, size: usize, offset: usize, handle: aclrtDrvMemHandle, flags: u64) -> HcclResult;
            fn HcclCommDeactivateCommMemory(comm: HcclComm, virPtr: *mut c_void) -> HcclResult;
            fn HcclCommSymWinRegister(comm: HcclComm, addr: *mut c_void, size: u64, winHandle: *mut HcclCommSymWindow, flag: u32) -> HcclResult;
            fn HcclCommSymWinDeregister(winHandle: HcclCommSymWindow) -> HcclResult;
            fn HcclCommSymWinGet(comm: HcclComm, ptr: *mut c_void, size: usize, winHandle: *mut HcclCommSymWindow, offset: *mut usize) -> HcclResult;
            fn HcclSetConfig(config: HcclConfig, configValue: HcclConfigValue) -> HcclResult;
            fn HcclGetConfig(config: HcclConfig, configValue: *mut HcclConfigValue) -> HcclResult;
            fn HcclAllReduce(sendBuf: *mut c_void, recvBuf: *mut c_void, count: u64, dataType: HcclDataType, op: HcclReduceOp, comm: HcclComm, stream: aclrtStream) -> HcclResult;
            fn HcclBroadcast(buf: *mut c_void, count: u64, dataType: HcclDataType, root: u32, comm: HcclComm, stream: aclrtStream) -> HcclResult;
            fn HcclReduceScatter(sendBuf: *mut c_void, recvBuf: *mut c_void, recvCount: u64, dataType: HcclDataType, op: HcclReduceOp, comm: HcclComm, stream: aclrtStream) -> HcclResult;
            fn HcclAllGather(sendBuf: *mut c_void, recvBuf: *mut c_void, sendCount: u64, dataType: HcclDataType, comm: HcclComm, stream: aclrtStream) -> HcclResult;
            fn HcclReduce(sendBuf: *mut c_void, recvBuf: *mut c_void, count: u64, dataType: HcclDataType, op: HcclReduceOp, root: u32, comm: HcclComm, stream: aclrtStream) -> HcclResult;
            fn HcclReduceScatterV(sendBuf: *mut c_void, sendCounts: *const c_void, sendDispls: *const c_void, recvBuf: *mut c_void, recvCount: u64, dataType: HcclDataType, op: HcclReduceOp, comm: HcclComm, stream: aclrtStream) -> HcclResult;
            fn HcclScatter(sendBuf: *mut c_void, recvBuf: *mut c_void, recvCount: u64, dataType: HcclDataType, root: u32, comm: HcclComm, stream: aclrtStream) -> HcclResult;
            fn HcclAllGatherV(sendBuf: *mut c_void, sendCount: u64, recvBuf: *mut c_void, recvCounts: *const c_void, recvDispls: *const c_void, dataType: HcclDataType, comm: HcclComm, stream: aclrtStream) -> HcclResult;
            fn HcclAlltoAll(sendBuf: *const c_void, sendCount: u64, sendType: HcclDataType, recvBuf: *const c_void, recvCount: u64, recvType: HcclDataType, comm: HcclComm, stream: aclrtStream) -> HcclResult;
            fn HcclAlltoAllV(sendBuf: *const c_void, sendCounts: *const c_void, sdispls: *const c_void, sendType: HcclDataType, recvBuf: *const c_void, recvCounts: *const c_void, rdispls: *const c_void, recvType: HcclDataType, comm: HcclComm, stream: aclrtStream) -> HcclResult;
            fn HcclAlltoAllVC(sendBuf: *const c_void, sendCountMatrix: *const c_void, sendType: HcclDataType, recvBuf: *const c_void, recvType: HcclDataType, comm: HcclComm, stream: aclrtStream) -> HcclResult;
            fn HcclSend(sendBuf: *mut c_void, count: u64, dataType: HcclDataType, destRank: u32, comm: HcclComm, stream: aclrtStream) -> HcclResult;
            fn HcclRecv(recvBuf: *mut c_void, count: u64, dataType: HcclDataType, srcRank: u32, comm: HcclComm, stream: aclrtStream) -> HcclResult;
            fn HcclBatchSendRecv(sendRecvInfo: *mut HcclSendRecvItem, itemNum: u32, comm: HcclComm, stream: aclrtStream) -> HcclResult;
            fn HcclBarrier(comm: HcclComm, stream: aclrtStream) -> HcclResult;
        }
    };
}

const PARA: i32 = sys::HCCL_E_PARA.0 as i32;
const PTR: i32 = sys::HCCL_E_PTR.0 as i32;
/// Bytes of a communicator's name, with its end.
const NAME: usize = 128;

/// `HcclGroupStart`
pub unsafe extern "C" fn HcclGroupStart() -> HcclResult {
    hccl("HcclGroupStart", || {
        comm::group::start();
        Ok(())
    })
}

/// `HcclGroupEnd`
pub unsafe extern "C" fn HcclGroupEnd() -> HcclResult {
    hccl("HcclGroupEnd", comm::group::end)
}

/// `HcclGroupStatusGet`
pub unsafe extern "C" fn HcclGroupStatusGet(active: *mut bool) -> HcclResult {
    // SAFETY: the caller passes null or a place for the answer.
    hccl("HcclGroupStatusGet", || unsafe {
        put(active, PTR, comm::group::is_active())
    })
}

/// `HcclCommDestroy`: null is allowed; whatever still waits in the communicator fails at once.
pub unsafe extern "C" fn HcclCommDestroy(comm: HcclComm) -> HcclResult {
    hccl("HcclCommDestroy", || {
        if comm.is_null() {
            Ok(())
        } else {
            comm::destroy(comm)
        }
    })
}

/// `HcclGetRankSize`
pub unsafe extern "C" fn HcclGetRankSize(comm: HcclComm, size: *mut u32) -> HcclResult {
    // SAFETY: the caller passes null or a place for the answer.
    hccl("HcclGetRankSize", || unsafe {
        put(size, PTR, comm::facts(comm)?.size)
    })
}

/// `HcclGetRankId`
pub unsafe extern "C" fn HcclGetRankId(comm: HcclComm, rank: *mut u32) -> HcclResult {
    // SAFETY: the caller passes null or a place for the answer.
    hccl("HcclGetRankId", || unsafe {
        put(rank, PTR, comm::facts(comm)?.rank)
    })
}

/// `HcclGetCommName`: the place has 128 bytes.
pub unsafe extern "C" fn HcclGetCommName(comm: HcclComm, name: *mut c_char) -> HcclResult {
    hccl("HcclGetCommName", || {
        let known = comm::facts(comm)?;
        if name.is_null() {
            return refuse(PTR, "a place for the name is null");
        }
        let text = known.name.as_bytes();
        let bytes = text.len().min(NAME - 1);
        // SAFETY: not null, so the caller passes 128 bytes; the name and its end fit (bounded above).
        unsafe {
            ptr::copy_nonoverlapping(text.as_ptr().cast(), name, bytes);
            name.add(bytes).write(0);
        }
        Ok(())
    })
}

/// # Safety
/// `name` is null or a C string.
unsafe fn named(name: *const c_char) -> Outcome<Option<Facts>> {
    if name.is_null() {
        return refuse(PTR, "the name is null");
    }
    // SAFETY: not null, so the caller passes a C string.
    Ok(comm::named(
        &unsafe { CStr::from_ptr(name) }.to_string_lossy(),
    ))
}

/// `HcclCommGetHandleWithName`
pub unsafe extern "C" fn HcclCommGetHandleWithName(
    name: *const c_char,
    comm: *mut HcclComm,
) -> HcclResult {
    hccl("HcclCommGetHandleWithName", || {
        // SAFETY: the caller passes null or a C string.
        let Some(known) = (unsafe { named(name)? }) else {
            return refuse(
                sys::HCCL_E_NOT_FOUND.0 as i32,
                "no communicator has this name",
            );
        };
        // SAFETY: the caller passes null or a place for the answer.
        unsafe { put(comm, PTR, to_pointer(known.handle)) }
    })
}

/// `HcclCommGetStatus`
pub unsafe extern "C" fn HcclCommGetStatus(
    name: *const c_char,
    status: *mut HcclCommStatus,
) -> HcclResult {
    hccl("HcclCommGetStatus", || {
        // SAFETY: the caller passes null or a C string.
        let known = unsafe { named(name)? };
        let answer = known.map_or(sys::HCCL_COMM_STATUS_INVALID, |known| known.status);
        // SAFETY: the caller passes null or a place for the answer.
        unsafe { put(status, PTR, answer) }
    })
}

/// `HcclGetCommAsyncError`
pub unsafe extern "C" fn HcclGetCommAsyncError(
    comm: HcclComm,
    error: *mut HcclResult,
) -> HcclResult {
    // SAFETY: the caller passes null or a place for the answer.
    hccl("HcclGetCommAsyncError", || unsafe {
        put(error, PTR, comm::facts(comm)?.async_error)
    })
}

/// `HcclGetErrorString`
pub unsafe extern "C" fn HcclGetErrorString(code: HcclResult) -> *const c_char {
    let text: &CStr = match code {
        sys::HCCL_SUCCESS => c"no error",
        sys::HCCL_E_PARA => c"parameter error",
        sys::HCCL_E_PTR => c"empty pointer",
        sys::HCCL_E_MEMORY => c"memory error",
        sys::HCCL_E_INTERNAL => c"internal error",
        sys::HCCL_E_NOT_SUPPORT => c"not supported",
        sys::HCCL_E_NOT_FOUND => c"not found",
        sys::HCCL_E_UNAVAIL => c"resource unavailable",
        sys::HCCL_E_SYSCALL => c"error of a system call",
        sys::HCCL_E_TIMEOUT => c"timeout",
        sys::HCCL_E_OPEN_FILE_FAILURE => c"file cannot be opened",
        sys::HCCL_E_TCP_CONNECT => c"connection failed",
        sys::HCCL_E_ROCE_CONNECT => c"RoCE connection failed",
        sys::HCCL_E_TCP_TRANSFER => c"transfer failed",
        sys::HCCL_E_ROCE_TRANSFER => c"RoCE transfer failed",
        sys::HCCL_E_RUNTIME => c"error of the runtime",
        sys::HCCL_E_DRV => c"error of the driver",
        sys::HCCL_E_PROFILING => c"error of the profiler",
        sys::HCCL_E_CCE => c"error of the compute engine",
        sys::HCCL_E_NETWORK => c"error of the network",
        sys::HCCL_E_AGAIN => c"try again",
        sys::HCCL_E_REMOTE => c"error of a remote rank",
        sys::HCCL_E_SUSPENDING => c"communicator is suspended",
        sys::HCCL_E_OPRETRY_FAIL => c"retry failed",
        sys::HCCL_E_OOM => c"out of memory",
        _ => c"unknown error",
    };
    text.as_ptr()
}

/// `HcclGetCommConfigCapability`: as many features as the headers know.
pub unsafe extern "C" fn HcclGetCommConfigCapability() -> u32 {
    sys::HCCL_COMM_CONFIG_RESERVED.0
}

/// `HcclCommSuspend`
pub unsafe extern "C" fn HcclCommSuspend(comm: HcclComm) -> HcclResult {
    hccl("HcclCommSuspend", || {
        comm::find(comm)?.suspend(true);
        Ok(())
    })
}

/// `HcclCommResume`
pub unsafe extern "C" fn HcclCommResume(comm: HcclComm) -> HcclResult {
    hccl("HcclCommResume", || {
        comm::find(comm)?.suspend(false);
        Ok(())
    })
}

/// The determinism level; reductions of this library are always deterministic, so it is only remembered.
static DETERMINISM: AtomicI32 = AtomicI32::new(0);

/// `HcclSetConfig`
pub unsafe extern "C" fn HcclSetConfig(config: HcclConfig, value: HcclConfigValue) -> HcclResult {
    hccl("HcclSetConfig", || {
        if config != sys::HCCL_DETERMINISTIC || std::env::var_os("HCCL_DETERMINISTIC").is_some() {
            return Ok(());
        }
        // SAFETY: every member of the union is this number.
        let level = unsafe { value.value };
        match level {
            0 | 1 => {}
            2 if config::or_default().soc.family == Family::A2 => {}
            2 => {
                return refuse(
                    sys::HCCL_E_NOT_SUPPORT.0 as i32,
                    "strict determinism is for Ascend910B only",
                );
            }
            other => return refuse(PARA, format!("determinism {other}, expected 0 to 2")),
        }
        DETERMINISM.store(level, Ordering::SeqCst);
        Ok(())
    })
}

/// `HcclGetConfig`
pub unsafe extern "C" fn HcclGetConfig(
    _config: HcclConfig,
    value: *mut HcclConfigValue,
) -> HcclResult {
    hccl("HcclGetConfig", || {
        let answer = HcclConfigValue {
            value: DETERMINISM.load(Ordering::SeqCst),
        };
        // SAFETY: the caller passes null or a place for the answer.
        unsafe { put(value, PTR, answer) }
    })
}
