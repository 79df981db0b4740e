"""The backend: one Inductor graph in which collectives are started and waited for."""

from __future__ import annotations

from typing import Any, Callable, Sequence

import torch
from torch.fx import GraphModule

from . import dump
from .config import CompilerConfig
from .lower import Call, lower


def get_npu_backend(
    *, compiler_config: CompilerConfig | None = None, custom_decompositions: dict[Any, Callable] | None = None
) -> Callable[[GraphModule, Sequence[Any]], Callable]:
    """A backend for ``torch.compile``.

    Args:
        compiler_config: the options; the defaults of :class:`CompilerConfig` without.
        custom_decompositions: operator overloads to decompose, beside Inductor's own.
    """
    config = CompilerConfig() if compiler_config is None else compiler_config
    if not isinstance(config, CompilerConfig):
        raise ValueError(f"compiler_config is {config!r}: expected a CompilerConfig")
    decompositions = dict(custom_decompositions or {})

    def hcom_backend(module: GraphModule, inputs: Sequence[Any], **_: Any) -> Callable:
        return compile_graph(module, inputs, config, decompositions)

    return hcom_backend


def get_compiler(compiler_config: CompilerConfig | None = None) -> Callable:
    """The compiler of one graph, for backends of one's own: takes the functional graph of AOTAutograd."""
    config = CompilerConfig() if compiler_config is None else compiler_config

    def compiler(module: GraphModule, inputs: Sequence[Any], **options: Any) -> Callable:
        return compile_functional(module, inputs, config, **options)

    return compiler


def hcom(module: GraphModule, inputs: Sequence[Any], **_: Any) -> Callable:
    """``torch.compile(model, backend="hcom")``."""
    return compile_graph(module, inputs, CompilerConfig(), {})


def compile_graph(
    module: GraphModule, inputs: Sequence[Any], config: CompilerConfig, decompositions: dict[Any, Callable]
) -> Callable:
    """Compiles a graph of Dynamo."""
    from torch._inductor.compile_fx import compile_fx
    from torch._inductor.decomposition import select_decomp_table

    table = {**select_decomp_table(), **decompositions} if decompositions else None

    def inner(functional: GraphModule, example: Sequence[Any], **options: Any) -> Any:
        return compile_functional(functional, example, config, **options)

    # The cache of AOTAutograd would skip this backend; that of Inductor, below it, is used.
    with torch._functorch.config.patch(enable_autograd_cache=False, strict_autograd_cache=False):
        if table is None:
            return compile_fx(module, inputs, inner_compile=inner)
        return compile_fx(module, inputs, inner_compile=inner, decompositions=table)


def compile_functional(
    module: GraphModule, inputs: Sequence[Any], config: CompilerConfig, **options: Any
) -> Any:
    """Compiles a functional graph of AOTAutograd."""
    from torch._inductor.compile_fx import compile_fx_inner

    dump.write(module, config)
    refusal = _refuse_asynchronous(lower(module, config), config)
    if refusal is not None:
        return _refusing(refusal)
    if config.debug.run_eagerly:
        return _boxed(module)
    return compile_fx_inner(module, inputs, **options)


def _refuse_asynchronous(found: list[Call], config: CompilerConfig) -> str | None:
    if config.experimental_config.async_collectives:
        return None
    for call in found:
        if call.asynchronous and call.name != "send":
            return (
                f"{call.name} at {call.at} has async_op=True, which compiled graphs take only with "
                "config.experimental_config.async_collectives = True. Set it, or drop async_op and the wait: "
                "a compiled graph overlaps communication by itself."
            )
    return None


def _refusing(reason: str) -> Callable:
    def refuse(*_: Any) -> Any:
        raise AssertionError(reason)

    return refuse


def _boxed(module: GraphModule) -> Callable:
    """Runs a graph operator by operator."""

    def run(arguments: list[Any]) -> Any:
        given = list(arguments)
        arguments.clear()
        return module(*given)

    run._boxed_call = True
    return run
