//! The modelled link: transfers that take time without taking the processor.
//!
//! A transfer of a collective takes `α + factor × bytes / β`, from the moment all ranks were ready. `bytes` is the
//! larger of the collective's two buffers on one rank, and `factor` is what each rank's link must carry of it in a
//! bandwidth-optimal (ring) algorithm, the "bus bandwidth" factors of NCCL's performance tests:
//!
//! | operation | bytes | factor |
//! |---|---|---|
//! | all_reduce | count | 2 (p − 1) / p |
//! | all_gather, reduce_scatter, all_to_all, scatter | p × count | (p − 1) / p |
//! | their uneven forms | the most that one rank sends to or expects from others | 1 |
//! | broadcast, reduce | count | 1, alone 0 |
//! | send and receive | count | 1, to itself 0 |
//! | barrier | 0 | – |
//!
//! Transfers of one communicator follow each other, because its collectives do. Transfers of different communicators
//! of one device share β: while `n` of them carry bytes, each gets β / n. α is latency and is not shared. The thread
//! that waits sleeps, as a card's copy engine leaves the cores alone.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Duration;

use crate::clock;
use crate::config::{self, LinkModel};
use crate::memory::lock;

/// The link of this process when it was set by a call instead of the environment.
static OVERRIDE: Mutex<Option<Option<LinkModel>>> = Mutex::new(None);
static OVERRIDDEN: AtomicBool = AtomicBool::new(false);

/// The link in force, if any.
pub(crate) fn model() -> Option<LinkModel> {
    if OVERRIDDEN.load(Ordering::Acquire)
        && let Some(model) = *lock(&OVERRIDE)
    {
        return model;
    }
    config::or_default().link
}

/// Replaces the link for operations queued later in this process; `None` turns it off.
pub(crate) fn set_model(model: Option<LinkModel>) {
    *lock(&OVERRIDE) = Some(model);
    OVERRIDDEN.store(true, Ordering::Release);
}

/// One device's end of the link.
#[derive(Default)]
pub(crate) struct Link {
    shared: Mutex<Shared>,
    changed: Condvar,
}

/// A transfer on its way.
struct Transfer {
    id: u64,
    /// When it begins to carry bytes.
    start: u64,
    /// Bytes that are left.
    left: f64,
}

impl Transfer {
    fn carries_at(&self, moment: f64) -> bool {
        self.left > 0.0 && self.start as f64 <= moment
    }
}

#[derive(Default)]
struct Shared {
    active: Vec<Transfer>,
    next: u64,
    /// The moment up to which `active` is accounted for.
    settled: u64,
}

impl Shared {
    /// How many transfers carry bytes.
    fn carrying(&self, moment: f64) -> f64 {
        let carrying = self.active.iter().filter(|one| one.carries_at(moment));
        carrying.count() as f64
    }

    /// Lets the active transfers progress to `now`, whenever their threads wake: step by step, because whoever begins
    /// takes a share from the others, and whoever runs out of bytes leaves its own to them.
    fn settle(&mut self, now: u64, model: LinkModel) {
        let mut moment = self.settled as f64;
        while moment < now as f64 {
            let begins = self.active.iter().map(|one| one.start as f64);
            let begins = begins.filter(|&start| start > moment);
            let next = begins.fold(now as f64, f64::min);
            let carrying = self.carrying(moment);
            let lefts = self.active.iter().filter(|one| one.carries_at(moment));
            let least = lefts.map(|one| one.left).fold(f64::INFINITY, f64::min);
            let end = moment + least * carrying / model.bytes_per_ns;
            let until = if carrying > 0.0 && end < next {
                end
            } else {
                next
            };
            let share = (until - moment) * model.bytes_per_ns / carrying;
            for one in self.active.iter_mut().filter(|one| one.carries_at(moment)) {
                let runs_out = until == end && one.left == least;
                one.left = if runs_out {
                    0.0
                } else {
                    (one.left - share).max(0.0)
                };
            }
            moment = until;
        }
        self.settled = self.settled.max(now);
    }
}

impl Link {
    /// Sleeps until a transfer of `bytes` (factor included) that began at `ready` is over. `give_up` is asked at every
    /// wake; [`Link::poke`] makes all waits ask.
    pub(crate) fn transfer<E>(
        &self,
        model: LinkModel,
        ready: u64,
        bytes: f64,
        give_up: impl Fn() -> Option<E>,
    ) -> Result<(), E> {
        let mut shared = lock(&self.shared);
        shared.settle(clock::now(), model);
        let (id, start) = (shared.next, ready + model.alpha_ns);
        shared.next += 1;
        // Of what this thread comes too late to see, nobody knows more than that it had the link with those of now.
        let late = shared.settled.saturating_sub(start) as f64;
        let others = shared.carrying(shared.settled as f64);
        let left = (bytes - late * model.bytes_per_ns / (others + 1.0)).max(0.0);
        shared.active.push(Transfer { id, start, left });
        self.changed.notify_all();
        loop {
            let now = clock::now();
            shared.settle(now, model);
            let find = |one: &Transfer| one.id == id;
            let at = shared.active.iter().position(find).expect("added above");
            let left = shared.active[at].left;
            let outcome = if left <= 0.0 && now >= start {
                Some(Ok(()))
            } else {
                give_up().map(Err)
            };
            if let Some(outcome) = outcome {
                shared.active.swap_remove(at);
                self.changed.notify_all();
                return outcome;
            }
            let wait = match start.checked_sub(now) {
                Some(wait) if wait > 0 => wait,
                _ => (left * shared.carrying(now as f64) / model.bytes_per_ns).ceil() as u64,
            };
            shared = self.sleep(shared, wait);
        }
    }

    fn sleep<'a>(
        &self,
        shared: std::sync::MutexGuard<'a, Shared>,
        nanoseconds: u64,
    ) -> std::sync::MutexGuard<'a, Shared> {
        let limit = Duration::from_nanos(nanoseconds);
        self.changed
            .wait_timeout(shared, limit)
            .unwrap_or_else(PoisonError::into_inner)
            .0
    }

    /// Makes every wait ask whether it should give up.
    pub(crate) fn poke(&self) {
        drop(lock(&self.shared));
        self.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::thread;

    const MODEL: LinkModel = LinkModel {
        alpha_ns: 2_000_000,
        bytes_per_ns: 1.0,
    };

    fn took(link: &Link, start: u64, bytes: f64) -> u64 {
        link.transfer(MODEL, start, bytes, || None::<()>).unwrap();
        clock::now() - start
    }

    #[test]
    fn a_transfer_takes_alpha_and_its_share_of_beta() {
        let link = Link::default();
        assert!(took(&link, clock::now(), 3e6) >= 5_000_000);
        let start = clock::now();
        thread::scope(|scope| {
            let both = [(); 2].map(|()| {
                scope.spawn(|| {
                    // What a thread comes too late for is guessed.
                    let late = clock::now() - start;
                    took(&link, start, 5e6) + late
                })
            });
            let last = both.map(|one| one.join().unwrap()).into_iter().max();
            assert!(last >= Some(12_000_000), "both share the link: {last:?}");
        });
    }

    #[test]
    fn a_wait_can_be_given_up() {
        let link = Link::default();
        let stop = AtomicBool::new(false);
        thread::scope(|scope| {
            let waiting = scope.spawn(|| {
                link.transfer(MODEL, clock::now(), 1e15, || {
                    stop.load(Ordering::SeqCst).then_some("stopped")
                })
            });
            stop.store(true, Ordering::SeqCst);
            while !waiting.is_finished() {
                link.poke();
                thread::yield_now();
            }
            assert_eq!(waiting.join().unwrap(), Err("stopped"));
        });
    }
}
