"""Options, the patch, and what is said about wrong use."""

import importlib.metadata
import inspect
import sys
import types
import warnings

import pytest
import torch
import torch.distributed as dist
from torch.distributed import distributed_c10d as c10d

import hcom_torch as hcom
from hcom_torch import calls

WRONG = [
    (lambda c: setattr(c, "mode", "fast"), "mode is 'fast': expected one of 'max-autotune', 'reduce-overhead'"),
    (lambda c: setattr(c, "modes", 1), "CompilerConfig has no option 'modes'; its options are mode, debug, export"),
    (lambda c: setattr(c.debug, "graphdump", 1), "Debug has no option 'graphdump'; its options are graph_dump"),
    (lambda c: setattr(c.debug.graph_dump, "type", "pbtxt2"), "type is 'pbtxt2': expected one of None, 'txt', 'py'"),
    (lambda c: setattr(c.debug, "run_eagerly", 1), "Debug.run_eagerly is 1: expected one of False, True"),
    (lambda c: setattr(c, "debug", True), "CompilerConfig.debug is a set of options: set one of graph_dump"),
    (
        lambda c: setattr(c.experimental_config, "topology_sorting_strategy", "dfs"),
        "is 'dfs': expected one of 'BFS', 'DFS', 'RDFS', 'StableRDFS'",
    ),
    (lambda c: setattr(c.ge_config, "aicore_num", "8"), 'aicore_num is \'8\': expected None, or "a|v"'),
    (lambda c: setattr(c, "capture_limit", 0), "capture_limit is 0: expected a number from 1"),
]


@pytest.mark.parametrize(("change", "said"), WRONG, ids=[str(number) for number in range(len(WRONG))])
def test_a_wrong_option_is_refused_with_what_is_allowed(change, said):
    with pytest.raises(ValueError) as caught:
        change(hcom.CompilerConfig())
    assert said in str(caught.value)


def test_a_backend_wants_a_config():
    with pytest.raises(ValueError, match="expected a CompilerConfig"):
        hcom.get_npu_backend(compiler_config={"mode": "max-autotune"})


def test_configs_share_nothing():
    one, two = hcom.CompilerConfig(), hcom.CompilerConfig()
    one.debug.graph_dump.type = "py"
    assert two.debug.graph_dump.type is None


@pytest.mark.parametrize("name", [n for n in calls.REPLACEMENTS if hasattr(c10d, n)])
def test_a_replacement_has_the_parameters_of_the_original(name):
    original, ours = getattr(c10d, name), calls.REPLACEMENTS[name]
    parameters = [list(inspect.signature(f).parameters) for f in (original, ours)]
    # Ours may have one that only newer versions of torch have.
    assert parameters[0] == parameters[1][: len(parameters[0])]


def test_the_patch_is_undone_whole():
    before = {name: getattr(dist, name) for name in calls.REPLACEMENTS if hasattr(dist, name)}
    hcom.patch_for_hcom()
    hcom.patch_for_hcom()
    assert dist.all_reduce is calls.all_reduce
    hcom.unpatch()
    hcom.unpatch()
    assert {name: getattr(dist, name) for name in before} == before


def test_names_imported_early_are_reported():
    module = types.ModuleType("somebodys_model")
    module.reduce_them = dist.all_reduce
    sys.modules["somebodys_model"] = module
    try:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            hcom.patch_for_hcom()
    finally:
        del sys.modules["somebodys_model"]
        hcom.unpatch()
    assert any("somebodys_model.reduce_them" in str(warning.message) for warning in caught)


def test_torch_finds_the_backend_by_name():
    entries = importlib.metadata.entry_points(group="torch_dynamo_backends")
    assert "hcom" in entries.names
    assert "hcom" in torch._dynamo.list_backends()


def without_patch(rank):
    hcom.unpatch()
    try:
        x = torch.tensor([rank + 1.0, 10.0])
        y = torch.compile(lambda x: (dist.all_reduce(x), x * 2)[1], backend=hcom.backend.hcom, fullgraph=True)(x)
        return x.tolist(), y.tolist()
    finally:
        hcom.patch_for_hcom()


def test_what_torch_captures_works_without_the_patch(ranks):
    assert ranks.run(without_patch) == [([3.0, 20.0], [6.0, 40.0])] * 2


def asynchronous(rank):
    def model(x):
        dist.all_reduce(x, async_op=True).wait()
        return x

    model = torch.compile(model, backend=hcom.get_npu_backend(), fullgraph=True)
    try:
        model(torch.ones(2))
    except AssertionError as error:
        return str(error)
    return "no error"


def test_async_op_is_refused_unless_it_is_allowed(ranks):
    for answer in ranks.run(asynchronous):
        assert answer.startswith("all_reduce at ") and "test_options.py:" in answer
        assert "async_collectives = True" in answer


def early(rank):
    original = c10d.broadcast
    x = torch.tensor([rank + 1.0])
    return torch.compile(lambda x: (original(x, 1), x + 1)[1], backend="eager", fullgraph=True)(x).item()


def test_a_name_imported_early_is_captured(ranks):
    assert ranks.run(early) == [3.0, 3.0]


def eagerly(rank):
    config = hcom.CompilerConfig()
    config.debug.run_eagerly = True
    model = torch.compile(
        lambda x: (dist.all_reduce(x), x + 1)[1], backend=hcom.get_npu_backend(compiler_config=config), fullgraph=True
    )
    return model(torch.tensor([rank + 1.0])).item()


def test_a_graph_runs_eagerly(ranks):
    assert ranks.run(eagerly) == [4.0, 4.0]


def dumped(rank, folder):
    config = hcom.CompilerConfig()
    config.debug.graph_dump.type, config.debug.graph_dump.path = "txt", folder
    config.debug.run_eagerly = True
    model = torch.compile(
        lambda x: (dist.all_reduce(x), x + 1)[1], backend=hcom.get_npu_backend(compiler_config=config), fullgraph=True
    )
    return model(torch.tensor([rank + 1.0])).item()


def test_graphs_are_written_for_each_rank(ranks, tmp_path):
    ranks.run(dumped, str(tmp_path))
    for rank in range(2):
        (file,) = tmp_path.glob(f"graph_*_rank_{rank}_pid_*.txt")
        assert "hcom.all_reduce" in file.read_text()
