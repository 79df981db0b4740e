//! Starts the ranks of a job on this host: processes of this executable, or of another program.
//!
//! Every rank gets torchrun's variables (`RANK`, `LOCAL_RANK`, `WORLD_SIZE`, `LOCAL_WORLD_SIZE`, `MASTER_ADDR`,
//! `MASTER_PORT`). What a rank prints appears line by line behind its number. When one rank fails, the others get
//! the job's timeout and two seconds more to report, then SIGTERM (and SIGCONT), then SIGKILL. SIGINT, SIGTERM and
//! SIGHUP end all ranks, and the ranks die with the launcher however it dies.
//!
//! A program that launches ranks calls [`attach`] first in `main`:
//!
//! ```no_run
//! use hcom::launch::{self, Launch, Role};
//!
//! match launch::attach() {
//!     Role::Rank => println!("one of the ranks"),
//!     Role::Launcher => {
//!         let outcome = Launch::this(4).run().unwrap();
//!         std::process::exit(outcome.exit_code().into());
//!     }
//! }
//! ```
//!
//! # The rendezvous port
//! The launcher binds a free port and holds it, without listening, until the job ends. A socket bound so cannot be
//! handed out to anybody who asks for any free port, yet rank 0 can listen on the port, since both set
//! `SO_REUSEADDR` (as the standard library's listener and PyTorch's store do). Two jobs therefore never meet.

use std::env;
use std::ffi::{OsStr, OsString};
use std::io::{self, IsTerminal, Write};
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType};
use rustix::process::{Pid, Signal};

mod children;
mod lines;

/// Process id of the launcher, in the ranks' environment.
const LAUNCHER: &str = "HCOM_LAUNCHER";
/// Set when this executable only prepares a rank and becomes another program.
const BECOME: &str = "HCOM_LAUNCH_PROGRAM";
/// Set when the launcher collects what [`report`] prints.
const COLLECT: &str = "HCOM_LAUNCH_COLLECT";
/// Opens a report's line (ASCII record separator, as in RFC 7464).
const RECORD: u8 = 0x1e;
/// Follows [`RECORD`] where the line is no report but tells progress; no JSON begins so.
const PROGRESS: char = '#';
/// What the ranks get beyond the timeout, to report that it passed.
const REPORT_TIME: Duration = Duration::from_secs(2);

/// What this process is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// The environment gives it no place in a job: it may start one.
    Launcher,
    /// A rank: `RANK` is set, or `RANK_TABLE_FILE` with `RANK_ID`.
    Rank,
}

/// Tells whether this process is a rank, and ties a rank to the launcher that started it: when the launcher ends,
/// for whatever reason, the rank is killed.
///
/// Call it first in `main`. In a process that a launcher started for another program, it becomes that program and
/// does not return.
pub fn attach() -> Role {
    if let Some(launcher) = env::var(LAUNCHER).ok().and_then(|text| text.parse().ok()) {
        die_with(launcher);
        if let Some(program) = env::var_os(BECOME) {
            let mut command = Command::new(&program);
            command.args(env::args_os().skip(1));
            command.env_remove(BECOME).env_remove(LAUNCHER);
            let error = command.exec();
            eprintln!("cannot start {}: {error}", program.display());
            std::process::exit(if error.kind() == io::ErrorKind::NotFound {
                127
            } else {
                126
            });
        }
    }
    let set = |name| env::var_os(name).is_some();
    match set("RANK") || (set("RANK_TABLE_FILE") && set("RANK_ID")) {
        true => Role::Rank,
        false => Role::Launcher,
    }
}

fn die_with(launcher: i32) {
    let parent = rustix::process::getppid().map(|pid| pid.as_raw_nonzero().get());
    if parent == Some(launcher) {
        // An old kernel without it costs the tie, not the job.
        let _ = rustix::process::set_parent_process_death_signal(Some(Signal::KILL));
    }
    // The launcher may have ended before the line above. A living launcher that is no parent means that a rank
    // started this process; it is tied to nobody.
    let gone = Pid::from_raw(launcher)
        .is_none_or(|pid| rustix::process::test_kill_process(pid) == Err(Errno::SRCH));
    let now = rustix::process::getppid().map(|pid| pid.as_raw_nonzero().get());
    if gone || now != parent {
        std::process::exit(1);
    }
}

/// Whether the launcher that started this rank collects its [reports](report).
pub fn is_collected() -> bool {
    env::var_os(COLLECT).is_some()
}

/// Hands JSON to a launcher that [collects](is_collected), which returns a rank's latest report in
/// [`Outcome::reports`]; else prints it on a line of its own.
///
/// # Errors
/// Standard output cannot be written.
pub fn report(json: &str) -> io::Result<()> {
    let mut line = Vec::with_capacity(json.len() + 2);
    if is_collected() {
        line.push(RECORD);
    }
    // Between the tokens of JSON a line end means nothing, and inside a string it is escaped.
    line.extend(json.bytes().filter(|byte| *byte != b'\n'));
    line.push(b'\n');
    write_out(&line)
}

/// Tells a launcher that [collects](is_collected) how many of a rank's steps are done; else does nothing.
///
/// # Errors
/// Standard output cannot be written.
pub fn progress(done: u64, total: u64) -> io::Result<()> {
    match is_collected() {
        true => write_out(format!("{}{PROGRESS}{done} {total}\n", char::from(RECORD)).as_bytes()),
        false => Ok(()),
    }
}

fn write_out(line: &[u8]) -> io::Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(line)?;
    out.flush()
}

/// What a [collected](Launch::collect_with) job says while it runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Event<'a> {
    /// A rank has [reported](report) this line of JSON.
    Report {
        /// The rank.
        rank: u32,
        /// The line.
        json: &'a str,
    },
    /// A rank has done some of its steps.
    Progress {
        /// The rank.
        rank: u32,
        /// Steps done.
        done: u64,
        /// All steps.
        total: u64,
    },
    /// A line for a person: what a rank printed, behind its number, or a note about a rank's end.
    Line(&'a str),
}

type Observer = Box<dyn FnMut(Event<'_>)>;

/// A job to start.
pub struct Launch {
    ranks: u32,
    /// `None` is this executable.
    program: Option<PathBuf>,
    arguments: Vec<OsString>,
    variables: Vec<(OsString, OsString)>,
    timeout: Duration,
    observer: Option<Observer>,
}

impl Launch {
    /// `ranks` processes of this executable with the arguments that this process has.
    pub fn this(ranks: u32) -> Launch {
        Launch {
            ranks,
            program: None,
            arguments: env::args_os().skip(1).collect(),
            variables: Vec::new(),
            timeout: Duration::from_secs(60),
            observer: None,
        }
    }

    /// `ranks` processes of `program`, a path or a name to be found in `PATH`, without arguments.
    pub fn program(ranks: u32, program: impl Into<PathBuf>) -> Launch {
        Launch {
            program: Some(program.into()),
            arguments: Vec::new(),
            ..Launch::this(ranks)
        }
    }

    /// Replaces the arguments.
    #[must_use]
    pub fn args(mut self, arguments: impl IntoIterator<Item = impl Into<OsString>>) -> Launch {
        self.arguments = arguments.into_iter().map(Into::into).collect();
        self
    }

    /// Sets a variable in every rank's environment.
    #[must_use]
    pub fn env(mut self, name: impl Into<OsString>, value: impl Into<OsString>) -> Launch {
        self.variables.push((name.into(), value.into()));
        self
    }

    /// How long a rank of the job waits for its peers (60 s): after a failure the others get this and 2 s more.
    #[must_use]
    pub fn timeout(mut self, timeout: Duration) -> Launch {
        self.timeout = timeout;
        self
    }

    /// Collects the ranks' [reports](report). Everything else that they print then goes to standard error.
    #[must_use]
    pub fn collect(self) -> Launch {
        self.collect_with(|event| {
            if let Event::Line(line) = event {
                eprintln!("{line}");
            }
        })
    }

    /// Collects the ranks' [reports](report) and shows `observer` everything that happens, at once.
    #[must_use]
    pub fn collect_with(mut self, observer: impl FnMut(Event<'_>) + 'static) -> Launch {
        self.observer = Some(Box::new(observer));
        self
    }

    /// Starts the ranks and waits until all have ended.
    ///
    /// The calling thread must live until then: the ranks die with it.
    ///
    /// # Errors
    /// No rank was asked for, the program was not found, or the system refused a process, pipe or port. No rank is
    /// left running.
    pub fn run(mut self) -> Result<Outcome, LaunchError> {
        if self.ranks == 0 {
            return Err(LaunchError::NoRanks);
        }
        if let Some(program) = &self.program {
            find(program).ok_or_else(|| LaunchError::ProgramNotFound {
                program: program.clone(),
            })?;
        }
        let system = |doing| move |source| LaunchError::System { doing, source };
        let (_held, port) = hold_port().map_err(system("hold a port"))?;
        let signals = children::Signals::catch().map_err(system("catch signals"))?;
        let collected = self.observer.is_some();
        let mut children = children::Children::new(
            self.timeout.saturating_add(REPORT_TIME),
            self.observer.take(),
        );
        for rank in 0..self.ranks {
            let command = self
                .command(rank, port, collected)
                .map_err(system("find this executable"))?;
            children.start(command).map_err(system("start a rank"))?;
        }
        children.wait(&signals).map_err(system("watch the ranks"))
    }

    fn command(&self, rank: u32, port: u16, collected: bool) -> io::Result<Command> {
        let mut command = Command::new(env::current_exe()?);
        command
            .args(&self.arguments)
            .env(LAUNCHER, std::process::id().to_string())
            .env("RANK", rank.to_string())
            .env("LOCAL_RANK", rank.to_string())
            .env("WORLD_SIZE", self.ranks.to_string())
            .env("LOCAL_WORLD_SIZE", self.ranks.to_string())
            .env("MASTER_ADDR", Ipv4Addr::LOCALHOST.to_string())
            .env("MASTER_PORT", port.to_string())
            // Ranks of another job that come to this port by mistake are turned away.
            .env("HCOM_JOB", format!("{}-{port}", std::process::id()));
        for outer in [
            BECOME,
            COLLECT,
            "RANK_TABLE_FILE",
            "RANK_ID",
            "HCOM_MASTER_LISTENER",
        ] {
            command.env_remove(outer);
        }
        if let Some(program) = &self.program {
            command.env(BECOME, program);
            // Python keeps lines back when it writes to a pipe.
            if env::var_os("PYTHONUNBUFFERED").is_none() {
                command.env("PYTHONUNBUFFERED", "1");
            }
        }
        if collected {
            command.env(COLLECT, "1");
        }
        command.envs(self.variables.iter().map(|(name, value)| (name, value)));
        Ok(command)
    }
}

/// Binds a free port of the loopback interface without listening on it.
fn hold_port() -> io::Result<(OwnedFd, u16)> {
    let socket = rustix::net::socket_with(
        AddressFamily::INET,
        SocketType::STREAM,
        SocketFlags::CLOEXEC,
        None,
    )?;
    rustix::net::sockopt::set_socket_reuseaddr(&socket, true)?;
    rustix::net::bind(&socket, &SocketAddrV4::new(Ipv4Addr::LOCALHOST, 0))?;
    let address = SocketAddr::try_from(rustix::net::getsockname(&socket)?)?;
    Ok((socket, address.port()))
}

/// The program as `exec` will find it.
fn find(program: &Path) -> Option<PathBuf> {
    if program.components().count() > 1 {
        return program.is_file().then(|| program.to_owned());
    }
    env::split_paths(&env::var_os("PATH")?)
        .map(|folder| folder.join(program))
        .find(|path| path.is_file())
}

/// How a job ended.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Outcome {
    /// The rank that failed first, if any did before a signal ended the job.
    pub failure: Option<RankFailure>,
    /// The signal to the launcher that ended the job.
    pub interrupted_by: Option<i32>,
    /// Per rank, what it [reported](report) last, when the launcher [collects](Launch::collect).
    pub reports: Vec<Option<String>>,
}

impl Outcome {
    /// The exit code for a launcher: that of the first failure (128 + n for a rank ended by signal n), 128 + n when
    /// signal n ended the job, else 0.
    pub fn exit_code(&self) -> u8 {
        let code = match (self.failure.map(|failure| failure.end), self.interrupted_by) {
            (Some(End::Code(code)), _) => code,
            (Some(End::Signal(signal)), _) | (None, Some(signal)) => 128 + signal,
            (None, None) => 0,
        };
        // An exit status has eight bits.
        (code & 0xff) as u8
    }
}

/// A rank that did not end well.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct RankFailure {
    /// The rank.
    pub rank: u32,
    /// How it ended.
    pub end: End,
}

/// How a process ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// With an exit code.
    Code(i32),
    /// By a signal.
    Signal(i32),
}

impl std::fmt::Display for End {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            End::Code(code) => write!(f, "ended with exit code {code}"),
            End::Signal(signal) => match signal_hook::low_level::signal_name(*signal) {
                Some(name) => write!(f, "was ended by {name}"),
                None => write!(f, "was ended by signal {signal}"),
            },
        }
    }
}

/// A job that could not be started or watched.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LaunchError {
    /// The number of ranks is 0.
    #[error("a job needs at least one rank")]
    NoRanks,
    /// There is no such program.
    #[error("there is no program {}: expected a path to an executable file, or a name in PATH", program.display())]
    ProgramNotFound {
        /// As it was given.
        program: PathBuf,
    },
    /// The system refused something.
    #[error("cannot {doing}")]
    System {
        /// What was tried.
        doing: &'static str,
        /// The system's reason.
        source: io::Error,
    },
}

/// True when escape sequences make sense on a stream.
fn colours(stream: &impl IsTerminal) -> bool {
    stream.is_terminal()
        && env::var_os("NO_COLOR").is_none()
        && env::var_os("TERM").is_none_or(|term| term != OsStr::new("dumb"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    #[test]
    fn a_held_port_is_free_for_rank_0_and_for_nobody_who_asks_for_any() {
        let (_held, port) = hold_port().unwrap();
        let others: Vec<TcpListener> = (0..200)
            .map(|_| TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap())
            .collect();
        assert!(
            others
                .iter()
                .all(|other| other.local_addr().unwrap().port() != port)
        );
        let rank_0 = TcpListener::bind((Ipv4Addr::LOCALHOST, port)).unwrap();
        let second = TcpListener::bind((Ipv4Addr::LOCALHOST, port)).unwrap_err();
        assert_eq!(second.kind(), io::ErrorKind::AddrInUse);
        drop(rank_0);
    }

    #[test]
    fn the_exit_code_is_that_of_the_first_failure() {
        let outcome = |failure: Option<End>, interrupted_by| Outcome {
            failure: failure.map(|end| RankFailure { rank: 1, end }),
            interrupted_by,
            reports: Vec::new(),
        };
        assert_eq!(outcome(None, None).exit_code(), 0);
        assert_eq!(outcome(Some(End::Code(7)), None).exit_code(), 7);
        assert_eq!(outcome(Some(End::Signal(9)), None).exit_code(), 137);
        assert_eq!(outcome(None, Some(2)).exit_code(), 130);
    }

    #[test]
    fn a_missing_program_is_named() {
        let error = Launch::program(2, "no-such-program").run().unwrap_err();
        assert_eq!(
            error.to_string(),
            "there is no program no-such-program: expected a path to an executable file, or a name in PATH"
        );
        assert!(matches!(Launch::this(0).run(), Err(LaunchError::NoRanks)));
    }
}
