//! Callbacks, reductions and random numbers on streams; events with flags and of other processes.
#![expect(unsafe_code, reason = "the C interface hands over raw pointers")]
#![allow(
    non_snake_case,
    clippy::missing_safety_doc,
    reason = "names and contracts are those of the C interface"
)]

use std::ffi::c_void;
use std::sync::Arc;
use std::time::Duration;

use hcom_sys::bindings::{
    self as sys, aclDataType, aclError, aclrtCallback, aclrtCallbackBlockType, aclrtCmoType,
    aclrtEvent, aclrtIpcEventHandle, aclrtRandomNumTaskInfo, aclrtRandomParaInfo, aclrtReduceKind,
    aclrtStream,
};

use super::runtime::limit;
use super::{acl, put};
use crate::error::{Failure, Outcome, refuse};
use crate::handle::to_pointer;
use crate::random::{Distribution, Parameter, Task};
use crate::{arithmetic, code, device, event, memory, random, report, stream};

/// Hands the functions of this file to the macro `$callback`, with their signatures.
#[macro_export]
#[doc(hidden)]
macro_rules! for_each_task_symbol {
    ($callback:ident) => {
        $callback! {
            fn aclrtSubscribeReport(threadId: u64, stream: aclrtStream) -> aclError;
            fn aclrtUnSubscribeReport(threadId: u64, stream: aclrtStream) -> aclError;
            fn aclrtLaunchCallback(fn_: aclrtCallback, userData: *mut c_void, blockType: aclrtCallbackBlockType, stream: aclrtStream) -> aclError;
            fn aclrtProcessReport(timeout: i32) -> aclError;
            fn aclrtReduceAsync(dst: *mut c_void, src: *const c_void, count: u64, kind: aclrtReduceKind, type_: aclDataType, stream: aclrtStream, reserve: *mut c_void) -> aclError;
            fn aclrtRandomNumAsync(taskInfo: *const aclrtRandomNumTaskInfo, stream: aclrtStream, reserve: *mut c_void) -> aclError;
            fn aclrtCmoAsync(src: *mut c_void, size: usize, cmoType: aclrtCmoType, stream: aclrtStream) -> aclError;
            fn aclrtRecordEventWithFlag(event: aclrtEvent, stream: aclrtStream, flag: u32) -> aclError;
            fn aclrtStreamWaitEventWithFlag(stream: aclrtStream, event: aclrtEvent, timeout: u32, flag: u32) -> aclError;
            fn aclrtIpcGetEventHandle(event: aclrtEvent, handle: *mut aclrtIpcEventHandle) -> aclError;
            fn aclrtIpcOpenEventHandle(handle: aclrtIpcEventHandle, event: *mut aclrtEvent) -> aclError;
        }
    };
}

unsafe extern "C" {
    /// The calling thread as the C library numbers it, which is what programs subscribe with.
    safe fn pthread_self() -> usize;
}

/// `aclrtSubscribeReport`
pub unsafe extern "C" fn aclrtSubscribeReport(thread: u64, stream: aclrtStream) -> aclError {
    acl("aclrtSubscribeReport", || {
        report::subscribe(thread, &*stream::find(stream)?)
    })
}

/// `aclrtUnSubscribeReport`
pub unsafe extern "C" fn aclrtUnSubscribeReport(thread: u64, stream: aclrtStream) -> aclError {
    acl("aclrtUnSubscribeReport", || {
        report::unsubscribe(thread, &*stream::find(stream)?)
    })
}

/// `aclrtLaunchCallback`
pub unsafe extern "C" fn aclrtLaunchCallback(
    function: aclrtCallback,
    data: *mut c_void,
    block: aclrtCallbackBlockType,
    stream: aclrtStream,
) -> aclError {
    acl("aclrtLaunchCallback", || {
        let Some(function) = function else {
            return refuse(code::INVALID_PARAM, "the function is null");
        };
        if block.0 > sys::ACL_CALLBACK_BLOCK.0 {
            return refuse(code::INVALID_PARAM, format!("block type {}", block.0));
        }
        let data = data.expose_provenance();
        let call = Arc::new(move || {
            // SAFETY: the program asked for this call with this argument, on the thread that processes reports.
            unsafe { function(std::ptr::with_exposed_provenance_mut(data)) };
        });
        report::launch(
            call,
            block == sys::ACL_CALLBACK_BLOCK,
            &stream::find(stream)?,
        )
    })
}

/// `aclrtProcessReport`: milliseconds, -1 for ever.
pub unsafe extern "C" fn aclrtProcessReport(timeout: i32) -> aclError {
    acl("aclrtProcessReport", || {
        if timeout == 0 {
            return refuse(
                code::RT_PARAM,
                "a timeout of 0 ms, expected -1 or more than 0",
            );
        }
        let limit: Option<Duration> = limit(timeout)?;
        report::process(pthread_self() as u64, limit)
    })
}

/// `aclrtReduceAsync`: both sides on the device; `bytes` is the length of the source.
pub unsafe extern "C" fn aclrtReduceAsync(
    to: *mut c_void,
    from: *const c_void,
    bytes: u64,
    kind: aclrtReduceKind,
    dtype: aclDataType,
    stream: aclrtStream,
    _reserve: *mut c_void,
) -> aclError {
    acl("aclrtReduceAsync", || {
        if to.is_null() || from.is_null() {
            return refuse(code::INVALID_PARAM, "a pointer is null");
        }
        let stream = stream::find(stream)?;
        let (bytes, to, from) = (bytes as usize, to.addr(), from.addr());
        let combine = arithmetic::combine(kind, dtype)?;
        let spans = move || {
            let at = |address| memory::span(std::ptr::without_provenance(address), bytes);
            Ok::<_, Failure>((at(to)?, at(from)?))
        };
        spans()?;
        let work = move || {
            let (to, from) =
                spans().map_err(|failure| crate::error::fail(code::DEVICE_MEMORY, failure.text))?;
            combine(&to, &from);
            Ok(())
        };
        stream.enqueue_function("a reduction", work).map(|_| ())
    })
}

/// A parameter of a random task: its value, or where it will lie.
fn parameter(info: &aclrtRandomParaInfo) -> Outcome<Parameter> {
    if !matches!(info.size, 1..=8) {
        return refuse(
            code::INVALID_PARAM,
            format!("a parameter of {} bytes, expected 1 to 8", info.size),
        );
    }
    let word = u64::from_le_bytes(info.valueOrAddr);
    Ok(if info.isAddr == 0 {
        let bits = if info.size == 8 {
            word
        } else {
            word & ((1 << (8 * info.size)) - 1)
        };
        Parameter::Value(bits)
    } else {
        Parameter::At(word as usize, info.size as usize)
    })
}

/// `aclrtRandomNumAsync`: numbers follow from seed and counter alone; the counter moves on with every task.
pub unsafe extern "C" fn aclrtRandomNumAsync(
    info: *const aclrtRandomNumTaskInfo,
    stream: aclrtStream,
    _reserve: *mut c_void,
) -> aclError {
    acl("aclrtRandomNumAsync", || {
        // SAFETY: the caller passes null or a task.
        let Some(info) = (unsafe { info.as_ref() }) else {
            return refuse(code::INVALID_PARAM, "the task is null");
        };
        let function = &info.randomNumFuncParaInfo;
        // SAFETY: every member consists of bytes, any of which are valid; which one counts follows from the type.
        let distribution = unsafe {
            match function.funcType {
                sys::ACL_RT_RANDOM_NUM_FUNC_TYPE_DROPOUT_BITMASK => Distribution::Bits(parameter(
                    &function.paramInfo.dropoutBitmaskInfo.dropoutRation,
                )?),
                sys::ACL_RT_RANDOM_NUM_FUNC_TYPE_UNIFORM_DIS => Distribution::Uniform(
                    parameter(&function.paramInfo.uniformDisInfo.min)?,
                    parameter(&function.paramInfo.uniformDisInfo.max)?,
                ),
                sys::ACL_RT_RANDOM_NUM_FUNC_TYPE_NORMAL_DIS
                | sys::ACL_RT_RANDOM_NUM_FUNC_TYPE_TRUNCATED_NORMAL_DIS => Distribution::Normal {
                    mean: parameter(&function.paramInfo.normalDisInfo.mean)?,
                    deviation: parameter(&function.paramInfo.normalDisInfo.stddev)?,
                    truncated: function.funcType
                        == sys::ACL_RT_RANDOM_NUM_FUNC_TYPE_TRUNCATED_NORMAL_DIS,
                },
                other => return refuse(code::INVALID_PARAM, format!("distribution {}", other.0)),
            }
        };
        if info.randomResultAddr.is_null() || info.randomCounterAddr.is_null() {
            return refuse(code::INVALID_PARAM, "the result or the counter is null");
        }
        let task = Task {
            dtype: info.dataType,
            distribution,
            result: info.randomResultAddr.addr(),
            counter: info.randomCounterAddr.addr(),
            seed: parameter(&info.randomSeed)?,
            count: parameter(&info.randomNum)?,
        };
        random::check(&task)?;
        let stream = stream::find(stream)?;
        let work = move || {
            random::run(&task).map_err(|failure| crate::error::fail(failure.code, failure.text))
        };
        stream.enqueue_function("random numbers", work).map(|_| ())
    })
}

/// `aclrtCmoAsync`: a hint about caches, which a CPU manages itself.
pub unsafe extern "C" fn aclrtCmoAsync(
    pointer: *mut c_void,
    bytes: usize,
    kind: aclrtCmoType,
    stream: aclrtStream,
) -> aclError {
    acl("aclrtCmoAsync", || {
        if kind.0 > sys::ACL_RT_CMO_TYPE_FLUSH.0 {
            return refuse(code::INVALID_PARAM, format!("cache operation {}", kind.0));
        }
        memory::span(pointer, bytes)?;
        stream::find(stream)?
            .enqueue_function("a cache hint", || Ok(()))
            .map(|_| ())
    })
}

/// Whether a flag of a record or wait means the event outside a capture.
fn external(flag: u32) -> Outcome<bool> {
    match flag {
        sys::ACL_EVENT_RECORD_DEFAULT => Ok(false),
        sys::ACL_EVENT_RECORD_EXTERNAL => Ok(true),
        _ => refuse(code::RT_PARAM, format!("flag {flag}, expected 0 or 1")),
    }
}

/// `aclrtRecordEventWithFlag`
pub unsafe extern "C" fn aclrtRecordEventWithFlag(
    event: aclrtEvent,
    stream: aclrtStream,
    flag: u32,
) -> aclError {
    acl("aclrtRecordEventWithFlag", || {
        event::find(event)?.record_with(&stream::find(stream)?, external(flag)?)
    })
}

/// `aclrtStreamWaitEventWithFlag`
pub unsafe extern "C" fn aclrtStreamWaitEventWithFlag(
    stream: aclrtStream,
    event: aclrtEvent,
    timeout: u32,
    flag: u32,
) -> aclError {
    acl("aclrtStreamWaitEventWithFlag", || {
        if timeout != 0 {
            return refuse(
                code::RT_PARAM,
                format!("a timeout of {timeout} s, expected 0"),
            );
        }
        event::find(event)?.wait_with(&stream::find(stream)?, external(flag)?)
    })
}

/// `aclrtIpcGetEventHandle`
pub unsafe extern "C" fn aclrtIpcGetEventHandle(
    event: aclrtEvent,
    place: *mut aclrtIpcEventHandle,
) -> aclError {
    acl("aclrtIpcGetEventHandle", || {
        let key = event::find(event)?.key()?;
        let mut answer = aclrtIpcEventHandle { reserved: [0; 64] };
        for (to, from) in answer.reserved.iter_mut().zip(key.bytes()) {
            *to = from as _;
        }
        // SAFETY: the caller passes null or a place for the answer.
        unsafe { put(place, code::INVALID_PARAM, answer) }
    })
}

/// `aclrtIpcOpenEventHandle`
pub unsafe extern "C" fn aclrtIpcOpenEventHandle(
    handle: aclrtIpcEventHandle,
    place: *mut aclrtEvent,
) -> aclError {
    acl("aclrtIpcOpenEventHandle", || {
        if place.is_null() {
            return refuse(code::INVALID_PARAM, "a place for the event is null");
        }
        let bytes = handle.reserved.iter().map(|&c| c as u8);
        let key: Vec<u8> = bytes.take_while(|&byte| byte != 0).collect();
        let event = event::open(device::current()?.device.id, &String::from_utf8_lossy(&key))?;
        // SAFETY: not null, so the caller passes a place for the answer.
        unsafe { put(place, code::INVALID_PARAM, to_pointer(event)) }
    })
}
