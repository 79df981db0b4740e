//! Ranks that are processes: this test binary, started again for one test.

use std::{
    env,
    fmt::Write as _,
    io::{self, PipeReader, Read, Write as _},
    net::TcpListener,
    os::{fd::OwnedFd, unix::process::ExitStatusExt},
    process::{Child, Command, ExitStatus, Stdio},
    sync::{Arc, Mutex, PoisonError, mpsc},
    time::{Duration, Instant},
};

use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    process::{Pid, PidfdFlags, Signal, getpid, getppid, kill_process, pidfd_open},
};

use crate::{Job, Kind, Rank, Shared};

/// Which call of [`Job::run`] a rank process belongs to.
const CALL: &str = "HCOM_TEST_CALL";
/// Which copy of the job it belongs to.
const JOB: &str = "HCOM_TEST_JOB";
/// Process id of the test that started a rank process.
const PARENT: &str = "HCOM_TEST_PARENT";
/// How a rank process ends that has run its closure. The harness itself ends with 0 or 101, and
/// with 0 also when it found no test to run.
const COMPLETED: i32 = 42;
/// What a rank prints before it kills itself on purpose.
const KILLS_ITSELF: &str = "hcom-test: this rank kills itself";
/// How long the other ranks may still run once one has failed.
const GRACE: Duration = Duration::from_secs(5);
/// How long the output of a process that has ended may still take to arrive.
const OUTPUT: Duration = Duration::from_secs(1);

/// A rank process's place in its job.
pub(crate) struct Place {
    call: u32,
    job: u32,
    rank: u32,
    world_size: u32,
}

impl Place {
    /// `None` in a process that is not a rank.
    pub(crate) fn from_env() -> Option<Place> {
        let number = |name| -> u32 {
            env::var(name)
                .ok()
                .and_then(|text| text.parse().ok())
                .unwrap_or_else(|| panic!("{CALL} is set, but {name} is no number"))
        };
        env::var_os(CALL)?;
        Some(Place {
            call: number(CALL),
            job: number(JOB),
            rank: number("RANK"),
            world_size: number("WORLD_SIZE"),
        })
    }

    /// Inside a rank: does nothing for a call this process was not started for; else runs `f` and
    /// ends the process.
    pub(crate) fn run(&self, call: u32, job: &Job, f: impl Fn(Rank)) {
        if call != self.call {
            return;
        }
        assert_eq!(
            job.kind,
            Kind::Processes,
            "the test does not make the same calls in every process"
        );
        die_with_parent();
        f(Rank::new(
            self.job,
            self.rank,
            self.world_size,
            Kind::Processes,
            Shared::default(),
        ));
        let _ = io::stdout().flush();
        std::process::exit(COMPLETED);
    }
}

fn die_with_parent() {
    let parent = env::var(PARENT).ok().and_then(|text| text.parse().ok());
    rustix::process::set_parent_process_death_signal(Some(Signal::KILL))
        .expect("this kernel can send a signal when the parent ends");
    // It may have ended before the call.
    if getppid().map(Pid::as_raw_nonzero).map(i32::from) != parent {
        std::process::exit(1);
    }
}

pub(crate) fn kill_self() -> ! {
    let _ = writeln!(io::stdout(), "{KILLS_ITSELF}");
    let _ = io::stdout().flush();
    let _ = kill_process(getpid(), Signal::KILL);
    unreachable!("SIGKILL cannot be blocked")
}

/// A started rank. Dropping it kills and reaps the process.
struct Process {
    child: Child,
    pidfd: OwnedFd,
    output: Output,
    status: Option<ExitStatus>,
}

impl Process {
    /// Kills and reaps the process if it still runs.
    fn stop(&mut self) {
        if self.status.is_none() {
            let _ = self.child.kill();
            self.status = self.child.wait().ok();
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.stop();
    }
}

/// What a rank prints, collected by a thread.
struct Output {
    text: Arc<Mutex<Vec<u8>>>,
    end: mpsc::Receiver<()>,
}

impl Output {
    fn collect(mut pipe: PipeReader) -> io::Result<Output> {
        let text = Arc::new(Mutex::new(Vec::new()));
        let (sender, end) = mpsc::channel::<()>();
        let sink = text.clone();
        std::thread::Builder::new()
            .name("rank output".into())
            .spawn(move || {
                let _ended = sender;
                let mut chunk = [0; 4096];
                while let Ok(count @ 1..) = pipe.read(&mut chunk) {
                    let mut sink = sink.lock().unwrap_or_else(PoisonError::into_inner);
                    sink.extend_from_slice(&chunk[..count]);
                }
            })?;
        Ok(Output { text, end })
    }

    /// Everything printed by a process that has ended.
    fn text(&self) -> String {
        // Only a process that the rank started and left behind keeps the pipe open.
        let _ = self.end.recv_timeout(OUTPUT);
        let text = self.text.lock().unwrap_or_else(PoisonError::into_inner);
        String::from_utf8_lossy(&text).into_owned()
    }
}

fn start(
    (call, number, rank): (u32, u32, u32),
    job: &Job,
    test: &str,
    listener: &TcpListener,
) -> io::Result<Process> {
    let (pipe, write_end) = io::pipe()?;
    let mut command = Command::new(env::current_exe()?);
    command
        .args(["--exact", test, "--nocapture", "--test-threads=1"])
        .env(CALL, call.to_string())
        .env(JOB, number.to_string())
        .env(PARENT, std::process::id().to_string())
        .env("RANK", rank.to_string())
        .env("LOCAL_RANK", rank.to_string())
        .env("WORLD_SIZE", job.ranks.to_string())
        .env("MASTER_ADDR", "127.0.0.1")
        .env("MASTER_PORT", listener.local_addr()?.port().to_string())
        .env("RUST_BACKTRACE", "0")
        .env_remove("RANK_TABLE_FILE")
        .env_remove("RANK_ID")
        .envs(job.variables.iter().map(|(name, value)| (name, value)))
        .stdout(write_end.try_clone()?)
        .stderr(write_end);
    if rank == 0 {
        command
            .env("HCOM_MASTER_LISTENER", "stdin")
            .stdin(OwnedFd::from(listener.try_clone()?));
    } else {
        command
            .env_remove("HCOM_MASTER_LISTENER")
            .stdin(Stdio::null());
    }
    let mut child = command.spawn()?;
    let prepared = pidfd_open(Pid::from_child(&child), PidfdFlags::empty())
        .map_err(io::Error::from)
        .and_then(|pidfd| Ok((pidfd, Output::collect(pipe)?)));
    match prepared {
        Ok((pidfd, output)) => Ok(Process {
            child,
            pidfd,
            output,
            status: None,
        }),
        Err(error) => {
            let _ = child.kill();
            let _ = child.wait();
            Err(error)
        }
    }
}

/// Runs the ranks of `job`; an error is a report for the user.
pub(crate) fn run(call: u32, number: u32, job: &Job, test: &str) -> Result<(), String> {
    if test == "main" {
        return Err("rank processes need the test harness: it names the thread of a test".into());
    }
    let failed = |error: io::Error| format!("cannot start rank processes: {error}");
    let mut processes = Vec::new();
    {
        let listener = TcpListener::bind(("127.0.0.1", 0)).map_err(failed)?;
        for rank in 0..job.ranks {
            let process = start((call, number, rank), job, test, &listener).map_err(failed)?;
            processes.push(process);
        }
        // From here on the socket lives and dies with rank 0.
    }
    let mut first_failure = None;
    let mut deadline = Instant::now() + job.timeout;
    while wait(&mut processes, deadline).map_err(failed)? {
        let bad = |process: &Process| process.status.is_some() && outcome(process).is_some();
        if first_failure.is_none() {
            first_failure = processes.iter().position(bad);
            if first_failure.is_some() {
                deadline = deadline.min(Instant::now() + GRACE);
            }
        }
    }
    report(job, processes, first_failure)
}

/// Waits until a rank ends. `false` when none is left or the time is over.
fn wait(processes: &mut [Process], deadline: Instant) -> io::Result<bool> {
    let mut running: Vec<&mut Process> = processes
        .iter_mut()
        .filter(|process| process.status.is_none())
        .collect();
    let left = deadline.saturating_duration_since(Instant::now());
    if running.is_empty() || left.is_zero() {
        return Ok(false);
    }
    let mut events: Vec<PollFd<'_>> = running
        .iter()
        .map(|process| PollFd::new(&process.pidfd, PollFlags::IN))
        .collect();
    let limit = Timespec {
        tv_sec: left.as_secs() as i64,
        tv_nsec: i64::from(left.subsec_nanos()),
    };
    match poll(&mut events, Some(&limit)) {
        Ok(_) | Err(rustix::io::Errno::INTR) => {}
        Err(error) => return Err(error.into()),
    }
    drop(events);
    for process in &mut running {
        process.status = process.child.try_wait()?;
    }
    Ok(true)
}

/// What is wrong with the way a rank ended, if anything.
fn outcome(process: &Process) -> Option<String> {
    let Some(status) = process.status else {
        return Some("did not end in time and was killed".into());
    };
    match (status.code(), status.signal()) {
        (Some(COMPLETED), _) => None,
        (Some(0), _) => Some("ended without running the closure".into()),
        (_, Some(9)) if process.output.text().contains(KILLS_ITSELF) => None,
        _ => Some(format!("ended with {status}")),
    }
}

fn report(
    job: &Job,
    mut processes: Vec<Process>,
    first_failure: Option<usize>,
) -> Result<(), String> {
    let outcomes: Vec<Option<String>> = processes.iter().map(outcome).collect();
    processes.iter_mut().for_each(Process::stop);
    if outcomes.iter().all(Option::is_none) {
        return Ok(());
    }
    let mut report = String::new();
    let mut order: Vec<usize> = (0..processes.len()).collect();
    order.sort_by_key(|&rank| Some(rank) != first_failure);
    for rank in order {
        let what = outcomes[rank].as_deref().unwrap_or("ended well");
        let output = processes[rank].output.text();
        let _ = writeln!(report, "rank {rank} of {} {what}; it printed:", job.ranks);
        for line in output.lines() {
            let _ = writeln!(report, "  {line}");
        }
    }
    Err(report)
}
