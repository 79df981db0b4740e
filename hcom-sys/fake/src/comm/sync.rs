//! How the ranks of a communicator meet: one counter per rank, and one bell for those who sleep.
//!
//! # Words and who writes them
//! - `phase[r]`, one cache line each: written by rank `r` only, read by all. It only grows. Rank `r` stores `p` when
//!   everything it has to do before meeting number `p` is done. A collective takes one meeting (its data went through
//!   the slots of the control block) or two (ready: "my descriptor and my buffers may be read"; done: "I no longer
//!   touch a peer's buffer"). All ranks take the same number, since they compare descriptors after the first.
//! - `sleepers`: how many threads are about to sleep or asleep; each adds and later subtracts its one. A killed
//!   process leaves its one behind, which costs the others a needless wake and nothing else.
//! - the words between two ranks (see [`super::exchange`]): stored with release, announced with [`tell`].
//! - `bell`: changed by whoever wakes; the word the sleepers sleep on. It may be rung for nothing at any time, and
//!   every sleeper checks again.
//!
//! # Memory order
//! - [`arrive`] stores `phase` with release, [`wait`] loads it with acquire: what rank `r` wrote before it arrived
//!   (descriptor, slot, buffers) is visible to whoever saw it arrive.
//! - Going to sleep is a store→load race: the sleeper stores `sleepers` and loads `phase`, the arriving rank stores
//!   `phase` and loads `sleepers`. Acquire and release do not order a store before a later load, so both sides put a
//!   sequentially consistent fence between the two. Whichever fence comes first in the one order of all fences, the
//!   other side sees the store before it: either the sleeper sees the phase, or the arriving rank sees the sleeper.
//! - Only the rank whose arrival completes the meeting rings. Of two that arrive at once, the one whose fence is
//!   later sees the other's phase, so at least one of them finds the meeting complete.
//! - `bell` is loaded before `sleepers` is raised: a ring in between changes the word, and the sleep returns at once.
//!
//! The models in this module's tests run the very functions below through every interleaving (they find the lost wake
//! within a second when a fence is taken out); a test with real threads does not find it.
//!
//! # Slots and descriptors
//! Each rank has two sets, used in turn. That suffices: set `k & 1` is written again for collective `k + 2`, which a
//! rank starts only after the first meeting of `k + 1`, at which every rank has finished collective `k`.

use std::sync::atomic::Ordering;
use std::time::Duration;

/// Atomic words, fences and sleeping: the machine's, or a model checker's.
pub(crate) trait Platform {
    /// A 32-bit word that can be slept on.
    type Word32;
    /// A 64-bit word.
    type Word64;
    /// Loads a word.
    fn load32(word: &Self::Word32, order: Ordering) -> u32;
    /// Adds to a word (wrapping).
    fn add32(word: &Self::Word32, value: u32, order: Ordering);
    /// Loads a word.
    fn load64(word: &Self::Word64, order: Ordering) -> u64;
    /// Stores a word.
    fn store64(word: &Self::Word64, value: u64, order: Ordering);
    /// A fence.
    fn fence(order: Ordering);
    /// Sleeps while the word holds `seen`; may return for no reason.
    fn sleep(word: &Self::Word32, seen: u32, limit: Option<Duration>);
    /// Wakes all sleepers of the word.
    fn wake_all(word: &Self::Word32);
    /// One short pause (`yields` false), or one offer of the core to others.
    fn pause(yields: bool);
}

/// The words of one communicator.
pub(crate) trait Meeting {
    /// Where the words live.
    type Platform: Platform;
    /// How many ranks meet.
    fn ranks(&self) -> usize;
    /// How far `rank` came.
    fn phase(&self, rank: usize) -> &<Self::Platform as Platform>::Word64;
    /// How many sleep or are about to.
    fn sleepers(&self) -> &<Self::Platform as Platform>::Word32;
    /// What they sleep on.
    fn bell(&self) -> &<Self::Platform as Platform>::Word32;
}

/// How to wait before sleeping.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Patience {
    /// Pauses on the core: only worth it when every rank can have one.
    pub pauses: u32,
    /// Offers of the core to others.
    pub yields: u32,
}

/// The first rank that has not arrived at `phase`.
pub(crate) fn missing<M: Meeting>(meeting: &M, phase: u64) -> Option<usize> {
    (0..meeting.ranks())
        .find(|&rank| M::Platform::load64(meeting.phase(rank), Ordering::Acquire) < phase)
}

/// Whether all ranks have come to `phase`.
pub(crate) fn met<M: Meeting>(meeting: &M, phase: u64) -> bool {
    missing(meeting, phase).is_none()
}

/// Wakes whoever sleeps, after a store of a word that somebody may wait for.
pub(crate) fn tell<M: Meeting>(meeting: &M) {
    M::Platform::fence(Ordering::SeqCst);
    if M::Platform::load32(meeting.sleepers(), Ordering::Relaxed) > 0 {
        ring(meeting);
    }
}

/// Says that `rank` has come to `phase`, and wakes the sleepers if that completes the meeting.
pub(crate) fn arrive<M: Meeting>(meeting: &M, rank: usize, phase: u64) {
    M::Platform::store64(meeting.phase(rank), phase, Ordering::Release);
    M::Platform::fence(Ordering::SeqCst);
    if met(meeting, phase) && M::Platform::load32(meeting.sleepers(), Ordering::Relaxed) > 0 {
        ring(meeting);
    }
}

/// Wakes every sleeper, for whatever reason; what they should notice must be stored before.
pub(crate) fn ring<M: Meeting>(meeting: &M) {
    M::Platform::add32(meeting.bell(), 1, Ordering::SeqCst);
    M::Platform::wake_all(meeting.bell());
}

/// Waits until `done` answers yes: for a meeting, [`met`]. It may look at any word whose writer calls [`arrive`] or
/// [`tell`] afterwards.
///
/// `interrupted` is asked before each sleep; it ends the wait with its error. Whoever makes it answer differently rings
/// afterwards. What is done wins over an interruption. `limit` bounds one sleep, so that `interrupted` can watch a clock.
pub(crate) fn wait<M: Meeting, E>(
    meeting: &M,
    mut done: impl FnMut() -> bool,
    patience: Patience,
    limit: Option<Duration>,
    mut interrupted: impl FnMut() -> Option<E>,
) -> Result<(), E> {
    for attempt in 0..patience.pauses + patience.yields {
        if done() {
            return Ok(());
        }
        M::Platform::pause(attempt >= patience.pauses);
    }
    loop {
        let seen = M::Platform::load32(meeting.bell(), Ordering::Acquire);
        M::Platform::add32(meeting.sleepers(), 1, Ordering::SeqCst);
        M::Platform::fence(Ordering::SeqCst);
        // The interruption is looked at before the words: a peer that arrived and then left has arrived.
        let interruption = interrupted();
        let complete = done();
        if !complete && interruption.is_none() {
            M::Platform::sleep(meeting.bell(), seen, limit);
        }
        M::Platform::add32(meeting.sleepers(), u32::MAX, Ordering::SeqCst);
        match interruption {
            _ if complete => return Ok(()),
            Some(error) => return Err(error),
            None => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use loom::sync::atomic::{AtomicU32, AtomicU64};
    use loom::sync::{Arc, Condvar, Mutex};
    use loom::thread;

    /// A word with the kernel's side of a futex: compare and sleep are one step.
    struct Word {
        value: AtomicU32,
        bucket: Mutex<()>,
        woken: Condvar,
    }

    struct Model;

    impl Platform for Model {
        type Word32 = Word;
        type Word64 = AtomicU64;
        fn load32(word: &Word, order: Ordering) -> u32 {
            word.value.load(order)
        }
        fn add32(word: &Word, value: u32, order: Ordering) {
            word.value.fetch_add(value, order);
        }
        fn load64(word: &AtomicU64, order: Ordering) -> u64 {
            word.load(order)
        }
        fn store64(word: &AtomicU64, value: u64, order: Ordering) {
            word.store(value, order);
        }
        fn fence(order: Ordering) {
            loom::sync::atomic::fence(order);
        }
        fn sleep(word: &Word, seen: u32, _: Option<Duration>) {
            let bucket = word.bucket.lock().unwrap();
            if word.value.load(Ordering::Relaxed) == seen {
                drop(word.woken.wait(bucket).unwrap());
            }
        }
        fn wake_all(word: &Word) {
            let _bucket = word.bucket.lock().unwrap();
            word.woken.notify_all();
        }
        fn pause(_: bool) {
            thread::yield_now();
        }
    }

    struct Words {
        phases: Vec<AtomicU64>,
        sleepers: Word,
        bell: Word,
    }

    fn word() -> Word {
        Word {
            value: AtomicU32::new(0),
            bucket: Mutex::new(()),
            woken: Condvar::new(),
        }
    }

    impl Words {
        fn new(ranks: usize) -> Self {
            let phases = (0..ranks).map(|_| AtomicU64::new(0)).collect();
            Self {
                phases,
                sleepers: word(),
                bell: word(),
            }
        }
    }

    impl Meeting for Words {
        type Platform = Model;
        fn ranks(&self) -> usize {
            self.phases.len()
        }
        fn phase(&self, rank: usize) -> &AtomicU64 {
            &self.phases[rank]
        }
        fn sleepers(&self) -> &Word {
            &self.sleepers
        }
        fn bell(&self) -> &Word {
            &self.bell
        }
    }

    const AT_ONCE: Patience = Patience {
        pauses: 0,
        yields: 0,
    };

    fn explore(preemptions: usize, body: impl Fn() + Send + Sync + 'static) {
        let mut model = loom::model::Builder::new();
        model.preemption_bound = Some(preemptions);
        model.check(body);
    }

    /// Two ranks, two meetings each, sleeping at once: nobody sleeps for ever (the model would report a deadlock).
    #[test]
    fn no_wake_is_lost_between_two_ranks() {
        explore(3, || {
            let words = Arc::new(Words::new(2));
            let other = {
                let words = words.clone();
                thread::spawn(move || {
                    for phase in 1..=2 {
                        arrive(&*words, 1, phase);
                        wait(
                            &*words,
                            || met(&*words, phase),
                            AT_ONCE,
                            None,
                            || None::<()>,
                        )
                        .unwrap();
                    }
                })
            };
            for phase in 1..=2 {
                arrive(&*words, 0, phase);
                wait(
                    &*words,
                    || met(&*words, phase),
                    AT_ONCE,
                    None,
                    || None::<()>,
                )
                .unwrap();
            }
            other.join().unwrap();
        });
    }

    /// A transfer: the receiver waits for the offer, the sender for its end, both asleep at once.
    #[test]
    fn two_ranks_hand_over_and_nobody_sleeps_on() {
        explore(3, || {
            let words = Arc::new(Words::new(2));
            let at_least = |words: &Words, rank: usize, value: u64| {
                Model::load64(words.phase(rank), Ordering::Acquire) >= value
            };
            let receiver = {
                let words = words.clone();
                thread::spawn(move || {
                    for transfer in 1..=2 {
                        let offered = || at_least(&words, 0, transfer);
                        wait(&*words, offered, AT_ONCE, None, || None::<()>).unwrap();
                        Model::store64(words.phase(1), transfer, Ordering::Release);
                        tell(&*words);
                    }
                })
            };
            for transfer in 1..=2 {
                Model::store64(words.phase(0), transfer, Ordering::Release);
                tell(&*words);
                let taken = || at_least(&words, 1, transfer);
                wait(&*words, taken, AT_ONCE, None, || None::<()>).unwrap();
            }
            receiver.join().unwrap();
        });
    }

    /// Three ranks: of two that arrive at once, one rings for the third.
    #[test]
    fn the_last_to_arrive_wakes_a_third() {
        explore(2, || {
            let words = Arc::new(Words::new(3));
            let others: Vec<_> = (1..3)
                .map(|rank| {
                    let words = words.clone();
                    thread::spawn(move || arrive(&*words, rank, 1))
                })
                .collect();
            arrive(&*words, 0, 1);
            wait(&*words, || met(&*words, 1), AT_ONCE, None, || None::<()>).unwrap();
            for other in others {
                other.join().unwrap();
            }
        });
    }

    /// An interruption that is stored and then rung is never slept through.
    #[test]
    fn an_interruption_reaches_a_sleeper() {
        explore(3, || {
            let words = Arc::new(Words::new(2));
            let broken = Arc::new(AtomicU32::new(0));
            let other = {
                let (words, broken) = (words.clone(), broken.clone());
                thread::spawn(move || {
                    broken.store(1, Ordering::SeqCst);
                    ring(&*words);
                })
            };
            arrive(&*words, 0, 1);
            let outcome = wait(
                &*words,
                || met(&*words, 1),
                AT_ONCE,
                None,
                || (broken.load(Ordering::SeqCst) == 1).then_some("interrupted"),
            );
            assert_eq!(outcome, Err("interrupted"));
            other.join().unwrap();
        });
    }
}
