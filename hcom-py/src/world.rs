//! The members of a process group, and what they execute together.

use std::{
    net::TcpListener,
    path::PathBuf,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
        mpsc::{RecvTimeoutError, sync_channel},
    },
    time::Duration,
};

use hcom_ir::{
    Builder, DType, Graph, Group, ValueId,
    order::{self, Row},
};
use hcom_runtime::{Array, Error, Fence, Master, Runtime, Settings, World as Place, crosscheck};
use pyo3::{prelude::*, types::PyCapsule};
use rustc_hash::{FxHashMap, FxHashSet};

use crate::{
    call::{Sized, Spec},
    error::{CollectiveError, invalid, raise},
    torch::{Dense, lend},
};

/// How long a wait lasts before the interpreter may look after its signals.
const SLICE: Duration = Duration::from_millis(100);

/// A socket at which the first rank of a group waits for the others.
#[pyclass]
pub(crate) struct Listener {
    socket: Arc<TcpListener>,
    port: u16,
}

#[pymethods]
impl Listener {
    /// Listens at a free port of all interfaces.
    #[new]
    fn new() -> PyResult<Listener> {
        let socket = TcpListener::bind(("0.0.0.0", 0))?;
        let port = socket.local_addr()?.port();
        Ok(Listener {
            socket: Arc::new(socket),
            port,
        })
    }

    /// The port.
    #[getter]
    fn port(&self) -> u16 {
        self.port
    }
}

/// This rank's place among the members of a group.
#[pyclass(frozen)]
pub(crate) struct World(Arc<Inner>);

struct Inner {
    runtime: Runtime,
    group: Group,
    /// The other rank, where the world serves transfers between two.
    peer: Option<u32>,
    state: Mutex<State>,
    /// The communicator exists, so that issuing work does not wait for the others.
    warm: AtomicBool,
}

#[derive(Default)]
struct State {
    specs: FxHashMap<String, Arc<Spec>>,
    calls: FxHashMap<(String, Vec<u64>), Arc<Prepared>>,
    /// Hashes of the sequences of calls that were compared with the other members.
    compared: FxHashSet<[u8; 32]>,
    flights: FxHashMap<u64, Flight>,
    last: u64,
    /// Arrays for inputs that the device does not use, by element type and shape.
    idle: FxHashMap<(DType, Vec<u64>), Vec<Array>>,
    fences: Vec<Fence>,
}

/// A call that was checked and converted.
struct Prepared {
    spec: Arc<Spec>,
    call: Sized,
    graph: Arc<Graph>,
}

/// A call that was issued.
struct Flight {
    call: Arc<Prepared>,
    inputs: Vec<Array>,
    outputs: Vec<Array>,
    fence: Fence,
}

#[pymethods]
impl World {
    /// Meets the other members: `rank` of `size`, on device `device`; rank 0 has the `listener`, whose
    /// port the others name. `job` tells groups apart that meet at one address. A `pair` serves the
    /// transfers between its two members.
    #[staticmethod]
    #[pyo3(signature = (name, rank, size, device, host, port, job, listener=None, library=None, pair=false))]
    #[expect(
        clippy::too_many_arguments,
        reason = "one call from Python, by keyword"
    )]
    fn meet(
        py: Python<'_>,
        name: String,
        rank: u32,
        size: u32,
        device: u32,
        host: String,
        port: u16,
        job: String,
        listener: Option<&Listener>,
        library: Option<PathBuf>,
        pair: bool,
    ) -> PyResult<World> {
        let mut settings = Settings::from_env().map_err(invalid)?;
        settings.library = library;
        let place = Place {
            rank,
            world_size: size,
            local_rank: device,
            master: (size > 1).then(|| Master {
                host,
                port,
                job,
                listener: listener.map(|listener| listener.socket.clone()),
            }),
        };
        let met = interruptible(py, move || {
            let control = hcom_runtime::connect(&place, &settings)?;
            Runtime::with_control(control, place.local_rank, &settings)
        })?;
        let runtime = met.map_err(|error| raise(&error, ""))?;
        Ok(World(Arc::new(Inner {
            runtime,
            group: Group::new(name, (0..size).collect::<Vec<u32>>()),
            peer: pair.then_some(1 - rank.min(1)),
            state: Mutex::default(),
            warm: AtomicBool::new(false),
        })))
    }

    /// Compares a sequence of calls with what the other members will do, unless it was compared before;
    /// all of them call this.
    fn check(&self, py: Python<'_>, calls: Vec<(String, Vec<u64>)>) -> PyResult<()> {
        let mut builder = Builder::new("program");
        for (text, sizes) in &calls {
            let spec = self.0.spec(text)?;
            if spec.compared_each_time() {
                continue;
            }
            let call = Sized::new(&spec, sizes, self.0.peer)?;
            call.push(&mut builder, &self.0.group, self.0.runtime.rank())?;
        }
        let graph = builder.finish(Vec::new()).map_err(invalid)?;
        // What decides is what the ranks have in common, so that all of them compare or none does.
        let rows: Vec<Row> = graph
            .groups()
            .flat_map(|(group, _)| order::rows(&graph, group))
            .map(|(_, row)| row)
            .collect();
        let key = order::rows_hash(&rows);
        if rows.is_empty() || self.0.state().compared.contains(&key) {
            return Ok(());
        }
        self.0.compare(py, Arc::new(graph), "")?;
        self.0.state().compared.insert(key);
        Ok(())
    }

    /// Issues a call. `inputs` are the addresses of dense tensors, which are copied before this
    /// returns. Returns the ticket to wait with.
    fn start(
        &self,
        py: Python<'_>,
        spec: &str,
        sizes: Vec<u64>,
        inputs: Vec<usize>,
    ) -> PyResult<u64> {
        let call = self.0.prepare(spec, sizes)?;
        if call.spec.compared_each_time() {
            self.0.compare(py, call.graph.clone(), &call.spec.at)?;
        }
        if inputs.len() != call.call.inputs.len() {
            return Err(invalid(format!(
                "{}: {} inputs",
                call.spec.call,
                inputs.len()
            )));
        }
        let data = Dense::arguments(&inputs, &call.call.inputs).ok_or_else(|| {
            invalid(format!(
                "{}: an input has more than 2^63 bytes",
                call.spec.call
            ))
        })?;
        let at = call.spec.clone();
        let inner = self.0.clone();
        let issue = move || inner.issue(call, &data);
        let issued = if self.0.warm.load(Ordering::Acquire) {
            py.detach(issue)
        } else {
            let issued = interruptible(py, issue)?;
            self.0.warm.store(issued.is_ok(), Ordering::Release);
            issued
        };
        issued.map_err(|error| raise(&error, &at.at))
    }

    /// Waits for a call and returns its outputs as DLPack capsules.
    fn wait<'py>(&self, py: Python<'py>, ticket: u64) -> PyResult<Vec<Bound<'py, PyCapsule>>> {
        let flight = self.0.state().flights.remove(&ticket).ok_or_else(|| {
            CollectiveError::new_err(format!("collective {ticket} was waited for twice"))
        })?;
        let flight = flight.arrive(py)?;
        let outputs = flight.outputs.clone();
        self.0.retire(flight);
        outputs.into_iter().map(|array| lend(py, array)).collect()
    }

    /// The ranks and what the library is, for people.
    fn __repr__(&self) -> String {
        format!(
            "World({}, rank {} of {}, {})",
            self.0.group.name,
            self.0.runtime.rank(),
            self.0.runtime.world_size(),
            self.0.runtime.library()
        )
    }
}

impl Flight {
    /// Waits until the device is done, signals in between.
    fn arrive(self, py: Python<'_>) -> PyResult<Flight> {
        loop {
            let done = py.detach(|| self.fence.wait(SLICE));
            if done.map_err(|error| raise(&error, &self.call.spec.at))? {
                return Ok(self);
            }
            py.check_signals()?;
        }
    }
}

impl Inner {
    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn spec(&self, text: &str) -> PyResult<Arc<Spec>> {
        if let Some(known) = self.state().specs.get(text) {
            return Ok(known.clone());
        }
        let spec = Arc::new(Spec::parse(text)?);
        self.state().specs.insert(text.to_owned(), spec.clone());
        Ok(spec)
    }

    fn prepare(&self, text: &str, sizes: Vec<u64>) -> PyResult<Arc<Prepared>> {
        let key = (text.to_owned(), sizes);
        if let Some(known) = self.state().calls.get(&key) {
            return Ok(known.clone());
        }
        let spec = self.spec(text)?;
        let call = Sized::new(&spec, &key.1, self.peer)?;
        let graph = Arc::new(call.graph(&self.group, self.runtime.rank())?);
        let prepared = Arc::new(Prepared { spec, call, graph });
        self.state().calls.insert(key, prepared.clone());
        Ok(prepared)
    }

    fn compare(self: &Arc<Inner>, py: Python<'_>, graph: Arc<Graph>, at: &str) -> PyResult<()> {
        let inner = self.clone();
        let compared = interruptible(py, move || {
            let timeout = inner.runtime.settings().timeout;
            crosscheck::check(&**inner.runtime.control(), &graph, &[], timeout)
        })?;
        compared
            .map(drop)
            .map_err(|failure| raise(&Error::Failure(failure), at))
    }

    /// Copies the inputs and issues the call.
    fn issue(&self, call: Arc<Prepared>, data: &[Dense]) -> Result<u64, Error> {
        self.collect();
        let mut inputs = Vec::with_capacity(data.len());
        for (data, ty) in data.iter().zip(&call.call.inputs) {
            let key = (ty.dtype, ty.shape.as_fixed().unwrap_or_default());
            let idle = self.state().idle.get_mut(&key).and_then(Vec::pop);
            let array = match idle {
                Some(array) => array,
                None => self.staging(key.0, &key.1)?,
            };
            data.copy_to(&array)?;
            inputs.push(array);
        }
        let mut values: FxHashMap<ValueId, Array> = call
            .graph
            .inputs()
            .iter()
            .map(|input| input.value)
            .zip(inputs.iter().cloned())
            .collect();
        for (_, node) in call.graph.nodes() {
            let operands: Vec<&Array> = node.operands.iter().map(|value| &values[value]).collect();
            let over = node.group().map(|group| call.graph.group(group));
            let results = self.runtime.eager(node.op, &node.attrs, over, &operands)?;
            values.extend(node.results.iter().copied().zip(results));
        }
        let used = call.graph.outputs().iter().filter(|_| !call.spec.unused);
        let outputs = used.map(|value| values[value].clone()).collect();
        let spare = self.state().fences.pop();
        let fence = match spare {
            Some(fence) => {
                fence.set()?;
                fence
            }
            None => self.runtime.fence()?,
        };
        let mut state = self.state();
        state.last += 1;
        let ticket = state.last;
        state.flights.insert(
            ticket,
            Flight {
                call,
                inputs,
                outputs,
                fence,
            },
        );
        Ok(ticket)
    }

    /// An array that nothing uses: memory from the pool may still be in use by work that was issued.
    fn staging(&self, dtype: DType, shape: &[u64]) -> Result<Array, Error> {
        let array = self.runtime.empty(dtype, shape)?;
        self.runtime.synchronize()?;
        Ok(array)
    }

    /// Keeps what a finished call leaves for the next one.
    fn retire(&self, flight: Flight) {
        let mut state = self.state();
        for array in flight.inputs {
            // An output may be the input itself, as that of a broadcast on its root; then torch has it.
            if !flight
                .outputs
                .iter()
                .any(|output| output.same_memory(&array))
            {
                let key = (array.dtype(), array.shape().to_vec());
                state.idle.entry(key).or_default().push(array);
            }
        }
        state.fences.push(flight.fence);
    }

    /// Retires calls that are done and that nobody waits for.
    fn collect(&self) {
        let mut state = self.state();
        if state.flights.len() < MOST_UNCOLLECTED {
            return;
        }
        let oldest = state.last.saturating_sub(MOST_UNCOLLECTED as u64);
        let done: Vec<u64> = state
            .flights
            .iter()
            .filter(|(ticket, flight)| {
                **ticket <= oldest
                    && flight.outputs.is_empty()
                    && flight.fence.reached().unwrap_or(false)
            })
            .map(|(ticket, _)| *ticket)
            .collect();
        let done: Vec<Flight> = done
            .iter()
            .filter_map(|ticket| state.flights.remove(ticket))
            .collect();
        drop(state);
        for flight in done {
            self.retire(flight);
        }
    }
}

/// Calls in flight before those that nobody waits for are looked at.
const MOST_UNCOLLECTED: usize = 64;

/// Runs `f`, which may wait for other ranks, on a thread of its own while this one looks after the
/// interpreter's signals. After an interrupt `f` goes on until its own time limit.
fn interruptible<T: Send + 'static>(
    py: Python<'_>,
    f: impl FnOnce() -> T + Send + 'static,
) -> PyResult<T> {
    let (sender, receiver) = sync_channel(1);
    let receiver = Mutex::new(receiver);
    std::thread::Builder::new()
        .name("hcom-meeting".into())
        .spawn(move || {
            // Nobody listens any more after an interrupt.
            let _ = sender.send(f());
        })?;
    loop {
        let received = py.detach(|| {
            let receiver = receiver.lock().unwrap_or_else(PoisonError::into_inner);
            receiver.recv_timeout(SLICE)
        });
        match received {
            Ok(result) => return Ok(result),
            Err(RecvTimeoutError::Timeout) => py.check_signals()?,
            Err(RecvTimeoutError::Disconnected) => {
                return Err(CollectiveError::new_err(
                    "the thread that waits for the other ranks ended",
                ));
            }
        }
    }
}
