//! Whose turn it is on a communicator, and how far that operation is.

use std::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use super::collective::Captured;

/// Operations run in the order of their calls, whatever streams they are on. What is not about `next` is written by
/// whoever runs the operation whose turn it is; that thread changes at most under the lock of the stream.
#[derive(Default)]
pub(super) struct Order {
    /// The number of the next call.
    pub(super) next: AtomicU64,
    /// The number whose turn it is.
    pub(super) serving: AtomicU64,
    /// Threads that wait for their turn.
    pub(super) waiting: AtomicU32,
    /// How many operations this rank has begun.
    pub(super) entered: AtomicU32,
    /// How many of them were collectives.
    pub(super) collectives: AtomicU64,
    /// How many collectives a planned fault dropped.
    pub(super) dropped: AtomicU64,
    /// How far the operation is whose turn it is, as a [`Stage`].
    pub(super) stage: AtomicU8,
    /// The graph that recorded the last captured collective, with what it recorded.
    pub(super) capture: Mutex<Option<(usize, Arc<Captured>)>>,
}

/// How far a collective is; what it waits for between the stages is described in [`super::sync`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    Queued,
    Published,
    Delivered,
}

impl Order {
    /// How far the operation is whose turn it is.
    pub(super) fn stage(&self) -> Stage {
        match self.stage.load(Ordering::Relaxed) {
            0 => Stage::Queued,
            1 => Stage::Published,
            _ => Stage::Delivered,
        }
    }

    /// Notes how far it is.
    pub(super) fn reach(&self, stage: Stage) {
        self.stage.store(stage as u8, Ordering::Relaxed);
    }

    /// The number of the collective that was published last.
    pub(super) fn collective(&self) -> u64 {
        self.collectives.load(Ordering::Relaxed)
    }

    /// The same in the sequence that all ranks must agree on: a dropped one counts too.
    pub(super) fn number(&self) -> u32 {
        (self.collective() + self.dropped.load(Ordering::Relaxed)) as u32
    }
}
