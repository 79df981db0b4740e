//! Moving and combining the data of a collective, once all ranks have met.
//!
//! Small data lies in the slots, and everybody takes what it needs from all of them. Large data is read where it is,
//! in the peers' device memory. Then a second meeting follows before anyone lets its buffers change.
//!
//! A large reduction of whole buffers goes one of two ways, which all ranks derive from what all have published:
//! - shards: rank r combines shard r of all send buffers and writes it to all receive buffers. A shard is read and
//!   written by one rank only, so sending and receiving buffer may be the same. Every byte is combined once.
//! - pull: every rank combines everything into its own receive buffer. More work, but nobody writes what a peer reads
//!   next: that costs the peer less than having its lines taken away, as long as the data is small, the cores are near
//!   and there are two of them.
//!
//! How a rank stores its results is its own choice: past the caches when they exceed any cache or, where the cores are
//! far, when that is faster (see [`super::choice`]).

use std::time::Instant;

use smallvec::SmallVec;

use super::Communicator;
use super::collective::Collective;
use super::control::{Descriptor, FAR, IN_PLACE};
use super::operation::{Cut, Who};
use super::reduce::reduce;
use crate::shm::Region;
use crate::span::Span;
use crate::span::combine::Stores;

/// Spans of the ranks, on the stack for as many as one host usually has.
type Spans = SmallVec<[Span; 8]>;

/// Up to this many bytes two near ranks pull.
const PULL_LIMIT: usize = 512 << 10;
/// From this many bytes of all buffers together on, near ranks store past the caches.
const NEAR_STREAM: usize = 192 << 20;

/// Shards start at multiples of this, so that no two ranks write one cache line.
const SHARD_ALIGN: usize = 128;

/// What one rank knows about the data of a collective.
pub(super) struct Data<'a> {
    pub(super) comm: &'a Communicator,
    pub(super) collective: u64,
    pub(super) all: &'a [Descriptor],
    pub(super) send: Span,
    pub(super) recv: Span,
    /// Whether the data lies in the slots.
    pub(super) small: bool,
}

impl Data<'_> {
    fn ranks(&self) -> usize {
        self.all.len()
    }

    fn rank(&self) -> usize {
        self.comm.rank as usize
    }

    /// Does this rank's part of the work. What comes back belongs into the receive buffer, once the peers have read
    /// the send buffer it overlaps.
    pub(super) fn deliver(&self, what: &Collective) -> Option<Span> {
        let rules = what.kind.rules();
        match (rules.reduces, rules.send) {
            (true, Cut::Whole) => {
                self.reduce_whole(what);
                None
            }
            (true, _) => {
                let (start, bytes) = what.send_layout.block(self.rank());
                if bytes == 0 {
                    return None;
                }
                let sources = self.sources(start, bytes);
                let (target, kept) = self.target(start, bytes);
                let targets = std::slice::from_ref(&target);
                reduce(what.dtype, what.op, targets, &sources, Stores::Cached);
                kept.then_some(target)
            }
            (false, _) => self.take(what),
        }
    }

    /// Combines whole buffers, for everybody or for the root.
    fn reduce_whole(&self, what: &Collective) {
        let everybody = what.kind.rules().to == Who::Everybody;
        let receives = |rank: usize| everybody || rank == what.root as usize;
        let whole = what.send_layout.block(0).1;
        let alone = self.small || self.pulls(everybody, whole);
        let (start, bytes) = match alone {
            true => (0, whole),
            false => shard(whole, self.ranks(), self.rank()),
        };
        let receivers: Spans = match (alone, receives(self.rank())) {
            (true, true) => SmallVec::from_elem(self.recv.clone(), 1),
            (true, false) => SmallVec::new(),
            (false, _) => (0..self.ranks())
                .filter(|&rank| receives(rank))
                .map(|rank| self.buffer(rank, |one| one.recv, start, bytes))
                .collect(),
        };
        if bytes > 0 && !receivers.is_empty() {
            let sources = self.sources(start, bytes);
            let run = |stores| reduce(what.dtype, what.op, &receivers, &sources, stores);
            if alone {
                run(Stores::Cached);
            } else if !self.is_far() {
                run(match 2 * self.ranks() * whole >= NEAR_STREAM {
                    true => Stores::Streaming,
                    false => Stores::Cached,
                });
            } else {
                let stores = self.comm.choices.choose(whole);
                let begin = Instant::now();
                run(stores);
                self.comm.choices.note(whole, stores, begin.elapsed());
            }
        }
    }

    /// Whether every rank combines everything for itself. All ranks answer the same.
    fn pulls(&self, everybody: bool, bytes: usize) -> bool {
        everybody
            && self.ranks() == 2
            && bytes <= PULL_LIMIT
            && !self.is_far()
            && self.all.iter().all(|one| one.hints & IN_PLACE == 0)
    }

    /// What rank 0 thinks of the machine: one opinion for all.
    fn is_far(&self) -> bool {
        self.all[0].hints & FAR != 0
    }

    fn sources(&self, start: usize, bytes: usize) -> Spans {
        (0..self.ranks())
            .map(|rank| self.source(rank, start, bytes))
            .collect()
    }

    /// Takes this rank's block from everybody who sends.
    fn take(&self, what: &Collective) -> Option<Span> {
        let rules = what.kind.rules();
        if rules.recv == Cut::Nothing {
            return None;
        }
        let sources = match rules.from {
            Who::Everybody => 0..self.ranks(),
            Who::Root => what.root as usize..what.root as usize + 1,
        };
        let mut kept = None;
        for source in sources {
            let (to, bytes) = what.recv_layout.block(source);
            if bytes == 0 {
                continue;
            }
            let from = if rules.send == Cut::Uneven {
                let published = self
                    .comm
                    .control
                    .published(source, self.collective, self.rank());
                published.start as usize * what.element()
            } else {
                what.send_layout.block(self.rank()).0
            };
            let (target, apart) = if rules.recv == Cut::Whole {
                self.target(from, bytes)
            } else {
                (self.recv.part(to, bytes), false)
            };
            // Whoever sends from where it receives has what it needs.
            if source != self.rank() || target.address() != self.send.address() + from {
                target.copy_from(&self.source(source, from, bytes));
            }
            kept = apart.then_some(target);
        }
        kept
    }

    /// Where a result of `bytes` goes that comes from `start` of the send buffers: the receive buffer, or (true) a place
    /// of its own as long as peers may still read what the receive buffer overlaps.
    fn target(&self, start: usize, bytes: usize) -> (Span, bool) {
        let own_block = self.recv.address() == self.send.address() + start;
        if self.small || own_block || !self.recv.overlaps(&self.send) {
            return (self.recv.clone(), false);
        }
        let room = Region::anonymous(bytes).expect("memory for a block");
        (Span::inside(&room, 0, bytes).expect("made for it"), true)
    }

    /// A part of what a rank sends.
    fn source(&self, rank: usize, start: usize, bytes: usize) -> Span {
        if self.small {
            let slot = self.comm.control.slot(rank, self.collective, start + bytes);
            slot.part(start, bytes)
        } else {
            self.buffer(rank, |one| one.send, start, bytes)
        }
    }

    fn buffer(&self, rank: usize, of: fn(&Descriptor) -> u64, start: usize, bytes: usize) -> Span {
        self.comm.memory_of(rank, of(&self.all[rank]), start, bytes)
    }
}

/// Where rank `rank`'s share of `bytes` starts and how long it is.
fn shard(bytes: usize, ranks: usize, rank: usize) -> (usize, usize) {
    let each = bytes.div_ceil(ranks).next_multiple_of(SHARD_ALIGN);
    let start = (each * rank).min(bytes);
    (start, each.min(bytes - start))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shards_cover_everything_once() {
        for (bytes, ranks) in [(4098, 2), (10_000, 3), (130, 4), (1 << 20, 7)] {
            let mut end = 0;
            for rank in 0..ranks {
                let (start, length) = shard(bytes, ranks, rank);
                assert!(start == end || length == 0);
                assert!(length == 0 || start.is_multiple_of(SHARD_ALIGN));
                end = end.max(start + length);
            }
            assert_eq!(end, bytes);
        }
    }
}
