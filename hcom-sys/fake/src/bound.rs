//! What the machine allows a collective: its kernel alone, without a library around it.
//!
//! Threads of this process, tied to the cores, stand for the ranks. Every buffer can be read and written by all, each
//! byte is read and written once, and there is one spin barrier before and one after. No implementation between
//! processes can be faster by much; the ratio to this figure tells how much is left.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use hcom_sys::bindings::{self as sys, HcclDataType};

use crate::comm::reduce::reduce;
use crate::regime;
use crate::shm::Region;
use crate::soc;
use crate::span::Span;
use crate::span::combine::Stores;

/// Bytes written or read at a time where a whole buffer is touched.
const CHUNK: usize = 32 << 10;

/// Which collective.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// Everybody gets the sum of all buffers.
    AllReduce,
    /// Everybody gets all blocks.
    AllGather,
    /// Everybody gets a block of the sum.
    ReduceScatter,
    /// Everybody gets a block of every buffer.
    AllToAll,
    /// Everybody gets the buffer of rank 0.
    Broadcast,
}

/// What happens between two operations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Nothing.
    Reused,
    /// The inputs are written anew, which is not counted.
    Owned,
    /// The inputs are written anew and the results read, and both count.
    Whole,
}

/// What is measured.
#[derive(Clone, Copy, Debug)]
pub struct Case {
    /// The collective.
    pub operation: Operation,
    /// How it is used.
    pub mode: Mode,
    /// Ranks.
    pub ranks: usize,
    /// Bytes of the larger of a rank's two buffers: a multiple of the ranks and of the element.
    pub bytes: usize,
    /// Type of the elements.
    pub dtype: HcclDataType,
    /// How long to measure.
    pub budget: Duration,
}

/// Microseconds of one operation, the median over samples; the better of stores through the caches and past them.
/// `None` when there is no memory for the buffers or the type has no size.
pub fn measure(case: &Case) -> Option<f64> {
    soc::element_bytes(case.dtype)?;
    let half = Case {
        budget: case.budget / 2,
        ..*case
    };
    let bench = Bench::new(half)?;
    let cached = bench.median(Stores::Cached);
    Some(cached.min(bench.median(Stores::Streaming)))
}

struct Bench {
    case: Case,
    threads: usize,
    input: Vec<Span>,
    output: Vec<Span>,
    arrived: Padded,
    phase: Padded,
}

#[derive(Default)]
#[repr(align(128))]
struct Padded(AtomicUsize);

impl Bench {
    fn new(case: Case) -> Option<Self> {
        let each = case.bytes.next_multiple_of(4096);
        let region = Region::create("hcom-fake-bound", each * 2 * case.ranks).ok()?;
        let buffer = |index: usize| Span::inside(&region, index * each, case.bytes);
        let buffers = |first: usize| {
            (first..first + case.ranks)
                .map(buffer)
                .collect::<Option<_>>()
        };
        let (input, output): (Vec<Span>, Vec<Span>) = (buffers(0)?, buffers(case.ranks)?);
        // The pages are there before anything is measured.
        input.iter().chain(&output).for_each(|span| span.fill(0));
        Some(Self {
            threads: regime::cores().len().clamp(1, case.ranks),
            case,
            input,
            output,
            arrived: Padded::default(),
            phase: Padded::default(),
        })
    }

    fn barrier(&self, phase: &mut usize) {
        *phase += 1;
        if self.arrived.0.fetch_add(1, Ordering::AcqRel) + 1 == self.threads {
            self.arrived.0.store(0, Ordering::Relaxed);
            self.phase.0.store(*phase, Ordering::Release);
        }
        let mut looks = 0u32;
        while self.phase.0.load(Ordering::Acquire) < *phase {
            std::hint::spin_loop();
            looks += 1;
            if looks.is_multiple_of(1 << 16) {
                thread::yield_now();
            }
        }
    }

    /// The ranks that thread `thread` stands for.
    fn own(&self, thread: usize) -> impl Iterator<Item = usize> {
        (thread..self.case.ranks).step_by(self.threads)
    }

    fn rewrite(&self, thread: usize, chunk: &[u8]) {
        let block = self.case.bytes / self.case.ranks;
        for rank in self.own(thread) {
            let bytes = match self.case.operation {
                Operation::AllGather => block,
                Operation::Broadcast if rank > 0 => 0,
                _ => self.case.bytes,
            };
            for start in (0..bytes).step_by(CHUNK) {
                self.input[rank].write(start, &chunk[..CHUNK.min(bytes - start)]);
            }
        }
    }

    fn read_out(&self, thread: usize, room: &mut [u8]) {
        let block = self.case.bytes / self.case.ranks;
        for rank in self.own(thread) {
            let bytes = match self.case.operation {
                Operation::ReduceScatter => block,
                _ => self.case.bytes,
            };
            for start in (0..bytes).step_by(CHUNK) {
                self.output[rank].read(start, &mut room[..CHUNK.min(bytes - start)]);
            }
        }
        std::hint::black_box(room);
    }

    /// The part of all data that thread `thread` takes where they share one range.
    fn share(&self, thread: usize) -> (usize, usize) {
        let each = self
            .case
            .bytes
            .div_ceil(self.threads)
            .next_multiple_of(crate::simd::LINE);
        let start = (each * thread).min(self.case.bytes);
        (start, each.min(self.case.bytes - start))
    }

    fn work(&self, thread: usize, stores: Stores) {
        let Case {
            bytes,
            ranks,
            dtype,
            ..
        } = self.case;
        let block = bytes / ranks;
        let parts = |spans: &[Span], start: usize, bytes: usize| {
            spans
                .iter()
                .map(|span| span.part(start, bytes))
                .collect::<Vec<_>>()
        };
        let sum = |targets: &[Span], sources: &[Span]| {
            reduce(dtype, sys::HCCL_REDUCE_SUM, targets, sources, stores);
        };
        match self.case.operation {
            Operation::AllReduce => {
                let (start, bytes) = self.share(thread);
                sum(
                    &parts(&self.output, start, bytes),
                    &parts(&self.input, start, bytes),
                );
            }
            Operation::ReduceScatter => {
                for rank in self.own(thread) {
                    let target = self.output[rank].part(0, block);
                    sum(&[target], &parts(&self.input, rank * block, block));
                }
            }
            Operation::AllGather => {
                for rank in self.own(thread) {
                    for source in 0..ranks {
                        let target = self.output[rank].part(source * block, block);
                        target.copy_from(&self.input[source].part(0, block));
                    }
                }
            }
            Operation::AllToAll => {
                for rank in self.own(thread) {
                    for source in 0..ranks {
                        let target = self.output[rank].part(source * block, block);
                        target.copy_from(&self.input[source].part(rank * block, block));
                    }
                }
            }
            Operation::Broadcast => {
                let (start, bytes) = self.share(thread);
                for rank in 1..ranks {
                    let target = self.output[rank].part(start, bytes);
                    target.copy_from(&self.input[0].part(start, bytes));
                }
            }
        }
    }

    /// Microseconds of one of `batch` operations.
    fn sample(&self, thread: usize, phase: &mut usize, batch: u32, stores: Stores) -> f64 {
        let (chunk, mut room) = (vec![1u8; CHUNK], vec![0u8; CHUNK]);
        let mut spent = Duration::ZERO;
        self.barrier(phase);
        let whole = Instant::now();
        for _ in 0..batch {
            if self.case.mode != Mode::Reused {
                self.rewrite(thread, &chunk);
            }
            self.barrier(phase);
            let begin = Instant::now();
            self.work(thread, stores);
            self.barrier(phase);
            spent += begin.elapsed();
            if self.case.mode == Mode::Whole {
                self.read_out(thread, &mut room);
            }
        }
        if self.case.mode != Mode::Owned {
            spent = whole.elapsed();
        }
        spent.as_secs_f64() * 1e6 / f64::from(batch)
    }

    fn median(&self, stores: Stores) -> f64 {
        let estimate = self.samples(3, 3, stores).into_iter().fold(0.05, f64::max);
        let batch = (400.0 / estimate).clamp(1.0, 200.0);
        let samples = self.case.budget.as_secs_f64() * 1e6 / (estimate * batch);
        let mut all = self.samples(samples.clamp(5.0, 200.0) as usize, batch as u32, stores);
        all.sort_by(f64::total_cmp);
        all[all.len() / 2]
    }

    /// Samples of the slowest thread.
    fn samples(&self, samples: usize, batch: u32, stores: Stores) -> Vec<f64> {
        let cores = regime::cores();
        self.phase.0.store(0, Ordering::SeqCst);
        let one = |thread: usize| {
            regime::pin(cores[thread % cores.len()]);
            let mut phase = 0;
            (0..samples)
                .map(|_| self.sample(thread, &mut phase, batch, stores))
                .collect::<Vec<_>>()
        };
        thread::scope(|scope| {
            let one = &one;
            let all: Vec<_> = (0..self.threads)
                .map(|thread| scope.spawn(move || one(thread)))
                .collect();
            all.into_iter()
                .map(|thread| thread.join().expect("the kernels do not panic"))
                .reduce(|a, b| a.iter().zip(b).map(|(a, b)| a.max(b)).collect())
                .unwrap_or_default()
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_operation_has_a_bound() {
        for operation in [
            Operation::AllReduce,
            Operation::AllGather,
            Operation::ReduceScatter,
            Operation::AllToAll,
            Operation::Broadcast,
        ] {
            for mode in [Mode::Reused, Mode::Owned, Mode::Whole] {
                let case = Case {
                    operation,
                    mode,
                    ranks: 2,
                    bytes: 4096,
                    dtype: sys::HCCL_DATA_TYPE_FP32,
                    budget: Duration::from_millis(1),
                };
                assert!(measure(&case).unwrap() > 0.0);
            }
        }
    }

    #[test]
    fn the_kernels_compute_what_they_are_measured_for() {
        let case = Case {
            operation: Operation::AllReduce,
            mode: Mode::Reused,
            ranks: 3,
            bytes: 1200,
            dtype: sys::HCCL_DATA_TYPE_FP32,
            budget: Duration::ZERO,
        };
        let bench = Bench::new(case).unwrap();
        for (rank, span) in bench.input.iter().enumerate() {
            span.write(0, &vec![rank as f32 + 1.0; 300]);
        }
        for thread in 0..bench.threads {
            bench.work(thread, Stores::Streaming);
        }
        for span in &bench.output {
            assert_eq!(span.to_vec::<f32>(), vec![6.0; 300]);
        }
    }
}
