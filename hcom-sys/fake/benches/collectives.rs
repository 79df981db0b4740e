//! Times of the collectives on rank processes, one benchmark for each row of the table in docs/performance.md.
//!
//! `cargo bench -p hcom-fake`. Rank 0 measures; the others follow it. `hcom bench` measures the same with ratios to
//! other libraries and to the bound of the machine.

#![expect(unsafe_code, reason = "calls the C interface")]

#[path = "../tests/support/mod.rs"]
mod support;

use std::hint::black_box;
use std::time::{Duration, Instant};

use criterion::{BenchmarkId, Criterion, Throughput};
use hcom_sys::bindings::{self as sys, HcclDataType};
use support::api::{Buffer, Comm, Stream, hccl};
use support::{Rank, equip, processes};

/// What one operation is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Operation {
    AllReduce(HcclDataType),
    AllGather,
    ReduceScatter,
    AllToAll,
    Broadcast,
}

/// What happens around it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    /// Queued back to back on buffers that stay as they are.
    Queued,
    /// One call at a time.
    Synchronized,
    /// Every rank rewrites its input first, which is not counted.
    Owned,
    /// The rewriting and the reading of the result count.
    Whole,
    /// The other ranks call and then compute for two milliseconds without synchronising; the wait of rank 0 counts.
    BusyPeers,
}

struct Case {
    name: &'static str,
    operation: Operation,
    mode: Mode,
    sizes: &'static [usize],
}

const F32: HcclDataType = sys::HCCL_DATA_TYPE_FP32;

const CASES: &[Case] = &[
    case(
        "reused",
        Operation::AllReduce(F32),
        Mode::Queued,
        &[8, 1 << 10, 16 << 10, 256 << 10, 1 << 20, 16 << 20],
    ),
    case(
        "synchronized",
        Operation::AllReduce(F32),
        Mode::Synchronized,
        &[8, 1 << 10],
    ),
    case(
        "owned",
        Operation::AllReduce(F32),
        Mode::Owned,
        &[16 << 10, 256 << 10, 1 << 20, 16 << 20],
    ),
    case(
        "whole",
        Operation::AllReduce(F32),
        Mode::Whole,
        &[16 << 10, 256 << 10, 1 << 20, 16 << 20],
    ),
    case(
        "f16",
        Operation::AllReduce(sys::HCCL_DATA_TYPE_FP16),
        Mode::Queued,
        &[1 << 20],
    ),
    case(
        "bf16",
        Operation::AllReduce(sys::HCCL_DATA_TYPE_BFP16),
        Mode::Queued,
        &[1 << 20],
    ),
    case(
        "all_gather",
        Operation::AllGather,
        Mode::Owned,
        &[16 << 10, 1 << 20, 16 << 20],
    ),
    case(
        "reduce_scatter",
        Operation::ReduceScatter,
        Mode::Owned,
        &[16 << 10, 1 << 20, 16 << 20],
    ),
    case(
        "all_to_all",
        Operation::AllToAll,
        Mode::Owned,
        &[16 << 10, 1 << 20, 16 << 20],
    ),
    case(
        "broadcast",
        Operation::Broadcast,
        Mode::Owned,
        &[16 << 10, 1 << 20, 16 << 20],
    ),
    case(
        "busy_peers",
        Operation::AllReduce(F32),
        Mode::BusyPeers,
        &[8, 1 << 20],
    ),
];

const fn case(
    name: &'static str,
    operation: Operation,
    mode: Mode,
    sizes: &'static [usize],
) -> Case {
    Case {
        name,
        operation,
        mode,
        sizes,
    }
}

fn main() {
    for size in [2, 4] {
        // A rank process only runs the round it was started for.
        if std::env::var("ROUND").is_ok_and(|running| running != size.to_string()) {
            continue;
        }
        let round = size.to_string();
        processes(size, "bench", &[("ROUND", &round)], |rank| {
            let place = Place::new(&rank);
            let mut criterion = Criterion::default()
                .warm_up_time(Duration::from_millis(100))
                .measurement_time(Duration::from_millis(400))
                .sample_size(10);
            for case in CASES {
                for &bytes in case.sizes {
                    place.measure(&mut criterion, case, bytes);
                }
            }
        });
    }
}

/// One rank with everything that it needs.
struct Place {
    rank: u32,
    ranks: usize,
    comm: Comm,
    stream: Stream,
    /// How many operations come next, as rank 0 says; 0 ends a benchmark.
    count: Buffer,
}

impl Place {
    fn new(rank: &Rank) -> Self {
        let (comm, stream) = equip(rank);
        Self {
            rank: rank.rank,
            ranks: rank.size as usize,
            comm,
            stream,
            count: Buffer::of(&[0u64]),
        }
    }

    fn broadcast(&self, buffer: &Buffer, count: usize, dtype: HcclDataType) {
        let (comm, stream) = (self.comm.0, self.stream.0);
        hccl(c!(HcclBroadcast(
            buffer.0,
            count as u64,
            dtype,
            0,
            comm,
            stream
        )))
        .unwrap();
    }

    /// Rank 0 says how many operations come next; the others hear it.
    fn agree(&self, operations: u64) -> u64 {
        self.count.write(&[operations]);
        self.broadcast(&self.count, 1, sys::HCCL_DATA_TYPE_UINT64);
        self.stream.synchronize().unwrap();
        self.count.read::<u64>(1)[0]
    }

    fn measure(&self, criterion: &mut Criterion, case: &Case, bytes: usize) {
        let (input, output) = (Buffer::of(&vec![0u8; bytes]), Buffer::of(&vec![0u8; bytes]));
        let run = |operations| self.run(case, bytes, &input, &output, operations);
        if self.rank > 0 {
            loop {
                match self.agree(0) {
                    0 => return,
                    operations => run(operations),
                };
            }
        }
        let mut group = criterion.benchmark_group(format!("{} ranks/{}", self.ranks, case.name));
        group.throughput(Throughput::Bytes(bytes as u64));
        group.bench_function(BenchmarkId::from_parameter(bytes), |bencher| {
            bencher.iter_custom(|operations| run(self.agree(operations)));
        });
        group.finish();
        self.agree(0);
    }

    fn run(
        &self,
        case: &Case,
        bytes: usize,
        input: &Buffer,
        output: &Buffer,
        operations: u64,
    ) -> Duration {
        let values = vec![1u8; bytes];
        // A broadcast has one buffer, and only the root's counts.
        let owned = match case.operation {
            Operation::Broadcast if self.rank > 0 => None,
            Operation::Broadcast => Some(output),
            _ => Some(input),
        };
        let rewrite = || owned.into_iter().for_each(|buffer| buffer.write(&values));
        let mut spent = Duration::ZERO;
        self.meet();
        let begin = Instant::now();
        for _ in 0..operations {
            match case.mode {
                Mode::Queued => self.queue(case.operation, input, output, bytes),
                Mode::Synchronized => {
                    self.queue(case.operation, input, output, bytes);
                    self.stream.synchronize().unwrap();
                }
                Mode::Owned | Mode::BusyPeers => {
                    rewrite();
                    self.meet();
                    let begin = Instant::now();
                    self.queue(case.operation, input, output, bytes);
                    while case.mode == Mode::BusyPeers
                        && self.rank > 0
                        && begin.elapsed() < Duration::from_millis(2)
                    {
                        std::hint::spin_loop();
                    }
                    self.stream.synchronize().unwrap();
                    spent += begin.elapsed();
                }
                Mode::Whole => {
                    rewrite();
                    self.queue(case.operation, input, output, bytes);
                    self.stream.synchronize().unwrap();
                    black_box(output.read::<u8>(bytes));
                }
            }
        }
        self.stream.synchronize().unwrap();
        match case.mode {
            Mode::Owned | Mode::BusyPeers => spent,
            _ => begin.elapsed(),
        }
    }

    fn meet(&self) {
        self.comm.barrier(&self.stream).unwrap();
        self.stream.synchronize().unwrap();
    }

    fn queue(&self, operation: Operation, input: &Buffer, output: &Buffer, bytes: usize) {
        let (comm, stream) = (self.comm.0, self.stream.0);
        let (send, recv) = (input.0, output.0);
        let (count, sum) = (bytes as u64 / 4, sys::HCCL_REDUCE_SUM);
        let block = count / self.ranks as u64;
        let code = match operation {
            Operation::AllReduce(dtype) => {
                let count = if dtype == F32 { count } else { count * 2 };
                c!(HcclAllReduce(send, recv, count, dtype, sum, comm, stream))
            }
            Operation::AllGather => c!(HcclAllGather(send, recv, block, F32, comm, stream)),
            Operation::ReduceScatter => {
                c!(HcclReduceScatter(send, recv, block, F32, sum, comm, stream))
            }
            Operation::AllToAll => {
                c!(HcclAlltoAll(
                    send, block, F32, recv, block, F32, comm, stream
                ))
            }
            Operation::Broadcast => c!(HcclBroadcast(recv, count, F32, 0, comm, stream)),
        };
        hccl(code).unwrap();
    }
}
