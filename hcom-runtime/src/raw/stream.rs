//! Streams and events.

#![expect(unsafe_code, reason = "calls into the device library")]

use std::{
    ptr::null_mut,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use hcom_sys::bindings as c;

use super::{Driver, Handle};
use crate::error::Error;

/// A queue of work that the device executes in order.
#[derive(Debug)]
pub(crate) struct Stream {
    driver: Arc<Driver>,
    handle: Handle,
    aborted: AtomicBool,
}

impl Stream {
    pub(crate) fn new(driver: &Arc<Driver>) -> Result<Stream, Error> {
        let create = driver.library.aclrtCreateStream()?;
        let mut handle = null_mut();
        // SAFETY: `handle` is a valid place for the answer.
        driver.check("aclrtCreateStream", unsafe { create(&mut handle) })?;
        Ok(Stream {
            driver: driver.clone(),
            handle: Handle(handle),
            aborted: AtomicBool::new(false),
        })
    }

    pub(super) fn raw(&self) -> c::aclrtStream {
        self.handle.0.cast()
    }

    /// Waits until all queued work is done; `false` after `limit`. Reports the first error of the
    /// work itself.
    pub(crate) fn wait(&self, limit: Duration) -> Result<bool, Error> {
        let wait = self.driver.library.aclrtSynchronizeStreamWithTimeout()?;
        let milliseconds = i32::try_from(limit.as_millis()).unwrap_or(i32::MAX).max(1);
        // SAFETY: the stream is alive as long as `self`.
        match unsafe { wait(self.raw(), milliseconds) } {
            c::ACL_ERROR_RT_STREAM_SYNC_TIMEOUT => Ok(false),
            code => self
                .driver
                .check("aclrtSynchronizeStreamWithTimeout", code)
                .map(|()| true),
        }
    }

    /// Kills what is queued and running. Twice is the same as once.
    pub(crate) fn abort(&self) -> Result<(), Error> {
        if self.aborted.swap(true, Ordering::AcqRel) {
            return Ok(());
        }
        match self.driver.library.aclrtStreamAbort() {
            // SAFETY: the stream is alive as long as `self`; the call is allowed from any thread.
            Ok(abort) => self
                .driver
                .check("aclrtStreamAbort", unsafe { abort(self.raw()) }),
            Err(_) => self.driver.abort_device(),
        }
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        let attached = self.driver.attach();
        self.driver.note(attached);
        let library = &self.driver.library;
        let destroyed = if self.aborted.load(Ordering::Acquire) {
            library.aclrtDestroyStreamForce().map(|destroy| {
                // SAFETY: the handle comes from `aclrtCreateStream` and is destroyed once.
                unsafe { destroy(self.raw()) }
            })
        } else {
            library.aclrtDestroyStream().map(|destroy| {
                // SAFETY: as above.
                unsafe { destroy(self.raw()) }
            })
        };
        self.driver.note(
            destroyed
                .map_err(Error::from)
                .and_then(|code| self.driver.check("aclrtDestroyStream", code)),
        );
    }
}

/// A point in a stream's work that others can wait for. It can be recorded again and again; a wait
/// refers to the latest record at the time of the call.
#[derive(Debug)]
pub(crate) struct Event {
    driver: Arc<Driver>,
    handle: Handle,
}

impl Event {
    /// An event to wait for.
    pub(crate) fn new(driver: &Arc<Driver>) -> Result<Event, Error> {
        Event::with_flags(driver, c::ACL_EVENT_SYNC)
    }

    /// An event that also keeps the time at which it was reached.
    pub(crate) fn timed(driver: &Arc<Driver>) -> Result<Event, Error> {
        Event::with_flags(driver, c::ACL_EVENT_SYNC | c::ACL_EVENT_TIME_LINE)
    }

    fn with_flags(driver: &Arc<Driver>, flags: u32) -> Result<Event, Error> {
        let create = driver.library.aclrtCreateEventExWithFlag()?;
        let mut handle = null_mut();
        // SAFETY: `handle` is a valid place for the answer.
        let code = unsafe { create(&mut handle, flags) };
        driver.check("aclrtCreateEventExWithFlag", code)?;
        Ok(Event {
            driver: driver.clone(),
            handle: Handle(handle),
        })
    }

    fn raw(&self) -> c::aclrtEvent {
        self.handle.0.cast()
    }

    /// Queues the record on `stream`.
    pub(crate) fn record(&self, stream: &Stream) -> Result<(), Error> {
        let record = self.driver.library.aclrtRecordEvent()?;
        // SAFETY: both handles are alive.
        let code = unsafe { record(self.raw(), stream.raw()) };
        self.driver.check("aclrtRecordEvent", code)
    }

    /// Queues a wait on `stream` for the latest record.
    pub(crate) fn hold(&self, stream: &Stream) -> Result<(), Error> {
        let wait = self.driver.library.aclrtStreamWaitEvent()?;
        // SAFETY: both handles are alive.
        let code = unsafe { wait(stream.raw(), self.raw()) };
        self.driver.check("aclrtStreamWaitEvent", code)
    }

    /// Whether the latest record has been reached; also when there is none.
    pub(crate) fn reached(&self) -> Result<bool, Error> {
        let query = self.driver.library.aclrtQueryEventStatus()?;
        let mut status = c::ACL_EVENT_RECORDED_STATUS_NOT_READY;
        // SAFETY: the event is alive and `status` a valid place for the answer.
        let code = unsafe { query(self.raw(), &mut status) };
        self.driver.check("aclrtQueryEventStatus", code)?;
        Ok(status == c::ACL_EVENT_RECORDED_STATUS_COMPLETE)
    }

    /// Host wait for the latest record; `false` after `limit`.
    pub(crate) fn wait(&self, limit: Duration) -> Result<bool, Error> {
        let wait = self.driver.library.aclrtSynchronizeEventWithTimeout()?;
        let milliseconds = i32::try_from(limit.as_millis()).unwrap_or(i32::MAX).max(1);
        // SAFETY: the event is alive as long as `self`.
        match unsafe { wait(self.raw(), milliseconds) } {
            c::ACL_ERROR_RT_EVENT_SYNC_TIMEOUT => Ok(false),
            code => self
                .driver
                .check("aclrtSynchronizeEventWithTimeout", code)
                .map(|()| true),
        }
    }

    /// When a timed event was reached, in microseconds since the host booted.
    pub(crate) fn timestamp_us(&self) -> Result<f64, Error> {
        let stamp = self.driver.library.aclrtEventGetTimestamp()?;
        let mut microseconds = 0;
        // SAFETY: the event is alive and `microseconds` a valid place for the answer.
        let code = unsafe { stamp(self.raw(), &mut microseconds) };
        self.driver.check("aclrtEventGetTimestamp", code)?;
        Ok(microseconds as f64)
    }

    /// Microseconds from this timed event to `later`.
    pub(crate) fn until_us(&self, later: &Event) -> Result<f64, Error> {
        let elapsed = self.driver.library.aclrtEventElapsedTime()?;
        let mut milliseconds = 0f32;
        // SAFETY: both events are alive and `milliseconds` a valid place for the answer.
        let code = unsafe { elapsed(&mut milliseconds, self.raw(), later.raw()) };
        self.driver.check("aclrtEventElapsedTime", code)?;
        Ok(f64::from(milliseconds) * 1000.0)
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        let attached = self.driver.attach();
        self.driver.note(attached);
        let destroyed = self
            .driver
            .library
            .aclrtDestroyEvent()
            .map_err(Error::from)
            .and_then(|destroy| {
                // SAFETY: the handle comes from `aclrtCreateEventExWithFlag` and is destroyed once;
                // the library keeps a pending event until it is done.
                let code = unsafe { destroy(self.raw()) };
                self.driver.check("aclrtDestroyEvent", code)
            });
        self.driver.note(destroyed);
    }
}
