//! Ranks that disagree about an operation: on every operation and in every argument that they must agree on, both sides
//! are named on all ranks, with their numbers, and no data is delivered.

#![expect(unsafe_code, reason = "calls the C interface")]

mod support;

use std::ffi::c_void;
use std::ptr;

use hcom_sys::bindings::{self as sys, HcclDataType, HcclReduceOp, HcclSendRecvItem};
use support::api::{Buffer, Comm, Stream, acl, hccl};
use support::{KINDS, Kind, Rank, equip, ranks, wait_for_all};

const F32: HcclDataType = sys::HCCL_DATA_TYPE_FP32;
const I32: HcclDataType = sys::HCCL_DATA_TYPE_INT32;
const I64: HcclDataType = sys::HCCL_DATA_TYPE_INT64;
const BF16: HcclDataType = sys::HCCL_DATA_TYPE_BFP16;
const SUM: HcclReduceOp = sys::HCCL_REDUCE_SUM;
/// Bytes of each buffer: enough for every case.
const BYTES: usize = 4096;

/// The arguments of a call.
#[derive(Clone, Copy)]
struct Arguments {
    count: u64,
    dtype: HcclDataType,
    op: HcclReduceOp,
    root: u32,
}

const USUAL: Arguments = Arguments {
    count: 4,
    dtype: F32,
    op: SUM,
    root: 0,
};

/// Where a rank calls: handles, send buffer, receive buffer, arguments.
#[derive(Clone, Copy)]
struct Site {
    comm: sys::HcclComm,
    stream: sys::aclrtStream,
    from: *mut c_void,
    to: *mut c_void,
    a: Arguments,
}

/// What a rank calls.
type Call = fn(Site) -> sys::HcclResult;

fn all_reduce(s: Site) -> sys::HcclResult {
    c!(HcclAllReduce(
        s.from, s.to, s.a.count, s.a.dtype, s.a.op, s.comm, s.stream
    ))
}

fn reduce(s: Site) -> sys::HcclResult {
    c!(HcclReduce(
        s.from, s.to, s.a.count, s.a.dtype, s.a.op, s.a.root, s.comm, s.stream
    ))
}

fn reduce_scatter(s: Site) -> sys::HcclResult {
    c!(HcclReduceScatter(
        s.from, s.to, s.a.count, s.a.dtype, s.a.op, s.comm, s.stream
    ))
}

fn broadcast(s: Site) -> sys::HcclResult {
    c!(HcclBroadcast(
        s.to, s.a.count, s.a.dtype, s.a.root, s.comm, s.stream
    ))
}

fn scatter(s: Site) -> sys::HcclResult {
    c!(HcclScatter(
        s.from, s.to, s.a.count, s.a.dtype, s.a.root, s.comm, s.stream
    ))
}

fn all_gather(s: Site) -> sys::HcclResult {
    c!(HcclAllGather(
        s.from, s.to, s.a.count, s.a.dtype, s.comm, s.stream
    ))
}

fn all_to_all(s: Site) -> sys::HcclResult {
    c!(HcclAlltoAll(
        s.from, s.a.count, s.a.dtype, s.to, s.a.count, s.a.dtype, s.comm, s.stream
    ))
}

/// Blocks of `count` elements for each of three ranks.
fn lists(count: u64) -> ([u64; 3], [u64; 3]) {
    ([count; 3], [0, count, 2 * count])
}

fn all_gather_v(s: Site) -> sys::HcclResult {
    let (counts, at) = lists(s.a.count);
    let (counts, at) = (counts.as_ptr().cast(), at.as_ptr().cast());
    c!(HcclAllGatherV(
        s.from, s.a.count, s.to, counts, at, s.a.dtype, s.comm, s.stream
    ))
}

fn reduce_scatter_v(s: Site) -> sys::HcclResult {
    let (counts, at) = lists(s.a.count);
    let (counts, at) = (counts.as_ptr().cast(), at.as_ptr().cast());
    c!(HcclReduceScatterV(
        s.from, counts, at, s.to, s.a.count, s.a.dtype, s.a.op, s.comm, s.stream
    ))
}

fn all_to_all_v(s: Site) -> sys::HcclResult {
    let (counts, at) = lists(s.a.count);
    let (counts, at) = (counts.as_ptr().cast(), at.as_ptr().cast());
    c!(HcclAlltoAllV(
        s.from, counts, at, s.a.dtype, s.to, counts, at, s.a.dtype, s.comm, s.stream
    ))
}

fn all_to_all_vc(s: Site) -> sys::HcclResult {
    let matrix = [s.a.count; 9];
    c!(HcclAlltoAllVC(
        s.from,
        matrix.as_ptr().cast(),
        s.a.dtype,
        s.to,
        s.a.dtype,
        s.comm,
        s.stream
    ))
}

fn barrier(s: Site) -> sys::HcclResult {
    c!(HcclBarrier(s.comm, s.stream))
}

/// Runs what each rank calls after `before` operations that agree; all must hear all `words`, and no data may come.
fn differ(rank: &Rank, before: u32, words: &[&str], calls: [(Call, Arguments); 3]) {
    let (comm, stream) = equip(rank);
    for _ in 0..before {
        comm.barrier(&stream).unwrap();
    }
    stream.synchronize().unwrap();
    let send = Buffer::of(&vec![rank.rank as u8 + 1; BYTES]);
    let recv = Buffer::of(&vec![0xeeu8; BYTES]);
    let (call, a) = calls[rank.rank as usize];
    let site = Site {
        comm: comm.0,
        stream: stream.0,
        from: send.0,
        to: recv.0,
        a,
    };
    hccl(call(site)).unwrap();
    let (code, text) = stream.synchronize().unwrap_err();
    assert_eq!(code, 507_018, "{text}");
    for word in words {
        assert!(text.contains(word), "expected {word} in: {text}");
    }
    assert_eq!(
        recv.read::<u8>(BYTES),
        vec![0xee; BYTES],
        "no data came: {text}"
    );
    // The communicator is of no more use, and says why.
    let (code, later) = hccl(call(site)).unwrap_err();
    assert_eq!(code, sys::HCCL_E_REMOTE.0, "{later}");
    // All must have heard before one destroys its end.
    wait_for_all(rank);
}

/// Rank 1 differs from the others in one argument.
fn one_differs(rank: &Rank, call: Call, odd: Arguments, usual_says: &str, odd_says: &str) {
    let both = format!(
        "rank 0: {usual_says} (its collective 3, its operation 3); rank 1: {odd_says} (its collective 3, its operation 3)"
    );
    differ(
        rank,
        2,
        &[&both],
        [(call, USUAL), (call, odd), (call, USUAL)],
    );
}

#[test]
fn every_argument_of_every_collective_is_compared() {
    let (count, dtype, op, root) = (
        Arguments { count: 3, ..USUAL },
        Arguments {
            dtype: I32,
            ..USUAL
        },
        Arguments {
            op: sys::HCCL_REDUCE_MAX,
            ..USUAL
        },
        Arguments { root: 2, ..USUAL },
    );
    for kind in KINDS {
        ranks(
            kind,
            3,
            "every_argument_of_every_collective_is_compared",
            |rank| {
                let differs = |call, odd, usual: &str, odd_says: &str| {
                    one_differs(&rank, call, odd, usual, odd_says)
                };
                let usual = "all_reduce of 4 f32, sum";
                differs(all_reduce, count, usual, "all_reduce of 3 f32, sum");
                differs(all_reduce, dtype, usual, "all_reduce of 4 i32, sum");
                differs(all_reduce, op, usual, "all_reduce of 4 f32, max");
                let usual = "reduce of 4 f32, sum, root 0";
                differs(reduce, count, usual, "reduce of 3 f32, sum, root 0");
                differs(reduce, dtype, usual, "reduce of 4 i32, sum, root 0");
                differs(reduce, op, usual, "reduce of 4 f32, max, root 0");
                differs(reduce, root, usual, "reduce of 4 f32, sum, root 2");
                let usual = "reduce_scatter of 4 f32, sum";
                differs(reduce_scatter, count, usual, "reduce_scatter of 3 f32, sum");
                differs(reduce_scatter, dtype, usual, "reduce_scatter of 4 i32, sum");
                differs(reduce_scatter, op, usual, "reduce_scatter of 4 f32, max");
                let usual = "broadcast of 4 f32, root 0";
                differs(broadcast, count, usual, "broadcast of 3 f32, root 0");
                differs(broadcast, dtype, usual, "broadcast of 4 i32, root 0");
                differs(broadcast, root, usual, "broadcast of 4 f32, root 2");
                let usual = "scatter of 4 f32, root 0";
                differs(scatter, count, usual, "scatter of 3 f32, root 0");
                differs(scatter, dtype, usual, "scatter of 4 i32, root 0");
                differs(scatter, root, usual, "scatter of 4 f32, root 2");
                differs(
                    all_gather,
                    count,
                    "all_gather of 4 f32",
                    "all_gather of 3 f32",
                );
                differs(
                    all_gather,
                    dtype,
                    "all_gather of 4 f32",
                    "all_gather of 4 i32",
                );
                differs(
                    all_to_all,
                    count,
                    "all_to_all of 4 f32",
                    "all_to_all of 3 f32",
                );
                differs(
                    all_to_all,
                    dtype,
                    "all_to_all of 4 f32",
                    "all_to_all of 4 i32",
                );
                differs(
                    all_gather_v,
                    dtype,
                    "all_gather_v of f32",
                    "all_gather_v of i32",
                );
                differs(
                    all_to_all_v,
                    dtype,
                    "all_to_all_v of f32",
                    "all_to_all_v of i32",
                );
                differs(
                    all_to_all_vc,
                    dtype,
                    "all_to_all_vc of f32",
                    "all_to_all_vc of i32",
                );
                let usual = "reduce_scatter_v of f32, sum";
                differs(
                    reduce_scatter_v,
                    dtype,
                    usual,
                    "reduce_scatter_v of i32, sum",
                );
                differs(reduce_scatter_v, op, usual, "reduce_scatter_v of f32, max");
            },
        );
    }
}

#[test]
fn blocks_that_differ_are_shown_with_the_ranks_they_lie_between() {
    let odd = Arguments { count: 3, ..USUAL };
    for kind in KINDS {
        let test = "blocks_that_differ_are_shown_with_the_ranks_they_lie_between";
        ranks(kind, 3, test, |rank| {
            let what = "0 to 1: sends 4, expects 3";
            for (call, name) in [
                (all_gather_v as Call, "all_gather_v"),
                (reduce_scatter_v, "reduce_scatter_v"),
                (all_to_all_v, "all_to_all_v"),
                (all_to_all_vc, "all_to_all_vc"),
            ] {
                let block = format!("a block of {name} (collective 2), in elements: {what}");
                differ(
                    &rank,
                    1,
                    &[&block],
                    [(call, USUAL), (call, odd), (call, USUAL)],
                );
            }
        });
    }
}

/// The same in bytes, or the same count: a type is a type.
#[test]
fn types_are_compared_whatever_their_size() {
    for kind in KINDS {
        ranks(kind, 3, "types_are_compared_whatever_their_size", |rank| {
            let with = |dtype, count| Arguments {
                dtype,
                count,
                ..USUAL
            };
            let place = "(its collective 1, its operation 1)";
            let both = |first: &str, second: &str| {
                format!(
                    "rank 0: all_reduce of {first}, sum {place}; rank 1: all_reduce of {second}, sum {place}"
                )
            };
            for (odd, usual, words) in [
                (with(BF16, 1), with(F32, 1), both("1 bf16", "1 f32")),
                (with(F32, 1), with(I64, 1), both("1 f32", "1 i64")),
                (with(I32, 8), with(F32, 8), both("8 i32", "8 f32")),
                (with(F32, 2), with(I64, 1), both("2 f32", "1 i64")),
            ] {
                let calls = [odd, usual, usual].map(|arguments| (all_reduce as Call, arguments));
                differ(&rank, 0, &[&words], calls);
            }
        });
    }
}

/// Two ranks that issue the same two operations in another order, and one that leaves one out.
#[test]
fn another_order_is_another_operation() {
    for kind in KINDS {
        ranks(kind, 3, "another_order_is_another_operation", |rank| {
            let place = "(its collective 2, its operation 2)";
            for (odd, says) in [
                (broadcast as Call, "broadcast of 4 f32, root 0"),
                (barrier, "barrier"),
                (all_gather, "all_gather of 4 f32"),
                (reduce_scatter, "reduce_scatter of 4 f32, sum"),
                (all_to_all_v, "all_to_all_v of f32"),
            ] {
                let words =
                    format!("rank 0: {says} {place}; rank 1: all_reduce of 4 f32, sum {place}");
                let calls = [(odd, USUAL), (all_reduce, USUAL), (all_reduce, USUAL)];
                differ(&rank, 1, &[&words], calls);
            }
        });
    }
}

/// A transfer has two sides; the third rank has nothing to do with it.
#[test]
fn both_sides_of_a_transfer_are_compared() {
    for kind in KINDS {
        ranks(kind, 2, "both_sides_of_a_transfer_are_compared", |rank| {
            for (count, dtype, what) in [
                (3, F32, "rank 0 sends 4 f32, rank 1 expects 3 f32"),
                (5, F32, "rank 0 sends 4 f32, rank 1 expects 5 f32"),
                (4, I32, "rank 0 sends 4 f32, rank 1 expects 4 i32"),
            ] {
                for batched in [false, true] {
                    let (comm, stream) = equip(&rank);
                    comm.barrier(&stream).unwrap();
                    let buffer = Buffer::of(&[rank.rank as i32 - 7; 8]);
                    let (count, dtype) = if rank.rank == 0 {
                        (4, F32)
                    } else {
                        (count, dtype)
                    };
                    let mut item = HcclSendRecvItem {
                        sendRecvType: if rank.rank == 0 {
                            sys::HCCL_SEND
                        } else {
                            sys::HCCL_RECV
                        },
                        buf: buffer.0,
                        count,
                        dataType: dtype,
                        remoteRank: 1 - rank.rank,
                    };
                    let (peer, comm_handle) = (1 - rank.rank, comm.0);
                    let code = match (batched, rank.rank) {
                        (true, _) => c!(HcclBatchSendRecv(&mut item, 1, comm_handle, stream.0)),
                        (_, 0) => c!(HcclSend(
                            buffer.0,
                            count,
                            dtype,
                            peer,
                            comm_handle,
                            stream.0
                        )),
                        _ => c!(HcclRecv(
                            buffer.0,
                            count,
                            dtype,
                            peer,
                            comm_handle,
                            stream.0
                        )),
                    };
                    hccl(code).unwrap();
                    let (code, text) = stream.synchronize().unwrap_err();
                    assert!([507_018, 507_057].contains(&code), "{text}");
                    let transfer = "transfer 1 from rank 0 to rank 1 of communicator ";
                    assert!(text.contains(transfer) && text.contains(what), "{text}");
                    assert_eq!(
                        buffer.read::<i32>(8),
                        [rank.rank as i32 - 7; 8],
                        "no data came"
                    );
                    wait_for_all(&rank);
                }
            }
        });
    }
}

fn capture(comm: &Comm, stream: &Stream, buffer: &Buffer, counts: &[u64]) -> *mut c_void {
    let mode = sys::ACL_MODEL_RI_CAPTURE_MODE_THREAD_LOCAL;
    acl(c!(aclmdlRICaptureBegin(stream.0, mode))).unwrap();
    for &count in counts {
        comm.all_reduce(buffer, buffer, count, F32, SUM, stream)
            .unwrap();
    }
    let mut graph = ptr::null_mut();
    acl(c!(aclmdlRICaptureEnd(stream.0, &mut graph))).unwrap();
    graph
}

/// The first collective of both graphs is the same, so only the graphs can be told apart.
#[test]
fn different_captures_must_not_be_replayed_together() {
    for kind in KINDS {
        let test = "different_captures_must_not_be_replayed_together";
        ranks(kind, 2, test, |rank| {
            for eager in [false, true] {
                let (comm, stream) = equip(&rank);
                let buffer = Buffer::of(&[1f32; 8]);
                let (four, eight) = (
                    capture(&comm, &stream, &buffer, &[2, 4]),
                    capture(&comm, &stream, &buffer, &[2, 8]),
                );
                for _ in 0..100 {
                    buffer.write(&[rank.rank as f32 + 1.0; 8]);
                    acl(c!(aclmdlRIExecuteAsync(eight, stream.0))).unwrap();
                    stream.synchronize().unwrap();
                    assert_eq!(
                        buffer.read::<f32>(8),
                        [6.0, 6.0, 3.0, 3.0, 3.0, 3.0, 3.0, 3.0]
                    );
                }
                let before = buffer.read::<f32>(8);
                match (rank.rank, eager) {
                    (0, _) => acl(c!(aclmdlRIExecuteAsync(four, stream.0))).unwrap(),
                    (_, false) => acl(c!(aclmdlRIExecuteAsync(eight, stream.0))).unwrap(),
                    (_, true) => comm
                        .all_reduce(&buffer, &buffer, 2, F32, SUM, &stream)
                        .unwrap(),
                }
                let (code, text) = stream.synchronize().unwrap_err();
                assert_eq!(code, 507_018, "{text}");
                let other = if eager {
                    "called and not captured"
                } else {
                    "replayed from the rank's capture 2"
                };
                for word in [
                    "replayed different captures: rank 0: all_reduce of 2 f32, sum, replayed from the rank's capture 1",
                    &format!("rank 1: all_reduce of 2 f32, sum, {other}"),
                    "(its collective 201, its operation 201)",
                ] {
                    assert!(text.contains(word), "expected {word} in: {text}");
                }
                assert_eq!(buffer.read::<f32>(8), before, "no data came");
                for graph in [four, eight] {
                    acl(c!(aclmdlRIDestroy(graph))).unwrap();
                }
                wait_for_all(&rank);
            }
        });
    }
}

/// Calls run in their order on whatever streams they are; a rank that calls them the other way round is found out.
#[test]
fn two_streams_without_an_order_that_all_keep_are_reported() {
    ranks(
        Kind::Threads,
        2,
        "two_streams_without_an_order_that_all_keep_are_reported",
        |rank| {
            let (comm, first) = equip(&rank);
            let second = Stream::create();
            let buffer = Buffer::of(&[1f32; 4]);
            let reduce =
                |count, stream: &Stream| comm.all_reduce(&buffer, &buffer, count, F32, SUM, stream);
            let counts = if rank.rank == 0 { [3, 4] } else { [4, 3] };
            reduce(counts[0], &first).unwrap();
            // Refused when the first has failed already.
            let late = reduce(counts[1], &second);
            let (code, text) = first.synchronize().unwrap_err();
            assert_eq!(code, 507_018, "{text}");
            let both = "rank 0: all_reduce of 3 f32, sum (its collective 1, its operation 1); \
                        rank 1: all_reduce of 4 f32, sum (its collective 1, its operation 1)";
            assert!(text.contains(both), "{text}");
            match late {
                Ok(()) => assert!(second.synchronize().is_err()),
                Err((code, text)) => assert_eq!(code, sys::HCCL_E_REMOTE.0, "{text}"),
            }
            wait_for_all(&rank);
        },
    );
}
