//! The monotonic clock, which is the same for all processes of a host.

use rustix::time::{ClockId, clock_gettime};

/// Nanoseconds since some fixed moment before now.
pub(crate) fn now() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}
