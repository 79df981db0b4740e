"""Gradients of the collectives that have one.

The loss of the whole program is the sum of the losses of its ranks. So what flows back through a sum is the
sum of all ranks' gradients, through a gather the reduction of them, and through an exchange the exchange back.
"""

from __future__ import annotations

from typing import Any

import torch

from . import ops

hcom = torch.ops.hcom


def _setup(ctx: Any, inputs: tuple[Any, ...], output: list[torch.Tensor]) -> None:
    tensors, sizes, dims, splits, dtype, reduction, root, tag, asynchronous, group = inputs
    ctx.shapes = [list(tensor.shape) for tensor in tensors]
    ctx.outputs = [list(tensor.shape) for tensor in output]
    ctx.splits = ops.split(
        sizes[sum(len(s) for s in ctx.shapes) + sum(len(s) for s in ctx.outputs) :],
        [max(count, 0) for count in splits],
    )
    ctx.counts, ctx.dtype, ctx.reduction, ctx.group = list(splits), dtype, reduction, group


def _call(name: str, context: Any, given: list[torch.Tensor], shapes: list[list[Any]], **more: Any) -> Any:
    """The collective ``name`` of gradients; the results have these shapes."""
    given = [tensor.contiguous() for tensor in given]
    sizes = [size for tensor in given for size in tensor.shape] + [size for shape in shapes for size in shape]
    counts = more.get("counts", [-1, -1])
    sizes += [size for splits in more.get("splits", []) for size in splits]
    dims = [len(shape) for shape in shapes]
    reduction = more.get("reduction", "")
    return getattr(hcom, name)(given, sizes, dims, counts, context.dtype, reduction, -1, 0, False, context.group)


def _linear(call: str, context: Any) -> str:
    """The reduction of a call whose gradient is linear in the others'."""
    if context.reduction not in ("sum", "avg"):
        raise RuntimeError(
            f"{call} with reduction {context.reduction} has no gradient; sum and avg have one: "
            "detach the tensor, or compute without gradients"
        )
    return context.reduction


def _all_reduce(context: Any, gradients: list[torch.Tensor]) -> list[torch.Tensor]:
    return _call("all_reduce", context, gradients, context.shapes, reduction=_linear("all_reduce", context))


def _all_gather_into_tensor(context: Any, gradients: list[torch.Tensor]) -> list[torch.Tensor]:
    shape = context.shapes[0]
    whole = [gradients[0].numel() // max(_numel(shape), 1) * shape[0], *shape[1:]]
    given = [gradients[0].reshape(whole)]
    return _call("reduce_scatter_tensor", context, given, [shape], reduction="sum")


def _all_gather(context: Any, gradients: list[torch.Tensor]) -> list[torch.Tensor]:
    return _call("reduce_scatter", context, gradients, context.shapes, reduction="sum")


def _reduce_scatter_tensor(context: Any, gradients: list[torch.Tensor]) -> list[torch.Tensor]:
    whole = _call("all_gather_into_tensor", context, gradients, context.shapes)
    return _mean(context, "reduce_scatter_tensor", whole)


def _reduce_scatter(context: Any, gradients: list[torch.Tensor]) -> list[torch.Tensor]:
    whole = _call("all_gather", context, gradients, context.shapes)
    return _mean(context, "reduce_scatter", whole)


def _mean(context: Any, call: str, whole: list[torch.Tensor]) -> list[torch.Tensor]:
    if _linear(call, context) == "sum":
        return whole
    from torch.distributed import distributed_c10d as c10d

    return [tensor / c10d._resolve_process_group(context.group).size() for tensor in whole]


def _all_to_all_single(context: Any, gradients: list[torch.Tensor]) -> list[torch.Tensor]:
    out_splits, in_splits = context.splits
    return _call(
        "all_to_all_single",
        context,
        gradients,
        context.shapes,
        counts=[context.counts[1], context.counts[0]],
        splits=[in_splits, out_splits],
    )


def _all_to_all(context: Any, gradients: list[torch.Tensor]) -> list[torch.Tensor]:
    return _call("all_to_all", context, gradients, context.shapes)


def _numel(shape: list[Any]) -> Any:
    count = 1
    for size in shape:
        count = count * size
    return count


_BACKWARD = {
    "all_reduce": _all_reduce,
    "all_gather_into_tensor": _all_gather_into_tensor,
    "all_gather": _all_gather,
    "reduce_scatter_tensor": _reduce_scatter_tensor,
    "reduce_scatter": _reduce_scatter,
    "all_to_all_single": _all_to_all_single,
    "all_to_all": _all_to_all,
}


def _register(call: str) -> None:
    backward = _BACKWARD.get(call)

    def run(context: Any, gradients: list[torch.Tensor | None]) -> tuple[Any, ...]:
        if backward is None:
            raise RuntimeError(
                f"{call} has no gradient; these have one: {', '.join(_BACKWARD)}. "
                "Detach the tensor, or compute without gradients"
            )
        element = getattr(torch, context.dtype)
        given = [
            torch.zeros(shape, dtype=element) if gradient is None else gradient
            for gradient, shape in zip(gradients, context.outputs)
        ]
        return (list(backward(context, given)), *[None] * 9)

    torch.library.register_autograd(f"hcom::{call}", run, setup_context=_setup, lib=ops._LIB)


for _name in ops.CALLS:
    _register(_name)
