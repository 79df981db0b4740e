//! Collectives whose ranks have different parts: reduce, scatter, all_to_all and the uneven ones, with distinct values
//! per rank and element, on threads and on processes.

#![expect(unsafe_code, reason = "calls the C interface")]

mod support;

use std::ffi::c_void;

use half::bf16;
use hcom_sys::bindings as sys;
use support::api::{Buffer, Comm, Stream, hccl};
use support::{KINDS, Kind, Rank, equip, ranks};

/// Counts around every boundary: one element, unaligned, the largest slot on four ranks, direct, large.
const COUNTS: [usize; 6] = [1, 3, 256, 257, 4099, 70_001];
const F32: sys::HcclDataType = sys::HCCL_DATA_TYPE_FP32;
const I32: sys::HcclDataType = sys::HCCL_DATA_TYPE_INT32;
const SUM: sys::HcclReduceOp = sys::HCCL_REDUCE_SUM;

/// Element `index` of what `from` has for `to`.
fn value(from: u32, to: u32, index: usize) -> i32 {
    (from * 1_000_000 + to * 100_000) as i32 + (index % 99_991) as i32
}

fn block(from: u32, to: u32, count: usize) -> Vec<i32> {
    (0..count).map(|index| value(from, to, index)).collect()
}

fn pointer(list: &[u64]) -> *const c_void {
    list.as_ptr().cast()
}

#[test]
fn reduce_gives_the_root_everything_and_others_nothing() {
    for kind in KINDS {
        ranks(
            kind,
            3,
            "reduce_gives_the_root_everything_and_others_nothing",
            |rank| {
                let (comm, stream) = equip(&rank);
                for (round, count) in COUNTS.into_iter().chain([1024, 1025]).enumerate() {
                    let root = round as u32 % rank.size;
                    let sum: Vec<i32> = (0..count)
                        .map(|index| (0..rank.size).map(|from| value(from, 0, index)).sum())
                        .collect();
                    let send = Buffer::of(&block(rank.rank, 0, count));
                    let recv = Buffer::of(&vec![-1i32; count]);
                    let reduce = |to: &Buffer| {
                        let count = count as u64;
                        hccl(c!(HcclReduce(
                            send.0, to.0, count, I32, SUM, root, comm.0, stream.0
                        )))
                        .unwrap();
                        stream.synchronize().unwrap();
                    };
                    reduce(&recv);
                    let expected = if rank.rank == root {
                        sum.clone()
                    } else {
                        vec![-1; count]
                    };
                    assert_eq!(recv.read::<i32>(count), expected, "{count} elements");
                    assert_eq!(send.read::<i32>(count), block(rank.rank, 0, count));
                    reduce(&send);
                    let expected = if rank.rank == root {
                        sum
                    } else {
                        block(rank.rank, 0, count)
                    };
                    assert_eq!(send.read::<i32>(count), expected, "in place");
                }
            },
        );
    }
}

#[test]
fn scatter_gives_each_its_block_of_the_root() {
    for kind in KINDS {
        ranks(
            kind,
            4,
            "scatter_gives_each_its_block_of_the_root",
            |rank| {
                let (comm, stream) = equip(&rank);
                for (round, count) in COUNTS.into_iter().enumerate() {
                    let root = (round as u32 + 1) % rank.size;
                    let all: Vec<i32> = (0..4).flat_map(|to| block(root, to, count)).collect();
                    let is_root = rank.rank == root;
                    let send = is_root.then(|| Buffer::of(&all));
                    let from = send.as_ref().map_or(std::ptr::null_mut(), |send| send.0);
                    let recv = Buffer::of(&vec![-1i32; count]);
                    let scatter = |to: *mut c_void| {
                        let count = count as u64;
                        hccl(c!(HcclScatter(
                            from, to, count, I32, root, comm.0, stream.0
                        )))
                        .unwrap();
                        stream.synchronize().unwrap();
                    };
                    scatter(recv.0);
                    assert_eq!(recv.read::<i32>(count), block(root, rank.rank, count));
                    // The root receives in place: at its own block, and over the block of another rank.
                    for place in [root as usize, 0] {
                        let to = if is_root {
                            from.wrapping_byte_add(place * count * 4)
                        } else {
                            recv.0
                        };
                        recv.write(&vec![-1i32; count]);
                        scatter(to);
                        if let Some(send) = &send {
                            let mut expected = all.clone();
                            expected[place * count..][..count]
                                .copy_from_slice(&block(root, root, count));
                            assert_eq!(send.read::<i32>(4 * count), expected, "in place {place}");
                            send.write(&all);
                        } else {
                            assert_eq!(recv.read::<i32>(count), block(root, rank.rank, count));
                        }
                        // The root may only restore its buffer when all have read it, which the collective says itself.
                    }
                }
            },
        );
    }
}

#[test]
fn all_to_all_transposes() {
    for kind in KINDS {
        for size in [2, 4] {
            let name = "all_to_all_transposes";
            if std::env::var("SIZE").is_ok_and(|running| running != size.to_string()) {
                continue;
            }
            let body = |rank: Rank| {
                let (comm, stream) = equip(&rank);
                for count in COUNTS {
                    let row: Vec<i32> = (0..size)
                        .flat_map(|to| block(rank.rank, to, count))
                        .collect();
                    let column: Vec<i32> = (0..size)
                        .flat_map(|from| block(from, rank.rank, count))
                        .collect();
                    let send = Buffer::of(&row);
                    let recv = Buffer::of(&vec![-1i32; row.len()]);
                    let n = count as u64;
                    hccl(c!(HcclAlltoAll(
                        send.0, n, I32, recv.0, n, I32, comm.0, stream.0
                    )))
                    .unwrap();
                    stream.synchronize().unwrap();
                    assert_eq!(recv.read::<i32>(row.len()), column);
                    assert_eq!(send.read::<i32>(row.len()), row);
                }
            };
            match kind {
                Kind::Threads => ranks(kind, size, name, body),
                Kind::Processes => {
                    let ends = support::processes(size, name, &[("SIZE", &size.to_string())], body);
                    assert!(ends.iter().all(|end| end.success()), "{ends:?}");
                }
            }
        }
    }
}

/// How much `from` sends to `to` in round `round`: nothing now and then, and once nothing at all.
fn amount(from: u32, to: u32, round: usize) -> usize {
    match round {
        0 => 0,
        1 => (from as usize * 3 + to as usize * 5) % 4,
        _ => ((from as usize + 1) * (to as usize + 2) * 37 * round) % 501 * (round % 3 * 20 + 1),
    }
}

fn counts(size: u32, of: impl Fn(u32) -> usize) -> Vec<u64> {
    (0..size).map(|rank| of(rank) as u64).collect()
}

/// Starts with a gap before each block.
fn gapped(counts: &[u64]) -> Vec<u64> {
    let mut at = 2;
    let start = |count: &u64| {
        let start = at;
        at += count + 3;
        start
    };
    counts.iter().map(start).collect()
}

fn extent(counts: &[u64], displs: &[u64]) -> usize {
    counts
        .iter()
        .zip(displs)
        .map(|(count, displ)| count + displ)
        .max()
        .unwrap_or(0) as usize
}

fn place(into: &mut [i32], displs: &[u64], blocks: impl Iterator<Item = Vec<i32>>) {
    for (block, &at) in blocks.zip(displs) {
        into[at as usize..][..block.len()].copy_from_slice(&block);
    }
}

#[test]
fn uneven_all_to_all_moves_exactly_the_blocks() {
    for kind in KINDS {
        ranks(
            kind,
            4,
            "uneven_all_to_all_moves_exactly_the_blocks",
            |rank| {
                let (comm, stream) = equip(&rank);
                let (me, size) = (rank.rank, rank.size);
                for round in 0..20 {
                    let sends = counts(size, |to| amount(me, to, round));
                    let expects = counts(size, |from| amount(from, me, round));
                    let (from_at, to_at) = (gapped(&sends), gapped(&expects));
                    let mut out = vec![-7; extent(&sends, &from_at)];
                    place(
                        &mut out,
                        &from_at,
                        (0..size).map(|to| block(me, to, amount(me, to, round))),
                    );
                    let mut expected = vec![-1; extent(&expects, &to_at)];
                    let (send, recv) = (Buffer::of(&out), Buffer::of(&expected));
                    place(
                        &mut expected,
                        &to_at,
                        (0..size).map(|from| block(from, me, amount(from, me, round))),
                    );
                    hccl(c!(HcclAlltoAllV(
                        send.0,
                        pointer(&sends),
                        pointer(&from_at),
                        I32,
                        recv.0,
                        pointer(&expects),
                        pointer(&to_at),
                        I32,
                        comm.0,
                        stream.0
                    )))
                    .unwrap();
                    stream.synchronize().unwrap();
                    assert_eq!(recv.read::<i32>(expected.len()), expected, "round {round}");

                    // The same without gaps, with the lengths of all ranks known to everybody.
                    let matrix: Vec<u64> = (0..size)
                        .flat_map(|from| (0..size).map(move |to| amount(from, to, round) as u64))
                        .collect();
                    let row: Vec<i32> = (0..size)
                        .flat_map(|to| block(me, to, amount(me, to, round)))
                        .collect();
                    let column: Vec<i32> = (0..size)
                        .flat_map(|from| block(from, me, amount(from, me, round)))
                        .collect();
                    let (send, recv) = (Buffer::of(&row), Buffer::of(&vec![-1i32; column.len()]));
                    hccl(c!(HcclAlltoAllVC(
                        send.0,
                        pointer(&matrix),
                        I32,
                        recv.0,
                        I32,
                        comm.0,
                        stream.0
                    )))
                    .unwrap();
                    stream.synchronize().unwrap();
                    assert_eq!(recv.read::<i32>(column.len()), column, "round {round}");
                }
            },
        );
    }
}

/// One rank has nothing to send, and buffers without elements may be null.
#[test]
fn a_rank_without_elements_takes_part() {
    for kind in KINDS {
        ranks(kind, 2, "a_rank_without_elements_takes_part", |rank| {
            let (comm, stream) = equip(&rank);
            let recv = Buffer::of(&[-1i32; 2]);
            let all_to_all =
                |send: *mut c_void, sends: [u64; 2], recv: *mut c_void, expects: [u64; 2]| {
                    let (from_at, to_at) = ([0, sends[0]], [0, expects[0]]);
                    hccl(c!(HcclAlltoAllV(
                        send,
                        pointer(&sends),
                        pointer(&from_at),
                        I32,
                        recv,
                        pointer(&expects),
                        pointer(&to_at),
                        I32,
                        comm.0,
                        stream.0
                    )))
                    .unwrap();
                    stream.synchronize().unwrap();
                };
            let null = std::ptr::null_mut();
            if rank.rank == 0 {
                all_to_all(null, [0, 0], recv.0, [0, 1]);
                assert_eq!(recv.read::<i32>(2), [10, -1]);
            } else {
                let send = Buffer::of(&[10i32, 20, 30]);
                all_to_all(send.0, [1, 2], recv.0, [0, 2]);
                assert_eq!(recv.read::<i32>(2), [20, 30]);
            }
            all_to_all(null, [0, 0], null, [0, 0]);
        });
    }
}

fn gather_v(comm: &Comm, stream: &Stream, rank: &Rank, round: usize) {
    let per_rank = counts(rank.size, |from| amount(from, 1, round));
    let at = gapped(&per_rank);
    let mut expected = vec![-1; extent(&per_rank, &at)];
    let recv = Buffer::of(&expected);
    place(
        &mut expected,
        &at,
        (0..rank.size).map(|from| block(from, 9, amount(from, 1, round))),
    );
    let mine = block(rank.rank, 9, amount(rank.rank, 1, round));
    let send = Buffer::of(&mine);
    hccl(c!(HcclAllGatherV(
        send.0,
        mine.len() as u64,
        recv.0,
        pointer(&per_rank),
        pointer(&at),
        I32,
        comm.0,
        stream.0
    )))
    .unwrap();
    stream.synchronize().unwrap();
    assert_eq!(recv.read::<i32>(expected.len()), expected, "round {round}");
}

fn reduce_scatter_v(comm: &Comm, stream: &Stream, rank: &Rank, round: usize) {
    let per_rank = counts(rank.size, |to| amount(2, to, round));
    let at = gapped(&per_rank);
    let mut out = vec![-7; extent(&per_rank, &at)];
    place(
        &mut out,
        &at,
        (0..rank.size).map(|to| block(rank.rank, to, amount(2, to, round))),
    );
    let count = amount(2, rank.rank, round);
    let (send, recv) = (Buffer::of(&out), Buffer::of(&vec![-1i32; count]));
    hccl(c!(HcclReduceScatterV(
        send.0,
        pointer(&per_rank),
        pointer(&at),
        recv.0,
        count as u64,
        I32,
        SUM,
        comm.0,
        stream.0
    )))
    .unwrap();
    stream.synchronize().unwrap();
    let expected: Vec<i32> = (0..count)
        .map(|index| {
            (0..rank.size)
                .map(|from| value(from, rank.rank, index))
                .sum()
        })
        .collect();
    assert_eq!(recv.read::<i32>(count), expected, "round {round}");
}

#[test]
fn uneven_gather_and_reduce_scatter() {
    for kind in KINDS {
        ranks(kind, 3, "uneven_gather_and_reduce_scatter", |rank| {
            let (comm, stream) = equip(&rank);
            for round in 0..20 {
                gather_v(&comm, &stream, &rank, round);
                reduce_scatter_v(&comm, &stream, &rank, round);
            }
        });
    }
}

/// The same element comes out with the same bits on every rank, whatever the message around it.
#[test]
fn bits_do_not_depend_on_the_size_of_the_message() {
    for kind in KINDS {
        ranks(
            kind,
            4,
            "bits_do_not_depend_on_the_size_of_the_message",
            |rank| {
                let (comm, stream) = equip(&rank);
                let f = [1e8f32, 1.0, -1e8, 1.0][rank.rank as usize];
                let b = [256.0f32, 1.0, 1.0, 1.0].map(bf16::from_f32)[rank.rank as usize];
                for count in [1usize, 1000, 5000, 1 << 20] {
                    let buffer = Buffer::of(&vec![f; count]);
                    let n = count as u64;
                    comm.all_reduce(&buffer, &buffer, n, F32, SUM, &stream)
                        .unwrap();
                    stream.synchronize().unwrap();
                    assert!(buffer.read::<f32>(count).iter().all(|&sum| sum == 1.0));
                    let buffer = Buffer::of(&vec![b; count]);
                    let bf16s = sys::HCCL_DATA_TYPE_BFP16;
                    comm.all_reduce(&buffer, &buffer, n, bf16s, SUM, &stream)
                        .unwrap();
                    stream.synchronize().unwrap();
                    // 259 in one sum of f32, rounded once to even; bf16 step by step would stay at 256.
                    assert!(
                        buffer
                            .read::<bf16>(count)
                            .iter()
                            .all(|&sum| sum.to_f32() == 260.0)
                    );
                }
            },
        );
    }
}

#[test]
fn a_lone_rank_keeps_its_data() {
    ranks(Kind::Threads, 1, "a_lone_rank_keeps_its_data", |rank| {
        let (comm, stream) = equip(&rank);
        for round in 0..20 {
            gather_v(&comm, &stream, &rank, round);
            reduce_scatter_v(&comm, &stream, &rank, round);
        }
        let (send, recv) = (Buffer::of(&[4i32, 5]), Buffer::of(&[-1i32; 2]));
        hccl(c!(HcclAlltoAll(
            send.0, 2, I32, recv.0, 2, I32, comm.0, stream.0
        )))
        .unwrap();
        stream.synchronize().unwrap();
        assert_eq!(recv.read::<i32>(2), [4, 5]);
    });
}
