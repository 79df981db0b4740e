"""Every form of every call is captured, in one graph, and does what it does eagerly."""

import pytest
import torch
import torch._dynamo.testing
import torch.distributed as dist
import torch.distributed._functional_collectives as functional

import hcom_torch as hcom


def data(rank, rows, columns=2, dtype=torch.float32):
    """Distinct in every element and on every rank."""
    count = rows * columns
    return (torch.arange(count, dtype=torch.float32) + 1000 * (rank + 1)).reshape(rows, columns).to(dtype)


def world():
    return dist.get_world_size()


def all_reduce_sum(x):
    dist.all_reduce(x)
    return [x + 1]


def all_reduce_max(x):
    dist.all_reduce(x, op=dist.ReduceOp.MAX)
    return [x]


def all_reduce_async(x):
    work = dist.all_reduce(x, async_op=True)
    other = x.new_ones(3) * 2
    work.wait()
    return [x, other]


def all_gather(x):
    out = [torch.empty_like(x) for _ in range(world())]
    dist.all_gather(out, x)
    return out


def all_gather_into_tensor(x):
    out = x.new_empty(world() * x.shape[0], x.shape[1])
    dist.all_gather_into_tensor(out, x)
    return [out]


def reduce_scatter_tensor(x):
    out = x.new_empty(x.shape[0] // world(), x.shape[1])
    dist.reduce_scatter_tensor(out, x)
    return [out]


def reduce_scatter(x):
    rows = x.shape[0] // world()
    out = x.new_empty(rows, x.shape[1])
    dist.reduce_scatter(out, [x[i * rows : (i + 1) * rows] * (i + 1) for i in range(world())])
    return [out]


def all_to_all_single(x):
    out = torch.empty_like(x)
    dist.all_to_all_single(out, x)
    return [out]


def all_to_all_single_splits(x):
    rank, rows = dist.get_rank(), x.shape[0]
    ours = [rows - 1, 1] if rank == 0 else [1, rows - 1]
    theirs = [rows - 1, 1] if rank == 0 else [1, rows - 1]
    out = x.new_empty(sum(theirs), x.shape[1])
    dist.all_to_all_single(out, x, theirs, ours)
    return [out]


def all_to_all(x):
    rows = x.shape[0] // world()
    out = [x.new_empty(rows, x.shape[1]) for _ in range(world())]
    dist.all_to_all(out, [x[i * rows : (i + 1) * rows] for i in range(world())])
    return out


def broadcast(x):
    dist.broadcast(x, src=1)
    return [x]


def broadcast_group_src(x):
    dist.broadcast(x, group_src=1)
    return [x]


def reduce(x):
    y = x * 2
    dist.reduce(y, dst=1)
    return [y] if dist.get_rank() == 1 else []


def gather(x):
    out = [torch.empty_like(x) for _ in range(world())] if dist.get_rank() == 1 else None
    dist.gather(x, out, dst=1)
    return out or []


def scatter(x):
    out = torch.empty_like(x)
    dist.scatter(out, [x, x + 7] if dist.get_rank() == 1 else None, src=1)
    return [out]


def barrier(x):
    dist.barrier()
    return [x + 1]


def send_recv(x):
    out = torch.zeros_like(x)
    if dist.get_rank() == 0:
        dist.send(x, dst=1)
    else:
        dist.recv(out, src=0)
    return [out]


def isend_irecv(x):
    out = torch.zeros_like(x)
    peer = 1 - dist.get_rank()
    works = [dist.isend(x, dst=peer), dist.irecv(out, src=peer)]
    for work in works:
        work.wait()
    return [out]


def batch_isend_irecv(x):
    out = torch.zeros_like(x)
    peer = 1 - dist.get_rank()
    batch = [dist.P2POp(dist.isend, x, peer), dist.P2POp(dist.irecv, out, peer)]
    for work in dist.batch_isend_irecv(batch):
        work.wait()
    return [out]


def functional_all_reduce(x):
    return [functional.all_reduce(x, "sum", dist.group.WORLD)]


def functional_all_gather(x):
    return [functional.all_gather_tensor(x, gather_dim=1, group=dist.group.WORLD)]


def functional_reduce_scatter(x):
    return [functional.reduce_scatter_tensor(x, "sum", scatter_dim=0, group=dist.group.WORLD)]


def functional_all_to_all(x):
    return [functional.all_to_all_single(x, None, None, dist.group.WORLD)]


def functional_broadcast(x):
    return [functional.broadcast(x, 1, dist.group.WORLD)]


def functional_coalesced(x):
    return functional.all_reduce_coalesced([x, x * 2], "sum", dist.group.WORLD)


FORMS = [
    all_reduce_sum,
    all_reduce_max,
    all_reduce_async,
    all_gather,
    all_gather_into_tensor,
    reduce_scatter_tensor,
    reduce_scatter,
    all_to_all_single,
    all_to_all_single_splits,
    all_to_all,
    broadcast,
    broadcast_group_src,
    reduce,
    gather,
    scatter,
    barrier,
    send_recv,
    isend_irecv,
    batch_isend_irecv,
    functional_all_reduce,
    functional_all_gather,
    functional_reduce_scatter,
    functional_all_to_all,
    functional_broadcast,
    functional_coalesced,
]


def backend():
    config = hcom.CompilerConfig()
    config.experimental_config.async_collectives = True
    return hcom.get_npu_backend(compiler_config=config)


def compare(rank, form, dynamic):
    """The number of graphs and breaks, and the number of results compared."""
    counted = torch._dynamo.testing.CompileCounterWithBackend(backend())
    compiled = torch.compile(form, backend=counted, fullgraph=True, dynamic=dynamic)
    compared = 0
    for rows in (4, 6, 8) if dynamic else (4,):
        eager_input, input = data(rank, rows), data(rank, rows)
        expected = form(eager_input)
        for got, want in zip(compiled(input), expected, strict=True):
            assert torch.equal(got, want), (rank, rows, got, want)
            compared += 1
        assert torch.equal(input, eager_input), (rank, rows, input, eager_input)
    torch._dynamo.reset()
    explained = torch._dynamo.explain(form)(data(rank, 4))
    return counted.frame_count, explained.graph_count, explained.graph_break_count, compared


@pytest.mark.parametrize("dynamic", [False, True], ids=["static", "dynamic"])
@pytest.mark.parametrize("form", FORMS, ids=lambda form: form.__name__)
def test_a_call_is_captured_and_equals_eager(ranks, form, dynamic):
    answers = ranks.run(compare, form, dynamic)
    assert [answer[:3] for answer in answers] == [(1, 1, 0)] * 2
    assert sum(answer[3] for answer in answers) > 0


def uneven_gather(x, splits):
    out = x.new_empty(sum(splits), x.shape[1])
    hcom.distributed.all_gather_into_tensor_uneven(out, x, splits)
    return [out]


def uneven_scatter(x, splits):
    out = x.new_empty(splits[dist.get_rank()], x.shape[1])
    hcom.distributed.reduce_scatter_tensor_uneven(out, x, splits)
    return [out]


def run_uneven(rank, dynamic):
    gathered = torch.compile(uneven_gather, backend=backend(), fullgraph=True, dynamic=dynamic)
    scattered = torch.compile(uneven_scatter, backend=backend(), fullgraph=True, dynamic=dynamic)
    x = torch.full((4 if rank == 0 else 1, 2), 2 * rank + 2, dtype=torch.int32)
    y = torch.arange(10, dtype=torch.int32).reshape(5, 2)
    explained = [
        torch._dynamo.explain(uneven_gather)(x, [4, 1]),
        torch._dynamo.explain(uneven_scatter)(y, [4, 1]),
    ]
    assert [(e.graph_count, e.graph_break_count) for e in explained] == [(1, 0)] * 2
    return gathered(x, [4, 1])[0].tolist(), scattered(y, [4, 1])[0].tolist()


@pytest.mark.parametrize("dynamic", [False, True], ids=["static", "dynamic"])
def test_uneven_calls_are_captured(ranks, dynamic):
    first, second = ranks.run(run_uneven, dynamic)
    gathered = [[2, 2]] * 4 + [[4, 4]]
    assert first == (gathered, [[0, 2], [4, 6], [8, 10], [12, 14]])
    assert second == (gathered, [[16, 18]])
