"""Marks on parts of a model. They become metadata of the nodes, and break no graph."""

from __future__ import annotations

from typing import Any

import torch
from torch.fx.traceback import annotate

from . import ops

ops.define_after()


def npu_stream_switch(stream_tag: str, stream_priority: int = 0) -> Any:
    """What is computed inside belongs to the stream of this tag, where the device has streams to choose."""
    if not isinstance(stream_tag, str) or not stream_tag:
        raise ValueError(f"stream_tag is {stream_tag!r}: expected a name")
    return annotate({"hcom_stream": stream_tag, "hcom_stream_priority": stream_priority})


def limit_core_num(op_aicore_num: int, op_vectorcore_num: int) -> Any:
    """What is computed inside uses at most so many cores, where the device has cores to limit."""
    for name, count in (("op_aicore_num", op_aicore_num), ("op_vectorcore_num", op_vectorcore_num)):
        if not isinstance(count, int) or isinstance(count, bool) or count < 1:
            raise ValueError(f"{name} is {count!r}: expected a number from 1")
    return annotate({"hcom_cores": f"{op_aicore_num}|{op_vectorcore_num}"})


def npu_wait_tensor(self: torch.Tensor, dependency: torch.Tensor) -> torch.Tensor:
    """``self``, computed no earlier than ``dependency``."""
    return torch.ops.hcom.after(self, dependency)
