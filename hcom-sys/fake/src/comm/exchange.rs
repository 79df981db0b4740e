//! Sends and receives between two ranks, alone or in batches. Nobody else takes part, and nothing is buffered: a send
//! ends when its receiver has the data.
//!
//! # Words
//! Each ordered pair of ranks has two lines in the control block. The sender counts the transfers it has offered, the
//! receiver those it has offered a place for, and those that are complete; each line has two sets of offers.
//!
//! 1. A side that has no transfer of this pair under way writes its offer `k` and stores its count `k` (release).
//! 2. The receiver sees the sender's count `k` (acquire), compares the offers, copies out of the sender's memory and
//!    stores "`k` complete" (release).
//! 3. The sender sees that (acquire), or sees that the offers differ; then both fail and nothing was copied.
//!
//! Two sets suffice: offer `k + 2` is written when `k + 1` is complete, which needs both to have offered `k + 1`, so to
//! have finished with `k`. After each store the writer wakes sleepers as described in [`super::sync`].

use std::sync::Arc;
use std::sync::atomic::Ordering;

use hcom_sys::bindings::HcclDataType;

use super::call::Buffer;
use super::control::{Offer, Pair, Side};
use super::operation::Kind;
use super::{Communicator, sync};
use crate::clock;
use crate::code;
use crate::error::{Failure, Outcome, refuse};
use crate::link;
use crate::soc;
use crate::stream::{Stream, Work};

/// One transfer, checked.
#[derive(Clone, Copy, Debug)]
pub(super) struct Item {
    pub(super) sends: bool,
    pub(super) peer: u32,
    pub(super) dtype: HcclDataType,
    pub(super) count: u64,
    pub(super) buffer: Buffer,
}

/// Transfers that do not wait for each other.
pub(super) struct Exchange {
    pub(super) comm: Arc<Communicator>,
    pub(super) kind: Kind,
    pub(super) items: Vec<Item>,
}

/// How far a transfer is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// An earlier transfer of the pair is under way.
    Queued,
    /// Offered under this number.
    Offered(u64),
    /// Complete.
    Done,
}

/// What a transfer can do next.
enum Next {
    Nothing,
    Offer,
    Compare(u64),
    Finish,
}

impl Exchange {
    fn pair(&self, item: &Item) -> (Pair, Side) {
        let (own, peer) = (self.comm.rank as usize, item.peer as usize);
        if item.sends {
            (
                Pair {
                    from: own,
                    to: peer,
                },
                Side::Sender,
            )
        } else {
            (
                Pair {
                    from: peer,
                    to: own,
                },
                Side::Receiver,
            )
        }
    }

    fn next(&self, item: &Item, state: State) -> Next {
        let control = &self.comm.control;
        let (pair, side) = self.pair(item);
        let offered = |side| control.offered(pair, side).load(Ordering::Acquire);
        let complete = || control.transferred(pair).load(Ordering::Acquire);
        match state {
            State::Queued if offered(side) == complete() => Next::Offer,
            State::Offered(transfer) if side == Side::Sender => {
                if complete() >= transfer {
                    Next::Finish
                } else if offered(Side::Receiver) >= transfer && self.differ(pair, transfer) {
                    Next::Compare(transfer)
                } else {
                    Next::Nothing
                }
            }
            State::Offered(transfer) if offered(Side::Sender) >= transfer => {
                Next::Compare(transfer)
            }
            _ => Next::Nothing,
        }
    }

    fn offers(&self, pair: Pair, transfer: u64) -> (Offer, Offer) {
        let of = |side| self.comm.control.offer_of(pair, side, transfer);
        (of(Side::Sender), of(Side::Receiver))
    }

    fn differ(&self, pair: Pair, transfer: u64) -> bool {
        let (sender, receiver) = self.offers(pair, transfer);
        (sender.dtype, sender.count) != (receiver.dtype, receiver.count)
    }

    fn execute(&self, stream: &Stream) -> Outcome {
        let comm = &*self.comm;
        let peer = match (self.kind, &self.items[..]) {
            (Kind::Send | Kind::Recv, [item]) => Some(item.peer),
            _ => None,
        };
        comm.enter(self.kind, peer);
        let mut states = vec![State::Queued; self.items.len()];
        loop {
            let mut moved = false;
            for (index, item) in self.items.iter().enumerate() {
                // A pair's transfers keep their order, though the one under way may end at any moment.
                let earlier = self.items[..index].iter().zip(&states);
                let waits = |(other, state): (&Item, &State)| {
                    *state == State::Queued && (other.sends, other.peer) == (item.sends, item.peer)
                };
                if !earlier.into_iter().any(waits) {
                    moved |= self.advance(item, &mut states[index], stream)?;
                }
            }
            if states.iter().all(|state| *state == State::Done) {
                return Ok(());
            }
            if moved {
                continue;
            }
            let each = || self.items.iter().zip(&states);
            comm.wait(
                stream,
                |rank| each().any(|(item, state)| item.peer == rank && *state != State::Done),
                || each().any(|(item, state)| !matches!(self.next(item, *state), Next::Nothing)),
                || self.unfinished(each()),
            )?;
        }
    }

    /// Takes one transfer a step further, if that is possible now.
    fn advance(&self, item: &Item, state: &mut State, stream: &Stream) -> Outcome<bool> {
        let comm = &*self.comm;
        let (pair, side) = self.pair(item);
        match self.next(item, *state) {
            Next::Nothing => return Ok(false),
            Next::Finish => *state = State::Done,
            Next::Offer => {
                let span = item.buffer.span(comm)?;
                let base = comm.device.arena.region().base().addr();
                let offered = comm.control.offered(pair, side);
                let transfer = offered.load(Ordering::Relaxed) + 1;
                let offer = Offer {
                    dtype: item.dtype.0 as u8,
                    count: item.count,
                    address: (span.address() - base) as u64,
                    ready: clock::now(),
                };
                comm.control.offer(pair, side, transfer, offer);
                offered.store(transfer, Ordering::Release);
                sync::tell(&comm.control);
                *state = State::Offered(transfer);
            }
            Next::Compare(transfer) => {
                self.compare(pair, transfer)?;
                // Only the receiver comes here with equal offers.
                let (sender, receiver) = self.offers(pair, transfer);
                let span = item.buffer.span(comm)?;
                span.copy_from(&comm.memory_of(pair.from, sender.address, 0, span.bytes()));
                if let Some(model) = link::model() {
                    let ready = sender.ready.max(receiver.ready);
                    let bytes = if pair.from == pair.to {
                        0
                    } else {
                        span.bytes()
                    };
                    comm.device.link.transfer(model, ready, bytes as f64, || {
                        comm.interrupted(stream, |rank| rank == item.peer)
                    })?;
                }
                comm.control
                    .transferred(pair)
                    .store(transfer, Ordering::Release);
                sync::tell(&comm.control);
                *state = State::Done;
            }
        }
        Ok(true)
    }

    /// Both sides must mean the same data.
    fn compare(&self, pair: Pair, transfer: u64) -> Outcome {
        if !self.differ(pair, transfer) {
            return Ok(());
        }
        let (sender, receiver) = self.offers(pair, transfer);
        let dtype = |offer: Offer| soc::dtype_name(HcclDataType(offer.dtype.into()));
        refuse(
            code::TASK_FAILED,
            format!(
                "transfer {transfer} from rank {} to rank {} of communicator {}: rank {} sends {} {}, rank {} expects {} {}",
                pair.from,
                pair.to,
                self.comm.name,
                pair.from,
                sender.count,
                dtype(sender),
                pair.to,
                receiver.count,
                dtype(receiver)
            ),
        )
    }

    /// What a transfer waits for, for people.
    fn unfinished<'a>(&self, each: impl Iterator<Item = (&'a Item, &'a State)>) -> String {
        let missing: Vec<String> = each
            .filter(|(_, state)| **state != State::Done)
            .map(|(item, _)| {
                let (what, does) = if item.sends {
                    ("to", "receive")
                } else {
                    ("from", "send")
                };
                format!(
                    "{} {} {what} rank {}, which does not {does}",
                    item.count,
                    soc::dtype_name(item.dtype),
                    item.peer
                )
            })
            .collect();
        missing.join("; ")
    }
}

impl Work for Exchange {
    fn name(&self) -> &str {
        self.kind.name()
    }

    fn admit(&self) -> u64 {
        self.comm.take_number()
    }

    fn run(&self, admission: u64, stream: &Stream) -> Outcome {
        self.comm
            .perform(self.kind, admission, stream, true, || {
                self.execute(stream).map(|()| true)
            })
            .unwrap_or(Ok(()))
    }

    fn skip(&self, _: u64, cause: &Failure) {
        self.comm.missed(self.kind, cause);
    }

    fn interrupt(&self) {
        self.comm.poke();
    }
}
