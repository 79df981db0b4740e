//! Times of all_reduce on rank processes, back to back and one call at a time.
//!
//! `cargo bench -p hcom-fake`. Microseconds per operation, the best of five rounds on rank 0.

#![expect(unsafe_code, reason = "calls the C interface")]

#[path = "../tests/support/mod.rs"]
mod support;

use std::time::Instant;

use hcom_sys::bindings as sys;
use support::api::{Buffer, Comm, Stream};
use support::{equip, processes};

const SIZES: [usize; 4] = [8, 64 << 10, 1 << 20, 4 << 20];

fn main() {
    for size in [2, 4] {
        // A rank process only runs the round it was started for.
        if std::env::var("ROUND").is_ok_and(|running| running != size.to_string()) {
            continue;
        }
        processes(size, "bench", &[("ROUND", &size.to_string())], |rank| {
            let (comm, stream) = equip(&rank);
            for bytes in SIZES {
                let count = bytes / 4;
                let (send, recv) = (
                    Buffer::of(&vec![1f32; count]),
                    Buffer::of(&vec![0f32; count]),
                );
                let rounds = (20_000_000 / (bytes + 20_000)).clamp(20, 1000);
                let queued = best(|| many(&comm, &stream, &send, &recv, count, rounds, false))
                    / rounds as f64;
                let single = best(|| many(&comm, &stream, &send, &recv, count, rounds, true))
                    / rounds as f64;
                assert!(
                    recv.read::<f32>(count)
                        .iter()
                        .all(|&value| value == size as f32)
                );
                if rank.rank == 0 {
                    eprintln!(
                        "{size} ranks, {bytes:>8} B: back to back {queued:9.2} us, call and synchronise {single:9.2} us"
                    );
                }
            }
        });
    }
}

fn best(mut round: impl FnMut() -> f64) -> f64 {
    (0..5).map(|_| round()).fold(f64::INFINITY, f64::min)
}

fn many(
    comm: &Comm,
    stream: &Stream,
    send: &Buffer,
    recv: &Buffer,
    count: usize,
    rounds: usize,
    each: bool,
) -> f64 {
    comm.barrier(stream).unwrap();
    stream.synchronize().unwrap();
    let begun = Instant::now();
    for _ in 0..rounds {
        comm.all_reduce(
            send,
            recv,
            count as u64,
            sys::HCCL_DATA_TYPE_FP32,
            sys::HCCL_REDUCE_SUM,
            stream,
        )
        .unwrap();
        if each {
            stream.synchronize().unwrap();
        }
    }
    stream.synchronize().unwrap();
    begun.elapsed().as_secs_f64() * 1e6
}
