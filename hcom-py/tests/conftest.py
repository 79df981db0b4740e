"""Ranks for the tests: processes that stay up from test to test.

``ranks.run(function, *arguments)`` calls a function of a test module on every rank, as
``function(rank, *arguments)``, and returns what each rank returned. An exception on a rank is raised here.
A rank that does not answer in time is killed with all others, and the next test gets new ones.
"""

import os
import sys
import tempfile
import traceback

import pytest
import torch.multiprocessing as mp

TIMEOUT = 180.0


class RankError(Exception):
    """What went wrong, by rank."""

    def __init__(self, errors):
        self.errors = errors
        super().__init__("\n".join(f"rank {rank}:\n{text}" for rank, (_, text) in sorted(errors.items())))

    def types(self):
        return {rank: name for rank, (name, _) in self.errors.items()}


def serve(rank, size, folder, connection, environment):
    """A rank: runs what it is told until the connection closes."""
    os.environ.update(environment, RANK=str(rank), WORLD_SIZE=str(size), LOCAL_RANK=str(rank))
    import torch
    import torch.distributed as dist

    import hcom_torch

    torch.set_num_threads(1)
    hcom_torch.patch_for_hcom()
    dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=size)
    while True:
        try:
            function, arguments = connection.recv()
        except EOFError:
            break
        torch._dynamo.reset()
        try:
            answer = (True, function(rank, *arguments))
        except BaseException as error:  # noqa: BLE001 - whatever it is, the test wants to know
            answer = (False, (type(error).__name__, traceback.format_exc()))
        connection.send(answer)
    dist.destroy_process_group()


class Ranks:
    """A world of processes."""

    def __init__(self, size, **environment):
        self.size = size
        self.folder = tempfile.TemporaryDirectory()
        context = mp.get_context("spawn")
        self.processes, self.connections = [], []
        defaults = {"HCOM_TIMEOUT": "60"}
        for rank in range(size):
            ours, theirs = context.Pipe()
            process = context.Process(
                target=serve, args=(rank, size, self.folder.name, theirs, {**defaults, **environment}), daemon=True
            )
            process.start()
            theirs.close()
            self.processes.append(process)
            self.connections.append(ours)
        self.alive = True

    def run(self, function, *arguments, timeout=TIMEOUT):
        for connection in self.connections:
            connection.send((function, arguments))
        answers, errors = [], {}
        for rank, connection in enumerate(self.connections):
            try:
                if not connection.poll(timeout):
                    raise TimeoutError(f"rank {rank} did not answer within {timeout:g} s")
                fine, answer = connection.recv()
            except (EOFError, OSError, TimeoutError) as error:
                self.kill()
                errors[rank] = (type(error).__name__, str(error))
                continue
            if fine:
                answers.append(answer)
            else:
                errors[rank] = answer
        if errors:
            raise RankError(errors)
        return answers

    def kill(self):
        self.alive = False
        for process in self.processes:
            process.kill()

    def close(self):
        """Ends the ranks in order; returns their exit codes."""
        for connection in self.connections:
            connection.close()
        for process in self.processes:
            process.join(30)
        codes = [process.exitcode for process in self.processes]
        self.kill()
        self.folder.cleanup()
        return codes


class Pool:
    """The worlds that are up, by size."""

    def __init__(self):
        self.worlds = {}

    def get(self, size):
        world = self.worlds.get(size)
        if world is None or not world.alive:
            for other in self.worlds.values():
                other.close()
            self.worlds = {size: Ranks(size)}
        return self.worlds[size]

    def close(self):
        codes = [code for world in self.worlds.values() if world.alive for code in world.close()]
        assert all(code == 0 for code in codes), codes


def pytest_addoption(parser):
    parser.addoption("--full", action="store_true", help="also the slow tests, on 4 ranks")


def pytest_configure(config):
    config.addinivalue_line("markers", "full: runs with --full only")
    sys.path.insert(0, os.path.dirname(__file__))
    # The ranks must find the test modules by name.
    os.environ["PYTHONPATH"] = os.pathsep.join(
        filter(None, (os.path.dirname(__file__), os.environ.get("PYTHONPATH")))
    )


def pytest_collection_modifyitems(config, items):
    if not config.getoption("--full"):
        kept = [item for item in items if item.get_closest_marker("full") is None]
        config.hook.pytest_deselected(items=[item for item in items if item not in kept])
        items[:] = kept


@pytest.fixture(scope="session")
def pool():
    pool = Pool()
    yield pool
    pool.close()


@pytest.fixture
def ranks(pool):
    return pool.get(2)


@pytest.fixture
def four(pool):
    return pool.get(4)


@pytest.fixture
def fresh():
    """Makes worlds that one test uses alone, for tests after which nothing works any more."""
    made = []

    def make(size, **environment):
        made.append(Ranks(size, **environment))
        return made[-1]

    yield make
    for world in made:
        world.close()
