//! Memory that a communicator is told of.

use std::ffi::c_void;

use hcom_sys::bindings::{HcclComm, HcclCommSymWindow, HcclResult, aclrtDrvMemHandle};

use super::{PARA, PTR, hccl, put};
use crate::comm;
use crate::error::Failure;
use crate::ffi::address;
use crate::handle::to_pointer;

/// `HcclCommSetMemoryRange`
pub unsafe extern "C" fn HcclCommSetMemoryRange(
    comm: HcclComm,
    base: *mut c_void,
    size: usize,
    alignment: usize,
    flags: u64,
) -> HcclResult {
    hccl("HcclCommSetMemoryRange", || {
        let zeros = [("alignment", alignment as u64), ("flags", flags)];
        comm::find(comm)?.set_range(base, size, zeros)
    })
}

/// `HcclCommUnsetMemoryRange`
pub unsafe extern "C" fn HcclCommUnsetMemoryRange(comm: HcclComm, base: *mut c_void) -> HcclResult {
    hccl("HcclCommUnsetMemoryRange", || {
        comm::find(comm)?.unset_range(base)
    })
}

/// `HcclCommActivateCommMemory`
pub unsafe extern "C" fn HcclCommActivateCommMemory(
    comm: HcclComm,
    pointer: *mut c_void,
    size: usize,
    offset: usize,
    handle: aclrtDrvMemHandle,
    flags: u64,
) -> HcclResult {
    hccl("HcclCommActivateCommMemory", || {
        let communicator = comm::find(comm)?;
        address::physical(handle).map_err(|failure| Failure::new(PARA, failure.text))?;
        communicator.activate(pointer, size, [("offset", offset as u64), ("flags", flags)])
    })
}

/// `HcclCommDeactivateCommMemory`
pub unsafe extern "C" fn HcclCommDeactivateCommMemory(
    comm: HcclComm,
    pointer: *mut c_void,
) -> HcclResult {
    hccl("HcclCommDeactivateCommMemory", || {
        comm::find(comm)?.deactivate(pointer)
    })
}

/// `HcclCommSymWinRegister`
pub unsafe extern "C" fn HcclCommSymWinRegister(
    comm: HcclComm,
    pointer: *mut c_void,
    size: u64,
    window: *mut HcclCommSymWindow,
    flag: u32,
) -> HcclResult {
    hccl("HcclCommSymWinRegister", || {
        let communicator = comm::find(comm)?;
        if window.is_null() {
            return crate::error::refuse(PTR, "a place for the window is null");
        }
        let handle = communicator.register_window(pointer, size as usize, flag)?;
        // SAFETY: not null, so the caller passes a place for the answer.
        unsafe { put(window, PTR, to_pointer(handle)) }
    })
}

/// `HcclCommSymWinDeregister`
pub unsafe extern "C" fn HcclCommSymWinDeregister(window: HcclCommSymWindow) -> HcclResult {
    hccl("HcclCommSymWinDeregister", || {
        comm::deregister_window(window)
    })
}

/// `HcclCommSymWinGet`
pub unsafe extern "C" fn HcclCommSymWinGet(
    comm: HcclComm,
    pointer: *mut c_void,
    size: usize,
    window: *mut HcclCommSymWindow,
    offset: *mut usize,
) -> HcclResult {
    hccl("HcclCommSymWinGet", || {
        let (handle, at) = comm::find(comm)?.find_window(pointer, size)?;
        // SAFETY: the caller passes null or places for the answers.
        unsafe {
            put(window, PTR, to_pointer(handle))?;
            put(offset, PTR, at)
        }
    })
}
