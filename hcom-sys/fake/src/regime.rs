//! How far apart the cores are: the time that one cache line takes from one to another.
//!
//! A hypervisor may move virtual cores about. The same program then runs on machines that differ severalfold, so the
//! collectives ask `is_far`, and a figure should say on which one it was measured.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use rustix::thread::CpuSet;

use crate::clock;

/// Round trips of one sample, and samples.
const TRIPS: u32 = 100;
const SAMPLES: u32 = 9;

/// The opinion of [`is_far`] is renewed when it is older than this.
const RENEWED: Duration = Duration::from_millis(500);

/// How two cores lie to each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Regime {
    /// Two threads of one core.
    Twin,
    /// They share a cache.
    Near,
    /// They do not.
    Far,
    /// There is only one core, or the two were too busy to tell.
    Unknown,
}

impl Regime {
    /// The name for people: `twin`, `near`, `far`, `unknown`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Twin => "twin",
            Self::Near => "near",
            Self::Far => "far",
            Self::Unknown => "unknown",
        }
    }

    /// The regime of a hand-off that takes so many nanoseconds. The limits lie in the gaps between what was measured
    /// on virtual x86 servers: 14 to 26, 43 to 60, 197 to 233.
    fn of(nanoseconds: f64) -> Self {
        match nanoseconds {
            t if t < 35.0 => Self::Twin,
            t if t < 120.0 => Self::Near,
            t if t < 1000.0 => Self::Far,
            _ => Self::Unknown,
        }
    }

    /// Measures the first two cores that this process may use. Takes a third of a millisecond when both are idle.
    pub fn measure() -> Self {
        match cores()[..] {
            [one, other, ..] => Self::of(hand_off(one, other)),
            _ => Self::Unknown,
        }
    }
}

/// The cores that the calling thread may use.
pub fn cores() -> Vec<usize> {
    let set = rustix::thread::sched_getaffinity(None).unwrap_or_default();
    (0..CpuSet::MAX_CPU)
        .filter(|&core| set.is_set(core))
        .collect()
}

/// Ties the calling thread to a core; without the right to do so it stays where it is.
pub fn pin(core: usize) {
    let mut set = CpuSet::new();
    set.set(core);
    let _ = rustix::thread::sched_setaffinity(None, &set);
}

static FAR: AtomicBool = AtomicBool::new(false);
/// When the opinion was formed, in nanoseconds of the monotonic clock.
static FORMED: AtomicU64 = AtomicU64::new(0);

/// The latest opinion, whether the first two cores are far from each other; at first they are not. Never waits: an old
/// opinion is renewed by a thread of its own.
pub(crate) fn is_far() -> bool {
    let (formed, now) = (FORMED.load(Ordering::Relaxed), clock::now());
    if now.saturating_sub(formed) > RENEWED.as_nanos() as u64
        && FORMED
            .compare_exchange(formed, now, Ordering::Relaxed, Ordering::Relaxed)
            .is_ok()
    {
        // Without a thread the old opinion stands.
        let _ = thread::Builder::new()
            .name("hcom-regime".to_owned())
            .spawn(renew);
    }
    FAR.load(Ordering::Relaxed)
}

fn renew() {
    static ALL: std::sync::LazyLock<Vec<usize>> = std::sync::LazyLock::new(|| {
        // The rank may be tied to one core; its peers run on others.
        let mut every = CpuSet::new();
        (0..CpuSet::MAX_CPU).for_each(|core| every.set(core));
        let _ = rustix::thread::sched_setaffinity(None, &every);
        cores()
    });
    if let [one, other, ..] = ALL[..] {
        match Regime::of(hand_off(one, other)) {
            Regime::Unknown => {}
            regime => FAR.store(regime == Regime::Far, Ordering::Relaxed),
        }
    }
}

/// Two words that are not in one cache line.
#[derive(Default)]
#[repr(align(128))]
struct Line(AtomicU32);

/// Nanoseconds that a cache line takes one way: the median of the samples, infinite when other work was in the way.
fn hand_off(one: usize, other: usize) -> f64 {
    let (there, back) = (Line::default(), Line::default());
    let gave_up = AtomicBool::new(false);
    let mut samples = thread::scope(|scope| {
        scope.spawn(|| {
            pin(other);
            for trip in 1..=TRIPS * SAMPLES {
                if !await_value(&there, trip, &gave_up) {
                    return;
                }
                back.0.store(trip, Ordering::Release);
            }
        });
        let measuring = scope.spawn(|| {
            pin(one);
            let mut trip = 0;
            let mut samples = Vec::new();
            for _ in 0..SAMPLES {
                let begin = Instant::now();
                for _ in 0..TRIPS {
                    trip += 1;
                    there.0.store(trip, Ordering::Release);
                    if !await_value(&back, trip, &gave_up) {
                        return Vec::new();
                    }
                }
                samples.push(begin.elapsed().as_secs_f64() * 1e9 / f64::from(2 * TRIPS));
            }
            samples
        });
        measuring.join().unwrap_or_default()
    });
    samples.sort_by(f64::total_cmp);
    samples
        .get(samples.len() / 2)
        .copied()
        .unwrap_or(f64::INFINITY)
}

/// Waits on the core for the value. Offers the core now and then; false when it did not come for long.
fn await_value(line: &Line, value: u32, gave_up: &AtomicBool) -> bool {
    for look in 1u32.. {
        if line.0.load(Ordering::Acquire) == value {
            return true;
        }
        if look.is_multiple_of(1000) {
            if gave_up.load(Ordering::Relaxed) {
                return false;
            }
            if look > 100_000 {
                gave_up.store(true, Ordering::Relaxed);
                return false;
            }
            thread::yield_now();
        }
        std::hint::spin_loop();
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hand_offs_have_names() {
        assert_eq!(Regime::of(20.0), Regime::Twin);
        assert_eq!(Regime::of(50.0), Regime::Near);
        assert_eq!(Regime::of(215.0).name(), "far");
        assert_eq!(Regime::of(f64::INFINITY), Regime::Unknown);
    }

    #[test]
    fn a_measurement_ends_on_a_busy_machine_too() {
        let done = AtomicBool::new(false);
        thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    while !done.load(Ordering::Relaxed) {
                        std::hint::spin_loop();
                    }
                });
            }
            let regime = Regime::measure();
            done.store(true, Ordering::Relaxed);
            assert!(!regime.name().is_empty());
        });
        is_far();
        renew();
    }
}
