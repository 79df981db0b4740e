//! Work that is recorded once and started as one launch.

#![expect(unsafe_code, reason = "calls into the device library")]

use std::{ptr::null_mut, sync::Arc};

use hcom_sys::bindings as c;

use super::{Driver, Handle, Stream};
use crate::error::Error;

/// Work that was recorded from streams.
#[derive(Debug)]
pub(crate) struct Capture {
    driver: Arc<Driver>,
    handle: Handle,
}

impl Capture {
    /// Says whether the library has everything that captures need, written words included: events
    /// that a capture recorded cannot be asked from outside.
    pub(crate) fn offered(driver: &Driver) -> Result<(), Error> {
        let l = &driver.library;
        l.aclmdlRICaptureBegin()?;
        l.aclmdlRICaptureEnd()?;
        l.aclmdlRIExecuteAsync()?;
        l.aclmdlRIDestroy()?;
        l.aclrtValueWrite()?;
        Ok(())
    }

    /// Records what `queue` queues on `stream` and on streams that wait for it and that it waits
    /// for in the end, instead of executing it. Other threads may use other streams meanwhile.
    pub(crate) fn record(
        driver: &Arc<Driver>,
        stream: &Stream,
        queue: impl FnOnce() -> Result<(), Error>,
    ) -> Result<Capture, Error> {
        let begin = driver.library.aclmdlRICaptureBegin()?;
        let end = driver.library.aclmdlRICaptureEnd()?;
        let mode = c::ACL_MODEL_RI_CAPTURE_MODE_THREAD_LOCAL;
        // SAFETY: the stream is alive.
        let code = unsafe { begin(stream.raw(), mode) };
        driver.check("aclmdlRICaptureBegin", code)?;
        let queued = queue();
        let mut handle = null_mut();
        // SAFETY: the capture began on this stream in this thread; `handle` is a valid place for
        // the answer.
        let code = unsafe { end(stream.raw(), &mut handle) };
        let ended = driver.check("aclmdlRICaptureEnd", code).map(|()| Capture {
            driver: driver.clone(),
            handle: Handle(handle),
        });
        queued.and(ended)
    }

    /// Queues one execution on `stream`.
    pub(crate) fn replay(&self, stream: &Stream) -> Result<(), Error> {
        let execute = self.driver.library.aclmdlRIExecuteAsync()?;
        // SAFETY: both handles are alive. The memory and the streams that the capture refers to
        // are kept by its owner until its last execution is done.
        let code = unsafe { execute(self.handle.0, stream.raw()) };
        self.driver.check("aclmdlRIExecuteAsync", code)
    }
}

impl Drop for Capture {
    fn drop(&mut self) {
        let attached = self.driver.attach();
        self.driver.note(attached);
        let destroyed = self
            .driver
            .library
            .aclmdlRIDestroy()
            .map_err(Error::from)
            .and_then(|destroy| {
                // SAFETY: the handle comes from `aclmdlRICaptureEnd` and is destroyed once.
                let code = unsafe { destroy(self.handle.0) };
                self.driver.check("aclmdlRIDestroy", code)
            });
        self.driver.note(destroyed);
    }
}
