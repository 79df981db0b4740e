//! Communicators: one per list of ranks and stream, made when first needed and kept.
//!
//! A communicator is used by one stream only. A group therefore has up to two of them: one on the
//! compute stream, for single operations and plans without overlap, and one with a stream of its
//! own; point-to-point traffic has its own again.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Instant,
};

use hcom_ir::Group;

use crate::{
    aclnn::Collective,
    control::Control,
    error::Error,
    failure::{Failure, FailureKind},
    raw::{Communicator, Driver, Place, ROOT_INFO_BYTES, Stream, Workspace},
    settings::Settings,
    watchdog::{LineId, Mark, Watchdog},
};

/// Tells the communicators of a rank apart.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Key {
    /// Global ranks in group order.
    pub(crate) ranks: Vec<u32>,
    /// On a stream of its own rather than on the compute stream.
    pub(crate) own_stream: bool,
    pub(crate) point_to_point: bool,
}

/// A communicator with the stream that uses it.
pub(crate) struct Comm {
    communicator: Communicator,
    group: Group,
    stream: Arc<Stream>,
    /// For the operators that belong to a collective, on a stream of its own.
    workspace: Mutex<Workspace>,
    line: LineId,
    watchdog: Arc<Watchdog>,
}

impl Comm {
    /// Makes the communicator together with the other members, who call this at the same time.
    pub(crate) fn connect(
        key: &Key,
        group: &Group,
        control: &dyn Control,
        driver: &Arc<Driver>,
        compute: &Arc<Stream>,
        watchdog: &Arc<Watchdog>,
        settings: &Settings,
    ) -> Result<Comm, Error> {
        // Ranks may call the same group by different names.
        let name = format!(
            "communicator of ranks {:?}{}{}",
            group.ranks,
            if key.own_stream { " (overlapped)" } else { "" },
            if key.point_to_point {
                " (point to point)"
            } else {
                ""
            }
        );
        let communicator = join(&name, group, control, driver, settings)?;
        let stream = if key.own_stream {
            let stream = Arc::new(Stream::new(driver)?);
            watchdog.guard(&stream);
            stream
        } else {
            compute.clone()
        };
        Ok(Comm {
            communicator,
            group: group.clone(),
            stream,
            workspace: Mutex::new(Workspace::new(driver)),
            line: watchdog.line(group)?,
            watchdog: watchdog.clone(),
        })
    }

    pub(crate) fn stream(&self) -> &Arc<Stream> {
        &self.stream
    }

    pub(crate) fn group(&self) -> &Group {
        &self.group
    }

    pub(crate) fn workspace(&self) -> std::sync::MutexGuard<'_, Workspace> {
        self.workspace
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Names the communicator to the watchdog.
    pub(crate) fn line(&self) -> LineId {
        self.line
    }

    /// Queues a collective between its marks.
    pub(crate) fn launch(
        &self,
        collective: &Collective,
        from: Option<&Place>,
        to: Option<&Place>,
        mark: &Mark<'_>,
    ) -> Result<(), Error> {
        self.watchdog.enter(mark, &self.stream)?;
        let size = self.group.group_size();
        self.communicator
            .launch(collective, from, to, size, &self.stream)?;
        self.watchdog.leave(mark, &self.stream)
    }

    /// Ends the communicator after a failure.
    pub(crate) fn destroy(&self) -> Result<(), Error> {
        self.communicator.destroy()
    }
}

/// Makes the library's communicator of a group together with the other members, who call this at the same time with the
/// same `name`.
pub(crate) fn join(
    name: &str,
    group: &Group,
    control: &dyn Control,
    driver: &Arc<Driver>,
    settings: &Settings,
) -> Result<Communicator, Error> {
    let own = control.rank();
    let rank = group.rank_of(own).unwrap_or(0);
    let ticket = if rank == 0 {
        Communicator::root_info(driver)?
    } else {
        Vec::new()
    };
    let deadline = Instant::now() + settings.timeout;
    let tickets = control.all_gather(&group.ranks, name, &ticket, deadline)?;
    let ticket: &[u8; ROOT_INFO_BYTES] = tickets
        .first()
        .and_then(|ticket| ticket.as_slice().try_into().ok())
        .ok_or_else(|| Failure {
            op: Some(name.to_owned()),
            ranks: group.ranks.first().copied().into_iter().collect(),
            expected: Some(format!("a ticket of {ROOT_INFO_BYTES} bytes")),
            got: Some(format!("{} bytes", tickets.first().map_or(0, Vec::len))),
            ..Failure::new(FailureKind::Mismatch, own)
        })?;
    Communicator::join(driver, ticket, group.group_size(), rank)
}
