//! Converts a collective call, as a program writes it, into nodes of the graph.
//!
//! A program calls `all_reduce(tensor, AVG, group)` and its siblings in place; the graph knows only
//! functional collectives with the reductions the device library has. This crate is the step
//! between: it checks the call, lowers what the library lacks, and refuses, with the reason, what
//! cannot be right. Whoever records the call then binds the returned value to the tensor the call
//! wrote.
//!
//! | module | call | becomes |
//! |---|---|---|
//! | [`all_reduce`] | `all_reduce(tensor, reduction, group)` | `all_reduce` |
//! | [`all_gather`] | `all_gather_into_tensor(output, input, group)` | `all_gather`, `reshape` when the output is stacked |
//! | [`all_gather_list`] | `all_gather(outputs, input, group)` | `all_gather` or `all_gather_uneven`, `split` |
//! | [`all_gather_uneven`] | `all_gather_into_tensor_uneven(output, input, output_splits, group)` | `all_gather_uneven` |
//! | [`reduce_scatter`] | `reduce_scatter_tensor(output, input, reduction, group)` | `reduce_scatter`, `reshape` when the output drops a dimension |
//! | [`reduce_scatter_list`] | `reduce_scatter(output, inputs, reduction, group)` | `concat`, `reduce_scatter` or `reduce_scatter_uneven` |
//! | [`reduce_scatter_uneven`] | `reduce_scatter_tensor_uneven(output, input, input_splits, reduction, group)` | `reduce_scatter_uneven` |
//! | [`all_to_all_single`] | `all_to_all_single(output, input, output_splits, input_splits, group)` | `all_to_all` |
//! | [`all_to_all`] | `all_to_all(outputs, inputs, group)` | `concat`, `all_to_all`, `split` |
//! | [`broadcast`] | `broadcast(tensor, root, group)` | `broadcast` |
//! | [`reduce`] | `reduce(tensor, reduction, root, group)` | `reduce` |
//! | [`scatter`] | `scatter(output, inputs, root, group)` | `concat`, `scatter` |
//! | [`gather`] | `gather(outputs, input, root, group)` | `gather_to`, `split` |
//! | [`send`], [`recv`] | `send(tensor, peer, tag, group)`, `recv(…)` | `send`, `recv` between the two ranks |
//! | [`batch`] | `batch_isend_irecv(transfers, group)` | `send`s and `recv`s in an order that all ranks share |
//! | [`coalesced`] | `all_reduce_coalesced`, `all_gather_into_tensor_coalesced`, `reduce_scatter_tensor_coalesced` | one collective per element type |
//! | [`barrier`] | `barrier(group)` | `barrier` |
//! | [`reduction`] | what a reduction means for an element type | `cast`, `mul`, `div` around the collective |
//! | [`support`] | which element types and reductions each call takes, as a table | |
//! | [`written`] | graphs from text, whose reductions are lowered as those of calls | |
//! | [`context`] | where the nodes go, and for which rank | |
//! | [`ge`] | graphs in the form that Huawei's offline compiler reads | |
//!
//! Each collective's module has the same four parts: what the call means, `convert`, its errors,
//! its tests. [`convert`] is the registry over them.
//!
//! ```
//! use hcom_convert::{Call, Context, Reduction, convert};
//! use hcom_ir::{Builder, DType, Group, ReduceOp, Type};
//!
//! let mut builder = Builder::new("mean");
//! let group = builder.group(Group::new("tp", [0, 1]));
//! let x = builder.input("x", Type::fixed(DType::F16, &[4]), false);
//! let mut context = Context { builder: &mut builder, rank: 0, world_size: 2 };
//! let call = Call::AllReduce { reduction: ReduceOp::Avg.into() };
//! let y = convert(&mut context, &call, &[x], group)?[0];
//! let graph = builder.finish(vec![("y".into(), y)])?;
//! // The sum is formed in f32: 40000 + 40000 does not fit f16, their mean does.
//! assert_eq!(graph.nodes().count(), 5);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Invariants: the crate is pure (no I/O, threads, clock or environment); a call that
//! this crate refuses adds no node; which
//! collectives a call becomes never depends on the rank, so that all members of a group record the
//! same sequence.
//!
//! It does not run anything, and it does not check calls across ranks: that is done on the whole
//! graph, before its first launch.

pub mod all_gather;
pub mod all_gather_list;
pub mod all_gather_uneven;
pub mod all_reduce;
pub mod all_to_all;
pub mod all_to_all_single;
pub mod barrier;
pub mod batch;
pub mod broadcast;
pub mod coalesced;
pub mod context;
pub mod gather;
pub mod ge;
pub mod recv;
pub mod reduce;
pub mod reduce_scatter;
pub mod reduce_scatter_list;
pub mod reduce_scatter_uneven;
pub mod reduction;
pub mod scatter;
pub mod send;
pub mod support;
pub mod written;

pub use all_to_all_single::Splits;
pub use batch::{Direction, Peer, Transfer};
pub use broadcast::Root;
pub use context::{Context, ConvertError};
pub use reduction::Reduction;

use hcom_ir::{Dim, GroupId, Type, ValueId};

/// A collective call with its arguments, apart from the tensors it reads and the group.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Call {
    /// Every rank's tensor becomes the reduction of all ranks' tensors.
    AllReduce {
        /// What is computed of the ranks' elements.
        reduction: Reduction,
    },
    /// Every rank's `output` becomes all ranks' inputs, in group order.
    AllGather {
        /// Type of the tensor that receives the result.
        output: Type,
    },
    /// Tensor `i` of every rank's `outputs` becomes rank `i`'s input.
    AllGatherList {
        /// Types of the tensors that receive the results.
        outputs: Vec<Type>,
    },
    /// Every rank's `output` becomes all ranks' inputs, of different numbers of rows.
    AllGatherUneven {
        /// Type of the tensor that receives the result.
        output: Type,
        /// Rows of each rank's input; evenly many without.
        output_splits: Option<Vec<Dim>>,
    },
    /// Rank `i`'s `output` becomes block `i` of the reduction of all ranks' inputs.
    ReduceScatter {
        /// What is computed of the ranks' elements.
        reduction: Reduction,
        /// Type of the tensor that receives the result.
        output: Type,
    },
    /// Rank `i`'s `output` becomes the reduction of the tensors `i` of all ranks' lists.
    ReduceScatterList {
        /// What is computed of the ranks' elements.
        reduction: Reduction,
        /// Type of the tensor that receives the result.
        output: Type,
    },
    /// Rank `i`'s `output` becomes `input_splits[i]` rows of the reduction of all ranks' inputs.
    ReduceScatterUneven {
        /// What is computed of the ranks' elements.
        reduction: Reduction,
        /// Type of the tensor that receives the result.
        output: Type,
        /// Rows that each rank receives; evenly many without.
        input_splits: Option<Vec<Dim>>,
    },
    /// Piece `j` of rank `i`'s input becomes piece `i` of rank `j`'s `output`.
    AllToAllSingle {
        /// Type of the tensor that receives the result.
        output: Type,
        /// How both are cut.
        splits: Splits,
    },
    /// Tensor `j` of rank `i`'s inputs becomes tensor `i` of rank `j`'s `outputs`.
    AllToAll {
        /// Types of the tensors that receive the results.
        outputs: Vec<Type>,
    },
    /// Every rank's tensor becomes the root's.
    Broadcast {
        /// The rank whose tensor is sent.
        root: Root,
    },
    /// The root's tensor becomes the reduction of all ranks' tensors.
    Reduce {
        /// What is computed of the ranks' elements.
        reduction: Reduction,
        /// The rank that receives the result.
        root: Root,
    },
    /// Rank `i`'s `output` becomes tensor `i` of the root's list.
    Scatter {
        /// Type of the tensor that receives the result.
        output: Type,
        /// The rank whose tensors are sent.
        root: Root,
    },
    /// Tensor `i` of the root's `outputs` becomes rank `i`'s input.
    Gather {
        /// Types of the tensors that receive the results; none but on the root.
        outputs: Vec<Type>,
        /// The rank that receives.
        root: Root,
    },
    /// The peer's matching receive gets this tensor.
    Send {
        /// The rank that receives.
        peer: Peer,
        /// Matched with the receive's.
        tag: u32,
    },
    /// The tensor becomes what the peer's matching send sends.
    Recv {
        /// Type of the tensor that receives.
        output: Type,
        /// The rank that sends.
        peer: Peer,
        /// Matched with the send's.
        tag: u32,
    },
    /// Sends and receives that are under way together.
    Batch {
        /// The transfers, as the program lists them.
        transfers: Vec<Transfer>,
    },
    /// Every rank's tensors become the reductions of all ranks' tensors.
    AllReduceCoalesced {
        /// What is computed of the ranks' elements.
        reduction: Reduction,
    },
    /// Output `k` of every rank becomes all ranks' inputs `k`, in group order.
    AllGatherCoalesced {
        /// Types of the tensors that receive the results.
        outputs: Vec<Type>,
    },
    /// Output `k` of rank `i` becomes block `i` of the reduction of all ranks' inputs `k`.
    ReduceScatterCoalesced {
        /// What is computed of the ranks' elements.
        reduction: Reduction,
        /// Types of the tensors that receive the results.
        outputs: Vec<Type>,
    },
    /// No rank goes on before all have arrived.
    Barrier,
}

impl Call {
    /// The call's name, as a program writes it.
    pub fn name(&self) -> &'static str {
        match self {
            Call::AllReduce { .. } => "all_reduce",
            Call::AllGather { .. } => "all_gather_into_tensor",
            Call::AllGatherList { .. } => "all_gather",
            Call::AllGatherUneven { .. } => "all_gather_into_tensor_uneven",
            Call::ReduceScatter { .. } => "reduce_scatter_tensor",
            Call::ReduceScatterList { .. } => "reduce_scatter",
            Call::ReduceScatterUneven { .. } => "reduce_scatter_tensor_uneven",
            Call::AllToAllSingle { .. } => "all_to_all_single",
            Call::AllToAll { .. } => "all_to_all",
            Call::Broadcast { .. } => "broadcast",
            Call::Reduce { .. } => "reduce",
            Call::Scatter { .. } => "scatter",
            Call::Gather { .. } => "gather",
            Call::Send { .. } => "send",
            Call::Recv { .. } => "recv",
            Call::Batch { .. } => "batch_isend_irecv",
            Call::AllReduceCoalesced { .. } => "all_reduce_coalesced",
            Call::AllGatherCoalesced { .. } => "all_gather_into_tensor_coalesced",
            Call::ReduceScatterCoalesced { .. } => "reduce_scatter_tensor_coalesced",
            Call::Barrier => "barrier",
        }
    }
}

/// Adds the nodes of `call` to the graph and returns the values that the written tensors now have,
/// in the order in which the call names them.
///
/// `operands` are the tensors the call reads: the tensor itself of an in-place call, the inputs of
/// one with outputs, the tensors sent by a batch. A barrier has none.
///
/// # Errors
/// What the collective's own `convert` refuses, and [`ConvertError::Operand`] for another number
/// of operands than the call takes.
pub fn convert(
    context: &mut Context<'_>,
    call: &Call,
    operands: &[ValueId],
    group: GroupId,
) -> Result<Vec<ValueId>, ConvertError> {
    let one = || match operands {
        [operand] => Ok(*operand),
        _ => Err(ConvertError::Operand { call: call.name() }),
    };
    let value = match call {
        Call::AllReduce { reduction } => all_reduce::convert(context, one()?, *reduction, group)?,
        Call::AllGather { output } => all_gather::convert(context, output, one()?, group)?,
        Call::AllGatherList { outputs } => {
            return all_gather_list::convert(context, outputs, one()?, group);
        }
        Call::AllGatherUneven {
            output,
            output_splits,
        } => {
            let splits = output_splits.as_deref();
            all_gather_uneven::convert(context, output, one()?, splits, group)?
        }
        Call::ReduceScatter { reduction, output } => {
            reduce_scatter::convert(context, output, one()?, *reduction, group)?
        }
        Call::ReduceScatterList { reduction, output } => {
            reduce_scatter_list::convert(context, output, operands, *reduction, group)?
        }
        Call::ReduceScatterUneven {
            reduction,
            output,
            input_splits,
        } => {
            let splits = input_splits.as_deref();
            reduce_scatter_uneven::convert(context, output, one()?, splits, *reduction, group)?
        }
        Call::AllToAllSingle { output, splits } => {
            all_to_all_single::convert(context, output, one()?, splits, group)?
        }
        Call::AllToAll { outputs } => {
            return all_to_all::convert(context, outputs, operands, group);
        }
        Call::Broadcast { root } => broadcast::convert(context, one()?, *root, group)?,
        Call::Reduce { reduction, root } => {
            reduce::convert(context, one()?, *reduction, *root, group)?
        }
        Call::Scatter { output, root } => {
            scatter::convert(context, output, operands, *root, group)?
        }
        Call::Gather { outputs, root } => {
            return gather::convert(context, outputs, one()?, *root, group);
        }
        Call::Send { peer, tag } => {
            send::convert(context, one()?, *peer, *tag, group)?;
            return Ok(Vec::new());
        }
        Call::Recv { output, peer, tag } if operands.is_empty() => {
            recv::convert(context, output, *peer, *tag, group)?
        }
        Call::Batch { transfers } => {
            return batch::convert(context, transfers, operands, group);
        }
        Call::AllReduceCoalesced { reduction } => {
            return coalesced::all_reduce(context, operands, *reduction, group);
        }
        Call::AllGatherCoalesced { outputs } => {
            return coalesced::all_gather(context, outputs, operands, group);
        }
        Call::ReduceScatterCoalesced { reduction, outputs } => {
            return coalesced::reduce_scatter(context, outputs, operands, *reduction, group);
        }
        Call::Barrier if operands.is_empty() => {
            barrier::convert(context, group)?;
            return Ok(Vec::new());
        }
        Call::Recv { .. } | Call::Barrier => {
            return Err(ConvertError::Operand { call: call.name() });
        }
    };
    Ok(vec![value])
}
