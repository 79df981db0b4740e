//! Parts of a communicator whose ranks have not all come yet.
//!
//! Making a part needs no other rank: its handle, name, rank and size are known at once, and a thread waits for the
//! members. Whatever else a program does with the handle waits for that thread, as the first operation of a
//! communicator on a card waits for its connections.

use std::ffi::c_void;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread;

use hcom_sys::bindings::{self as sys, HcclResult};

use super::setup::Plan;
use super::{COMMUNICATORS, Communicator, Facts};
use crate::error::{Failure, Outcome};
use crate::handle::{Table, to_pointer};
use crate::memory::lock;

/// A part that waits for its members.
struct Pending {
    handle: usize,
    name: String,
    rank: u32,
    size: u32,
    device: u32,
    /// Why it will never be, once that is known.
    failure: Mutex<Option<Failure>>,
    news: Condvar,
}

/// Parts that wait, and those that waited in vain.
static PENDING: Table<Pending> = Table::new();

/// Joins `plan` in a thread of its own with `join`; the handle.
///
/// # Errors
/// `HCCL_E_SYSCALL` when there is no thread.
pub(super) fn start(
    plan: Plan,
    device: u32,
    join: impl FnOnce(Plan) -> Outcome<Arc<Communicator>> + Send + 'static,
) -> Outcome<usize> {
    let pending = Arc::new(Pending {
        handle: plan.handle,
        name: plan.name.clone(),
        rank: plan.rank,
        size: plan.ranks,
        device,
        failure: Mutex::default(),
        news: Condvar::new(),
    });
    let handle = pending.handle;
    PENDING.insert(handle, pending.clone());
    let waits = move || {
        let outcome = join(plan);
        // Whoever waits looks again under this lock, for the communicator or for the reason.
        let mut failure = lock(&pending.failure);
        match outcome {
            Err(reason) => *failure = Some(reason),
            // It is known under its handle by now, unless the program destroyed it before it was.
            Ok(_) if PENDING.remove(to_pointer(handle)).is_some() => {}
            Ok(_) => _ = super::destroy(to_pointer(handle)),
        }
        drop(failure);
        pending.news.notify_all();
    };
    let thread = thread::Builder::new()
        .name("hcom-part".to_owned())
        .spawn(waits);
    thread.map(|_| handle).map_err(|error| {
        PENDING.remove(to_pointer(handle));
        Failure::new(
            sys::HCCL_E_SYSCALL.0 as i32,
            format!("no thread for a part: {error}"),
        )
    })
}

/// The communicator that a part becomes; waits for it. `None` when the handle names neither a part that waits nor one
/// that has become a communicator since the caller looked.
///
/// # Errors
/// Why it will never be.
pub(super) fn wait(comm: *const c_void) -> Option<Outcome<Arc<Communicator>>> {
    let Some(pending) = PENDING.get(comm) else {
        return COMMUNICATORS.get(comm).map(Ok);
    };
    let mut failure = lock(&pending.failure);
    loop {
        if let Some(reason) = &*failure {
            return Some(Err(reason.clone()));
        }
        if let Some(communicator) = COMMUNICATORS.get(comm) {
            return Some(Ok(communicator));
        }
        // Destroyed meanwhile.
        PENDING.get(comm)?;
        failure = pending
            .news
            .wait(failure)
            .unwrap_or_else(PoisonError::into_inner);
    }
}

/// Forgets a part that waits; true when there was one. It is destroyed when its members have come after all.
pub(super) fn forget(comm: *const c_void) -> bool {
    match PENDING.remove(comm) {
        None => false,
        Some(pending) => {
            drop(lock(&pending.failure));
            pending.news.notify_all();
            true
        }
    }
}

impl Pending {
    fn facts(&self) -> Facts {
        let failure = lock(&self.failure);
        let code = failure.as_ref().map_or(0, |failure| failure.code);
        Facts {
            handle: self.handle,
            name: self.name.clone(),
            rank: self.rank,
            size: self.size,
            device: self.device,
            async_error: HcclResult(code as u32),
            status: match code {
                0 => sys::HCCL_COMM_STATUS_READY,
                _ => sys::HCCL_COMM_STATUS_INVALID,
            },
        }
    }
}

/// What is known of a part that waits.
pub(super) fn facts(comm: *const c_void) -> Option<Facts> {
    Some(PENDING.get(comm)?.facts())
}

/// What is known of all parts that wait.
pub(super) fn all() -> impl Iterator<Item = Facts> {
    PENDING.all().into_iter().map(|pending| pending.facts())
}
