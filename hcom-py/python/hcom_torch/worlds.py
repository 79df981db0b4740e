"""One native world for each process group, and one for each direction between two ranks that exchange tensors.

The members meet through the store of the group: its first rank publishes where it listens. A transfer needs
only its two ranks, and each direction has its own world, so that sends and receives never wait for each other.
"""

from __future__ import annotations

import atexit
import functools
import json
import os
import socket
import weakref
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed import distributed_c10d as c10d

from ._native import CollectiveError, Listener, World

#: The part of a process group that a world serves: all of it, or (source, destination, tag).
Part = tuple[int, int, int] | None

_worlds: dict[tuple[int, Part], tuple[Any, World]] = {}
_checked: dict[tuple[str, tuple[int, ...]], dict[str, Any]] = {}

#: How long one look at the store lasts, so that an interrupt is noticed.
_SLICE = timedelta(milliseconds=200)


def of(group: str, text: str) -> World:
    """The world that executes the call described by ``text`` in the process group of this name."""
    pg = c10d._resolve_process_group(group)
    part = _part(text, pg.rank())
    return _known(pg, part) or _make(pg, group, part)


@functools.cache
def _part(text: str, rank: int) -> Part:
    """The part that executes the call described by ``text`` on this rank of the group."""
    call = json.loads(text)
    if call["call"] == "send":
        return rank, call["root"], call.get("tag", 0)
    if call["call"] == "recv":
        return call["root"], rank, call.get("tag", 0)
    return None


def _known(pg: Any, part: Part) -> World | None:
    known = _worlds.get((id(pg), part))
    return known[1] if known is not None and known[0]() is pg else None


def _make(pg: Any, group: str, part: Part) -> World:
    """Meets the members. Two ranks meet for both directions, in one order, so that they do not wait for
    each other in different ones, and connect, so that no later send waits for that."""
    if part is None:
        parts: list[Part] = [None]
    else:
        one, other, tag = part
        if one == other:
            raise ValueError(f"rank {one} of group {group} is its own peer; copy the tensor instead")
        parts = [(min(one, other), max(one, other), tag), (max(one, other), min(one, other), tag)]
    for gone in [key for key, (reference, _) in _worlds.items() if reference() is None]:
        del _worlds[gone]
    for each in parts:
        if _known(pg, each) is None:
            world = _meet(pg, group, each)
            _worlds[id(pg), each] = weakref.ref(pg), world
            if each is not None:
                _connect(world, pg.rank() == each[0])
    return _worlds[id(pg), part][1]


def _connect(world: World, source: bool) -> None:
    """Sends one byte, which makes the communicator."""
    byte = torch.zeros(1, dtype=torch.uint8)
    call = {"call": "send" if source else "recv", "dtype": "uint8", "root": 0}
    shapes = {"inputs": [1], "outputs": []} if source else {"inputs": [], "outputs": [1]}
    world.wait(world.start(json.dumps({**call, **shapes}), [1], [byte.data_ptr()] if source else []))


def _meet(pg: Any, group: str, part: Part) -> World:
    store = c10d._world.pg_map[pg][1]
    if part is None:
        name, rank, size = group, pg.rank(), pg.size()
    else:
        source, destination, tag = part
        name = f"{group}/{source}-{destination}/{tag}"
        rank, size = (0 if pg.rank() == source else 1), 2
    key = f"hcom/{name}"
    listener, host, port, job = None, "127.0.0.1", 0, key
    if size > 1 and rank == 0:
        listener = Listener()
        host, port, job = _own_address(store), listener.port, f"{key}/{os.urandom(8).hex()}"
        store.set(key, json.dumps([host, port, job]))
    elif size > 1:
        host, port, job = json.loads(_fetch(store, key))
    return World.meet(
        name=name,
        rank=rank,
        size=size,
        device=int(os.environ.get("LOCAL_RANK", dist.get_rank() % 8)),
        host=host,
        port=port,
        job=job,
        listener=listener,
        library=library(),
        pair=part is not None,
    )


def _fetch(store: Any, key: str) -> bytes:
    """What the first rank of a group publishes."""
    limit = float(os.environ.get("HCOM_CONNECT_TIMEOUT", "60"))
    waited = 0.0
    while True:
        try:
            store.wait([key], _SLICE)
            return store.get(key)
        except RuntimeError as error:
            waited += _SLICE.total_seconds()
            if waited >= limit:
                raise CollectiveError(
                    f"{key}: the first rank of the group did not come within {limit:g} s (HCOM_CONNECT_TIMEOUT); "
                    "every member of a group must run the graphs that communicate in it"
                ) from error


def _own_address(store: Any) -> str:
    """The address of this host on the way to the store's."""
    while hasattr(store, "underlying_store"):
        store = store.underlying_store
    if not hasattr(store, "host"):
        return "127.0.0.1"
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect((store.host, store.port or 1))
            return probe.getsockname()[0]
        except OSError:
            return "127.0.0.1"


def library() -> str | None:
    """The CPU library of the wheel, unless the environment names another or a toolkit is installed."""
    if os.environ.get("HCOM_LIBRARY_PATH") or os.environ.get("ASCEND_HOME_PATH"):
        return None
    packaged = Path(__file__).parent / "_ascend" / "lib64" / "libhcom_fake_so.so"
    return str(packaged) if packaged.exists() else None


def check(program: str, sizes: tuple[int, ...]) -> None:
    """Compares the collectives of a graph with those of the other ranks, once for each set of sizes.

    ``program`` lists the calls as (group, description, number of sizes). Of transfers only the two ranks
    meet: the ranks of a transfer may run different graphs."""
    known = _checked.get((program, sizes))
    if known is not None and all(c10d._resolve_process_group(name) is pg() for name, pg in known.items()):
        return
    sequences: dict[str, list[tuple[str, list[int]]]] = {}
    transfers: dict[tuple[Any, ...], tuple[str, str]] = {}
    at = 0
    for group, text, count in json.loads(program):
        part = _part(text, c10d._resolve_process_group(group).rank())
        if part is not None:
            one, other, tag = part
            transfers[group, min(one, other), max(one, other), tag] = group, text
            at += count
            continue
        sequences.setdefault(group, []).append((text, list(sizes[at : at + count])))
        at += count
    # Every rank takes groups and pairs in the same order, so that no two wait for each other.
    for group in sorted(sequences):
        of(group, sequences[group][0][0]).check(sequences[group])
    for pair in sorted(transfers):
        of(*transfers[pair])
    names = {*sequences, *(group for group, _ in transfers.values())}
    _checked[program, sizes] = {name: weakref.ref(c10d._resolve_process_group(name)) for name in names}


@atexit.register
def close() -> None:
    """Says goodbye to the other ranks."""
    _worlds.clear()
    _checked.clear()
