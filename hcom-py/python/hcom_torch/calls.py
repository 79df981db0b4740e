"""What the calls of ``torch.distributed`` become while a compiler traces them.

Each function has the signature of the call it replaces. Outside of a compiler it calls the original.
While one traces, it puts a functional operator of :mod:`hcom_torch.ops` into the graph and copies the
result into the tensors that the call writes, which the compiler turns into plain values again.
"""

from __future__ import annotations

from typing import Any, Callable

import torch
import torch.distributed as dist
from torch.distributed import distributed_c10d as c10d

ReduceOp = dist.ReduceOp

#: The uneven collectives of torch_npu, by name; filled by the patch where they exist.
uneven_originals: dict[str, Callable[..., Any]] = {}


class Work:
    """The handle of an asynchronous call in a graph: the graph itself sees to it that whoever reads the
    result waits, so there is nothing left to do."""

    def wait(self, timeout: Any = None) -> bool:
        return True

    def is_completed(self) -> bool:
        return True

    def is_success(self) -> bool:
        return True


def _original(name: str) -> Callable[..., Any]:
    """The function as torch has it; the patch replaces the names in ``torch.distributed`` only."""
    return getattr(c10d, name)


def _tracing() -> bool:
    return torch.compiler.is_compiling()


def _group(group: Any) -> Any:
    return c10d._get_default_group() if group is None else group


def _member(group: Any) -> Any:
    """The group; ``None`` when this rank is no member, so that the call does nothing, as it does in torch."""
    return None if c10d._rank_not_in_group(group) else _group(group)


def _ranks(group: Any) -> list[int]:
    return c10d.get_process_group_ranks(group)


def _peer(call: str, role: str, group: Any, rank: int | None, group_rank: int | None) -> int:
    """The group rank of a root or peer that is given in either numbering."""
    ranks = _ranks(group)
    if group_rank is not None:
        if rank is not None:
            raise ValueError(f"{call}: give {role} or group_{role}, not both")
        if group_rank < 0 or group_rank >= len(ranks):
            raise ValueError(f"{call}: group_{role} {group_rank} is not in the group, which has {len(ranks)} ranks")
        return group_rank
    if rank is None:
        raise ValueError(f"{call}: neither {role} nor group_{role} is given")
    if rank not in ranks:
        raise ValueError(f"{call}: {role} {rank} is not in the group (ranks {ranks})")
    return ranks.index(rank)


def _reduction(op: Any) -> str:
    """The name of a reduction."""
    for name in ("SUM", "AVG", "PRODUCT", "MIN", "MAX", "BAND", "BOR", "BXOR"):
        if op == getattr(ReduceOp, name):
            return {"PRODUCT": "prod"}.get(name, name.lower())
    raise ValueError(f"reduction {op} is not supported: use SUM, AVG, PRODUCT, MIN, MAX, BAND, BOR or BXOR")


def _capture(
    call: str,
    group: Any,
    inputs: list[torch.Tensor],
    outputs: list[torch.Tensor],
    like: torch.Tensor | None = None,
    reduction: str = "",
    root: int = -1,
    tag: int = 0,
    out_splits: list[int] | None = None,
    in_splits: list[int] | None = None,
    asynchronous: bool = False,
) -> Work | None:
    """Puts the call into the graph and its results into ``outputs``; returns the handle of an asynchronous one."""
    sizes = []
    for tensor in inputs:
        sizes.extend(tensor.shape)
    for tensor in outputs:
        sizes.extend(tensor.shape)
    splits = [-1, -1]
    if out_splits is not None:
        sizes.extend(out_splits)
        splits[0] = len(out_splits)
    if in_splits is not None:
        sizes.extend(in_splits)
        splits[1] = len(in_splits)
    tensors = inputs + outputs
    dtype = tensors[0].dtype if tensors else torch.uint8
    for tensor in tensors:
        if tensor.dtype != dtype:
            raise ValueError(f"{call}: the tensors have different element types, {dtype} and {tensor.dtype}")
    op = getattr(torch.ops.hcom, call)
    results = op(
        inputs,
        sizes,
        [tensor.dim() for tensor in outputs],
        splits,
        str(dtype)[6:],
        reduction,
        root,
        tag,
        asynchronous,
        group.group_name,
    )
    for output, result in zip(outputs, results):
        output.copy_(result)
    return Work() if asynchronous else None


def all_reduce(tensor, op=ReduceOp.SUM, group=None, async_op=False):
    """``torch.distributed.all_reduce``, in the graph."""
    if not _tracing():
        return _original("all_reduce")(tensor, op, group, async_op)
    group = _member(group)
    if group is None:
        return None
    return _capture("all_reduce", group, [tensor], [tensor], reduction=_reduction(op), asynchronous=async_op)


def all_gather(tensor_list, tensor, group=None, async_op=False):
    """``torch.distributed.all_gather``, in the graph; the tensors may have different sizes."""
    if not _tracing():
        return _original("all_gather")(tensor_list, tensor, group, async_op)
    group = _member(group)
    if group is None:
        return None
    _per_rank("all_gather", "tensor_list", tensor_list, group)
    return _capture("all_gather", group, [tensor], list(tensor_list), asynchronous=async_op)


def _per_rank(call: str, name: str, tensors: Any, group: Any) -> None:
    size = len(_ranks(group))
    if len(tensors) != size:
        raise ValueError(f"{call}: {name} has {len(tensors)} tensors, the group has {size} ranks")


def all_gather_into_tensor(output_tensor, input_tensor, group=None, async_op=False):
    """``torch.distributed.all_gather_into_tensor``, in the graph."""
    if not _tracing():
        return _original("all_gather_into_tensor")(output_tensor, input_tensor, group, async_op)
    group = _member(group)
    if group is None:
        return None
    return _capture("all_gather_into_tensor", group, [input_tensor], [output_tensor], asynchronous=async_op)


def reduce_scatter_tensor(output, input, op=ReduceOp.SUM, group=None, async_op=False):
    """``torch.distributed.reduce_scatter_tensor``, in the graph."""
    if not _tracing():
        return _original("reduce_scatter_tensor")(output, input, op, group, async_op)
    group = _member(group)
    if group is None:
        return None
    return _capture(
        "reduce_scatter_tensor", group, [input], [output], reduction=_reduction(op), asynchronous=async_op
    )


def reduce_scatter(output, input_list, op=ReduceOp.SUM, group=None, async_op=False):
    """``torch.distributed.reduce_scatter``, in the graph; the tensors may have different sizes."""
    if not _tracing():
        return _original("reduce_scatter")(output, input_list, op, group, async_op)
    group = _member(group)
    if group is None:
        return None
    _per_rank("reduce_scatter", "input_list", input_list, group)
    return _capture(
        "reduce_scatter", group, list(input_list), [output], reduction=_reduction(op), asynchronous=async_op
    )


def all_to_all_single(output, input, output_split_sizes=None, input_split_sizes=None, group=None, async_op=False):
    """``torch.distributed.all_to_all_single``, in the graph."""
    if not _tracing():
        return _original("all_to_all_single")(
            output, input, output_split_sizes, input_split_sizes, group, async_op
        )
    group = _member(group)
    if group is None:
        return None
    return _capture(
        "all_to_all_single",
        group,
        [input],
        [output],
        out_splits=output_split_sizes or None,
        in_splits=input_split_sizes or None,
        asynchronous=async_op,
    )


def all_to_all(output_tensor_list, input_tensor_list, group=None, async_op=False):
    """``torch.distributed.all_to_all``, in the graph."""
    if not _tracing():
        return _original("all_to_all")(output_tensor_list, input_tensor_list, group, async_op)
    group = _member(group)
    if group is None:
        return None
    _per_rank("all_to_all", "output_tensor_list", output_tensor_list, group)
    _per_rank("all_to_all", "input_tensor_list", input_tensor_list, group)
    return _capture("all_to_all", group, list(input_tensor_list), list(output_tensor_list), asynchronous=async_op)


def broadcast(tensor, src=None, group=None, async_op=False, group_src=None):
    """``torch.distributed.broadcast``, in the graph."""
    if not _tracing():
        return _original("broadcast")(tensor, src, group, async_op, group_src)
    group = _member(group)
    if group is None:
        return None
    root = _peer("broadcast", "src", group, src, group_src)
    return _capture("broadcast", group, [tensor], [tensor], root=root, asynchronous=async_op)


def reduce(tensor, dst=None, op=ReduceOp.SUM, group=None, async_op=False, group_dst=None):
    """``torch.distributed.reduce``, in the graph; the other ranks' tensors keep their values."""
    if not _tracing():
        return _original("reduce")(tensor, dst, op, group, async_op, group_dst)
    group = _member(group)
    if group is None:
        return None
    root = _peer("reduce", "dst", group, dst, group_dst)
    return _capture("reduce", group, [tensor], [tensor], reduction=_reduction(op), root=root, asynchronous=async_op)


def gather(tensor, gather_list=None, dst=None, group=None, async_op=False, group_dst=None):
    """``torch.distributed.gather``, in the graph."""
    if not _tracing():
        return _original("gather")(tensor, gather_list, dst, group, async_op, group_dst)
    group = _member(group)
    if group is None:
        return None
    root = _peer("gather", "dst", group, 0 if dst is None and group_dst is None else dst, group_dst)
    outputs = []
    if dist.get_rank(group) == root:
        _per_rank("gather", "gather_list", gather_list or [], group)
        outputs = list(gather_list)
    return _capture("gather", group, [tensor], outputs, root=root, asynchronous=async_op)


def scatter(tensor, scatter_list=None, src=None, group=None, async_op=False, group_src=None):
    """``torch.distributed.scatter``, in the graph."""
    if not _tracing():
        return _original("scatter")(tensor, scatter_list, src, group, async_op, group_src)
    group = _member(group)
    if group is None:
        return None
    root = _peer("scatter", "src", group, 0 if src is None and group_src is None else src, group_src)
    inputs = []
    if dist.get_rank(group) == root:
        _per_rank("scatter", "scatter_list", scatter_list or [], group)
        inputs = list(scatter_list)
    return _capture("scatter", group, inputs, [tensor], root=root, asynchronous=async_op)


def barrier(group=None, async_op=False, device_ids=None, timeout=None):
    """``torch.distributed.barrier``, in the graph, where ``HCOM_TIMEOUT`` takes the place of ``timeout``."""
    if not _tracing():
        more = {} if timeout is None else {"timeout": timeout}
        return _original("barrier")(group, async_op, device_ids, **more)
    group = _member(group)
    if group is None:
        return None
    return _capture("barrier", group, [], [], asynchronous=async_op)


def send(tensor, dst=None, group=None, tag=0, group_dst=None):
    """``torch.distributed.send``, in the graph."""
    if not _tracing():
        return _original("send")(tensor, dst, group, tag, group_dst)
    _send(tensor, dst, group, tag, group_dst, False)
    return None


def isend(tensor, dst=None, group=None, tag=0, group_dst=None):
    """``torch.distributed.isend``, in the graph."""
    if not _tracing():
        return _original("isend")(tensor, dst, group, tag, group_dst)
    return _send(tensor, dst, group, tag, group_dst, True)


def _send(tensor: Any, dst: Any, group: Any, tag: int, group_dst: Any, asynchronous: bool) -> Work | None:
    group = _member(group)
    if group is None:
        return None
    peer = _peer("send", "dst", group, dst, group_dst)
    # `asynchronous` says that the call does not wait; the tensor is copied in any case.
    _capture("send", group, [tensor], [], root=peer, tag=tag, asynchronous=asynchronous)
    return Work()


def recv(tensor, src=None, group=None, tag=0, group_src=None):
    """``torch.distributed.recv``, in the graph; returns the sender's global rank."""
    if not _tracing():
        return _original("recv")(tensor, src, group, tag, group_src)
    return _recv(tensor, src, group, tag, group_src)


def irecv(tensor, src=None, group=None, tag=0, group_src=None):
    """``torch.distributed.irecv``, in the graph."""
    if not _tracing():
        return _original("irecv")(tensor, src, group, tag, group_src)
    return None if _recv(tensor, src, group, tag, group_src) < 0 else Work()


def _recv(tensor: Any, src: Any, group: Any, tag: int, group_src: Any) -> int:
    """Returns the sender's global rank, -1 on a rank that is no member."""
    group = _member(group)
    if group is None:
        return -1
    if src is None and group_src is None:
        raise ValueError("recv: from any rank cannot be part of a graph; give src or group_src")
    peer = _peer("recv", "src", group, src, group_src)
    _capture("recv", group, [], [tensor], root=peer, tag=tag)
    return _ranks(group)[peer]


def _torch_op(op: Callable[..., Any]) -> Callable[..., Any]:
    """The function of torch behind ours."""
    if op is isend or op is irecv:
        return _original(op.__name__)
    return op


class Transfer:
    """One entry of a batch while a compiler traces."""

    def __init__(self, op, tensor, group, group_peer, tag):
        self.op = op
        self.tensor = tensor
        self.group = group
        self.group_peer = group_peer
        self.tag = tag


def P2POp(op, tensor, peer=None, group=None, tag=0, group_peer=None):  # noqa: N802 - the name is torch's
    """``torch.distributed.P2POp``. A function, because a compiler refuses the class."""
    if not _tracing():
        return _original("P2POp")(_torch_op(op), tensor, peer, group, tag, group_peer)
    group = _group(group)
    return Transfer(op, tensor, group, _peer("P2POp", "peer", group, peer, group_peer), tag)


def batch_isend_irecv(p2p_op_list):
    """``torch.distributed.batch_isend_irecv``, in the graph. Each direction between two ranks is
    independent of all others, so the order of the list does not matter."""
    if not _tracing():
        return _original("batch_isend_irecv")(p2p_op_list)
    works = []
    for transfer in p2p_op_list:
        if transfer.op is isend or transfer.op is _original("isend"):
            works.append(isend(transfer.tensor, None, transfer.group, transfer.tag, transfer.group_peer))
        else:
            works.append(irecv(transfer.tensor, None, transfer.group, transfer.tag, transfer.group_peer))
    return works


def all_gather_into_tensor_uneven(output, input, output_split_sizes=None, group=None, async_op=False):
    """Gathers inputs with different numbers of rows: rank ``i`` contributes ``output_split_sizes[i]``
    rows of ``output``; evenly many without. Works outside of graphs too."""
    if not _tracing() and "all_gather_into_tensor_uneven" in uneven_originals:
        return uneven_originals["all_gather_into_tensor_uneven"](
            output, input, output_split_sizes, group=group, async_op=async_op
        )
    group = _member(group)
    if group is None:
        return None
    return _capture(
        "all_gather_into_tensor_uneven",
        group,
        [input],
        [output],
        out_splits=output_split_sizes or None,
        asynchronous=async_op,
    )


def reduce_scatter_tensor_uneven(
    output, input, input_split_sizes=None, op=ReduceOp.SUM, group=None, async_op=False
):
    """Reduces the inputs and gives ``input_split_sizes[i]`` rows to rank ``i``; evenly many without."""
    if not _tracing() and "reduce_scatter_tensor_uneven" in uneven_originals:
        return uneven_originals["reduce_scatter_tensor_uneven"](
            output, input, input_split_sizes, op=op, group=group, async_op=async_op
        )
    group = _member(group)
    if group is None:
        return None
    return _capture(
        "reduce_scatter_tensor_uneven",
        group,
        [input],
        [output],
        reduction=_reduction(op),
        in_splits=input_split_sizes or None,
        asynchronous=async_op,
    )


def deepspeed(name: str, original: Callable[..., Any]) -> Callable[..., Any]:
    """DeepSpeed's call of this name: all its arguments are accepted, those about logging have no meaning
    in a graph; the tensor is returned."""

    def replacement(tensor, op=ReduceOp.SUM, group=None, async_op=False, **kwargs):
        if not _tracing():
            return original(tensor, op=op, group=group, async_op=async_op, **kwargs)
        work = all_reduce(tensor, op, group, async_op)
        return work if async_op else tensor

    replacement.__name__ = name
    replacement.__doc__ = f"``deepspeed.comm.{name}``, in the graph."
    return replacement


#: What replaces the functions and classes of ``torch.distributed``, by name.
REPLACEMENTS: dict[str, Any] = {
    "all_reduce": all_reduce,
    "all_gather": all_gather,
    "all_gather_into_tensor": all_gather_into_tensor,
    "all_gather_single": all_gather_into_tensor,
    "_all_gather_base": all_gather_into_tensor,
    "reduce_scatter_tensor": reduce_scatter_tensor,
    "reduce_scatter_single": reduce_scatter_tensor,
    "_reduce_scatter_base": reduce_scatter_tensor,
    "reduce_scatter": reduce_scatter,
    "all_to_all_single": all_to_all_single,
    "all_to_all": all_to_all,
    "broadcast": broadcast,
    "reduce": reduce,
    "gather": gather,
    "scatter": scatter,
    "barrier": barrier,
    "send": send,
    "recv": recv,
    "isend": isend,
    "irecv": irecv,
    "P2POp": P2POp,
    "batch_isend_irecv": batch_isend_irecv,
}
