//! Graphs: recorded once, replayed many times, collectives and forked streams included.

#![expect(unsafe_code, reason = "calls the C interface")]

mod support;

use std::ptr;

use hcom_sys::bindings as sys;
use support::api::{Buffer, Stream, acl};
use support::{KINDS, Kind, equip, ranks};

const GLOBAL: sys::aclmdlRICaptureMode = sys::ACL_MODEL_RI_CAPTURE_MODE_GLOBAL;
const LOCAL: sys::aclmdlRICaptureMode = sys::ACL_MODEL_RI_CAPTURE_MODE_THREAD_LOCAL;
const F32: sys::HcclDataType = sys::HCCL_DATA_TYPE_FP32;
const D2D: sys::aclrtMemcpyKind = sys::ACL_MEMCPY_DEVICE_TO_DEVICE;

fn event() -> sys::aclrtEvent {
    let mut event = ptr::null_mut();
    acl(c!(aclrtCreateEventExWithFlag(
        &mut event,
        sys::ACL_EVENT_SYNC
    )))
    .unwrap();
    event
}

/// input -> copy -> all_reduce on a second stream -> copy to the output.
#[test]
fn a_forked_collective_is_replayed_with_new_data() {
    for kind in KINDS {
        ranks(
            kind,
            2,
            "a_forked_collective_is_replayed_with_new_data",
            |rank| {
                let (comm, compute) = equip(&rank);
                let transfer = Stream::create();
                let (input, work, output) = (
                    Buffer::of(&[-1f32; 3]),
                    Buffer::of(&[0f32; 3]),
                    Buffer::of(&[0f32; 3]),
                );
                let (fork, join) = (event(), event());
                acl(c!(aclmdlRICaptureBegin(compute.0, LOCAL))).unwrap();
                acl(c!(aclrtMemcpyAsync(
                    work.0, 12, input.0, 12, D2D, compute.0
                )))
                .unwrap();
                acl(c!(aclrtRecordEvent(fork, compute.0))).unwrap();
                acl(c!(aclrtStreamWaitEvent(transfer.0, fork))).unwrap();
                comm.all_reduce(&work, &work, 3, F32, sys::HCCL_REDUCE_SUM, &transfer)
                    .unwrap();
                acl(c!(aclrtRecordEvent(join, transfer.0))).unwrap();
                acl(c!(aclrtStreamWaitEvent(compute.0, join))).unwrap();
                acl(c!(aclrtMemcpyAsync(
                    output.0, 12, work.0, 12, D2D, compute.0
                )))
                .unwrap();
                let mut status = sys::ACL_MODEL_RI_CAPTURE_STATUS_NONE;
                acl(c!(aclmdlRICaptureGetInfo(
                    transfer.0,
                    &mut status,
                    ptr::null_mut()
                )))
                .unwrap();
                assert_eq!(
                    status,
                    sys::ACL_MODEL_RI_CAPTURE_STATUS_ACTIVE,
                    "a stream that waits joins"
                );
                let mut graph = ptr::null_mut();
                acl(c!(aclmdlRICaptureEnd(compute.0, &mut graph))).unwrap();
                compute.synchronize().unwrap();
                assert_eq!(output.read::<f32>(3), [0.0; 3], "nothing ran");
                for round in 0..50 {
                    let own = (round * 10 + rank.rank) as f32;
                    input.write(&[own, own + 1.0, 2.0]);
                    acl(c!(aclmdlRIExecuteAsync(graph, compute.0))).unwrap();
                    compute.synchronize().unwrap();
                    let sum = (round * 20 + 1) as f32;
                    assert_eq!(output.read::<f32>(3), [sum, sum + 2.0, 4.0]);
                }
                for _ in 0..5 {
                    acl(c!(aclmdlRIExecuteAsync(graph, compute.0))).unwrap();
                }
                // Eager work on the same communicator follows the replays.
                comm.barrier(&compute).unwrap();
                compute.synchronize().unwrap();
                acl(c!(aclmdlRIDestroy(graph))).unwrap();
                assert_eq!(c!(aclmdlRIExecuteAsync(graph, compute.0)), 107_017);
                for event in [fork, join] {
                    acl(c!(aclrtDestroyEvent(event))).unwrap();
                }
            },
        );
    }
}

#[test]
fn what_a_capture_cannot_hold_is_refused() {
    ranks(
        Kind::Threads,
        1,
        "what_a_capture_cannot_hold_is_refused",
        |_| {
            let (stream, other) = (Stream::create(), Stream::create());
            let buffer = Buffer::of(&[1f32]);
            let mut graph = ptr::null_mut();
            assert_eq!(c!(aclmdlRICaptureEnd(stream.0, &mut graph)), 107_029);
            let begin = || acl(c!(aclmdlRICaptureBegin(stream.0, LOCAL))).unwrap();

            begin();
            assert_eq!(c!(aclmdlRICaptureBegin(stream.0, GLOBAL)), 107_027);
            assert_eq!(stream.synchronize().unwrap_err().0, 107_027);
            assert_eq!(c!(aclmdlRICaptureEnd(stream.0, &mut graph)), 507_903);

            begin();
            let mut host = [0f32];
            let kind = sys::ACL_MEMCPY_DEVICE_TO_HOST;
            assert_eq!(
                c!(aclrtMemcpy(host.as_mut_ptr().cast(), 4, buffer.0, 4, kind)),
                107_030
            );
            assert_eq!(c!(aclmdlRICaptureEnd(stream.0, &mut graph)), 507_903);

            begin();
            assert_eq!(
                c!(aclrtMemcpyAsync(
                    host.as_mut_ptr().cast(),
                    4,
                    buffer.0,
                    4,
                    kind,
                    stream.0
                )),
                107_041
            );
            assert_eq!(c!(aclmdlRICaptureEnd(stream.0, &mut graph)), 507_903);

            let fork = event();
            begin();
            acl(c!(aclrtRecordEvent(fork, stream.0))).unwrap();
            acl(c!(aclrtStreamWaitEvent(other.0, fork))).unwrap();
            assert_eq!(c!(aclmdlRICaptureEnd(other.0, &mut graph)), 107_036);
            assert_eq!(
                c!(aclmdlRICaptureEnd(stream.0, &mut graph)),
                107_025,
                "the other stream did not come back"
            );
            assert!(graph.is_null());
            assert_eq!(c!(aclrtSynchronizeEvent(fork)), 107_028);
            stream.synchronize().unwrap();
            other.synchronize().unwrap();
            assert_eq!(buffer.read::<f32>(1), [1.0]);
            acl(c!(aclrtDestroyEvent(fork))).unwrap();
        },
    );
}
