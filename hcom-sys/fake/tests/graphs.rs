//! What captures refuse and with which code, events outside a capture, tasks replaced later, and built graphs.

#![expect(unsafe_code, reason = "calls the C interface")]

mod support;

use std::ffi::{CString, c_void};
use std::ptr;

use hcom_sys::bindings as sys;
use support::api::{Buffer, Stream, acl, last_error};
use support::on_device;

const LOCAL: sys::aclmdlRICaptureMode = sys::ACL_MODEL_RI_CAPTURE_MODE_THREAD_LOCAL;
const RELAXED: sys::aclmdlRICaptureMode = sys::ACL_MODEL_RI_CAPTURE_MODE_RELAXED;
const D2D: sys::aclrtMemcpyKind = sys::ACL_MEMCPY_DEVICE_TO_DEVICE;

fn event(ex: bool) -> *mut c_void {
    let mut event = ptr::null_mut();
    let flag = sys::ACL_EVENT_SYNC;
    acl(match ex {
        true => c!(aclrtCreateEventExWithFlag(&mut event, flag)),
        false => c!(aclrtCreateEventWithFlag(&mut event, flag)),
    })
    .unwrap();
    event
}

fn copy(to: &Buffer, from: &Buffer, stream: &Stream) -> i32 {
    c!(aclrtMemcpyAsync(to.0, 4, from.0, 4, D2D, stream.0))
}

fn begin(stream: &Stream, mode: sys::aclmdlRICaptureMode) {
    acl(c!(aclmdlRICaptureBegin(stream.0, mode))).unwrap();
}

fn end(stream: &Stream) -> Result<*mut c_void, i32> {
    let mut model = ptr::without_provenance_mut(1);
    match c!(aclmdlRICaptureEnd(stream.0, &mut model)) {
        0 => Ok(model),
        code => {
            assert!(model.is_null(), "no graph on failure");
            Err(code)
        }
    }
}

#[test]
fn a_stream_that_joined_must_come_back() {
    on_device(0, || {
        let (origin, other) = (Stream::create(), Stream::create());
        let (fork, join) = (event(true), event(true));
        let (a, b) = (Buffer::of(&[1u32]), Buffer::of(&[0u32]));
        for back in [false, true] {
            begin(&origin, LOCAL);
            acl(c!(aclrtRecordEvent(fork, origin.0))).unwrap();
            acl(c!(aclrtStreamWaitEvent(other.0, fork))).unwrap();
            assert_eq!(copy(&b, &a, &other), 0);
            if back {
                acl(c!(aclrtRecordEvent(join, other.0))).unwrap();
                acl(c!(aclrtStreamWaitEvent(origin.0, join))).unwrap();
            }
            assert_eq!(end(&other), Err(107_036), "began on another stream");
            match end(&origin) {
                Ok(model) => acl(c!(aclmdlRIDestroy(model))).unwrap(),
                Err(code) => assert_eq!((code, back), (107_025, false)),
            }
            assert_eq!(end(&origin), Err(107_029), "over");
            // Both streams run work again.
            assert_eq!(copy(&b, &a, &other), 0);
            other.synchronize().unwrap();
        }
    });
}

#[test]
fn work_behind_the_join_keeps_a_stream_apart() {
    on_device(0, || {
        let (origin, other) = (Stream::create(), Stream::create());
        let (fork, join) = (event(true), event(true));
        let (a, b) = (Buffer::of(&[1u32]), Buffer::of(&[0u32]));
        begin(&origin, RELAXED);
        acl(c!(aclrtRecordEvent(fork, origin.0))).unwrap();
        acl(c!(aclrtStreamWaitEvent(other.0, fork))).unwrap();
        acl(c!(aclrtRecordEvent(join, other.0))).unwrap();
        acl(c!(aclrtStreamWaitEvent(origin.0, join))).unwrap();
        assert_eq!(copy(&b, &a, &other), 0);
        assert_eq!(end(&origin), Err(107_025));
    });
}

#[test]
fn what_a_capture_forbids_breaks_it() {
    on_device(0, || {
        let stream = Stream::create();
        let (a, b) = (Buffer::of(&[1u32]), Buffer::of(&[0u32]));
        let mut host = [0u32];
        let to_host = sys::ACL_MEMCPY_DEVICE_TO_HOST;
        let place: *mut c_void = host.as_mut_ptr().cast();
        let recorded = event(true);
        type Forbidden<'a> = (&'a str, Box<dyn Fn() -> i32 + 'a>, i32);
        let mut status = sys::ACL_EVENT_RECORDED_STATUS_COMPLETE;
        let status = &raw mut status;
        let calls: Vec<Forbidden<'_>> = vec![
            (
                "memcpy",
                Box::new(|| c!(aclrtMemcpy(b.0, 4, a.0, 4, D2D))),
                107_030,
            ),
            (
                "memset",
                Box::new(|| c!(aclrtMemset(b.0, 4, 0, 4))),
                107_030,
            ),
            (
                "2d",
                Box::new(|| c!(aclrtMemcpy2d(b.0, 4, a.0, 4, 4, 1, D2D))),
                107_030,
            ),
            (
                "pageable",
                Box::new(|| c!(aclrtMemcpyAsync(place, 4, a.0, 4, to_host, stream.0))),
                107_041,
            ),
            (
                "pageable 2d",
                Box::new(|| {
                    c!(aclrtMemcpy2dAsync(
                        place, 4, a.0, 4, 4, 1, to_host, stream.0
                    ))
                }),
                107_041,
            ),
            (
                "synchronize",
                Box::new(|| c!(aclrtSynchronizeStream(stream.0))),
                107_027,
            ),
            (
                "default stream",
                Box::new(|| c!(aclrtMemsetAsync(b.0, 4, 0, 4, ptr::null_mut()))),
                107_031,
            ),
            (
                "query",
                Box::new(|| c!(aclrtQueryEventStatus(recorded, status))),
                107_028,
            ),
        ];
        for (name, call, code) in &calls {
            begin(&stream, LOCAL);
            acl(c!(aclrtRecordEvent(recorded, stream.0))).unwrap();
            assert_eq!(call(), *code, "{name}: {}", last_error());
            let mut capturing = sys::ACL_MODEL_RI_CAPTURE_STATUS_NONE;
            acl(c!(aclmdlRICaptureGetInfo(
                stream.0,
                &mut capturing,
                ptr::null_mut()
            )))
            .unwrap();
            assert_eq!(
                capturing,
                sys::ACL_MODEL_RI_CAPTURE_STATUS_INVALIDATED,
                "{name}"
            );
            assert_eq!(end(&stream), Err(507_903), "{name}");
        }
        // A thread that relaxes its own mode may.
        let mut mode = RELAXED;
        acl(c!(aclmdlRICaptureThreadExchangeMode(&mut mode))).unwrap();
        begin(&stream, LOCAL);
        assert_eq!(c!(aclrtMemset(b.0, 4, 0, 4)), 0);
        let model = end(&stream).unwrap();
        acl(c!(aclmdlRICaptureThreadExchangeMode(&mut mode))).unwrap();
        assert_eq!(mode, RELAXED);
        acl(c!(aclmdlRIDestroy(model))).unwrap();
    });
}

#[test]
fn an_event_that_was_never_recorded_is_found_out() {
    on_device(0, || {
        let stream = Stream::create();
        let never = event(false);
        begin(&stream, LOCAL);
        acl(c!(aclrtStreamWaitEvent(stream.0, never))).unwrap();
        assert_eq!(end(&stream), Err(107_024));
        begin(&stream, LOCAL);
        assert_eq!(c!(aclrtResetEvent(never, stream.0)), 107_024);
        assert_eq!(end(&stream), Err(507_903));
    });
}

#[test]
fn a_replay_waits_for_an_event_outside_and_records_one() {
    on_device(0, || {
        let (stream, outside) = (Stream::create(), Stream::create());
        let (before, after) = (event(true), event(true));
        let (input, output) = (Buffer::of(&[0u32]), Buffer::of(&[0u32]));
        assert_eq!(c!(aclrtRecordEventWithFlag(before, stream.0, 1)), 107_029);
        begin(&stream, LOCAL);
        acl(c!(aclrtStreamWaitEventWithFlag(stream.0, before, 0, 1))).unwrap();
        assert_eq!(copy(&output, &input, &stream), 0);
        acl(c!(aclrtRecordEventWithFlag(after, stream.0, 1))).unwrap();
        let model = end(&stream).unwrap();
        for value in [7u32, 8] {
            // The value is there only when the host lets the other stream go on.
            let gate = Buffer::of(&[0u64]);
            acl(c!(aclrtValueWait(gate.0, 1, 0, outside.0))).unwrap();
            acl(c!(aclrtMemsetAsync(input.0, 4, value as i32, 4, outside.0))).unwrap();
            acl(c!(aclrtRecordEvent(before, outside.0))).unwrap();
            acl(c!(aclmdlRIExecuteAsync(model, stream.0))).unwrap();
            acl(c!(aclrtStreamWaitEvent(outside.0, after))).unwrap();
            assert_eq!(c!(aclmdlRIDestroy(model)), 107_037, "it runs");
            gate.write(&[1u64]);
            outside.synchronize().unwrap();
            stream.synchronize().unwrap();
            assert_eq!(output.read::<u32>(1), [value * 0x0101_0101]);
        }
        acl(c!(aclmdlRIDestroy(model))).unwrap();
        assert_eq!(c!(aclmdlRIDestroy(model)), 107_017);
    });
}

#[test]
fn captured_tasks_are_replaced_in_the_order_of_a_stream() {
    on_device(0, || {
        let stream = Stream::create();
        let (one, two, output) = (
            Buffer::of(&[1u32]),
            Buffer::of(&[2u32]),
            Buffer::of(&[0u32]),
        );
        let mut group = ptr::null_mut();
        assert_eq!(c!(aclmdlRICaptureTaskGrpBegin(stream.0)), 107_029);
        begin(&stream, LOCAL);
        acl(c!(aclmdlRICaptureTaskGrpBegin(stream.0))).unwrap();
        assert_eq!(copy(&output, &one, &stream), 0);
        acl(c!(aclmdlRICaptureTaskGrpEnd(stream.0, &mut group))).unwrap();
        assert_eq!(c!(aclmdlRICaptureTaskGrpEnd(stream.0, &mut group)), 107_033);
        assert_eq!(c!(aclmdlRICaptureTaskUpdateBegin(stream.0, group)), 107_027);
        let model = end(&stream).unwrap();
        let run = || {
            acl(c!(aclmdlRIExecuteAsync(model, stream.0))).unwrap();
            stream.synchronize().unwrap();
            output.read::<u32>(1)[0]
        };
        assert_eq!(run(), 1);
        acl(c!(aclmdlRICaptureTaskUpdateBegin(stream.0, group))).unwrap();
        assert_eq!(c!(aclmdlRICaptureTaskUpdateBegin(stream.0, group)), 107_033);
        assert_eq!(copy(&output, &two, &stream), 0);
        acl(c!(aclmdlRICaptureTaskUpdateEnd(stream.0))).unwrap();
        assert_eq!(run(), 2);
        acl(c!(aclmdlRICaptureTaskUpdateBegin(stream.0, group))).unwrap();
        acl(c!(aclrtMemsetAsync(output.0, 4, 0, 4, stream.0))).unwrap();
        assert_eq!(c!(aclmdlRICaptureTaskUpdateEnd(stream.0)), 107_040);
        let text = last_error();
        assert!(
            text.contains("[a copy]") && text.contains("[a fill]"),
            "{text}"
        );
        assert_eq!(c!(aclmdlRICaptureTaskUpdateEnd(stream.0)), 107_033);
        assert_eq!(run(), 2, "unchanged");
        begin(&stream, LOCAL);
        acl(c!(aclmdlRICaptureTaskGrpBegin(stream.0))).unwrap();
        assert_eq!(end(&stream), Err(107_033), "left open");
        acl(c!(aclmdlRIDestroy(model))).unwrap();
    });
}

#[test]
fn a_graph_is_written_as_json() {
    on_device(0, || {
        let stream = Stream::create();
        let (a, b) = (Buffer::of(&[1u32]), Buffer::of(&[0u32]));
        begin(&stream, LOCAL);
        assert_eq!(copy(&b, &a, &stream), 0);
        let model = end(&stream).unwrap();
        let file = std::env::temp_dir().join(format!("hcom-graph-{}.json", std::process::id()));
        let path = CString::new(file.to_str().unwrap()).unwrap();
        acl(c!(aclmdlRISetName(model, c"step".as_ptr()))).unwrap();
        acl(c!(aclmdlRIDebugJsonPrint(model, path.as_ptr(), 1))).unwrap();
        let text = std::fs::read_to_string(&file).unwrap();
        std::fs::remove_file(&file).unwrap();
        assert!(text.contains("\"name\": \"step\""), "{text}");
        assert!(
            text.contains("{\"type\": \"task\", \"name\": \"a copy\", \"step\": 0}"),
            "{text}"
        );
        assert_eq!(
            c!(aclmdlRIDebugJsonPrint(model, c"/none/x".as_ptr(), 0)),
            100_004
        );
        assert_eq!(c!(aclmdlRIDebugJsonPrint(model, path.as_ptr(), 2)), 100_000);
        acl(c!(aclmdlRIDestroy(model))).unwrap();
    });
}

#[test]
fn a_built_graph_jumps_to_the_label_that_a_number_names() {
    on_device(0, || {
        let mut bound = ptr::null_mut();
        let flag = sys::ACL_STREAM_PERSISTENT;
        acl(c!(aclrtCreateStreamWithConfig(&mut bound, 0, flag))).unwrap();
        let bound = Stream(bound);
        let stream = Stream::create();
        let index = Buffer::of(&[0u32]);
        let outputs = Buffer::of(&[0u32; 3]);
        let mut model = ptr::null_mut();
        acl(c!(aclmdlRIBuildBegin(&mut model, 0))).unwrap();
        assert_eq!(
            c!(aclmdlRIBindStream(model, stream.0, 0)),
            107_000,
            "not persistent"
        );
        acl(c!(aclmdlRIBindStream(model, bound.0, 0))).unwrap();
        let mut labels = [ptr::null_mut(); 3];
        for label in &mut labels {
            acl(c!(aclrtCreateLabel(label))).unwrap();
        }
        let mut list = ptr::null_mut();
        acl(c!(aclrtCreateLabelList(labels.as_mut_ptr(), 3, &mut list))).unwrap();
        assert_eq!(
            c!(aclrtSetLabel(labels[0], stream.0)),
            107_005,
            "bound to no graph"
        );
        assert_eq!(
            c!(aclrtSwitchLabelByIndex(index.0, 2, list, bound.0)),
            107_000
        );
        acl(c!(aclrtSwitchLabelByIndex(index.0, 3, list, bound.0))).unwrap();
        for (at, &label) in labels.iter().enumerate() {
            acl(c!(aclrtSetLabel(label, bound.0))).unwrap();
            let place = outputs.at(at * 4);
            acl(c!(aclrtMemsetAsync(place, 4, at as i32 + 1, 4, bound.0))).unwrap();
        }
        acl(c!(aclmdlRIEndTask(model, bound.0))).unwrap();
        assert_eq!(
            c!(aclmdlRIExecuteAsync(model, stream.0)),
            107_017,
            "not finished"
        );
        acl(c!(aclmdlRIBuildEnd(model, ptr::null_mut()))).unwrap();
        let expected = [
            (0u32, [0x0101_0101u32, 0x0202_0202, 0x0303_0303]),
            (1, [0, 0x0202_0202, 0x0303_0303]),
            (2, [0, 0, 0x0303_0303]),
            (9, [0, 0, 0x0303_0303]),
        ];
        for (chosen, result) in expected {
            outputs.write(&[0u32; 3]);
            index.write(&[chosen]);
            acl(c!(aclmdlRIExecuteAsync(model, stream.0))).unwrap();
            stream.synchronize().unwrap();
            assert_eq!(outputs.read::<u32>(3), result, "label {chosen}");
        }
        acl(c!(aclmdlRIUnbindStream(model, bound.0))).unwrap();
        acl(c!(aclmdlRIDestroy(model))).unwrap();
        acl(c!(aclrtDestroyLabelList(list))).unwrap();
        for label in labels {
            acl(c!(aclrtDestroyLabel(label))).unwrap();
        }
    });
}

#[test]
fn the_streams_of_a_built_graph_run_side_by_side_and_end_together() {
    on_device(0, || {
        let streams: Vec<Stream> = (0..2)
            .map(|_| {
                let mut stream = ptr::null_mut();
                let flag = sys::ACL_STREAM_PERSISTENT;
                acl(c!(aclrtCreateStreamWithConfig(&mut stream, 0, flag))).unwrap();
                Stream(stream)
            })
            .collect();
        let word = Buffer::of(&[0u64]);
        let mut model = ptr::null_mut();
        acl(c!(aclmdlRIBuildBegin(&mut model, 0))).unwrap();
        for stream in &streams {
            acl(c!(aclmdlRIBindStream(model, stream.0, 0))).unwrap();
        }
        // The first only ends because the second runs at the same time.
        acl(c!(aclrtValueWait(word.0, 5, 0, streams[0].0))).unwrap();
        acl(c!(aclrtValueWrite(word.0, 5, 0, streams[1].0))).unwrap();
        acl(c!(aclmdlRIBuildEnd(model, ptr::null_mut()))).unwrap();
        acl(c!(aclmdlRIExecute(model, 10_000))).unwrap();
        assert_eq!(word.read::<u64>(1), [5]);
        acl(c!(aclmdlRIDestroy(model))).unwrap();
    });
}
