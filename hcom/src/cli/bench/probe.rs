//! How far apart two cores are: the time that one cache line takes from one to the other.
//!
//! A hypervisor may move virtual cores about. The same program then runs on two machines that differ severalfold, so
//! every figure says which one it was measured on.

use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::Instant;

use rustix::thread::CpuSet;

/// Round trips of one sample, and samples.
const TRIPS: u32 = 500;
const SAMPLES: u32 = 15;

/// How two cores lie to each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Regime {
    /// Two threads of one core.
    Twin,
    /// They share a cache.
    Near,
    /// They do not.
    Far,
    /// There is only one core.
    Single,
}

impl Regime {
    /// The name in the output.
    pub(super) fn name(self) -> &'static str {
        match self {
            Regime::Twin => "twin",
            Regime::Near => "near",
            Regime::Far => "far",
            Regime::Single => "single",
        }
    }

    /// The regime of a hand-off that takes so many nanoseconds. The limits lie in the gaps between what was measured
    /// on x86 servers: 14 to 26, 43 to 60, 197 to 233.
    fn of(nanoseconds: f64) -> Regime {
        match nanoseconds {
            t if t < 35.0 => Regime::Twin,
            t if t < 120.0 => Regime::Near,
            _ => Regime::Far,
        }
    }
}

/// Two words that are not in one cache line.
#[derive(Default)]
#[repr(align(128))]
struct Line(AtomicU32);

/// The cores that this process may use.
pub(super) fn cores() -> Vec<usize> {
    let set = rustix::thread::sched_getaffinity(None).unwrap_or_default();
    (0..CpuSet::MAX_CPU)
        .filter(|&core| set.is_set(core))
        .collect()
}

/// Ties this thread to a core; without the right to do so it stays where it is.
pub(super) fn pin(core: usize) {
    let mut set = CpuSet::new();
    set.set(core);
    let _ = rustix::thread::sched_setaffinity(None, &set);
}

/// Measures the first two cores.
pub(super) fn regime() -> Regime {
    match cores()[..] {
        [one, other, ..] => Regime::of(hand_off(one, other)),
        _ => Regime::Single,
    }
}

/// Nanoseconds that a cache line takes one way, the median of the samples.
fn hand_off(one: usize, other: usize) -> f64 {
    let (there, back) = (Line::default(), Line::default());
    let mut samples = Vec::new();
    thread::scope(|scope| {
        scope.spawn(|| {
            pin(other);
            for trip in 1..=TRIPS * SAMPLES {
                await_value(&there, trip);
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
                    await_value(&back, trip);
                }
                samples.push(begin.elapsed().as_secs_f64() * 1e9 / f64::from(2 * TRIPS));
            }
            samples
        });
        samples = measuring.join().unwrap_or_default();
    });
    samples.sort_by(f64::total_cmp);
    samples.get(samples.len() / 2).copied().unwrap_or(f64::MAX)
}

/// Waits on the core; offers it now and then, so that it also ends when something else runs on the other core.
fn await_value(line: &Line, value: u32) {
    let mut looks = 0u32;
    while line.0.load(Ordering::Acquire) != value {
        looks += 1;
        if looks.is_multiple_of(10_000) {
            thread::yield_now();
        }
        std::hint::spin_loop();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hand_offs_have_names() {
        assert_eq!(Regime::of(20.0), Regime::Twin);
        assert_eq!(Regime::of(50.0), Regime::Near);
        assert_eq!(Regime::of(215.0), Regime::Far);
    }

    #[test]
    fn this_machine_has_a_regime() {
        assert_eq!(regime() == Regime::Single, cores().len() == 1);
    }
}
