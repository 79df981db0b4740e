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

#[derive(Default)]
struct Shared {
    /// Transfers that carry bytes now: their number and what is left of them, in bytes.
    active: Vec<(u64, f64)>,
    next: u64,
    /// The moment up to which `active` is accounted for.
    settled: u64,
}

impl Shared {
    /// How many transfers still have bytes to carry.
    fn carrying(&self) -> f64 {
        self.active.iter().filter(|(_, left)| *left > 0.0).count() as f64
    }

    /// Lets the active transfers progress to `now`.
    fn settle(&mut self, now: u64, model: LinkModel) {
        let mut elapsed = now.saturating_sub(self.settled) as f64;
        // Step by step: whoever runs out of bytes leaves the whole link to the others, even if its thread sleeps on.
        while elapsed > 0.0 {
            let carrying = self.carrying();
            let Some(least) = self
                .active
                .iter()
                .map(|&(_, left)| left)
                .filter(|&left| left > 0.0)
                .reduce(f64::min)
            else {
                break;
            };
            let step = (least * carrying / model.bytes_per_ns).min(elapsed);
            let share = step * model.bytes_per_ns / carrying;
            for (_, left) in self.active.iter_mut().filter(|(_, left)| *left > 0.0) {
                *left = if *left <= share { 0.0 } else { *left - share };
            }
            elapsed -= step;
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
        let start = ready + model.alpha_ns;
        loop {
            let now = clock::now();
            if now >= start {
                break;
            }
            if let Some(error) = give_up() {
                return Err(error);
            }
            shared = self.sleep(shared, start - now);
        }
        if bytes <= 0.0 {
            return Ok(());
        }
        let id = shared.next;
        shared.next += 1;
        shared.settle(clock::now(), model);
        // This thread woke a little after `start`; the bytes did not wait for it.
        let late = (shared.settled - start) as f64;
        let headstart = late * model.bytes_per_ns / (shared.carrying() + 1.0);
        shared.active.push((id, bytes - headstart));
        self.changed.notify_all();
        loop {
            shared.settle(clock::now(), model);
            let carrying = shared.carrying();
            let at = shared
                .active
                .iter()
                .position(|&(other, _)| other == id)
                .expect("added above");
            let left = shared.active[at].1;
            let outcome = if left <= 0.0 {
                Some(Ok(()))
            } else {
                give_up().map(Err)
            };
            if let Some(outcome) = outcome {
                shared.active.swap_remove(at);
                self.changed.notify_all();
                return outcome;
            }
            let wait = (left * carrying / model.bytes_per_ns).ceil();
            shared = self.sleep(shared, wait as u64);
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
            let both = [(); 2].map(|()| scope.spawn(|| took(&link, start, 5e6)));
            let last = both.map(|one| one.join().unwrap()).into_iter().max();
            // Alone each takes 7 ms; how long the link is shared depends on when both threads run.
            assert!(last >= Some(10_000_000), "both share the link: {last:?}");
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
