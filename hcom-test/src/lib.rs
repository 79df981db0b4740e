//! Real ranks for tests: N processes or N threads that run one closure.
//!
//! ```no_run
//! # // A doctest is no test harness, so this one is only compiled.
//! use std::time::Duration;
//! use hcom_test::{Kind, ranks};
//!
//! #[test]
//! fn everyone_has_a_number() {
//!     ranks(4, Kind::Processes, Duration::from_secs(10), |rank| {
//!         assert!(rank.rank() < rank.world_size());
//!     });
//! }
//! ```
//!
//! Rank processes are this very test binary, started again for this one test; the call of
//! [`ranks`] recognises that it is inside a rank, runs the closure and ends the process. So code
//! before the call runs in the parent and in every rank, and code after it only in the parent.
//!
//! # What holds
//! - A rank that panics, exits early or hangs fails the test, which shows what the rank printed.
//! - No process outlives the call or the test binary.
//! - Rank processes find `RANK`, `WORLD_SIZE`, `LOCAL_RANK`, `MASTER_ADDR` and `MASTER_PORT` in their
//!   environment. The socket of that port stays open from here to rank 0, which inherits it, so
//!   jobs running side by side never meet on a port.
//!
//! # What it does not do
//! It starts no Python, uses no network beyond the loopback interface and keeps no files. A thread
//! cannot be killed: a thread that hangs is left behind when its test has failed.
//!
//! Modules: `process` starts rank processes, `thread` rank threads; with the feature `programs`,
//! `program` makes random programs of several ranks and `oracle` runs them every way there is.

use std::{
    any::{Any, TypeId},
    cell::Cell,
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

#[cfg(feature = "programs")]
mod oracle;
mod process;
#[cfg(feature = "programs")]
mod program;
mod thread;

#[cfg(feature = "programs")]
pub use oracle::{Way, check, compare};
#[cfg(feature = "programs")]
pub use program::Program;

/// What a rank is made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// Each rank is a process.
    Processes,
    /// Each rank is a thread of the test process.
    Threads,
}

impl Kind {
    /// Both kinds, for tests that must hold for both.
    pub const ALL: [Kind; 2] = [Kind::Processes, Kind::Threads];
}

/// Runs `f` on `n` ranks and waits for all of them.
///
/// # Panics
/// When a rank panics, ends early or does not end within `timeout`; the message holds the output of
/// the ranks. Rank processes need the test harness of Rust (its threads carry the name of the test).
#[track_caller]
pub fn ranks(n: u32, kind: Kind, timeout: Duration, f: impl Fn(Rank) + Send + Sync + 'static) {
    Job::new(n, kind, timeout).run(f);
}

/// Ranks with an environment of their own; [`ranks`] is the short form.
#[derive(Clone, Debug)]
pub struct Job {
    ranks: u32,
    kind: Kind,
    timeout: Duration,
    copies: u32,
    variables: Vec<(String, String)>,
}

impl Job {
    /// `ranks` ranks that must all end within `timeout`.
    pub fn new(ranks: u32, kind: Kind, timeout: Duration) -> Job {
        Job {
            ranks,
            kind,
            timeout,
            copies: 1,
            variables: Vec::new(),
        }
    }

    /// Runs this many such jobs at the same time; [`Rank::job`] tells them apart.
    pub fn copies(mut self, copies: u32) -> Job {
        self.copies = copies;
        self
    }

    /// Sets an environment variable in every rank process.
    ///
    /// # Panics
    /// When the ranks are threads, which share the environment of the test.
    #[track_caller]
    pub fn env(mut self, name: &str, value: &str) -> Job {
        assert_eq!(self.kind, Kind::Processes, "threads share one environment");
        self.variables.push((name.into(), value.into()));
        self
    }

    /// Runs `f` on every rank and waits for all of them. Panics as [`ranks`] does.
    #[track_caller]
    pub fn run(&self, f: impl Fn(Rank) + Send + Sync + 'static) {
        let call = CALLS.replace(CALLS.get() + 1);
        let result = match process::Place::from_env() {
            Some(place) => return place.run(call, self, f),
            None => self.start(call, f),
        };
        if let Err(report) = result {
            panic!("{report}");
        }
    }

    /// Runs all copies; an error is a report for the user.
    fn start(&self, call: u32, f: impl Fn(Rank) + Send + Sync + 'static) -> Result<(), String> {
        let test = std::thread::current().name().unwrap_or("main").to_string();
        let f = Arc::new(f);
        std::thread::scope(|scope| {
            let copies: Vec<_> = (0..self.copies)
                .map(|job| {
                    let (test, f) = (&test, f.clone());
                    scope.spawn(move || match self.kind {
                        Kind::Processes => process::run(call, job, self, test),
                        Kind::Threads => thread::run(job, self, test, f),
                    })
                })
                .collect();
            let ends = copies.into_iter().map(|copy| match copy.join() {
                Ok(end) => end,
                Err(panic) => std::panic::resume_unwind(panic),
            });
            ends.collect()
        })
    }
}

thread_local! {
    /// Calls of `run` on this test thread, so that a rank process knows which one it belongs to.
    static CALLS: Cell<u32> = const { Cell::new(0) };
}

/// One rank of a running job.
pub struct Rank {
    job: u32,
    rank: u32,
    world_size: u32,
    kind: Kind,
    shared: Shared,
    #[cfg(feature = "control")]
    control: std::sync::OnceLock<Arc<dyn hcom_runtime::Control>>,
}

/// Values that rank threads share, one per type.
type Shared = Arc<Mutex<HashMap<TypeId, Arc<dyn Any + Send + Sync>>>>;

impl Rank {
    fn new(job: u32, rank: u32, world_size: u32, kind: Kind, shared: Shared) -> Rank {
        Rank {
            job,
            rank,
            world_size,
            kind,
            shared,
            #[cfg(feature = "control")]
            control: std::sync::OnceLock::new(),
        }
    }

    /// The number of this job, from 0, among the [copies](Job::copies) of it.
    pub fn job(&self) -> u32 {
        self.job
    }

    /// The number of this rank, from 0.
    pub fn rank(&self) -> u32 {
        self.rank
    }

    /// Number of ranks in the job.
    pub fn world_size(&self) -> u32 {
        self.world_size
    }

    /// What the ranks are made of.
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// The one value of type `T` of this job, made by whichever rank asks first. Rank threads share
    /// it; a rank process has its own.
    pub fn shared<T: Send + Sync + 'static>(&self, make: impl FnOnce() -> T) -> Arc<T> {
        let mut shared = self.shared.lock().unwrap_or_else(PoisonError::into_inner);
        let value = shared
            .entry(TypeId::of::<T>())
            .or_insert_with(|| Arc::new(make()))
            .clone();
        value.downcast().expect("the key is the type of the value")
    }

    /// The control plane of this rank, the same one at every call. It says goodbye when this rank
    /// and all other holders have dropped it.
    ///
    /// # Panics
    /// When the ranks do not find each other.
    #[cfg(feature = "control")]
    #[track_caller]
    pub fn control(&self) -> Arc<dyn hcom_runtime::Control> {
        let connect = || match self.kind {
            Kind::Threads => {
                let world_size = self.world_size;
                let endpoints = self.shared(|| {
                    let endpoints = hcom_runtime::InProcess::new(world_size);
                    Mutex::new(endpoints.into_iter().map(Some).collect::<Vec<_>>())
                });
                let mut endpoints = endpoints.lock().unwrap_or_else(PoisonError::into_inner);
                endpoints[self.rank as usize]
                    .take()
                    .expect("each rank asks for its own once")
            }
            Kind::Processes => connect_process().unwrap_or_else(|error| panic!("{error}")),
        };
        self.control.get_or_init(connect).clone()
    }

    /// Ends this rank process with SIGKILL, as a crash would. The job accepts this death.
    ///
    /// # Panics
    /// When the ranks are threads.
    pub fn kill_self(&self) -> ! {
        assert_eq!(self.kind, Kind::Processes, "a thread cannot be killed");
        process::kill_self()
    }
}

#[cfg(feature = "control")]
fn connect_process() -> Result<Arc<dyn hcom_runtime::Control>, hcom_runtime::StartError> {
    let settings = hcom_runtime::Settings::from_env()?;
    hcom_runtime::connect(&hcom_runtime::World::from_env()?, &settings)
}
