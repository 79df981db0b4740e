"""The programs with which the reference system is tested, with the values that every rank must have."""

import pytest
import torch
import torch.distributed as dist

import hcom_torch as hcom


def compiled(function, dynamic=False):
    return torch.compile(function, backend=hcom.get_npu_backend(), fullgraph=True, dynamic=dynamic)


both = pytest.mark.parametrize("dynamic", [False, True], ids=["static", "dynamic"])


def plus_all_reduce(rank, dynamic):
    def model(x, y):
        x = x + y
        dist.all_reduce(x)
        return x

    one = torch.ones(2, 2, dtype=torch.int32)
    return compiled(model, dynamic)(one, one.clone()).tolist()


@both
def test_all_reduce_of_a_sum(ranks, dynamic):
    assert ranks.run(plus_all_reduce, dynamic) == [[[4, 4], [4, 4]]] * 2


def gather_list(rank, dynamic):
    def model(x):
        out = [torch.empty_like(x), torch.empty_like(x)]
        dist.all_gather(out, x)
        return out

    return [y.tolist() for y in compiled(model, dynamic)(torch.full((2, 2), 2 + 2 * rank))]


@both
def test_all_gather(ranks, dynamic):
    assert ranks.run(gather_list, dynamic) == [[[[2, 2], [2, 2]], [[4, 4], [4, 4]]]] * 2


def gather_shapes(rank, dynamic):
    """Two calls, concatenated and stacked; a shape that only has the right number of elements."""

    def model(x, shape, group):
        out = x.new_empty(shape)
        dist.all_gather_into_tensor(out, x, group=group)
        return out

    model = compiled(model, dynamic)
    x = torch.full((2, 2), 2 + 2 * rank)
    row = torch.full((1, 4), 1.0 + rank)
    return (
        model(x, (4, 2), dist.group.WORLD).tolist(),
        model(x, (2, 2, 2), None).tolist(),
        model(row, (2, 1, 4), None).tolist(),
    )


@both
def test_all_gather_into_tensor(ranks, dynamic):
    twos, fours = [[2, 2], [2, 2]], [[4, 4], [4, 4]]
    rows = [[[1, 1, 1, 1]], [[2, 2, 2, 2]]]
    assert ranks.run(gather_shapes, dynamic) == [([*twos, *fours], [twos, fours], rows)] * 2


def gather_other_shapes(rank):
    def model(x):
        out = [x.new_empty(4, 1), x.new_empty(1, 4)]
        dist.all_gather(out, x)
        return out

    def flat(x):
        out = x.new_empty(8, 1)
        dist.all_gather_into_tensor(out, x)
        return out

    x = torch.full((2, 2), 2 + 2 * rank)
    different = x if rank == 0 else x.reshape(1, 4)
    lists = [y.tolist() for y in compiled(model)(x)]
    return lists, compiled(flat)(x).flatten().tolist(), compiled(flat)(different).flatten().tolist()


def test_all_gather_into_other_shapes(ranks):
    flat = [2] * 4 + [4] * 4
    assert ranks.run(gather_other_shapes) == [([[[2], [2], [2], [2]], [[4, 4, 4, 4]]], flat, flat)] * 2


def scattered(rank, dynamic):
    def model(x):
        out = x.new_empty(2)
        dist.reduce_scatter_tensor(out, x)
        return out

    return compiled(model, dynamic)(torch.arange(4) + 1 + 2 * rank).tolist()


@both
def test_reduce_scatter_tensor(ranks, dynamic):
    assert ranks.run(scattered, dynamic) == [[4, 6], [8, 10]]


def broadcasts(rank, dynamic, named):
    group = dist.new_group([0, 1]) if named else None

    def model(x, buffers):
        out = []
        for source, buffer in enumerate(buffers):
            y = x.reshape(buffer.shape) if dist.get_rank() == source else buffer
            y = y.clone()
            dist.broadcast(y, src=source, group=group)
            out.append(y)
        return out

    x = torch.full((2, 2), 2 + 2 * rank)
    zeros = [torch.zeros(2, 2, dtype=torch.int64), torch.zeros(1, 4, dtype=torch.int64)]
    return [y.tolist() for y in compiled(model, dynamic)(x, zeros)]


@both
@pytest.mark.parametrize("named", [False, True], ids=["world", "group"])
def test_broadcast_from_each_rank(ranks, dynamic, named):
    assert ranks.run(broadcasts, dynamic, named) == [[[[2, 2], [2, 2]], [[4, 4, 4, 4]]]] * 2


def uneven(rank, dynamic):
    def gather(x, rows, splits):
        out = x.new_empty(rows, 2)
        hcom.distributed.all_gather_into_tensor_uneven(out, x, splits)
        return out

    def scatter(x, rows, splits):
        out = x.new_empty(rows, 2)
        hcom.distributed.reduce_scatter_tensor_uneven(out, x, splits)
        return out

    gather, scatter = compiled(gather, dynamic), compiled(scatter, dynamic)
    same = torch.full((2, 2), 2 + 2 * rank, dtype=torch.int32)
    four = torch.arange(4, dtype=torch.int32).reshape(2, 2)
    return gather(same, 4, None).tolist(), scatter(four, 1, None).tolist()


@both
def test_uneven_calls_without_splits_are_even(ranks, dynamic):
    gathered = [[2, 2]] * 2 + [[4, 4]] * 2
    assert ranks.run(uneven, dynamic) == [(gathered, [[0, 2]]), (gathered, [[4, 6]])]


def send_and_receive(rank, dynamic):
    group = dist.new_group([0, 1])

    def model(x, y):
        if dist.get_rank() == 0:
            dist.send(x, dst=1, group=group)
            return x
        dist.recv(y, src=0, group=group)
        return y

    model = compiled(model, dynamic)
    x = torch.full((2, 2), 2 + 2 * rank)
    return [model(x.reshape(shape), torch.zeros(shape, dtype=torch.int64)).tolist() for shape in ((2, 2), (4, 1))]


@both
def test_send_and_receive(ranks, dynamic):
    assert ranks.run(send_and_receive, dynamic) == [[[[2, 2], [2, 2]], [[2]] * 4]] * 2


SPLITS = [
    (range(0, 6), [2, 2, 1, 1], [2, 3, 2, 2]),
    (range(10, 19), [3, 2, 2, 2], [2, 2, 1, 2]),
    (range(20, 25), [2, 1, 1, 1], [1, 2, 1, 2]),
    (range(30, 37), [2, 2, 2, 1], [1, 2, 1, 1]),
]


def exchanged(rank, dynamic):
    def model(x, theirs, ours):
        out = x.new_empty(sum(theirs) if theirs else x.shape[0], *x.shape[1:])
        dist.all_to_all_single(out, x + 1, theirs, ours)
        return out + 1

    model = compiled(model, dynamic)
    values, ours, theirs = SPLITS[rank]
    return (
        model(torch.arange(4) + 4 * rank, None, None).tolist(),
        model(torch.tensor(list(values)), theirs, ours).tolist(),
        model(torch.ones(4, 2) + 4 * rank, None, None).tolist(),
    )


@pytest.mark.full
@both
def test_all_to_all_single(four, dynamic):
    split = [
        [0, 1, 10, 11, 12, 20, 21, 30, 31],
        [2, 3, 13, 14, 22, 32, 33],
        [4, 15, 16, 23, 34, 35],
        [5, 17, 18, 24, 36],
    ]
    for rank, (even, uneven_values, rows) in enumerate(four.run(exchanged, dynamic)):
        assert even == [4 * j + rank + 2 for j in range(4)]
        assert uneven_values == [value + 2 for value in split[rank]]
        assert rows == [[3 + 4 * j] * 2 for j in range(4)]


def exchanged_lists(rank, dynamic):
    def model(inputs, shapes):
        out = [inputs[0].new_empty(shape) for shape in shapes]
        dist.all_to_all(out, inputs)
        return out

    chunks = list((torch.arange(4) + 4 * rank).chunk(4))
    same = compiled(model, dynamic)(chunks, [(1,)] * 4)
    sized = [torch.full((rank + 1, 1), float(rank))] * 4
    other = compiled(model, False)([x.clone() for x in sized], [(i + 1, 1) for i in range(4)])
    rows = [torch.full((0 if rank == 0 else 1, 2), 10.0 * rank + i) for i in range(4)]
    empty = compiled(model, False)(rows, [(0 if i == 0 else 1, 2) for i in range(4)])
    return [y.tolist() for y in same], [y.flatten().tolist() for y in other], [y.tolist() for y in empty]


@pytest.mark.full
@both
def test_all_to_all_of_lists(four, dynamic):
    for rank, (same, other, empty) in enumerate(four.run(exchanged_lists, dynamic)):
        assert same == [[4 * j + rank] for j in range(4)]
        assert other == [[float(i)] * (i + 1) for i in range(4)]
        assert empty == [[]] + [[[10.0 * i + rank] * 2] for i in range(1, 4)]


def marked(rank):
    def model(x):
        y = x * 2
        with hcom.scope.npu_stream_switch("side"):
            z = x + 1
        with hcom.scope.limit_core_num(4, 8):
            dist.all_reduce(y)
        return hcom.scope.npu_wait_tensor(z, y), y

    z, y = compiled(model)(torch.tensor([rank + 1.0]))
    return z.item(), y.item()


def test_scopes_break_no_graph(ranks):
    assert ranks.run(marked) == [(2, 6), (3, 6)]
