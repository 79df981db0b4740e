//! Reserved addresses, memory and events of other processes, callbacks, reductions, random numbers, and limits.

#![expect(unsafe_code, reason = "calls the C interface")]

mod support;

use std::ffi::c_void;
use std::ptr;
use std::sync::atomic::{AtomicU64, Ordering};

use hcom_sys::bindings as sys;
use support::api::{Buffer, Stream, acl, counter, last_error};
use support::{on_device, processes};

const PIECE: usize = 2 << 20;
const POLICY: sys::aclrtMemMallocPolicy = sys::ACL_MEM_MALLOC_HUGE_FIRST;

fn physical() -> *mut c_void {
    let prop = sys::aclrtPhysicalMemProp {
        memAttr: sys::ACL_HBM_MEM_HUGE,
        location: sys::aclrtMemLocation {
            id: 0,
            type_: sys::ACL_MEM_LOCATION_TYPE_DEVICE,
        },
        ..Default::default()
    };
    let mut handle = ptr::null_mut();
    assert_eq!(
        c!(aclrtMallocPhysical(&mut handle, PIECE + 1, &prop, 0)),
        107_000
    );
    acl(c!(aclrtMallocPhysical(&mut handle, PIECE, &prop, 0))).unwrap();
    handle
}

#[test]
fn mapped_pieces_are_one_range() {
    on_device(0, || {
        let mut base = ptr::null_mut();
        acl(c!(aclrtReserveMemAddress(
            &mut base,
            4 * PIECE,
            0,
            ptr::null_mut(),
            0
        )))
        .unwrap();
        let (first, second) = (physical(), physical());
        acl(c!(aclrtMapMem(base, PIECE, 0, first, 0))).unwrap();
        let next = base.wrapping_byte_add(PIECE);
        acl(c!(aclrtMapMem(next, PIECE, 0, second, 0))).unwrap();
        assert_eq!(c!(aclrtMapMem(next, PIECE, 0, first, 0)), 107_000, "taken");
        let values: Vec<u32> = (0..1000).map(|i| i * 7 + 1).collect();
        let across = base.wrapping_byte_add(PIECE - 2000);
        let (to, from) = (
            sys::ACL_MEMCPY_HOST_TO_DEVICE,
            sys::ACL_MEMCPY_DEVICE_TO_HOST,
        );
        acl(c!(aclrtMemcpy(
            across,
            4000,
            values.as_ptr().cast(),
            4000,
            to
        )))
        .unwrap();
        let mut back = vec![0u32; 1000];
        let place: *mut c_void = back.as_mut_ptr().cast();
        acl(c!(aclrtMemcpy(place, 4000, across, 4000, from))).unwrap();
        assert_eq!(back, values);
        let last = base.wrapping_byte_add(2 * PIECE - 4);
        assert_eq!(
            c!(aclrtMemset(last, 8, 0, 8)),
            107_000,
            "past what is mapped"
        );
        assert!(last_error().contains("not all mapped"));
        assert_eq!(c!(aclrtReleaseMemAddress(base)), 107_000, "still mapped");
        acl(c!(aclrtUnmapMem(next))).unwrap();
        assert_eq!(c!(aclrtMemset(next, 8, 0, 8)), 107_000);
        acl(c!(aclrtUnmapMem(base))).unwrap();
        acl(c!(aclrtReleaseMemAddress(base))).unwrap();
        for handle in [first, second] {
            acl(c!(aclrtFreePhysical(handle))).unwrap();
            assert_eq!(c!(aclrtFreePhysical(handle)), 107_017);
        }
    });
}

#[test]
fn a_process_opens_memory_and_an_event_of_another() {
    let ended = processes(
        2,
        "a_process_opens_memory_and_an_event_of_another",
        &[],
        |rank| {
            // The collective carries the names, and makes the ranks wait for each other.
            let (comm, stream) = support::equip(&rank);
            let values = Buffer::of(&[rank.rank * 100 + 7, 9]);
            let mut names = vec![0u8; 128];
            let mut event = ptr::null_mut();
            if rank.rank == 0 {
                let key = names.as_mut_ptr();
                acl(c!(aclrtIpcMemGetExportKey(values.0, 8, key.cast(), 65, 1))).unwrap();
                acl(c!(aclrtCreateEventWithFlag(&mut event, sys::ACL_EVENT_IPC))).unwrap();
                let mut handle = sys::aclrtIpcEventHandle { reserved: [0; 64] };
                acl(c!(aclrtIpcGetEventHandle(event, &mut handle))).unwrap();
                for (to, from) in names[65..].iter_mut().zip(handle.reserved) {
                    *to = from as u8;
                }
            }
            let shared = Buffer::of(&names);
            let byte = sys::HCCL_DATA_TYPE_INT8;
            let sum = sys::HCCL_REDUCE_SUM;
            comm.all_reduce(&shared, &shared, 128, byte, sum, &stream)
                .unwrap();
            stream.synchronize().unwrap();
            let names = shared.read::<u8>(128);
            if rank.rank == 1 {
                let mut opened = ptr::null_mut();
                acl(c!(aclrtIpcMemImportByKey(
                    &mut opened,
                    names.as_ptr().cast(),
                    0
                )))
                .unwrap();
                let mut handle = sys::aclrtIpcEventHandle { reserved: [0; 64] };
                for (to, from) in handle.reserved.iter_mut().zip(&names[65..]) {
                    *to = *from as _;
                }
                acl(c!(aclrtIpcOpenEventHandle(handle, &mut event))).unwrap();
                comm.barrier(&stream).unwrap();
                stream.synchronize().unwrap();
                // Rank 0 has queued its record behind a long wait by now.
                let seen = Buffer::of(&[0u32; 2]);
                acl(c!(aclrtStreamWaitEvent(stream.0, event))).unwrap();
                let d2d = sys::ACL_MEMCPY_DEVICE_TO_DEVICE;
                acl(c!(aclrtMemcpyAsync(seen.0, 8, opened, 8, d2d, stream.0))).unwrap();
                comm.barrier(&stream).unwrap();
                stream.synchronize().unwrap();
                assert_eq!(seen.read::<u32>(2), [0x0505_0505, 9]);
                acl(c!(aclrtIpcMemClose(names.as_ptr().cast()))).unwrap();
            } else {
                let other = Stream::create();
                let gate = Buffer::of(&[0u64]);
                acl(c!(aclrtValueWait(gate.0, 1, 0, other.0))).unwrap();
                acl(c!(aclrtMemsetAsync(values.0, 4, 5, 4, other.0))).unwrap();
                acl(c!(aclrtRecordEvent(event, other.0))).unwrap();
                comm.barrier(&stream).unwrap();
                stream.synchronize().unwrap();
                gate.write(&[1u64]);
                comm.barrier(&stream).unwrap();
                stream.synchronize().unwrap();
                acl(c!(aclrtIpcMemClose(names.as_ptr().cast()))).unwrap();
                assert_eq!(c!(aclrtIpcMemClose(names.as_ptr().cast())), 107_017);
            }
        },
    );
    assert!(ended.iter().all(|status| status.success()), "{ended:?}");
}

unsafe extern "C" fn count(argument: *mut c_void) {
    counter(argument).fetch_add(1, Ordering::SeqCst);
}

unsafe extern "C" {
    safe fn pthread_self() -> usize;
}

#[test]
fn callbacks_run_on_the_thread_that_subscribed() {
    static CALLS: AtomicU64 = AtomicU64::new(0);
    on_device(0, || {
        let stream = Stream::create();
        let thread = pthread_self() as u64;
        let argument: *mut c_void = (&raw const CALLS).cast_mut().cast();
        let block = sys::ACL_CALLBACK_BLOCK;
        let launch = || c!(aclrtLaunchCallback(Some(count), argument, block, stream.0));
        assert_eq!(launch(), 107_015);
        assert_eq!(c!(aclrtProcessReport(1)), 107_012);
        acl(c!(aclrtSubscribeReport(thread, stream.0))).unwrap();
        assert_eq!(c!(aclrtSubscribeReport(thread, stream.0)), 107_011);
        assert_eq!(c!(aclrtProcessReport(1)), 107_019, "nothing came");
        assert_eq!(launch(), 0);
        assert_eq!(
            stream.synchronize_within(20).unwrap_err().0,
            507_046,
            "it blocks"
        );
        acl(c!(aclrtProcessReport(10_000))).unwrap();
        stream.synchronize().unwrap();
        assert_eq!(CALLS.load(Ordering::SeqCst), 1);
        assert_eq!(c!(aclrtUnSubscribeReport(thread + 1, stream.0)), 107_012);
        acl(c!(aclrtUnSubscribeReport(thread, stream.0))).unwrap();
    });
}

#[test]
fn pitched_rows_and_batches_are_copied() {
    on_device(0, || {
        let stream = Stream::create();
        let device = Buffer::of(&[0u8; 24]);
        let host: Vec<u8> = (1..=12).collect();
        let (to, from) = (
            sys::ACL_MEMCPY_HOST_TO_DEVICE,
            sys::ACL_MEMCPY_DEVICE_TO_HOST,
        );
        let source: *const c_void = host.as_ptr().cast();
        acl(c!(aclrtMemcpy2d(device.0, 8, source, 4, 3, 3, to))).unwrap();
        let expected = [1, 2, 3, 0, 0, 0, 0, 0, 5, 6, 7, 0, 0, 0, 0, 0, 9, 10, 11, 0];
        assert_eq!(device.read::<u8>(20), expected);
        let mut back = vec![0u8; 9];
        let place: *mut c_void = back.as_mut_ptr().cast();
        acl(c!(aclrtMemcpy2dAsync(
            place, 3, device.0, 8, 3, 3, from, stream.0
        )))
        .unwrap();
        stream.synchronize().unwrap();
        assert_eq!(back, [1, 2, 3, 5, 6, 7, 9, 10, 11]);
        assert_eq!(c!(aclrtMemcpy2d(device.0, 2, source, 4, 3, 3, to)), 100_000);
        let mut targets = [device.0, device.at(8)];
        let mut sources = [source.cast_mut(), device.at(16)];
        let mut sizes = [4usize, 4];
        let mut failed = 9;
        let (null, no) = (ptr::null_mut(), ptr::null_mut());
        let (room, bytes) = (sizes.as_mut_ptr(), sizes.as_mut_ptr());
        let arrays = (targets.as_mut_ptr(), sources.as_mut_ptr());
        let code = c!(aclrtMemcpyBatch(
            arrays.0,
            room,
            arrays.1,
            bytes,
            2,
            null,
            no,
            0,
            &mut failed
        ));
        assert_eq!(
            (code, failed),
            (100_000, 1),
            "the second stays on the device"
        );
        acl(c!(aclrtMemcpyBatch(
            arrays.0,
            room,
            arrays.1,
            bytes,
            1,
            null,
            no,
            0,
            &mut failed
        )))
        .unwrap();
        assert_eq!(device.read::<u8>(4), [1, 2, 3, 4]);
        acl(c!(aclrtMemsetD32(device.0, 8, 0x0403_0201, 2))).unwrap();
        assert_eq!(device.read::<u32>(2), [0x0403_0201; 2]);
    });
}

#[test]
fn ranges_are_reduced_and_random_numbers_repeat() {
    on_device(0, || {
        let stream = Stream::create();
        let (a, b) = (
            Buffer::of(&[1.5f32, -2.0, 8.0]),
            Buffer::of(&[0.5f32, 4.0, -1.0]),
        );
        let null = ptr::null_mut();
        let reduce = |kind| {
            c!(aclrtReduceAsync(
                a.0,
                b.0,
                12,
                kind,
                sys::ACL_FLOAT,
                stream.0,
                null
            ))
        };
        assert_eq!(reduce(sys::ACL_RT_MEMCPY_SDMA_AUTOMATIC_SUM), 0);
        assert_eq!(reduce(sys::ACL_RT_MEMCPY_SDMA_AUTOMATIC_MAX), 0);
        stream.synchronize().unwrap();
        assert_eq!(a.read::<f32>(3), [2.0, 4.0, 7.0]);
        assert_eq!(reduce(sys::ACL_RT_MEMCPY_SDMA_AUTOMATIC_EQUAL), 100_000);
        let value = |bytes: &[u8]| {
            let mut info = sys::aclrtRandomParaInfo::default();
            info.valueOrAddr[..bytes.len()].copy_from_slice(bytes);
            info.size = bytes.len() as u8;
            info
        };
        let numbers = |seed: u64| {
            let (result, moves) = (Buffer::of(&[0f32; 1000]), Buffer::of(&[0u64; 2]));
            let mut task = sys::aclrtRandomNumTaskInfo {
                dataType: sys::ACL_FLOAT,
                randomResultAddr: result.0,
                randomCounterAddr: moves.0,
                randomSeed: value(&seed.to_le_bytes()),
                randomNum: value(&1000u64.to_le_bytes()),
                ..Default::default()
            };
            task.randomNumFuncParaInfo.funcType = sys::ACL_RT_RANDOM_NUM_FUNC_TYPE_UNIFORM_DIS;
            task.randomNumFuncParaInfo.paramInfo.uniformDisInfo = sys::aclrtUniformDisInfo {
                min: value(&2f32.to_le_bytes()),
                max: value(&4f32.to_le_bytes()),
            };
            acl(c!(aclrtRandomNumAsync(&task, stream.0, null))).unwrap();
            stream.synchronize().unwrap();
            assert_eq!(moves.read::<u64>(1), [1000]);
            result.read::<f32>(1000)
        };
        let first = numbers(1);
        assert!(first.iter().all(|x| (2.0..=4.0).contains(x)));
        let mean = first.iter().sum::<f32>() / 1000.0;
        assert!((2.9..3.1).contains(&mean), "{mean}");
        assert_eq!(numbers(1), first);
        assert_ne!(numbers(2), first);
    });
}

/// Small limits, which a process reads once.
#[test]
fn what_runs_out_says_how_to_get_more() {
    let variables = [
        ("HCOM_FAKE_MEMORY", "4M"),
        ("HCOM_FAKE_STREAMS", "3"),
        ("HCOM_FAKE_EVENTS", "2"),
    ];
    let ended = processes(1, "what_runs_out_says_how_to_get_more", &variables, |_| {
        let mut pointer = ptr::null_mut();
        assert_eq!(c!(aclrtMalloc(&mut pointer, 5 << 20, POLICY)), 207_001);
        let text = last_error();
        for word in [
            "5242880 bytes",
            "of 4194304 bytes are free",
            "HCOM_FAKE_MEMORY",
        ] {
            assert!(text.contains(word), "{text}");
        }
        // The default stream is one of them.
        let _held = [Stream::create(), Stream::create()];
        let mut stream = ptr::null_mut();
        assert_eq!(c!(aclrtCreateStream(&mut stream)), 207_008);
        let text = last_error();
        assert!(
            text.contains("3 of 3 in use") && text.contains("HCOM_FAKE_STREAMS"),
            "{text}"
        );
        let mut events = [ptr::null_mut(); 3];
        for event in &mut events[..2] {
            acl(c!(aclrtCreateEvent(event))).unwrap();
        }
        assert_eq!(c!(aclrtCreateEvent(&mut events[2])), 207_007);
        let text = last_error();
        assert!(
            text.contains("2 of 2 in use") && text.contains("HCOM_FAKE_EVENTS"),
            "{text}"
        );
        acl(c!(aclrtDestroyEvent(events[0]))).unwrap();
        acl(c!(aclrtCreateEvent(&mut events[2]))).unwrap();
    });
    assert!(ended.iter().all(|status| status.success()), "{ended:?}");
}
