//! Sleeping on a word of shared memory, between threads and between processes.

use std::sync::atomic::AtomicU32;
use std::time::Duration;

use rustix::thread::futex;
use rustix::time::Timespec;

/// Sleeps while `word` still holds `seen`, at most `limit`. Returns early for any reason: the caller checks again.
pub(crate) fn sleep(word: &AtomicU32, seen: u32, limit: Option<Duration>) {
    let limit = limit.and_then(|limit| Timespec::try_from(limit).ok());
    // Without the private flag: the sleeper and the waker may be different processes.
    let _ = futex::wait(word, futex::Flags::empty(), seen, limit.as_ref());
}

/// Wakes every sleeper of `word`.
pub(crate) fn wake_all(word: &AtomicU32) {
    let _ = futex::wake(word, futex::Flags::empty(), i32::MAX as u32);
}
