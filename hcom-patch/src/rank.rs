//! The rank that the current thread is.

use crate::Error;
use hcom_runtime::Runtime;
use std::cell::{Cell, RefCell};
use std::sync::atomic::{AtomicU64, Ordering};

/// A rank as seen from its own thread.
#[derive(Clone)]
pub(crate) struct Rank {
    /// Distinguishes ranks and successive runtimes of one process.
    pub(crate) id: u64,
    pub(crate) rank: u32,
    pub(crate) world_size: u32,
    runtime: Option<Runtime>,
}

thread_local! {
    static CURRENT: RefCell<Option<Rank>> = const { RefCell::new(None) };
    static PATCHES: Cell<u32> = const { Cell::new(0) };
}

impl Rank {
    pub(crate) fn new(rank: u32, world_size: u32, runtime: Option<Runtime>) -> Rank {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        Rank {
            id: NEXT.fetch_add(1, Ordering::Relaxed),
            rank,
            world_size,
            runtime,
        }
    }

    /// The rank of this thread.
    pub(crate) fn current() -> Result<Rank, Error> {
        CURRENT
            .with_borrow(Clone::clone)
            .ok_or(Error::NotInitialized)
    }

    /// Makes this thread `rank`, or no rank.
    pub(crate) fn set(rank: Option<Rank>) {
        // The old rank is dropped outside the borrow: it may own the last handle of a runtime.
        drop(CURRENT.replace(rank));
    }

    /// The runtime, where `operation` cannot do without.
    pub(crate) fn runtime(&self, operation: &'static str) -> Result<&Runtime, Error> {
        self.runtime.as_ref().ok_or(Error::NoDevice { operation })
    }
}

/// While it lives, functions compiled on this thread with [`Collectives::Global`] keep their
/// collectives in the graph.
///
/// [`Collectives::Global`]: crate::Collectives::Global
#[must_use = "the patch is undone when the guard is dropped"]
#[derive(Debug)]
pub struct PatchGuard {
    /// Bound to the thread that installed it.
    thread: std::marker::PhantomData<*const ()>,
}

/// Makes the collective calls of this thread recordable: a function compiled afterwards holds them
/// as nodes of one graph. Without it, each collective ends a graph.
///
/// Collective calls outside compiled functions run at once, patched or not. The patch ends with
/// the guard; guards nest.
pub fn patch_for_hcom() -> PatchGuard {
    PATCHES.set(PATCHES.get() + 1);
    PatchGuard {
        thread: std::marker::PhantomData,
    }
}

/// Whether a patch is installed on this thread.
pub(crate) fn patched() -> bool {
    PATCHES.get() > 0
}

impl Drop for PatchGuard {
    fn drop(&mut self) {
        PATCHES.set(PATCHES.get() - 1);
    }
}
