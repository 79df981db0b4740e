//! The ways to make a communicator: from a root info, from a rank table, or as a part of another one.

use std::sync::Arc;
use std::thread;
use std::time::Duration;

use hcom_sys::bindings::{self as sys, HcclRootInfo};

use super::options::Options;
use super::pending;
use super::rank_table::RankTable;
use super::rendezvous::{self, Member};
use super::ticket::Ticket;
use super::{COMMUNICATORS, Communicator, named};
use crate::config::{self, Config};
use crate::device::{self, Device};
use crate::error::{Failure, Outcome, refuse};
use crate::handle;
use crate::memory::lock;

/// Opens a rendezvous for one communicator.
///
/// # Errors
/// `HCCL_E_RUNTIME` without a current device; `HCCL_E_SYSCALL` when the system has no socket or thread.
pub(crate) fn root_info() -> Outcome<HcclRootInfo> {
    current_device()?;
    let ticket = Ticket::random()?;
    rendezvous::open(&ticket)?;
    Ok(ticket.to_root_info())
}

fn current_device() -> Outcome<Arc<Device>> {
    let context = device::current().map_err(runtime)?;
    Ok(context.device.clone())
}

/// A failure of the runtime as a call of the collective library reports it.
pub(crate) fn runtime(failure: Failure) -> Failure {
    Failure::new(sys::HCCL_E_RUNTIME.0 as i32, failure.text)
}

/// Runs `body` on a device. The program's own use of the device keeps its count.
///
/// # Errors
/// `HCCL_E_RUNTIME` when the device cannot be used; those of `body`.
pub(crate) fn on_device<T>(device: i32, body: impl FnOnce() -> Outcome<T>) -> Outcome<T> {
    device::set(device).map_err(runtime)?;
    let outcome = body();
    device::release(device);
    outcome
}

/// Runs all at once, each in a thread of its own: each waits for its peers, which may be others of these.
pub(crate) fn at_once<T: Send>(
    setups: impl Iterator<Item = impl FnOnce() -> Outcome<T> + Send>,
) -> Vec<Outcome<T>> {
    let panicked = || refuse(sys::HCCL_E_INTERNAL.0 as i32, "a creation panicked");
    thread::scope(|scope| {
        let threads: Vec<_> = setups.map(|setup| scope.spawn(setup)).collect();
        threads
            .into_iter()
            .map(|thread| thread.join().unwrap_or_else(|_| panicked()))
            .collect()
    })
}

/// A communicator that is about to be joined.
pub(super) struct Plan {
    pub(super) handle: usize,
    pub(super) ticket: Ticket,
    pub(super) ranks: u32,
    pub(super) rank: u32,
    /// Of the rank table; ranks of different servers may have a device number in common.
    pub(super) server: u32,
    pub(super) name: String,
    exec_timeout: Option<Option<Duration>>,
    settings: String,
    /// Whether all ranks made the ticket themselves, so that rank 0 opens the rendezvous.
    derived: bool,
    pub(super) is_part: bool,
}

fn para<T>(text: impl Into<String>) -> Outcome<T> {
    refuse(sys::HCCL_E_PARA.0 as i32, text)
}

/// Joins the communicator of a root info and waits for its other ranks.
///
/// # Errors
/// `HCCL_E_PARA` for a bad size, rank, setting or ticket; those of [`rendezvous::join`].
pub(crate) fn init(
    ranks: u32,
    info: &HcclRootInfo,
    rank: u32,
    options: Options,
) -> Outcome<Arc<Communicator>> {
    let ticket = Ticket::from_root_info(info)?;
    let name = options.name.unwrap_or_else(|| ticket.communicator());
    join(Plan {
        handle: handle::fresh(),
        ticket,
        ranks,
        rank,
        server: 0,
        name,
        exec_timeout: options.exec_timeout,
        settings: options.shared,
        derived: false,
        is_part: false,
    })
}

/// Joins the communicator that a rank table describes and waits for its other ranks.
///
/// # Errors
/// Those of [`RankTable::parse`]; `HCCL_E_PARA` when the table has no such rank or another device for it, or this
/// process has the communicator already; those of [`rendezvous::join`].
pub(crate) fn init_from_table(
    text: &str,
    rank: u32,
    options: Options,
) -> Outcome<Arc<Communicator>> {
    let table = RankTable::parse(text, config::or_default().soc.family)?;
    let ranks = table.devices.len() as u32;
    let Some(&(server, device)) = table.devices.get(rank as usize) else {
        return para(format!(
            "rank {rank} is not in the rank table, which has ranks 0 to {}",
            ranks - 1
        ));
    };
    let current = current_device()?.id;
    if device != current {
        return para(format!(
            "the rank table has device_id \"{device}\" for rank {rank}, but this thread works on device {current}"
        ));
    }
    let ticket = Ticket::derived(&[b"rank table", text.as_bytes()]);
    let living = COMMUNICATORS.all();
    if living
        .iter()
        .any(|other| other.secret == ticket.token && other.rank == rank)
    {
        return para("this rank has a communicator of this rank table already");
    }
    let name = options.name.unwrap_or_else(|| ticket.communicator());
    join(Plan {
        handle: handle::fresh(),
        ticket,
        ranks,
        rank,
        server,
        name,
        exec_timeout: options.exec_timeout,
        settings: options.shared,
        derived: true,
        is_part: false,
    })
}

/// Makes a communicator of some ranks of `parent`, in the order of `members`; its handle. A thread waits for the members.
///
/// # Errors
/// `HCCL_E_PARA` for members that are no ranks of `parent`, or a name that is taken; `HCCL_E_NOT_SUPPORT` when the parent
/// is a part itself; `HCCL_E_SYSCALL` without a thread.
pub(crate) fn split(
    parent: &Communicator,
    members: &[u32],
    id: u64,
    rank: u32,
    options: Options,
) -> Outcome<usize> {
    if parent.is_part {
        return refuse(
            sys::HCCL_E_NOT_SUPPORT.0 as i32,
            format!(
                "communicator {} is a part of another one itself",
                parent.name
            ),
        );
    }
    for (index, member) in members.iter().enumerate() {
        if *member >= parent.size {
            return para(format!("rank {member} of {} ranks", parent.size));
        }
        if members[..index].contains(member) {
            return para(format!("rank {member} appears twice"));
        }
    }
    if members.get(rank as usize) != Some(&parent.rank) {
        return para(format!(
            "rank {rank} of the part {members:?} is not this rank, which is {} of {}",
            parent.rank, parent.name
        ));
    }
    if current_device()?.id != parent.device.id {
        return para(format!("communicator {} is on another device", parent.name));
    }
    let name = options
        .name
        .unwrap_or_else(|| format!("{}_sub_{id}", parent.name));
    check_name(&name)?;
    let list: Vec<u8> = members.iter().flat_map(|rank| rank.to_le_bytes()).collect();
    let round = {
        let mut parts = lock(&parent.parts);
        let rounds = parts.entry((id, members.to_vec())).or_default();
        *rounds += 1;
        rounds.to_le_bytes()
    };
    let words = [
        b"part".as_slice(),
        &parent.secret,
        &id.to_le_bytes(),
        &list,
        &round,
    ];
    let plan = Plan {
        handle: handle::fresh(),
        ticket: Ticket::derived(&words),
        ranks: members.len() as u32,
        rank,
        server: parent.server,
        name,
        exec_timeout: options.exec_timeout,
        settings: options.shared,
        derived: true,
        is_part: true,
    };
    let config = config::get().or_else(para)?;
    let device = parent.device.clone();
    pending::start(plan, device.id, move |plan| join_on(device, plan, config))
}

/// Refuses a name that a communicator of the current device has already.
///
/// # Errors
/// `HCCL_E_PARA`.
pub(crate) fn check_name(name: &str) -> Outcome {
    let device = current_device()?.id;
    if named(name).is_some_and(|known| known.device == device) {
        return para(format!("a communicator called {name} exists already"));
    }
    Ok(())
}

fn join(plan: Plan) -> Outcome<Arc<Communicator>> {
    let config = config::get().or_else(para)?;
    join_on(current_device()?, plan, config)
}

fn join_on(device: Arc<Device>, plan: Plan, config: &Config) -> Outcome<Arc<Communicator>> {
    if plan.derived && plan.rank == 0 {
        rendezvous::open(&plan.ticket)?;
    }
    let member = Member {
        ranks: plan.ranks,
        rank: plan.rank,
        server: plan.server,
        device: device.id,
        version: rendezvous::VERSION.to_owned(),
        settings: plan.settings.clone(),
    };
    let joined = rendezvous::join(
        &plan.ticket,
        &member,
        &device.arena,
        config.connect_timeout,
        plan.derived,
    )?;
    let exec_timeout = plan.exec_timeout.unwrap_or(config.exec_timeout);
    Communicator::new(plan, device, joined, exec_timeout)
}
