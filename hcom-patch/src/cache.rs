//! What a compiled function remembers: whole graphs by the guards of their call, pieces by their
//! text.

use crate::compile::{Launchable, Run};
use crate::recording::{Piece, Recording};
use crate::{DType, Error, Tensor};
use hcom_runtime::Executable;
use rustc_hash::FxHashMap;
use std::sync::Arc;

/// What must be equal for a recorded graph to stand for a call.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Guards {
    arguments: Vec<Argument>,
    cut: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Argument {
    dtype: DType,
    shape: Vec<u64>,
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
                shape: tensor.shape().to_vec(),
                first: position(arguments, tensor).unwrap_or_default(),
            })
            .collect();
        Guards { arguments, cut }
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
    executable: Option<Launchable>,
    inputs: Vec<Source>,
    written: Vec<usize>,
    returned: Vec<Source>,
    /// Captured tensors that were arguments of the recorded call too, with the position.
    aliases: Vec<(Tensor, usize)>,
}

impl Whole {
    pub(crate) fn new(
        recording: Recording,
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
            inputs,
            written,
            outputs,
            ..
        } = piece;
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
            executable,
            inputs: inputs.into_iter().map(source).collect(),
            written,
            returned,
            aliases,
        }
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

    /// Runs the graph on `arguments` and returns what the function would.
    pub(crate) fn launch(&self, arguments: &[Tensor], run: Run<'_>) -> Result<Vec<Tensor>, Error> {
        let outside = |source: &Source| match source {
            Source::Argument(position) => Some(arguments[*position].clone()),
            Source::Captured(tensor) => Some(tensor.clone()),
            Source::Output(_) => None,
        };
        let outputs: Vec<Tensor> = match &self.executable {
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

/// Everything one rank remembers of one compiled function.
#[derive(Default)]
pub(crate) struct Cache {
    wholes: FxHashMap<Guards, Vec<Arc<Whole>>>,
    pieces: FxHashMap<String, Arc<Executable>>,
}

impl Cache {
    pub(crate) fn find(&self, guards: &Guards, arguments: &[Tensor]) -> Option<Arc<Whole>> {
        let wholes = self.wholes.get(guards)?;
        wholes.iter().find(|whole| whole.fits(arguments)).cloned()
    }

    pub(crate) fn keep(&mut self, guards: Guards, whole: Whole) {
        self.wholes.entry(guards).or_default().push(Arc::new(whole));
    }

    pub(crate) fn piece(&self, text: &str) -> Option<Arc<Executable>> {
        self.pieces.get(text).cloned()
    }

    pub(crate) fn keep_piece(&mut self, text: String, executable: Arc<Executable>) {
        self.pieces.insert(text, executable);
    }
}
