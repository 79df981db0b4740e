//! The runtime of one rank.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    thread::JoinHandle,
    time::Instant,
};

use hcom_ir::{Attrs, DType, Graph, Group, Op, Type};
use rustc_hash::FxHashMap;

use crate::{
    Array, CompileOptions, Control, Error, Executable, Failure, FailureKind, Link, Settings, World,
    buffer::{Block, Pool},
    comm::{Comm, Key},
    eager::{self, Eager},
    joint,
    raw::{Driver, Event, Place, Stream, Workspace},
    replay::Captures,
    status,
    watchdog::Watchdog,
};

/// The runtime of one rank, which is a process or a thread. Clones share it.
///
/// Operations are issued in the order of the calls and executed later; what goes wrong in them is
/// reported by the next call that waits. After a failure of the job every call returns that failure.
#[derive(Clone)]
pub struct Runtime(Arc<Inner>);

/// Fields are dropped in this order, after [`Inner::drop`] has waited for the device.
pub(crate) struct Inner {
    launch: Mutex<Launch>,
    patrol: Mutex<Option<JoinHandle<()>>>,
    /// `None` on a host without such sockets: the job runs, and nobody can ask it.
    _status: Option<status::Server>,
    pub(crate) watchdog: Arc<Watchdog>,
    pub(crate) compute: Arc<Stream>,
    pub(crate) captures: Captures,
    pub(crate) pool: Pool,
    pub(crate) driver: Arc<Driver>,
    library: String,
    local_rank: u32,
    settings: Settings,
    pub(crate) control: Arc<dyn Control>,
}

/// What a launch changes; one thread launches at a time.
pub(crate) struct Launch {
    comms: FxHashMap<Key, Arc<Comm>>,
    /// The number of collectives issued so far in each group, and of transfers between two ranks.
    sequence: [FxHashMap<Vec<u32>, u64>; 2],
    /// The number of graphs compiled so far for each group, and for each pair of ranks.
    programs: [FxHashMap<Vec<u32>, u64>; 2],
    pub(crate) workspace: Workspace,
    pub(crate) eager: FxHashMap<eager::Key, Arc<Eager>>,
    /// Ends of the executions issued last.
    ends: [Option<Event>; RUNS_IN_FLIGHT],
    runs: usize,
}

/// How many executions of graphs the host may be ahead of the device.
const RUNS_IN_FLIGHT: usize = 2;

impl Runtime {
    /// Takes the place in the job that the environment names, see [`World::from_env`], on device
    /// `local_rank`. Without `RANK` the process is a world of one.
    ///
    /// # Errors
    /// [`Error::Start`] when the environment is wrong or a rank does not come, and the errors of
    /// [`Runtime::with_control`].
    pub fn start(settings: &Settings) -> Result<Runtime, Error> {
        let world = World::from_env()?;
        let control = crate::connect(&world, settings)?;
        Runtime::with_control(control, world.local_rank, settings)
    }

    /// Takes a place whose control plane exists, on device `local_rank`.
    ///
    /// # Errors
    /// [`Error::Load`] when no device library is found, [`Error::Missing`] when it is too old, and
    /// [`Error::Call`] when it has no such device.
    pub fn with_control(
        control: Arc<dyn Control>,
        local_rank: u32,
        settings: &Settings,
    ) -> Result<Runtime, Error> {
        let driver = Driver::open(settings.library.as_deref(), local_rank)?;
        let watchdog = Watchdog::new(&driver, control.clone(), settings)?;
        let compute = Arc::new(Stream::new(&driver)?);
        watchdog.guard(&compute);
        let library = match (driver.library().path(), driver.library().table()) {
            (Some(path), _) => path.display().to_string(),
            (None, Some(table)) => format!("{} {}", table.name, table.version),
            (None, None) => String::new(),
        };
        let patrol = (control.world_size() > 1)
            .then(|| watchdog.patrol())
            .transpose()
            .map_err(|source| Error::Thread { source })?;
        Ok(Runtime(Arc::new(Inner {
            launch: Mutex::new(Launch {
                comms: FxHashMap::default(),
                sequence: Default::default(),
                programs: Default::default(),
                workspace: Workspace::new(&driver),
                eager: FxHashMap::default(),
                ends: Default::default(),
                runs: 0,
            }),
            patrol: Mutex::new(patrol),
            _status: (control.world_size() > 1)
                .then(|| status::Server::start(&watchdog).ok())
                .flatten(),
            watchdog,
            compute,
            captures: Captures::default(),
            pool: Pool::new(&driver),
            driver,
            library,
            local_rank,
            settings: settings.clone(),
            control,
        })))
    }

    /// The own global rank.
    pub fn rank(&self) -> u32 {
        self.0.control.rank()
    }

    /// Number of ranks in the job.
    pub fn world_size(&self) -> u32 {
        self.0.control.world_size()
    }

    /// Where the device library comes from: its path, or name and version of a library that is
    /// part of the program.
    pub fn library(&self) -> &str {
        &self.0.library
    }

    /// Name of the chip, for example `Ascend910_9382`; `None` when the library does not tell.
    pub fn chip(&self) -> Option<String> {
        self.0.driver.soc()
    }

    /// Number of devices that this process can see.
    ///
    /// # Errors
    /// [`Error::Call`] when the library cannot tell.
    pub fn device_count(&self) -> Result<u32, Error> {
        self.0.driver.device_count()
    }

    /// Version of the library's programming interface (`aclrtGetVersion`): major, minor, patch; `None`
    /// when the library does not tell.
    pub fn interface_version(&self) -> Option<[i32; 3]> {
        self.0.driver.version()
    }

    /// The link whose times the library models instead of showing its own; `None` on a card, and on
    /// the CPU unless it was asked for. Figures measured under a modelled link must say so.
    pub fn link(&self) -> Option<Link> {
        self.0.driver.modelled_link()
    }

    /// Models `link`, or none, for work that is issued later in this process. Every rank of the job
    /// does the same.
    ///
    /// # Errors
    /// [`Error::Missing`] when the library cannot model links, as that of a card cannot, and
    /// [`Error::Call`] when a figure is negative or not finite.
    pub fn model_link(&self, link: Option<Link>) -> Result<(), Error> {
        self.0.driver.model_link(link)
    }

    /// The control plane.
    pub fn control(&self) -> &Arc<dyn Control> {
        &self.0.control
    }

    /// The settings it was started with.
    pub fn settings(&self) -> &Settings {
        &self.0.settings
    }

    /// An array with this content: little endian, row-major.
    ///
    /// # Errors
    /// [`Error::DataSize`] when `bytes` does not have the size of the array; device memory may be
    /// exhausted.
    pub fn array(&self, dtype: DType, shape: &[u64], bytes: &[u8]) -> Result<Array, Error> {
        let ty = Type::fixed(dtype, shape);
        let expected = ty.bytes().unwrap_or(u64::MAX);
        if expected != bytes.len() as u64 {
            return Err(Error::DataSize {
                ty: ty.to_string(),
                expected,
                got: bytes.len() as u64,
            });
        }
        let launch = self.0.begin()?;
        let (block, fresh) = Block::take(&self.0, expected)?;
        let place = block.place(expected);
        if !bytes.is_empty() {
            if !fresh {
                self.0.watchdog.wait(&self.0.compute)?;
            }
            place.write(bytes)?;
        }
        drop(launch);
        Ok(Array::new(block, dtype, shape))
    }

    /// An array of unspecified content.
    ///
    /// # Errors
    /// Device memory may be exhausted.
    pub fn empty(&self, dtype: DType, shape: &[u64]) -> Result<Array, Error> {
        let ty = Type::fixed(dtype, shape);
        let Some(bytes) = ty.bytes() else {
            return Err(Error::DataSize {
                ty: ty.to_string(),
                expected: u64::MAX,
                got: 0,
            });
        };
        let _launch = self.0.begin()?;
        self.0.empty(dtype, shape, bytes)
    }

    pub(crate) fn inner(&self) -> &Arc<Inner> {
        &self.0
    }

    /// Makes a graph whose sizes are all known ready to run.
    ///
    /// Every member of every group that the graph communicates in calls this at the same time: the
    /// ranks compare what they will do before any of them does it.
    ///
    /// # Errors
    /// [`Error::Failure`] when the ranks disagree or one does not come; [`Error::Unbound`],
    /// [`Error::NotMember`], [`Error::Unsupported`] and [`Error::Call`] for a graph that this rank
    /// or its device cannot execute.
    pub fn compile(&self, graph: &Graph, options: &CompileOptions) -> Result<Executable, Error> {
        Executable::compile(&self.0, graph, options)
    }

    /// A digest of a graph that [`varies_by_rank`](crate::varies_by_rank) together with those that
    /// the other members of its groups are about to launch: an executable made for one such
    /// combination does for no other.
    ///
    /// The members of the groups in which the graph has splits call this at the same time, before
    /// each launch. Its sizes are known.
    ///
    /// # Errors
    /// [`Error::Failure`] when a member does not come.
    pub fn joint_digest(&self, graph: &Graph) -> Result<[u8; 32], Error> {
        joint::digest(&self.0, graph)
    }

    /// Executes one operation now; `group` is the one of a collective, whose members all call this.
    /// `copy_to_input` writes its second operand.
    ///
    /// # Errors
    /// [`Error::Graph`] when operands and attributes do not fit the operation; otherwise as
    /// [`Runtime::compile`].
    pub fn eager(
        &self,
        op: Op,
        attrs: &Attrs,
        group: Option<&Group>,
        operands: &[&Array],
    ) -> Result<Vec<Array>, Error> {
        eager::execute(&self.0, op, attrs, group, operands)
    }

    /// Ends the job on all ranks, from any thread: calls that wait, here and on the other ranks, return
    /// a failure of kind [`Aborted`](FailureKind::Aborted) that names this rank and `reason`, and so do
    /// all later ones. A job that has failed keeps its failure, so that a second call changes nothing.
    pub fn abort(&self, reason: &str) {
        let rank = self.rank();
        self.0.watchdog.fail(Failure {
            ranks: vec![rank],
            got: Some(reason.to_owned()),
            ..Failure::new(FailureKind::Aborted, rank)
        });
    }

    /// Goes on without the ranks that are gone. All `survivors` (global ranks, the own one among them)
    /// call this with the same list; each gets a runtime in which nothing has failed, and the group of
    /// them all, in that order. Ranks keep their global ranks. What was made by this runtime (arrays,
    /// executables) keeps returning its failure; when it has not failed yet, it is aborted.
    ///
    /// The records of the new runtime go into the folder `survivors` inside of
    /// [`Settings::record_dir`], so that those of the failure stay.
    ///
    /// # Errors
    /// [`Error::Failure`] when a survivor does not come within [`Settings::connect_timeout`], is gone,
    /// or when the list does not hold the own rank; otherwise as [`Runtime::with_control`].
    pub fn shrink(&self, survivors: &[u32]) -> Result<(Runtime, Group), Error> {
        self.abort("the other ranks go on without it");
        let control = self.0.control.next_era();
        let deadline = Instant::now() + self.settings().connect_timeout;
        control
            .all_gather(survivors, "shrink", &[], deadline)
            .map_err(|error| Error::Failure(error.into_failure(self.rank())))?;
        let mut settings = self.settings().clone();
        if let Some(folder) = &mut settings.record_dir {
            folder.push("survivors");
        }
        let runtime = Runtime::with_control(control, self.0.local_rank, &settings)?;
        let group = Group::new("survivors", survivors.to_vec());
        Ok((runtime, group))
    }

    /// Waits until everything that was issued has been executed.
    ///
    /// # Errors
    /// What went wrong in it.
    pub fn synchronize(&self) -> Result<(), Error> {
        let _launch = self.0.begin()?;
        self.0.watchdog.wait(&self.0.compute)
    }
}

impl Inner {
    /// Begins to issue work: one thread at a time, with the device current, unless the job has
    /// failed or something that was dropped since had an error.
    pub(crate) fn begin(&self) -> Result<MutexGuard<'_, Launch>, Error> {
        let launch = self.launch.lock().unwrap_or_else(PoisonError::into_inner);
        self.driver.attach()?;
        self.watchdog.check()?;
        self.driver.noted()?;
        Ok(launch)
    }

    pub(crate) fn settings(&self) -> &Settings {
        &self.settings
    }

    pub(crate) fn empty(
        self: &Arc<Inner>,
        dtype: DType,
        shape: &[u64],
        bytes: u64,
    ) -> Result<Array, Error> {
        let (block, _) = Block::take(self, bytes)?;
        Ok(Array::new(block, dtype, shape))
    }

    pub(crate) fn read(&self, place: &Place, data: &mut [u8]) -> Result<(), Error> {
        let _launch = self.begin()?;
        self.watchdog.wait(&self.compute)?;
        if data.is_empty() {
            Ok(())
        } else {
            place.read(data)
        }
    }

    /// The communicator for `key`, made if it is not there. All members call this in the same
    /// order of keys.
    pub(crate) fn comm(
        &self,
        launch: &mut Launch,
        key: &Key,
        group: &Group,
    ) -> Result<Arc<Comm>, Error> {
        if let Some(comm) = launch.comms.get(key) {
            return Ok(comm.clone());
        }
        let comm = Comm::connect(
            key,
            group,
            &*self.control,
            &self.driver,
            &self.compute,
            &self.watchdog,
            &self.settings,
        )
        .map_err(|error| match error {
            Error::Control(error) => self.watchdog.fail(error.into_failure(self.control.rank())),
            error => self.watchdog.blame(error),
        })?;
        let comm = Arc::new(comm);
        launch.comms.insert(key.clone(), comm.clone());
        Ok(comm)
    }
}

impl Launch {
    /// The number of the next collective of a group, or of the next transfer between two ranks,
    /// counted from 1.
    pub(crate) fn next_seq(&mut self, ranks: &[u32], point_to_point: bool) -> u64 {
        self.take_seqs(ranks, point_to_point, 1) + 1
    }

    /// Takes the next `count` numbers of that kind. Returns the one before them.
    pub(crate) fn take_seqs(&mut self, ranks: &[u32], point_to_point: bool, count: u64) -> u64 {
        take(
            &mut self.sequence[usize::from(point_to_point)],
            ranks,
            count,
        )
    }

    /// The number of the next graph compiled for a group, or for a pair of ranks, counted from 1.
    pub(crate) fn next_program(&mut self, ranks: &[u32], point_to_point: bool) -> u64 {
        take(&mut self.programs[usize::from(point_to_point)], ranks, 1) + 1
    }

    /// Waits until the device has come close enough for another execution.
    pub(crate) fn throttle(&mut self, inner: &Inner) -> Result<(), Error> {
        match &self.ends[self.runs % RUNS_IN_FLIGHT] {
            Some(end) => inner.watchdog.wait_event(end),
            None => Ok(()),
        }
    }

    /// Marks the end of an execution on the compute stream.
    pub(crate) fn end_of_run(&mut self, inner: &Inner) -> Result<(), Error> {
        let slot = &mut self.ends[self.runs % RUNS_IN_FLIGHT];
        let end = match slot.take() {
            Some(end) => end,
            None => Event::new(&inner.driver)?,
        };
        end.record(&inner.compute)?;
        *slot = Some(end);
        self.runs += 1;
        Ok(())
    }
}

/// Adds `count` to the entry of `ranks`. Returns what it was.
fn take(counts: &mut FxHashMap<Vec<u32>, u64>, ranks: &[u32], count: u64) -> u64 {
    match counts.get_mut(ranks) {
        Some(entry) => {
            *entry += count;
            *entry - count
        }
        None => {
            counts.insert(ranks.to_vec(), count);
            0
        }
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.driver.note(self.driver.attach());
        // What is queued ends, or the watchdog ends it.
        let idle = self
            .watchdog
            .check()
            .and_then(|()| self.watchdog.wait(&self.compute));
        self.watchdog.stop();
        let patrol = self
            .patrol
            .get_mut()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        if let Some(patrol) = patrol {
            // The thread reports through the control plane; it has nothing to return.
            let _ = patrol.join();
        }
        self.watchdog.record(self.control.failure().as_ref());
        self.captures.reap(self);
        let launch = self
            .launch
            .get_mut()
            .unwrap_or_else(PoisonError::into_inner);
        if idle.is_err() {
            for comm in launch.comms.values() {
                self.driver.note(comm.destroy());
            }
        }
        launch.comms.clear();
    }
}
