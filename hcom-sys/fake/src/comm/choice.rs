//! Which stores suit a reduction where the cores are far from each other.
//!
//! Stores through the caches take lines away from whoever used them last, which costs much when that is a far core;
//! stores past the caches never do, but the next reader pays for the way to memory. Which is less depends on what the
//! program does with its buffers between two operations, so it is measured: each rank remembers for each size how long
//! its own part took either way, does what took less, and now and then tries the other.

use std::sync::Mutex;
use std::time::Duration;

use crate::memory::lock;
use crate::span::combine::Stores;

/// Every so many operations of a size the slower way is tried again.
const TRIED_AGAIN: u32 = 128;

/// What one rank knows about one size.
#[derive(Clone, Copy, Debug, Default)]
struct Known {
    /// Nanoseconds of the latest operations, by way: a mean that forgets half with each. 0 before the first.
    took: [u64; 2],
    operations: u32,
}

/// What one rank knows, by the power of two below the size.
#[derive(Debug)]
pub(super) struct Choices(Mutex<[Known; usize::BITS as usize]>);

impl Default for Choices {
    fn default() -> Self {
        Self(Mutex::new([Known::default(); usize::BITS as usize]))
    }
}

const WAYS: [Stores; 2] = [Stores::Cached, Stores::Streaming];

impl Choices {
    /// How to store a reduction of so many bytes (not 0).
    pub(super) fn choose(&self, bytes: usize) -> Stores {
        let mut all = lock(&self.0);
        let known = &mut all[bytes.ilog2() as usize];
        let turn = known.operations % TRIED_AGAIN;
        known.operations = known.operations.wrapping_add(1);
        let better = usize::from(known.took[1] < known.took[0]);
        let unknown = known.took.iter().position(|&took| took == 0);
        WAYS[match unknown {
            Some(way) => way,
            None if turn == 0 => 1 - better,
            None => better,
        }]
    }

    /// Notes how long it took.
    pub(super) fn note(&self, bytes: usize, stores: Stores, took: Duration) {
        let mut all = lock(&self.0);
        let way = usize::from(stores == Stores::Streaming);
        let mean = &mut all[bytes.ilog2() as usize].took[way];
        let took = (took.as_nanos() as u64).max(1);
        *mean = if *mean == 0 {
            took
        } else {
            (*mean + took).div_ceil(2)
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_faster_way_is_taken_and_the_other_tried_now_and_then() {
        let choices = Choices::default();
        let mut streamed = 0;
        for operation in 0..1000 {
            let stores = choices.choose(100_000);
            // After half of them it is the other way round.
            let cached_is_fast = operation < 500;
            let fast = (stores == Stores::Cached) == cached_is_fast;
            choices.note(
                100_000,
                stores,
                Duration::from_nanos(if fast { 100 } else { 500 }),
            );
            streamed += u32::from(stores == Stores::Streaming);
        }
        assert!((350..510).contains(&streamed), "{streamed}");
        assert_eq!(
            choices.choose(1),
            Stores::Cached,
            "sizes do not know of each other"
        );
    }
}
