//! Sends and receives: rendezvous, order, batches, and what happens when the two sides differ.

#![expect(unsafe_code, reason = "calls the C interface")]

mod support;

use std::thread;
use std::time::{Duration, Instant};

use hcom_sys::bindings::{self as sys, HcclSendRecvItem};
use support::api::{Buffer, Comm, Stream, hccl};
use support::{KINDS, Kind, equip, processes, ranks, wait_for_all};

const I32: sys::HcclDataType = sys::HCCL_DATA_TYPE_INT32;
/// 24 bytes, and 4 MiB: nothing may depend on the size.
const SIZES: [usize; 2] = [6, 1 << 20];

fn row(from: u32, round: usize, count: usize) -> Vec<i32> {
    let first = (from as usize * 100_000_000 + round * 3_000_000) as i32;
    (0..count as i32).map(|index| first + index).collect()
}

fn send(comm: &Comm, stream: &Stream, buffer: &Buffer, count: usize, to: u32) {
    hccl(c!(HcclSend(
        buffer.0,
        count as u64,
        I32,
        to,
        comm.0,
        stream.0
    )))
    .unwrap();
}

fn recv(comm: &Comm, stream: &Stream, buffer: &Buffer, count: usize, from: u32) {
    hccl(c!(HcclRecv(
        buffer.0,
        count as u64,
        I32,
        from,
        comm.0,
        stream.0
    )))
    .unwrap();
}

fn item(sends: bool, buffer: &Buffer, count: usize, peer: u32) -> HcclSendRecvItem {
    HcclSendRecvItem {
        sendRecvType: if sends {
            sys::HCCL_SEND
        } else {
            sys::HCCL_RECV
        },
        buf: buffer.0,
        count: count as u64,
        dataType: I32,
        remoteRank: peer,
    }
}

fn batch(comm: &Comm, stream: &Stream, mut items: Vec<HcclSendRecvItem>) {
    let count = items.len() as u32;
    hccl(c!(HcclBatchSendRecv(
        items.as_mut_ptr(),
        count,
        comm.0,
        stream.0
    )))
    .unwrap();
}

/// The third rank runs nothing at all meanwhile, and a collective of all follows.
#[test]
fn data_goes_from_one_rank_to_one_other() {
    for kind in KINDS {
        ranks(kind, 3, "data_goes_from_one_rank_to_one_other", |rank| {
            let (comm, stream) = equip(&rank);
            for round in 0..20 {
                for count in SIZES {
                    let buffer = Buffer::of(&row(rank.rank, round, count));
                    match rank.rank {
                        0 => {
                            send(&comm, &stream, &buffer, count, 2);
                            recv(&comm, &stream, &buffer, count, 2);
                            stream.synchronize().unwrap();
                            assert_eq!(buffer.read::<i32>(count), row(2, round, count));
                        }
                        2 => {
                            let other = Buffer::of(&vec![-1i32; count]);
                            recv(&comm, &stream, &other, count, 0);
                            send(&comm, &stream, &buffer, count, 0);
                            stream.synchronize().unwrap();
                            assert_eq!(other.read::<i32>(count), row(0, round, count));
                        }
                        _ => {}
                    }
                }
            }
            let buffer = Buffer::of(&[rank.rank as i32 + 1]);
            comm.all_reduce(&buffer, &buffer, 1, I32, sys::HCCL_REDUCE_SUM, &stream)
                .unwrap();
            stream.synchronize().unwrap();
            assert_eq!(buffer.read::<i32>(1), [6]);
        });
    }
}

/// A send is not over before its receiver has come, however small it is.
#[test]
fn nothing_is_buffered() {
    for kind in KINDS {
        ranks(kind, 2, "nothing_is_buffered", |rank| {
            let (comm, stream) = equip(&rank);
            // Tells the receiver that the sender has waited in vain.
            let (signal, aside) = equip(&rank);
            for count in SIZES {
                let buffer = Buffer::of(&row(rank.rank, 0, count));
                if rank.rank == 0 {
                    send(&comm, &stream, &buffer, count, 1);
                    assert_eq!(stream.synchronize_within(100).unwrap_err().0, 507_046);
                    signal.barrier(&aside).unwrap();
                    aside.synchronize().unwrap();
                } else {
                    signal.barrier(&aside).unwrap();
                    aside.synchronize().unwrap();
                    recv(&comm, &stream, &buffer, count, 0);
                }
                stream.synchronize().unwrap();
                assert_eq!(buffer.read::<i32>(count), row(0, 0, count));
            }
        });
    }
}

#[test]
fn two_ranks_that_both_send_first_time_out_and_say_so() {
    for (index, count) in SIZES.into_iter().enumerate() {
        let test = "two_ranks_that_both_send_first_time_out_and_say_so";
        let round = index.to_string();
        if std::env::var("ROUND").is_ok_and(|running| running != round) {
            continue;
        }
        let ends = processes(
            2,
            test,
            &[("ROUND", &round), ("HCCL_EXEC_TIMEOUT", "1")],
            |rank| {
                let (comm, stream) = equip(&rank);
                let buffer = Buffer::of(&row(rank.rank, 0, count));
                let other = Buffer::of(&vec![-1i32; count]);
                let peer = 1 - rank.rank;
                send(&comm, &stream, &buffer, count, peer);
                recv(&comm, &stream, &other, count, peer);
                let begun = Instant::now();
                let (_, text) = stream.synchronize().unwrap_err();
                assert!(begun.elapsed() < Duration::from_secs(5));
                for rank in 0..2 {
                    let said = format!(
                        "rank {rank} last entered send with rank {} (its operation 1)",
                        1 - rank
                    );
                    assert!(text.contains(&said), "{text}");
                }
                assert_eq!(other.read::<i32>(count), vec![-1; count]);
                // The peer must have heard before this end goes.
                let begun = Instant::now();
                while comm.async_error() == 0 {
                    assert!(begun.elapsed() < Duration::from_secs(5));
                }
                thread::sleep(Duration::from_millis(300));
            },
        );
        assert!(ends.iter().all(|end| end.success()), "{ends:?}");
    }
}

#[test]
fn the_items_of_a_batch_do_not_wait_for_each_other() {
    for kind in KINDS {
        ranks(
            kind,
            4,
            "the_items_of_a_batch_do_not_wait_for_each_other",
            |rank| {
                let (comm, stream) = equip(&rank);
                let (me, size) = (rank.rank, rank.size);
                for round in 0..20 {
                    let count = if round % 10 == 9 { 1 << 18 } else { 6 + round };
                    // A ring in which everybody sends first, twice to the same neighbour, and to itself.
                    let (next, last) = ((me + 1) % size, (me + size - 1) % size);
                    let out = [0, 1, 2].map(|part| Buffer::of(&row(me, 3 * round + part, count)));
                    let into = [0, 1, 2].map(|_| Buffer::of(&vec![-1i32; count]));
                    let items = vec![
                        item(true, &out[0], count, next),
                        item(true, &out[1], count, next),
                        item(true, &out[2], count, me),
                        item(false, &into[0], count, last),
                        item(false, &into[1], count, last),
                        item(false, &into[2], count, me),
                    ];
                    batch(&comm, &stream, items);
                    stream.synchronize().unwrap();
                    for (part, (buffer, from)) in into.iter().zip([last, last, me]).enumerate() {
                        assert_eq!(
                            buffer.read::<i32>(count),
                            row(from, 3 * round + part, count)
                        );
                    }
                }
            },
        );
    }
}

/// Rank 2 waits for both others in one batch, and rank 1 only sends once it has heard from rank 0.
#[test]
fn a_batch_takes_what_comes_first() {
    for kind in KINDS {
        ranks(kind, 3, "a_batch_takes_what_comes_first", |rank| {
            let (comm, stream) = equip(&rank);
            for round in 0..20 {
                let count = 100;
                let own = Buffer::of(&row(rank.rank, round, count));
                let other = Buffer::of(&vec![-1i32; count]);
                match rank.rank {
                    0 => {
                        send(&comm, &stream, &own, count, 2);
                        send(&comm, &stream, &own, count, 1);
                        stream.synchronize().unwrap();
                    }
                    1 => {
                        recv(&comm, &stream, &other, count, 0);
                        send(&comm, &stream, &own, count, 2);
                        stream.synchronize().unwrap();
                        assert_eq!(other.read::<i32>(count), row(0, round, count));
                    }
                    _ => {
                        batch(
                            &comm,
                            &stream,
                            vec![item(false, &own, count, 1), item(false, &other, count, 0)],
                        );
                        stream.synchronize().unwrap();
                        assert_eq!(own.read::<i32>(count), row(1, round, count));
                        assert_eq!(other.read::<i32>(count), row(0, round, count));
                    }
                }
            }
        });
    }
}

#[test]
fn a_transfer_whose_sides_differ_is_refused_on_all_ranks() {
    for kind in KINDS {
        ranks(
            kind,
            3,
            "a_transfer_whose_sides_differ_is_refused_on_all_ranks",
            |rank| {
                let cases = [
                    (6, 4, I32, "rank 0 sends 6 i32, rank 1 expects 4 i32"),
                    (4, 6, I32, "rank 0 sends 4 i32, rank 1 expects 6 i32"),
                    (
                        5,
                        5,
                        sys::HCCL_DATA_TYPE_FP32,
                        "rank 0 sends 5 i32, rank 1 expects 5 f32",
                    ),
                ];
                for (sent, expected, dtype, both) in cases {
                    let (comm, stream) = equip(&rank);
                    let buffer = Buffer::of(&[-1i32 - rank.rank as i32; 6]);
                    match rank.rank {
                        0 => send(&comm, &stream, &buffer, sent, 1),
                        1 => hccl(c!(HcclRecv(buffer.0, expected, dtype, 0, comm.0, stream.0)))
                            .unwrap(),
                        // Takes no part, and hears of it all the same.
                        _ => {
                            let text = match comm.barrier(&stream) {
                                Ok(()) => stream.synchronize().unwrap_err().1,
                                Err((code, text)) => {
                                    assert_eq!(code, sys::HCCL_E_REMOTE.0, "{text}");
                                    text
                                }
                            };
                            assert!(text.contains(both), "{text}");
                        }
                    }
                    if rank.rank < 2 {
                        let (_, text) = stream.synchronize().unwrap_err();
                        assert!(text.contains(both), "{text}");
                        assert_eq!(
                            buffer.read::<i32>(6),
                            [-1 - rank.rank as i32; 6],
                            "no data came"
                        );
                    }
                    // All must have heard before one destroys its end.
                    wait_for_all(&rank);
                }
            },
        );
    }
}

#[test]
fn killing_the_sender_fails_the_receiver_at_once() {
    let test = "killing_the_sender_fails_the_receiver_at_once";
    let ends = processes(3, test, &[], |rank| {
        let (comm, stream) = equip(&rank);
        let count = 1000;
        let buffer = Buffer::of(&row(rank.rank, 0, count));
        if rank.rank == 1 {
            send(&comm, &stream, &buffer, count, 0);
            stream.synchronize().unwrap();
            rank.die();
        }
        if rank.rank == 0 {
            recv(&comm, &stream, &buffer, count, 1);
            recv(&comm, &stream, &buffer, count, 1);
            let (_, text) = stream.synchronize().unwrap_err();
            assert!(text.contains("rank 1 (process "), "{text}");
            assert_eq!(
                buffer.read::<i32>(count),
                row(1, 0, count),
                "the first one came"
            );
        }
        while comm.async_error() != sys::HCCL_E_REMOTE.0 {
            thread::sleep(Duration::from_millis(5));
        }
    });
    let succeeded: Vec<bool> = ends.iter().map(|end| end.success()).collect();
    assert_eq!(succeeded, [true, false, true]);
}

#[test]
fn wrong_transfers_have_their_documented_codes() {
    ranks(
        Kind::Threads,
        2,
        "wrong_transfers_have_their_documented_codes",
        |rank| {
            let (comm, stream) = equip(&rank);
            let buffer = Buffer::new(64);
            let null = std::ptr::null_mut();
            let (ok, para, ptr) = (sys::HCCL_SUCCESS, sys::HCCL_E_PARA, sys::HCCL_E_PTR);
            let send = |buffer, count, dtype, to, stream| {
                c!(HcclSend(buffer, count, dtype, to, comm.0, stream))
            };
            assert_eq!(
                send(null, 0, I32, 9, null),
                ok,
                "0 elements come before all checks"
            );
            assert_eq!(send(buffer.0, 1, I32, 1, null), ptr);
            assert_eq!(send(null, 1, I32, 1, stream.0), ptr);
            assert_eq!(send(buffer.0, 1, I32, 2, stream.0), para);
            assert_eq!(send(buffer.0, 0x8_0000_0000, I32, 1, stream.0), para);
            assert_eq!(
                send(buffer.0, 17, I32, 1, stream.0),
                para,
                "past the allocation"
            );
            let int128 = sys::HCCL_DATA_TYPE_INT128;
            assert_eq!(
                send(buffer.0, 1, int128, 1, stream.0),
                sys::HCCL_E_NOT_SUPPORT
            );
            let batch = |items: &mut [HcclSendRecvItem]| {
                c!(HcclBatchSendRecv(
                    items.as_mut_ptr(),
                    items.len() as u32,
                    comm.0,
                    stream.0
                ))
            };
            assert_eq!(c!(HcclBatchSendRecv(null.cast(), 0, null, null)), ok);
            assert_eq!(c!(HcclBatchSendRecv(null.cast(), 1, comm.0, stream.0)), ptr);
            assert_eq!(batch(&mut [item(true, &buffer, 1, 2)]), para);
            let me = rank.rank;
            let (to, from) = (item(true, &buffer, 1, me), item(false, &buffer, 2, me));
            assert_eq!(
                batch(&mut [to, from]),
                para,
                "what goes to itself must come from itself"
            );
            let nothing = HcclSendRecvItem {
                buf: null,
                ..item(true, &buffer, 1, 1 - me)
            };
            assert_eq!(batch(&mut [nothing]), ok, "left out");
            let wrong = HcclSendRecvItem {
                sendRecvType: sys::HcclSendRecvType(7),
                ..to
            };
            assert_eq!(batch(&mut [wrong]), para);
            comm.barrier(&stream).unwrap();
            stream.synchronize().unwrap();
        },
    );
}
