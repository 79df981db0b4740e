"""The operators that stand for collectives in a graph.

Each collective is one functional operator, ``torch.ops.hcom.<call>``: it takes what the call reads and
returns what the call writes, as new tensors. The backend splits every one into ``start``, which copies
the inputs and returns a ticket, and ``wait``, which returns the outputs; ``finish`` waits for a call
without outputs. ``begin`` compares, once for each set of sizes, what all ranks are about to do. The
first argument of ``start`` and ``finish`` is the ticket of the start before, or the result of ``begin``, which
they pretend to write: so no compiler removes, duplicates or reorders them.
"""

from __future__ import annotations

import json
from typing import Any, Callable, Sequence

import torch

from . import worlds
from ._native import World

#: The calls that are operators. ``barrier`` and ``send`` return nothing.
CALLS = (
    "all_reduce",
    "all_gather_into_tensor",
    "all_gather",
    "all_gather_into_tensor_uneven",
    "reduce_scatter_tensor",
    "reduce_scatter",
    "reduce_scatter_tensor_uneven",
    "all_to_all_single",
    "all_to_all",
    "broadcast",
    "reduce",
    "scatter",
    "gather",
    "send",
    "recv",
    "barrier",
)

_LIB = torch.library.Library("hcom", "DEF")
_ARGUMENTS = (
    "Tensor[] inputs, SymInt[] sizes, int[] dims, int[] splits, str dtype, "
    "str reduction, int root, int tag, bool asynchronous, str group"
)


def split(sizes: Sequence[Any], dims: Sequence[int]) -> list[list[Any]]:
    """The shapes of the outputs, cut out of the flat list of their sizes."""
    shapes, at = [], 0
    for count in dims:
        shapes.append(list(sizes[at : at + count]))
        at += count
    return shapes


def spec(
    call: str,
    inputs: Sequence[int],
    dims: Sequence[int],
    splits: Sequence[int],
    dtype: str,
    reduction: str,
    root: int,
    tag: int,
    **more: Any,
) -> str:
    """A call without its sizes, in the form that the native side reads.

    ``inputs`` and ``dims`` are the numbers of dimensions of each input and output. The sizes are the
    shapes of the inputs, those of the outputs, and as many splits of the output and of the input as
    ``splits`` says, -1 for none."""
    described: dict[str, Any] = {"call": call, "dtype": dtype, "inputs": list(inputs), "outputs": list(dims)}
    if reduction:
        described["reduction"] = reduction
    if root >= 0:
        described["root"] = root
    if tag:
        described["tag"] = tag
    for name, count in zip(("out_splits", "in_splits"), splits):
        if count >= 0:
            described[name] = count
    described.update(more)
    return json.dumps(described)


def _outputs(sizes: Sequence[Any], dims: Sequence[int], dtype: str) -> list[torch.Tensor]:
    element = getattr(torch, dtype)
    return [torch.empty(shape, dtype=element) for shape in split(sizes, dims)]


# Calls under way that somebody waits for: the world of each and its ticket there.
_tickets: dict[int, tuple[World, int]] = {}
_last = 0


def issue(inputs: Sequence[torch.Tensor], sizes: Sequence[int], text: str, group: str) -> tuple[World, int]:
    """Starts a call whose description is ``text``; returns what :meth:`World.wait` is called on."""
    for tensor in inputs:
        if tensor.device.type != "cpu":
            raise ValueError(f"{json.loads(text)['call']}: a tensor is on {tensor.device}: expected the CPU")
    world = worlds.of(group, text)
    dense = [tensor.resolve_conj().resolve_neg().contiguous() for tensor in inputs]
    return world, world.start(text, list(sizes), [tensor.data_ptr() for tensor in dense])


def receive(world: World, ticket: int) -> list[torch.Tensor]:
    """Waits for a call; returns its outputs."""
    return [torch.utils.dlpack.from_dlpack(capsule) for capsule in world.wait(ticket)]


def _start(
    order: torch.Tensor, inputs: Sequence[torch.Tensor], sizes: Sequence[int], text: str, group: str, waited: bool
) -> torch.Tensor:
    global _last
    world, ticket = issue(inputs, sizes, text, group)
    _last += 1
    if waited:
        _tickets[_last] = (world, ticket)
    return torch.tensor([_last])


def _wait(ticket: torch.Tensor, sizes: Sequence[int], dims: Sequence[int], dtype: str) -> list[torch.Tensor]:
    return receive(*_tickets.pop(ticket.item()))


def _finish(order: torch.Tensor, ticket: torch.Tensor) -> None:
    receive(*_tickets.pop(ticket.item()))


def _begin(program: str, sizes: Sequence[int]) -> torch.Tensor:
    worlds.check(program, tuple(sizes))
    return torch.zeros(1, dtype=torch.int64)


def _once(call: str) -> Callable[..., list[torch.Tensor]]:
    """The operator run by itself, where no backend of ours has split it."""

    def run(inputs, sizes, dims, splits, dtype, reduction, root, tag, asynchronous, group):
        text = spec(call, [t.dim() for t in inputs], dims, splits, dtype, reduction, root, tag)
        world, ticket = issue(inputs, sizes, text, group)
        # The other rank may come to its receive after one of ours.
        return [] if call == "send" and asynchronous else receive(world, ticket)

    return run


def _define() -> None:
    for call in CALLS:
        _LIB.define(f"{call}({_ARGUMENTS}) -> Tensor[]")
        _LIB.impl(call, _once(call), "CompositeExplicitAutograd")
        op = getattr(torch.ops.hcom, call).default
        torch.library.register_fake(op, _fake, lib=_LIB)
        torch.fx.node.has_side_effect(op)
    stages = (
        ("begin(str program, SymInt[] sizes) -> Tensor", _begin, _one_number),
        (
            "start(Tensor(a!) order, Tensor[] inputs, SymInt[] sizes, str text, str group, bool waited) -> Tensor",
            _start,
            _one_number,
        ),
        ("wait(Tensor ticket, SymInt[] sizes, int[] dims, str dtype) -> Tensor[]", _wait, _fake_wait),
        ("finish(Tensor(a!) order, Tensor ticket) -> ()", _finish, lambda order, ticket: None),
    )
    for schema, kernel, fake in stages:
        name = schema.partition("(")[0]
        _LIB.define(schema)
        _LIB.impl(name, kernel, "CompositeExplicitAutograd")
        op = getattr(torch.ops.hcom, name).default
        torch.library.register_fake(op, fake, lib=_LIB)
        torch.fx.node.has_side_effect(op)


def _fake(inputs, sizes, dims, splits, dtype, reduction, root, tag, asynchronous, group):
    return _outputs(sizes[sum(tensor.dim() for tensor in inputs) :], dims, dtype)


def _fake_wait(ticket, sizes, dims, dtype):
    return _outputs(sizes, dims, dtype)


def define_after() -> None:
    """``after(x, dependency)``: a copy of ``x`` that is made when ``dependency`` is there."""
    _LIB.define("after(Tensor x, Tensor dependency) -> Tensor")
    _LIB.impl("after", lambda x, dependency: x.clone(), "CompositeExplicitAutograd")
    op = torch.ops.hcom.after.default
    torch.library.register_fake(op, lambda x, dependency: torch.empty_like(x), lib=_LIB)
    torch.library.register_autograd(op, lambda ctx, gradient: (gradient, None), lib=_LIB)


def _one_number(*_):
    return torch.empty(1, dtype=torch.int64)


_define()
