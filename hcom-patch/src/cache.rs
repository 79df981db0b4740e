//! What a compiled function remembers: whole graphs by the guards of their call, pieces by their
//! text.

use crate::compile::{Launchable, Make, Run};
use crate::recording::{Piece, Recording};
use crate::sizes;
use crate::{DType, Error, Tensor};
use hcom_ir::{Bindings, Graph, Shape};
use hcom_runtime::{Executable, varies_by_rank};
use rustc_hash::FxHashMap;
use std::sync::{Arc, Mutex, PoisonError};

/// What must be equal for a recorded graph to stand for a call.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Guards {
    arguments: Vec<Argument>,
    cut: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Argument {
    dtype: DType,
    /// None where the graph tells which sizes it takes.
    shape: Option<Vec<u64>>,
    /// Position of the first argument that is the same tensor.
    first: usize,
}

impl Guards {
    /// The guards of a call with these arguments; `cut` if collectives end the graph.
    pub(crate) fn of(arguments: &[Tensor], cut: bool) -> Guards {
        let arguments = arguments
            .iter()
            .map(|tensor| Argument {
                dtype: tensor.dtype(),
                shape: Some(tensor.shape().to_vec()),
                first: position(arguments, tensor).unwrap_or_default(),
            })
            .collect();
        Guards { arguments, cut }
    }

    /// These guards without the sizes.
    pub(crate) fn of_any_size(&self) -> Guards {
        let mut guards = self.clone();
        for argument in &mut guards.arguments {
            argument.shape = None;
        }
        guards
    }

    pub(crate) fn cut(&self) -> bool {
        self.cut
    }
}

/// The first argument that is `tensor`.
fn position(arguments: &[Tensor], tensor: &Tensor) -> Option<usize> {
    arguments
        .iter()
        .position(|argument| argument.is_same(tensor))
}

/// A tensor of the graph, from the point of view of a call.
enum Source {
    Argument(usize),
    Captured(Tensor),
    /// Output of the graph.
    Output(usize),
}

/// A function that is one graph.
pub(crate) struct Whole {
    /// `None` if the function does nothing.
    graph: Option<Graph>,
    /// The shapes of the arguments, in which sizes may be symbols of the graph.
    shapes: Vec<Shape>,
    /// Whether the other ranks' graphs have to be asked for at each launch.
    varies: bool,
    /// By the values of the symbols.
    executables: Mutex<FxHashMap<Bindings, Launchable>>,
    inputs: Vec<Source>,
    written: Vec<usize>,
    returned: Vec<Source>,
    /// Captured tensors that were arguments of the recorded call too, with the position.
    aliases: Vec<(Tensor, usize)>,
}

impl Whole {
    pub(crate) fn new(
        recording: Recording,
        shapes: Vec<Shape>,
        executable: Option<Launchable>,
        arguments: &[Tensor],
    ) -> Whole {
        let Recording {
            piece,
            aliases,
            returned,
            ..
        } = recording;
        let Piece {
            graph,
            inputs,
            written,
            outputs,
        } = piece;
        let bindings = sizes::bind(&graph, &shapes, arguments).unwrap_or_default();
        let source = |tensor: Tensor| match position(arguments, &tensor) {
            Some(position) => Source::Argument(position),
            None => Source::Captured(tensor),
        };
        let returned = returned
            .into_iter()
            .map(|tensor| match position(&outputs, &tensor) {
                Some(output) => Source::Output(output),
                None => source(tensor),
            })
            .collect();
        let aliases = aliases
            .into_iter()
            .filter_map(|tensor| Some((tensor.clone(), position(arguments, &tensor)?)))
            .collect();
        Whole {
            varies: varies_by_rank(&graph),
            graph: executable.is_some().then_some(graph),
            shapes,
            executables: Mutex::new(executable.map(|it| (bindings, it)).into_iter().collect()),
            inputs: inputs.into_iter().map(source).collect(),
            written,
            returned,
            aliases,
        }
    }

    /// The values of the graph's symbols for these arguments; none if it does not take them.
    fn takes(&self, arguments: &[Tensor]) -> Option<Bindings> {
        match &self.graph {
            Some(graph) => sizes::bind(graph, &self.shapes, arguments),
            None => Some(Bindings::new()),
        }
    }

    /// The executable for these values of the symbols, made by `make` where there is none yet; none
    /// if the function does nothing.
    fn executable(&self, bindings: Bindings, make: Make<'_>) -> Result<Option<Launchable>, Error> {
        let Some(graph) = &self.graph else {
            return Ok(None);
        };
        if self.varies {
            return Ok(Some(make(&graph.bind(&bindings)?)?));
        }
        let known = || {
            self.executables
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
        };
        if let Some(executable) = known().get(&bindings) {
            return Ok(Some(executable.clone()));
        }
        let executable = make(&graph.bind(&bindings)?)?;
        known().insert(bindings, executable.clone());
        Ok(Some(executable))
    }

    /// Whether arguments and captured tensors coincide just as they did when it was recorded.
    fn fits(&self, arguments: &[Tensor]) -> bool {
        let apart = self.inputs.iter().all(|source| match source {
            Source::Captured(tensor) => position(arguments, tensor).is_none(),
            _ => true,
        });
        apart
            && self
                .aliases
                .iter()
                .all(|(tensor, argument)| arguments[*argument].is_same(tensor))
    }

    /// Runs the graph on `arguments`, for which its symbols have these values, and returns what the
    /// function would.
    pub(crate) fn launch(
        &self,
        arguments: &[Tensor],
        bindings: Bindings,
        make: Make<'_>,
        run: Run<'_>,
    ) -> Result<Vec<Tensor>, Error> {
        let outside = |source: &Source| match source {
            Source::Argument(position) => Some(arguments[*position].clone()),
            Source::Captured(tensor) => Some(tensor.clone()),
            Source::Output(_) => None,
        };
        let outputs: Vec<Tensor> = match self.executable(bindings, make)? {
            Some(executable) => {
                let inputs: Vec<Tensor> = self.inputs.iter().filter_map(outside).collect();
                let arrays = executable.run(&inputs, &self.written, run)?;
                arrays.into_iter().map(Tensor::from_array).collect()
            }
            None => Vec::new(),
        };
        Ok(self
            .returned
            .iter()
            .map(|source| match source {
                Source::Output(output) => outputs[*output].clone(),
                Source::Argument(position) => arguments[*position].clone(),
                Source::Captured(tensor) => tensor.clone(),
            })
            .collect())
    }
}

/// What an executable is found by: the text of its graph, and for a graph that varies by rank the
/// digest of all ranks' graphs.
pub(crate) type Found = (String, Option<[u8; 32]>);

/// Everything one rank remembers of one compiled function.
#[derive(Default)]
pub(crate) struct Cache {
    wholes: FxHashMap<Guards, Vec<Arc<Whole>>>,
    pieces: FxHashMap<Found, Arc<Executable>>,
}

impl Cache {
    /// The graph for a call, with the values that its symbols have in it.
    pub(crate) fn find(
        &self,
        guards: &Guards,
        arguments: &[Tensor],
    ) -> Option<(Arc<Whole>, Bindings)> {
        let fitting = |whole: &Arc<Whole>| match whole.fits(arguments) {
            true => Some((Arc::clone(whole), whole.takes(arguments)?)),
            false => None,
        };
        let of = |guards: &Guards| -> Option<(Arc<Whole>, Bindings)> {
            self.wholes.get(guards)?.iter().find_map(fitting)
        };
        of(guards).or_else(|| of(&guards.of_any_size()))
    }

    pub(crate) fn keep(&mut self, guards: Guards, whole: Whole) {
        let guards = match whole.graph.as_ref().is_none_or(Graph::is_fixed) {
            true => guards,
            false => guards.of_any_size(),
        };
        self.wholes.entry(guards).or_default().push(Arc::new(whole));
    }

    pub(crate) fn piece(&self, found: &Found) -> Option<Arc<Executable>> {
        self.pieces.get(found).cloned()
    }

    pub(crate) fn keep_piece(&mut self, found: Found, executable: Arc<Executable>) {
        self.pieces.insert(found, executable);
    }
}
