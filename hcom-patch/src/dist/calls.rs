//! The calls that all ranks of a group make together.

use super::{Group, Reduction, Root, dispatch};
use crate::{Error, Tensor};
use hcom_convert::{Call, Splits};
use hcom_ir::{Dim, Type};

/// Makes the element-wise reduction over the group of all ranks' tensors every rank's tensor.
///
/// `reduction` is a [`ReduceOp`](super::ReduceOp), or [`Reduction::premul_sum`].
///
/// # Errors
/// [`Error::Convert`] if this rank is not in the group or the reduction has no meaning for the
/// element type; [`Error::Runtime`] if the collective fails.
#[track_caller]
pub fn all_reduce(
    tensor: &mut Tensor,
    reduction: impl Into<Reduction>,
    group: &Group,
) -> Result<(), Error> {
    let call = Call::AllReduce {
        reduction: reduction.into(),
    };
    dispatch(&call, &[tensor], &[tensor], group)
}

/// Writes all ranks' `input` into every rank's `outputs`, one tensor per rank in group order.
///
/// `outputs[i]` has as many elements as rank `i`'s input, none included, in any shape; the sizes of
/// the lists are equal on all ranks.
///
/// # Errors
/// [`Error::Convert`] if this rank is not in the group or the list does not fit; [`Error::Runtime`]
/// if the collective fails.
#[track_caller]
pub fn all_gather(outputs: &mut [Tensor], input: &Tensor, group: &Group) -> Result<(), Error> {
    let call = Call::AllGatherList {
        outputs: types(outputs),
    };
    dispatch(&call, &refs(outputs), &[input], group)
}

/// Writes all ranks' `input` into every rank's `output`, in group order: concatenated
/// (`[group_size * n, …]`), stacked (`[group_size, n, …]`), or in any shape with as many elements.
///
/// # Errors
/// [`Error::Convert`] if this rank is not in the group or `output` does not fit;
/// [`Error::Runtime`] if the collective fails.
#[track_caller]
pub fn all_gather_into_tensor(
    output: &mut Tensor,
    input: &Tensor,
    group: &Group,
) -> Result<(), Error> {
    let call = Call::AllGather {
        output: output.ty().clone(),
    };
    dispatch(&call, &[output], &[input], group)
}

/// Writes all ranks' `input`, which may have different numbers of rows, into every rank's `output`
/// in group order.
///
/// `output_splits[i]` is the number of rows (of dimension 0) of rank `i`'s input, none included;
/// `None` cuts the output evenly. The splits are equal on all ranks.
///
/// # Errors
/// [`Error::Convert`] if this rank is not in the group, the splits are not one per rank, do not
/// make up the output or do not have this rank's rows in its place; [`Error::Runtime`] if the
/// collective fails.
#[track_caller]
pub fn all_gather_into_tensor_uneven(
    output: &mut Tensor,
    input: &Tensor,
    output_splits: Option<&[u64]>,
    group: &Group,
) -> Result<(), Error> {
    let call = Call::AllGatherUneven {
        output: output.ty().clone(),
        output_splits: output_splits.map(dims),
    };
    dispatch(&call, &[output], &[input], group)
}

/// Reduces all ranks' lists `inputs` tensor by tensor and writes the reduction of the tensors `i`
/// into the `output` of group rank `i`.
///
/// `inputs[i]` has as many elements as rank `i`'s output, in any shape; the sizes of the lists are
/// equal on all ranks.
///
/// # Errors
/// [`Error::Convert`] if this rank is not in the group, the list does not fit, or the reduction has
/// no meaning for the element type; [`Error::Runtime`] if the collective fails.
#[track_caller]
pub fn reduce_scatter(
    output: &mut Tensor,
    inputs: &[Tensor],
    reduction: impl Into<Reduction>,
    group: &Group,
) -> Result<(), Error> {
    let call = Call::ReduceScatterList {
        reduction: reduction.into(),
        output: output.ty().clone(),
    };
    dispatch(&call, &[output], &refs(inputs), group)
}

/// Reduces all ranks' `input` element by element and writes block `i` of dimension 0 into the
/// `output` of group rank `i`.
///
/// # Errors
/// [`Error::Convert`] if this rank is not in the group, the group's size does not divide
/// dimension 0, `output` does not fit, or the reduction has no meaning for the element type;
/// [`Error::Runtime`] if the collective fails.
#[track_caller]
pub fn reduce_scatter_tensor(
    output: &mut Tensor,
    input: &Tensor,
    reduction: impl Into<Reduction>,
    group: &Group,
) -> Result<(), Error> {
    let call = Call::ReduceScatter {
        reduction: reduction.into(),
        output: output.ty().clone(),
    };
    dispatch(&call, &[output], &[input], group)
}

/// Reduces all ranks' `input` element by element and writes `input_splits[i]` rows (of
/// dimension 0) of the result into the `output` of group rank `i`.
///
/// `None` cuts the input evenly. The splits are equal on all ranks. There is no product;
/// [`reduce_scatter`] has one.
///
/// # Errors
/// [`Error::Convert`] if this rank is not in the group, the splits are not one per rank, do not
/// make up the input or do not have this rank's rows in its place, or the reduction has no meaning
/// for the element type; [`Error::Runtime`] if the collective fails.
#[track_caller]
pub fn reduce_scatter_tensor_uneven(
    output: &mut Tensor,
    input: &Tensor,
    input_splits: Option<&[u64]>,
    reduction: impl Into<Reduction>,
    group: &Group,
) -> Result<(), Error> {
    let call = Call::ReduceScatterUneven {
        reduction: reduction.into(),
        output: output.ty().clone(),
        input_splits: input_splits.map(dims),
    };
    dispatch(&call, &[output], &[input], group)
}

/// Sends piece `i` of `input` to group rank `i` and writes the pieces received into `output`, in
/// group order.
///
/// Splits are rows of dimension 0 per rank, none included; `None` cuts evenly. All ranks of the
/// group give splits, or none does.
///
/// # Errors
/// [`Error::Convert`] if this rank is not in the group, splits are not one per rank or do not make
/// up their tensor, an even cut leaves a rest, or `output` does not fit; [`Error::Runtime`] if the
/// ranks' splits do not fit each other or the collective fails.
#[track_caller]
pub fn all_to_all_single(
    output: &mut Tensor,
    input: &Tensor,
    output_splits: Option<&[u64]>,
    input_splits: Option<&[u64]>,
    group: &Group,
) -> Result<(), Error> {
    let (output_splits, input_splits) = (output_splits.map(dims), input_splits.map(dims));
    all_to_all_single_dims(
        output,
        input,
        output_splits.as_deref(),
        input_splits.as_deref(),
        group,
    )
}

/// [`all_to_all_single`] with splits that may be sizes of tensors, which stay symbols in a function
/// that is compiled for [several sizes](crate::Shapes).
///
/// # Errors
/// As [`all_to_all_single`].
#[track_caller]
pub fn all_to_all_single_dims(
    output: &mut Tensor,
    input: &Tensor,
    output_splits: Option<&[Dim]>,
    input_splits: Option<&[Dim]>,
    group: &Group,
) -> Result<(), Error> {
    let call = Call::AllToAllSingle {
        output: output.ty().clone(),
        splits: Splits {
            output: output_splits.map(<[Dim]>::to_vec),
            input: input_splits.map(<[Dim]>::to_vec),
        },
    };
    dispatch(&call, &[output], &[input], group)
}

/// Sends `inputs[i]` to group rank `i` and writes the tensor received from rank `i` into
/// `outputs[i]`.
///
/// The tensors may have any sizes, as long as both ends have the same number of elements.
///
/// # Errors
/// [`Error::Convert`] if this rank is not in the group, a list does not have one tensor per rank,
/// or element types differ; [`Error::Runtime`] if the ranks' sizes do not fit each other or the
/// collective fails.
#[track_caller]
pub fn all_to_all(outputs: &mut [Tensor], inputs: &[Tensor], group: &Group) -> Result<(), Error> {
    let call = Call::AllToAll {
        outputs: types(outputs),
    };
    dispatch(&call, &refs(outputs), &refs(inputs), group)
}

/// Makes the root's tensor every rank's tensor.
///
/// # Errors
/// [`Error::Convert`] if this rank or the root is not in the group; [`Error::Runtime`] if the
/// collective fails.
#[track_caller]
pub fn broadcast(tensor: &mut Tensor, root: Root, group: &Group) -> Result<(), Error> {
    dispatch(&Call::Broadcast { root }, &[tensor], &[tensor], group)
}

/// Makes the element-wise reduction over the group of all ranks' tensors the root's tensor; the
/// other ranks keep theirs.
///
/// # Errors
/// [`Error::Convert`] if this rank or the root is not in the group or the reduction has no meaning
/// for the element type; [`Error::Runtime`] if the collective fails.
#[track_caller]
pub fn reduce(
    tensor: &mut Tensor,
    reduction: impl Into<Reduction>,
    root: Root,
    group: &Group,
) -> Result<(), Error> {
    let call = Call::Reduce {
        reduction: reduction.into(),
        root,
    };
    dispatch(&call, &[tensor], &[tensor], group)
}

/// Writes tensor `i` of the root's `inputs` into the `output` of group rank `i`.
///
/// The root gives one input per rank, each with as many elements as an output; the others give
/// none.
///
/// # Errors
/// [`Error::Convert`] if this rank or the root is not in the group or the list does not fit;
/// [`Error::Runtime`] if the collective fails.
#[track_caller]
pub fn scatter(
    output: &mut Tensor,
    inputs: &[Tensor],
    root: Root,
    group: &Group,
) -> Result<(), Error> {
    let call = Call::Scatter {
        output: output.ty().clone(),
        root,
    };
    dispatch(&call, &[output], &refs(inputs), group)
}

/// Writes the `input` of group rank `i` into tensor `i` of the root's `outputs`.
///
/// The root gives one output per rank, each with as many elements as an input; the others give
/// none.
///
/// # Errors
/// [`Error::Convert`] if this rank or the root is not in the group or the list does not fit;
/// [`Error::Runtime`] if the collective fails.
#[track_caller]
pub fn gather(
    outputs: &mut [Tensor],
    input: &Tensor,
    root: Root,
    group: &Group,
) -> Result<(), Error> {
    let call = Call::Gather {
        outputs: types(outputs),
        root,
    };
    dispatch(&call, &refs(outputs), &[input], group)
}

/// [`all_reduce`] of each tensor, those of one element type together as one collective.
///
/// The list has the same element types and sizes on all ranks.
///
/// # Errors
/// As [`all_reduce`].
#[track_caller]
pub fn all_reduce_coalesced(
    tensors: &mut [Tensor],
    reduction: impl Into<Reduction>,
    group: &Group,
) -> Result<(), Error> {
    let call = Call::AllReduceCoalesced {
        reduction: reduction.into(),
    };
    dispatch(&call, &refs(tensors), &refs(tensors), group)
}

/// [`all_gather_into_tensor`] of each pair of tensors, those of one element type together as one
/// collective.
///
/// # Errors
/// As [`all_gather_into_tensor`]; [`Error::Convert`] unless there is one output per input.
#[track_caller]
pub fn all_gather_into_tensor_coalesced(
    outputs: &mut [Tensor],
    inputs: &[Tensor],
    group: &Group,
) -> Result<(), Error> {
    let call = Call::AllGatherCoalesced {
        outputs: types(outputs),
    };
    dispatch(&call, &refs(outputs), &refs(inputs), group)
}

/// [`reduce_scatter_tensor`] of each pair of tensors, those of one element type together as one
/// collective.
///
/// # Errors
/// As [`reduce_scatter_tensor`]; [`Error::Convert`] unless there is one output per input.
#[track_caller]
pub fn reduce_scatter_tensor_coalesced(
    outputs: &mut [Tensor],
    inputs: &[Tensor],
    reduction: impl Into<Reduction>,
    group: &Group,
) -> Result<(), Error> {
    let call = Call::ReduceScatterCoalesced {
        reduction: reduction.into(),
        outputs: types(outputs),
    };
    dispatch(&call, &refs(outputs), &refs(inputs), group)
}

/// Lets no rank of the group go on before all have arrived.
///
/// # Errors
/// [`Error::Convert`] if this rank is not in the group; [`Error::Runtime`] if a rank does not
/// arrive.
#[track_caller]
pub fn barrier(group: &Group) -> Result<(), Error> {
    dispatch(&Call::Barrier, &[], &[], group)
}

fn refs(tensors: &[Tensor]) -> Vec<&Tensor> {
    tensors.iter().collect()
}

fn dims(splits: &[u64]) -> Vec<Dim> {
    splits.iter().copied().map(Dim::fixed).collect()
}

fn types(tensors: &[Tensor]) -> Vec<Type> {
    tensors.iter().map(|tensor| tensor.ty().clone()).collect()
}
