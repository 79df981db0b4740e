//! What happens when a rank dies, hangs or disagrees.
//!
//! Each communicator has two words in device memory. The stream that executes a collective writes
//! its sequence number into the first word when it gets there and into the second when it is done,
//! so the host can see how far the device is whatever the library does (where the library cannot
//! write words, events take their place). A capture writes numbers that count from 1, into words of
//! its own; a third word, written before each replay, says what they are counted from. From the
//! words the watchdog publishes where this rank
//! stands, and it notices a collective in which the device waits: for a rank that is dead or has
//! left, for one that is in another collective at the same place of the sequence, or for longer than
//! the time limit. It then fails the job on all ranks with an error made from this side's own
//! records, kills the work of its streams so that nobody waits any more, and writes the record.
//!
//! Whoever waits for the device looks in between. A thread looks when nobody does, rarely while no
//! collective is outstanding. It never touches what a capture recorded, only memory.

use std::{
    sync::{
        Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use hcom_ir::Group;

use crate::{
    control::{Control, Position, RankState, Run},
    error::Error,
    failure::Failure,
    raw::{Driver, Event, Memory, Place, Stream},
    recorder::{self, Record, Recorder},
    settings::Settings,
};

mod judge;
mod line;

pub(crate) use line::Row;
use line::{Issued, Line};

/// How long a wait for the device lasts before the watchdog looks.
const SLICE: Duration = Duration::from_millis(20);
/// How often the watchdog thread looks while collectives are outstanding.
const PERIOD: Duration = Duration::from_millis(50);
/// How often it looks otherwise, so that a rank that is busy elsewhere leaves its record too.
const IDLE_PERIOD: Duration = Duration::from_millis(250);
/// Nobody looks for so long only while the process is stopped.
const STOPPED: Duration = Duration::from_secs(1);
/// Communicators and their captures that can be watched.
const LINES: usize = 4096;
/// Bytes of a word.
const WORD: u64 = size_of::<u64>() as u64;

#[derive(Debug)]
struct State {
    lines: Vec<Line>,
    /// Lines of captures that are gone.
    vacant: Vec<LineId>,
    recorder: Recorder,
    published: RankState,
    completed: Option<Position>,
    spare: Vec<Event>,
    /// The thread sleeps because nothing is outstanding.
    idle: bool,
    /// When somebody looked last.
    looked: Instant,
}

/// Watches the collectives of one rank.
pub(crate) struct Watchdog {
    driver: Arc<Driver>,
    control: Arc<dyn Control>,
    settings: Settings,
    /// Entered and completed of each line.
    words: Place,
    /// What the words of each line are counted from.
    bases: Place,
    state: Mutex<State>,
    streams: Mutex<Vec<Weak<Stream>>>,
    aborted: AtomicBool,
    stopped: AtomicBool,
    /// Something is outstanding again.
    work: Condvar,
    /// The thread must end.
    halt: Condvar,
    /// Whether a record with the failure is written. Held while one is being written.
    recorded: Mutex<bool>,
}

/// Names a communicator, or a capture on one, to the watchdog.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LineId(usize);

/// How a collective is marked on its stream.
pub(crate) enum Mark<'a> {
    /// As number `seq` of its group, issued now.
    Issue {
        line: LineId,
        seq: u64,
        row: &'a Arc<Row>,
        run: Option<&'a Arc<Run>>,
    },
    /// As number `at` of a capture.
    Capture { line: LineId, at: u64 },
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Watchdog {
    pub(crate) fn new(
        driver: &Arc<Driver>,
        control: Arc<dyn Control>,
        settings: &Settings,
    ) -> Result<Arc<Watchdog>, Error> {
        let bytes = LINES as u64 * WORD;
        let memory = Arc::new(Memory::allocate(driver, 3 * bytes)?);
        let (words, bases) = (
            Place::new(memory.clone(), 0, 2 * bytes),
            Place::new(memory, 2 * bytes, bytes),
        );
        words.clear()?;
        bases.clear()?;
        let watchdog = Arc::new(Watchdog {
            driver: driver.clone(),
            control,
            settings: settings.clone(),
            words,
            bases,
            state: Mutex::new(State {
                lines: Vec::new(),
                vacant: Vec::new(),
                recorder: Recorder::new(settings.record_entries),
                published: RankState::default(),
                completed: None,
                spare: Vec::new(),
                idle: false,
                looked: Instant::now(),
            }),
            streams: Mutex::default(),
            aborted: AtomicBool::new(false),
            stopped: AtomicBool::new(false),
            work: Condvar::new(),
            halt: Condvar::new(),
            recorded: Mutex::new(false),
        });
        Ok(watchdog)
    }

    /// Streams whose work is killed when the job fails.
    pub(crate) fn guard(&self, stream: &Arc<Stream>) {
        let mut streams = lock(&self.streams);
        streams.retain(|stream| stream.strong_count() > 0);
        streams.push(Arc::downgrade(stream));
    }

    /// Starts watching a communicator of `group`, or a capture on one.
    pub(crate) fn line(&self, group: &Group) -> Result<LineId, Error> {
        let mut state = lock(&self.state);
        if let Some(line) = state.vacant.pop() {
            let at = line.0 as u64 * WORD;
            self.words.part(2 * at, 2 * WORD).clear()?;
            self.bases.part(at, WORD).clear()?;
            state.lines[line.0] = Line::new(group);
            return Ok(line);
        }
        if state.lines.len() == LINES {
            return Err(Error::Unsupported {
                op: "communicator",
                types: group.name.clone(),
                reason: format!("this rank has {LINES} communicators already"),
            });
        }
        state.lines.push(Line::new(group));
        Ok(LineId(state.lines.len() - 1))
    }

    /// Ends watching a capture whose replays are done.
    pub(crate) fn release(&self, line: LineId) {
        lock(&self.state).vacant.push(line);
    }

    /// Queues the mark that the device reaches a collective. The launch of the collective follows,
    /// then [`Watchdog::leave`], all on `stream`.
    pub(crate) fn enter(&self, mark: &Mark<'_>, stream: &Stream) -> Result<(), Error> {
        let (line, seq, row, run) = match *mark {
            Mark::Issue {
                line,
                seq,
                row,
                run,
            } => (line, seq, row, run),
            Mark::Capture { line, at } => return self.write(line, 0, at, stream),
        };
        let now = Instant::now();
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
        state.issue(line, seq, row, run, marks, now);
        self.wake(&mut state);
        Ok(())
    }

    /// Queues the mark that the collective entered last on its line is done.
    pub(crate) fn leave(&self, mark: &Mark<'_>, stream: &Stream) -> Result<(), Error> {
        let line = match *mark {
            Mark::Issue { line, .. } => line,
            Mark::Capture { line, at } => return self.write(line, 1, at, stream),
        };
        let state = lock(&self.state);
        let Some(issued) = state.lines[line.0].issued.back() else {
            return Ok(());
        };
        match &issued.marks {
            Some([_, done]) => done.record(stream),
            None => self.write(line, 1, issued.seq, stream),
        }
    }

    /// Queues what must be written before a replay of a capture, whose collectives are `rows` and
    /// follow number `base` of their group.
    pub(crate) fn replay(
        &self,
        line: LineId,
        base: u64,
        rows: &[Arc<Row>],
        run: &Arc<Run>,
        stream: &Stream,
    ) -> Result<(), Error> {
        let now = Instant::now();
        let mut state = lock(&self.state);
        // A reader takes the base first: it must never see a new base with old words.
        self.write(line, 0, 0, stream)?;
        self.write(line, 1, 0, stream)?;
        self.bases
            .write_word(line.0, base, stream)
            .unwrap_or(Ok(()))?;
        for (seq, row) in (base + 1..).zip(rows) {
            state.issue(line, seq, row, Some(run), None, now);
        }
        self.wake(&mut state);
        Ok(())
    }

    fn write(&self, line: LineId, word: usize, value: u64, stream: &Stream) -> Result<(), Error> {
        self.words
            .write_word(line.0 * 2 + word, value, stream)
            .unwrap_or(Ok(()))
    }

    fn wake(&self, state: &mut State) {
        if std::mem::take(&mut state.idle) {
            self.work.notify_one();
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
            self.update(&mut lock(&self.state));
            let streams: Vec<Weak<Stream>> = lock(&self.streams).clone();
            for stream in streams.iter().filter_map(Weak::upgrade) {
                // The job has failed with a better error than that of a stream which does not stop.
                let _ = stream.abort();
            }
        }
        let failure = self.control.failure().unwrap_or(failure);
        self.record(Some(&failure));
        Error::Failure(failure)
    }

    /// Writes the record, unless one that tells of the failure is written. Returns when it is there.
    pub(crate) fn record(&self, failure: Option<&Failure>) {
        let Some(folder) = &self.settings.record_dir else {
            return;
        };
        let mut recorded = lock(&self.recorded);
        if *recorded {
            return;
        }
        *recorded = failure.is_some();
        if !lock(&self.state).recorder.is_on() {
            return;
        }
        // A record that cannot be written must not hide the failure that it tells of.
        let _ = self.snapshot(failure).write(folder);
    }

    /// The record as it would be written now.
    pub(crate) fn snapshot(&self, failure: Option<&Failure>) -> Record {
        let state = lock(&self.state);
        let (entries, dropped) = state.recorder.entries();
        Record {
            rank: self.control.rank(),
            world_size: self.control.world_size(),
            pid: std::process::id(),
            written_us: recorder::since_1970_us(),
            failure: failure.cloned(),
            state: state.stand(),
            peers: self.control.peers(),
            dropped,
            entries,
        }
    }

    /// The settings that it watches by.
    pub(crate) fn settings(&self) -> &Settings {
        &self.settings
    }

    /// The control plane that it reports through.
    pub(crate) fn control(&self) -> &Arc<dyn Control> {
        &self.control
    }

    /// The failure of the job, once there is one.
    pub(crate) fn check(&self) -> Result<(), Error> {
        match self.control.failure() {
            Some(failure) => Err(self.fail(failure)),
            None => Ok(()),
        }
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
            recorder,
            looked,
            ..
        } = state;
        let mut bases = vec![0u8; lines.len() * WORD as usize];
        let mut words = vec![0u8; lines.len() * 2 * WORD as usize];
        if lines
            .iter()
            .any(|line| line.issued.iter().any(|issued| issued.marks.is_none()))
        {
            self.driver.note(self.bases.read(&mut bases));
            self.driver.note(self.words.read(&mut words));
        }
        let now = Instant::now();
        let absence = now.duration_since(std::mem::replace(looked, now));
        let word = |bytes: &[u8]| bytes.try_into().map_or(0, u64::from_le_bytes);
        for ((line, words), base) in lines
            .iter_mut()
            .zip(words.chunks_exact(2 * WORD as usize))
            .zip(bases.chunks_exact(WORD as usize))
        {
            let (reached, done) = words.split_at(WORD as usize);
            let base = word(base);
            line.entered = line.entered.max(base + word(reached));
            line.completed = line.completed.max(base + word(done));
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
            let mut last = None;
            while let Some(issued) = line.issued.front()
                && issued.seq <= line.completed
            {
                recorder.completed(issued.entry, now);
                last = line.issued.pop_front().map(|mut issued| {
                    spare.extend(issued.marks.take().into_iter().flatten());
                    issued
                });
                line.bereft = None;
            }
            if let Some(issued) = last {
                *completed = Some(line.position(&issued));
            }
            let current = line.current().map(|issued| (issued.seq, issued.entry));
            if let Some((_, entry)) = current {
                recorder.entered(entry, now);
            }
            line.since = match (current, line.since) {
                // A rank that was stopped itself has not waited meanwhile: what its peers said is
                // yet to be read.
                (Some((seq, _)), Some((seen, since))) if seen == seq => {
                    let stopped = if absence > STOPPED {
                        absence
                    } else {
                        Duration::ZERO
                    };
                    Some((seq, since + stopped))
                }
                (Some((seq, _)), _) => Some((seq, now)),
                (None, _) => None,
            };
        }
    }

    fn publish(&self, state: &mut State) {
        let now = state.stand();
        if now != state.published {
            self.control.publish(&now);
            state.published = now;
        }
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
            let stopped = || self.stopped.load(Ordering::Acquire);
            let guard = if state.lines.iter().all(|line| line.issued.is_empty()) {
                state.idle = true;
                let asleep = |state: &mut State| state.idle && !stopped();
                let slept = self.work.wait_timeout_while(state, IDLE_PERIOD, asleep);
                let (mut guard, _) = slept.unwrap_or_else(PoisonError::into_inner);
                guard.idle = false;
                guard
            } else {
                let slept = self.halt.wait_timeout_while(state, PERIOD, |_| !stopped());
                slept.unwrap_or_else(PoisonError::into_inner).0
            };
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

impl State {
    fn issue(
        &mut self,
        line: LineId,
        seq: u64,
        row: &Arc<Row>,
        run: Option<&Arc<Run>>,
        marks: Option<[Event; 2]>,
        now: Instant,
    ) {
        let line = &mut self.lines[line.0];
        let entry = self.recorder.issue(&line.group, seq, row, run, now);
        line.issued.push_back(Issued {
            seq,
            row: row.clone(),
            run: run.cloned(),
            entry,
            marks,
        });
    }

    /// Where this rank stands.
    fn stand(&self) -> RankState {
        let inside = self
            .lines
            .iter()
            .find_map(|line| line.current().map(|issued| line.position(issued)));
        RankState {
            entered: inside.or_else(|| self.completed.clone()),
            completed: self.completed.clone(),
            waiting: None,
        }
    }
}
