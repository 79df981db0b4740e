//! Points in the work of a rank that the host can wait for, and host addresses of device memory.

use std::{ffi::c_void, ptr::NonNull, sync::Arc, time::Duration};

use crate::{Array, Error, Runtime, raw::Event, runtime::Inner};

/// A point in the order of the calls: everything that was issued before it. It can be set again and
/// again; a wait refers to the latest time.
///
/// A caller that has to look after something else while it waits, such as the signals of a foreign
/// interpreter, waits in short slices.
pub struct Fence {
    runtime: Arc<Inner>,
    event: Event,
}

impl Runtime {
    /// A fence, set now.
    ///
    /// # Errors
    /// The failure of the job; [`Error::Call`].
    pub fn fence(&self) -> Result<Fence, Error> {
        let inner = self.inner();
        let launch = inner.begin()?;
        let event = Event::new(&inner.driver)?;
        event.record(&inner.compute)?;
        drop(launch);
        Ok(Fence {
            runtime: inner.clone(),
            event,
        })
    }
}

impl Fence {
    /// Moves the fence behind everything that has been issued.
    ///
    /// # Errors
    /// The failure of the job; [`Error::Call`].
    pub fn set(&self) -> Result<(), Error> {
        let _launch = self.runtime.begin()?;
        self.event.record(&self.runtime.compute)
    }

    /// Waits until everything before the fence has been executed; `false` when `limit`, at least a
    /// millisecond, is over before. Other threads can issue work meanwhile.
    ///
    /// # Errors
    /// The failure of the job, and what went wrong in the work itself.
    pub fn wait(&self, limit: Duration) -> Result<bool, Error> {
        self.runtime.driver.attach()?;
        let watchdog = &self.runtime.watchdog;
        match self.event.wait(limit) {
            Ok(true) => watchdog.check().map(|()| true),
            Ok(false) => match watchdog.inspect() {
                Some(failure) => Err(watchdog.fail(failure)),
                None => Ok(false),
            },
            Err(error) => Err(watchdog.blame(error)),
        }
    }

    /// Whether everything before the fence has been executed.
    ///
    /// # Errors
    /// The failure of the job; [`Error::Call`].
    pub fn reached(&self) -> Result<bool, Error> {
        self.runtime.driver.attach()?;
        self.runtime.watchdog.check()?;
        self.event.reached()
    }
}

impl Array {
    /// Where the host finds the elements; `None` when the device's memory is out of its reach, as
    /// that of a card is. The address is valid as long as the array. Whoever uses it orders the
    /// accesses with the device's, by a [`Fence`].
    pub fn host_pointer(&self) -> Option<NonNull<c_void>> {
        self.place().host_address()
    }

    /// Replaces the elements: little endian, row-major. The copy happens at once, whatever is
    /// queued: nothing that was issued may still use the array.
    ///
    /// # Errors
    /// [`Error::DataSize`] when `bytes` does not have the size of the array; the failure of the job.
    pub fn write(&self, bytes: &[u8]) -> Result<(), Error> {
        if bytes.len() as u64 != self.byte_len() {
            return Err(Error::DataSize {
                ty: self.ty().to_string(),
                expected: self.byte_len(),
                got: bytes.len() as u64,
            });
        }
        let _launch = self.runtime().begin()?;
        match bytes.is_empty() {
            true => Ok(()),
            false => self.place().write(bytes),
        }
    }
}
