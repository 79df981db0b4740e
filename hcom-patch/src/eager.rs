//! Eager execution: every operator and collective runs when it is called.
//!
//! A collective goes through the same conversion as a recorded one, so that both do the same
//! arithmetic; its few nodes then run one after the other.

use crate::dist::{CollectiveCalls, Group};
use crate::rank::Rank;
use crate::{Error, Tensor};
use hcom_convert::{Call, Context, convert};
use hcom_ir::{Attrs, Builder, Op, ValueId};
use hcom_runtime::Array;
use rustc_hash::FxHashMap;
use std::panic::Location;

/// Runs one operator and returns its results.
pub(crate) fn operator(op: Op, operands: &[&Tensor], attrs: &Attrs) -> Result<Vec<Tensor>, Error> {
    let rank = Rank::current()?;
    let runtime = rank.runtime(op.name())?;
    let arrays = operands
        .iter()
        .map(|tensor| tensor.data())
        .collect::<Result<Vec<Array>, _>>()?;
    let arrays: Vec<&Array> = arrays.iter().collect();
    let results = runtime.eager(op, attrs, None, &arrays)?;
    Ok(results.into_iter().map(Tensor::from_array).collect())
}

/// Writes the elements of `source` into `target`.
pub(crate) fn copy(target: &Tensor, source: &Tensor) -> Result<(), Error> {
    store(target, &source.data()?)
}

/// Writes the elements of `value` into `target`'s memory.
fn store(target: &Tensor, value: &Array) -> Result<(), Error> {
    let rank = Rank::current()?;
    let runtime = rank.runtime("copy_")?;
    let memory = target.data()?;
    runtime.eager(Op::CopyToInput, &Attrs::new(), None, &[value, &memory])?;
    target.written(&memory)
}

/// The collectives, run at once.
pub(crate) struct Eager;

impl CollectiveCalls for Eager {
    fn collective(
        &mut self,
        call: &Call,
        targets: &[&Tensor],
        operands: &[&Tensor],
        group: &Group,
        _: &'static Location<'static>,
    ) -> Result<(), Error> {
        let rank = Rank::current()?;
        let mut builder = Builder::new(call.name());
        let id = builder.group(group.as_ir().clone());
        let inputs: Vec<ValueId> = operands
            .iter()
            .map(|tensor| builder.input("x", tensor.ty().clone(), false))
            .collect();
        let mut context = Context {
            builder: &mut builder,
            rank: rank.rank,
            world_size: rank.world_size,
        };
        let results = convert(&mut context, call, &inputs, id)?;
        let graph = builder.finish(Vec::new())?;

        let runtime = rank.runtime(call.name())?;
        let mut values: FxHashMap<ValueId, Array> = FxHashMap::default();
        for (input, operand) in inputs.iter().zip(operands) {
            values.insert(*input, operand.data()?);
        }
        for (_, node) in graph.nodes() {
            let operands: Vec<&Array> = node.operands.iter().map(|value| &values[value]).collect();
            let over = node.group().map(|group| graph.group(group));
            let results = runtime.eager(node.op, &node.attrs, over, &operands)?;
            values.extend(node.results.iter().copied().zip(results));
        }
        for (target, value) in targets.iter().zip(&results) {
            // A tensor that keeps its value needs no copy onto itself.
            if !inputs.contains(value) {
                store(target, &values[value])?;
            }
        }
        Ok(())
    }
}
