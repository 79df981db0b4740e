"""The options of the compiler. Everything is checked when it is set."""

from __future__ import annotations

from typing import Any


class _Options:
    """A set of options: unknown names and values are refused with the list of those that exist."""

    #: Name -> (default, allowed values, or a function whose docstring names them), or a set of options twice.
    _options: dict[str, tuple[Any, Any]] = {}

    def __init__(self) -> None:
        for name, (default, allowed) in self._options.items():
            value = default() if isinstance(allowed, type) and issubclass(allowed, _Options) else default
            object.__setattr__(self, name, value)

    def __setattr__(self, name: str, value: Any) -> None:
        options = type(self)._options
        title = type(self).__name__.removeprefix("_")
        if name not in options:
            raise ValueError(f"{title} has no option {name!r}; its options are {', '.join(options)}")
        _, allowed = options[name]
        if isinstance(allowed, tuple):
            if not any(value is choice or (value == choice and type(value) is type(choice)) for choice in allowed):
                choices = ", ".join(repr(choice) for choice in allowed)
                raise ValueError(f"{title}.{name} is {value!r}: expected one of {choices}")
        elif isinstance(allowed, type) and issubclass(allowed, _Options):
            raise ValueError(f"{title}.{name} is a set of options: set one of {', '.join(allowed._options)} in it")
        elif not allowed(value):
            raise ValueError(f"{title}.{name} is {value!r}: expected {allowed.__doc__}")
        object.__setattr__(self, name, value)

    def as_dict(self) -> dict[str, Any]:
        """All options by name, nested."""
        values = {name: getattr(self, name) for name in self._options}
        return {name: value.as_dict() if isinstance(value, _Options) else value for name, value in values.items()}

    def __repr__(self) -> str:
        return f"{type(self).__name__.removeprefix('_')}({self.as_dict()})"


_FLAG = (False, True)


def _path(value: Any) -> bool:
    """a path, or None"""
    return value is None or (isinstance(value, str) and value != "")


def _limit(value: Any) -> bool:
    """a number from 1"""
    return isinstance(value, int) and not isinstance(value, bool) and value >= 1


def _cores(value: Any) -> bool:
    """None, or "a|v": numbers of cube and of vector cores"""
    if value is None:
        return True
    parts = value.split("|") if isinstance(value, str) else []
    return len(parts) == 2 and all(part.strip().isdigit() and int(part) > 0 for part in parts)


class _GraphDump(_Options):
    _options = {"type": (None, (None, "txt", "py")), "path": (None, _path)}


class _Debug(_Options):
    _options = {
        "graph_dump": (_GraphDump, _GraphDump),
        "run_eagerly": (False, _FLAG),
        "deadlock_check": (False, _FLAG),
    }


class _ExportExperimental(_Options):
    _options = {
        "auto_atc_config_generated": (False, _FLAG),
        "enable_record_nn_module_stack": (False, _FLAG),
    }


class _Export(_Options):
    _options = {"experimental": (_ExportExperimental, _ExportExperimental)}


class _ExperimentalConfig(_Options):
    _options = {
        "cc_parallel_enable": (True, _FLAG),
        "topology_sorting_strategy": ("DFS", ("BFS", "DFS", "RDFS", "StableRDFS")),
        "frozen_parameter": (False, _FLAG),
        "async_collectives": (False, _FLAG),
    }


class _GeConfig(_Options):
    _options = {"enable_single_stream": (False, _FLAG), "aicore_num": (None, _cores)}


class CompilerConfig(_Options):
    """The options of :func:`hcom_torch.get_npu_backend`.

    ``debug.graph_dump.type``, ``.path``
        write each graph as ``"txt"`` (nodes) or ``"py"`` (code), one file per graph and rank
    ``debug.run_eagerly``
        run the graph operator by operator, without Inductor
    ``debug.deadlock_check``
        compare each collective across ranks each time before it starts, rather than once for all
    ``experimental_config.cc_parallel_enable``
        move computation between start and wait of collectives
    ``experimental_config.async_collectives``
        capture ``async_op=True``
    ``ge_config.enable_single_stream``
        wait for each collective at once

    These are checked and change nothing on a CPU: ``mode``, ``experimental_config.frozen_parameter``,
    ``experimental_config.topology_sorting_strategy`` (collectives keep their program order in all),
    ``export.*``, ``ge_config.aicore_num``, ``capture_limit``, ``clone_input``, ``clone_output``.
    """

    _options = {
        "mode": ("max-autotune", ("max-autotune", "reduce-overhead")),
        "debug": (_Debug, _Debug),
        "export": (_Export, _Export),
        "experimental_config": (_ExperimentalConfig, _ExperimentalConfig),
        "ge_config": (_GeConfig, _GeConfig),
        "capture_limit": (64, _limit),
        "clone_input": (True, _FLAG),
        "clone_output": (False, _FLAG),
    }
