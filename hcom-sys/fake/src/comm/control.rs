//! The control block of a communicator: one sealed memory file that all its ranks map.
//!
//! ```text
//! 0      bell                      (own 128-byte line)
//! 128    sleepers                  (own line)
//! 256    rank 0: phase             (own line), then rank 1, …
//!        rank 0: two descriptors of 64 bytes, then rank 1, …
//!        rank 0: two slots of SLOT bytes, then rank 1, …
//! ```
//! The protocol on these words is described in [`super::sync`].

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{self, AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use super::sync::{Meeting, Platform};
use crate::futex;
use crate::shm::Region;
use crate::span::Span;

/// Data of a collective up to this many bytes per rank goes through the slots: one meeting instead of two.
pub(crate) const SLOT: usize = 4096;

const LINE: usize = 128;
const DESCRIPTOR: usize = 64;

/// This process's view of the control block.
#[derive(Debug)]
pub(crate) struct Control {
    region: Arc<Region>,
    ranks: usize,
}

/// What a rank says about its part of a collective.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Descriptor {
    /// Kind, data type and reduction as one number each, and the root.
    pub kind: u8,
    /// `HcclDataType`.
    pub dtype: u8,
    /// `HcclReduceOp`, 255 without one.
    pub op: u8,
    /// The root, 0 without one.
    pub root: u32,
    /// Elements, as the call counts them.
    pub count: u64,
    /// Where the send buffer starts in this rank's device memory.
    pub send: u64,
    /// Where the receive buffer starts in this rank's device memory.
    pub recv: u64,
    /// When this rank was ready, in nanoseconds of the monotonic clock.
    pub ready: u64,
    /// Parameters of the modelled link as bits, 0 when it is off.
    pub link: [u64; 2],
}

impl Control {
    fn bytes(ranks: usize) -> usize {
        (LINE * (2 + ranks) + 2 * ranks * (DESCRIPTOR + SLOT)).next_multiple_of(4096)
    }

    /// Creates the block for `ranks` ranks; all words zero.
    pub(crate) fn create(ranks: usize) -> io::Result<Self> {
        let region = Region::create("hcom-fake-communicator", Self::bytes(ranks))?;
        Ok(Self { region, ranks })
    }

    /// Maps a block that the rendezvous handed out.
    pub(crate) fn adopt(file: OwnedFd, ranks: usize) -> io::Result<Self> {
        let region = Region::adopt(file)?;
        if region.bytes() < Self::bytes(ranks) {
            return Err(io::Error::other("the control block is too small"));
        }
        Ok(Self { region, ranks })
    }

    /// The memory file.
    pub(crate) fn region(&self) -> &Region {
        &self.region
    }

    fn descriptor(&self, rank: usize, collective: u64) -> usize {
        let set = (collective & 1) as usize;
        LINE * (2 + self.ranks) + DESCRIPTOR * (2 * rank + set)
    }

    /// The slot of `rank` for a collective.
    pub(crate) fn slot(&self, rank: usize, collective: u64, bytes: usize) -> Span {
        let set = (collective & 1) as usize;
        let slots = LINE * (2 + self.ranks) + DESCRIPTOR * 2 * self.ranks;
        assert!(bytes <= SLOT);
        Span::inside(&self.region, slots + SLOT * (2 * rank + set), bytes)
            .expect("slots lie inside")
    }

    /// Writes this rank's descriptor; visible to whoever sees it arrive afterwards.
    pub(crate) fn describe(&self, rank: usize, collective: u64, what: Descriptor) {
        let head = u64::from(what.kind)
            | u64::from(what.dtype) << 8
            | u64::from(what.op) << 16
            | u64::from(what.root) << 32;
        let words = [
            head,
            what.count,
            what.send,
            what.recv,
            what.ready,
            what.link[0],
            what.link[1],
        ];
        let at = self.descriptor(rank, collective);
        for (index, word) in words.into_iter().enumerate() {
            self.region
                .word64(at + 8 * index)
                .store(word, Ordering::Relaxed);
        }
    }

    /// Reads a rank's descriptor, after that rank arrived.
    pub(crate) fn described(&self, rank: usize, collective: u64) -> Descriptor {
        let at = self.descriptor(rank, collective);
        let word = |index: usize| self.region.word64(at + 8 * index).load(Ordering::Relaxed);
        let head = word(0);
        Descriptor {
            kind: head as u8,
            dtype: (head >> 8) as u8,
            op: (head >> 16) as u8,
            root: (head >> 32) as u32,
            count: word(1),
            send: word(2),
            recv: word(3),
            ready: word(4),
            link: [word(5), word(6)],
        }
    }
}

/// Real atomics and the kernel's futex.
pub(crate) struct Machine;

impl Platform for Machine {
    type Word32 = AtomicU32;
    type Word64 = AtomicU64;
    fn load32(word: &AtomicU32, order: Ordering) -> u32 {
        word.load(order)
    }
    fn add32(word: &AtomicU32, value: u32, order: Ordering) {
        word.fetch_add(value, order);
    }
    fn load64(word: &AtomicU64, order: Ordering) -> u64 {
        word.load(order)
    }
    fn store64(word: &AtomicU64, value: u64, order: Ordering) {
        word.store(value, order);
    }
    fn fence(order: Ordering) {
        atomic::fence(order);
    }
    fn sleep(word: &AtomicU32, seen: u32, limit: Option<Duration>) {
        futex::sleep(word, seen, limit);
    }
    fn wake_all(word: &AtomicU32) {
        futex::wake_all(word);
    }
    fn pause(yields: bool) {
        if yields {
            rustix::thread::sched_yield();
        } else {
            std::hint::spin_loop();
        }
    }
}

impl Meeting for Control {
    type Platform = Machine;
    fn ranks(&self) -> usize {
        self.ranks
    }
    fn phase(&self, rank: usize) -> &AtomicU64 {
        self.region.word64(LINE * (2 + rank))
    }
    fn sleepers(&self) -> &AtomicU32 {
        self.region.word32(LINE)
    }
    fn bell(&self) -> &AtomicU32 {
        self.region.word32(0)
    }
}

#[cfg(test)]
mod tests {
    use super::super::sync::{Patience, arrive, wait};
    use super::*;
    use std::thread;

    #[test]
    fn a_descriptor_comes_back_as_it_was() {
        let control = Control::create(3).unwrap();
        let what = Descriptor {
            kind: 2,
            dtype: 11,
            op: 255,
            root: 4_000_000_000,
            count: u64::MAX,
            send: 1,
            recv: 2,
            ready: 3,
            link: [4, 5],
        };
        control.describe(2, 7, what);
        assert_eq!(control.described(2, 7), what);
        assert_eq!(control.described(2, 8).count, 0);
        control.slot(2, 1, SLOT).fill(255);
        assert_eq!(
            control.described(2, 7),
            what,
            "slots and descriptors do not overlap"
        );
    }

    #[test]
    fn four_threads_meet_many_times_even_asleep() {
        let control = Control::create(4).unwrap();
        for patience in [
            Patience {
                pauses: 0,
                yields: 0,
            },
            Patience {
                pauses: 10,
                yields: 50,
            },
        ] {
            let first = control.phase(0).load(Ordering::Relaxed);
            thread::scope(|scope| {
                for rank in 0..4 {
                    let control = &control;
                    scope.spawn(move || {
                        for phase in first + 1..first + 500 {
                            arrive(control, rank, phase);
                            wait(control, phase, patience, None, || None::<()>).unwrap();
                        }
                    });
                }
            });
        }
        assert_eq!(control.sleepers().load(Ordering::Relaxed), 0);
    }
}
