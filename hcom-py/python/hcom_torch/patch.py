"""Replaces the calls of ``torch.distributed``, so that a compiler captures them as operators."""

from __future__ import annotations

import importlib
import sys
import types
import warnings
from typing import Any

import torch.distributed as dist
from torch.distributed import _functional_collectives as functional
from torch.distributed import distributed_c10d as c10d

from . import calls

#: What was replaced: (module, attribute) -> original.
_replaced: dict[tuple[Any, str], Any] = {}
_remaps: dict[Any, Any] = {}


def patch_for_hcom() -> None:
    """Makes every collective of ``torch.distributed`` part of compiled graphs.

    Replaces the functions of ``torch.distributed`` by ones with the same signatures. Outside of a
    compiler they call the originals. Where DeepSpeed or torch_npu are importable, their collectives
    are replaced too. Calling this twice is the same as once; :func:`unpatch` undoes it.

    Warns about names that other modules have imported before: those stay the original functions. A
    compiler captures them all the same, but asynchronous calls of them are not captured.
    """
    if _replaced:
        return
    table = getattr(functional, "traceable_collective_remaps", {})
    for name, replacement in calls.REPLACEMENTS.items():
        original = getattr(c10d, name, None)
        if original is None:
            continue
        if hasattr(dist, name):
            _replace(dist, name, replacement)
        if isinstance(original, types.FunctionType):
            _remaps[original] = table.get(original)
            table[original] = _named(replacement)
    _patch_deepspeed()
    _patch_torch_npu()
    early = _imported_early()
    if early:
        warnings.warn(
            "patch_for_hcom: imported before the patch, so these names are still torch's own: "
            + ", ".join(early)
            + ". Call patch_for_hcom() before the import, or write torch.distributed.<name>.",
            stacklevel=2,
        )


def unpatch() -> None:
    """Undoes :func:`patch_for_hcom`; nothing to undo is no error."""
    for (home, name), original in _replaced.items():
        if original is _ABSENT:
            delattr(home, name)
        else:
            setattr(home, name, original)
    table = getattr(functional, "traceable_collective_remaps", {})
    for original, before in _remaps.items():
        if before is None:
            table.pop(original, None)
        else:
            table[original] = before
    _replaced.clear()
    _remaps.clear()


def _named(function: types.FunctionType) -> types.FunctionType:
    """The function under a name of its own in the module in which Dynamo looks replacements up."""
    name = f"_hcom_{function.__name__}"
    known = getattr(functional, name, None)
    if known is None:
        known = types.FunctionType(function.__code__, function.__globals__, name, function.__defaults__)
        _replace(functional, name, known)
    return known


class _Absent:
    """Stands for an attribute that was not there."""


_ABSENT = _Absent()


def _replace(home: Any, name: str, replacement: Any) -> None:
    _replaced[home, name] = getattr(home, name, _ABSENT)
    setattr(home, name, replacement)


def _patch_deepspeed() -> None:
    try:
        comm = importlib.import_module("deepspeed.comm")
    except ImportError:
        return
    for home in (comm, importlib.import_module("deepspeed.comm.comm")):
        for name in ("all_reduce", "inference_all_reduce"):
            original = getattr(home, name, None)
            if original is not None:
                _replace(home, name, calls.deepspeed(name, original))


def _patch_torch_npu() -> None:
    try:
        npu = importlib.import_module("torch_npu.distributed")
    except ImportError:
        return
    for name in ("all_gather_into_tensor_uneven", "reduce_scatter_tensor_uneven"):
        original = getattr(npu, name, None)
        if original is not None:
            calls.uneven_originals[name] = original
            _replace(npu, name, getattr(calls, name))


def _imported_early() -> list[str]:
    """Names in modules outside of torch that refer to replaced functions."""
    originals = {id(original) for (home, _), original in _replaced.items() if home is dist}
    found = []
    for module_name, module in list(sys.modules.items()):
        if module_name.partition(".")[0] in ("torch", "torch_npu", "deepspeed", __package__.partition(".")[0]):
            continue
        namespace = getattr(module, "__dict__", None)
        if not isinstance(namespace, dict):
            continue
        for name, value in list(namespace.items()):
            if id(value) in originals and isinstance(value, types.FunctionType):
                found.append(f"{module_name}.{name}")
    return sorted(found)
