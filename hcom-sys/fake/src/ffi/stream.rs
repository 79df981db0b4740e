//! Streams, events and host functions.
#![expect(unsafe_code, reason = "the C interface hands over raw pointers")]
#![allow(
    non_snake_case,
    clippy::missing_safety_doc,
    reason = "names and contracts are those of the C interface"
)]

use std::ffi::c_void;
use std::sync::atomic::Ordering;
use std::time::Duration;

use hcom_sys::bindings::{
    self as sys, aclError, aclrtEvent, aclrtEventRecordedStatus, aclrtEventStatus,
    aclrtEventWaitStatus, aclrtHostFunc, aclrtStream, aclrtStreamStatus,
};

use super::runtime::{limit, not_null};
use super::{acl, put};
use crate::code;
use crate::config;
use crate::device;
use crate::error::refuse;
use crate::event::{self, EVENTS, Kind};
use crate::handle::to_pointer;
use crate::stream::{self, STREAMS, Stream};

/// Hands the functions of this file to the macro `$callback`, with their signatures.
#[macro_export]
#[doc(hidden)]
macro_rules! for_each_stream_symbol {
    ($callback:ident) => {
        $callback! {
            fn aclrtCreateStream(stream: *mut aclrtStream) -> aclError;
            fn aclrtCreateStreamWithConfig(stream: *mut aclrtStream, priority: u32, flag: u32) -> aclError;
            fn aclrtDestroyStream(stream: aclrtStream) -> aclError;
            fn aclrtDestroyStreamForce(stream: aclrtStream) -> aclError;
            fn aclrtSynchronizeStream(stream: aclrtStream) -> aclError;
            fn aclrtSynchronizeStreamWithTimeout(stream: aclrtStream, timeout: i32) -> aclError;
            fn aclrtStreamQuery(stream: aclrtStream, status: *mut aclrtStreamStatus) -> aclError;
            fn aclrtStreamAbort(stream: aclrtStream) -> aclError;
            fn aclrtStreamGetId(stream: aclrtStream, streamId: *mut i32) -> aclError;
            fn aclrtStreamGetPriority(stream: aclrtStream, priority: *mut u32) -> aclError;
            fn aclrtStreamGetFlags(stream: aclrtStream, flags: *mut u32) -> aclError;
            fn aclrtGetStreamAvailableNum(streamCount: *mut u32) -> aclError;
            fn aclrtSetStreamFailureMode(stream: aclrtStream, mode: u64) -> aclError;
            fn aclrtSetOpWaitTimeout(timeout: u32) -> aclError;
            fn aclrtLaunchHostFunc(stream: aclrtStream, fn_: aclrtHostFunc, args: *mut c_void) -> aclError;
            fn aclrtCreateEvent(event: *mut aclrtEvent) -> aclError;
            fn aclrtCreateEventWithFlag(event: *mut aclrtEvent, flag: u32) -> aclError;
            fn aclrtCreateEventExWithFlag(event: *mut aclrtEvent, flag: u32) -> aclError;
            fn aclrtDestroyEvent(event: aclrtEvent) -> aclError;
            fn aclrtRecordEvent(event: aclrtEvent, stream: aclrtStream) -> aclError;
            fn aclrtResetEvent(event: aclrtEvent, stream: aclrtStream) -> aclError;
            fn aclrtQueryEvent(event: aclrtEvent, status: *mut aclrtEventStatus) -> aclError;
            fn aclrtQueryEventStatus(event: aclrtEvent, status: *mut aclrtEventRecordedStatus) -> aclError;
            fn aclrtQueryEventWaitStatus(event: aclrtEvent, status: *mut aclrtEventWaitStatus) -> aclError;
            fn aclrtSynchronizeEvent(event: aclrtEvent) -> aclError;
            fn aclrtSynchronizeEventWithTimeout(event: aclrtEvent, timeout: i32) -> aclError;
            fn aclrtStreamWaitEvent(stream: aclrtStream, event: aclrtEvent) -> aclError;
            fn aclrtStreamWaitEventWithTimeout(stream: aclrtStream, event: aclrtEvent, timeout: i32) -> aclError;
            fn aclrtEventElapsedTime(ms: *mut f32, startEvent: aclrtEvent, endEvent: aclrtEvent) -> aclError;
            fn aclrtEventGetTimestamp(event: aclrtEvent, timestamp: *mut u64) -> aclError;
        }
    };
}

/// `aclrtCreateStream`
pub unsafe extern "C" fn aclrtCreateStream(stream: *mut aclrtStream) -> aclError {
    // SAFETY: passed on as it came.
    acl("aclrtCreateStream", || unsafe { create(stream, 0, 0) })
}

/// `aclrtCreateStreamWithConfig`
pub unsafe extern "C" fn aclrtCreateStreamWithConfig(
    stream: *mut aclrtStream,
    priority: u32,
    flag: u32,
) -> aclError {
    acl("aclrtCreateStreamWithConfig", || {
        if priority > 7 {
            return refuse(
                code::RT_PARAM,
                format!("priority {priority}, expected 0 to 7"),
            );
        }
        // SAFETY: passed on as it came.
        unsafe { create(stream, priority, flag) }
    })
}

/// # Safety
/// `stream` is null or a place for a handle.
unsafe fn create(stream: *mut aclrtStream, priority: u32, flags: u32) -> crate::error::Outcome {
    if stream.is_null() {
        return refuse(code::INVALID_PARAM, "a place for the stream is null");
    }
    let device = device::current()?.device.clone();
    device::have_streams(&device, 1)?;
    let created = Stream::create(device, priority, flags);
    // SAFETY: not null, so the caller passes a place for the answer.
    unsafe { put(stream, code::INVALID_PARAM, to_pointer(created.handle)) }
}

/// `aclrtDestroyStream`: waits for queued work first.
pub unsafe extern "C" fn aclrtDestroyStream(stream: aclrtStream) -> aclError {
    acl("aclrtDestroyStream", || {
        not_null(stream)?;
        let stream = explicit(stream)?;
        if stream.capture().is_some() {
            return refuse(
                code::STREAM_CAPTURED,
                format!("stream {} is being captured", stream.id),
            );
        }
        if !stream.aborted() {
            stream.wait_for_all();
        }
        stream.close();
        Ok(())
    })
}

/// `aclrtDestroyStreamForce`
pub unsafe extern "C" fn aclrtDestroyStreamForce(stream: aclrtStream) -> aclError {
    acl("aclrtDestroyStreamForce", || {
        not_null(stream)?;
        let stream = explicit(stream)?;
        stream.abort();
        stream.close();
        Ok(())
    })
}

/// A stream by handle, whatever the thread's device is: ending one is allowed from everywhere.
fn explicit(stream: aclrtStream) -> crate::error::Outcome<std::sync::Arc<Stream>> {
    match STREAMS.get(stream) {
        Some(stream) => Ok(stream),
        None => refuse(
            code::HANDLE,
            format!("{:#x} names no living stream", stream.addr()),
        ),
    }
}

/// `aclrtSynchronizeStream`
pub unsafe extern "C" fn aclrtSynchronizeStream(stream: aclrtStream) -> aclError {
    acl("aclrtSynchronizeStream", || {
        stream::find(stream)?.synchronize(None)
    })
}

/// `aclrtSynchronizeStreamWithTimeout`
pub unsafe extern "C" fn aclrtSynchronizeStreamWithTimeout(
    stream: aclrtStream,
    timeout: i32,
) -> aclError {
    acl("aclrtSynchronizeStreamWithTimeout", || {
        let limit = limit(timeout)?;
        stream::find(stream)?.synchronize(limit)
    })
}

/// `aclrtStreamQuery`
pub unsafe extern "C" fn aclrtStreamQuery(
    stream: aclrtStream,
    status: *mut aclrtStreamStatus,
) -> aclError {
    acl("aclrtStreamQuery", || {
        let answer = if stream::find(stream)?.query()? {
            sys::ACL_STREAM_STATUS_COMPLETE
        } else {
            sys::ACL_STREAM_STATUS_NOT_READY
        };
        // SAFETY: the caller passes null or a place for the answer.
        unsafe { put(status, code::INVALID_PARAM, answer) }
    })
}

/// `aclrtStreamAbort`: from any thread, any number of times.
pub unsafe extern "C" fn aclrtStreamAbort(stream: aclrtStream) -> aclError {
    acl("aclrtStreamAbort", || {
        if stream.is_null() {
            stream::find(stream)?
        } else {
            explicit(stream)?
        }
        .abort();
        Ok(())
    })
}

/// `aclrtStreamGetId`
pub unsafe extern "C" fn aclrtStreamGetId(stream: aclrtStream, id: *mut i32) -> aclError {
    acl("aclrtStreamGetId", || {
        let answer = stream::find(stream)?.id;
        // SAFETY: the caller passes null or a place for the answer.
        unsafe { put(id, code::INVALID_PARAM, answer) }
    })
}

/// `aclrtStreamGetPriority`
pub unsafe extern "C" fn aclrtStreamGetPriority(
    stream: aclrtStream,
    priority: *mut u32,
) -> aclError {
    acl("aclrtStreamGetPriority", || {
        let answer = stream::find(stream)?.priority;
        // SAFETY: the caller passes null or a place for the answer.
        unsafe { put(priority, code::INVALID_PARAM, answer) }
    })
}

/// `aclrtStreamGetFlags`
pub unsafe extern "C" fn aclrtStreamGetFlags(stream: aclrtStream, flags: *mut u32) -> aclError {
    acl("aclrtStreamGetFlags", || {
        let answer = stream::find(stream)?.flags;
        // SAFETY: the caller passes null or a place for the answer.
        unsafe { put(flags, code::INVALID_PARAM, answer) }
    })
}

/// `aclrtGetStreamAvailableNum`
pub unsafe extern "C" fn aclrtGetStreamAvailableNum(count: *mut u32) -> aclError {
    acl("aclrtGetStreamAvailableNum", || {
        let used = device::streams(&device::current()?.device).len();
        // SAFETY: the caller passes null or a place for the answer.
        unsafe {
            put(
                count,
                code::INVALID_PARAM,
                config::or_default().streams.saturating_sub(used) as u32,
            )
        }
    })
}

/// `aclrtSetStreamFailureMode`
pub unsafe extern "C" fn aclrtSetStreamFailureMode(stream: aclrtStream, mode: u64) -> aclError {
    acl("aclrtSetStreamFailureMode", || {
        if mode > 1 {
            return refuse(
                code::INVALID_PARAM,
                format!("failure mode {mode}, expected 0 or 1"),
            );
        }
        stream::find(stream)?.stop_on_failure(mode == 1);
        Ok(())
    })
}

/// `aclrtSetOpWaitTimeout`
pub unsafe extern "C" fn aclrtSetOpWaitTimeout(timeout: u32) -> aclError {
    acl("aclrtSetOpWaitTimeout", || {
        event::WAIT_TIMEOUT.store(u64::from(timeout), Ordering::Relaxed);
        Ok(())
    })
}

/// `aclrtLaunchHostFunc`
pub unsafe extern "C" fn aclrtLaunchHostFunc(
    stream: aclrtStream,
    function: aclrtHostFunc,
    args: *mut c_void,
) -> aclError {
    acl("aclrtLaunchHostFunc", || {
        let Some(function) = function else {
            return refuse(code::INVALID_PARAM, "the function is null");
        };
        let args = args.expose_provenance();
        let stream = stream::find(stream)?;
        let work = move || {
            // SAFETY: the program asked for this call with this argument, on whatever thread runs the stream.
            unsafe { function(std::ptr::with_exposed_provenance_mut(args)) };
            Ok(())
        };
        stream.enqueue_function("a host function", work).map(|_| ())
    })
}

/// `aclrtCreateEvent`
pub unsafe extern "C" fn aclrtCreateEvent(event: *mut aclrtEvent) -> aclError {
    // SAFETY: passed on as it came.
    acl("aclrtCreateEvent", || unsafe {
        create_event(
            event,
            Kind::Fresh,
            sys::ACL_EVENT_SYNC | sys::ACL_EVENT_TIME_LINE,
            false,
        )
    })
}

/// `aclrtCreateEventWithFlag`
pub unsafe extern "C" fn aclrtCreateEventWithFlag(event: *mut aclrtEvent, flag: u32) -> aclError {
    // SAFETY: passed on as it came.
    acl("aclrtCreateEventWithFlag", || unsafe {
        // Without the bit that lets streams wait there is nothing to reset, and the event only keeps the time.
        let kind = if flag & sys::ACL_EVENT_SYNC != 0 {
            Kind::Flag
        } else {
            Kind::Fresh
        };
        create_event(event, kind, flag, false)
    })
}

/// `aclrtCreateEventExWithFlag`
pub unsafe extern "C" fn aclrtCreateEventExWithFlag(event: *mut aclrtEvent, flag: u32) -> aclError {
    // SAFETY: passed on as it came.
    acl("aclrtCreateEventExWithFlag", || unsafe {
        create_event(event, Kind::Fresh, flag, true)
    })
}

/// # Safety
/// `event` is null or a place for a handle.
unsafe fn create_event(
    event: *mut aclrtEvent,
    kind: Kind,
    flags: u32,
    ex: bool,
) -> crate::error::Outcome {
    if event.is_null() {
        return refuse(code::INVALID_PARAM, "a place for the event is null");
    }
    let handle = event::create(device::current()?.device.id, kind, flags, ex)?;
    // SAFETY: not null, so the caller passes a place for the answer.
    unsafe { put(event, code::INVALID_PARAM, to_pointer(handle)) }
}

/// `aclrtDestroyEvent`: waits on it that are queued stay valid.
pub unsafe extern "C" fn aclrtDestroyEvent(event: aclrtEvent) -> aclError {
    acl("aclrtDestroyEvent", || {
        event::find(event)?;
        EVENTS.remove(event);
        Ok(())
    })
}

/// `aclrtRecordEvent`
pub unsafe extern "C" fn aclrtRecordEvent(event: aclrtEvent, stream: aclrtStream) -> aclError {
    acl("aclrtRecordEvent", || {
        event::find(event)?.record_with(&stream::find(stream)?, false)
    })
}

/// `aclrtResetEvent`
pub unsafe extern "C" fn aclrtResetEvent(event: aclrtEvent, stream: aclrtStream) -> aclError {
    acl("aclrtResetEvent", || {
        event::find(event)?.reset(&stream::find(stream)?)
    })
}

/// `aclrtQueryEvent`
pub unsafe extern "C" fn aclrtQueryEvent(
    event: aclrtEvent,
    status: *mut aclrtEventStatus,
) -> aclError {
    acl("aclrtQueryEvent", || {
        let answer = if event::find(event)?.is_complete(true)? {
            sys::ACL_EVENT_STATUS_COMPLETE
        } else {
            sys::ACL_EVENT_STATUS_NOT_READY
        };
        // SAFETY: the caller passes null or a place for the answer.
        unsafe { put(status, code::INVALID_PARAM, answer) }
    })
}

/// `aclrtQueryEventStatus`
pub unsafe extern "C" fn aclrtQueryEventStatus(
    event: aclrtEvent,
    status: *mut aclrtEventRecordedStatus,
) -> aclError {
    acl("aclrtQueryEventStatus", || {
        let answer = if event::find(event)?.is_complete(false)? {
            sys::ACL_EVENT_RECORDED_STATUS_COMPLETE
        } else {
            sys::ACL_EVENT_RECORDED_STATUS_NOT_READY
        };
        // SAFETY: the caller passes null or a place for the answer.
        unsafe { put(status, code::INVALID_PARAM, answer) }
    })
}

/// `aclrtQueryEventWaitStatus`
pub unsafe extern "C" fn aclrtQueryEventWaitStatus(
    event: aclrtEvent,
    status: *mut aclrtEventWaitStatus,
) -> aclError {
    acl("aclrtQueryEventWaitStatus", || {
        let answer = if event::find(event)?.is_complete(true)? {
            sys::ACL_EVENT_WAIT_STATUS_COMPLETE
        } else {
            sys::ACL_EVENT_WAIT_STATUS_NOT_READY
        };
        // SAFETY: the caller passes null or a place for the answer.
        unsafe { put(status, code::INVALID_PARAM, answer) }
    })
}

/// `aclrtSynchronizeEvent`
pub unsafe extern "C" fn aclrtSynchronizeEvent(event: aclrtEvent) -> aclError {
    acl("aclrtSynchronizeEvent", || {
        event::find(event)?.synchronize(None)
    })
}

/// `aclrtSynchronizeEventWithTimeout`
pub unsafe extern "C" fn aclrtSynchronizeEventWithTimeout(
    event: aclrtEvent,
    timeout: i32,
) -> aclError {
    acl("aclrtSynchronizeEventWithTimeout", || {
        let limit = limit(timeout)?;
        event::find(event)?.synchronize(limit)
    })
}

/// `aclrtStreamWaitEvent`
pub unsafe extern "C" fn aclrtStreamWaitEvent(stream: aclrtStream, event: aclrtEvent) -> aclError {
    acl("aclrtStreamWaitEvent", || {
        event::find(event)?.wait_with(&stream::find(stream)?, false)
    })
}

/// `aclrtStreamWaitEventWithTimeout`: seconds, 0 for ever.
pub unsafe extern "C" fn aclrtStreamWaitEventWithTimeout(
    stream: aclrtStream,
    event: aclrtEvent,
    timeout: i32,
) -> aclError {
    acl("aclrtStreamWaitEventWithTimeout", || {
        let Ok(seconds) = u64::try_from(timeout) else {
            return refuse(code::RT_PARAM, format!("a timeout of {timeout} s"));
        };
        let limit = (seconds > 0).then(|| Duration::from_secs(seconds));
        event::find(event)?.wait_on(&stream::find(stream)?, limit)
    })
}

/// `aclrtEventElapsedTime`
pub unsafe extern "C" fn aclrtEventElapsedTime(
    ms: *mut f32,
    start: aclrtEvent,
    end: aclrtEvent,
) -> aclError {
    acl("aclrtEventElapsedTime", || {
        let answer = event::elapsed(&*event::find(start)?, &*event::find(end)?)?;
        // SAFETY: the caller passes null or a place for the answer.
        unsafe { put(ms, code::INVALID_PARAM, answer) }
    })
}

/// `aclrtEventGetTimestamp`: microseconds of the monotonic clock.
pub unsafe extern "C" fn aclrtEventGetTimestamp(
    event: aclrtEvent,
    timestamp: *mut u64,
) -> aclError {
    acl("aclrtEventGetTimestamp", || {
        let answer = event::find(event)?.time()? / 1000;
        // SAFETY: the caller passes null or a place for the answer.
        unsafe { put(timestamp, code::INVALID_PARAM, answer) }
    })
}
