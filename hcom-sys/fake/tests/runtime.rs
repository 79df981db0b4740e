//! Streams, events, memory and codes of the runtime, in one process.

#![expect(unsafe_code, reason = "calls the C interface")]

mod support;

use std::ffi::c_void;
use std::ptr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use hcom_sys::bindings as sys;
use support::api::{Buffer, Stream, acl, last_error};
use support::{on_device, processes};

fn host<T>(values: &mut [T]) -> *mut c_void {
    values.as_mut_ptr().cast()
}

#[test]
fn a_thread_without_a_device_is_told_so() {
    let mut device = 0;
    assert_eq!(c!(aclrtGetDevice(&mut device)), 107_002);
    let mut stream = ptr::null_mut();
    assert_eq!(c!(aclrtCreateStream(&mut stream)), 107_002);
    assert!(last_error().contains("aclrtSetDevice"));
    assert_eq!(last_error(), "", "the text is given once");
    assert_eq!(c!(aclrtSetDevice(16)), 107_001);
    assert!(last_error().contains("devices 0 to 15"));
    assert_eq!(c!(aclrtSetDevice(-1)), 107_001);
    assert_eq!(c!(aclrtResetDevice(15)), 107_002, "never set");
}

#[test]
fn a_system_parameter_is_zero_for_the_process_and_unset_for_a_context() {
    on_device(3, || {
        let option = sys::ACL_OPT_STRONG_CONSISTENCY;
        let mut value = -1;
        assert_eq!(c!(aclrtGetSysParamOpt(option, &mut value)), 0);
        assert_eq!(value, 0);
        assert_eq!(c!(aclrtCtxGetSysParamOpt(option, &mut value)), 107_021);
        assert_eq!(c!(aclrtCtxSetSysParamOpt(option, 5)), 0);
        assert_eq!(c!(aclrtCtxGetSysParamOpt(option, &mut value)), 0);
        assert_eq!(value, 5);
        let unknown = sys::aclSysParamOpt(9);
        assert_eq!(c!(aclrtGetSysParamOpt(unknown, &mut value)), 100_000);
    });
}

#[test]
fn arguments_are_checked() {
    on_device(0, || {
        let mut pointer = ptr::null_mut();
        let policy = sys::ACL_MEM_MALLOC_HUGE_FIRST;
        assert_eq!(c!(aclrtMalloc(&mut pointer, 0, policy)), 100_000);
        assert_eq!(c!(aclrtMalloc(ptr::null_mut(), 8, policy)), 100_000);
        assert_eq!(c!(aclrtMalloc(&mut pointer, 1 << 50, policy)), 207_001);
        assert_eq!(c!(aclrtFree(ptr::null_mut())), 100_000);
        let buffer = Buffer::new(100);
        assert_eq!(c!(aclrtFree(buffer.at(1))), 107_000);
        let mut values = [0u8; 101];
        let (to_host, null) = (sys::ACL_MEMCPY_DEVICE_TO_HOST, ptr::null_mut());
        assert_eq!(
            c!(aclrtMemcpy(null, 0, null, 0, to_host)),
            0,
            "0 bytes come first"
        );
        assert_eq!(c!(aclrtMemcpy(null, 8, buffer.0, 8, to_host)), 100_000);
        assert_eq!(
            c!(aclrtMemcpy(host(&mut values), 7, buffer.0, 8, to_host)),
            107_000
        );
        assert_eq!(
            c!(aclrtMemcpy(host(&mut values), 101, buffer.0, 101, to_host)),
            107_000
        );
        assert_eq!(
            c!(aclrtMemcpy(
                host(&mut values),
                8,
                buffer.0,
                8,
                sys::aclrtMemcpyKind(6)
            )),
            100_000
        );
        assert_eq!(
            c!(aclrtMemcpyAsync(
                host(&mut values),
                9,
                host(&mut [0u8; 9]),
                9,
                to_host,
                null
            )),
            207_000
        );
        assert_eq!(c!(aclrtSynchronizeStream(buffer.0)), 107_017);
        assert_eq!(c!(aclrtSynchronizeStreamWithTimeout(null, -2)), 107_000);
        assert_eq!(c!(aclrtDestroyStream(null)), 100_000);
        assert_eq!(c!(aclrtDestroyEvent(null)), 100_000);
        let mut event = null;
        assert_eq!(c!(aclrtCreateEventExWithFlag(&mut event, 0)), 107_000);
        let stream = Stream::create();
        on_other_thread(1, || {
            assert_eq!(stream.synchronize().unwrap_err().0, 107_003)
        });
    });
}

fn on_other_thread(device: u32, body: impl FnOnce() + Send) {
    thread::scope(|scope| scope.spawn(|| on_device(device, body)).join().unwrap());
}

#[test]
fn initialisation_is_counted() {
    // In a process of its own: the count belongs to the process.
    let ends = processes(1, "initialisation_is_counted", &[], |_| {
        assert_eq!(c!(aclFinalize()), 100_037);
        assert_eq!(c!(aclInit(ptr::null())), 0);
        assert_eq!(c!(aclInit(ptr::null())), 100_002);
        let mut left = 9;
        assert_eq!(c!(aclFinalizeReference(&mut left)), 0);
        assert_eq!(left, 1);
        assert_eq!(c!(aclFinalize()), 0);
        assert_eq!(c!(aclFinalize()), 100_037);
    });
    assert!(ends[0].success());
}

#[test]
fn copies_go_through_the_stream_in_order() {
    on_device(0, || {
        let stream = Stream::create();
        let (a, b) = (Buffer::of(&[1u32, 2, 3]), Buffer::new(12));
        let d2d = sys::ACL_MEMCPY_DEVICE_TO_DEVICE;
        assert_eq!(c!(aclrtMemcpyAsync(b.0, 12, a.0, 12, d2d, stream.0)), 0);
        assert_eq!(c!(aclrtMemsetAsync(a.0, 12, 0x1_02, 8, stream.0)), 0);
        let mut pageable = [0u32; 3];
        let to_host = sys::ACL_MEMCPY_DEVICE_TO_HOST;
        assert_eq!(
            c!(aclrtMemcpyAsync(
                host(&mut pageable),
                12,
                a.0,
                12,
                to_host,
                stream.0
            )),
            0
        );
        assert_eq!(
            pageable,
            [0x0202_0202, 0x0202_0202, 3],
            "done when the call returns"
        );
        let mut pinned = ptr::null_mut();
        acl(c!(aclrtMallocHost(&mut pinned, 12))).unwrap();
        assert_eq!(
            c!(aclrtMemcpyAsync(pinned, 12, b.0, 12, to_host, stream.0)),
            0
        );
        assert_eq!(
            c!(aclrtMemcpyAsync(
                a.0,
                12,
                pinned,
                12,
                sys::ACL_MEMCPY_HOST_TO_DEVICE,
                stream.0
            )),
            0
        );
        assert_eq!(c!(aclrtFreeHost(pinned)), 0, "queued work keeps it");
        stream.synchronize().unwrap();
        assert_eq!(a.read::<u32>(3), [1, 2, 3]);
    });
}

/// Waits until the counter is let go at `GO`, then adds one.
unsafe extern "C" fn bump(counter: *mut c_void) {
    let counter = support::api::counter(counter);
    while counter.load(Ordering::SeqCst) < GO {
        thread::sleep(Duration::from_micros(100));
    }
    counter.fetch_add(1, Ordering::SeqCst);
}

const GO: u64 = 1000;

#[test]
fn events_order_streams() {
    on_device(0, || {
        let (first, second) = (Stream::create(), Stream::create());
        let counter = AtomicU64::new(0);
        let at = ptr::from_ref(&counter).cast_mut().cast();
        let mut done = ptr::null_mut();
        acl(c!(aclrtCreateEvent(&mut done))).unwrap();
        let mut status = sys::ACL_EVENT_RECORDED_STATUS_NOT_READY;
        acl(c!(aclrtQueryEventStatus(done, &mut status))).unwrap();
        assert_eq!(
            status,
            sys::ACL_EVENT_RECORDED_STATUS_COMPLETE,
            "never recorded is complete"
        );
        acl(c!(aclrtLaunchHostFunc(first.0, Some(bump), at))).unwrap();
        acl(c!(aclrtRecordEvent(done, first.0))).unwrap();
        acl(c!(aclrtQueryEventStatus(done, &mut status))).unwrap();
        assert_eq!(status, sys::ACL_EVENT_RECORDED_STATUS_NOT_READY);
        acl(c!(aclrtStreamWaitEvent(second.0, done))).unwrap();
        counter.store(GO, Ordering::SeqCst);
        let seen = Buffer::of(&[0u64]);
        acl(c!(aclrtMemcpyAsync(
            seen.0,
            8,
            at,
            8,
            sys::ACL_MEMCPY_HOST_TO_DEVICE,
            second.0
        )))
        .unwrap();
        second.synchronize().unwrap();
        assert_eq!(
            seen.read::<u64>(1),
            [GO + 1],
            "the copy came after the function"
        );
        let mut late = ptr::null_mut();
        acl(c!(aclrtCreateEvent(&mut late))).unwrap();
        let mut ms = 0f32;
        counter.store(0, Ordering::SeqCst);
        assert_eq!(c!(aclrtEventElapsedTime(&mut ms, done, late)), 107_006);
        acl(c!(aclrtLaunchHostFunc(second.0, Some(bump), at))).unwrap();
        acl(c!(aclrtRecordEvent(late, second.0))).unwrap();
        assert_eq!(c!(aclrtEventElapsedTime(&mut ms, done, late)), 507_006);
        assert_eq!(c!(aclrtSynchronizeEventWithTimeout(late, 1)), 507_047);
        counter.store(GO, Ordering::SeqCst);
        acl(c!(aclrtSynchronizeEvent(late))).unwrap();
        acl(c!(aclrtEventElapsedTime(&mut ms, done, late))).unwrap();
        assert!(ms >= 1.0, "the host waited 1 ms in between: {ms}");
        assert_eq!(c!(aclrtEventElapsedTime(&mut ms, late, done)), 107_007);
        for event in [done, late] {
            acl(c!(aclrtDestroyEvent(event))).unwrap();
        }
        assert_eq!(c!(aclrtDestroyEvent(done)), 107_017);
    });
}

#[test]
fn a_flag_event_holds_until_it_is_raised() {
    on_device(0, || {
        let (waiter, raiser) = (Stream::create(), Stream::create());
        let mut flag = ptr::null_mut();
        acl(c!(aclrtCreateEventWithFlag(&mut flag, sys::ACL_EVENT_SYNC))).unwrap();
        for _ in 0..3 {
            acl(c!(aclrtStreamWaitEvent(waiter.0, flag))).unwrap();
            assert_eq!(waiter.synchronize_within(10).unwrap_err().0, 507_046);
            acl(c!(aclrtRecordEvent(flag, raiser.0))).unwrap();
            acl(c!(aclrtResetEvent(flag, waiter.0))).unwrap();
            waiter.synchronize().unwrap();
        }
        // A wait that never ends is ended by an abort.
        acl(c!(aclrtStreamWaitEvent(waiter.0, flag))).unwrap();
        acl(c!(aclrtStreamAbort(waiter.0))).unwrap();
        assert_eq!(waiter.synchronize().unwrap_err().0, 107_023);
        acl(c!(aclrtDestroyEvent(flag))).unwrap();
    });
}

#[test]
fn words_are_written_and_awaited() {
    on_device(0, || {
        let (writer, reader) = (Stream::create(), Stream::create());
        let word = Buffer::of(&[0u64, 0]);
        for (flag, value, write) in [
            (0, 5, 7),
            (1, 9, 9),
            (2, 0b100, 0b110),
            (3, !1, u64::MAX - 1),
        ] {
            word.write(&[if flag == 3 { u64::MAX } else { 0 }]);
            acl(c!(aclrtValueWait(word.0, value, flag, reader.0))).unwrap();
            assert_eq!(
                reader.synchronize_within(5).unwrap_err().0,
                507_046,
                "{flag}"
            );
            acl(c!(aclrtValueWrite(word.0, write, 0, writer.0))).unwrap();
            reader.synchronize().unwrap();
            assert_eq!(word.read::<u64>(1), [write]);
        }
        assert_eq!(c!(aclrtValueWrite(word.at(4), 1, 0, writer.0)), 107_000);
        assert_eq!(c!(aclrtValueWait(word.0, 1, 4, writer.0)), 107_000);
    });
}

#[test]
fn a_failure_travels_along_events_and_is_reported_once() {
    // In a process of its own: faults are planned for the process.
    let ends = processes(
        1,
        "a_failure_travels_along_events_and_is_reported_once",
        &[],
        |_| {
            let (first, second) = (Stream::create(), Stream::create());
            let mut event = ptr::null_mut();
            acl(c!(aclrtCreateEvent(&mut event))).unwrap();
            let buffer = Buffer::of(&[1u8, 2]);
            let symbol = c"aclrtMemsetAsync".as_ptr();
            acl(c!(hcomExtInjectFault(
                symbol,
                2,
                507_015,
                sys::HCOM_EXT_FAULT_TASK
            )))
            .unwrap();
            acl(c!(hcomExtInjectFault(
                symbol,
                1,
                207_001,
                sys::HCOM_EXT_FAULT_CALL
            )))
            .unwrap();
            assert_eq!(
                c!(hcomExtInjectFault(
                    c"none".as_ptr(),
                    1,
                    1,
                    sys::HCOM_EXT_FAULT_CALL
                )),
                100_000
            );
            assert_eq!(c!(aclrtMemsetAsync(buffer.0, 2, 9, 2, first.0)), 207_001);
            for _ in 0..2 {
                assert_eq!(
                    c!(aclrtMemsetAsync(buffer.0, 2, 9, 2, first.0)),
                    0,
                    "the task fails, not the call"
                );
            }
            acl(c!(aclrtRecordEvent(event, first.0))).unwrap();
            acl(c!(aclrtStreamWaitEvent(second.0, event))).unwrap();
            assert_eq!(c!(aclrtMemsetAsync(buffer.0, 2, 8, 2, second.0)), 0);
            let (code, text) = second.synchronize().unwrap_err();
            assert_eq!(code, 507_015);
            assert!(text.contains("injected fault in a fill"), "{text}");
            assert_eq!(first.synchronize().unwrap_err().0, 507_015);
            assert_eq!(
                buffer.read::<u8>(2),
                [1, 2],
                "nothing ran behind the failure"
            );
            first.synchronize().unwrap();
            assert_eq!(c!(aclrtMemsetAsync(buffer.0, 2, 7, 1, first.0)), 0);
            first.synchronize().unwrap();
            assert_eq!(buffer.read::<u8>(2), [7, 2], "reported, the stream goes on");
        },
    );
    assert!(ends[0].success());
}

#[test]
fn strict_device_addresses_cannot_be_read_by_the_host() {
    let test = "strict_device_addresses_cannot_be_read_by_the_host";
    let variables = [("HCOM_FAKE_STRICT", "1")];
    let ends = processes(1, test, &variables, |_| {
        let buffer = Buffer::of(&[1u32, 2, 3]);
        assert_eq!(buffer.read::<u32>(3), [1, 2, 3]);
        let mut readable = ptr::null_mut();
        acl(c!(hcomExtHostPointer(buffer.0, 12, &mut readable))).unwrap();
        assert_ne!(readable, buffer.0);
        assert_eq!(support::api::peek(readable), 1);
        support::api::peek(buffer.0);
    });
    use std::os::unix::process::ExitStatusExt;
    assert_eq!(ends[0].signal(), Some(11), "a segmentation fault");
}

#[test]
fn a_wrong_setting_is_an_error_of_the_first_call() {
    let status = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "the_first_call", "--nocapture"])
        .env("HCOM_FAKE_LINK", "fast")
        .status();
    assert!(status.unwrap().success());
}

/// Alone this only sees the default; the test above starts it with a wrong setting.
#[test]
fn the_first_call() {
    if std::env::var("HCOM_FAKE_LINK").as_deref() != Ok("fast") {
        return;
    }
    assert_eq!(c!(aclInit(ptr::null())), 100_000);
    assert!(
        last_error().contains("HCOM_FAKE_LINK=fast: expected two numbers alpha_us,gbytes_per_s")
    );
    assert_eq!(c!(aclrtSetDevice(0)), 100_000);
}
