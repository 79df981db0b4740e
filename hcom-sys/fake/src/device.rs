//! Devices and contexts: what a thread works on.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use crate::code;
use crate::config;
use crate::error::{Failure, Outcome, refuse};
use crate::handle::{self, Table};
use crate::link::Link;
use crate::memory::{Arena, lock};
use crate::stream::{STREAMS, Stream};

/// One device as this process sees it.
pub(crate) struct Device {
    /// Its number on this host.
    pub id: u32,
    /// Its memory, the part that this process owns.
    pub arena: Arc<Arena>,
    /// Its end of the modelled link, shared by all its communicators.
    pub link: Link,
}

/// A context: a device with a default stream.
pub(crate) struct Context {
    /// Its name for programs.
    pub handle: usize,
    /// Its device.
    pub device: Arc<Device>,
    /// What a null stream means here.
    pub default_stream: Arc<Stream>,
    /// `aclrtCtxSetSysParamOpt`.
    pub parameters: Mutex<BTreeMap<u32, i64>>,
    alive: AtomicBool,
}

/// All living contexts, explicit and default ones.
pub(crate) static CONTEXTS: Table<Context> = Table::new();

/// A device in use, and by how many `aclrtSetDevice`.
struct Used {
    device: Arc<Device>,
    users: u32,
    context: Option<Arc<Context>>,
}

static DEVICES: Mutex<BTreeMap<u32, Used>> = Mutex::new(BTreeMap::new());

thread_local! {
    static CURRENT: RefCell<Option<Arc<Context>>> = const { RefCell::new(None) };
}

impl Device {
    /// The refusal of an allocation of `bytes`: what was needed, what there is, and which setting changes it.
    pub(crate) fn out_of_memory(&self, bytes: usize) -> Failure {
        let (free, total) = self.arena.usage();
        Failure::new(
            code::OUT_OF_MEMORY,
            format!(
                "device {} has no {bytes} bytes in one piece: {free} of {total} bytes are free; HCOM_FAKE_MEMORY sets \
                 the size of a device",
                self.id
            ),
        )
    }
}

/// The device with this number, whether it is set or not.
///
/// # Errors
/// As [`set`].
pub(crate) fn of(id: i32) -> Outcome<Arc<Device>> {
    let id = check(id)?;
    Ok(use_device(&mut lock(&DEVICES), id)?.device.clone())
}

impl Context {
    fn create(device: Arc<Device>) -> Arc<Self> {
        let default_stream = Stream::create(device.clone(), 0, 0);
        default_stream.is_default.store(true, Ordering::Relaxed);
        let context = Arc::new(Self {
            handle: handle::fresh(),
            default_stream,
            device,
            parameters: Mutex::default(),
            alive: AtomicBool::new(true),
        });
        CONTEXTS.insert(context.handle, context.clone());
        context
    }

    fn close(&self) {
        self.alive.store(false, Ordering::Relaxed);
        CONTEXTS.remove(handle::to_pointer(self.handle));
        self.default_stream.close();
    }
}

/// The context of this thread.
///
/// # Errors
/// 107002 when it has none, or one that was destroyed.
pub(crate) fn current() -> Outcome<Arc<Context>> {
    // A thread that is ending has none either.
    let context = CURRENT.try_with(|current| current.borrow().clone());
    match context.ok().flatten() {
        Some(context) if context.alive.load(Ordering::Relaxed) => Ok(context),
        _ => refuse(
            code::CONTEXT_NULL,
            "this thread has no device: call aclrtSetDevice first",
        ),
    }
}

/// Makes `context` the one of this thread.
///
/// # Errors
/// 107002 for a thread that is ending and has given its own up already.
fn make_current(context: Arc<Context>) -> Outcome {
    match CURRENT.try_with(|current| current.replace(Some(context))) {
        Ok(_) => Ok(()),
        Err(_) => refuse(code::CONTEXT_NULL, "this thread is ending"),
    }
}

/// Checks a device number.
///
/// # Errors
/// 107001 when this host has no such device; 100000 when a setting cannot be read.
pub(crate) fn check(id: i32) -> Outcome<u32> {
    let devices = config::get()
        .map_err(|text| Failure::new(code::INVALID_PARAM, text))?
        .devices;
    match u32::try_from(id) {
        Ok(id) if id < devices => Ok(id),
        _ => refuse(
            code::RT_DEVICE,
            format!("device {id}: this host has devices 0 to {}", devices - 1),
        ),
    }
}

fn use_device(devices: &mut BTreeMap<u32, Used>, id: u32) -> Outcome<&mut Used> {
    let config = config::or_default();
    Ok(match devices.entry(id) {
        std::collections::btree_map::Entry::Occupied(entry) => entry.into_mut(),
        std::collections::btree_map::Entry::Vacant(entry) => {
            let arena = Arena::create(id, config.device_bytes, config.strict).map_err(|error| {
                Failure::new(
                    code::RESOURCE,
                    format!("no memory file for device {id}: {error}"),
                )
            })?;
            let device = Arc::new(Device {
                id,
                arena,
                link: Link::default(),
            });
            entry.insert(Used {
                device,
                users: 0,
                context: None,
            })
        }
    })
}

/// Makes the device's default context current for this thread.
///
/// # Errors
/// Those of [`check`]; a resource error when the host cannot give the device its memory file.
pub(crate) fn set(id: i32) -> Outcome {
    let id = check(id)?;
    let mut devices = lock(&DEVICES);
    let used = use_device(&mut devices, id)?;
    used.users += 1;
    let context = used
        .context
        .get_or_insert_with(|| Context::create(used.device.clone()))
        .clone();
    drop(devices);
    make_current(context)
}

/// Undoes one [`set`]; the last one waits for the device's work and closes its streams. With `force` at once.
///
/// # Errors
/// 107001 for an unknown device, 107002 when the device is not set; the device's pending failure.
pub(crate) fn reset(id: i32, force: bool) -> Outcome {
    let id = check(id)?;
    let mut devices = lock(&DEVICES);
    let Some(used) = devices.get_mut(&id).filter(|used| used.users > 0) else {
        return refuse(
            code::CONTEXT_NULL,
            format!("device {id} is not set in this process"),
        );
    };
    used.users = if force { 0 } else { used.users - 1 };
    if used.users > 0 {
        return Ok(());
    }
    let device = used.device.clone();
    let context = used.context.take();
    drop(devices);
    let outcome = if force {
        Ok(())
    } else {
        synchronize(&device, None)
    };
    for stream in streams(&device) {
        if force {
            stream.abort();
        }
        stream.close();
    }
    if let Some(context) = context {
        context.close();
    }
    outcome
}

/// Whether the device is set in this process.
pub(crate) fn is_set(id: u32) -> bool {
    lock(&DEVICES).get(&id).is_some_and(|used| used.users > 0)
}

/// Undoes one [`set`] without closing anything: for threads of this library that borrowed the device.
pub(crate) fn release(id: i32) {
    if let Some(used) = lock(&DEVICES).get_mut(&id.unsigned_abs()) {
        used.users = used.users.saturating_sub(1);
    }
}

/// Creates a further context of the device and makes it current.
///
/// # Errors
/// As [`set`].
pub(crate) fn create_context(id: i32) -> Outcome<usize> {
    let id = check(id)?;
    let device = use_device(&mut lock(&DEVICES), id)?.device.clone();
    let context = Context::create(device);
    let handle = context.handle;
    make_current(context)?;
    Ok(handle)
}

/// Destroys a context made by [`create_context`].
///
/// # Errors
/// 107017 for anything else.
pub(crate) fn destroy_context(handle: *const std::ffi::c_void) -> Outcome {
    let Some(context) = CONTEXTS.get(handle) else {
        return refuse(
            code::HANDLE,
            format!("{:#x} names no living context", handle.addr()),
        );
    };
    let default = lock(&DEVICES).values().any(|used| {
        used.context
            .as_ref()
            .is_some_and(|default| default.handle == context.handle)
    });
    if default {
        return refuse(code::HANDLE, "a default context ends with aclrtResetDevice");
    }
    context.close();
    Ok(())
}

/// Makes a context current for this thread.
///
/// # Errors
/// 107017 for an unknown handle.
pub(crate) fn set_current(handle: *const std::ffi::c_void) -> Outcome {
    match CONTEXTS.get(handle) {
        Some(context) => make_current(context),
        None => refuse(
            code::HANDLE,
            format!("{:#x} names no living context", handle.addr()),
        ),
    }
}

/// The living streams of a device.
pub(crate) fn streams(device: &Device) -> Vec<Arc<Stream>> {
    let mut streams = STREAMS.all();
    streams.retain(|stream| stream.device.id == device.id);
    streams
}

/// Makes sure that a device has `needed` more streams.
///
/// # Errors
/// 207008 otherwise.
pub(crate) fn have_streams(device: &Device, needed: usize) -> Outcome {
    let (used, most) = (streams(device).len(), config::or_default().streams);
    if used + needed <= most {
        return Ok(());
    }
    refuse(
        code::NO_STREAM,
        format!(
            "device {} has not enough streams left: {needed} needed, {used} of {most} in use; HCOM_FAKE_STREAMS sets \
             their number",
            device.id
        ),
    )
}

/// Waits for all work of a device, at most `limit`.
///
/// # Errors
/// The first failure found, while the others stay pending with their streams; 507046 when the time is over.
pub(crate) fn synchronize(device: &Device, limit: Option<Duration>) -> Outcome {
    let deadline = limit.map(|limit| Instant::now() + limit);
    streams(device).iter().try_for_each(|stream| {
        stream.synchronize(
            deadline.map(|deadline| deadline.saturating_duration_since(Instant::now())),
        )
    })
}
