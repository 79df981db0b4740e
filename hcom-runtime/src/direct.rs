//! Collectives straight on the device library, for measuring it.
//!
//! A [`Direct`] is a communicator with a stream of its own and nothing above it: no plan, no watchdog, no flight
//! record. One call here is one call of the library, on arrays that the caller chooses. What goes wrong is what the
//! library reports.

use std::sync::Arc;

use hcom_ir::{DType, Group, ReduceOp};

use crate::{
    Array, Runtime,
    aclnn::{Collective, CollectiveKind, Combine, Place},
    comm,
    error::Error,
    failure::{Failure, FailureKind},
    raw::{Communicator, Stream},
    runtime::Inner,
};

/// Which collective, and with what.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DirectOp {
    /// Everybody gets the combination of all buffers.
    AllReduce(ReduceOp),
    /// Everybody gets all buffers, in rank order.
    AllGather,
    /// Rank r gets block r of the combination of all buffers.
    ReduceScatter(ReduceOp),
    /// Rank r gets block r of every buffer, in rank order.
    AllToAll,
    /// Everybody gets the buffer of the rank with this number in the group; there is one buffer, the receiving one.
    Broadcast {
        /// The rank.
        root: u32,
    },
    /// Nobody goes on before all have come; there are no buffers.
    Barrier,
}

/// A collective of a group on fixed arrays.
#[derive(Clone, Debug)]
pub struct DirectCall {
    collective: Collective,
}

impl DirectCall {
    /// `op` on elements of `dtype`. `count` is the library's: elements of a whole buffer for all_reduce and broadcast,
    /// of one rank's block for the others.
    ///
    /// # Errors
    /// [`Error::Unsupported`] for a reduction that the library does not have.
    pub fn new(op: DirectOp, dtype: DType, count: u64) -> Result<DirectCall, Error> {
        let kind = match op {
            DirectOp::AllReduce(op) => CollectiveKind::AllReduce(combine(op, dtype)?),
            DirectOp::AllGather => CollectiveKind::AllGather,
            DirectOp::ReduceScatter(op) => CollectiveKind::ReduceScatter(combine(op, dtype)?),
            DirectOp::AllToAll => CollectiveKind::AllToAll,
            DirectOp::Broadcast { root } => CollectiveKind::Broadcast { root },
            DirectOp::Barrier => CollectiveKind::Barrier,
        };
        Ok(DirectCall {
            collective: Collective {
                kind,
                from: Place::Operand(0),
                to: Place::Result(0),
                count,
                dtype,
            },
        })
    }
}

fn combine(op: ReduceOp, dtype: DType) -> Result<Combine, Error> {
    match op {
        ReduceOp::Sum => Ok(Combine::Sum),
        ReduceOp::Prod => Ok(Combine::Prod),
        ReduceOp::Max => Ok(Combine::Max),
        ReduceOp::Min => Ok(Combine::Min),
        other => Err(Error::Unsupported {
            op: "a reduction",
            types: dtype.to_string(),
            reason: format!("the library has no {other} in one call"),
        }),
    }
}

/// A communicator and its stream. Dropped, both end, and so do they on the other ranks.
pub struct Direct {
    communicator: Communicator,
    stream: Stream,
    group: Group,
    runtime: Arc<Inner>,
}

impl Direct {
    /// Connects the members of `group`, who all call this at the same time.
    ///
    /// # Errors
    /// [`Error::Control`] when a member does not come, and what the library reports.
    pub fn connect(runtime: &Runtime, group: &Group) -> Result<Direct, Error> {
        let inner = runtime.inner();
        drop(inner.begin()?);
        let name = format!("direct communicator of ranks {:?}", group.ranks);
        let communicator = comm::join(
            &name,
            group,
            &*inner.control,
            &inner.driver,
            inner.settings(),
        )?;
        Ok(Direct {
            communicator,
            stream: Stream::new(&inner.driver)?,
            group: group.clone(),
            runtime: inner.clone(),
        })
    }

    /// Queues `call` between two arrays, each from a byte on. They may overlap where the library allows that.
    ///
    /// # Panics
    /// When an array ends before the call does.
    ///
    /// # Errors
    /// What the library reports.
    pub fn queue(
        &self,
        call: &DirectCall,
        from: (&Array, u64),
        to: (&Array, u64),
    ) -> Result<(), Error> {
        let place = |(array, offset): (&Array, u64)| {
            let bytes = array.byte_len().saturating_sub(offset);
            array.place().part(offset, bytes)
        };
        let (from, to) = (place(from), place(to));
        self.communicator.launch(
            &call.collective,
            Some(&from),
            Some(&to),
            self.group.group_size(),
            &self.stream,
        )
    }

    /// Waits until everything that was queued has been executed.
    ///
    /// # Errors
    /// The first failure of what was queued; [`Error::Failure`] when it takes longer than
    /// [`Settings::timeout`](crate::Settings::timeout).
    pub fn synchronize(&self) -> Result<(), Error> {
        if self.stream.wait(self.runtime.settings().timeout)? {
            return Ok(());
        }
        Err(Failure {
            group: Some(self.group.name.clone()),
            ..Failure::new(FailureKind::Timeout, self.runtime.control.rank())
        }
        .into())
    }

    /// Writes `data` at byte `offset` of an array at once, whatever is queued.
    ///
    /// # Panics
    /// When it does not fit.
    ///
    /// # Errors
    /// What the library reports.
    pub fn write(&self, array: &Array, offset: u64, data: &[u8]) -> Result<(), Error> {
        array.place().part(offset, data.len() as u64).write(data)
    }

    /// Reads `data` from byte `offset` of an array at once, whatever is queued.
    ///
    /// # Panics
    /// When the array is shorter.
    ///
    /// # Errors
    /// What the library reports.
    pub fn read(&self, array: &Array, offset: u64, data: &mut [u8]) -> Result<(), Error> {
        array.place().part(offset, data.len() as u64).read(data)
    }
}
