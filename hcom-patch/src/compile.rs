//! Compiled functions: recorded once, launched as a graph from then on.
//!
//! A call looks for a graph whose guards it meets; if there is none, the function runs while it is
//! recorded, its pieces are compiled and launched as they end, and a function that is one piece is
//! kept. State is kept per rank, as threads of one process may be ranks and share a function. No
//! lock is held while anything runs: ranks wait for each other inside.

use crate::cache::{Cache, Guards, Whole};
use crate::rank::{Rank, patched};
use crate::recording::{Break, Piece, Recorder, Rules};
use crate::scope::{self, Scope};
use crate::sizes::{self, Free, Seen};
use crate::{Error, Tensor};
use hcom_ir::{Graph, Shape, TopologyOrder, topology};
use hcom_runtime::{Array, CompileOptions, Executable, Mode, Trace, Uniformity, varies_by_rank};
use rustc_hash::FxHashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// What a compiled function does with collective calls.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Collectives {
    /// [`Collectives::Recorded`] while [`patch_for_hcom`](crate::patch_for_hcom) is in force on the
    /// calling thread, [`Collectives::Cut`] otherwise.
    #[default]
    Global,
    /// They are nodes of the graph.
    Recorded,
    /// Each ends the graph before it, runs eagerly, and a new graph begins after it.
    Cut,
}

/// Which sizes of the arguments one graph leaves open.
///
/// A size is left open only where the function does not need it as a number: one whose
/// [`Tensor::shape`] is read, or without which an operation cannot be typed, is fixed, and the
/// function recorded again. Sizes of 0 and 1 are always fixed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Shapes {
    /// Those in which calls have differed: the second size of a dimension is recorded as a symbol.
    #[default]
    Automatic,
    /// None: each shape has a graph of its own.
    Static,
    /// These, as (argument, dimension), from the first call on.
    Dynamic(Vec<(usize, usize)>),
}

/// How a function is compiled.
#[derive(Clone, Debug)]
pub struct Config {
    /// What becomes of collective calls.
    pub collectives: Collectives,
    /// Which sizes one graph leaves open.
    pub shapes: Shapes,
    /// Whether a recorded function may [start](crate::dist::start) collectives and wait for them
    /// later. Otherwise that is an error, since a graph overlaps by itself.
    pub async_collectives: bool,
    /// In which order the nodes of a graph are listed before it is planned. The sequence of each
    /// group's collectives is that of the program in any of them.
    pub order: TopologyOrder,
    /// How graphs are launched.
    pub mode: Mode,
    /// Name of the graph; the pieces after the first are called `name_1`, `name_2`, ….
    pub name: String,
}

impl Default for Config {
    /// Collectives as patched and never started apart, sizes opened as they differ, streams
    /// overlapped, name `main`.
    fn default() -> Config {
        Config {
            collectives: Collectives::Global,
            shapes: Shapes::Automatic,
            async_collectives: false,
            order: TopologyOrder::default(),
            mode: Mode::Overlapped,
            name: "main".to_owned(),
        }
    }
}

/// What a compiled function consists of on one rank, and what its calls did.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Report {
    /// Number of graphs that one call launches.
    pub graphs: usize,
    /// Number of collectives in those graphs.
    pub collectives: usize,
    /// Pinned if any of the graphs is.
    pub uniformity: Uniformity,
    /// Why the function is more than one graph.
    pub breaks: Vec<Break>,
    /// The graphs in text, in the order of launch.
    pub text: Vec<String>,
    /// Collectives that were started and never waited for, with the place of the start.
    pub unwaited: Vec<String>,
    /// How often the function itself ran.
    pub recordings: u64,
    /// How often its graph was launched without running it.
    pub replays: u64,
    /// How many graphs were compiled.
    pub compiles: u64,
}

impl Default for Report {
    fn default() -> Report {
        Report {
            graphs: 0,
            collectives: 0,
            uniformity: Uniformity::Uniform,
            breaks: Vec::new(),
            text: Vec::new(),
            unwaited: Vec::new(),
            recordings: 0,
            replays: 0,
            compiles: 0,
        }
    }
}

impl Report {
    fn add(&mut self, piece: &Piece, executable: &Executable) {
        self.graphs += 1;
        self.collectives += piece.collectives();
        self.text.push(piece.graph.to_string());
        if let Uniformity::Uniform = self.uniformity {
            self.uniformity = executable.uniformity().clone();
        }
    }
}

/// A function together with its graphs. Threads that are ranks may share it: each has graphs of
/// its own.
pub struct Compiled<F> {
    f: F,
    config: Config,
    ranks: Mutex<FxHashMap<u64, Arc<Mutex<State>>>>,
}

/// What one rank keeps of a compiled function.
#[derive(Default)]
struct State {
    cache: Cache,
    sizes: Seen,
    report: Report,
    executables: Vec<Arc<Executable>>,
}

/// Makes `f` a compiled function: recorded once, launched as a graph from then on.
///
/// Nothing runs yet. The first call with given argument types runs `f` while a graph is recorded,
/// and launches the graph. If `f` never needed a value in between, later calls that meet the guards
/// launch the graph without running `f`. The guards are: the arguments' element types and shapes (of
/// which [`Shapes`] may leave sizes open), which of them are the same tensor, which of them `f` also captured, the rank with its world, and
/// whether collectives are recorded. Groups are values of the recorded function, and part of its
/// graph.
///
/// A captured tensor is a parameter of the graph, by its handle: each call reads, and a graph that
/// writes it writes, what the handle holds then. Everything else that `f` captures or computes
/// outside of tensors (numbers, flags, [`Tensor::from_slice`] data, side effects) belongs to the
/// recording, and is not looked at again.
///
/// A function that breaks (it reads data, or calls a collective under [`Collectives::Cut`]) runs on
/// every call, as what it does may depend on what it read; each of its pieces is compiled once.
/// Tensors it still holds at a break are outputs of the piece before it.
pub fn compile<F>(f: F, config: Config) -> Compiled<F>
where
    F: Fn(&[Tensor]) -> Result<Vec<Tensor>, Error>,
{
    Compiled {
        f,
        config,
        ranks: Mutex::new(FxHashMap::default()),
    }
}

impl<F> Compiled<F>
where
    F: Fn(&[Tensor]) -> Result<Vec<Tensor>, Error>,
{
    /// Calls the function: launches its graph, or records it first.
    ///
    /// All ranks that take part in the function's collectives call it together. While another
    /// compiled function is being recorded, the call is recorded into that one's graph.
    ///
    /// # Errors
    /// What the function returns; [`Error::Runtime`] if compiling, the comparison across ranks or
    /// the launch fails; [`Error::NotInitialized`].
    pub fn call(&self, arguments: &[Tensor]) -> Result<Vec<Tensor>, Error> {
        if scope::is_active() {
            return (self.f)(arguments);
        }
        let rank = Rank::current()?;
        let state = Arc::clone(lock(&self.ranks).entry(rank.id).or_default());
        let guards = self.guards(arguments);
        // No lock is held while a graph runs or a function records.
        let whole = lock(&state).cache.find(&guards, arguments);
        if let Some((whole, bindings)) = whole {
            let pieces = self.pieces(&rank, &state);
            let make = |graph: &Graph| pieces.find(graph);
            let results = whole.launch(arguments, bindings, &make, &mut plain)?;
            lock(&state).report.replays += 1;
            return Ok(results);
        }
        self.record(&rank, &state, guards, arguments)
    }

    /// Launches the graph with timestamps around every piece of work, waits for its end, and returns
    /// when each piece ran.
    ///
    /// All ranks that take part in the function's collectives call it together.
    ///
    /// # Errors
    /// [`Error::NoGraph`] unless the function is one graph and was called with arguments of the same
    /// types before; otherwise as [`Compiled::call`].
    pub fn traced(&self, arguments: &[Tensor]) -> Result<(Vec<Tensor>, Trace), Error> {
        let rank = Rank::current()?;
        let state = lock(&self.ranks).get(&rank.id).map(Arc::clone);
        let guards = self.guards(arguments);
        let state = state.ok_or(Error::NoGraph)?;
        let whole = lock(&state).cache.find(&guards, arguments);
        let (whole, bindings) = whole.ok_or(Error::NoGraph)?;
        let pieces = self.pieces(&rank, &state);
        let mut trace = None;
        let results = whole.launch(
            arguments,
            bindings,
            &|graph| pieces.find(graph),
            &mut |executable, inputs| {
                let (outputs, traced) = executable.run_traced(inputs)?;
                trace = Some(traced);
                Ok(outputs)
            },
        )?;
        Ok((results, trace.ok_or(Error::NoGraph)?))
    }

    /// The executables of the last recording on this rank, in the order of launch: their plans,
    /// bounds and graphs. Empty before the first call.
    pub fn executables(&self) -> Vec<Arc<Executable>> {
        let state = Rank::current()
            .ok()
            .and_then(|rank| lock(&self.ranks).get(&rank.id).map(Arc::clone));
        state.map_or_else(Vec::new, |state| lock(&state).executables.clone())
    }

    fn guards(&self, arguments: &[Tensor]) -> Guards {
        let cut = match self.config.collectives {
            Collectives::Global => !patched(),
            Collectives::Recorded => false,
            Collectives::Cut => true,
        };
        Guards::of(arguments, cut)
    }

    /// What the last recording on this rank consists of, with the counts of all calls. Empty before
    /// the first call.
    pub fn report(&self) -> Report {
        let Ok(rank) = Rank::current() else {
            return Report::default();
        };
        let state = lock(&self.ranks).get(&rank.id).map(Arc::clone);
        state.map_or_else(Report::default, |state| lock(&state).report.clone())
    }

    fn pieces(&self, rank: &Rank, state: &Arc<Mutex<State>>) -> Pieces {
        Pieces {
            rank: rank.clone(),
            state: Arc::clone(state),
            mode: self.config.mode,
            order: self.config.order,
        }
    }

    /// Records the function, with as many sizes left open as it allows.
    fn record(
        &self,
        rank: &Rank,
        state: &Arc<Mutex<State>>,
        guards: Guards,
        arguments: &[Tensor],
    ) -> Result<Vec<Tensor>, Error> {
        let mut free = lock(state).sizes.choose(&self.config.shapes, arguments);
        if guards.cut() {
            free.clear();
        }
        loop {
            match self.attempt(rank, state, &guards, arguments, &free)? {
                Attempt::Done(results) => return Ok(results),
                Attempt::Needs(places) => {
                    lock(state).sizes.fix(&places);
                    free = free.difference(&places).copied().collect();
                }
            }
        }
    }

    /// Runs the function while recording it with the sizes at `free` left open, launches its
    /// pieces, and keeps the graph if it is whole.
    fn attempt(
        &self,
        rank: &Rank,
        state: &Arc<Mutex<State>>,
        guards: &Guards,
        arguments: &[Tensor],
        free: &Free,
    ) -> Result<Attempt, Error> {
        {
            let State {
                report,
                executables,
                ..
            } = &mut *lock(state);
            executables.clear();
            *report = Report {
                recordings: report.recordings + 1,
                replays: report.replays,
                compiles: report.compiles,
                ..Report::default()
            };
        }
        let pieces = self.pieces(rank, state);
        let launch = {
            let pieces = pieces.clone();
            Box::new(move |piece: &Piece| pieces.executable(piece, &piece.graph)?.launch(piece))
        };
        let rules = Rules {
            cut: guards.cut(),
            asynchronous: self.config.async_collectives,
        };
        let place = (rank.rank, rank.world_size);
        let name = &self.config.name;
        let recorder = Recorder::new(name, place, rules, arguments, free.clone(), Some(launch));
        let marked = recorder.marked(arguments);
        let scope = Scope::open(recorder)?;
        let returned = (self.f)(&marked);
        let recorder = scope.end();

        let read = recorder.sizes_read();
        let recorded = returned.and_then(|returned| recorder.finish(&returned));
        if !read.is_empty() {
            return Ok(Attempt::Needs(read));
        }
        let recording = match recorded {
            Ok(recording) => recording,
            // With sizes left open, whatever went wrong may be due to that.
            Err(_) if !free.is_empty() => return Ok(Attempt::Needs(free.clone())),
            Err(error) => return Err(error),
        };
        {
            let report = &mut lock(state).report;
            report.breaks.clone_from(&recording.breaks);
            report.unwaited.clone_from(&recording.unwaited);
        }
        let piece = &recording.piece;
        let shapes: Vec<Shape> = marked.iter().map(|x| x.ty().shape.clone()).collect();
        let executable = if piece.is_empty() {
            None
        } else if piece.graph.is_fixed() {
            Some(pieces.executable(piece, &piece.graph)?)
        } else {
            let bindings = sizes::bind(&piece.graph, &shapes, arguments).unwrap_or_default();
            Some(pieces.executable(piece, &piece.graph.bind(&bindings)?)?)
        };
        if let Some(executable) = &executable {
            let arrays = executable.launch(piece)?;
            for (tensor, array) in piece.outputs.iter().zip(arrays) {
                tensor.resolve(array);
            }
        }
        let returned = recording.returned.clone();
        if recording.breaks.is_empty() {
            let whole = Whole::new(recording, shapes, executable, arguments);
            lock(state).cache.keep(guards.clone(), whole);
        }
        Ok(Attempt::Done(returned))
    }
}

/// What became of a recording.
enum Attempt {
    /// The function's results.
    Done(Vec<Tensor>),
    /// The sizes at these places have to be numbers.
    Needs(Free),
}

/// Finds or makes the executables of pieces on one rank.
#[derive(Clone)]
struct Pieces {
    rank: Rank,
    state: Arc<Mutex<State>>,
    mode: Mode,
    order: TopologyOrder,
}

impl Pieces {
    /// The executable of `graph`, which is that of `piece` with its sizes known. Counts the piece
    /// as launched.
    fn executable(&self, piece: &Piece, graph: &Graph) -> Result<Launchable, Error> {
        let executable = self.find(graph)?;
        let state = &mut *lock(&self.state);
        state.report.add(piece, &executable.0);
        state.executables.push(Arc::clone(&executable.0));
        Ok(executable)
    }

    /// The executable of `graph`, found by its text.
    ///
    /// Where the graph varies by rank, all ranks that launch it call this at the same time.
    fn find(&self, graph: &Graph) -> Result<Launchable, Error> {
        let runtime = self.rank.runtime("compile")?;
        let joint = match varies_by_rank(graph) {
            true => Some(runtime.joint_digest(graph)?),
            false => None,
        };
        let found = (graph.to_string(), joint);
        let known = lock(&self.state).cache.piece(&found);
        if let Some(executable) = known {
            return Ok(Launchable(executable));
        }
        let options = CompileOptions {
            mode: self.mode,
            name: graph.name().to_owned(),
            ..CompileOptions::default()
        };
        let sorted = topology::sort(graph, self.order)?;
        let executable = Arc::new(runtime.compile(&sorted, &options)?);
        let state = &mut lock(&self.state);
        state.report.compiles += 1;
        state.cache.keep_piece(found, Arc::clone(&executable));
        Ok(Launchable(executable))
    }
}

/// How the executable of a graph with known sizes is made.
pub(crate) type Make<'a> = &'a dyn Fn(&Graph) -> Result<Launchable, Error>;

/// How an executable runs on arrays.
pub(crate) type Run<'a> =
    &'a mut dyn FnMut(&Executable, &[Array]) -> Result<Vec<Array>, hcom_runtime::Error>;

fn plain(executable: &Executable, inputs: &[Array]) -> Result<Vec<Array>, hcom_runtime::Error> {
    executable.run(inputs)
}

/// An executable that reads and writes tensors.
#[derive(Clone)]
pub(crate) struct Launchable(Arc<Executable>);

impl Launchable {
    fn launch(&self, piece: &Piece) -> Result<Vec<Array>, Error> {
        self.run(&piece.inputs, &piece.written, &mut plain)
    }

    /// Runs on the present data of `inputs`, of which those at `written` are written.
    pub(crate) fn run(
        &self,
        inputs: &[Tensor],
        written: &[usize],
        run: Run<'_>,
    ) -> Result<Vec<Array>, Error> {
        let arrays = inputs
            .iter()
            .map(Tensor::data)
            .collect::<Result<Vec<_>, _>>()?;
        let outputs = run(&self.0, &arrays)?;
        for position in written {
            inputs[*position].written(&arrays[*position])?;
        }
        Ok(outputs)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
