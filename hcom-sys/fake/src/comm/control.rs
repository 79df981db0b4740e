//! The control block of a communicator: one sealed memory file that all its ranks map.
//!
//! ```text
//! 0      bell                      (own 128-byte line)
//! 128    sleepers                  (own line)
//! 256    rank 0: done, last entered operation       (own line), then rank 1, …
//!        rank 0: two sets of ready and descriptor   (own lines), then rank 1, …
//!        rank 0: two slots of SLOT bytes, then rank 1, …
//!        rank 0 to rank 0: a line of the sender, a line of the receiver, then rank 0 to rank 1, …
//!        rank 0: two lists of uneven blocks, then rank 1, …
//! ```
//! Untouched pages take no memory, so the lists cost nothing until somebody uses them. The protocol on these words is
//! described in [`super::sync`], the one of the lines between two ranks in [`super::exchange`].

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{self, AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use super::sync::{Meeting, Platform, Point};
use crate::clock;
use crate::futex;
use crate::shm::Region;
use crate::span::Span;

/// Data of a collective up to this many bytes per rank fits a slot.
pub(crate) const SLOT: usize = 8192;

/// Data of a collective up to this many bytes per rank goes through the slots: one meeting instead of two, but every
/// rank reads everything. Two ranks meet so fast that little data pays; more ranks than cores switch at each meeting.
pub(crate) const fn slot_limit(ranks: usize) -> usize {
    if ranks <= 2 { 1024 } else { SLOT }
}

const LINE: usize = 128;
/// Words that an uneven collective publishes for each of its blocks.
const BLOCK: usize = 3;

/// This process's view of the control block.
#[derive(Debug)]
pub(crate) struct Control {
    region: Arc<Region>,
    ranks: usize,
}

/// The send and the receive buffer share memory.
pub(crate) const IN_PLACE: u8 = 1;
/// Cache lines are far from one core to the other.
pub(crate) const FAR: u8 = 2;

/// What a rank says about its part of a collective.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Descriptor {
    /// The how-manieth collective of this rank, from 1; see [`super::Order::number`].
    pub number: u32,
    /// The how-manieth operation of this rank, for people: ranks may have different numbers of transfers behind them.
    pub operation: u32,
    /// What the capture that it is replayed from holds of the communicator's collectives; 0 for a call.
    pub shape: u32,
    /// The number of that capture on this rank, for people: ranks may have thrown away different ones.
    pub capture: u32,
    /// `Kind` as a number.
    pub kind: u8,
    /// `HcclDataType`.
    pub dtype: u8,
    /// `HcclReduceOp`, 255 without one.
    pub op: u8,
    /// What this rank knows that the others may want to take into account; ranks may differ.
    pub hints: u8,
    /// The root, 0 without one.
    pub root: u8,
    /// Elements, as the call counts them.
    pub count: u64,
    /// Where the send buffer starts in this rank's device memory.
    pub send: u64,
    /// Where the receive buffer starts in this rank's device memory.
    pub recv: u64,
    /// When this rank was ready, in nanoseconds of the monotonic clock.
    pub ready: u64,
    /// Parameters of the modelled link, 0 when it is off: nanoseconds (at most a second), and bytes per nanosecond as
    /// bits.
    pub link: (u32, u64),
}

/// What a rank says about one block of each of its two buffers in an uneven collective, in elements.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Published {
    /// How much it sends to the rank of this block.
    pub sends: u64,
    /// Where that starts in its send buffer.
    pub start: u64,
    /// How much it expects from the rank of this block.
    pub expects: u64,
}

/// What one side of a transfer between two ranks says about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Offer {
    /// `HcclDataType`.
    pub dtype: u8,
    /// Elements.
    pub count: u64,
    /// Where the buffer starts in this rank's device memory.
    pub address: u64,
    /// When this rank was ready, in nanoseconds of the monotonic clock.
    pub ready: u64,
}

/// The words between one sender and one receiver, both named by rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Pair {
    /// Who sends.
    pub from: usize,
    /// Who receives.
    pub to: usize,
}

/// The two sides of a pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    /// Offers data.
    Sender,
    /// Offers a place.
    Receiver,
}

/// An operation as a rank announces it to whoever waits for that rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Entered {
    /// Kind as a number.
    pub kind: u8,
    /// The other rank of a transfer.
    pub peer: Option<u32>,
    /// The how-manieth operation of this rank, from 1.
    pub number: u32,
}

impl Control {
    fn bytes(ranks: usize) -> usize {
        (Self::lists(ranks) + ranks * 2 * ranks * BLOCK * 8).next_multiple_of(4096)
    }

    fn slots(ranks: usize) -> usize {
        LINE * (2 + 3 * ranks)
    }

    fn pairs(ranks: usize) -> usize {
        (Self::slots(ranks) + SLOT * 2 * ranks).next_multiple_of(LINE)
    }

    fn lists(ranks: usize) -> usize {
        Self::pairs(ranks) + 2 * LINE * ranks * ranks
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

    /// Where the set of `rank` for a collective is: the word `ready`, then the descriptor.
    fn descriptor(&self, rank: usize, collective: u64) -> usize {
        let set = (collective & 1) as usize;
        LINE * (2 + self.ranks + 2 * rank + set)
    }

    /// The slot of `rank` for a collective.
    pub(crate) fn slot(&self, rank: usize, collective: u64, bytes: usize) -> Span {
        let set = (collective & 1) as usize;
        assert!(bytes <= SLOT);
        let at = Self::slots(self.ranks) + SLOT * (2 * rank + set);
        Span::inside(&self.region, at, bytes).expect("slots lie inside")
    }

    /// Says which operation `rank` begins; seen at the latest with its next arrival.
    pub(crate) fn enter(&self, rank: usize, what: Entered) {
        let peer = what.peer.map_or(0, |peer| u64::from(peer) + 1);
        let word = u64::from(what.kind) | peer << 8 | u64::from(what.number) << 32;
        self.region
            .word64(LINE * (2 + rank) + 8)
            .store(word, Ordering::Relaxed);
    }

    /// The operation that `rank` entered last; `None` before the first.
    pub(crate) fn entered(&self, rank: usize) -> Option<Entered> {
        let word = self
            .region
            .word64(LINE * (2 + rank) + 8)
            .load(Ordering::Relaxed);
        (word != 0).then(|| Entered {
            kind: word as u8,
            peer: (word as u32 >> 8).checked_sub(1),
            number: (word >> 32) as u32,
        })
    }

    fn list(&self, rank: usize, collective: u64, block: usize) -> usize {
        let set = (collective & 1) as usize;
        Self::lists(self.ranks) + 8 * BLOCK * ((2 * rank + set) * self.ranks + block)
    }

    /// Writes one block of this rank's lists; visible to whoever sees it arrive afterwards.
    pub(crate) fn publish(&self, rank: usize, collective: u64, block: usize, what: Published) {
        let at = self.list(rank, collective, block);
        for (index, word) in [what.sends, what.start, what.expects]
            .into_iter()
            .enumerate()
        {
            self.region
                .word64(at + 8 * index)
                .store(word, Ordering::Relaxed);
        }
    }

    /// Reads one block of a rank's lists, after that rank arrived.
    pub(crate) fn published(&self, rank: usize, collective: u64, block: usize) -> Published {
        let at = self.list(rank, collective, block);
        let word = |index: usize| self.region.word64(at + 8 * index).load(Ordering::Relaxed);
        Published {
            sends: word(0),
            start: word(1),
            expects: word(2),
        }
    }

    fn line(&self, pair: Pair, side: Side) -> usize {
        let line = 2 * (pair.from * self.ranks + pair.to) + side as usize;
        Self::pairs(self.ranks) + LINE * line
    }

    /// How many transfers a side has offered; written by that side only.
    pub(crate) fn offered(&self, pair: Pair, side: Side) -> &AtomicU64 {
        self.region.word64(self.line(pair, side))
    }

    /// How many transfers are complete; written by the receiver only.
    pub(crate) fn transferred(&self, pair: Pair) -> &AtomicU64 {
        self.region.word64(self.line(pair, Side::Receiver) + 8)
    }

    fn offer_at(&self, pair: Pair, side: Side, transfer: u64) -> usize {
        self.line(pair, side) + 16 + 32 * (transfer & 1) as usize
    }

    /// Writes one side's offer for a transfer; visible to whoever sees the count of [`Control::offered`] afterwards.
    pub(crate) fn offer(&self, pair: Pair, side: Side, transfer: u64, what: Offer) {
        let at = self.offer_at(pair, side, transfer);
        let words = [u64::from(what.dtype), what.count, what.address, what.ready];
        for (index, word) in words.into_iter().enumerate() {
            self.region
                .word64(at + 8 * index)
                .store(word, Ordering::Relaxed);
        }
    }

    /// Reads one side's offer, after its count was seen.
    pub(crate) fn offer_of(&self, pair: Pair, side: Side, transfer: u64) -> Offer {
        let at = self.offer_at(pair, side, transfer);
        let word = |index: usize| self.region.word64(at + 8 * index).load(Ordering::Relaxed);
        Offer {
            dtype: word(0) as u8,
            count: word(1),
            address: word(2),
            ready: word(3),
        }
    }

    /// Writes this rank's descriptor; visible to whoever sees it arrive afterwards.
    pub(crate) fn describe(&self, rank: usize, collective: u64, what: Descriptor) {
        let head = u64::from(what.kind)
            | u64::from(what.dtype) << 8
            | u64::from(what.op) << 16
            | u64::from(what.root) << 24
            | u64::from(what.number) << 32;
        let about = u64::from(what.link.0)
            | u64::from(what.capture & 0xff_ffff) << 32
            | u64::from(what.hints) << 56;
        // The first seven share the line of `ready`.
        let words = [
            head,
            what.count,
            what.send,
            what.recv,
            u64::from(what.operation) | u64::from(what.shape) << 32,
            about,
            what.link.1,
            what.ready,
        ];
        let at = self.descriptor(rank, collective) + 8;
        for (index, word) in words.into_iter().enumerate() {
            self.region
                .word64(at + 8 * index)
                .store(word, Ordering::Relaxed);
        }
    }

    /// Reads a rank's descriptor, after that rank arrived.
    pub(crate) fn described(&self, rank: usize, collective: u64) -> Descriptor {
        let at = self.descriptor(rank, collective) + 8;
        let word = |index: usize| self.region.word64(at + 8 * index).load(Ordering::Relaxed);
        let (head, about) = (word(0), word(5));
        let link = (about as u32, word(6));
        Descriptor {
            kind: head as u8,
            dtype: (head >> 8) as u8,
            op: (head >> 16) as u8,
            root: (head >> 24) as u8,
            number: (head >> 32) as u32,
            count: word(1),
            send: word(2),
            recv: word(3),
            operation: word(4) as u32,
            shape: (word(4) >> 32) as u32,
            capture: (about >> 32) as u32 & 0xff_ffff,
            hints: (about >> 56) as u8,
            link,
            // In a line of its own, which is left alone without a link.
            ready: if link == (0, 0) { 0 } else { word(7) },
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
    fn now() -> u64 {
        clock::now()
    }
}

impl Meeting for Control {
    type Platform = Machine;
    fn ranks(&self) -> usize {
        self.ranks
    }
    fn word(&self, rank: usize, point: Point) -> &AtomicU64 {
        match point {
            Point::Ready(collective) => self.region.word64(self.descriptor(rank, collective)),
            Point::Done(_) => self.region.word64(LINE * (2 + rank)),
        }
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
    use super::super::sync::{Patience, arrive, met, wait};
    use super::*;
    use std::thread;

    #[test]
    fn a_descriptor_comes_back_as_it_was() {
        let control = Control::create(3).unwrap();
        let what = Descriptor {
            number: u32::MAX,
            operation: 1 << 31,
            shape: u32::MAX - 1,
            capture: 77,
            kind: 2,
            dtype: 11,
            op: 255,
            hints: 3,
            root: 63,
            count: u64::MAX,
            send: 1,
            recv: 2,
            ready: 3,
            link: (4, 5),
        };
        control.describe(2, 7, what);
        assert_eq!(control.described(2, 7), what);
        assert_eq!(control.described(2, 8).count, 0);
        let entered = Entered {
            kind: 13,
            peer: Some(0),
            number: 9,
        };
        let published = Published {
            sends: 6,
            start: 7,
            expects: u64::MAX,
        };
        let offer = Offer {
            dtype: 4,
            count: 8,
            address: 9,
            ready: 10,
        };
        let pair = Pair { from: 2, to: 2 };
        assert_eq!(control.entered(2), None);
        control.enter(2, entered);
        control.publish(2, 7, 2, published);
        control.offer(pair, Side::Receiver, 7, offer);
        control.transferred(pair).store(11, Ordering::Relaxed);
        control.slot(2, 1, SLOT).fill(255);
        assert_eq!(control.described(2, 7), what);
        assert_eq!(control.entered(2), Some(entered));
        assert_eq!(control.published(2, 7, 2), published);
        assert_eq!(control.published(2, 8, 2), Published::default());
        assert_eq!(control.offer_of(pair, Side::Receiver, 7), offer);
        assert_eq!(control.offer_of(pair, Side::Receiver, 8).count, 0);
        assert_eq!(control.transferred(pair).load(Ordering::Relaxed), 11);
    }

    #[test]
    fn four_threads_meet_many_times_even_asleep() {
        let control = Control::create(4).unwrap();
        for patience in [
            Patience {
                pauses: 0,
                yields: 0,
                limit: 0,
            },
            Patience {
                pauses: 10,
                yields: 50,
                limit: 1_000_000,
            },
        ] {
            let first = control.word(0, Point::Done(0)).load(Ordering::Relaxed);
            thread::scope(|scope| {
                for rank in 0..4 {
                    let control = &control;
                    scope.spawn(move || {
                        for number in first + 1..first + 500 {
                            let point = Point::Done(number);
                            arrive(control, rank, point);
                            let met = || met(control, point);
                            wait(control, met, patience, None, || None::<()>).unwrap();
                        }
                    });
                }
            });
        }
        assert_eq!(control.sleepers().load(Ordering::Relaxed), 0);
    }
}
