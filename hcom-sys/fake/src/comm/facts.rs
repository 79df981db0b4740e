//! What is known of a communicator without waiting for its ranks.

use std::ffi::c_void;
use std::sync::Arc;

use hcom_sys::bindings::{self as sys, HcclCommStatus, HcclResult};

use super::{COMMUNICATORS, Communicator, find, pending};
use crate::device;
use crate::error::Outcome;
use crate::handle::to_pointer;

/// What is known of a communicator before its ranks have come.
pub(crate) struct Facts {
    /// Its name for programs.
    pub handle: usize,
    /// The same on all ranks.
    pub name: String,
    /// This rank.
    pub rank: u32,
    /// How many ranks there are.
    pub size: u32,
    /// The device of this rank.
    pub device: u32,
    /// What `HcclGetCommAsyncError` answers.
    pub async_error: HcclResult,
    /// What `HcclCommGetStatus` answers.
    pub status: HcclCommStatus,
}

impl From<&Communicator> for Facts {
    fn from(from: &Communicator) -> Self {
        let status = match from.failure_with(|_| true) {
            _ if from.is_suspended() => sys::HCCL_COMM_STATUS_SUSPENDING,
            None => sys::HCCL_COMM_STATUS_READY,
            Some(_) => sys::HCCL_COMM_STATUS_INVALID,
        };
        Self {
            handle: from.handle,
            name: from.name.clone(),
            rank: from.rank,
            size: from.size,
            device: from.device.id,
            async_error: from.async_error(),
            status,
        }
    }
}

/// What is known of the communicator that `comm` names; waits for nobody.
///
/// # Errors
/// As [`find`], but a part that could not be made is no error.
pub(crate) fn facts(comm: *const c_void) -> Outcome<Facts> {
    match pending::facts(comm) {
        Some(facts) => Ok(facts),
        None => find(comm).map(|communicator| Facts::from(&*communicator)),
    }
}

/// The communicator of this name, of which parts are waited for; chosen as by [`named`].
pub(crate) fn by_name(name: &str) -> Option<Arc<Communicator>> {
    find(to_pointer(named(name)?.handle)).ok()
}

/// What is known of the communicator of this name; where several ranks live in this process, that of the thread's device.
pub(crate) fn named(name: &str) -> Option<Facts> {
    // Parts that wait first: one that becomes a communicator meanwhile is found twice, not missed.
    let mut all: Vec<Facts> = pending::all().filter(|facts| facts.name == name).collect();
    let complete = COMMUNICATORS.all().into_iter();
    all.extend(
        complete
            .filter(|one| one.name == name)
            .map(|one| Facts::from(&*one)),
    );
    let device = device::current().map(|context| context.device.id);
    let own = all
        .iter()
        .position(|facts| device.as_ref().ok() == Some(&facts.device));
    own.map(|at| all.swap_remove(at)).or_else(|| all.pop())
}
