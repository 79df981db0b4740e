//! How the ranks of a communicator meet: words that each rank writes for the others, and one bell for those who sleep.
//!
//! # Words and who writes them
//! - `ready[r][k & 1]`, written by rank `r` only: the number of the last collective of that parity which rank `r` has
//!   published. The word leads the cache line of the descriptor, so that one line tells both. A small collective has
//!   published its data as well, in the slot of the same set.
//! - `done[r]`, in a line of its own, written by rank `r` only: the last large collective in which rank `r` no longer
//!   touches a peer's buffer. Small ones do not write it.
//! - `sleepers`: how many threads are about to sleep or asleep; each adds and later subtracts its one. A killed
//!   process leaves its one behind, which costs the others a needless wake and nothing else.
//! - the words between two ranks (see [`super::exchange`]): stored with release, announced with [`tell`].
//! - `bell`: changed by whoever wakes; the word the sleepers sleep on. It may be rung for nothing at any time, and
//!   every sleeper checks again.
//!
//! # The life of collective k on one rank
//! ```text
//! publish   write slot k (small), lists k (uneven), descriptor k;  ready[r][k & 1] = k    no waiting
//! meet      wait until ready[*][k & 1] >= k, compare the descriptors
//! deliver   small: combine the slots.  large: read and write the peers' buffers where they lie
//! part      large only:  done[r] = k;  wait until done[*] >= k
//! ```
//! Between two of these a thread may stop and another go on; what was reached is kept with the communicator. Publishing
//! needs no peer, so it happens when the call is made if nothing is queued before it: a peer that waits for this rank
//! waits for the call, not for the host to come back and synchronise.
//!
//! Whether a collective is small follows from what the ranks compare, so all agree. A difference is found at the first
//! meeting, which needs nothing but the descriptors.
//!
//! # Two sets are enough
//! Set `k & 1` is written again for `k + 2`. A rank publishes `k + 2` after it has completed `k + 1`, so after every
//! rank has published `k + 1`; and each of them did that after it had completed `k`, when it no longer reads set
//! `k & 1`. For the same reason `ready[r][k & 1] >= k` means `= k` for a rank that still is at `k`.
//!
//! # Memory order
//! - [`arrive`] stores with release, [`missing`] loads with acquire: what rank `r` wrote before it arrived (descriptor,
//!   slot, buffers) is visible to whoever saw it arrive. Stores that bypass the caches are fenced before they count as
//!   written (see [`crate::simd`]).
//! - Going to sleep is a store→load race: the sleeper stores `sleepers` and loads `ready`, the arriving rank stores
//!   `ready` and loads `sleepers`. Acquire and release do not order a store before a later load, so both sides put a
//!   sequentially consistent fence between the two. Whichever fence comes first in the one order of all fences, the
//!   other side sees the store before it: either the sleeper sees the word, or the arriving rank sees the sleeper.
//! - Only the rank whose arrival completes the meeting rings. Of two that arrive at once, the one whose fence is
//!   later sees the other's word, so at least one of them finds the meeting complete.
//! - `bell` is loaded before `sleepers` is raised: a ring in between changes the word, and the sleep returns at once.
//!
//! # Waiting
//! A few pauses on the core, and only if every rank can have one: a rank that pauses on a core that another one needs
//! costs a whole time slice. Then a bounded number of offers of the core to others, then sleep. A thread that only helps
//! (see [`crate::stream`]) does not sleep: [`try_wait`] ends there, and the stream's worker goes on.
//!
//! The models in this module's tests run the very functions below through every interleaving (they find the lost wake
//! within a second when a fence is taken out); a test with real threads does not find it.

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
    /// The time in nanoseconds.
    fn now() -> u64;
}

/// Where ranks wait for each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Point {
    /// The collective of this number is published.
    Ready(u64),
    /// The peers' buffers of the collective of this number are no longer touched.
    Done(u64),
}

impl Point {
    /// What a word must reach.
    fn number(self) -> u64 {
        match self {
            Self::Ready(number) | Self::Done(number) => number,
        }
    }
}

/// The words of one communicator.
pub(crate) trait Meeting {
    /// Where the words live.
    type Platform: Platform;
    /// How many ranks meet.
    fn ranks(&self) -> usize;
    /// The word with which `rank` says that it came to `point`.
    fn word(&self, rank: usize, point: Point) -> &<Self::Platform as Platform>::Word64;
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
    /// How long the offers may last, in nanoseconds: on a busy machine one alone takes milliseconds.
    pub limit: u64,
}

/// The first rank that has not come to `point`.
pub(crate) fn missing<M: Meeting>(meeting: &M, point: Point) -> Option<usize> {
    (0..meeting.ranks()).find(|&rank| {
        M::Platform::load64(meeting.word(rank, point), Ordering::Acquire) < point.number()
    })
}

/// Whether all ranks have come to `point`.
pub(crate) fn met<M: Meeting>(meeting: &M, point: Point) -> bool {
    missing(meeting, point).is_none()
}

/// Wakes whoever sleeps, after a store of a word that somebody may wait for.
pub(crate) fn tell<M: Meeting>(meeting: &M) {
    M::Platform::fence(Ordering::SeqCst);
    if M::Platform::load32(meeting.sleepers(), Ordering::Relaxed) > 0 {
        ring(meeting);
    }
}

/// Says that `rank` has come to `point`, and wakes the sleepers if that completes the meeting.
pub(crate) fn arrive<M: Meeting>(meeting: &M, rank: usize, point: Point) {
    let word = meeting.word(rank, point);
    M::Platform::store64(word, point.number(), Ordering::Release);
    M::Platform::fence(Ordering::SeqCst);
    if M::Platform::load32(meeting.sleepers(), Ordering::Relaxed) > 0 && met(meeting, point) {
        ring(meeting);
    }
}

/// Wakes every sleeper, for whatever reason; what they should notice must be stored before.
pub(crate) fn ring<M: Meeting>(meeting: &M) {
    M::Platform::add32(meeting.bell(), 1, Ordering::SeqCst);
    M::Platform::wake_all(meeting.bell());
}

/// Waits until `done` answers yes, without sleeping: whether it did before patience ended. What `done` looks at is as in
/// [`wait`].
pub(crate) fn try_wait<P: Platform>(mut done: impl FnMut() -> bool, patience: Patience) -> bool {
    for _ in 0..patience.pauses {
        if done() {
            return true;
        }
        P::pause(false);
    }
    let mut end = None;
    for offer in 0..patience.yields {
        if done() {
            return true;
        }
        if offer % 8 == 0 && P::now() > *end.get_or_insert_with(|| P::now() + patience.limit) {
            break;
        }
        P::pause(true);
    }
    done()
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
    if try_wait::<M::Platform>(&mut done, patience) {
        return Ok(());
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
        fn now() -> u64 {
            0
        }
    }

    struct Words {
        ready: Vec<[AtomicU64; 2]>,
        done: Vec<AtomicU64>,
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
            let word64 = || AtomicU64::new(0);
            Self {
                ready: (0..ranks).map(|_| [word64(), word64()]).collect(),
                done: (0..ranks).map(|_| word64()).collect(),
                sleepers: word(),
                bell: word(),
            }
        }
    }

    impl Meeting for Words {
        type Platform = Model;
        fn ranks(&self) -> usize {
            self.done.len()
        }
        fn word(&self, rank: usize, point: Point) -> &AtomicU64 {
            match point {
                Point::Ready(number) => &self.ready[rank][number as usize & 1],
                Point::Done(_) => &self.done[rank],
            }
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
        limit: 0,
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
                        arrive(&*words, 1, Point::Ready(phase));
                        wait(
                            &*words,
                            || met(&*words, Point::Ready(phase)),
                            AT_ONCE,
                            None,
                            || None::<()>,
                        )
                        .unwrap();
                    }
                })
            };
            for phase in 1..=2 {
                arrive(&*words, 0, Point::Ready(phase));
                wait(
                    &*words,
                    || met(&*words, Point::Ready(phase)),
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
                Model::load64(&words.done[rank], Ordering::Acquire) >= value
            };
            let receiver = {
                let words = words.clone();
                thread::spawn(move || {
                    for transfer in 1..=2 {
                        let offered = || at_least(&words, 0, transfer);
                        wait(&*words, offered, AT_ONCE, None, || None::<()>).unwrap();
                        Model::store64(&words.done[1], transfer, Ordering::Release);
                        tell(&*words);
                    }
                })
            };
            for transfer in 1..=2 {
                Model::store64(&words.done[0], transfer, Ordering::Release);
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
                    thread::spawn(move || arrive(&*words, rank, Point::Ready(1)))
                })
                .collect();
            arrive(&*words, 0, Point::Ready(1));
            wait(
                &*words,
                || met(&*words, Point::Ready(1)),
                AT_ONCE,
                None,
                || None::<()>,
            )
            .unwrap();
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
            arrive(&*words, 0, Point::Ready(1));
            let outcome = wait(
                &*words,
                || met(&*words, Point::Ready(1)),
                AT_ONCE,
                None,
                || (broken.load(Ordering::SeqCst) == 1).then_some("interrupted"),
            );
            assert_eq!(outcome, Err("interrupted"));
            other.join().unwrap();
        });
    }

    /// Runs the same on two ranks.
    fn two_ranks(body: fn(&Words, &[[AtomicU64; 2]; 2], usize)) {
        explore(2, move || {
            let words = Arc::new(Words::new(2));
            let cells: Arc<[[AtomicU64; 2]; 2]> = Arc::default();
            let other = {
                let (words, cells) = (words.clone(), cells.clone());
                thread::spawn(move || body(&words, &cells, 1))
            };
            body(&words, &cells, 0);
            other.join().unwrap();
        });
    }

    fn meet_at(words: &Words, rank: usize, point: Point) {
        arrive(words, rank, point);
        wait(words, || met(words, point), AT_ONCE, None, || None::<()>).unwrap();
    }

    /// Three small collectives whose data lies in the slots: nobody overwrites a slot that a peer still reads, although
    /// each rank publishes as soon as it can. Relaxed accesses, so that a missing order shows as an old value.
    #[test]
    fn two_sets_of_slots_are_enough() {
        two_ranks(|words, slots, own| {
            for number in 1..=3u64 {
                let set = number as usize & 1;
                slots[own][set].store(10 * number + own as u64, Ordering::Relaxed);
                meet_at(words, own, Point::Ready(number));
                let sum: u64 = slots
                    .iter()
                    .map(|rank| rank[set].load(Ordering::Relaxed))
                    .sum();
                assert_eq!(sum, 20 * number + 1);
            }
        });
    }

    /// A large collective: a rank writes its peer's buffer between the two meetings, the owner only outside.
    #[test]
    fn buffers_belong_to_the_peers_between_the_meetings() {
        two_ranks(|words, buffers, own| {
            for number in 1..=2u64 {
                buffers[own][0].store(number, Ordering::Relaxed);
                meet_at(words, own, Point::Ready(number));
                let buffer = &buffers[1 - own][0];
                buffer.store(buffer.load(Ordering::Relaxed) + 100, Ordering::Relaxed);
                meet_at(words, own, Point::Done(number));
                assert_eq!(buffers[own][0].load(Ordering::Relaxed), number + 100);
            }
        });
    }
}
