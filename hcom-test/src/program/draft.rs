//! The graphs of one rank, as far as they have come.

use hcom_convert::{Call, Context};
use hcom_ir::{Attrs, Builder, DType, Graph, Group, GroupId, Literal, Op, Type, ValueId};

use super::random::{Grain, Random, data};

/// A value of the program: the same in both graphs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Value {
    pub(super) meaning: ValueId,
    pub(super) running: ValueId,
}

/// An input with what it starts as.
struct Input {
    value: Value,
    data: Literal,
    grain: Grain,
    mutable: bool,
}

/// One rank's share of a program.
pub(super) struct Draft {
    rank: u32,
    world_size: u32,
    seed: u64,
    meaning: Builder,
    running: Builder,
    inputs: Vec<Input>,
    values: Vec<Value>,
    outputs: Vec<Value>,
}

impl Draft {
    pub(super) fn new(rank: u32, world_size: u32, seed: u64) -> Draft {
        Draft {
            rank,
            world_size,
            seed,
            meaning: Builder::new("meaning"),
            running: Builder::new("program"),
            inputs: Vec::new(),
            values: Vec::new(),
            outputs: Vec::new(),
        }
    }

    pub(super) fn ty(&self, value: Value) -> &Type {
        self.meaning.ty(value.meaning)
    }

    /// The sizes of a value.
    pub(super) fn shape(&self, value: Value) -> Vec<u64> {
        self.ty(value).shape.as_fixed().expect("sizes are fixed")
    }

    /// Everything that can be an operand.
    pub(super) fn values(&self) -> &[Value] {
        &self.values
    }

    /// The values that `fits` accepts.
    pub(super) fn fitting(&self, fits: impl Fn(&Type) -> bool) -> Vec<Value> {
        let fitting = self.values.iter().filter(|value| fits(self.ty(**value)));
        fitting.copied().collect()
    }

    /// A new input.
    pub(super) fn input(
        &mut self,
        dtype: DType,
        shape: &[u64],
        grain: Grain,
        random: &mut Random,
    ) -> Value {
        let index = self.inputs.len();
        let (name, ty) = (format!("x{index}"), Type::fixed(dtype, shape));
        let mutable = random.one_in(3);
        let value = Value {
            meaning: self.meaning.input(&name, ty.clone(), mutable),
            running: self.running.input(&name, ty, mutable),
        };
        let mut own = Random::of(&[self.seed, 2, self.rank.into(), index as u64]);
        self.inputs.push(Input {
            value,
            data: data(dtype, shape, grain, &mut own),
            grain,
            mutable,
        });
        self.values.push(value);
        value
    }

    /// A value of this type: one that is there, a view of one, or a new input.
    pub(super) fn obtain(&mut self, dtype: DType, shape: &[u64], random: &mut Random) -> Value {
        let ty = Type::fixed(dtype, shape);
        let equal = self.fitting(|other| *other == ty);
        if !equal.is_empty() && !random.one_in(6) {
            return *random.pick(&equal);
        }
        let same_size = self.fitting(|other| {
            other.dtype == dtype && other.elements() == ty.elements() && *other != ty
        });
        if !same_size.is_empty() && random.one_in(2) {
            let value = *random.pick(&same_size);
            let attrs = Attrs::new().with("shape", shape);
            return self.push(Op::Reshape, &[value], attrs).expect("it fits")[0];
        }
        // A column block of something wider.
        let Some((&last, before)) = shape.split_last() else {
            return self.input(dtype, shape, Grain::Fine, random);
        };
        let wider = self.fitting(|other| {
            let other_shape = other.shape.as_fixed().unwrap_or_default();
            other.dtype == dtype
                && other_shape.len() == shape.len()
                && other_shape.starts_with(before)
                && other_shape[before.len()] > last
        });
        if !wider.is_empty() && random.one_in(2) {
            let value = *random.pick(&wider);
            let room = self.shape(value)[before.len()] - last;
            let start = random.below(room + 1);
            let attrs = Attrs::new()
                .with("dim", before.len() as i64)
                .with("start", start as i64)
                .with("end", (start + last) as i64);
            return self.push(Op::Slice, &[value], attrs).expect("it fits")[0];
        }
        self.input(dtype, shape, Grain::Fine, random)
    }

    /// An input of coarse floats.
    pub(super) fn coarse(&mut self, dtype: DType, shape: &[u64], random: &mut Random) -> Value {
        let ty = Type::fixed(dtype, shape);
        let found = self
            .inputs
            .iter()
            .find(|input| input.grain == Grain::Coarse && input.data.ty() == ty)
            .map(|input| input.value);
        found.unwrap_or_else(|| self.input(dtype, shape, Grain::Coarse, random))
    }

    /// Adds the operation to both graphs and returns its results; `None` when it does not fit.
    pub(super) fn push(&mut self, op: Op, operands: &[Value], attrs: Attrs) -> Option<Vec<Value>> {
        let meaning: Vec<ValueId> = operands.iter().map(|value| value.meaning).collect();
        let running: Vec<ValueId> = operands.iter().map(|value| value.running).collect();
        let meant = self.meaning.push(op, &meaning, attrs.clone()).ok()?;
        let runs = self.running.push(op, &running, attrs);
        let runs = runs.expect("what fits one graph fits the other");
        Some(self.results(&meant, &runs))
    }

    /// Adds communication in `group` to both graphs.
    pub(super) fn communicate(
        &mut self,
        op: Op,
        operands: &[Value],
        attrs: Attrs,
        group: &Group,
    ) -> Vec<Value> {
        let attrs = attrs.with("group", self.group(group));
        self.push(op, operands, attrs)
            .unwrap_or_else(|| panic!("seed {}: {op} fits its operands", self.seed))
    }

    /// Adds a reduction: one operation to the meaning, what recording `call` makes of it to what
    /// runs.
    pub(super) fn reduce(
        &mut self,
        op: Op,
        operand: Value,
        attrs: Attrs,
        call: &Call,
        group: &Group,
    ) -> Vec<Value> {
        let id = self.group(group);
        let mut context = Context {
            builder: &mut self.running,
            rank: self.rank,
            world_size: self.world_size,
        };
        let runs = hcom_convert::convert(&mut context, call, &[operand.running], id)
            .unwrap_or_else(|error| panic!("seed {}: {call:?}: {error}", self.seed));
        let meant = self
            .meaning
            .push(op, &[operand.meaning], attrs.with("group", id))
            .unwrap_or_else(|error| panic!("seed {}: {error}", self.seed));
        self.results(&meant, &runs)
    }

    /// The group, declared in both graphs.
    fn group(&mut self, group: &Group) -> GroupId {
        let id = self.meaning.group(group.clone());
        assert_eq!(id, self.running.group(group.clone()), "seed {}", self.seed);
        id
    }

    fn results(&mut self, meaning: &[ValueId], running: &[ValueId]) -> Vec<Value> {
        let results: Vec<Value> = meaning
            .iter()
            .zip(running)
            .map(|(&meaning, &running)| Value { meaning, running })
            .collect();
        self.values.extend(&results);
        results
    }

    /// Chooses what is returned, and writes some of the inputs.
    pub(super) fn end(&mut self, random: &mut Random) {
        let mut made: Vec<Value> = self.values.clone();
        // What a call made of an input may be the input itself.
        let is_input = |value: &Value, input: &Input| {
            value.meaning == input.value.meaning || value.running == input.value.running
        };
        made.retain(|value| !self.inputs.iter().any(|input| is_input(value, input)));
        let results: Vec<Value> = made.iter().rev().take(4).copied().collect();
        self.outputs = match results[..] {
            [] => {
                let value = self.obtain(DType::F32, &[2], random);
                self.push(Op::Copy, &[value], Attrs::new())
                    .expect("any value has a copy")
            }
            _ => results,
        };
        let mut writes = Vec::new();
        for index in 0..self.inputs.len() {
            let input = &self.inputs[index];
            if !input.mutable {
                continue;
            }
            let (target, ty) = (input.value, input.data.ty());
            let values = self.fitting(|other| *other == ty);
            let mut value = *random.pick(&values);
            if !made.contains(&value) {
                // The old value of an input that may be written before.
                value = self
                    .push(Op::Copy, &[value], Attrs::new())
                    .expect("any value has a copy")[0];
            }
            writes.push([value, target]);
        }
        for write in writes {
            self.push(Op::CopyToInput, &write, Attrs::new())
                .expect("the types are equal");
        }
    }

    /// The meaning, what runs, and the data of the inputs.
    pub(super) fn finish(self) -> (Graph, Graph, Vec<Literal>) {
        let name = |index: usize| format!("y{index}");
        let outputs = self.outputs.iter().enumerate();
        let (meaning, running) = outputs
            .map(|(index, value)| ((name(index), value.meaning), (name(index), value.running)))
            .unzip();
        let finish = |builder: Builder, outputs| {
            builder
                .finish(outputs)
                .unwrap_or_else(|found| panic!("seed {}: {found}", self.seed))
        };
        let inputs = self.inputs.into_iter().map(|input| input.data).collect();
        (
            finish(self.meaning, meaning),
            finish(self.running, running),
            inputs,
        )
    }
}
