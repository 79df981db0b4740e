//! `HcclGroupStart` to `HcclGroupEnd`: calls of one thread that are collected and then take effect together. Transfers on
//! the same communicator and stream become one batch, so that none waits for another; new communicators are set up at
//! the same time.

use std::cell::RefCell;
use std::sync::Arc;

use hcom_sys::bindings as sys;

use super::exchange::Exchange;
use super::operation::Kind;
use super::{at_once, on_device, runtime};
use crate::device;
use crate::error::{Outcome, refuse};
use crate::stream::{Stream, Work};

/// Creates one communicator and hands it over.
pub(crate) type Setup = Box<dyn FnOnce() -> Outcome + Send>;

/// A call that waits for the end of its group.
pub(super) enum Call {
    /// Creates a communicator for the device of the calling thread.
    Setup(Setup),
    /// A collective.
    Collective(Arc<Stream>, Arc<dyn Work>),
    /// Sends and receives.
    Transfers(Arc<Stream>, Exchange),
}

impl Call {
    fn name(&self) -> &'static str {
        match self {
            Self::Setup(_) => "the creation of communicators",
            Self::Collective(..) => "collectives",
            Self::Transfers(..) => "sends and receives",
        }
    }
}

#[derive(Default)]
struct Group {
    depth: u32,
    /// Each with the device of its thread at the call.
    calls: Vec<(Option<u32>, Call)>,
}

thread_local! {
    static GROUP: RefCell<Group> = RefCell::default();
}

/// Begins a group, or one more level of it.
pub(crate) fn start() {
    GROUP.with_borrow_mut(|group| group.depth += 1);
}

/// Whether this thread collects calls.
pub(crate) fn is_active() -> bool {
    GROUP.with_borrow(|group| group.depth > 0)
}

/// Creates a communicator: at the end of this thread's group, or now when there is none.
///
/// # Errors
/// `HCCL_E_PARA` when the group has calls of another sort; those of the creation.
pub(crate) fn create(setup: Setup) -> Outcome {
    run(Call::Setup(setup))
}

/// Takes the call into this thread's group, or runs it now when there is none.
///
/// # Errors
/// `HCCL_E_PARA` when the group has calls of another sort; those of the call itself.
pub(super) fn run(call: Call) -> Outcome {
    let alone = GROUP.with_borrow_mut(|group| {
        if group.depth == 0 {
            return Ok(Some(call));
        }
        if matches!(&call, Call::Transfers(_, exchange) if exchange.kind == Kind::Batch) {
            return refuse(
                sys::HCCL_E_PARA.0 as i32,
                "a batch of sends and receives cannot be part of a group",
            );
        }
        if let Some((_, first)) = group.calls.first()
            && first.name() != call.name()
        {
            return refuse(
                sys::HCCL_E_PARA.0 as i32,
                format!(
                    "the group has {} already; {} need a group of their own",
                    first.name(),
                    call.name()
                ),
            );
        }
        let device = device::current().ok().map(|context| context.device.id);
        group.calls.push((device, call));
        Ok(None)
    })?;
    match alone {
        None => Ok(()),
        Some(Call::Setup(setup)) => setup(),
        Some(Call::Collective(stream, work)) => enqueue(&stream, work),
        Some(Call::Transfers(stream, exchange)) => enqueue(&stream, Arc::new(exchange)),
    }
}

fn enqueue(stream: &Arc<Stream>, work: Arc<dyn Work>) -> Outcome {
    stream.enqueue(work).map(|_| ()).map_err(runtime)
}

/// Ends the group; the outermost end runs the calls.
///
/// # Errors
/// `HCCL_E_PARA` without a group; the first failure of a call.
pub(crate) fn end() -> Outcome {
    let calls = GROUP.with_borrow_mut(|group| {
        group.depth = match group.depth.checked_sub(1) {
            Some(depth) => depth,
            None => return refuse(sys::HCCL_E_PARA.0 as i32, "no group was started"),
        };
        Ok(if group.depth == 0 {
            std::mem::take(&mut group.calls)
        } else {
            Vec::new()
        })
    })?;
    let mut setups = Vec::new();
    let mut outcomes = Vec::new();
    let mut batches: Vec<(Arc<Stream>, Exchange)> = Vec::new();
    for (device, call) in calls {
        match call {
            Call::Setup(setup) => setups.push((device, setup)),
            Call::Collective(stream, work) => outcomes.push(enqueue(&stream, work)),
            Call::Transfers(stream, exchange) => merge(&mut batches, stream, exchange),
        }
    }
    for (stream, batch) in batches {
        outcomes.push(enqueue(&stream, Arc::new(batch)));
    }
    outcomes.extend(set_up(setups));
    outcomes.into_iter().collect()
}

fn merge(batches: &mut Vec<(Arc<Stream>, Exchange)>, stream: Arc<Stream>, exchange: Exchange) {
    let same = |(other, batch): &&mut (Arc<Stream>, Exchange)| {
        Arc::ptr_eq(other, &stream) && Arc::ptr_eq(&batch.comm, &exchange.comm)
    };
    match batches.iter_mut().find(same) {
        Some((_, batch)) => batch.items.extend(exchange.items),
        None => {
            let kind = Kind::Batch;
            batches.push((stream, Exchange { kind, ..exchange }));
        }
    }
}

/// Each on the device of its call.
fn set_up(setups: Vec<(Option<u32>, Setup)>) -> Vec<Outcome> {
    let one = |(device, setup): (Option<u32>, Setup)| {
        move || match device {
            Some(device) => on_device(device as i32, setup),
            None => setup(),
        }
    };
    at_once(setups.into_iter().map(one))
}
