//! What collectives with different parts per rank refuse: at the call with the documented code, or on all ranks once they
//! have met.

#![expect(unsafe_code, reason = "calls the C interface")]

mod support;

use std::ffi::c_void;

use hcom_sys::bindings as sys;
use support::api::{Buffer, Comm, Stream, hccl};
use support::{KINDS, Kind, equip, ranks, wait_for_all};

const F32: sys::HcclDataType = sys::HCCL_DATA_TYPE_FP32;
const I32: sys::HcclDataType = sys::HCCL_DATA_TYPE_INT32;
const SUM: sys::HcclReduceOp = sys::HCCL_REDUCE_SUM;

fn pointer(list: &[u64]) -> *const c_void {
    list.as_ptr().cast()
}

#[test]
fn wrong_arguments_of_these_have_their_documented_codes() {
    ranks(
        Kind::Threads,
        2,
        "wrong_arguments_of_these_have_their_documented_codes",
        |rank| {
            let (comm, stream) = equip(&rank);
            let (a, b) = (Buffer::new(64), Buffer::new(64));
            let null = std::ptr::null_mut::<c_void>();
            let (para, ptr, unsupported) =
                (sys::HCCL_E_PARA, sys::HCCL_E_PTR, sys::HCCL_E_NOT_SUPPORT);
            let to_all = |send, n, dtype, recv, m, other| {
                c!(HcclAlltoAll(
                    send, n, dtype, recv, m, other, comm.0, stream.0
                ))
            };
            assert_eq!(to_all(a.0, 1, I32, b.0, 2, I32), para);
            assert_eq!(to_all(a.0, 1, I32, b.0, 1, F32), para);
            assert_eq!(to_all(a.0, 1, I32, a.0, 1, I32), para);
            assert_eq!(to_all(a.0, 3, I32, a.at(8), 3, I32), para, "overlap");
            assert_eq!(to_all(null, 1, I32, b.0, 1, I32), ptr);
            let int128 = sys::HCCL_DATA_TYPE_INT128;
            assert_eq!(to_all(a.0, 1, int128, b.0, 1, int128), unsupported);
            // 2^35 - 1 elements for each of two ranks are 2^38 bytes: no overflow, no such allocation.
            assert_eq!(
                to_all(a.0, 0x7_ffff_ffff, I32, b.0, 0x7_ffff_ffff, I32),
                para
            );
            let (two, at, far) = ([1u64, 1], [0u64, 1], [0, u64::MAX]);
            let gather = |send, counts, displs: *const c_void| {
                c!(HcclAllGatherV(
                    send, 1, b.0, counts, displs, I32, comm.0, stream.0
                ))
            };
            assert_eq!(gather(a.0, std::ptr::null(), pointer(&at)), ptr);
            assert_eq!(gather(a.0, pointer(&two), std::ptr::null()), ptr);
            assert_eq!(gather(null, pointer(&two), pointer(&at)), ptr);
            assert_eq!(gather(b.0, pointer(&two), pointer(&at)), para, "in place");
            assert_eq!(
                gather(a.0, pointer(&two), pointer(&far)),
                para,
                "an extent that overflows"
            );
            let scatter_v = |count, op| {
                c!(HcclReduceScatterV(
                    a.0,
                    pointer(&two),
                    pointer(&at),
                    b.0,
                    count,
                    F32,
                    op,
                    comm.0,
                    stream.0
                ))
            };
            assert_eq!(scatter_v(2, SUM), para, "the own entry says 1");
            assert_eq!(scatter_v(1, sys::HCCL_REDUCE_PROD), unsupported);
            let reduce =
                |recv, root| c!(HcclReduce(a.0, recv, 1, F32, SUM, root, comm.0, stream.0));
            assert_eq!(reduce(null, 0), ptr, "on every rank");
            assert_eq!(reduce(b.0, 2), para);
            let scatter =
                |send, count, root| c!(HcclScatter(send, b.0, count, F32, root, comm.0, stream.0));
            assert_eq!(scatter(null, 1, rank.rank), ptr, "null on the root");
            assert_eq!(scatter(a.0, 1, 2), para);
            assert_eq!(
                scatter(null, 0, 9),
                sys::HCCL_SUCCESS,
                "0 elements come before all checks"
            );
            // After all that the communicator still works.
            comm.barrier(&stream).unwrap();
            stream.synchronize().unwrap();
        },
    );
}

/// Both sides are named on every rank, and nothing is delivered.
#[test]
fn blocks_that_do_not_match_are_refused_on_all_ranks() {
    for kind in KINDS {
        ranks(
            kind,
            3,
            "blocks_that_do_not_match_are_refused_on_all_ranks",
            |rank| {
                let refused =
                    |what: &str, call: &dyn Fn(&Comm, &Stream, *mut c_void, *mut c_void)| {
                        let (comm, stream) = equip(&rank);
                        let (send, recv) = (
                            Buffer::of(&[rank.rank as i32; 16]),
                            Buffer::of(&[-1i32; 16]),
                        );
                        call(&comm, &stream, send.0, recv.0);
                        let (_, text) = stream.synchronize().unwrap_err();
                        assert!(text.contains(what), "{text}");
                        assert_eq!(recv.read::<i32>(16), [-1; 16], "no data came");
                        // All must have heard before one destroys its end.
                        wait_for_all(&rank);
                    };
                let me = rank.rank;
                let at = [0u64, 5, 10];
                refused("0 to 1: sends 0, expects 5", &|comm, stream, send, recv| {
                    let sends = [1, u64::from(me != 0), 1];
                    let expects = if me == 1 { [5, 1, 1] } else { [1, 1, 1] };
                    hccl(c!(HcclAlltoAllV(
                        send,
                        pointer(&sends),
                        pointer(&at),
                        I32,
                        recv,
                        pointer(&expects),
                        pointer(&at),
                        I32,
                        comm.0,
                        stream.0
                    )))
                    .unwrap();
                });
                refused("2 to 0: sends 3, expects 2", &|comm, stream, send, recv| {
                    let mut matrix = [1u64; 9];
                    matrix[6] = if me == 2 { 3 } else { 2 };
                    hccl(c!(HcclAlltoAllVC(
                        send,
                        pointer(&matrix),
                        I32,
                        recv,
                        I32,
                        comm.0,
                        stream.0
                    )))
                    .unwrap();
                });
                refused("1 to 0: sends 2, expects 1", &|comm, stream, send, recv| {
                    let own = if me == 1 { 2 } else { 1 };
                    hccl(c!(HcclAllGatherV(
                        send,
                        own,
                        recv,
                        pointer(&[1, 1, 1]),
                        pointer(&at),
                        I32,
                        comm.0,
                        stream.0
                    )))
                    .unwrap();
                });
                refused("0 to 2: sends 1, expects 4", &|comm, stream, send, recv| {
                    let lists = if me == 2 { [1, 1, 4] } else { [1, 1, 1] };
                    let own = lists[me as usize];
                    hccl(c!(HcclReduceScatterV(
                        send,
                        pointer(&lists),
                        pointer(&at),
                        recv,
                        own,
                        I32,
                        SUM,
                        comm.0,
                        stream.0
                    )))
                    .unwrap();
                });
                let what = "for 1: starts at 5 on rank 0, at 6 on rank 2";
                refused(what, &|comm, stream, send, recv| {
                    let displs = if me == 2 { [0, 6, 10] } else { at };
                    hccl(c!(HcclReduceScatterV(
                        send,
                        pointer(&[1, 1, 1]),
                        pointer(&displs),
                        recv,
                        1,
                        I32,
                        SUM,
                        comm.0,
                        stream.0
                    )))
                    .unwrap();
                });
                let both = "rank 0: reduce of 4 i32, sum, root 0 (its collective 1, its operation 1); \
                            rank 1: reduce of 4 i32, sum, root 1 (its collective 1, its operation 1)";
                refused(both, &|comm, stream, send, recv| {
                    hccl(c!(HcclReduce(
                        send,
                        recv,
                        4,
                        I32,
                        SUM,
                        u32::from(me == 1),
                        comm.0,
                        stream.0
                    )))
                    .unwrap();
                });
                let both = "rank 0: all_to_all of 2 i32 (its collective 1, its operation 1); \
                            rank 2: all_to_all of 2 f32 (its collective 1, its operation 1)";
                refused(both, &|comm, stream, send, recv| {
                    let dtype = if me == 2 { F32 } else { I32 };
                    hccl(c!(HcclAlltoAll(
                        send, 2, dtype, recv, 2, dtype, comm.0, stream.0
                    )))
                    .unwrap();
                });
            },
        );
    }
}
