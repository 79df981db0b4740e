//! The only code that calls the device library.
//!
//! Everything here is safe to use from the rest of the crate: handles own what they were made from,
//! memory is bounds-checked, and memory is given back only when the device no longer works.

#![expect(unsafe_code, reason = "calls into the device library")]

use std::{
    ffi::{CStr, c_void},
    fmt,
    path::Path,
    ptr::null_mut,
    sync::{Arc, Mutex, PoisonError},
};

use hcom_ir::CostModel;
use hcom_sys::{CallError, Library, bindings as c, check_acl, check_hccl};

use crate::error::Error;

mod capture;
mod hccl;
mod memory;
mod operator;
mod stream;

pub(crate) use capture::Capture;
pub(crate) use hccl::{Communicator, ROOT_INFO_BYTES};
pub(crate) use memory::{Memory, Place};
pub(crate) use operator::{Operator, Workspace};
pub(crate) use stream::{Event, Stream};

/// A handle of the library. The library allows its use from any thread that has a context of the
/// device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Handle(*mut c_void);

// SAFETY: ACL and HCCL handles are tokens that any thread may pass back to the library once the
// context is current there, which `Driver::attach` ensures; the library synchronises itself.
unsafe impl Send for Handle {}
// SAFETY: as for Send; nothing here reads through the pointer.
unsafe impl Sync for Handle {}

/// Transfer times that the library models instead of showing its own.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Link {
    /// Time that a transfer takes whatever its size, in microseconds.
    pub alpha_us: f64,
    /// Bandwidth in 10⁹ bytes per second.
    pub gbytes_per_s: f64,
}

impl fmt::Display for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "modelled link: {} µs + bytes / {} GB/s",
            self.alpha_us, self.gbytes_per_s
        )
    }
}

/// The library, opened and initialised for one device.
#[derive(Debug)]
pub(crate) struct Driver {
    library: Library,
    device: i32,
    context: Handle,
    /// What went wrong where no error could be returned.
    noted: Mutex<Option<Error>>,
}

impl Driver {
    /// Finds the library, initialises it and takes device `device`.
    pub(crate) fn open(library: Option<&Path>, device: u32) -> Result<Arc<Driver>, Error> {
        let library = Library::search(library)?;
        let device = i32::try_from(device).unwrap_or(i32::MAX);
        let init = library.aclInit()?;
        // SAFETY: a null path means the default configuration.
        let code = unsafe { init(std::ptr::null()) };
        if code != c::ACL_ERROR_REPEAT_INITIALIZE {
            check(&library, "aclInit", code)?;
        }
        let set_device = library.aclrtSetDevice()?;
        // SAFETY: no pointers.
        check(&library, "aclrtSetDevice", unsafe { set_device(device) })?;
        let mut context = null_mut();
        let current = library.aclrtGetCurrentContext()?;
        // SAFETY: `context` is a valid place for the answer.
        check(&library, "aclrtGetCurrentContext", unsafe {
            current(&mut context)
        })?;
        Ok(Arc::new(Driver {
            library,
            device,
            context: Handle(context),
            noted: Mutex::new(None),
        }))
    }

    pub(crate) fn library(&self) -> &Library {
        &self.library
    }

    /// Makes the device current on this thread. Every other function of this module needs that.
    pub(crate) fn attach(&self) -> Result<(), Error> {
        let set = self.library.aclrtSetCurrentContext()?;
        // SAFETY: the context belongs to the device that `self` keeps set.
        self.check("aclrtSetCurrentContext", unsafe { set(self.context.0) })
    }

    /// Name of the chip, for example `Ascend910_9382`.
    pub(crate) fn soc(&self) -> Option<String> {
        let name = self.library.aclrtGetSocName().ok()?;
        // SAFETY: no arguments; the answer is null or a string that lives as long as the library.
        let name = unsafe { name() };
        if name.is_null() {
            return None;
        }
        // SAFETY: not null, so a C string of the library.
        let name = unsafe { CStr::from_ptr(name) };
        Some(name.to_string_lossy().into_owned())
    }

    /// Number of devices that this process can see.
    pub(crate) fn device_count(&self) -> Result<u32, Error> {
        let get = self.library.aclrtGetDeviceCount()?;
        let mut count = 0;
        // SAFETY: `count` is a valid place for the answer.
        self.check("aclrtGetDeviceCount", unsafe { get(&mut count) })?;
        Ok(count)
    }

    /// Version of the library's programming interface: major, minor, patch.
    pub(crate) fn version(&self) -> Option<[i32; 3]> {
        let get = self.library.aclrtGetVersion().ok()?;
        let [mut major, mut minor, mut patch] = [0; 3];
        // SAFETY: three valid places for the answer.
        let code = unsafe { get(&mut major, &mut minor, &mut patch) };
        self.check("aclrtGetVersion", code).ok()?;
        Some([major, minor, patch])
    }

    /// The link that the library models, where it is one that does and the model is on.
    pub(crate) fn modelled_link(&self) -> Option<Link> {
        let get = self.library.hcomExtGetLink().ok()?;
        let mut link = c::hcomExtLink::default();
        // SAFETY: `link` is a valid place for the answer.
        let code = unsafe { get(&mut link) };
        self.check("hcomExtGetLink", code).ok()?;
        (link.gbytesPerS > 0.0).then_some(Link {
            alpha_us: link.alphaUs,
            gbytes_per_s: link.gbytesPerS,
        })
    }

    /// Models this link, or none, for operations that are queued later in this process.
    pub(crate) fn model_link(&self, link: Option<Link>) -> Result<(), Error> {
        let set = self.library.hcomExtSetLink()?;
        let link = link.map_or_else(c::hcomExtLink::default, |link| c::hcomExtLink {
            alphaUs: link.alpha_us,
            gbytesPerS: link.gbytes_per_s,
        });
        // SAFETY: `link` is read during the call only.
        self.check("hcomExtSetLink", unsafe { set(&link) })
    }

    /// The times to plan with.
    pub(crate) fn cost_model(&self) -> CostModel {
        if self.library.has("hcomExtGetLink") {
            let mut cost = CostModel::cpu_fake();
            if let Some(link) = self.modelled_link() {
                for level in &mut cost.levels {
                    level.alpha_us = link.alpha_us;
                    level.bytes_per_us = link.gbytes_per_s * 1000.0;
                }
            }
            return cost;
        }
        match self.soc() {
            Some(soc) if soc.starts_with("Ascend910_93") => CostModel::a3(),
            _ => CostModel::a2(),
        }
    }

    /// Drops all queued and running work of the device.
    pub(crate) fn abort_device(&self) -> Result<(), Error> {
        let abort = self.library.aclrtDeviceTaskAbort()?;
        // SAFETY: no pointers. Two seconds are for the device to stop.
        self.check("aclrtDeviceTaskAbort", unsafe { abort(self.device, 2000) })
    }

    /// Waits until the device has nothing to do, at most `milliseconds` where the library can limit
    /// the wait. Says whether that was reached.
    fn settle(&self, milliseconds: i32) -> bool {
        if let Ok(wait) = self.library.aclrtSynchronizeDeviceWithTimeout() {
            // SAFETY: no pointers.
            return unsafe { wait(milliseconds) } == c::ACL_SUCCESS;
        }
        match self.library.aclrtSynchronizeDevice() {
            // SAFETY: no pointers.
            Ok(wait) => unsafe { wait() == c::ACL_SUCCESS },
            Err(_) => false,
        }
    }

    fn check(&self, call: &'static str, code: c::aclError) -> Result<(), Error> {
        check(&self.library, call, code)
    }

    fn check_hccl(&self, call: &'static str, code: c::HcclResult) -> Result<(), Error> {
        check_hccl(call, code).map_err(|error| with_detail(&self.library, error))
    }

    /// Keeps an error that occurred while something was dropped.
    pub(crate) fn note(&self, result: Result<(), Error>) {
        if let Err(error) = result {
            self.noted
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .get_or_insert(error);
        }
    }

    /// The first error noted since the last call.
    pub(crate) fn noted(&self) -> Result<(), Error> {
        let mut noted = self.noted.lock().unwrap_or_else(PoisonError::into_inner);
        noted.take().map_or(Ok(()), Err)
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        if let Ok(reset) = self.library.aclrtResetDevice() {
            // SAFETY: undoes the one `aclrtSetDevice` of `open`; handles that were made from the
            // driver keep it alive, so none is left. Nobody can be told about a failure.
            unsafe { reset(self.device) };
        }
    }
}

fn check(library: &Library, call: &'static str, code: c::aclError) -> Result<(), Error> {
    check_acl(call, code).map_err(|error| with_detail(library, error))
}

/// Adds the library's own words about the last error of this thread.
fn with_detail(library: &Library, error: CallError) -> Error {
    let Ok(message) = library.aclGetRecentErrMsg() else {
        return error.into();
    };
    // SAFETY: no arguments; the answer is null or a string valid until this thread's next call.
    let message = unsafe { message() };
    if message.is_null() {
        return error.into();
    }
    // SAFETY: not null, so a C string, and this thread makes no call while it is read.
    let message = unsafe { CStr::from_ptr(message) }
        .to_string_lossy()
        .trim()
        .to_owned();
    error.with_detail(message).into()
}
