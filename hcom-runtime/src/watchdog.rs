//! What happens when a rank dies, hangs or disagrees.
//!
//! Each communicator has two words in device memory. The stream that executes a collective writes
//! its sequence number into the first word when it gets there and into the second when it is done,
//! so the host can see how far the device is whatever the library does (where the library cannot
//! write words, events take their place). From the words the watchdog publishes where this rank
//! stands, and it notices a collective in which the device waits: for a rank that is dead or has
//! left, for one that is in another collective at the same place of the sequence, or for longer than
//! the time limit. It then fails the job on all ranks with an error made from this side's own
//! records, and kills the work of its streams so that nobody waits any more.
//!
//! Whoever waits for the device looks in between. A thread looks when nobody does; it sleeps while
//! no collective is outstanding.

use std::{
    collections::VecDeque,
    sync::{
        Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use hcom_ir::Group;

use crate::{
    control::{Control, Life, PeerStatus, Position, RankState},
    error::Error,
    failure::{Failure, FailureKind},
    raw::{Driver, Event, Memory, Place, Stream},
};

/// How long a wait for the device lasts before the watchdog looks.
const SLICE: Duration = Duration::from_millis(20);
/// How often the watchdog thread looks while collectives are outstanding.
const PERIOD: Duration = Duration::from_millis(50);
/// How long a collective may go on after a member was found dead: its part may be complete.
const GRACE: Duration = Duration::from_millis(300);
/// Communicators that can be watched.
const LINES: usize = 4096;

/// What is said about a collective when it goes wrong.
#[derive(Debug)]
pub(crate) struct Row {
    /// Mnemonic of the operation.
    pub(crate) op: &'static str,
    /// The node, printed, with its place in the source.
    pub(crate) node: String,
}

/// A collective on its way.
#[derive(Debug)]
struct Issued {
    seq: u64,
    row: Arc<Row>,
    /// Stand in for the words.
    marks: Option<[Event; 2]>,
}

/// One communicator.
#[derive(Debug)]
struct Line {
    group: Group,
    issued: VecDeque<Issued>,
    entered: u64,
    completed: u64,
    /// When the collective that the device is in was first seen there.
    since: Option<(u64, Instant)>,
    /// When one of the members that the device waits for was first seen dead.
    bereft: Option<Instant>,
}

impl Line {
    /// The collective that the device is inside of.
    fn current(&self) -> Option<&Issued> {
        self.issued
            .front()
            .filter(|issued| self.entered >= issued.seq)
    }

    fn position(&self, issued: &Issued) -> Position {
        Position {
            op: issued.row.op.to_owned(),
            group: self.group.name.clone(),
            ranks: self.group.ranks.clone(),
            seq: issued.seq,
        }
    }
}

#[derive(Debug, Default)]
struct State {
    lines: Vec<Line>,
    published: RankState,
    completed: Option<Position>,
    spare: Vec<Event>,
    /// The thread sleeps because nothing is outstanding.
    idle: bool,
}

/// Watches the collectives of one rank.
pub(crate) struct Watchdog {
    driver: Arc<Driver>,
    control: Arc<dyn Control>,
    timeout: Duration,
    words: Place,
    state: Mutex<State>,
    streams: Mutex<Vec<Weak<Stream>>>,
    aborted: AtomicBool,
    stopped: AtomicBool,
    /// Something is outstanding again.
    work: Condvar,
    /// The thread must end.
    halt: Condvar,
}

/// Names a communicator to the watchdog.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LineId(usize);

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Watchdog {
    pub(crate) fn new(
        driver: &Arc<Driver>,
        control: Arc<dyn Control>,
        timeout: Duration,
    ) -> Result<Arc<Watchdog>, Error> {
        let bytes = (LINES * 2 * size_of::<u64>()) as u64;
        let words = Place::new(Arc::new(Memory::allocate(driver, bytes)?), 0, bytes);
        words.clear()?;
        let watchdog = Arc::new(Watchdog {
            driver: driver.clone(),
            control,
            timeout,
            words,
            state: Mutex::default(),
            streams: Mutex::default(),
            aborted: AtomicBool::new(false),
            stopped: AtomicBool::new(false),
            work: Condvar::new(),
            halt: Condvar::new(),
        });
        Ok(watchdog)
    }

    /// Streams whose work is killed when the job fails.
    pub(crate) fn guard(&self, stream: &Arc<Stream>) {
        let mut streams = lock(&self.streams);
        streams.retain(|stream| stream.strong_count() > 0);
        streams.push(Arc::downgrade(stream));
    }

    /// Starts watching a communicator of `group`.
    pub(crate) fn line(&self, group: &Group) -> Result<LineId, Error> {
        let mut state = lock(&self.state);
        if state.lines.len() == LINES {
            return Err(Error::Unsupported {
                op: "communicator",
                types: group.name.clone(),
                reason: format!("this rank has {LINES} communicators already"),
            });
        }
        state.lines.push(Line {
            group: group.clone(),
            issued: VecDeque::with_capacity(64),
            entered: 0,
            completed: 0,
            since: None,
            bereft: None,
        });
        Ok(LineId(state.lines.len() - 1))
    }

    /// Queues the mark that the device reaches collective `seq` of `line`. The launch of the
    /// collective follows, then [`Watchdog::leave`], all on `stream`.
    pub(crate) fn enter(
        &self,
        line: LineId,
        seq: u64,
        row: &Arc<Row>,
        stream: &Stream,
    ) -> Result<(), Error> {
        let mut state = lock(&self.state);
        let marks = match self.words.write_word(line.0 * 2, seq, stream) {
            Some(written) => {
                written?;
                None
            }
            None => {
                let mut event = || match state.spare.pop() {
                    Some(event) => Ok(event),
                    None => Event::new(&self.driver),
                };
                let marks = [event()?, event()?];
                marks[0].record(stream)?;
                Some(marks)
            }
        };
        state.lines[line.0].issued.push_back(Issued {
            seq,
            row: row.clone(),
            marks,
        });
        if std::mem::take(&mut state.idle) {
            self.work.notify_one();
        }
        Ok(())
    }

    /// Queues the mark that the collective entered last on `line` is done.
    pub(crate) fn leave(&self, line: LineId, stream: &Stream) -> Result<(), Error> {
        let state = lock(&self.state);
        let Some(issued) = state.lines[line.0].issued.back() else {
            return Ok(());
        };
        match &issued.marks {
            Some([_, done]) => done.record(stream),
            None => self
                .words
                .write_word(line.0 * 2 + 1, issued.seq, stream)
                .unwrap_or(Ok(())),
        }
    }

    /// Waits until `stream` has done all its work, or the job fails.
    pub(crate) fn wait(&self, stream: &Stream) -> Result<(), Error> {
        self.wait_for(|limit| stream.wait(limit))
    }

    /// Waits until `event` is reached, or the job fails.
    pub(crate) fn wait_event(&self, event: &Event) -> Result<(), Error> {
        self.wait_for(|limit| event.wait(limit))
    }

    fn wait_for(&self, done: impl Fn(Duration) -> Result<bool, Error>) -> Result<(), Error> {
        loop {
            match done(SLICE) {
                // A stream that was aborted has nothing left to do either.
                Ok(true) => return self.check(),
                Ok(false) => {
                    if let Some(failure) = self.inspect() {
                        return Err(self.fail(failure));
                    }
                }
                Err(error) => return Err(self.blame(error)),
            }
        }
    }

    /// Fails the job on all ranks and kills the work of this one. Returns the failure that counts,
    /// which is the first.
    pub(crate) fn fail(&self, failure: Failure) -> Error {
        self.control.fail(&failure);
        if !self.aborted.swap(true, Ordering::AcqRel) {
            self.driver.note(self.driver.attach());
            let streams: Vec<Weak<Stream>> = lock(&self.streams).clone();
            for stream in streams.iter().filter_map(Weak::upgrade) {
                // The job has failed with a better error than that of a stream which does not stop.
                let _ = stream.abort();
            }
        }
        Error::Failure(self.control.failure().unwrap_or(failure))
    }

    /// The failure of the job, once there is one.
    pub(crate) fn check(&self) -> Result<(), Error> {
        match self.control.failure() {
            Some(failure) => Err(self.fail(failure)),
            None => Ok(()),
        }
    }

    /// The device reported an error. When that is because a peer is gone, says so; else the error
    /// becomes the failure of the job, because the peers may wait for this rank.
    pub(crate) fn blame(&self, error: Error) -> Error {
        let until = Instant::now() + GRACE * 2;
        loop {
            if let Some(failure) = self.inspect() {
                return self.fail(failure);
            }
            let inside = lock(&self.state)
                .lines
                .iter()
                .any(|line| line.current().is_some());
            if !inside || Instant::now() >= until {
                break;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        if let Error::Failure(failure) = error {
            return self.fail(failure);
        }
        let rank = self.control.rank();
        let mut failure = Failure {
            ranks: vec![rank],
            got: Some(error.to_string()),
            ..Failure::new(FailureKind::Library, rank)
        };
        let state = lock(&self.state);
        if let Some((line, issued)) = state
            .lines
            .iter()
            .find_map(|line| Some((line, line.current()?)))
        {
            self.describe(&mut failure, line, issued);
        }
        drop(state);
        self.fail(failure)
    }

    fn describe(&self, failure: &mut Failure, line: &Line, issued: &Issued) {
        failure.op = Some(issued.row.op.to_owned());
        failure.group = Some(line.group.name.clone());
        failure.seq = Some(issued.seq);
        failure.node = Some(issued.row.node.clone());
    }

    /// Looks once: updates and publishes where this rank stands, and returns what is wrong.
    pub(crate) fn inspect(&self) -> Option<Failure> {
        if let Some(failure) = self.control.failure() {
            return Some(failure);
        }
        let mut state = lock(&self.state);
        self.update(&mut state);
        self.publish(&mut state);
        if state.lines.iter().all(|line| line.current().is_none()) {
            return None;
        }
        let peers = self.control.peers();
        let now = Instant::now();
        state
            .lines
            .iter_mut()
            .find_map(|line| self.judge(line, &peers, now))
    }

    fn update(&self, state: &mut State) {
        let State {
            lines,
            spare,
            completed,
            ..
        } = state;
        let mut words = vec![0u8; lines.len() * 2 * size_of::<u64>()];
        if lines
            .iter()
            .any(|line| line.issued.iter().any(|issued| issued.marks.is_none()))
        {
            self.driver.note(self.words.read(&mut words));
        }
        for (line, words) in lines
            .iter_mut()
            .zip(words.chunks_exact(2 * size_of::<u64>()))
        {
            let (reached, done) = words.split_at(size_of::<u64>());
            let word = |bytes: &[u8]| bytes.try_into().map_or(0, u64::from_le_bytes);
            line.entered = line.entered.max(word(reached));
            line.completed = line.completed.max(word(done));
            for issued in &line.issued {
                if let Some([entered, done]) = &issued.marks {
                    // An event that cannot be asked counts as not reached; the wait reports why.
                    let reached = |event: &Event| event.reached().unwrap_or(false);
                    if !reached(entered) {
                        break;
                    }
                    line.entered = line.entered.max(issued.seq);
                    if reached(done) {
                        line.completed = line.completed.max(issued.seq);
                    }
                }
            }
            while line
                .issued
                .front()
                .is_some_and(|issued| issued.seq <= line.completed)
            {
                if let Some(issued) = line.issued.pop_front() {
                    *completed = Some(line.position(&issued));
                    spare.extend(issued.marks.into_iter().flatten());
                }
                line.bereft = None;
            }
            let current = line.current().map(|issued| issued.seq);
            line.since = match (current, line.since) {
                (Some(seq), Some((seen, since))) if seen == seq => Some((seq, since)),
                (Some(seq), _) => Some((seq, Instant::now())),
                (None, _) => None,
            };
        }
    }

    fn publish(&self, state: &mut State) {
        let inside = state
            .lines
            .iter()
            .find_map(|line| line.current().map(|issued| line.position(issued)));
        let now = RankState {
            entered: inside.or_else(|| state.completed.clone()),
            completed: state.completed.clone(),
            waiting: None,
        };
        if now != state.published {
            self.control.publish(&now);
            state.published = now;
        }
    }

    fn judge(&self, line: &mut Line, peers: &[PeerStatus], now: Instant) -> Option<Failure> {
        let (seq, since) = line.since?;
        let own = self.control.rank();
        let members: Vec<&PeerStatus> = peers
            .iter()
            .filter(|peer| peer.rank != own && line.group.ranks.contains(&peer.rank))
            .collect();
        let at = |position: &Option<Position>| {
            position
                .as_ref()
                .is_some_and(|p| p.ranks == line.group.ranks && p.seq >= seq)
        };
        let gone: Vec<&PeerStatus> = members
            .iter()
            .copied()
            .filter(|peer| peer.life != Life::Alive && !at(&peer.state.completed))
            .collect();
        let issued = line.current()?;
        let position = line.position(issued);
        let row = issued.row.clone();
        let failure = |kind| Failure {
            op: Some(position.op.clone()),
            group: Some(position.group.clone()),
            seq: Some(seq),
            node: Some(row.node.clone()),
            ..Failure::new(kind, own)
        };
        if !gone.is_empty() {
            let first = *line.bereft.get_or_insert(now);
            if now.duration_since(first) < GRACE {
                return None;
            }
            let dead = gone.iter().find_map(|peer| match &peer.life {
                Life::Dead { reason } => Some(reason.clone()),
                _ => None,
            });
            let kind = if dead.is_some() {
                FailureKind::PeerDied
            } else {
                FailureKind::PeerLeft
            };
            return Some(Failure {
                ranks: gone.iter().map(|peer| peer.rank).collect(),
                got: Some(dead.unwrap_or_else(|| seen(&gone))),
                help: Some(format!("look at the output of rank {}", gone[0].rank)),
                ..failure(kind)
            });
        }
        let other = members.iter().find(|peer| {
            peer.state.entered.as_ref().is_some_and(|entered| {
                entered.group == position.group && entered.seq == seq && entered.op != position.op
            })
        });
        if let Some(peer) = other {
            return Some(Failure {
                ranks: vec![own, peer.rank],
                expected: Some(format!("{} on every rank, as on rank {own}", position.op)),
                got: Some(format!("rank {} {}", peer.rank, peer.state)),
                help: Some(
                    "all ranks must call the collectives of a group in the same order".into(),
                ),
                ..failure(FailureKind::Mismatch)
            });
        }
        if now.duration_since(since) < self.timeout {
            return None;
        }
        let missing: Vec<&PeerStatus> = members
            .iter()
            .copied()
            .filter(|peer| !at(&peer.state.entered))
            .collect();
        Some(Failure {
            ranks: missing.iter().map(|peer| peer.rank).collect(),
            got: Some(if missing.is_empty() {
                "every member has entered it".to_owned()
            } else {
                seen(&missing)
            }),
            expected: Some(format!("completion within {:?}", self.timeout)),
            help: Some(
                "every member of the group must take part; raise HCOM_TIMEOUT if a rank is only slow"
                    .into(),
            ),
            ..failure(FailureKind::Timeout)
        })
    }

    /// Runs the thread that looks when nobody waits. It ends after [`Watchdog::stop`].
    pub(crate) fn patrol(self: &Arc<Watchdog>) -> std::io::Result<std::thread::JoinHandle<()>> {
        let watchdog = self.clone();
        std::thread::Builder::new()
            .name(format!("hcom-watchdog-{}", self.control.rank()))
            .spawn(move || watchdog.rounds())
    }

    fn rounds(&self) {
        if let Err(error) = self.driver.attach() {
            self.driver.note(Err(error));
            return;
        }
        let mut state = lock(&self.state);
        while !self.stopped.load(Ordering::Acquire) {
            if state.lines.iter().all(|line| line.issued.is_empty()) {
                state.idle = true;
                state = self
                    .work
                    .wait(state)
                    .unwrap_or_else(PoisonError::into_inner);
                continue;
            }
            let (guard, _) = self
                .halt
                .wait_timeout_while(state, PERIOD, |_| !self.stopped.load(Ordering::Acquire))
                .unwrap_or_else(PoisonError::into_inner);
            drop(guard);
            if let Some(failure) = self.inspect() {
                self.fail(failure);
                return;
            }
            state = lock(&self.state);
        }
    }

    /// Ends the thread.
    pub(crate) fn stop(&self) {
        let _state = lock(&self.state);
        self.stopped.store(true, Ordering::Release);
        self.work.notify_one();
        self.halt.notify_one();
    }
}

fn seen(peers: &[&PeerStatus]) -> String {
    let seen: Vec<String> = peers
        .iter()
        .map(|peer| format!("rank {} {}", peer.rank, peer.state))
        .collect();
    seen.join("; ")
}
