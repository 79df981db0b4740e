//! How the ranks of a new communicator find each other.
//!
//! The root opens a socket in the abstract name space (nothing on disk) and starts a thread that serves one
//! communicator: in `HcclGetRootInfo`, or as rank 0 where all ranks know beforehand where to meet. Every rank, the root's included, connects, shows the token and hands over the memory file of its
//! device. When all are there the thread hands everyone the control block, every peer's memory file and one end of a
//! socket to every peer; then it ends, and no rank is special any more.
//!
//! A rank that dies or gives up while others wait closes its connection, and they are told at once which rank it was.
//! If the root dies, their connections end.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use hcom_sys::bindings::{self as sys, HcclResult};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::net::{SocketAddrUnix, SocketFlags, sockopt};

use super::control::Control;
use super::ticket::Ticket;
use super::wire::{self, Reader, Writer};
use crate::error::{Failure, Outcome};
use crate::memory::Arena;
use crate::shm::Region;

const HELLO: u64 = 0x6863_6f6d_0001;
const REFUSED: u64 = 1;
const WAITING: u64 = 2;
const COMPLETE: u64 = 3;
const PEER: u64 = 4;
/// Every rank needs a device of its own, and a host has at most as many.
pub(crate) const MOST_RANKS: u32 = 64;
/// How often a rank looks whether the root has come.
const ROOT_POLL: Duration = Duration::from_millis(5);

/// One rank as its peers know it.
#[derive(Debug)]
pub(crate) struct Peer {
    /// Its process.
    pub pid: u32,
    /// Its device's memory.
    pub region: Arc<Region>,
    /// Ends when the peer does.
    pub socket: OwnedFd,
}

/// What a rank gets when all have come.
#[derive(Debug)]
pub(crate) struct Joined {
    /// The shared words.
    pub control: Control,
    /// By rank; `None` at the own one.
    pub peers: Vec<Option<Peer>>,
}

fn failure(code: HcclResult, text: impl Into<String>) -> Failure {
    Failure::new(code.0 as i32, text)
}

fn system(what: &str) -> impl Fn(io::Error) -> Failure + '_ {
    move |error| failure(sys::HCCL_E_SYSCALL, format!("{what}: {error}"))
}

fn address(ticket: &Ticket) -> Outcome<SocketAddrUnix> {
    SocketAddrUnix::new_abstract_name(ticket.communicator().as_bytes()).map_err(|error| {
        failure(
            sys::HCCL_E_INTERNAL,
            format!("the rendezvous has no address: {error}"),
        )
    })
}

/// This build, as ranks compare it: the release, and a number of what ranks share.
pub(crate) const VERSION: &str =
    concat!(env!("CARGO_PKG_VERSION"), "+", env!("HCOM_FAKE_PROTOCOL"));

/// One rank as it introduces itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Member {
    /// The size of the communicator.
    pub ranks: u32,
    /// Its rank.
    pub rank: u32,
    /// The server that the device belongs to, counted from 0; all of them are this host.
    pub server: u32,
    /// The device it works on.
    pub device: u32,
    /// Its build of this library.
    pub version: String,
    /// The part of the configuration that must be equal on all ranks.
    pub settings: String,
}

/// Opens the rendezvous of `ticket` and serves it in a thread of its own.
///
/// # Errors
/// `HCCL_E_UNAVAIL` when it is open already; `HCCL_E_SYSCALL` when the system has no socket or thread.
pub(crate) fn open(ticket: &Ticket) -> Outcome {
    let listener = wire::socket().map_err(system("no socket for the rendezvous"))?;
    rustix::net::bind(&listener, &address(ticket)?)
        .and_then(|()| rustix::net::listen(&listener, 1024))
        .map_err(|error| match error {
            rustix::io::Errno::ADDRINUSE => failure(
                sys::HCCL_E_UNAVAIL,
                "another rank 0 sets up the very same communicator now",
            ),
            error => system("the rendezvous cannot listen")(error.into()),
        })?;
    let served = ticket.clone();
    thread::Builder::new()
        .name("hcom-rendezvous".to_owned())
        .spawn(move || serve(listener, &served))
        .map(|_| ())
        .map_err(system("no thread for the rendezvous"))
}

/// A connection, and the rank behind it once it has said so.
struct Guest {
    socket: OwnedFd,
    pid: u32,
    hello: Option<Hello>,
}

struct Hello {
    member: Member,
    memory: OwnedFd,
}

impl Hello {
    fn read(bytes: &[u8], mut files: Vec<OwnedFd>, ticket: &Ticket) -> Option<Self> {
        let mut reader = Reader(bytes);
        if reader.number()? != HELLO || reader.bytes()? != ticket.token {
            return None;
        }
        let text = |reader: &mut Reader<'_>| {
            let bytes = reader.bytes()?;
            Some(String::from_utf8_lossy(bytes).into_owned())
        };
        // The version comes first, so that builds that differ in the rest still tell each other.
        let version = text(&mut reader)?;
        let mut small = || {
            reader
                .number()
                .and_then(|number| u32::try_from(number).ok())
        };
        let (ranks, rank, server, device) = (small()?, small()?, small()?, small()?);
        let member = Member {
            ranks,
            rank,
            server,
            device,
            version,
            settings: text(&mut reader)?,
        };
        Some(Self {
            member,
            memory: files.pop()?,
        })
    }
}

fn serve(listener: OwnedFd, ticket: &Ticket) {
    let mut guests = Vec::new();
    let gathered = gather(&listener, ticket, &mut guests);
    // Before anybody knows: a rank may set up the very same communicator again as soon as it does.
    drop(listener);
    let outcome = gathered.and_then(|()| hand_out(&guests));
    if let Err(refusal) = outcome {
        let message = Writer::default()
            .number(REFUSED)
            .number(refusal.code as u64)
            .bytes(refusal.text.as_bytes())
            .done();
        // The ranks of this process last: it may end, and this thread with it, as soon as they know.
        let own = std::process::id();
        guests.sort_by_key(|guest| guest.pid == own);
        for guest in &guests {
            // Whoever left already does not need to know.
            let _ = wire::send(&guest.socket, &message, &[]);
        }
    }
}

/// Waits until every rank has said hello.
fn gather(listener: &OwnedFd, ticket: &Ticket, guests: &mut Vec<Guest>) -> Outcome {
    loop {
        let sockets = std::iter::once(listener).chain(guests.iter().map(|guest| &guest.socket));
        let mut waiting: Vec<_> = sockets
            .map(|socket| PollFd::new(socket, PollFlags::IN))
            .collect();
        match poll(&mut waiting, None) {
            Err(rustix::io::Errno::INTR) => continue,
            outcome => {
                outcome.map_err(|error| system("the rendezvous cannot wait")(error.into()))?
            }
        };
        let ready: Vec<bool> = waiting
            .iter()
            .map(|one| !one.revents().is_empty())
            .collect();
        drop(waiting);
        let mut news = false;
        for index in (0..guests.len()).rev().filter(|&index| ready[index + 1]) {
            match wire::receive(&guests[index].socket) {
                Ok(Some((bytes, files))) if guests[index].hello.is_none() => {
                    match Hello::read(&bytes, files, ticket) {
                        Some(hello) => {
                            guests[index].hello = Some(hello);
                            news = true;
                        }
                        // Somebody without the ticket.
                        None => drop(guests.swap_remove(index)),
                    }
                }
                _ => {
                    let guest = guests.swap_remove(index);
                    if let Some(hello) = guest.hello {
                        return Err(failure(
                            sys::HCCL_E_REMOTE,
                            format!(
                                "rank {} (process {}) left while the communicator of {} ranks was set up",
                                hello.member.rank, guest.pid, hello.member.ranks
                            ),
                        ));
                    }
                }
            }
        }
        if ready[0]
            && let Ok(socket) = rustix::net::accept_with(listener, SocketFlags::CLOEXEC)
            && let Ok(owner) = sockopt::socket_peercred(&socket)
            && owner.uid == rustix::process::geteuid()
        {
            let pid = owner.pid.as_raw_nonzero().get().unsigned_abs();
            guests.push(Guest {
                socket,
                pid,
                hello: None,
            });
        }
        if news && check(guests)? {
            return Ok(());
        }
    }
}

/// What two ranks contradict each other in, if anything.
fn contradiction((pid, one): (u32, &Member), (other_pid, other): (u32, &Member)) -> Option<String> {
    let (rank, other_rank) = (one.rank, other.rank);
    if other.version != one.version {
        return Some(format!(
            "rank {other_rank} (process {other_pid}) runs version {} of this library, rank {rank} (process {pid}) runs \
             version {}; all ranks must run the same",
            other.version, one.version
        ));
    }
    if other.ranks != one.ranks {
        return Some(format!(
            "rank {other_rank} (process {other_pid}) expects {} ranks, rank {rank} (process {pid}) expects {}",
            other.ranks, one.ranks
        ));
    }
    if other_rank == rank {
        return Some(format!(
            "processes {other_pid} and {pid} both call themselves rank {rank}"
        ));
    }
    if (other.server, other.device) == (one.server, one.device) {
        return Some(format!(
            "ranks {other_rank} (process {other_pid}) and {rank} (process {pid}) both use device {} of one server; \
             every rank needs one of its own",
            other.device
        ));
    }
    (other.settings != one.settings).then(|| {
        format!(
            "ranks are configured differently: rank {other_rank} (process {other_pid}): {}; rank {rank} (process {pid}): {}",
            other.settings, one.settings
        )
    })
}

/// Whether all ranks are there; tells everyone who is missing.
fn check(guests: &[Guest]) -> Outcome<bool> {
    let hellos: Vec<(u32, &Member)> = guests
        .iter()
        .filter_map(|guest| Some((guest.pid, &guest.hello.as_ref()?.member)))
        .collect();
    for (index, &one) in hellos.iter().enumerate() {
        if let Some(text) = hellos[..index]
            .iter()
            .find_map(|&other| contradiction(one, other))
        {
            return Err(failure(sys::HCCL_E_PARA, text));
        }
    }
    let ranks = hellos.first().map_or(0, |(_, hello)| hello.ranks);
    let missing: Vec<u32> = (0..ranks)
        .filter(|rank| hellos.iter().all(|(_, hello)| hello.rank != *rank))
        .collect();
    if missing.is_empty() {
        return Ok(true);
    }
    let mut message = Writer::default()
        .number(WAITING)
        .number(missing.len() as u64);
    for &rank in missing.iter().take(256) {
        message = message.number(u64::from(rank));
    }
    let message = message.done();
    for guest in guests.iter().filter(|guest| guest.hello.is_some()) {
        let _ = wire::send(&guest.socket, &message, &[]);
    }
    Ok(false)
}

/// Gives every rank the control block and what belongs to each of its peers.
fn hand_out(guests: &[Guest]) -> Outcome {
    let mut ranks: Vec<(&Guest, &Hello)> = guests
        .iter()
        .filter_map(|guest| Some((guest, guest.hello.as_ref()?)))
        .collect();
    ranks.sort_by_key(|(_, hello)| hello.member.rank);
    let control = Control::create(ranks.len()).map_err(system("no control block"))?;
    let file = control
        .region()
        .file()
        .expect("a control block is a memory file");
    let complete = Writer::default().number(COMPLETE).done();
    let give = |to: &Guest, bytes: &[u8], files: &[BorrowedFd<'_>]| {
        wire::send(&to.socket, bytes, files).map_err(|error| {
            failure(
                sys::HCCL_E_REMOTE,
                format!(
                    "process {} left while the communicator was set up: {error}",
                    to.pid
                ),
            )
        })
    };
    for (guest, _) in &ranks {
        give(guest, &complete, &[file])?;
    }
    let describe = |(guest, hello): &(&Guest, &Hello)| {
        Writer::default()
            .number(PEER)
            .number(u64::from(hello.member.rank))
            .number(u64::from(guest.pid))
            .done()
    };
    for (index, one) in ranks.iter().enumerate() {
        for other in &ranks[index + 1..] {
            let (near, far) = wire::pair().map_err(system("no socket between two ranks"))?;
            give(
                one.0,
                &describe(other),
                &[other.1.memory.as_fd(), near.as_fd()],
            )?;
            give(
                other.0,
                &describe(one),
                &[one.1.memory.as_fd(), far.as_fd()],
            )?;
        }
    }
    Ok(())
}

/// Joins the communicator of `ticket` and waits for the others, at most `limit`. With `awaits_root` the root may open
/// the rendezvous later than this rank comes.
///
/// # Errors
/// `HCCL_E_TCP_CONNECT` when nobody serves the ticket; `HCCL_E_TIMEOUT` naming the missing ranks; `HCCL_E_REMOTE` when
/// the root or a peer left; `HCCL_E_PARA` when the ranks contradict each other.
pub(crate) fn join(
    ticket: &Ticket,
    member: &Member,
    arena: &Arena,
    limit: Duration,
    awaits_root: bool,
) -> Outcome<Joined> {
    let Member { ranks, rank, .. } = *member;
    if ranks > MOST_RANKS {
        return Err(failure(
            sys::HCCL_E_PARA,
            format!("{ranks} ranks; at most {MOST_RANKS} on one host"),
        ));
    }
    let deadline = Instant::now() + limit;
    let socket = wire::socket().map_err(system("no socket to the rendezvous"))?;
    let address = address(ticket)?;
    while let Err(error) = rustix::net::connect(&socket, &address) {
        if !awaits_root {
            return Err(failure(
                sys::HCCL_E_TCP_CONNECT,
                format!(
                    "nobody serves this root info: the root is gone, or the ticket was used already ({error})"
                ),
            ));
        }
        if Instant::now() >= deadline {
            return Err(failure(
                sys::HCCL_E_TIMEOUT,
                format!(
                    "after {} s: rank 0 of {ranks} is missing",
                    limit.as_secs_f32()
                ),
            ));
        }
        thread::sleep(ROOT_POLL);
    }
    let owner = sockopt::socket_peercred(&socket)
        .map_err(|error| system("the root has no name")(error.into()))?;
    if owner.uid != rustix::process::geteuid() {
        return Err(failure(
            sys::HCCL_E_TCP_CONNECT,
            "another user serves this root info",
        ));
    }
    let hello = Writer::default()
        .number(HELLO)
        .bytes(&ticket.token)
        .bytes(member.version.as_bytes())
        .number(u64::from(ranks))
        .number(u64::from(rank))
        .number(u64::from(member.server))
        .number(u64::from(member.device))
        .bytes(member.settings.as_bytes())
        .done();
    let memory = arena
        .region()
        .file()
        .expect("device memory is a memory file");
    let lost = || {
        failure(
            sys::HCCL_E_REMOTE,
            format!(
                "the root (process {}) left while the communicator was set up",
                owner.pid
            ),
        )
    };
    wire::send(&socket, &hello, &[memory]).map_err(|_| lost())?;
    receive_all(&socket, ranks, rank, deadline, lost).map_err(|refusal| {
        if refusal.code == sys::HCCL_E_TIMEOUT.0 as i32 {
            return Failure::new(
                refusal.code,
                format!("after {} s: {}", limit.as_secs_f32(), refusal.text),
            );
        }
        refusal
    })
}

fn receive_all(
    socket: &OwnedFd,
    ranks: u32,
    rank: u32,
    deadline: Instant,
    lost: impl Fn() -> Failure,
) -> Outcome<Joined> {
    let mut missing = "no rank is known to be missing".to_owned();
    let mut control = None;
    let mut peers: Vec<Option<Peer>> = (0..ranks).map(|_| None).collect();
    let mut left = ranks - 1;
    loop {
        if left == 0
            && let Some(control) = control.take()
        {
            return Ok(Joined { control, peers });
        }
        if !wire::readable(socket, deadline).map_err(system("cannot wait for the rendezvous"))? {
            return Err(failure(sys::HCCL_E_TIMEOUT, missing));
        }
        let Some((bytes, mut files)) = wire::receive(socket).map_err(system("the rendezvous"))?
        else {
            return Err(lost());
        };
        let mut reader = Reader(&bytes);
        let mut next = || reader.number().ok_or_else(&lost);
        match next()? {
            WAITING => {
                let count = next()?;
                let listed: Vec<String> = (0..count.min(256))
                    .map(|_| Ok(next()?.to_string()))
                    .collect::<Outcome<_>>()?;
                missing = format!(
                    "{count} of {ranks} ranks are missing: {}",
                    listed.join(", ")
                );
            }
            COMPLETE => {
                let file = files.pop().ok_or_else(&lost)?;
                control = Some(
                    Control::adopt(file, ranks as usize).map_err(system("the control block"))?,
                );
            }
            PEER => {
                let (who, pid) = (next()?, next()?);
                let (Some(near), Some(memory)) = (files.pop(), files.pop()) else {
                    return Err(lost());
                };
                let region = Region::adopt(memory).map_err(system("a peer's memory"))?;
                let slot = peers
                    .get_mut(who as usize)
                    .filter(|_| who != u64::from(rank))
                    .ok_or_else(&lost)?;
                *slot = Some(Peer {
                    pid: pid as u32,
                    region,
                    socket: near,
                });
                left -= 1;
            }
            _ => {
                let code = next()? as i32;
                let text = reader.bytes().unwrap_or_default();
                return Err(Failure::new(code, String::from_utf8_lossy(text)));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn member(rank: u32) -> Member {
        Member {
            ranks: 2,
            rank,
            server: 0,
            device: rank,
            version: VERSION.to_owned(),
            settings: "a 1".to_owned(),
        }
    }

    /// What both of two ranks hear.
    fn refused(one: Member, other: Member) -> String {
        let ticket = Ticket::random().unwrap();
        open(&ticket).unwrap();
        let join = |member: &Member| {
            let arena = Arena::create(member.device, 1 << 21, false).unwrap();
            join(&ticket, member, &arena, Duration::from_secs(60), false).unwrap_err()
        };
        let (one, other) = thread::scope(|scope| {
            let other = scope.spawn(|| join(&other));
            (join(&one), other.join().unwrap())
        });
        assert_eq!(one.code, sys::HCCL_E_PARA.0 as i32);
        assert_eq!(one.text, other.text);
        one.text
    }

    #[test]
    fn two_builds_hear_both_versions() {
        let mut old = member(1);
        old.version = "0.0.9+12345678".to_owned();
        let text = refused(member(0), old);
        // Who came first is named first.
        assert!(text.contains("runs version 0.0.9+12345678"), "{text}");
        assert!(text.contains(&format!("runs version {VERSION}")), "{text}");
    }

    #[test]
    fn settings_must_be_equal() {
        let mut other = member(1);
        other.settings = "a 2".to_owned();
        let text = refused(member(0), other);
        assert!(text.contains("): a 1") && text.contains("): a 2"), "{text}");
    }
}
