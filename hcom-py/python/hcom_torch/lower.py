"""From the graph that AOTAutograd made to one in which collectives are started and waited for.

Understands the operators of :mod:`hcom_torch.ops` and those of torch and
``_c10d_functional``. Nothing is removed: a collective whose result nobody reads runs like any other.
"""

from __future__ import annotations

import json
import operator
import re
import warnings
from dataclasses import dataclass
from typing import Any, Callable

import torch
from torch.fx import Graph, GraphModule, Node

from . import ops
from .config import CompilerConfig

aten = torch.ops.aten
hcom = torch.ops.hcom


@dataclass
class Call:
    """A collective in the graph."""

    node: Node
    name: str
    inputs: list[Node]
    sizes: list[Any]
    dims: list[int]
    splits: list[int]
    dtype: str
    reduction: str
    root: int
    tag: int
    asynchronous: bool
    group: str
    #: The node stands for the list of outputs, rather than for the only one.
    listed: bool = True

    @property
    def compared_once(self) -> bool:
        """Whether ``begin`` compares the sizes: those of a transfer and those that each rank has for itself it
        does not."""
        return self.name not in ("send", "recv", "all_to_all") and max(self.splits) < 0

    @property
    def at(self) -> str:
        """The Python line of the call."""
        return location(self.node)

    def spec(self, **more: Any) -> str:
        return ops.spec(
            self.name,
            [node.meta["val"].dim() for node in self.inputs],
            self.dims,
            self.splits,
            self.dtype,
            self.reduction,
            self.root,
            self.tag,
            at=self.at,
            **more,
        )


_FRAME = re.compile(r'File "([^"]+)", line (\d+)')


def location(node: Node) -> str:
    """``file:line`` of the innermost frame that is not ours, or nothing."""
    frames = _FRAME.findall(node.meta.get("stack_trace") or "")
    own = [frame for frame in frames if "hcom_torch" not in frame[0] and "/torch/distributed/" not in frame[0]]
    return ":".join((own or frames)[-1]) if frames else ""


def calls(graph: Graph) -> list[Call]:
    """All collectives, in program order, of a graph that is expanded."""
    found = []
    for node in graph.nodes:
        if node.op != "call_function" or not isinstance(node.target, torch._ops.OpOverload):
            continue
        namespace, _, name = node.target._schema.name.partition("::")
        if namespace == "hcom" and name in ops.CALLS:
            found.append(Call(node, name, *node.args))
        elif namespace == "_c10d_functional":
            found.append(_functional(node, name))
    return found


def _group_size(name: str) -> int:
    from torch.distributed import distributed_c10d as c10d

    return c10d._resolve_process_group(name).size()


def _shape(node: Node) -> list[Any]:
    """The sizes of a tensor: numbers, or nodes in front of the current place."""
    sizes: list[Any] = []
    for dim, size in enumerate(node.meta["val"].shape):
        if isinstance(size, int):
            sizes.append(size)
        else:
            call = node.graph.call_function(aten.sym_size.int, (node, dim))
            call.meta["val"] = size
            sizes.append(call)
    return sizes


def _functional(node: Node, name: str) -> Call:
    """An operator of ``_c10d_functional`` with one tensor."""
    base = name.removesuffix("_")
    handler = _FUNCTIONAL.get(base)
    if handler is None or base != name and base not in ("all_reduce", "broadcast"):
        raise NotImplementedError(
            f"{node.target} at {location(node) or 'an unknown line'} cannot be part of a graph here; these can: "
            + ", ".join(f"_c10d_functional.{known}" for known in _FUNCTIONAL)
        )
    source = node.args[0]
    with node.graph.inserting_before(node):
        inputs = _shape(source)
        output = node.meta["val"]
        outputs = [size if isinstance(size, int) else None for size in output.shape]
        with_nodes = _symbolic_outputs(node, source, inputs, outputs)
        fields = handler(node)
    out_splits, in_splits = fields.pop("out_splits", None), fields.pop("in_splits", None)
    sizes = [*inputs, *with_nodes, *(out_splits or []), *(in_splits or [])]
    return Call(
        node=node,
        inputs=[source],
        sizes=sizes,
        dims=[output.dim()],
        splits=[-1 if splits is None else len(splits) for splits in (out_splits, in_splits)],
        dtype=str(output.dtype)[6:],
        tag=0,
        asynchronous=False,
        listed=False,
        **{"reduction": "", "root": -1, **fields},
    )


def _symbolic_outputs(node: Node, source: Node, inputs: list[Any], outputs: list[Any]) -> list[Any]:
    """The output's sizes; those that are not numbers follow from the input's."""
    graph = node.graph
    for dim, size in enumerate(outputs):
        if size is not None:
            continue
        before, after = source.meta["val"].shape[dim], node.meta["val"].shape[dim]
        name = node.target._schema.name.partition("::")[2]
        if dim == 0 and name == "all_gather_into_tensor":
            value = graph.call_function(operator.mul, (inputs[0], node.args[1]))
        elif dim == 0 and name == "reduce_scatter_tensor":
            value = graph.call_function(operator.floordiv, (inputs[0], node.args[2]))
        elif dim == 0 and name == "all_to_all_single":
            value = node.args[1][0]
            for split in node.args[1][1:]:
                value = graph.call_function(operator.add, (value, split))
                value.meta["val"] = after
        else:
            assert before == after
            value = inputs[dim]
        if isinstance(value, Node):
            value.meta.setdefault("val", after)
        outputs[dim] = value
    return outputs


def _reduce_name(op: str) -> str:
    return {"product": "prod"}.get(op.lower(), op.lower())


_FUNCTIONAL: dict[str, Callable[[Node], dict[str, Any]]] = {
    "all_reduce": lambda node: {
        "name": "all_reduce",
        "reduction": _reduce_name(node.args[1]),
        "group": node.args[2],
    },
    "all_gather_into_tensor": lambda node: {"name": "all_gather_into_tensor", "group": node.args[2]},
    "reduce_scatter_tensor": lambda node: {
        "name": "reduce_scatter_tensor",
        "reduction": _reduce_name(node.args[1]),
        "group": node.args[3],
    },
    "all_to_all_single": lambda node: {
        "name": "all_to_all_single",
        "out_splits": list(node.args[1]),
        "in_splits": list(node.args[2]),
        "group": node.args[3],
    },
    "broadcast": lambda node: {"name": "broadcast", "root": node.args[1], "group": node.args[2]},
}

_COALESCED = {
    "all_reduce_coalesced": "all_reduce",
    "all_gather_into_tensor_coalesced": "all_gather_into_tensor",
    "reduce_scatter_tensor_coalesced": "reduce_scatter_tensor",
}


def _expand(graph: Graph) -> None:
    """Splits coalesced collectives into single ones and drops the waits of torch, which ours replace."""
    for node in list(graph.nodes):
        if node.op != "call_function" or not isinstance(node.target, torch._ops.OpOverload):
            continue
        namespace, _, name = node.target._schema.name.partition("::")
        if namespace != "_c10d_functional":
            continue
        if name == "wait_tensor":
            node.replace_all_uses_with(node.args[0])
            graph.erase_node(node)
        elif name == "wait_tensors":
            for user in list(node.users):
                user.replace_all_uses_with(node.args[0][user.args[1]])
                graph.erase_node(user)
            graph.erase_node(node)
        elif name in _COALESCED:
            single = getattr(torch.ops._c10d_functional, _COALESCED[name]).default
            tensors, *rest = node.args
            made = []
            with graph.inserting_before(node):
                for index, tensor in enumerate(tensors):
                    part = graph.call_function(single, (tensor, *rest))
                    part.meta.update(_kept(node), val=node.meta["val"][index])
                    made.append(part)
            for user in list(node.users):
                user.replace_all_uses_with(made[user.args[1]])
                graph.erase_node(user)
            graph.erase_node(node)


def _kept(node: Node) -> dict[str, Any]:
    return {key: node.meta[key] for key in ("stack_trace", "nn_module_stack", "val") if key in node.meta}


def lower(module: GraphModule, config: CompilerConfig) -> list[Call]:
    """Rewrites the graph in place; returns the collectives it had."""
    graph = module.graph
    _expand(graph)
    found = calls(graph)
    if not found:
        return []
    checked = _hoist(graph, found)
    order = _begin(graph, found, checked)
    for call, known in zip(found, checked):
        # Each start takes the ticket of the one before, so that their order is data flow.
        order = _split(graph, order, call, known and not config.debug.deadlock_check)
    _sink_waits(graph, config)
    graph.lint()
    module.recompile()
    return found


def _hoist(graph: Graph, found: list[Call]) -> list[bool]:
    """Moves the arithmetic on sizes behind the graph's inputs. Returns which calls have sizes that are
    known there; those of the others come from data."""
    last = None
    early: set[Node] = set()
    for node in list(graph.nodes):
        if node.op == "placeholder":
            last = node
            early.add(node)
        elif (
            node.op == "call_function"
            and isinstance(node.meta.get("val"), (torch.SymInt, int))
            and node.all_input_nodes
            and all(source in early for source in node.all_input_nodes)
        ):
            early.add(node)
            last.append(node)
            last = node
    return [all(size in early for size in call.sizes if isinstance(size, Node)) for call in found]


def _begin(graph: Graph, found: list[Call], checked: list[bool]) -> Node:
    """The check across ranks, before anything else."""
    sizes: list[Any] = []
    program = []
    place = next(node for node in graph.nodes if node.op not in ("placeholder", "get_attr"))
    ready = [place.prev]
    for call, known in zip(found, checked):
        if known:
            # Others would only make `begin` compare everything again whenever they change.
            own = call.sizes if call.compared_once else []
            program.append([call.group, call.spec(), len(own)])
            sizes.extend(own)
            ready.extend(size for size in own if isinstance(size, Node))
    positions = {node: index for index, node in enumerate(graph.nodes)}
    after = max(ready, key=lambda node: positions.get(node, -1))
    with graph.inserting_after(after):
        order = graph.call_function(hcom.begin.default, (json.dumps(program), sizes))
    order.meta["val"] = _number(graph)
    return order


def _number(graph: Graph) -> torch.Tensor:
    """What stands for the order and for tickets in the metadata."""
    for node in graph.nodes:
        value = node.meta.get("val")
        value = value[0] if isinstance(value, (list, tuple)) and value else value
        if isinstance(value, torch._subclasses.FakeTensor):
            with value.fake_mode:
                return torch.empty(1, dtype=torch.int64)
    mode = torch._guards.detect_fake_mode() or torch._subclasses.FakeTensorMode()
    with mode:
        return torch.empty(1, dtype=torch.int64)


def _split(graph: Graph, order: Node, call: Call, checked: bool) -> Node:
    """Replaces a collective by its start, which it returns, and its wait."""
    node = call.node
    used = bool(node.users)
    finished = call.name in ("barrier", "send") and not call.asynchronous
    more: dict[str, Any] = {}
    if not checked and call.name not in ("send", "recv"):
        more["each"] = True
    if call.dims and not used:
        more["unused"] = True
        warnings.warn(f"the result of {call.name} at {call.at} is never read", stacklevel=2)
    with graph.inserting_before(node):
        start = graph.call_function(
            hcom.start.default,
            (order, call.inputs, call.sizes, call.spec(**more), call.group, used or finished),
        )
        start.meta.update(_kept(node), val=_number(graph))
        if used:
            outputs = call.sizes[sum(source.meta["val"].dim() for source in call.inputs) :]
            outputs = outputs[: sum(call.dims)]
            wait = graph.call_function(hcom.wait.default, (start, outputs, call.dims, call.dtype))
            wait.meta.update(_kept(node))
            if not call.listed:
                wait.meta["val"] = [node.meta["val"]]
                item = graph.call_function(operator.getitem, (wait, 0))
                item.meta.update(_kept(node))
                wait = item
            node.replace_all_uses_with(wait)
        elif finished:
            finish = graph.call_function(hcom.finish.default, (order, start))
            finish.meta.update(_kept(node), val=None)
    graph.erase_node(node)
    return start


def _sink_waits(graph: Graph, config: CompilerConfig) -> None:
    """Moves each wait to its first use, and, unless it is switched off, what depends on a wait behind
    everything that does not: so the computation that is there runs while the collectives do. The order of
    starts stays as it is."""
    if config.ge_config.enable_single_stream:
        return
    if config.experimental_config.cc_parallel_enable:
        _defer(graph)
    for node in reversed(list(graph.nodes)):
        waits = node.target is hcom.wait.default
        if (waits or node.target is operator.getitem and node.args[0].target is hcom.wait.default) and node.users:
            positions = {other: index for index, other in enumerate(graph.nodes)}
            min(node.users, key=lambda user: positions[user]).prepend(node)


def _defer(graph: Graph) -> None:
    """Sorts the graph anew: whatever waits for a collective comes as late as the rest allows."""
    nodes = list(graph.nodes)
    anchored = {"placeholder", "get_attr", "output"}
    ordered = (hcom.begin.default, hcom.start.default, hcom.finish.default)
    output = nodes[-1]
    late: list[Node] = []
    placed: list[Node] = []
    pending: set[Node] = set()

    def release(upto: set[Node]) -> None:
        """Places the deferred nodes that `upto` needs, in their order."""
        needed = set(upto)
        for node in reversed(late):
            if node in needed:
                needed.update(source for source in node.all_input_nodes if source in pending)
        for node in list(late):
            if node in needed:
                late.remove(node)
                pending.discard(node)
                placed.append(node)

    for node in nodes:
        if node is output:
            break
        if node.op in anchored:
            placed.append(node)
            continue
        sources = {source for source in node.all_input_nodes if source in pending}
        mutates = isinstance(node.target, torch._ops.OpOverload) and node.target._schema.is_mutable
        if node.target in ordered:
            release(sources)
            placed.append(node)
        elif mutates:
            # A write in place: everything before it stays before it.
            release(set(late))
            placed.append(node)
        elif sources or node.target is hcom.wait.default:
            late.append(node)
            pending.add(node)
        else:
            placed.append(node)
    release(set(late))
    for node in placed:
        output.prepend(node)
