//! Moving and combining the data of a collective, once all ranks have met.
//!
//! Small data lies in the slots, and everybody takes what it needs from all of them. Large data is read where it is,
//! in the peers' device memory:
//! - all_reduce: rank r combines shard r of all send buffers and writes it to all receive buffers. A shard is read and
//!   written by one rank only, so sending and receiving buffer may be the same.
//! - all_gather, broadcast: everybody copies from the peers' send buffers.
//! - reduce_scatter: rank r combines block r of all send buffers.
//!
//! A second meeting follows before anyone lets its buffers change.

use super::Communicator;
use super::collective::{Collective, Kind};
use super::control::Descriptor;
use super::reduce::reduce;
use crate::shm::Region;
use crate::span::Span;

/// Shards start at multiples of this, so that no two ranks write one cache line.
const SHARD_ALIGN: usize = 128;

/// What one rank knows about the data of a collective.
pub(super) struct Data<'a> {
    pub(super) comm: &'a Communicator,
    pub(super) collective: u64,
    pub(super) all: &'a [Descriptor],
    pub(super) send: Span,
    pub(super) recv: Span,
}

impl Data<'_> {
    fn ranks(&self) -> usize {
        self.all.len()
    }

    fn rank(&self) -> usize {
        self.comm.rank as usize
    }

    /// Takes this rank's results out of the slots.
    pub(super) fn through_slots(&self, what: &Collective) {
        let slot = |rank, bytes| self.comm.control.slot(rank, self.collective, bytes);
        let slots = |offset: usize, bytes: usize| -> Vec<Span> {
            (0..self.ranks())
                .map(|rank| slot(rank, offset + bytes).part(offset, bytes))
                .collect()
        };
        match what.kind {
            Kind::AllReduce => {
                reduce(
                    what.dtype,
                    what.op,
                    std::slice::from_ref(&self.recv),
                    &slots(0, what.unit),
                );
            }
            Kind::ReduceScatter => {
                let sources = slots(self.rank() * what.unit, what.unit);
                reduce(
                    what.dtype,
                    what.op,
                    std::slice::from_ref(&self.recv),
                    &sources,
                );
            }
            Kind::AllGather => {
                for rank in 0..self.ranks() {
                    self.recv
                        .part(rank * what.unit, what.unit)
                        .copy_from(&slot(rank, what.unit));
                }
            }
            Kind::Broadcast if what.root != self.comm.rank => {
                self.recv.copy_from(&slot(what.root as usize, what.unit));
            }
            Kind::Broadcast | Kind::Barrier => {}
        }
    }

    /// Works on the buffers of all ranks. What comes back belongs into the receive buffer, once the peers have read
    /// the send buffer it overlaps.
    pub(super) fn direct(&self, what: &Collective) -> Option<Span> {
        match what.kind {
            Kind::AllReduce => {
                let (start, bytes) = shard(what.unit, self.ranks(), self.rank());
                if bytes > 0 {
                    let part = |of: fn(&Descriptor) -> u64| -> Vec<Span> {
                        (0..self.ranks())
                            .map(|rank| self.buffer(rank, of, start, bytes))
                            .collect()
                    };
                    reduce(
                        what.dtype,
                        what.op,
                        &part(|one| one.recv),
                        &part(|one| one.send),
                    );
                }
            }
            Kind::AllGather => {
                for rank in 0..self.ranks() {
                    let target = self.recv.part(rank * what.unit, what.unit);
                    if rank != self.rank() || target.address() != self.send.address() {
                        target.copy_from(&self.buffer(rank, |one| one.send, 0, what.unit));
                    }
                }
            }
            Kind::ReduceScatter => {
                let start = self.rank() * what.unit;
                let sources: Vec<Span> = (0..self.ranks())
                    .map(|rank| self.buffer(rank, |one| one.send, start, what.unit))
                    .collect();
                let own_block = self.recv.address() == self.send.address() + start;
                if self.recv.overlaps(&self.send) && !own_block {
                    let room = Region::anonymous(what.unit).expect("memory for a block");
                    let kept = Span::inside(&room, 0, what.unit).expect("made for it");
                    reduce(what.dtype, what.op, std::slice::from_ref(&kept), &sources);
                    return Some(kept);
                }
                reduce(
                    what.dtype,
                    what.op,
                    std::slice::from_ref(&self.recv),
                    &sources,
                );
            }
            Kind::Broadcast if what.root != self.comm.rank => {
                self.recv
                    .copy_from(&self.buffer(what.root as usize, |one| one.send, 0, what.unit));
            }
            Kind::Broadcast | Kind::Barrier => {}
        }
        None
    }

    /// A part of a rank's buffer.
    ///
    /// # Panics
    /// When a peer described a range outside its memory, which a peer of this version never does; the stream reports
    /// it.
    fn buffer(&self, rank: usize, of: fn(&Descriptor) -> u64, start: usize, bytes: usize) -> Span {
        let region = match &self.comm.peers[rank] {
            Some(peer) => &peer.region,
            None => self.comm.device.arena.region(),
        };
        let offset = of(&self.all[rank]) as usize;
        offset
            .checked_add(start)
            .and_then(|offset| Span::inside(region, offset, bytes))
            .unwrap_or_else(|| panic!("rank {rank} described a buffer outside its memory"))
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
