//! The capture scope: where a recording begins and ends.
//!
//! At most one capture is active per thread. [`Scope::open`] starts it and returns a guard;
//! [`Scope::end`] ends it and yields the recorder, the only way to a recording's result. A guard dropped without that (a panic, an early return) ends the capture too, and what
//! was recorded is lost: its tensors are stale, and using one is an error.

use crate::Error;
use crate::recording::Recorder;
use std::cell::RefCell;
use std::marker::PhantomData;
use std::sync::atomic::{AtomicU64, Ordering};

thread_local! {
    static ACTIVE: RefCell<Option<Recorder>> = const { RefCell::new(None) };
}

/// Distinguishes the captures of a process.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct CaptureId(u64);

impl CaptureId {
    pub(crate) fn next() -> CaptureId {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        CaptureId(NEXT.fetch_add(1, Ordering::Relaxed))
    }
}

/// Ends the capture when dropped.
#[must_use]
pub(crate) struct Scope {
    /// The capture is bound to its thread.
    thread: PhantomData<*const ()>,
}

impl Scope {
    /// Makes `recorder` the capture of this thread.
    ///
    /// # Errors
    /// [`Error::Recording`] if one is active.
    pub(crate) fn open(recorder: Recorder) -> Result<Scope, Error> {
        ACTIVE.with_borrow_mut(|active| match active {
            Some(_) => Err(Error::Recording),
            None => {
                *active = Some(recorder);
                Ok(Scope {
                    thread: PhantomData,
                })
            }
        })
    }

    /// Ends the capture and hands back its recorder.
    pub(crate) fn end(self) -> Recorder {
        ACTIVE
            .take()
            .expect("the capture of an open scope is active")
    }
}

impl Drop for Scope {
    fn drop(&mut self) {
        // Nothing is left after `end`.
        drop(ACTIVE.take());
    }
}

/// Whether a capture is active on this thread.
pub(crate) fn is_active() -> bool {
    ACTIVE.with_borrow(Option::is_some)
}

/// Gives `f` the active capture of this thread, if there is one.
pub(crate) fn with_active<R>(f: impl FnOnce(Option<&mut Recorder>) -> R) -> R {
    ACTIVE.with_borrow_mut(|active| f(active.as_mut()))
}
