//! Opaque handles: numbers that name objects of this process, never addresses. A stale or mistaken handle is found out
//! instead of followed.

use std::ffi::c_void;
use std::ptr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock, PoisonError, RwLock};

use rustc_hash::FxHashMap;

/// Handles of all kinds are distinct, so that an event passed as a stream is unknown.
static NEXT: AtomicUsize = AtomicUsize::new(1);

/// A fresh handle.
pub(crate) fn fresh() -> usize {
    NEXT.fetch_add(1, Ordering::Relaxed) << 4
}

/// The handle as C sees it.
pub(crate) fn to_pointer(handle: usize) -> *mut c_void {
    ptr::without_provenance_mut(handle)
}

/// The living objects of one kind.
pub(crate) struct Table<T>(LazyLock<RwLock<FxHashMap<usize, Arc<T>>>>);

impl<T> Table<T> {
    /// An empty table.
    pub(crate) const fn new() -> Self {
        Self(LazyLock::new(RwLock::default))
    }

    /// Makes `object` known under `handle`.
    pub(crate) fn insert(&self, handle: usize, object: Arc<T>) {
        self.0
            .write()
            .unwrap_or_else(PoisonError::into_inner)
            .insert(handle, object);
    }

    /// The object named by `handle`.
    pub(crate) fn get(&self, handle: *const c_void) -> Option<Arc<T>> {
        self.0
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .get(&handle.addr())
            .cloned()
    }

    /// Forgets the object named by `handle` and returns it.
    pub(crate) fn remove(&self, handle: *const c_void) -> Option<Arc<T>> {
        self.0
            .write()
            .unwrap_or_else(PoisonError::into_inner)
            .remove(&handle.addr())
    }

    /// All objects, in no order.
    pub(crate) fn all(&self) -> Vec<Arc<T>> {
        self.0
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .values()
            .cloned()
            .collect()
    }
}
