//! Groups of captured tasks that are replaced later.
//!
//! A captured task of a group is a place that holds the work; an update queues, in stream order, putting other works
//! of the same kinds into the places. A replay asks the place when it gets there.

use std::ffi::c_void;
use std::sync::{Arc, Mutex};

use crate::code;
use crate::error::{Failure, Outcome, refuse};
use crate::handle::{self, Table};
use crate::memory::lock;
use crate::stream::{Stream, Work};

/// A captured task whose work can be replaced.
pub(crate) struct Place {
    name: String,
    work: Mutex<Arc<dyn Work>>,
}

impl Place {
    /// A place that holds `work`.
    pub(crate) fn new(work: Arc<dyn Work>) -> Arc<Self> {
        Arc::new(Self {
            name: work.name().to_owned(),
            work: Mutex::new(work),
        })
    }

    fn now(&self) -> Arc<dyn Work> {
        lock(&self.work).clone()
    }
}

impl Work for Place {
    fn name(&self) -> &str {
        &self.name
    }
    fn admit(&self) -> u64 {
        self.now().admit()
    }
    fn run(&self, admission: u64, stream: &Stream) -> Outcome {
        self.now().run(admission, stream)
    }
    fn skip(&self, admission: u64, cause: &Failure) {
        self.now().skip(admission, cause);
    }
    fn interrupt(&self) {
        self.now().interrupt();
    }
}

/// The tasks of a group in their order.
pub(crate) struct Group(Vec<Arc<Place>>);

static GROUPS: Table<Group> = Table::new();

/// Keeps a group; its handle.
pub(crate) fn keep(tasks: Vec<Arc<Place>>) -> usize {
    let handle = handle::fresh();
    GROUPS.insert(handle, Arc::new(Group(tasks)));
    handle
}

/// An update that goes on: what was queued since it began.
pub(crate) struct Update {
    group: Arc<Group>,
    works: Mutex<Vec<Arc<dyn Work>>>,
}

impl Update {
    /// Takes the next work.
    pub(crate) fn take(&self, work: Arc<dyn Work>) {
        lock(&self.works).push(work);
    }
}

/// Begins an update of the group on `stream`.
///
/// # Errors
/// 107027 on a captured stream, 107017 for an unknown group, 107033 when an update goes on there.
pub(crate) fn begin_update(stream: &Stream, group: *const c_void) -> Outcome {
    if stream.capture().is_some() {
        return refuse(
            code::STREAM_CAPTURED,
            format!("stream {} is being captured", stream.id),
        );
    }
    let Some(group) = GROUPS.get(group) else {
        return refuse(
            code::HANDLE,
            format!("{:#x} names no group of tasks", group.addr()),
        );
    };
    let update = Update {
        group,
        works: Mutex::default(),
    };
    match stream.set_update(Some(Arc::new(update))) {
        None => Ok(()),
        before => {
            stream.set_update(before);
            refuse(code::TASK_GROUP, "an update goes on on this stream")
        }
    }
}

/// Ends the update of `stream`: queues the replacement.
///
/// # Errors
/// 107033 without an update; 107040 when the works differ in number or kind from those they replace.
pub(crate) fn end_update(stream: &Arc<Stream>) -> Outcome {
    let Some(update) = stream.set_update(None) else {
        return refuse(code::TASK_GROUP, "no update goes on on this stream");
    };
    let works = std::mem::take(&mut *lock(&update.works));
    let names = |names: Vec<&str>| names.join(", ");
    let expected = update.group.0.iter().map(|place| &*place.name);
    if !expected.clone().eq(works.iter().map(|work| work.name())) {
        return refuse(
            code::UPDATE_FAILED,
            format!(
                "the group has [{}], the update [{}]",
                names(expected.collect()),
                names(works.iter().map(|work| work.name()).collect())
            ),
        );
    }
    let group = update.group.clone();
    let replace = move || {
        for (place, work) in group.0.iter().zip(&works) {
            *lock(&place.work) = work.clone();
        }
        Ok(())
    };
    stream
        .enqueue_function("an update of captured tasks", replace)
        .map(|_| ())
}
