//! Collectives with distinct values per rank and element, on threads and on processes.

#![expect(unsafe_code, reason = "calls the C interface")]

mod support;

use half::{bf16, f16};
use hcom_sys::bindings as sys;
use support::api::{Buffer, Stream, hccl};
use support::{KINDS, Kind, Rank, equip, ranks};

/// Counts around every boundary: one element, unaligned, the largest slot, the smallest direct, large.
const COUNTS: [usize; 8] = [1, 3, 31, 1000, 1024, 1025, 4099, 70_001];

fn value(rank: u32, index: usize) -> f32 {
    (rank as usize * 1000 + index % 997) as f32
}

fn row(rank: u32, count: usize) -> Vec<f32> {
    (0..count).map(|index| value(rank, index)).collect()
}

fn all_reduce_everything(rank: &Rank) {
    let (comm, stream) = equip(rank);
    let f32s = sys::HCCL_DATA_TYPE_FP32;
    for count in COUNTS {
        let send = Buffer::of(&row(rank.rank, count));
        let recv = Buffer::new(count * 4);
        comm.all_reduce(
            &send,
            &recv,
            count as u64,
            f32s,
            sys::HCCL_REDUCE_SUM,
            &stream,
        )
        .unwrap();
        stream.synchronize().unwrap();
        let sum: Vec<f32> = (0..count)
            .map(|index| (0..rank.size).map(|rank| value(rank, index)).sum())
            .collect();
        assert_eq!(recv.read::<f32>(count), sum, "{count} elements");
        assert_eq!(
            send.read::<f32>(count),
            row(rank.rank, count),
            "the input stays"
        );
        for (op, best) in [
            (sys::HCCL_REDUCE_MAX, value(rank.size - 1, 0) as usize),
            (sys::HCCL_REDUCE_MIN, 0),
        ] {
            comm.all_reduce(&send, &recv, count as u64, f32s, op, &stream)
                .unwrap();
            stream.synchronize().unwrap();
            let expected: Vec<f32> = (0..count)
                .map(|index| (best + index % 997) as f32)
                .collect();
            assert_eq!(recv.read::<f32>(count), expected);
        }
        comm.all_reduce(
            &send,
            &send,
            count as u64,
            f32s,
            sys::HCCL_REDUCE_SUM,
            &stream,
        )
        .unwrap();
        stream.synchronize().unwrap();
        assert_eq!(send.read::<f32>(count), sum, "in place");
    }
}

#[test]
fn all_reduce_f32_on_two_ranks() {
    for kind in KINDS {
        ranks(kind, 2, "all_reduce_f32_on_two_ranks", |rank| {
            all_reduce_everything(&rank)
        });
    }
}

#[test]
fn all_reduce_f32_on_four_ranks() {
    for kind in KINDS {
        ranks(kind, 4, "all_reduce_f32_on_four_ranks", |rank| {
            all_reduce_everything(&rank)
        });
    }
}

#[test]
fn a_lone_rank_gets_its_own_data() {
    ranks(Kind::Threads, 1, "a_lone_rank_gets_its_own_data", |rank| {
        all_reduce_everything(&rank)
    });
}

/// Reduces one row of each rank and checks that all ranks get these very bytes.
fn reduces<T: Copy + PartialEq + std::fmt::Debug>(
    rank: &Rank,
    dtype: sys::HcclDataType,
    op: sys::HcclReduceOp,
    rows: &[&[T]],
    expected: &[T],
) {
    let (comm, stream) = equip(rank);
    let buffer = Buffer::of(rows[rank.rank as usize]);
    let count = expected.len();
    comm.all_reduce(&buffer, &buffer, count as u64, dtype, op, &stream)
        .unwrap();
    stream.synchronize().unwrap();
    assert_eq!(buffer.read::<T>(count), expected);
}

#[test]
fn types_keep_their_rules() {
    for kind in KINDS {
        ranks(kind, 3, "types_keep_their_rules", |rank| {
            let b = bf16::from_f32;
            let h = f16::from_f32;
            let sum = sys::HCCL_REDUCE_SUM;
            let bs: [&[bf16]; 3] = [&[b(256.0), b(1.5)], &[b(1.0), b(2.0)], &[b(1.0), b(-8.0)]];
            reduces(
                &rank,
                sys::HCCL_DATA_TYPE_BFP16,
                sum,
                &bs,
                &[b(258.0), b(-4.5)],
            );
            let hs: [&[f16]; 3] = [&[h(2048.0)], &[h(1.0)], &[h(1.0)]];
            reduces(&rank, sys::HCCL_DATA_TYPE_FP16, sum, &hs, &[h(2050.0)]);
            let is: [&[i32]; 3] = [&[i32::MAX, 2], &[1, 3], &[0, -7]];
            reduces(&rank, sys::HCCL_DATA_TYPE_INT32, sum, &is, &[i32::MIN, -2]);
            let prod = sys::HCCL_REDUCE_PROD;
            reduces(&rank, sys::HCCL_DATA_TYPE_INT32, prod, &is, &[0, -42]);
            let ls: [&[i64]; 3] = [&[1 << 40, -5], &[1 << 41, 9], &[3, -6]];
            reduces(
                &rank,
                sys::HCCL_DATA_TYPE_INT64,
                sum,
                &ls,
                &[(3 << 40) + 3, -2],
            );
            reduces(
                &rank,
                sys::HCCL_DATA_TYPE_INT64,
                sys::HCCL_REDUCE_MIN,
                &ls,
                &[3, -6],
            );
        });
    }
}

#[test]
fn a_nan_reaches_everybody() {
    for kind in KINDS {
        ranks(kind, 4, "a_nan_reaches_everybody", |rank| {
            let (comm, stream) = equip(&rank);
            // Element e has its NaN on rank e.
            let row: Vec<f32> = (0..4)
                .map(|e| {
                    if e == rank.rank {
                        f32::NAN
                    } else {
                        (rank.rank + 1) as f32
                    }
                })
                .collect();
            for op in [sys::HCCL_REDUCE_MIN, sys::HCCL_REDUCE_MAX] {
                let (send, recv) = (Buffer::of(&row), Buffer::new(16));
                comm.all_reduce(&send, &recv, 4, sys::HCCL_DATA_TYPE_FP32, op, &stream)
                    .unwrap();
                stream.synchronize().unwrap();
                assert!(recv.read::<f32>(4).iter().all(|value| value.is_nan()));
            }
        });
    }
}

#[test]
fn all_gather_keeps_rank_order() {
    for kind in KINDS {
        ranks(kind, 4, "all_gather_keeps_rank_order", |rank| {
            let (comm, stream) = equip(&rank);
            for count in COUNTS {
                let expected: Vec<f32> = (0..rank.size).flat_map(|rank| row(rank, count)).collect();
                let send = Buffer::of(&row(rank.rank, count));
                let recv = Buffer::new(count * 4 * 4);
                let dtype = sys::HCCL_DATA_TYPE_FP32;
                hccl(c!(HcclAllGather(
                    send.0,
                    recv.0,
                    count as u64,
                    dtype,
                    comm.0,
                    stream.0
                )))
                .unwrap();
                stream.synchronize().unwrap();
                assert_eq!(recv.read::<f32>(count * 4), expected);
                // In place: the own block lies where it belongs.
                let whole = Buffer::of(&vec![-1f32; count * 4]);
                let own = whole.at(rank.rank as usize * count * 4);
                let kind = sys::ACL_MEMCPY_DEVICE_TO_DEVICE;
                assert_eq!(c!(aclrtMemcpy(own, count * 4, send.0, count * 4, kind)), 0);
                hccl(c!(HcclAllGather(
                    own,
                    whole.0,
                    count as u64,
                    dtype,
                    comm.0,
                    stream.0
                )))
                .unwrap();
                stream.synchronize().unwrap();
                assert_eq!(whole.read::<f32>(count * 4), expected, "in place");
            }
        });
    }
}

#[test]
fn reduce_scatter_gives_each_its_block() {
    for kind in KINDS {
        ranks(kind, 4, "reduce_scatter_gives_each_its_block", |rank| {
            let (comm, stream) = equip(&rank);
            for count in COUNTS {
                let rows: Vec<Vec<f32>> = (0..4).map(|rank| row(rank, count * 4)).collect();
                let expected: Vec<f32> = (0..count)
                    .map(|index| {
                        rows.iter()
                            .map(|row| row[rank.rank as usize * count + index])
                            .sum()
                    })
                    .collect();
                let send = Buffer::of(&rows[rank.rank as usize]);
                let recv = Buffer::new(count * 4);
                let (dtype, op) = (sys::HCCL_DATA_TYPE_FP32, sys::HCCL_REDUCE_SUM);
                hccl(c!(HcclReduceScatter(
                    send.0,
                    recv.0,
                    count as u64,
                    dtype,
                    op,
                    comm.0,
                    stream.0
                )))
                .unwrap();
                stream.synchronize().unwrap();
                assert_eq!(recv.read::<f32>(count), expected);
                // In place, at the start of the input: not this rank's own block.
                hccl(c!(HcclReduceScatter(
                    send.0,
                    send.0,
                    count as u64,
                    dtype,
                    op,
                    comm.0,
                    stream.0
                )))
                .unwrap();
                stream.synchronize().unwrap();
                assert_eq!(send.read::<f32>(count), expected, "in place");
            }
        });
    }
}

#[test]
fn broadcast_from_every_root() {
    for kind in KINDS {
        ranks(kind, 3, "broadcast_from_every_root", |rank| {
            let (comm, stream) = equip(&rank);
            for count in COUNTS {
                for root in 0..3 {
                    let buffer = Buffer::of(&row(rank.rank, count));
                    let dtype = sys::HCCL_DATA_TYPE_UINT32;
                    hccl(c!(HcclBroadcast(
                        buffer.0,
                        count as u64,
                        dtype,
                        root,
                        comm.0,
                        stream.0
                    )))
                    .unwrap();
                    comm.barrier(&stream).unwrap();
                    stream.synchronize().unwrap();
                    assert_eq!(buffer.read::<f32>(count), row(root, count));
                }
            }
        });
    }
}

/// A rank may overwrite its input as soon as its own collective is done: the peers have read it by then.
#[test]
fn an_input_may_change_once_the_collective_is_done() {
    for kind in KINDS {
        ranks(
            kind,
            4,
            "an_input_may_change_once_the_collective_is_done",
            |rank| {
                let (comm, stream) = equip(&rank);
                let dtype = sys::HCCL_DATA_TYPE_FP32;
                for count in [5usize, 3000] {
                    let (send, recv) = (Buffer::new(count * 4), Buffer::new(count * 4));
                    for round in 0..300 {
                        send.write(&vec![(round * 10 + rank.rank) as f32; count]);
                        comm.all_reduce(
                            &send,
                            &recv,
                            count as u64,
                            dtype,
                            sys::HCCL_REDUCE_SUM,
                            &stream,
                        )
                        .unwrap();
                        assert_eq!(
                            c!(aclrtMemsetAsync(
                                send.0,
                                count * 4,
                                0xff,
                                count * 4,
                                stream.0
                            )),
                            0
                        );
                        stream.synchronize().unwrap();
                        assert_eq!(
                            recv.read::<f32>(count),
                            vec![(round * 40 + 6) as f32; count]
                        );
                    }
                }
            },
        );
    }
}

#[test]
fn two_communicators_do_not_mix() {
    for kind in KINDS {
        ranks(kind, 2, "two_communicators_do_not_mix", |rank| {
            let (first, stream) = equip(&rank);
            let (second, other) = equip(&rank);
            let dtype = sys::HCCL_DATA_TYPE_INT32;
            let buffers: Vec<Buffer> = (0..40)
                .map(|index| Buffer::of(&[index * 2 + rank.rank as i32, index]))
                .collect();
            for (index, buffer) in buffers.iter().enumerate() {
                let (comm, stream) = if index % 2 == 0 {
                    (&first, &stream)
                } else {
                    (&second, &other)
                };
                comm.all_reduce(buffer, buffer, 2, dtype, sys::HCCL_REDUCE_SUM, stream)
                    .unwrap();
            }
            // One communicator from two streams runs in the order of the calls.
            first
                .all_reduce(
                    &buffers[0],
                    &buffers[0],
                    2,
                    dtype,
                    sys::HCCL_REDUCE_SUM,
                    &other,
                )
                .unwrap();
            stream.synchronize().unwrap();
            other.synchronize().unwrap();
            for (index, buffer) in buffers.iter().enumerate() {
                let index = index as i32;
                let factor = if index == 0 { 2 } else { 1 };
                assert_eq!(
                    buffer.read::<i32>(2),
                    [factor * (index * 4 + 1), factor * index * 2]
                );
            }
        });
    }
}

/// Calls on one communicator run in the order of the calls, on whatever streams they are.
#[test]
fn two_streams_on_one_communicator_run_in_the_order_of_the_calls() {
    for kind in KINDS {
        let test = "two_streams_on_one_communicator_run_in_the_order_of_the_calls";
        ranks(kind, 2, test, |rank| {
            let (comm, first) = equip(&rank);
            let second = Stream::create();
            let own = rank.rank as f32;
            let (a, b) = (Buffer::new(12), Buffer::new(12));
            for round in 0..500 {
                let round = round as f32;
                a.write(&[own, round, 1.0]);
                b.write(&[own + 10.0, round, 2.0]);
                comm.all_reduce(
                    &a,
                    &a,
                    3,
                    sys::HCCL_DATA_TYPE_FP32,
                    sys::HCCL_REDUCE_SUM,
                    &first,
                )
                .unwrap();
                comm.all_reduce(
                    &b,
                    &b,
                    3,
                    sys::HCCL_DATA_TYPE_FP32,
                    sys::HCCL_REDUCE_MAX,
                    &second,
                )
                .unwrap();
                second.synchronize().unwrap();
                first.synchronize().unwrap();
                assert_eq!(a.read::<f32>(3), [1.0, 2.0 * round, 2.0]);
                assert_eq!(b.read::<f32>(3), [11.0, round, 2.0]);
            }
        });
    }
}
