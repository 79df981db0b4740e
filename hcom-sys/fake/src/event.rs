//! Events: points of a stream that others wait for.
//!
//! Two families. One is recorded again and again: every record is a fresh point, a wait means the latest record at the
//! time of the call, and an event that was never recorded counts as complete. The other (`aclrtCreateEventWithFlag`)
//! is one resettable flag: waits hold until it is raised, and it stays raised until a reset runs on a stream.
//!
//! A record that is skipped because earlier work failed completes with that failure, so that it reaches whoever waits.

#[cfg(test)]
mod models;
mod record;
mod shared;

/// What a record waits with; the models of [`record`] put their own in its place.
mod primitives {
    pub(super) use std::sync::{Condvar, Mutex};
}

use std::ffi::c_void;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use crate::capture::Capture;
use crate::code;
use crate::config;
use crate::error::{Failure, Outcome, refuse};
use crate::handle::{self, Table};
use crate::memory::lock;
use crate::share::{self, Export};
use crate::stream::{Stream, Work};
use record::Reached;
pub(crate) use record::Record;
use shared::{SharedRecording, SharedWaiting, wait_shared};

/// `ACL_EVENT_SYNC`: other streams may wait for it.
const SYNC: u32 = 1;
/// `ACL_EVENT_TIME_LINE`: it keeps the time.
const TIME_LINE: u32 = 8;
/// `ACL_EVENT_EXTERNAL`: records and waits in a capture mean the event outside.
const EXTERNAL: u32 = 0x20;
/// `ACL_EVENT_IPC`: other processes may open it.
const IPC: u32 = 0x40;
/// The flag bits there are.
const KNOWN: u32 = 0x7b;

/// Seconds a stream waits for an event (`aclrtSetOpWaitTimeout`), 0 for ever.
pub(crate) static WAIT_TIMEOUT: AtomicU64 = AtomicU64::new(0);

/// Which family an event belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Recorded again and again.
    Fresh,
    /// One flag with a reset.
    Flag,
}

/// An event.
pub(crate) struct Event {
    device: u32,
    kind: Kind,
    flags: u32,
    /// `aclrtCreateEventExWithFlag` refuses some queries.
    ex: bool,
    latest: Mutex<Latest>,
    /// Whether it was ever recorded.
    recorded: AtomicBool,
    /// The event as several processes see it.
    shared: Option<Export>,
}

/// Living events by device.
static IN_USE: [AtomicUsize; 64] = [const { AtomicUsize::new(0) }; 64];

impl Drop for Event {
    fn drop(&mut self) {
        IN_USE[self.device as usize].fetch_sub(1, Ordering::SeqCst);
    }
}

/// What an event means now.
#[derive(Clone)]
enum Latest {
    /// Never recorded.
    Never,
    /// A point of a stream.
    Real(Arc<Record>),
    /// A record inside a capture, by its number there.
    Captured(Weak<Capture>, usize),
}

/// All living events.
pub(crate) static EVENTS: Table<Event> = Table::new();

/// Reaches a point.
pub(crate) struct Recording(pub Arc<Record>);

impl Work for Recording {
    fn name(&self) -> &str {
        "an event record"
    }
    fn run(&self, _: u64, _: &Stream) -> Outcome {
        self.0.set(Reached::now(None));
        Ok(())
    }
    fn skip(&self, _: u64, cause: &Failure) {
        self.0.set(Reached::now(Some(cause.clone())));
    }
}

struct Resetting(Arc<Record>);

impl Work for Resetting {
    fn name(&self) -> &str {
        "an event reset"
    }
    fn run(&self, _: u64, _: &Stream) -> Outcome {
        self.0.set(Reached::default());
        Ok(())
    }
}

/// Waits for a point.
pub(crate) struct Waiting {
    record: Arc<Record>,
    limit: Option<Duration>,
}

impl Waiting {
    /// Waits for `record`, at most `limit`.
    pub(crate) fn new(record: Arc<Record>, limit: Option<Duration>) -> Self {
        Self { record, limit }
    }
}

impl Work for Waiting {
    fn name(&self) -> &str {
        "a wait for an event"
    }
    fn run(&self, _: u64, stream: &Stream) -> Outcome {
        self.record.wait(self.limit, code::EVENT_SYNC_TIMEOUT, || {
            stream.aborted().then(|| stream.abort_failure())
        })
    }
    fn interrupt(&self) {
        self.record.poke();
    }
}

/// Creates an event on `device`; `ex` means `aclrtCreateEventExWithFlag`.
///
/// # Errors
/// 107000 for flag bits that mean nothing, or none.
pub(crate) fn create(device: u32, kind: Kind, flags: u32, ex: bool) -> Outcome<usize> {
    if flags == 0 || flags & !KNOWN != 0 {
        return refuse(
            code::RT_PARAM,
            format!("event flag {flags:#x} is no combination of known bits"),
        );
    }
    if flags & EXTERNAL != 0 && flags != EXTERNAL || flags & IPC != 0 && ex {
        return refuse(
            code::RT_PARAM,
            format!("event flag {flags:#x} combines what excludes each other"),
        );
    }
    let shared = (flags & IPC != 0)
        .then(|| Export::create(share::Kind::Event))
        .transpose()?;
    insert(device, kind, flags, ex, shared)
}

fn insert(device: u32, kind: Kind, flags: u32, ex: bool, shared: Option<Export>) -> Outcome<usize> {
    let most = config::or_default().events;
    let used = IN_USE[device as usize].fetch_add(1, Ordering::SeqCst);
    let latest = if kind == Kind::Flag {
        Latest::Real(Arc::default())
    } else {
        Latest::Never
    };
    // From here on the event's end gives its place back.
    let event = Event {
        device,
        kind,
        flags,
        ex,
        latest: Mutex::new(latest),
        recorded: AtomicBool::new(false),
        shared,
    };
    if used >= most {
        return refuse(
            code::NO_EVENT,
            format!(
                "device {device} has no event left: 1 needed, {used} of {most} in use; HCOM_FAKE_EVENTS sets their \
                 number"
            ),
        );
    }
    let handle = handle::fresh();
    EVENTS.insert(handle, Arc::new(event));
    Ok(handle)
}

/// Opens an event of another process by its key.
///
/// # Errors
/// 107017 when there is no such event.
pub(crate) fn open(device: u32, key: &str) -> Outcome<usize> {
    let export = Export::open_key(key, share::Kind::Event)?;
    insert(device, Kind::Fresh, SYNC | IPC, false, Some(export))
}

/// The event that `event` names.
///
/// # Errors
/// 100000 for null, 107017 for an unknown handle.
pub(crate) fn find(event: *const c_void) -> Outcome<Arc<Event>> {
    if event.is_null() {
        return refuse(code::INVALID_PARAM, "the event is null");
    }
    match EVENTS.get(event) {
        Some(event) => Ok(event),
        None => refuse(
            code::HANDLE,
            format!("{:#x} names no living event", event.addr()),
        ),
    }
}

impl Event {
    fn same_device(&self, stream: &Stream) -> Outcome {
        if self.device == stream.device.id {
            return Ok(());
        }
        refuse(
            code::STREAM_CONTEXT,
            format!(
                "the event belongs to device {}, the stream to device {}",
                self.device, stream.device.id
            ),
        )
    }

    /// The latest record, for callers that look at it from outside a capture.
    fn latest(&self) -> Outcome<Option<Arc<Record>>> {
        match lock(&self.latest).clone() {
            Latest::Never => Ok(None),
            Latest::Real(record) => Ok(Some(record)),
            Latest::Captured(capture, _) => {
                if let Some(capture) = capture.upgrade() {
                    capture.break_off();
                }
                refuse(
                    code::EVENT_CAPTURED,
                    "the event was recorded inside a capture",
                )
            }
        }
    }

    /// The key by which other processes open it.
    ///
    /// # Errors
    /// 107000 for an event without `ACL_EVENT_IPC`.
    pub(crate) fn key(&self) -> Outcome<String> {
        match &self.shared {
            Some(export) => Ok(export.key()),
            None => refuse(
                code::RT_PARAM,
                "the event was created without ACL_EVENT_IPC",
            ),
        }
    }

    /// Queues a record on `stream`. With `external`, or for an event with `ACL_EVENT_EXTERNAL`, a capture keeps it as a
    /// record of the event outside.
    ///
    /// # Errors
    /// 107029 for `external` on a stream that is not captured; 107000 for `external` with another kind of event.
    pub(crate) fn record_with(self: &Arc<Self>, stream: &Arc<Stream>, external: bool) -> Outcome {
        match self.outside(stream, external)? {
            Some(capture) => {
                self.same_device(stream)?;
                capture.outside(stream, self.clone(), true);
                Ok(())
            }
            None => self.record(stream),
        }
    }

    /// Queues a wait on `stream`; `external` as in [`Event::record_with`].
    ///
    /// # Errors
    /// As there, and those of [`Event::wait_on`].
    pub(crate) fn wait_with(self: &Arc<Self>, stream: &Arc<Stream>, external: bool) -> Outcome {
        match self.outside(stream, external)? {
            Some(capture) => {
                self.same_device(stream)?;
                capture.outside(stream, self.clone(), false);
                Ok(())
            }
            None => self.wait_on(stream, None),
        }
    }

    /// The capture that keeps a record or wait of the event outside, if that is what is meant.
    fn outside(&self, stream: &Stream, external: bool) -> Outcome<Option<Arc<Capture>>> {
        let capture = stream.capture();
        if external && (self.flags & SYNC == 0 || !self.ex) && self.flags != EXTERNAL {
            return refuse(
                code::RT_PARAM,
                "an external record or wait needs an event of aclrtCreateEventExWithFlag with ACL_EVENT_SYNC",
            );
        }
        if external && capture.is_none() {
            return refuse(
                code::NOT_CAPTURED,
                "only a captured stream knows external records and waits",
            );
        }
        Ok(capture.filter(|_| external || self.flags == EXTERNAL))
    }

    /// Queues a record on `stream`.
    pub(crate) fn record(&self, stream: &Arc<Stream>) -> Outcome {
        self.same_device(stream)?;
        self.recorded.store(true, Ordering::SeqCst);
        if let Some(export) = &self.shared {
            if let Some(capture) = stream.capture() {
                capture.break_off();
                return refuse(
                    code::NOT_SUPPORTED,
                    "a record for other processes in a capture",
                );
            }
            let target = export.records()[0].fetch_add(1, Ordering::SeqCst) + 1;
            let recording = SharedRecording(export.clone(), target);
            return stream.enqueue(Arc::new(recording)).map(|_| ());
        }
        let mut latest = lock(&self.latest);
        if let Some(capture) = stream.capture() {
            *latest = Latest::Captured(Arc::downgrade(&capture), capture.record(stream));
            return Ok(());
        }
        let record = match (&*latest, self.kind) {
            (Latest::Real(flag), Kind::Flag) => flag.clone(),
            _ => Arc::default(),
        };
        stream.enqueue(Arc::new(Recording(record.clone())))?;
        *latest = Latest::Real(record);
        Ok(())
    }

    /// Queues a wait on `stream`, at most `limit` (else the process-wide setting).
    pub(crate) fn wait_on(&self, stream: &Arc<Stream>, limit: Option<Duration>) -> Outcome {
        self.same_device(stream)?;
        if self.flags & (SYNC | EXTERNAL | IPC) == 0 {
            return refuse(
                code::RT_PARAM,
                "streams can only wait for an event with ACL_EVENT_SYNC",
            );
        }
        let seconds = WAIT_TIMEOUT.load(Ordering::Relaxed);
        let limit = limit.or((seconds > 0).then(|| Duration::from_secs(seconds)));
        if let Some(export) = &self.shared {
            let target = export.records()[0].load(Ordering::SeqCst);
            let waiting = SharedWaiting(export.clone(), target, limit);
            return stream.enqueue(Arc::new(waiting)).map(|_| ());
        }
        let latest = lock(&self.latest).clone();
        match (latest, stream.capture()) {
            (Latest::Never, _) => Ok(()),
            (Latest::Real(_), Some(capture)) if !self.recorded.load(Ordering::SeqCst) => {
                capture.miss_record();
                Ok(())
            }
            (Latest::Real(_), Some(capture)) => {
                capture.break_off();
                refuse(
                    code::CAPTURE_CONFLICT,
                    "a captured stream waits for an event from outside its capture",
                )
            }
            (Latest::Real(record), None) => stream
                .enqueue(Arc::new(Waiting { record, limit }))
                .map(|_| ()),
            (Latest::Captured(capture, record), _) => match capture.upgrade() {
                Some(capture) => capture.wait(stream, record),
                None => refuse(
                    code::EVENT_CAPTURED,
                    "the event was recorded inside a capture that is over",
                ),
            },
        }
    }

    /// Queues a reset on `stream`.
    pub(crate) fn reset(&self, stream: &Arc<Stream>) -> Outcome {
        self.same_device(stream)?;
        if let Some(capture) = stream.capture() {
            if !self.recorded.load(Ordering::SeqCst) {
                capture.break_off();
                return refuse(code::CAPTURE_DEPENDENCY, "the event was never recorded");
            }
            // Every replay has records of its own, which start unreached.
            return Ok(());
        }
        match (self.kind, self.latest()?) {
            (Kind::Flag, Some(record)) => stream.enqueue(Arc::new(Resetting(record))).map(|_| ()),
            _ => refuse(
                code::RT_PARAM,
                "only an event of aclrtCreateEventWithFlag can be reset; others are recorded again",
            ),
        }
    }

    /// Whether the latest record is reached. `waits` asks on behalf of calls that `aclrtCreateEventExWithFlag`
    /// excludes.
    pub(crate) fn is_complete(&self, waits: bool) -> Outcome<bool> {
        if waits && self.ex {
            return refuse(
                code::RT_PARAM,
                "this query is not for events of aclrtCreateEventExWithFlag",
            );
        }
        if let Some(export) = &self.shared {
            let [queued, reached] = export.records().map(|word| word.load(Ordering::SeqCst));
            return Ok(reached >= queued);
        }
        match self.latest()? {
            None => Ok(true),
            Some(record) => {
                let reached = record.get();
                reached.failure.map_or(Ok(reached.at.is_some()), Err)
            }
        }
    }

    /// Waits on the host for the latest record.
    pub(crate) fn synchronize(&self, limit: Option<Duration>) -> Outcome {
        if let Some(export) = &self.shared {
            let target = export.records()[0].load(Ordering::SeqCst);
            return wait_shared(export, target, limit, || None);
        }
        match self.latest()? {
            None => Ok(()),
            Some(record) => record.wait(limit, code::EVENT_SYNC_TIMEOUT, || None),
        }
    }

    /// When the latest record was reached, in nanoseconds of the monotonic clock.
    ///
    /// # Errors
    /// 107006 without a time line or a record; 507006 when it is not reached yet.
    pub(crate) fn time(&self) -> Outcome<u64> {
        if self.flags & TIME_LINE == 0 {
            return refuse(
                code::EVENT_TIMESTAMP,
                "the event was created without ACL_EVENT_TIME_LINE",
            );
        }
        let Some(record) = self.latest()? else {
            return refuse(code::EVENT_TIMESTAMP, "the event was never recorded");
        };
        match record.get().at {
            Some(at) => Ok(at),
            None => refuse(code::EVENT_NOT_COMPLETE, "the event is not reached yet"),
        }
    }
}

/// Milliseconds from `start` to `end`.
///
/// # Errors
/// Those of [`Event::time`]; 107007 when `end` was reached first.
pub(crate) fn elapsed(start: &Event, end: &Event) -> Outcome<f32> {
    let (start, end) = (start.time()?, end.time()?);
    if end < start {
        return refuse(
            code::EVENT_REVERSED,
            "the end event was reached before the start event",
        );
    }
    Ok((end - start) as f32 / 1e6)
}
