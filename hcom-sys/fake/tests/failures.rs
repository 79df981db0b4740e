//! What happens when a rank dies, leaves, disagrees or gives up.

#![expect(unsafe_code, reason = "calls the C interface")]

mod support;

use std::thread;
use std::time::{Duration, Instant};

use hcom_sys::bindings as sys;
use support::api::{Buffer, Comm, Stream, hccl, last_error};
use support::{KINDS, Kind, Rank, equip, processes, ranks, wait_for_all};

const F32: sys::HcclDataType = sys::HCCL_DATA_TYPE_FP32;
const SUM: sys::HcclReduceOp = sys::HCCL_REDUCE_SUM;

fn reduce_once(comm: &Comm, stream: &Stream, buffer: &Buffer, count: u64) -> Result<(), String> {
    comm.all_reduce(buffer, buffer, count, F32, SUM, stream)
        .map_err(|(_, text)| text)?;
    stream.synchronize().map_err(|(_, text)| text)
}

/// Loops until the collective fails; the error must name the dead rank and come soon.
fn survive(rank: &Rank, victim: u32, count: usize) {
    let (comm, stream) = equip(rank);
    let buffer = Buffer::of(&vec![1f32; count]);
    for round in 0.. {
        if rank.rank == victim && round == 30 {
            // Queue one more, so that death comes in the middle of it.
            comm.all_reduce(&buffer, &buffer, count as u64, F32, SUM, &stream)
                .unwrap();
            rank.die();
        }
        let begun = Instant::now();
        if let Err(text) = reduce_once(&comm, &stream, &buffer, count as u64) {
            assert!(round >= 30, "{text}");
            assert!(text.contains(&format!("rank {victim} (process ")), "{text}");
            assert!(begun.elapsed() < Duration::from_secs(5));
            break;
        }
    }
    assert_eq!(comm.async_error(), sys::HCCL_E_REMOTE.0);
    let late = comm
        .all_reduce(&buffer, &buffer, 1, F32, SUM, &stream)
        .unwrap_err();
    assert_eq!(late.0, sys::HCCL_E_REMOTE.0);
    comm.destroy().unwrap();
}

#[test]
fn killing_a_rank_fails_the_others_at_once() {
    for (size, victim, count) in [(2, 0, 3), (4, 2, 3), (4, 1, 200_000)] {
        let test = "killing_a_rank_fails_the_others_at_once";
        // Each round is a call of its own, and a rank process only runs the one it was started for.
        let round = format!("{size}-{victim}-{count}");
        if std::env::var("ROUND").is_ok_and(|running| running != round) {
            continue;
        }
        let ends = processes(size, test, &[("ROUND", &round)], |rank| {
            survive(&rank, victim, count)
        });
        for (rank, end) in ends.iter().enumerate() {
            assert_eq!(end.success(), rank as u32 != victim, "rank {rank}: {end}");
        }
    }
}

#[test]
fn a_rank_that_dies_during_init_is_named() {
    let test = "a_rank_that_dies_during_init_is_named";
    let ends = processes(3, test, &[], |rank| {
        if rank.rank == 2 {
            // Joins, so that the root knows it, and dies while rank 1 is awaited.
            let ticket = rank.ticket();
            thread::spawn(move || {
                support::api::set_device(2);
                support::api::init(3, &ticket, 2)
            });
            thread::sleep(Duration::from_millis(300));
            rank.die();
        }
        if rank.rank == 1 {
            let ticket = rank.ticket();
            thread::sleep(Duration::from_millis(100));
            // Rank 1 never joins. It stays until the others have seen the death.
            drop(ticket);
            thread::sleep(Duration::from_millis(600));
            return;
        }
        let begun = Instant::now();
        let (code, text) = rank.try_join().unwrap_err();
        assert_eq!(code, sys::HCCL_E_REMOTE.0, "{text}");
        assert!(text.contains("rank 2 (process "), "{text}");
        assert!(begun.elapsed() < Duration::from_secs(5));
    });
    let succeeded: Vec<bool> = ends.iter().map(|end| end.success()).collect();
    assert_eq!(succeeded, [true, true, false]);
}

#[test]
fn a_root_that_dies_during_init_is_noticed() {
    let test = "a_root_that_dies_during_init_is_noticed";
    let ends = processes(3, test, &[], |rank| {
        if rank.rank == 0 {
            rank.ticket();
            thread::sleep(Duration::from_millis(500));
            rank.die();
        }
        if rank.rank == 2 {
            rank.ticket();
            thread::sleep(Duration::from_millis(900));
            return;
        }
        let (code, text) = rank.try_join().unwrap_err();
        assert_eq!(code, sys::HCCL_E_REMOTE.0, "{text}");
        assert!(text.contains("the root (process "), "{text}");
    });
    let succeeded: Vec<bool> = ends.iter().map(|end| end.success()).collect();
    assert_eq!(succeeded, [false, true, true]);
}

#[test]
fn ranks_that_disagree_all_hear_both_sides() {
    for kind in KINDS {
        ranks(kind, 3, "ranks_that_disagree_all_hear_both_sides", |rank| {
            let odd = rank.rank == 1;
            let buffer = Buffer::of(&[1f32, 2.0, 3.0, 4.0]);
            let other = |comm: &Comm, stream: &Stream, case: u32| match (case, odd) {
                (0, true) => comm.all_reduce(&buffer, &buffer, 3, F32, SUM, stream),
                (1, true) => {
                    comm.all_reduce(&buffer, &buffer, 4, sys::HCCL_DATA_TYPE_INT32, SUM, stream)
                }
                (2, true) => {
                    comm.all_reduce(&buffer, &buffer, 4, F32, sys::HCCL_REDUCE_MAX, stream)
                }
                (3, true) => hccl(c!(HcclBroadcast(buffer.0, 4, F32, 0, comm.0, stream.0))),
                _ => comm.all_reduce(&buffer, &buffer, 4, F32, SUM, stream),
            };
            let odd_texts = [
                "all_reduce of 3 f32, sum",
                "all_reduce of 4 i32, sum",
                "all_reduce of 4 f32, max",
                "broadcast of 4 f32, root 0",
            ];
            for (case, odd_text) in odd_texts.iter().enumerate() {
                let (comm, stream) = equip(&rank);
                other(&comm, &stream, case as u32).unwrap();
                let (_, text) = stream.synchronize().unwrap_err();
                let place = "(its collective 1, its operation 1)";
                let both =
                    format!("rank 0: all_reduce of 4 f32, sum {place}; rank 1: {odd_text} {place}");
                assert!(text.contains(&both), "case {case}: {text}");
                assert_eq!(buffer.read::<f32>(4), [1.0, 2.0, 3.0, 4.0], "no data came");
                // All must have heard before one destroys its end.
                wait_for_all(&rank);
            }
        });
    }
}

#[test]
fn destroying_from_another_thread_ends_a_blocked_collective() {
    for kind in KINDS {
        ranks(
            kind,
            2,
            "destroying_from_another_thread_ends_a_blocked_collective",
            |rank| {
                let (comm, stream) = equip(&rank);
                let buffer = Buffer::of(&[rank.rank as f32]);
                if rank.rank == 1 {
                    // Never takes part, but hears of the end. A misaligned buffer is refused as long as nothing worse is.
                    let begun = Instant::now();
                    let refusal = || {
                        hccl(c!(HcclAllReduce(
                            buffer.at(1),
                            buffer.0,
                            1,
                            F32,
                            SUM,
                            comm.0,
                            stream.0
                        )))
                        .unwrap_err()
                    };
                    let (_, text) = loop {
                        let (code, text) = refusal();
                        if code == sys::HCCL_E_REMOTE.0 {
                            break (code, text);
                        }
                        assert_eq!(code, sys::HCCL_E_PARA.0, "{text}");
                        assert!(begun.elapsed() < Duration::from_secs(10));
                        thread::sleep(Duration::from_millis(5));
                    };
                    assert!(text.contains("destroyed its communicator"), "{text}");
                    return;
                }
                comm.all_reduce(&buffer, &buffer, 1, F32, SUM, &stream)
                    .unwrap();
                assert_eq!(
                    stream.synchronize_within(50).unwrap_err().0,
                    507_046,
                    "nobody else came"
                );
                thread::scope(|scope| {
                    scope.spawn(|| comm.destroy().unwrap());
                    let (_, text) = stream.synchronize().unwrap_err();
                    assert!(text.contains("was destroyed"), "{text}");
                });
                assert_eq!(
                    comm.destroy().unwrap_err().0,
                    sys::HCCL_E_PARA.0,
                    "the handle is gone"
                );
                assert_eq!(buffer.read::<f32>(1), [0.0]);
            },
        );
    }
}

#[test]
fn aborting_a_stream_reaches_the_peers() {
    for kind in KINDS {
        ranks(kind, 3, "aborting_a_stream_reaches_the_peers", |rank| {
            let (comm, stream) = equip(&rank);
            let buffer = Buffer::of(&[1f32]);
            if rank.rank == 2 {
                // Never takes part, and hears that somebody gave up.
                let begun = Instant::now();
                while comm.async_error() != sys::HCCL_E_REMOTE.0 {
                    assert!(begun.elapsed() < Duration::from_secs(20));
                    thread::sleep(Duration::from_millis(5));
                }
                return;
            }
            comm.all_reduce(&buffer, &buffer, 1, F32, SUM, &stream)
                .unwrap();
            if rank.rank == 0 {
                assert_eq!(stream.synchronize_within(100).unwrap_err().0, 507_046);
                for _ in 0..2 {
                    assert_eq!(c!(aclrtStreamAbort(stream.0)), 0);
                }
                assert_eq!(stream.synchronize().unwrap_err().0, 107_023);
                assert_eq!(
                    c!(aclrtRecordEvent(std::ptr::null_mut(), stream.0)),
                    100_000
                );
                let (code, _) = comm.barrier(&stream).unwrap_err();
                assert_eq!(code, sys::HCCL_E_REMOTE.0);
            } else {
                let (_, text) = stream.synchronize().unwrap_err();
                assert!(text.contains("rank 0 (process "), "{text}");
            }
        });
    }
}

#[test]
fn ranks_that_contradict_each_other_at_init_are_refused() {
    ranks(
        Kind::Threads,
        2,
        "ranks_that_contradict_each_other_at_init_are_refused",
        |rank| {
            let refused = |size: u32, as_rank: u32, what: &str| {
                let ticket = rank.ticket();
                let (code, text) = support::api::init(size, &ticket, as_rank).unwrap_err();
                assert_eq!(code, sys::HCCL_E_PARA.0, "{text}");
                assert!(text.contains(what), "{text}");
            };
            refused(2, 1, "both call themselves rank 1");
            refused(2 + rank.rank, rank.rank, "expects 2");
            // Both on device 0.
            assert_eq!(c!(aclrtSetDevice(0)), 0);
            refused(2, rank.rank, "both use device 0");
            assert_eq!(c!(aclrtResetDevice(0)), 0);
            assert_eq!(c!(aclrtSetDevice(rank.rank as i32)), 0);
            assert_eq!(c!(aclrtResetDevice(rank.rank as i32)), 0);
            let mut comm = std::ptr::null_mut();
            let info = sys::HcclRootInfo::default();
            assert_eq!(
                c!(HcclCommInitRootInfo(0, &info, 0, &mut comm)),
                sys::HCCL_E_PARA
            );
            assert_eq!(
                c!(HcclCommInitRootInfo(2, &info, 2, std::ptr::null_mut())),
                sys::HCCL_E_PARA
            );
            assert_eq!(
                c!(HcclCommInitRootInfo(2, std::ptr::null(), 1, &mut comm)),
                sys::HCCL_E_PTR
            );
            assert_eq!(
                c!(HcclCommInitRootInfo(2, &info, 1, &mut comm)),
                sys::HCCL_E_PARA
            );
            assert!(last_error().contains("no ticket"));
        },
    );
}

#[test]
fn wrong_arguments_have_their_documented_codes() {
    ranks(
        Kind::Threads,
        2,
        "wrong_arguments_have_their_documented_codes",
        |rank| {
            let (comm, stream) = equip(&rank);
            let buffer = Buffer::new(64);
            let null = std::ptr::null_mut();
            let reduce = |send, recv, count, dtype, op, stream| {
                hccl(c!(HcclAllReduce(
                    send, recv, count, dtype, op, comm.0, stream
                )))
            };
            let refused = |code: u32, (got, text): (u32, String)| {
                assert_eq!(got, code, "{text}");
                text
            };
            let (para, ptr, unsupported) = (1, 2, 5);
            reduce(null, null, 0, F32, SUM, null).expect("0 elements come before all checks");
            refused(
                ptr,
                reduce(buffer.0, buffer.0, 1, F32, SUM, null).unwrap_err(),
            );
            refused(
                ptr,
                reduce(null, buffer.0, 1, F32, SUM, stream.0).unwrap_err(),
            );
            refused(
                para,
                reduce(buffer.0, buffer.0, 0x8_0000_0000, F32, SUM, stream.0).unwrap_err(),
            );
            refused(
                unsupported,
                reduce(buffer.0, buffer.0, 1, sys::HcclDataType(13), SUM, stream.0).unwrap_err(),
            );
            refused(
                unsupported,
                reduce(
                    buffer.0,
                    buffer.0,
                    1,
                    sys::HCCL_DATA_TYPE_UINT8,
                    SUM,
                    stream.0,
                )
                .unwrap_err(),
            );
            refused(
                unsupported,
                reduce(buffer.0, buffer.0, 1, F32, sys::HcclReduceOp(4), stream.0).unwrap_err(),
            );
            let (bf16, prod) = (sys::HCCL_DATA_TYPE_BFP16, sys::HCCL_REDUCE_PROD);
            let text = refused(
                unsupported,
                reduce(buffer.0, buffer.0, 1, bf16, prod, stream.0).unwrap_err(),
            );
            assert!(text.contains("prod of bf16 is not supported on Ascend910_9382"));
            let text = refused(
                para,
                reduce(buffer.0, buffer.0, 17, F32, SUM, stream.0).unwrap_err(),
            );
            assert!(text.contains("reach past the allocation of 64 bytes"));
            refused(
                para,
                reduce(buffer.0, buffer.at(4), 3, F32, SUM, stream.0).unwrap_err(),
            );
            refused(
                para,
                reduce(buffer.0, buffer.at(33), 1, F32, SUM, stream.0).unwrap_err(),
            );
            assert_eq!(
                c!(HcclBroadcast(buffer.0, 1, F32, 2, comm.0, stream.0)),
                sys::HCCL_E_PARA
            );
            assert_eq!(c!(HcclBarrier(null, stream.0)), sys::HCCL_E_PTR);
            assert_eq!(
                c!(HcclBarrier(stream.0, stream.0)),
                sys::HCCL_E_PARA,
                "a stream is no communicator"
            );
            assert_eq!(c!(HcclCommDestroy(null)), sys::HCCL_SUCCESS);
            // After all that the communicator still works.
            reduce_once(&comm, &stream, &buffer, 16).unwrap();
        },
    );
}
