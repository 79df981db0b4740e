//! The started ranks: one loop that waits for their output, their ends and the launcher's signals at once.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, ChildStderr, ChildStdout, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::OFlags;
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal, kill_process_group, pidfd_open};
use signal_hook::SigId;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

use super::lines::{Lines, State, print};
use super::{End, Event, Observer, Outcome, PROGRESS, RECORD, RankFailure, colours};

/// Between the polite signal and SIGKILL.
const POLITENESS: Duration = Duration::from_secs(3);
/// How long output may still arrive once every rank has ended: only a process that left its rank's process group
/// can still hold a pipe.
const LAST_OUTPUT: Duration = Duration::from_secs(1);

/// The signals that end a job, caught from `catch` to drop.
pub(super) struct Signals {
    last: Arc<AtomicUsize>,
    wake: UnixStream,
    actions: Vec<SigId>,
}

impl Signals {
    pub(super) fn catch() -> io::Result<Signals> {
        let (wake, write) = UnixStream::pair()?;
        wake.set_nonblocking(true)?;
        let mut signals = Signals {
            last: Arc::default(),
            wake,
            actions: Vec::new(),
        };
        for signal in [SIGINT, SIGTERM, SIGHUP] {
            let last = signals.last.clone();
            signals.actions.push(signal_hook::flag::register_usize(
                signal,
                last,
                signal as usize,
            )?);
            let write = write.try_clone()?;
            signals
                .actions
                .push(signal_hook::low_level::pipe::register(signal, write)?);
        }
        Ok(signals)
    }

    /// The latest signal since the last call.
    fn take(&self) -> Option<i32> {
        let mut bytes = [0; 64];
        while io::Read::read(&mut &self.wake, &mut bytes).is_ok_and(|count| count > 0) {}
        match self.last.swap(0, Ordering::Relaxed) {
            0 => None,
            signal => Some(signal as i32),
        }
    }
}

impl Drop for Signals {
    fn drop(&mut self) {
        for action in self.actions.drain(..) {
            signal_hook::low_level::unregister(action);
        }
    }
}

/// One rank.
struct Running {
    child: Child,
    group: Pid,
    pidfd: OwnedFd,
    status: Option<ExitStatus>,
    out: Option<ChildStdout>,
    out_lines: Lines,
    err: Option<ChildStderr>,
    err_lines: Lines,
}

impl Running {
    /// Sends a signal to the rank and everything it has started. The number cannot have passed to someone else: it
    /// stays taken until the rank is reaped.
    fn signal(&self, signal: Signal) {
        if self.status.is_none() {
            let _ = kill_process_group(self.group, signal);
        }
    }

    /// Ends what the rank has left behind, then reaps it.
    fn reap(&mut self) -> io::Result<ExitStatus> {
        self.signal(Signal::KILL);
        let status = self.child.wait()?;
        self.status = Some(status);
        Ok(status)
    }
}

/// What happens next to the ranks that still run.
#[derive(Clone, Copy)]
enum Next {
    /// Nothing: they run.
    Wait,
    /// They may report until then, and get SIGTERM.
    Terminate(Instant),
    /// They have had their signal, and get SIGKILL then.
    Kill(Instant),
    /// They have been killed.
    Nothing,
}

/// All ranks of a job. Dropping it kills and reaps those that still run.
pub(super) struct Children {
    ranks: Vec<Running>,
    time_to_report: Duration,
    observer: Option<Observer>,
    reports: Vec<Option<String>>,
    failure: Option<RankFailure>,
    interrupted_by: Option<i32>,
    next: Next,
}

impl Children {
    pub(super) fn new(time_to_report: Duration, observer: Option<Observer>) -> Children {
        Children {
            ranks: Vec::new(),
            time_to_report,
            observer,
            reports: Vec::new(),
            failure: None,
            interrupted_by: None,
            next: Next::Wait,
        }
    }

    /// Starts the next rank.
    pub(super) fn start(&mut self, mut command: Command) -> io::Result<()> {
        let rank = self.ranks.len() as u32;
        let mut child = command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0)
            .spawn()?;
        let group = Pid::from_child(&child);
        let prepared = pidfd_open(group, PidfdFlags::empty()).and_then(|pidfd| {
            let (out, err) = (child.stdout.take(), child.stderr.take());
            for pipe in [out.as_ref().map(AsFd::as_fd), err.as_ref().map(AsFd::as_fd)] {
                rustix::fs::fcntl_setfl(pipe.ok_or(Errno::BADF)?, OFlags::NONBLOCK)?;
            }
            Ok((pidfd, out, err))
        });
        let (pidfd, out, err) = match prepared {
            Ok(prepared) => prepared,
            Err(error) => {
                let _ = kill_process_group(group, Signal::KILL);
                let _ = child.wait();
                return Err(error.into());
            }
        };
        let out_coloured = match self.observer {
            Some(_) => colours(&io::stderr()),
            None => colours(&io::stdout()),
        };
        self.ranks.push(Running {
            child,
            group,
            pidfd,
            status: None,
            out,
            out_lines: Lines::new(rank, out_coloured),
            err,
            err_lines: Lines::new(rank, colours(&io::stderr())),
        });
        self.reports.push(None);
        Ok(())
    }

    /// Waits until every rank has ended and its output has been printed.
    pub(super) fn wait(mut self, signals: &Signals) -> io::Result<Outcome> {
        let mut last_output = None;
        loop {
            let running = self.ranks.iter().any(|rank| rank.status.is_none());
            let open = self
                .ranks
                .iter()
                .any(|rank| rank.out.is_some() || rank.err.is_some());
            if !running {
                let end = *last_output.get_or_insert_with(|| Instant::now() + LAST_OUTPUT);
                if !open || Instant::now() >= end {
                    break;
                }
            }
            let until = match self.next {
                _ if !running => last_output,
                Next::Terminate(at) | Next::Kill(at) => Some(at),
                Next::Wait | Next::Nothing => None,
            };
            self.sleep(signals, until)?;
            self.read_output()?;
            self.note_ends()?;
            if let Some(signal) = signals.take() {
                self.interrupt(signal);
            }
            self.escalate();
        }
        self.finish_output();
        Ok(Outcome {
            failure: self.failure,
            interrupted_by: self.interrupted_by,
            reports: std::mem::take(&mut self.reports),
        })
    }

    /// Sleeps until something happens or the time has come.
    fn sleep(&self, signals: &Signals, until: Option<Instant>) -> io::Result<()> {
        let mut waited_for: Vec<BorrowedFd<'_>> = vec![signals.wake.as_fd()];
        for rank in &self.ranks {
            waited_for.extend(rank.out.as_ref().map(AsFd::as_fd));
            waited_for.extend(rank.err.as_ref().map(AsFd::as_fd));
            if rank.status.is_none() {
                waited_for.push(rank.pidfd.as_fd());
            }
        }
        let mut events: Vec<PollFd<'_>> = waited_for
            .iter()
            .map(|fd| PollFd::from_borrowed_fd(*fd, PollFlags::IN))
            .collect();
        let limit = until.map(|until| {
            let left = until.saturating_duration_since(Instant::now());
            Timespec {
                tv_sec: left.as_secs().min(i64::MAX as u64) as i64,
                tv_nsec: left.subsec_nanos().into(),
            }
        });
        match poll(&mut events, limit.as_ref()) {
            Ok(_) | Err(Errno::INTR) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    fn read_output(&mut self) -> io::Result<()> {
        let observer = &mut self.observer;
        for (rank, (running, report)) in (0..).zip(self.ranks.iter_mut().zip(&mut self.reports)) {
            if let Some(pipe) = &mut running.out {
                let state = running.out_lines.read(pipe, |prefix, line| {
                    out_line(observer, rank, report, prefix, line);
                })?;
                if state == State::Closed {
                    running.out = None;
                }
            }
            if let Some(pipe) = &mut running.err {
                let state = running
                    .err_lines
                    .read(pipe, |prefix, line| err_line(observer, prefix, line))?;
                if state == State::Closed {
                    running.err = None;
                }
            }
        }
        Ok(())
    }

    /// Prints what stands behind the last line end of each stream.
    fn finish_output(&mut self) {
        let observer = &mut self.observer;
        for (rank, (running, report)) in (0..).zip(self.ranks.iter_mut().zip(&mut self.reports)) {
            running
                .out_lines
                .finish(|prefix, line| out_line(observer, rank, report, prefix, line));
            running
                .err_lines
                .finish(|prefix, line| err_line(observer, prefix, line));
        }
    }

    fn note_ends(&mut self) -> io::Result<()> {
        for index in 0..self.ranks.len() {
            let rank = &mut self.ranks[index];
            if rank.status.is_some() || !has_ended(&rank.pidfd)? {
                continue;
            }
            let status = rank.reap()?;
            let end = match (status.code(), status.signal()) {
                (Some(0), _) => continue,
                (Some(code), _) => End::Code(code),
                (None, signal) => End::Signal(signal.unwrap_or_default()),
            };
            if self.failure.is_none() && self.interrupted_by.is_none() {
                self.fail(RankFailure {
                    rank: index as u32,
                    end,
                });
            }
        }
        Ok(())
    }

    fn fail(&mut self, failure: RankFailure) {
        let RankFailure { rank, end } = failure;
        let others = self
            .ranks
            .iter()
            .filter(|rank| rank.status.is_none())
            .count();
        let limit = self.time_to_report.as_secs_f64();
        let note = match others {
            0 => format!("rank {rank} {end}"),
            1 => format!("rank {rank} {end}; the other rank has {limit} s to report"),
            _ => format!("rank {rank} {end}; the {others} other ranks have {limit} s to report"),
        };
        err_line(&mut self.observer, "hcom: ", note.as_bytes());
        self.failure = Some(failure);
        // A time beyond the clock's end never comes.
        self.next = match Instant::now().checked_add(self.time_to_report) {
            Some(at) => Next::Terminate(at),
            None => Next::Wait,
        };
    }

    /// The first signal is passed on, the next one kills.
    fn interrupt(&mut self, signal: i32) {
        let first = self.interrupted_by.is_none();
        self.interrupted_by.get_or_insert(signal);
        let passed_on = match signal {
            _ if !first => Signal::KILL,
            SIGINT => Signal::INT,
            SIGHUP => Signal::HUP,
            _ => Signal::TERM,
        };
        self.signal_all(passed_on);
        self.next = match first {
            true => Next::Kill(Instant::now() + POLITENESS),
            false => Next::Nothing,
        };
    }

    fn escalate(&mut self) {
        let now = Instant::now();
        self.next = match self.next {
            Next::Terminate(at) if now >= at => {
                self.signal_all(Signal::TERM);
                Next::Kill(now + POLITENESS)
            }
            Next::Kill(at) if now >= at => {
                self.signal_all(Signal::KILL);
                Next::Nothing
            }
            unchanged => unchanged,
        };
    }

    fn signal_all(&self, signal: Signal) {
        for rank in &self.ranks {
            rank.signal(signal);
            // A rank that is stopped takes it when it goes on.
            rank.signal(Signal::CONT);
        }
    }
}

impl Drop for Children {
    fn drop(&mut self) {
        self.signal_all(Signal::KILL);
        for rank in &mut self.ranks {
            if rank.status.is_none() {
                let _ = rank.reap();
            }
        }
    }
}

/// A process descriptor is readable once the process has ended, reaped or not.
fn has_ended(pidfd: &OwnedFd) -> io::Result<bool> {
    let mut event = [PollFd::new(pidfd, PollFlags::IN)];
    match poll(
        &mut event,
        Some(&Timespec {
            tv_sec: 0,
            tv_nsec: 0,
        }),
    ) {
        Ok(count) => Ok(count > 0),
        Err(Errno::INTR) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

fn out_line(
    observer: &mut Option<Observer>,
    rank: u32,
    report: &mut Option<String>,
    prefix: &str,
    line: &[u8],
) {
    match (observer, line) {
        (Some(observer), [RECORD, mark, steps @ ..]) if char::from(*mark) == PROGRESS => {
            if let Some((done, total)) = progress(steps) {
                observer(Event::Progress { rank, done, total });
            }
        }
        (Some(observer), [RECORD, json @ ..]) => {
            let json = report.insert(String::from_utf8_lossy(json).into_owned());
            observer(Event::Report { rank, json });
        }
        (observer @ Some(_), _) => err_line(observer, prefix, line),
        (None, _) => print(&mut io::stdout().lock(), prefix, line),
    }
}

fn progress(steps: &[u8]) -> Option<(u64, u64)> {
    let (done, total) = std::str::from_utf8(steps).ok()?.split_once(' ')?;
    Some((done.parse().ok()?, total.parse().ok()?))
}

fn err_line(observer: &mut Option<Observer>, prefix: &str, line: &[u8]) {
    match observer {
        Some(observer) => {
            let line = format!("{prefix}{}", String::from_utf8_lossy(line));
            observer(Event::Line(&line));
        }
        None => print(&mut io::stderr().lock(), prefix, line),
    }
}
