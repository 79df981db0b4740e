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
//! | [`reduce_scatter`] | `reduce_scatter_tensor(output, input, reduction, group)` | `reduce_scatter`, `reshape` when the output drops a dimension |
//! | [`broadcast`] | `broadcast(tensor, root, group)` | `broadcast` |
//! | [`barrier`] | `barrier(group)` | `barrier` |
//! | [`reduction`] | what a reduction means for an element type | `cast`, `mul`, `div` around the collective |
//! | [`context`] | where the nodes go, and for which rank | |
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
//! let y = convert(&mut context, &call, Some(x), group)?.expect("an all_reduce has a result");
//! let graph = builder.finish(vec![("y".into(), y)])?;
//! // The sum is formed in f32: 40000 + 40000 does not fit f16, their mean does.
//! assert_eq!(graph.nodes().count(), 5);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Invariants: the crate is pure (no I/O, threads, clock or environment); a call that
//! this crate refuses adds no node; nodes depend only on the call, the operand's type and the group's size, never on the rank,
//! so that all members of a group record the same sequence.
//!
//! It does not run anything, and it does not check calls across ranks: that is done on the whole
//! graph, before its first launch.

pub mod all_gather;
pub mod all_reduce;
pub mod barrier;
pub mod broadcast;
pub mod context;
pub mod reduce_scatter;
pub mod reduction;

pub use broadcast::Root;
pub use context::{Context, ConvertError};
pub use reduction::Reduction;

use hcom_ir::{GroupId, Type, ValueId};

/// A collective call with its arguments, apart from the tensor it reads and the group.
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
    /// Rank `i`'s `output` becomes block `i` of the reduction of all ranks' inputs.
    ReduceScatter {
        /// What is computed of the ranks' elements.
        reduction: Reduction,
        /// Type of the tensor that receives the result.
        output: Type,
    },
    /// Every rank's tensor becomes the root's.
    Broadcast {
        /// The rank whose tensor is sent.
        root: Root,
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
            Call::ReduceScatter { .. } => "reduce_scatter_tensor",
            Call::Broadcast { .. } => "broadcast",
            Call::Barrier => "barrier",
        }
    }
}

/// Adds the nodes of `call` to the graph and returns the value that the written tensor now has;
/// `None` for a call that writes nothing.
///
/// `operand` is the tensor the call reads: the tensor itself of an in-place call, the input of one
/// with an output. A barrier has none.
///
/// # Errors
/// What the collective's own `convert` refuses, and [`ConvertError::Operand`] when `operand` is
/// missing or superfluous.
pub fn convert(
    context: &mut Context<'_>,
    call: &Call,
    operand: Option<ValueId>,
    group: GroupId,
) -> Result<Option<ValueId>, ConvertError> {
    match (call, operand) {
        (Call::AllReduce { reduction }, Some(tensor)) => {
            all_reduce::convert(context, tensor, *reduction, group).map(Some)
        }
        (Call::AllGather { output }, Some(input)) => {
            all_gather::convert(context, output, input, group).map(Some)
        }
        (Call::ReduceScatter { reduction, output }, Some(input)) => {
            reduce_scatter::convert(context, output, input, *reduction, group).map(Some)
        }
        (Call::Broadcast { root }, Some(tensor)) => {
            broadcast::convert(context, tensor, *root, group).map(Some)
        }
        (Call::Barrier, None) => barrier::convert(context, group).map(|()| None),
        _ => Err(ConvertError::Operand { call: call.name() }),
    }
}
