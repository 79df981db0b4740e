//! Compiled graphs and their execution.
//!
//! Compiling makes everything that does not change between executions: the plan, its memory, its
//! communicators and events, the constants on the device and the description of every operator. An
//! execution then walks through the steps of the plan, or replays their capture. It allocates nothing
//! but the outputs.

use std::sync::{
    Arc, Mutex, PoisonError,
    atomic::{AtomicU64, Ordering},
};

use hcom_ir::{Class, CostModel, Graph, Op, ValueId};

use crate::{
    Array, Error, Mode, Plan, Trace,
    bound::Bound,
    control::Run,
    crosscheck::{self, Uniformity},
    eager,
    load::{Loaded, Outside, Way},
    plan::{Step, Work, check},
    raw::Event,
    replay::{self, Replay},
    runtime::Inner,
    timeline::{Kind, Span},
};

/// How a graph is compiled.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct CompileOptions {
    /// How the plan is laid out over streams.
    pub mode: Mode,
    /// What the graph is called in messages and pictures; empty for the graph's own name.
    pub name: String,
    /// The times that the order of execution is planned with, equal on all ranks; `None` for those
    /// of the device that is in use.
    pub cost: Option<CostModel>,
}

/// A graph that is ready to run. Clones share it; executions of one executable come one after the
/// other.
#[derive(Clone)]
pub struct Executable(Arc<Shared>);

struct Shared {
    inner: Arc<Inner>,
    graph: Graph,
    plan: Plan,
    uniformity: Uniformity,
    name: String,
    /// Inputs that an execution writes.
    written: Vec<usize>,
    /// For each channel of the plan, which of the graphs compiled for its group this is.
    programs: Vec<u64>,
    loaded: Mutex<Loaded>,
    /// Executions issued so far. Changed while `loaded` is locked.
    runs: AtomicU64,
    /// The capture, in [`Mode::Replay`].
    replay: Option<Replay>,
    /// Why there is none.
    fallback: Option<String>,
    /// The shortest measured microseconds of each task.
    measured: Mutex<Vec<Option<f64>>>,
}

impl Executable {
    pub(crate) fn compile(
        inner: &Arc<Inner>,
        graph: &Graph,
        options: &CompileOptions,
    ) -> Result<Executable, Error> {
        if !graph.is_fixed() {
            return Err(eager::unbound(graph));
        }
        let mut launch = inner.begin()?;
        let control = &*inner.control;
        let rank = control.rank();
        let cost = match &options.cost {
            Some(cost) => cost.clone(),
            None => inner.driver.cost_model(),
        };
        // Everything that decides the plan besides the graph.
        let settings = (options.mode.name(), env!("CARGO_PKG_VERSION"), &cost);
        let settings = postcard::to_allocvec(&settings).expect("plain data has a form as bytes");
        let timeout = inner.settings().timeout;
        let uniformity = crosscheck::check(control, graph, &settings, timeout)
            .map_err(|failure| inner.watchdog.fail(failure))?;
        let plan = Plan::new(graph, rank, options.mode, &uniformity, &cost)?;
        check::check(graph, &plan, uniformity != Uniformity::Uniform).map_err(|violation| {
            Error::Plan {
                graph: graph.name().to_owned(),
                violation,
            }
        })?;
        let programs = plan
            .tasks
            .channels
            .iter()
            .map(|channel| launch.next_program(&channel.group.ranks, channel.point_to_point))
            .collect();
        let loaded = Loaded::new(inner, &mut launch, graph, &plan)?;
        let written = (0..graph.inputs().len())
            .filter(|&input| {
                let value = graph.inputs()[input].value;
                graph
                    .nodes()
                    .any(|(_, node)| node.op == Op::CopyToInput && node.operands[1] == value)
            })
            .collect();
        let name = if options.name.is_empty() {
            graph.name()
        } else {
            &options.name
        };
        let mut shared = Shared {
            inner: inner.clone(),
            graph: graph.clone(),
            uniformity,
            name: name.to_owned(),
            written,
            programs,
            loaded: Mutex::new(loaded),
            runs: AtomicU64::new(0),
            replay: None,
            fallback: None,
            measured: Mutex::new(vec![None; plan.durations_us.len()]),
            plan,
        };
        if options.mode == Mode::Replay {
            shared.capture()?;
        }
        drop(launch);
        Ok(Executable(Arc::new(shared)))
    }

    /// Issues one execution and returns its outputs: fresh arrays, in the order of the graph.
    /// Inputs that the graph writes are written in place. The call returns before the device is
    /// done; reading an array waits for it.
    ///
    /// # Errors
    /// [`Error::InputCount`], [`Error::InputType`], [`Error::InputAlias`] and
    /// [`Error::ForeignArray`] before anything is issued. [`Error::Failure`] when the job has
    /// failed, or fails because this execution cannot be issued completely.
    pub fn run(&self, inputs: &[Array]) -> Result<Vec<Array>, Error> {
        self.0.execute(inputs, None)
    }

    /// Executes once with timestamps around every piece of work, and waits for the end. Returns what
    /// this rank did; [`Trace::merge`] puts several ranks together. All ranks that share collectives
    /// run at the same time, traced or not. In [`Mode::Replay`] a traced execution is launched step
    /// by step, and all of those ranks trace it.
    ///
    /// # Errors
    /// As [`Executable::run`], and what goes wrong in the execution.
    pub fn run_traced(&self, inputs: &[Array]) -> Result<(Vec<Array>, Trace), Error> {
        let mut times = Times::new(&self.0)?;
        let outputs = self.0.execute(inputs, Some(&mut times))?;
        {
            let _launch = self.0.inner.begin()?;
            self.0.inner.watchdog.wait(&self.0.inner.compute)?;
        }
        let trace = times.trace(&self.0)?;
        self.observe(&trace);
        Ok((outputs, trace))
    }

    /// Lets [`Executable::bound_us`] use the times of a trace of this executable, on this rank or
    /// merged with others. The shortest time of each piece of work counts. Times of collectives
    /// count only where a merge told the wait for peers from the transfer.
    pub fn observe(&self, trace: &Trace) {
        let mut measured = self
            .0
            .measured
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        for span in &trace.spans {
            if span.kind == Kind::Communication && span.wait_us.is_none() {
                continue;
            }
            if let Some(shortest) = measured.get_mut(span.task) {
                let time = span.work_us();
                *shortest = Some(shortest.map_or(time, |shortest| shortest.min(time)));
            }
        }
    }

    /// The arrays that the capture of a graph in [`Mode::Replay`] reads its inputs from; `None` when
    /// there is no capture. They live as long as the executable. An execution that is given one of
    /// them in its place does not copy it: what stays the same from execution to execution, such as
    /// weights, is written there once.
    pub fn captured_inputs(&self) -> Option<&[Array]> {
        self.0.replay.as_ref().map(Replay::inputs)
    }

    /// Why a graph that was compiled with [`Mode::Replay`] is launched step by step all the same.
    pub fn fallback(&self) -> Option<&str> {
        self.0.fallback.as_deref()
    }

    /// The graph.
    pub fn graph(&self) -> &Graph {
        &self.0.graph
    }

    /// The name given in the options, or that of the graph.
    pub fn name(&self) -> &str {
        &self.0.name
    }

    /// Whether all ranks that share groups have the same graph.
    pub fn uniformity(&self) -> &Uniformity {
        &self.0.uniformity
    }

    /// The plan.
    pub fn plan(&self) -> &Plan {
        &self.0.plan
    }

    /// Number of collectives, sends, receives and barriers that involve other ranks.
    pub fn collectives(&self) -> usize {
        self.0.plan.collectives()
    }

    /// No order of execution on these streams can be faster than this, in microseconds.
    pub fn bound_us(&self) -> f64 {
        self.bound().us()
    }

    /// The parts of the lower bound, and whether they are measured.
    pub fn bound(&self) -> Bound {
        let measured = self
            .0
            .measured
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        Bound::new(&self.0.plan, &measured)
    }
}

/// Pairs of events around each task of one execution.
struct Times {
    origin: Event,
    around: Vec<[Event; 2]>,
    sequence: Vec<u64>,
}

impl Times {
    fn new(shared: &Shared) -> Result<Times, Error> {
        let _launch = shared.inner.begin()?;
        let driver = &shared.inner.driver;
        let tasks = shared.plan.tasks.tasks.len();
        Ok(Times {
            origin: Event::timed(driver)?,
            around: (0..tasks)
                .map(|_| Ok([Event::timed(driver)?, Event::timed(driver)?]))
                .collect::<Result<_, Error>>()?,
            sequence: vec![0; tasks],
        })
    }

    fn trace(&self, shared: &Shared) -> Result<Trace, Error> {
        let (graph, plan) = (&shared.graph, &shared.plan);
        let rank = shared.inner.control.rank();
        let origin = self.origin.timestamp_us()?;
        let mut spans = Vec::with_capacity(self.around.len());
        for (index, [begin, end]) in self.around.iter().enumerate() {
            let task = &plan.tasks.tasks[index];
            let (name, detail, kind, bytes) = describe(graph, task.work);
            let channel = task.channel.map(|channel| &plan.tasks.channels[channel]);
            spans.push(Span {
                rank,
                task: index,
                stream: plan.lane_of[index],
                name,
                kind,
                detail,
                begin_us: origin + self.origin.until_us(begin)?,
                end_us: origin + self.origin.until_us(end)?,
                bytes,
                collective: channel
                    .filter(|channel| !channel.point_to_point)
                    .map(|channel| (channel.group.name.clone(), self.sequence[index])),
                wait_us: None,
            });
        }
        Ok(Trace {
            title: format!("{} ({})", shared.name, plan.mode.name()),
            notes: shared
                .inner
                .driver
                .modelled_link()
                .map(|link| link.to_string())
                .into_iter()
                .collect(),
            streams: plan.lanes.iter().map(|lane| lane.name.clone()).collect(),
            groups: plan
                .tasks
                .channels
                .iter()
                .filter(|channel| !channel.point_to_point)
                .map(|channel| (channel.group.name.clone(), channel.group.group_size()))
                .collect(),
            spans,
        })
    }
}

fn describe(graph: &Graph, work: Work) -> (String, String, Kind, u64) {
    let bytes_of = |value| graph.ty(value).bytes().unwrap_or(0);
    match work {
        Work::Node(id) => {
            let node = graph.node(id);
            let kind = match (node.op.class(), node.op) {
                (Class::Collective | Class::PointToPoint | Class::Barrier, _) => {
                    Kind::Communication
                }
                (_, Op::Matmul | Op::Attention) => Kind::Matrix,
                (Class::Write | Class::View, _)
                | (
                    _,
                    Op::Copy
                    | Op::Transpose
                    | Op::Slice
                    | Op::Concat
                    | Op::Split
                    | Op::Expand
                    | Op::Pad
                    | Op::Embedding
                    | Op::Gather,
                ) => Kind::Movement,
                _ => Kind::Vector,
            };
            let values = node.operands.iter().chain(&node.results);
            let bytes = values.map(|&value| bytes_of(value)).sum();
            (node.op.name().to_owned(), graph.print_node(id), kind, bytes)
        }
        Work::CopyOut { output, value } => {
            let name = &graph.value(value).name;
            let detail = format!("copy %{name} to output {output}");
            (
                "copy".to_owned(),
                detail,
                Kind::Movement,
                2 * bytes_of(value),
            )
        }
        Work::Snapshot { value } => {
            let detail = format!("keep the old value of %{}", graph.value(value).name);
            (
                "copy".to_owned(),
                detail,
                Kind::Movement,
                2 * bytes_of(value),
            )
        }
    }
}

impl Shared {
    fn check_inputs(&self, inputs: &[Array]) -> Result<(), Error> {
        let declared = self.graph.inputs();
        if inputs.len() != declared.len() {
            return Err(Error::InputCount {
                graph: self.name.clone(),
                expected: declared.len(),
                got: inputs.len(),
            });
        }
        for (input, array) in declared.iter().zip(inputs) {
            let expected = self.graph.ty(input.value);
            if expected != array.ty() {
                return Err(Error::InputType {
                    input: input.name.clone(),
                    expected: expected.to_string(),
                    got: array.ty().to_string(),
                });
            }
            if !Arc::ptr_eq(array.runtime(), &self.inner) {
                return Err(Error::ForeignArray {
                    owner: array.runtime().control.rank(),
                    rank: self.inner.control.rank(),
                });
            }
        }
        for &written in &self.written {
            let other = (0..inputs.len())
                .find(|&other| other != written && inputs[other].same_memory(&inputs[written]));
            if let Some(other) = other {
                return Err(Error::InputAlias {
                    written: declared[written].name.clone(),
                    other: declared[other].name.clone(),
                });
            }
        }
        Ok(())
    }

    fn execute(&self, inputs: &[Array], times: Option<&mut Times>) -> Result<Vec<Array>, Error> {
        self.check_inputs(inputs)?;
        let mut loaded = self.loaded.lock().unwrap_or_else(PoisonError::into_inner);
        let mut launch = self.inner.begin()?;
        launch.throttle(&self.inner)?;
        let outputs = self.arrays(self.graph.outputs().iter().copied())?;
        let outside = Outside {
            inputs,
            outputs: &outputs,
        };
        let replay = self.replay.as_ref().filter(|_| times.is_none());
        let runs = self.runs(replay.is_some());
        let issued = match replay {
            Some(replay) => replay.run(&mut launch, &self.plan, &outside, &self.written, &runs),
            None => {
                let mut way = Way::Device {
                    launch: &mut launch,
                    runs: &runs,
                };
                self.issue(&mut loaded, &mut way, &outside, times)
            }
        };
        issued
            .and_then(|()| launch.end_of_run(&self.inner))
            .map_err(|error| {
                // The other ranks are inside of collectives that this one will not reach.
                if self.plan.collectives() > 0 {
                    self.inner.watchdog.blame(error)
                } else {
                    error
                }
            })?;
        Ok(outputs)
    }

    /// Arrays of unspecified content with the types of these values.
    fn arrays(&self, values: impl Iterator<Item = ValueId>) -> Result<Vec<Array>, Error> {
        values
            .map(|value| {
                let ty = self.graph.ty(value);
                let shape = ty.shape.as_fixed().unwrap_or_default();
                self.inner.empty(ty.dtype, &shape, ty.bytes().unwrap_or(0))
            })
            .collect()
    }

    /// Counts an execution, and names it for each channel.
    fn runs(&self, replayed: bool) -> Vec<Arc<Run>> {
        let number = self.runs.fetch_add(1, Ordering::Relaxed) + 1;
        let programs = self.programs.iter();
        programs
            .map(|&program| {
                Arc::new(Run {
                    graph: self.name.clone(),
                    program,
                    number,
                    replayed,
                })
            })
            .collect()
    }

    /// Captures the plan, unless that cannot be on this rank or on another member of a group.
    fn capture(&mut self) -> Result<(), Error> {
        let recorded = self.record();
        let reason = match &recorded {
            Ok(_) => None,
            Err(Error::Failure(failure)) => return Err(failure.clone().into()),
            Err(error) => Some(error.to_string()),
        };
        self.fallback = replay::agree(&self.inner, &self.plan, reason)?;
        self.replay = recorded.ok().filter(|_| self.fallback.is_none());
        Ok(())
    }

    fn record(&self) -> Result<Replay, Error> {
        let mut loaded = self.loaded.lock().unwrap_or_else(PoisonError::into_inner);
        let inputs = self.graph.inputs().iter().map(|input| input.value);
        let arrays = [
            self.arrays(inputs)?,
            self.arrays(self.graph.outputs().iter().copied())?,
        ];
        let workspace_bytes = loaded.workspace_bytes.clone();
        Replay::record(
            &self.inner,
            &self.plan,
            &workspace_bytes,
            &self.name,
            arrays,
            |outside, tapes, workspaces| {
                let mut way = Way::Capture { tapes, workspaces };
                self.issue(&mut loaded, &mut way, outside, None)
            },
        )
    }

    fn issue(
        &self,
        loaded: &mut Loaded,
        way: &mut Way<'_>,
        outside: &Outside<'_>,
        mut times: Option<&mut Times>,
    ) -> Result<(), Error> {
        if let Some(times) = &times {
            times.origin.record(&self.inner.compute)?;
        }
        for &step in &self.plan.steps {
            match step {
                Step::Launch { task } => {
                    if let Some(times) = times.as_deref_mut() {
                        let lane = loaded.lanes[self.plan.lane_of[task]].clone();
                        times.around[task][0].record(&lane)?;
                        times.sequence[task] = self.launch(loaded, way, outside, task)?;
                        times.around[task][1].record(&lane)?;
                    } else {
                        self.launch(loaded, way, outside, task)?;
                    }
                }
                Step::Record { event, lane } => loaded.events[event].record(&loaded.lanes[lane])?,
                Step::Wait { event, lane } => loaded.events[event].hold(&loaded.lanes[lane])?,
                Step::Synchronise => self.inner.watchdog.wait(&self.inner.compute)?,
            }
        }
        Ok(())
    }

    /// Issues one task; returns the sequence number of its collective, 0 without one.
    fn launch(
        &self,
        loaded: &mut Loaded,
        way: &mut Way<'_>,
        outside: &Outside<'_>,
        task: usize,
    ) -> Result<u64, Error> {
        loaded
            .launch(&self.inner, way, &self.plan, outside, task)
            .map_err(|error| {
                error.at(|| match self.plan.tasks.tasks[task].work {
                    Work::Node(node) => self.graph.print_node(node),
                    Work::CopyOut { value, .. } | Work::Snapshot { value } => {
                        format!("copy %{}", self.graph.value(value).name)
                    }
                })
            })
    }
}
