//! Recording: operators and collectives become nodes of a graph.
//!
//! The recorder keeps, for every tensor it has met, the value that the tensor has at this point of
//! the program. An operator reads those values and makes tensors for its results; a call that
//! writes in place only changes which value the tensor has. When the piece ends, an input whose
//! tensor has another value than it came with is written back by one `copy_to_input`.
//!
//! A tensor that was not made by this capture becomes a parameter of the graph, by its handle.

use crate::dist::{CollectiveCalls, Group};
use crate::scope::CaptureId;
use crate::sizes::{Free, Symbols};
use crate::tensor::{Tensor, TensorCell};
use crate::{Error, eager};
use hcom_convert::{Call, Context, convert};
use hcom_ir::{Attrs, Builder, Class, Graph, Op, Shape, Type, ValueId};
use hcom_runtime::Array;
use rustc_hash::FxHashMap;
use std::panic::Location;
use std::sync::{Arc, Weak};

/// Runs a finished piece and returns its outputs.
pub(crate) type Launch = Box<dyn FnMut(&Piece) -> Result<Vec<Array>, Error>>;

/// A place where a recorded function could not go on recording.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Break {
    /// What needed the graph to run.
    pub reason: &'static str,
    /// `file:line:column` of the call.
    pub location: String,
}

/// A finished graph, with the tensors that its inputs and outputs are.
pub(crate) struct Piece {
    pub(crate) graph: Graph,
    /// One per graph input.
    pub(crate) inputs: Vec<Tensor>,
    /// Positions of the inputs that the graph writes.
    pub(crate) written: Vec<usize>,
    /// One per graph output; without data until the piece has run.
    pub(crate) outputs: Vec<Tensor>,
}

impl Piece {
    /// Whether running it would do nothing.
    pub(crate) fn is_empty(&self) -> bool {
        self.graph.nodes().len() == 0
    }

    /// Number of collectives in the graph.
    pub(crate) fn collectives(&self) -> usize {
        self.graph
            .nodes()
            .filter(|(_, node)| node.op.class() == Class::Collective)
            .count()
    }
}

/// What a complete capture recorded.
pub(crate) struct Recording {
    /// The last piece, not yet run.
    pub(crate) piece: Piece,
    /// Why the pieces before it ended.
    pub(crate) breaks: Vec<Break>,
    /// Captured tensors that are arguments too.
    pub(crate) aliases: Vec<Tensor>,
    pub(crate) returned: Vec<Tensor>,
    /// Calls that were started and never waited for, with the place of the start.
    pub(crate) unwaited: Vec<String>,
}

/// What a recording does with collectives.
#[derive(Clone, Copy, Default)]
pub(crate) struct Rules {
    /// Whether a collective ends the piece.
    pub(crate) cut: bool,
    /// Whether calls may be started and waited for later.
    pub(crate) asynchronous: bool,
}

/// Calls that were started together.
struct Started {
    location: String,
    /// What they write, the value it then has, and the call.
    writes: Vec<(Tensor, ValueId, &'static str)>,
}

/// Records one function on one rank.
pub(crate) struct Recorder {
    name: String,
    capture: CaptureId,
    rank: u32,
    world_size: u32,
    rules: Rules,
    symbols: Symbols,
    /// The types of the arguments, by tensor id.
    arguments: FxHashMap<u64, Type>,
    /// Everything that was started; what is finished writes nothing more.
    started: Vec<Started>,
    /// Positions in `started` of those whose calls are being made, the innermost last.
    starting: Vec<usize>,
    piece: Draft,
    breaks: Vec<Break>,
    aliases: Vec<Tensor>,
    /// `None` where nothing can run.
    launch: Option<Launch>,
}

/// The piece being recorded.
struct Draft {
    builder: Builder,
    /// The tensors outside, with the values they come with.
    inputs: Vec<(Tensor, ValueId)>,
    /// Value of each tensor at this point, by tensor id.
    current: FxHashMap<u64, ValueId>,
    /// Tensors made by this piece, in order.
    made: Vec<Weak<TensorCell>>,
}

impl Draft {
    fn new(name: &str, index: usize) -> Draft {
        let name = match index {
            0 => name.to_owned(),
            _ => format!("{name}_{index}"),
        };
        Draft {
            builder: Builder::new(name),
            inputs: Vec::new(),
            current: FxHashMap::default(),
            made: Vec::new(),
        }
    }

    /// Makes `tensor` an input, named as the tensor or after its position.
    fn add_input(&mut self, tensor: &Tensor, ty: Type, prefix: &str) -> ValueId {
        let name = match tensor.name() {
            Some(name) => name.to_string(),
            None => format!("{prefix}{}", self.inputs.len()),
        };
        let value = self.builder.input(&name, ty, false);
        self.inputs.push((tensor.unmarked(), value));
        self.current.insert(tensor.id(), value);
        value
    }

    /// Ends the piece with these tensors, all made by it, as outputs.
    fn finish(mut self, outputs: Vec<Tensor>) -> Result<Piece, Error> {
        let builder = &mut self.builder;
        builder.set_location(None);
        let mut written = Vec::new();
        for (position, (tensor, input)) in self.inputs.iter().enumerate() {
            let value = self.current[&tensor.id()];
            if value != *input {
                written.push(position);
                builder.set_mutable(*input, true);
                builder.push(Op::CopyToInput, &[value, *input], Attrs::new())?;
            }
        }
        let mut named = Vec::new();
        for (index, tensor) in outputs.iter().enumerate() {
            let value = self.current[&tensor.id()];
            match outputs.len() {
                1 => builder.rename(value, "y"),
                _ => builder.rename(value, &format!("y{index}")),
            }
            named.push((builder.graph().value(value).name.clone(), value));
        }
        Ok(Piece {
            graph: self.builder.finish(named)?,
            inputs: self.inputs.into_iter().map(|(tensor, _)| tensor).collect(),
            written,
            outputs,
        })
    }
}

impl Recorder {
    /// Starts a graph whose first inputs are `arguments`, a tensor that occurs twice once, with
    /// symbols for the sizes at `free`.
    pub(crate) fn new(
        name: &str,
        (rank, world_size): (u32, u32),
        rules: Rules,
        arguments: &[Tensor],
        free: Free,
        launch: Option<Launch>,
    ) -> Recorder {
        let mut piece = Draft::new(name, 0);
        let mut symbols = Symbols::new(free);
        let mut types = FxHashMap::default();
        for (argument, tensor) in arguments.iter().enumerate() {
            types.entry(tensor.id()).or_insert_with(|| {
                let ty = symbols.declare(&mut piece.builder, argument, tensor);
                piece.add_input(tensor, ty.clone(), "x");
                ty
            });
        }
        Recorder {
            name: name.to_owned(),
            capture: CaptureId::next(),
            rank,
            world_size,
            rules,
            symbols,
            arguments: types,
            started: Vec::new(),
            starting: Vec::new(),
            piece,
            breaks: Vec::new(),
            aliases: Vec::new(),
            launch,
        }
    }

    /// The handles that the recorded function is called with.
    pub(crate) fn marked(&self, arguments: &[Tensor]) -> Vec<Tensor> {
        let mark = |tensor: &Tensor| {
            tensor.as_argument_of(self.capture, self.arguments[&tensor.id()].clone())
        };
        arguments.iter().map(mark).collect()
    }

    /// Notes that the function has read the sizes of `shape` as numbers.
    pub(crate) fn read_sizes(&mut self, shape: &Shape) {
        self.symbols.read(shape);
    }

    /// The dimensions of arguments whose sizes the function has read.
    pub(crate) fn sizes_read(&self) -> Free {
        self.symbols.places_read()
    }

    /// Lets the calls up to [`Recorder::end_start`] be waited for later. None where they end the
    /// graph and run.
    pub(crate) fn start_work(
        &mut self,
        location: &'static Location<'static>,
    ) -> Result<Option<(CaptureId, usize)>, Error> {
        if self.rules.cut {
            return Ok(None);
        }
        let location = location.to_string();
        if !self.rules.asynchronous {
            return Err(Error::Asynchronous { location });
        }
        self.started.push(Started {
            location,
            writes: Vec::new(),
        });
        let index = self.started.len() - 1;
        self.starting.push(index);
        Ok(Some((self.capture, index)))
    }

    pub(crate) fn end_start(&mut self) {
        self.starting.pop();
    }

    /// Lets everything recorded from here on see what these calls write.
    pub(crate) fn finish_work(&mut self, index: usize) {
        for (tensor, value, _) in self.started[index].writes.drain(..) {
            self.piece.current.insert(tensor.id(), value);
        }
    }

    /// Finishes everything that was started, and returns what had not been waited for.
    fn settle(&mut self) -> Vec<String> {
        let mut unwaited = Vec::new();
        for index in 0..self.started.len() {
            let Started { location, writes } = &self.started[index];
            unwaited.extend(
                writes
                    .iter()
                    .map(|(_, _, call)| format!("{call} at {location}")),
            );
            self.finish_work(index);
        }
        unwaited
    }

    pub(crate) fn capture(&self) -> CaptureId {
        self.capture
    }

    /// Records one operator and returns its results.
    pub(crate) fn operator(
        &mut self,
        op: Op,
        operands: &[&Tensor],
        attrs: Attrs,
        location: &'static Location<'static>,
    ) -> Result<Vec<Tensor>, Error> {
        let values = operands
            .iter()
            .map(|tensor| self.value(tensor))
            .collect::<Result<Vec<_>, _>>()?;
        self.locate(location);
        let results = self.piece.builder.push(op, &values, attrs)?;
        Ok(results.iter().map(|value| self.make(*value)).collect())
    }

    /// Records an operator with one result.
    pub(crate) fn operator_1(
        &mut self,
        op: Op,
        operands: &[&Tensor],
        attrs: Attrs,
        location: &'static Location<'static>,
    ) -> Result<Tensor, Error> {
        let mut results = self.operator(op, operands, attrs, location)?;
        Ok(results.swap_remove(0))
    }

    /// Records that `target` has the value of `source` from here on.
    pub(crate) fn copy(
        &mut self,
        target: &Tensor,
        source: &Tensor,
        location: &'static Location<'static>,
    ) -> Result<(), Error> {
        let value = self.value(source)?;
        self.value(target)?;
        self.locate(location);
        let copy = self.piece.builder.one(Op::Copy, &[value], Attrs::new())?;
        self.piece.current.insert(target.id(), copy);
        Ok(())
    }

    /// Ends the piece, runs it, and starts the next: afterwards every tensor still held has data.
    pub(crate) fn break_graph(
        &mut self,
        reason: &'static str,
        location: &'static Location<'static>,
    ) -> Result<(), Error> {
        let location = location.to_string();
        if self.launch.is_none() || !self.symbols.is_empty() {
            return Err(Error::Break { reason, location });
        }
        self.settle();
        self.breaks.push(Break { reason, location });
        let next = Draft::new(&self.name, self.breaks.len());
        let draft = std::mem::replace(&mut self.piece, next);
        let held: Vec<Tensor> = draft
            .made
            .iter()
            .filter_map(Weak::upgrade)
            .map(Tensor::from_cell)
            .collect();
        let piece = draft.finish(held)?;
        if piece.is_empty() {
            return Ok(());
        }
        if let Some(launch) = &mut self.launch {
            let arrays = launch(&piece)?;
            for (tensor, array) in piece.outputs.iter().zip(arrays) {
                tensor.resolve(array);
            }
        }
        Ok(())
    }

    /// Ends the capture.
    pub(crate) fn finish(mut self, returned: &[Tensor]) -> Result<Recording, Error> {
        let unwaited = self.settle();
        let mut outputs: Vec<Tensor> = Vec::new();
        for tensor in returned {
            let Some(capture) = tensor.capture() else {
                continue;
            };
            if capture != self.capture {
                return Err(stale(tensor));
            }
            if !outputs.iter().any(|output| output.is_same(tensor)) {
                outputs.push(tensor.unmarked());
            }
        }
        Ok(Recording {
            piece: self.piece.finish(outputs)?,
            breaks: self.breaks,
            aliases: self.aliases,
            returned: returned.iter().map(Tensor::unmarked).collect(),
            unwaited,
        })
    }

    /// The value that `tensor` has here; a tensor from outside becomes an input.
    fn value(&mut self, tensor: &Tensor) -> Result<ValueId, Error> {
        if self.arguments.contains_key(&tensor.id())
            && !tensor.is_argument_of(self.capture)
            && !self.aliases.iter().any(|alias| alias.is_same(tensor))
        {
            self.aliases.push(tensor.unmarked());
        }
        for Started { location, writes } in &self.started {
            if let Some((_, _, call)) = writes.iter().find(|(written, ..)| written.is_same(tensor))
            {
                return Err(Error::InFlight {
                    ty: Box::new(tensor.ty().clone()),
                    call,
                    location: location.clone(),
                });
            }
        }
        if let Some(value) = self.piece.current.get(&tensor.id()) {
            return Ok(*value);
        }
        if tensor.capture().is_some() {
            return Err(stale(tensor));
        }
        // After a break an argument comes again, as what it is: only a graph without breaks has
        // symbols.
        let prefix = match self.arguments.contains_key(&tensor.id()) {
            true => "x",
            false => "p",
        };
        Ok(self.piece.add_input(tensor, tensor.ty().clone(), prefix))
    }

    fn make(&mut self, value: ValueId) -> Tensor {
        let ty = self.piece.builder.ty(value).clone();
        let shape = self
            .symbols
            .now(&ty.shape)
            .expect("sizes of a recording have values");
        let tensor = Tensor::recorded(ty, shape, self.capture);
        self.piece.current.insert(tensor.id(), value);
        self.piece.made.push(Arc::downgrade(tensor.cell()));
        tensor
    }

    fn locate(&mut self, location: &'static Location<'static>) {
        self.piece.builder.set_location(Some(hcom_ir::Location {
            file: location.file().into(),
            line: location.line(),
            column: location.column(),
        }));
    }
}

fn stale(tensor: &Tensor) -> Error {
    Error::StaleHandle {
        ty: Box::new(tensor.ty().clone()),
    }
}

impl CollectiveCalls for Recorder {
    fn collective(
        &mut self,
        call: &Call,
        targets: &[&Tensor],
        operands: &[&Tensor],
        group: &Group,
        location: &'static Location<'static>,
    ) -> Result<(), Error> {
        if self.rules.cut {
            self.break_graph("a collective is no part of the graph", location)?;
            return eager::Eager.collective(call, targets, operands, group, location);
        }
        let operands = operands
            .iter()
            .map(|tensor| self.value(tensor))
            .collect::<Result<Vec<_>, _>>()?;
        for target in targets {
            self.value(target)?;
        }
        self.locate(location);
        let group = self.piece.builder.group(group.as_ir().clone());
        let mut context = Context {
            builder: &mut self.piece.builder,
            rank: self.rank,
            world_size: self.world_size,
        };
        let values = convert(&mut context, call, &operands, group)?;
        for (target, value) in targets.iter().zip(values) {
            match self.starting.last() {
                Some(&work) => {
                    let write = (target.unmarked(), value, call.name());
                    self.started[work].writes.push(write);
                }
                None => {
                    self.piece.current.insert(target.id(), value);
                }
            }
        }
        Ok(())
    }
}
