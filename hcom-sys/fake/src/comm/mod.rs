//! Communicators: ranks that run collectives together, in processes or threads of one host.
//!
//! - [`setup`]: the ways to make one; [`options`]: what is configured.
//! - [`facts`]: what is known of one without waiting for its ranks.
//! - [`pending`]: parts whose ranks have not all come yet.
//! - [`told`]: memory that one is told of.
//! - [`ticket`], [`rank_table`], [`rendezvous`], [`wire`]: how the ranks find each other.
//! - [`control`], [`sync`]: the words they share, and how they meet on them.
//! - [`watch`]: how they notice that one is gone.
//! - [`operation`]: the table of what they can do.
//! - [`call`]: what is checked at a call; [`group`]: calls that take effect together.
//! - [`collective`], [`algorithms`], [`choice`], [`reduce`], [`exchange`]: what happens on the stream, with all ranks or with one.
//!
//! A communicator breaks once and for all: by a dead or contradicting peer, a timeout, an aborted stream, or its own
//! destruction. Everything that waits in it ends at once with the same error, and its peers are told. A peer that
//! destroys its end in peace only ends what needs that peer.

mod algorithms;
mod call;
mod choice;
mod collective;
mod control;
mod exchange;
mod facts;
pub(crate) mod group;
mod operation;
pub(crate) mod options;
mod order;
mod pending;
mod rank_table;
pub(crate) mod reduce;
mod rendezvous;
mod setup;
mod sync;
mod ticket;
mod told;
mod watch;
mod wire;

use std::collections::BTreeMap;
use std::ffi::c_void;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use hcom_sys::bindings::{self as sys, HcclResult};

use crate::code;
use crate::device::Device;
use crate::error::{Failure, Outcome, refuse};
use crate::fault::{self, plan::Action};
use crate::handle::Table;
use crate::memory::lock;
use crate::span::Span;
use crate::stream::Stream;
use collective::Captured;
use control::{Control, Entered};
use order::{Order, Stage};
use rendezvous::{Joined, Peer};
use setup::Plan;
use sync::Patience;

pub(crate) use call::{Call, submit, submit_transfers};
pub(crate) use facts::{Facts, by_name, facts, named};
pub(crate) use operation::{Blocks, Kind};
pub(crate) use rendezvous::MOST_RANKS;
pub(crate) use setup::{
    at_once, check_name, init, init_from_table, on_device, root_info, runtime, split,
};
pub(crate) use told::deregister_window;

/// One rank's end of a communicator.
pub(crate) struct Communicator {
    /// Its name for programs.
    pub handle: usize,
    /// The same on all ranks.
    pub name: String,
    /// This rank.
    pub rank: u32,
    /// How many ranks there are.
    pub size: u32,
    /// Where this rank's buffers are.
    pub device: Arc<Device>,
    /// The server that the device counts for, among those of a rank table.
    server: u32,
    control: Control,
    /// By rank; `None` at the own one.
    peers: Vec<Option<Peer>>,
    patience: Patience,
    exec_timeout: Option<Duration>,
    order: Order,
    /// Waits for a turn; see [`Order`].
    turn: (Mutex<()>, Condvar),
    /// A result that belongs into the receive buffer once the peers have read what it overlaps.
    kept: Mutex<Option<Span>>,
    choices: choice::Choices,
    is_broken: AtomicBool,
    broken: Mutex<Option<Failure>>,
    has_departed: AtomicBool,
    /// By rank: how it left in peace.
    departed: Mutex<Vec<Option<Failure>>>,
    async_error: AtomicI32,
    suspended: AtomicBool,
    stop: std::os::fd::OwnedFd,
    /// Known to its ranks only: what lets them meet again for a part of it.
    secret: [u8; ticket::TOKEN],
    is_part: bool,
    /// How often each part, by identity and members, was made.
    parts: Mutex<BTreeMap<(u64, Vec<u32>), u64>>,
    told: told::Told,
}

/// All living communicators.
pub(crate) static COMMUNICATORS: Table<Communicator> = Table::new();

impl Communicator {
    fn new(
        plan: Plan,
        device: Arc<Device>,
        joined: Joined,
        exec_timeout: Option<Duration>,
    ) -> Outcome<Arc<Self>> {
        let size = joined.peers.len() as u32;
        let cores = rustix::thread::sched_getaffinity(None).map_or(1, |set| set.count());
        // Pauses only help while every rank can run; a rank that pauses on a core that another one needs loses a
        // whole time slice. Measured on two cores: 50 pauses are 2 µs, 500 yields 250 µs.
        let pauses = if size <= cores { 50 } else { 0 };
        let system = |error: std::io::Error| {
            Failure::new(
                sys::HCCL_E_SYSCALL.0 as i32,
                format!("no watch over the peers: {error}"),
            )
        };
        let (stop, stopped) = wire::pair().map_err(system)?;
        let communicator = Arc::new(Self {
            handle: plan.handle,
            name: plan.name,
            rank: plan.rank,
            size,
            device,
            server: plan.server,
            control: joined.control,
            peers: joined.peers,
            patience: Patience {
                pauses,
                yields: 500,
                limit: 1_000_000,
            },
            exec_timeout,
            order: Order::default(),
            turn: Default::default(),
            kept: Mutex::new(None),
            choices: choice::Choices::default(),
            is_broken: AtomicBool::new(false),
            broken: Mutex::new(None),
            has_departed: AtomicBool::new(false),
            departed: Mutex::new(vec![None; size as usize]),
            async_error: AtomicI32::new(0),
            suspended: AtomicBool::new(false),
            stop,
            secret: plan.ticket.token,
            is_part: plan.is_part,
            parts: Mutex::default(),
            told: told::Told::default(),
        });
        fault::plan_from_environment();
        watch::start(&communicator, stopped).map_err(system)?;
        COMMUNICATORS.insert(communicator.handle, communicator.clone());
        Ok(communicator)
    }

    /// The failure that broke the communicator, if it is broken.
    pub(crate) fn failure(&self) -> Option<Failure> {
        if !self.is_broken.load(Ordering::SeqCst) {
            return None;
        }
        lock(&self.broken).clone()
    }

    /// The failure of an operation that needs those ranks: what broke the communicator, or that one of them left.
    pub(crate) fn failure_with(&self, needs: impl Fn(u32) -> bool) -> Option<Failure> {
        self.failure().or_else(|| {
            if !self.has_departed.load(Ordering::SeqCst) {
                return None;
            }
            let departed = lock(&self.departed);
            let mut needed = (0..self.size).filter(|&rank| needs(rank));
            needed.find_map(|rank| departed[rank as usize].clone())
        })
    }

    /// Notes that a peer left in peace.
    fn depart(&self, rank: usize, failure: Failure) {
        lock(&self.departed)[rank] = Some(failure);
        self.has_departed.store(true, Ordering::SeqCst);
        self.poke();
    }

    /// Breaks the communicator: everything that waits in it ends with `failure`, unless it broke before. `answer` is
    /// what `HcclGetCommAsyncError` says from now on.
    fn fail(&self, failure: Failure, answer: HcclResult) {
        let mut broken = lock(&self.broken);
        broken.get_or_insert(failure);
        // An end destroyed in peace may still hear of a failure.
        if self.async_error.load(Ordering::SeqCst) == 0 {
            self.async_error.store(answer.0 as i32, Ordering::SeqCst);
        }
        drop(broken);
        self.is_broken.store(true, Ordering::SeqCst);
        self.poke();
    }

    /// Makes everything that waits in the communicator look around.
    fn poke(&self) {
        sync::ring(&self.control);
        drop(lock(&self.turn.0));
        self.turn.1.notify_all();
        self.device.link.poke();
    }

    /// Tells the peers that this rank takes no further part, and why.
    fn say(&self, word: watch::Word, why: &str) {
        let mut message = vec![word as u8];
        message.extend(why.bytes().take(wire::LONGEST - 1));
        for peer in self.peers.iter().flatten() {
            // A peer that is gone needs no telling.
            let _ = wire::send(&peer.socket, &message, &[]);
        }
    }

    /// Breaks the communicator because of something on this rank, and tells the peers.
    fn give_up(&self, failure: Failure, answer: HcclResult) {
        if self.failure().is_none() {
            self.fail(failure.clone(), answer);
            self.say(watch::Word::GaveUp, &failure.text);
        }
    }

    /// What `HcclGetCommAsyncError` answers.
    pub(crate) fn async_error(&self) -> HcclResult {
        HcclResult(self.async_error.load(Ordering::SeqCst) as u32)
    }

    /// Refuses (true) or takes (false) further collectives.
    pub(crate) fn suspend(&self, suspended: bool) {
        self.suspended.store(suspended, Ordering::SeqCst);
    }

    /// Whether further collectives are refused.
    pub(crate) fn is_suspended(&self) -> bool {
        self.suspended.load(Ordering::SeqCst)
    }

    /// Why whatever waits here on behalf of `stream` for some ranks must end.
    fn interrupted(&self, stream: &Stream, needs: impl Fn(u32) -> bool) -> Option<Failure> {
        if stream.aborted() {
            Some(stream.abort_failure())
        } else {
            self.failure_with(needs)
        }
    }

    /// Runs an operation in its turn, as far as it gets; `None` when it stopped because it may not sleep. An error of its
    /// own breaks the communicator.
    fn perform(
        &self,
        kind: Kind,
        admission: u64,
        stream: &Stream,
        may_sleep: bool,
        execute: impl FnOnce() -> Outcome<bool>,
    ) -> Option<Outcome> {
        let outcome = match self.wait_turn(admission, stream, may_sleep) {
            // What is published has begun before.
            Ok(true) if self.order.stage() == Stage::Queued => self
                .befall(kind, stream)
                .and_then(|goes_on| if goes_on { execute() } else { Ok(true) }),
            Ok(true) => execute(),
            other => other,
        };
        match outcome {
            Ok(false) => None,
            Ok(true) => {
                self.end_turn();
                Some(Ok(()))
            }
            Err(failure) => {
                let answer = match failure.code {
                    code::TASK_FAILED => sys::HCCL_E_PARA,
                    code::TASK_TIMEOUT => sys::HCCL_E_TIMEOUT,
                    _ => sys::HCCL_E_REMOTE,
                };
                self.give_up(failure.clone(), answer);
                let text = format!(
                    "{} on communicator {}: {}",
                    kind.name(),
                    self.name,
                    failure.text
                );
                Some(Err(Failure::new(failure.code, text)))
            }
        }
    }

    /// Lets an operation suffer the faults that are planned for it; whether it goes on.
    ///
    /// # Errors
    /// A planned one, or what interrupts a delay.
    fn befall(&self, kind: Kind, stream: &Stream) -> Outcome<bool> {
        let begun = fault::Begun {
            handle: self.handle,
            comm: &self.name,
            rank: self.rank,
            kind,
        };
        for action in fault::at_operation(&begun) {
            match action {
                Action::Kill => fault::kill_process(),
                Action::Stop => fault::stop_process(),
                Action::Delay(time) => self.linger(time, stream)?,
                Action::Drop => {
                    self.enter(kind, None);
                    let dropped = u64::from(!kind.is_transfer());
                    self.order.dropped.fetch_add(dropped, Ordering::Relaxed);
                    return Ok(false);
                }
                Action::Error(code) => {
                    return refuse(code, format!("injected fault on rank {}", self.rank));
                }
            }
        }
        Ok(true)
    }

    /// Waits for `time`, unless something ends the operation earlier.
    fn linger(&self, time: Duration, stream: &Stream) -> Outcome {
        let end = Instant::now() + time;
        let mut guard = lock(&self.turn.0);
        loop {
            if let Some(failure) = self.interrupted(stream, |_| false) {
                return Err(failure);
            }
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(());
            }
            let woken = self.turn.1.wait_timeout(guard, left);
            guard = woken.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Breaks the communicator because an operation was dropped: the peers count on it, and without it no later one can
    /// match.
    fn missed(&self, kind: Kind, cause: &Failure) {
        let text = format!("{} was dropped: {}", kind.name(), cause.text);
        self.give_up(Failure::new(cause.code, text), sys::HCCL_E_REMOTE);
    }

    /// Lets the peers know which operation this rank begins; its number on this rank.
    fn enter(&self, kind: Kind, peer: Option<u32>) -> u32 {
        let number = self.order.entered.load(Ordering::Relaxed).wrapping_add(1);
        self.order.entered.store(number, Ordering::Relaxed);
        let kind = kind as u8;
        let what = Entered { kind, peer, number };
        self.control.enter(self.rank as usize, what);
        number
    }

    /// A rank for people, with its process.
    fn who(&self, rank: usize) -> String {
        let pid = match &self.peers[rank] {
            Some(peer) => peer.pid,
            None => std::process::id(),
        };
        format!("rank {rank} (process {pid})")
    }

    /// What every rank entered last, for people.
    fn whereabouts(&self) -> String {
        let of = |rank: usize| match self.control.entered(rank) {
            None => format!("rank {rank} has entered no operation yet"),
            Some(Entered { kind, peer, number }) => {
                let name = Kind::from_number(kind).map_or("?", Kind::name);
                let peer = peer.map_or_else(String::new, |peer| format!(" with rank {peer}"));
                format!("rank {rank} last entered {name}{peer} (its operation {number})")
            }
        };
        let all: Vec<String> = (0..self.size as usize).map(of).collect();
        all.join(", ")
    }

    /// Waits without sleeping until `done`; whether it came so far.
    fn try_wait(&self, done: impl FnMut() -> bool) -> bool {
        sync::try_wait::<control::Machine>(done, self.patience)
    }

    /// Waits inside an operation that needs some ranks until `done`. `unfinished` says what is missing when that takes
    /// too long.
    fn wait(
        &self,
        stream: &Stream,
        needs: impl Fn(u32) -> bool,
        done: impl FnMut() -> bool,
        unfinished: impl Fn() -> String,
    ) -> Outcome {
        let deadline = self.exec_timeout.map(|limit| Instant::now() + limit);
        let slice = self
            .exec_timeout
            .map(|limit| limit.min(Duration::from_secs(1)));
        sync::wait(&self.control, done, self.patience, slice, || {
            self.interrupted(stream, &needs).or_else(|| {
                let over = deadline.is_some_and(|deadline| Instant::now() >= deadline);
                over.then(|| {
                    let limit = self.exec_timeout.unwrap_or_default().as_secs();
                    Failure::new(
                        code::TASK_TIMEOUT,
                        format!(
                            "rank {} timed out after {limit} s (HCCL_EXEC_TIMEOUT): {}; {}",
                            self.rank,
                            unfinished(),
                            self.whereabouts()
                        ),
                    )
                })
            })
        })
    }

    /// A part of a rank's device memory, as that rank described it.
    ///
    /// # Panics
    /// When it lies outside, which a peer of this version never says; the stream reports it.
    fn memory_of(&self, rank: usize, offset: u64, start: usize, bytes: usize) -> Span {
        let region = match &self.peers[rank] {
            Some(peer) => &peer.region,
            None => self.device.arena.region(),
        };
        (offset as usize)
            .checked_add(start)
            .and_then(|offset| Span::inside(region, offset, bytes))
            .unwrap_or_else(|| panic!("rank {rank} described a buffer outside its memory"))
    }

    /// What the capture that `stream` takes part in records of this communicator.
    fn capture_of(&self, stream: &Stream) -> Option<Arc<Captured>> {
        let model = stream.capture()?.model;
        let mut latest = lock(&self.order.capture);
        let number = match &*latest {
            Some((last, captured)) if *last == model => return Some(captured.clone()),
            last => last.as_ref().map_or(0, |(_, captured)| captured.number) + 1,
        };
        let captured = Arc::new(Captured {
            number,
            shape: AtomicU32::new(0),
        });
        *latest = Some((model, captured.clone()));
        Some(captured)
    }

    /// Takes the number of a new call.
    fn take_number(&self) -> u64 {
        self.order.next.fetch_add(1, Ordering::SeqCst)
    }

    /// Whether it is the turn of call `number`.
    fn has_turn(&self, number: u64) -> bool {
        self.order.serving.load(Ordering::SeqCst) == number
    }

    /// Waits for the turn of call `number`; false when it has not come and the thread may not sleep.
    fn wait_turn(&self, number: u64, stream: &Stream, may_sleep: bool) -> Outcome<bool> {
        let interrupted = || self.interrupted(stream, |_| false);
        // What is published goes on to its meeting: all may have come to it before the communicator broke, and then this
        // rank finds out itself what is wrong.
        let is_published = self.has_turn(number) && self.order.stage() != Stage::Queued;
        if (!is_published || stream.aborted())
            && let Some(failure) = interrupted()
        {
            return Err(failure);
        }
        if self.has_turn(number) {
            return Ok(true);
        }
        if !may_sleep {
            return Ok(false);
        }
        let mut guard = lock(&self.turn.0);
        // Before the look at `serving`: whoever ends a turn afterwards sees it.
        self.order.waiting.fetch_add(1, Ordering::SeqCst);
        let outcome = loop {
            if let Some(failure) = interrupted() {
                break Err(failure);
            }
            if self.has_turn(number) {
                break Ok(true);
            }
            guard = self
                .turn
                .1
                .wait(guard)
                .unwrap_or_else(PoisonError::into_inner);
        };
        self.order.waiting.fetch_sub(1, Ordering::SeqCst);
        outcome
    }

    /// Lets the next operation have its turn.
    fn end_turn(&self) {
        self.order.reach(Stage::Queued);
        self.order.serving.fetch_add(1, Ordering::SeqCst);
        if self.order.waiting.load(Ordering::SeqCst) > 0 {
            drop(lock(&self.turn.0));
            self.turn.1.notify_all();
        }
    }
}

impl Drop for Communicator {
    fn drop(&mut self) {
        // Ends the watching thread.
        let _ = wire::send(&self.stop, &[0], &[]);
    }
}

/// The communicator that `comm` names. Waits for the members of a part that is new.
///
/// # Errors
/// `HCCL_E_PTR` for null, `HCCL_E_PARA` for an unknown handle, why a part could not be made.
pub(crate) fn find(comm: *const c_void) -> Outcome<Arc<Communicator>> {
    if comm.is_null() {
        return refuse(sys::HCCL_E_PTR.0 as i32, "the communicator is null");
    }
    COMMUNICATORS
        .get(comm)
        .map(Ok)
        .or_else(|| pending::wait(comm))
        .unwrap_or_else(|| unknown(comm))
}

fn unknown<T>(comm: *const c_void) -> Outcome<T> {
    let text = format!("{:#x} names no living communicator", comm.addr());
    refuse(sys::HCCL_E_PARA.0 as i32, text)
}

/// Destroys the communicator, from any thread: whatever waits in it ends at once.
///
/// # Errors
/// `HCCL_E_PARA` for an unknown handle.
pub(crate) fn destroy(comm: *const c_void) -> Outcome {
    let waited = pending::forget(comm);
    let Some(communicator) = COMMUNICATORS.remove(comm) else {
        return if waited { Ok(()) } else { unknown(comm) };
    };
    communicator.forget_windows();
    let failure = communicator.failure();
    let before = failure.map_or_else(String::new, |failure| failure.text);
    let text = format!("communicator {} was destroyed", communicator.name);
    communicator.fail(Failure::new(code::SOCKET_CLOSED, text), sys::HCCL_SUCCESS);
    communicator.say(watch::Word::Left, &before);
    Ok(())
}
