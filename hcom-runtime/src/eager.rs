//! One operation at a time, as soon as it is called.
//!
//! The operation is checked and lowered through a graph of its own, and kept for the next call with
//! equal types. Everything runs on the compute stream.

use std::sync::Arc;

use hcom_ir::{Attrs, Builder, Class, Diagnostics, Graph, Group, Op, Type};

use crate::{
    Array, Error,
    aclnn::{self, Call, Lowered},
    buffer::Block,
    comm,
    plan::{Channel, Tasks},
    raw::{Communicator, Operator},
    runtime::Inner,
    watchdog::{Mark, Row},
};

/// What decides how an operation is executed.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Key {
    op: Op,
    attrs: Attrs,
    ranks: Option<Vec<u32>>,
    operands: Vec<Type>,
}

/// An operation that was checked and lowered.
#[derive(Debug)]
pub(crate) struct Eager {
    lowered: Lowered,
    results: Vec<Type>,
    channel: Option<Channel>,
    row: Arc<Row>,
    /// The data of a constant.
    literal: Option<Arc<hcom_ir::Literal>>,
}

impl Eager {
    fn new(
        inner: &Inner,
        op: Op,
        attrs: &Attrs,
        group: Option<&Group>,
        operands: &[&Array],
    ) -> Result<Eager, Error> {
        let mut builder = Builder::new(op.name());
        let mut attrs = attrs.clone();
        if let Some(group) = group {
            attrs.set("group", builder.group(group.clone()));
        }
        let inputs: Vec<_> = operands
            .iter()
            .enumerate()
            .map(|(index, array)| {
                let written = op == Op::CopyToInput && index == 1;
                builder.input(&format!("x{index}"), array.ty().clone(), written)
            })
            .collect();
        let single = |diagnostic| Error::Graph(Diagnostics(vec![diagnostic]));
        let results = builder.push(op, &inputs, attrs).map_err(single)?;
        let outputs = results
            .iter()
            .enumerate()
            .map(|(n, &value)| (format!("y{n}"), value));
        let graph = builder.finish(outputs.collect())?;
        if !graph.is_fixed() {
            return Err(unbound(&graph));
        }
        let (id, node) = graph.nodes().next().expect("one node was pushed");
        let results: Vec<Type> = node
            .results
            .iter()
            .map(|&value| graph.ty(value).clone())
            .collect();
        let tasks = Tasks::new(&graph, inner.control.rank())?;
        let (lowered, channel) = match tasks.tasks.into_iter().next() {
            Some(task) if node.op.class() != Class::View => (
                task.lowered,
                task.channel.map(|channel| tasks.channels[channel].clone()),
            ),
            _ => {
                let types: Vec<&Type> = operands.iter().map(|array| array.ty()).collect();
                let site = aclnn::Site {
                    op,
                    attrs: &node.attrs,
                    operands: &types,
                    results: &results.iter().collect::<Vec<_>>(),
                    member: None,
                };
                (aclnn::lower(&site)?, None)
            }
        };
        for call in &lowered.calls {
            if let Call::Collective(collective) = call {
                Communicator::offers(&inner.driver, &collective.kind)?;
            }
        }
        Ok(Eager {
            lowered,
            channel,
            row: Row::new(&graph, id),
            literal: (op == Op::Constant).then(|| node.attrs.literal("value").clone()),
            results,
        })
    }
}

/// The error for a graph with sizes that are not known.
pub(crate) fn unbound(graph: &Graph) -> Error {
    Error::Unbound {
        graph: graph.name().to_owned(),
        symbols: graph.symbols().join(", "),
    }
}

pub(crate) fn execute(
    inner: &Arc<Inner>,
    op: Op,
    attrs: &Attrs,
    group: Option<&Group>,
    operands: &[&Array],
) -> Result<Vec<Array>, Error> {
    for operand in operands {
        if !Arc::ptr_eq(operand.runtime(), inner) {
            return Err(Error::ForeignArray {
                owner: operand.runtime().control.rank(),
                rank: inner.control.rank(),
            });
        }
    }
    let mut launch = inner.begin()?;
    let key = Key {
        op,
        attrs: attrs.clone(),
        ranks: group.map(|group| group.ranks.clone()),
        operands: operands.iter().map(|array| array.ty().clone()).collect(),
    };
    let eager = match launch.eager.get(&key) {
        Some(known) => known.clone(),
        None => {
            let made = Arc::new(Eager::new(inner, op, attrs, group, operands)?);
            launch.eager.insert(key, made.clone());
            made
        }
    };
    let comm = match &eager.channel {
        Some(channel) => {
            let key = comm::Key {
                ranks: channel.group.ranks.clone(),
                own_stream: false,
                point_to_point: channel.point_to_point,
            };
            Some(inner.comm(&mut launch, &key, &channel.group)?)
        }
        None => None,
    };
    let results = eager
        .results
        .iter()
        .map(|ty| {
            let shape: Vec<u64> = aclnn::sizes(ty)
                .into_iter()
                .map(|size| size as u64)
                .collect();
            inner.empty(ty.dtype, &shape, aclnn::bytes(ty))
        })
        .collect::<Result<Vec<Array>, Error>>()?;
    if let Some(literal) = &eager.literal {
        inner.watchdog.wait(&inner.compute)?;
        if !literal.bytes.is_empty() {
            results[0].place().write(&literal.bytes)?;
        }
        return Ok(results);
    }
    let scratch = eager
        .lowered
        .scratch
        .iter()
        .map(|&bytes| Block::take(inner, bytes).map(|(block, _)| (block, bytes)))
        .collect::<Result<Vec<_>, Error>>()?;
    let place = |place: aclnn::Place| match place {
        aclnn::Place::Operand(index) => operands[index].place(),
        aclnn::Place::Result(index) => results[index].place(),
        aclnn::Place::Scratch(index) => scratch[index].0.place(scratch[index].1),
    };
    let maybe = |at: aclnn::Place| match at {
        aclnn::Place::Operand(index) if index >= operands.len() => None,
        aclnn::Place::Result(index) if index >= results.len() => None,
        at => Some(place(at)),
    };
    for call in &eager.lowered.calls {
        match call {
            Call::Kernel { kernel, args } => {
                let issued = Operator::new(&inner.driver, *kernel, args, place)
                    .and_then(|operator| operator.launch(&inner.compute, &mut launch.workspace));
                issued.map_err(|error| error.at(|| eager.row.node.clone()))?;
            }
            Call::Copy { from, to, bytes } => {
                place(*from).copy_to(&place(*to), *bytes, &inner.compute)?;
            }
            Call::Collective(collective) => {
                let comm = comm.as_ref().expect("a collective has a communicator");
                let transfer = eager.channel.as_ref().is_some_and(|c| c.point_to_point);
                let seq = launch.next_seq(&comm.group().ranks, transfer);
                let (from, to) = (maybe(collective.from), maybe(collective.to));
                let mark = Mark::Issue {
                    line: comm.line(),
                    seq,
                    row: &eager.row,
                    run: None,
                };
                comm.launch(collective, from.as_ref(), to.as_ref(), &mark)
                    .map_err(|error| inner.watchdog.blame(error.at(|| eager.row.node.clone())))?;
            }
        }
    }
    Ok(results)
}
