"""Writes the graphs that are compiled."""

from __future__ import annotations

import itertools
import os
from pathlib import Path

import torch.distributed as dist
from torch.fx import GraphModule

from .config import CompilerConfig

_numbers = itertools.count()


def write(module: GraphModule, config: CompilerConfig) -> None:
    """Writes a functional graph where ``config.debug.graph_dump`` says."""
    options = config.debug.graph_dump
    if options.type is None:
        return
    rank = dist.get_rank() if dist.is_initialized() else 0
    folder = Path(options.path or ".")
    folder.mkdir(parents=True, exist_ok=True)
    name = f"graph_{next(_numbers)}_rank_{rank}_pid_{os.getpid()}"
    if options.type == "py":
        text = module.print_readable(print_output=False)
    else:
        text = str(module.graph)
    (folder / f"{name}.{options.type}").write_text(text)
