//! A collective call as the Python side writes it down, and what this rank executes for it.

use hcom_convert::{Call, Context, Reduction, Root, Splits, convert};
use hcom_ir::{Builder, DType, Dim, Graph, Group, Location, ReduceOp, Type, ValueId};
use pyo3::PyErr;
use serde::Deserialize;

use crate::error::invalid;

/// A call without its sizes, which come as a list of integers: the shapes of the inputs, the shapes of
/// the outputs, then the splits. So one description serves all sizes of a dynamic graph.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Spec {
    /// Name of the call, as in [`Call::name`].
    pub(crate) call: String,
    /// Element type of all tensors, as torch names it.
    dtype: String,
    /// Number of dimensions of each input.
    inputs: Vec<usize>,
    /// Number of dimensions of each output.
    outputs: Vec<usize>,
    reduction: Option<String>,
    /// Root, or peer of a transfer, as a rank of the group.
    root: Option<u32>,
    #[serde(default)]
    tag: u32,
    /// How many integers are splits of the output.
    out_splits: Option<usize>,
    /// How many integers are splits of the input.
    in_splits: Option<usize>,
    /// Compared with the other ranks each time.
    #[serde(default)]
    each: bool,
    /// Nobody reads the outputs.
    #[serde(default)]
    pub(crate) unused: bool,
    /// The Python line of the call.
    #[serde(default)]
    pub(crate) at: String,
}

impl Spec {
    /// Reads the JSON form.
    pub(crate) fn parse(text: &str) -> Result<Spec, PyErr> {
        serde_json::from_str(text)
            .map_err(|error| invalid(format!("collective description {text}: {error}")))
    }

    /// Whether the call is compared with the other ranks each time it starts, rather than once.
    /// Every member of the group answers alike: where each rank has sizes of its own, one of them may
    /// have seen its sizes before and another not.
    pub(crate) fn compared_each_time(&self) -> bool {
        self.each
            || self.call == "all_to_all"
            || self.out_splits.is_some()
            || self.in_splits.is_some()
    }

    fn location(&self) -> Option<Location> {
        let (file, line) = self.at.rsplit_once(':')?;
        Some(Location {
            file: file.into(),
            line: line.parse().ok()?,
            column: 1,
        })
    }
}

/// A call with its sizes.
pub(crate) struct Sized {
    pub(crate) inputs: Vec<Type>,
    call: Call,
    location: Option<Location>,
}

impl Sized {
    /// Puts the integers into the places that `spec` describes. `peer` stands for the peer of a transfer
    /// where only its two ranks are members.
    pub(crate) fn new(spec: &Spec, sizes: &[u64], peer: Option<u32>) -> Result<Sized, PyErr> {
        let dtype = dtype(&spec.dtype)?;
        let mut rest = sizes;
        let mut take = |count: usize| {
            let short = || invalid(format!("{}: {} sizes are too few", spec.call, sizes.len()));
            let (head, tail) = rest.split_at_checked(count).ok_or_else(short)?;
            rest = tail;
            Ok::<_, PyErr>(head)
        };
        let mut types = |dims: &[usize]| {
            dims.iter()
                .map(|&dims| take(dims).map(|shape| Type::fixed(dtype, shape)))
                .collect::<Result<Vec<Type>, PyErr>>()
        };
        let inputs = types(&spec.inputs)?;
        let outputs = types(&spec.outputs)?;
        let mut splits = |count: Option<usize>| {
            let fixed = |sizes: &[u64]| sizes.iter().copied().map(Dim::fixed).collect();
            count.map(|n| take(n).map(fixed)).transpose()
        };
        let splits = Splits {
            output: splits(spec.out_splits)?,
            input: splits(spec.in_splits)?,
        };
        Ok(Sized {
            call: call(spec, outputs, splits, peer)?,
            inputs,
            location: spec.location(),
        })
    }

    /// Adds the call to a graph, as rank `rank` of `group`, which is the world of the graph.
    pub(crate) fn push(
        &self,
        builder: &mut Builder,
        group: &Group,
        rank: u32,
    ) -> Result<Vec<ValueId>, PyErr> {
        builder.set_location(self.location.clone());
        let id = builder.group(group.clone());
        let operands: Vec<ValueId> = self
            .inputs
            .iter()
            .map(|ty| builder.input("x", ty.clone(), false))
            .collect();
        let mut context = Context {
            builder,
            rank,
            world_size: group.group_size(),
        };
        convert(&mut context, &self.call, &operands, id).map_err(invalid)
    }

    /// The graph of this call alone.
    pub(crate) fn graph(&self, group: &Group, rank: u32) -> Result<Graph, PyErr> {
        let mut builder = Builder::new(self.call.name());
        let outputs = self.push(&mut builder, group, rank)?;
        let named = (0..)
            .zip(&outputs)
            .map(|(index, &value)| (format!("y{index}"), value));
        builder.finish(named.collect()).map_err(invalid)
    }
}

fn call(spec: &Spec, outputs: Vec<Type>, splits: Splits, peer: Option<u32>) -> Result<Call, PyErr> {
    let missing = |what: &str| invalid(format!("{}: no {what}", spec.call));
    let reduction = || -> Result<Reduction, PyErr> {
        let name = spec
            .reduction
            .as_deref()
            .ok_or_else(|| missing("reduction"))?;
        let op: ReduceOp = name.parse().map_err(invalid)?;
        Ok(Reduction { op, factor: None })
    };
    let root = || {
        peer.or(spec.root)
            .map(Root::Group)
            .ok_or_else(|| missing("root"))
    };
    let output = || outputs.first().cloned().ok_or_else(|| missing("output"));
    Ok(match spec.call.as_str() {
        "all_reduce" => Call::AllReduce {
            reduction: reduction()?,
        },
        "all_gather_into_tensor" => Call::AllGather { output: output()? },
        "all_gather" => Call::AllGatherList { outputs },
        "all_gather_into_tensor_uneven" => Call::AllGatherUneven {
            output: output()?,
            output_splits: splits.output,
        },
        "reduce_scatter_tensor" => Call::ReduceScatter {
            reduction: reduction()?,
            output: output()?,
        },
        "reduce_scatter" => Call::ReduceScatterList {
            reduction: reduction()?,
            output: output()?,
        },
        "reduce_scatter_tensor_uneven" => Call::ReduceScatterUneven {
            reduction: reduction()?,
            output: output()?,
            input_splits: splits.input,
        },
        "all_to_all_single" => Call::AllToAllSingle {
            output: output()?,
            splits,
        },
        "all_to_all" => Call::AllToAll { outputs },
        "broadcast" => Call::Broadcast { root: root()? },
        "reduce" => Call::Reduce {
            reduction: reduction()?,
            root: root()?,
        },
        "scatter" => Call::Scatter {
            output: output()?,
            root: root()?,
        },
        "gather" => Call::Gather {
            outputs,
            root: root()?,
        },
        "send" => Call::Send {
            peer: root()?,
            tag: spec.tag,
        },
        "recv" => Call::Recv {
            output: output()?,
            peer: root()?,
            tag: spec.tag,
        },
        "barrier" => Call::Barrier,
        other => return Err(invalid(format!("there is no collective {other:?}"))),
    })
}

/// The element type that torch calls `name`.
pub(crate) fn dtype(name: &str) -> Result<DType, PyErr> {
    let names = [
        ("bool", DType::Bool),
        ("int8", DType::I8),
        ("int16", DType::I16),
        ("int32", DType::I32),
        ("int64", DType::I64),
        ("uint8", DType::U8),
        ("uint16", DType::U16),
        ("uint32", DType::U32),
        ("uint64", DType::U64),
        ("float16", DType::F16),
        ("bfloat16", DType::BF16),
        ("float32", DType::F32),
        ("float64", DType::F64),
        ("complex64", DType::C64),
        ("complex128", DType::C128),
    ];
    names
        .iter()
        .find_map(|&(known, dtype)| (known == name).then_some(dtype))
        .ok_or_else(|| {
            let known = names.map(|(name, _)| name).join(", ");
            invalid(format!("collectives take tensors of {known}; got {name}"))
        })
}
