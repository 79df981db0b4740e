"""Faults that users of collectives in compiled graphs have met, with the values that are right."""

import pytest
import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as functional

import hcom_torch as hcom


def compiled(function, dynamic=False):
    config = hcom.CompilerConfig()
    config.experimental_config.async_collectives = True
    return torch.compile(function, backend=hcom.get_npu_backend(compiler_config=config), fullgraph=True, dynamic=dynamic)


def error(function, *arguments):
    try:
        function(*arguments)
    except Exception as caught:  # noqa: BLE001 - the tests look at whatever it is
        return f"{type(caught).__name__}: {caught}"
    return "no error"


def strided(rank):
    base = torch.tensor([[1.0, 9.0], [2.0, 9.0]] if rank == 0 else [[0.0, 7.0], [0.0, 7.0]])
    compiled(lambda base: dist.broadcast(base[:, 0], src=0))(base)
    return base.tolist()


def test_only_the_elements_of_a_view_are_sent(ranks):
    assert ranks.run(strided) == [[[1, 9], [2, 9]], [[1, 7], [2, 7]]]


def buffers(rank):
    def model(a):
        s = functional.all_reduce(a, "sum", dist.group.WORLD)
        c = torch.relu(a)
        return c @ c + s

    a = torch.tensor([[1.0, -1.0], [0.0, 2.0]])
    return compiled(model)(a).tolist(), a.tolist()


def test_buffers_are_not_reused_while_a_collective_reads_them(ranks):
    assert ranks.run(buffers) == [([[3, -2], [0, 8]], [[1, -1], [0, 2]])] * 2


def in_place(rank):
    def model(x):
        dist.all_reduce(x)
        return x * 2

    x = torch.tensor([rank + 1.0, 10.0])
    return compiled(model)(x).tolist(), x.tolist()


def test_a_call_in_place_writes_the_callers_tensor(ranks):
    assert ranks.run(in_place) == [([6, 40], [3, 20])] * 2


def dropped(rank):
    def model(x):
        y = functional.all_reduce(x, "sum", dist.group.WORLD)
        dist.barrier()
        return y if rank == 0 else x + 0

    return compiled(model)(torch.tensor([rank + 1.0])).tolist()


def test_a_result_that_one_rank_drops_is_computed(ranks):
    assert ranks.run(dropped) == [[3], [2]]


def late(rank):
    def model(x):
        out = x.new_empty(2)
        dist.all_gather_into_tensor(out, x)
        return out.to(torch.bfloat16), out[1:].sum(), out

    half, last, whole = compiled(model)(torch.tensor([rank + 1.0]))
    return half.tolist(), last.item(), whole.numpy().tolist(), str(whole)


def test_a_result_is_read_when_it_is_there(ranks):
    assert ranks.run(late) == [([1, 2], 2, [1, 2], "tensor([1., 2.])")] * 2


def empty(rank):
    def model(x):
        reduced, sent = x.clone(), x.clone()
        dist.all_reduce(reduced)
        gathered = [torch.empty_like(x) for _ in range(2)]
        dist.all_gather(gathered, x)
        scattered = x.new_empty(1, 0, 2)
        dist.reduce_scatter_tensor(scattered, torch.cat([x, x]))
        dist.broadcast(sent, src=1)
        collected = [torch.empty_like(x) for _ in range(2)] if dist.get_rank() == 0 else None
        dist.gather(x, collected, dst=0)
        return reduced, *gathered, scattered, sent, *(collected or [])

    return [list(result.shape) for result in compiled(model)(torch.empty(1, 0, 2))]


def test_tensors_without_elements_are_no_special_case(ranks):
    assert ranks.run(empty) == [[[1, 0, 2]] * 7, [[1, 0, 2]] * 5]


def one_sends_nothing(rank, dynamic):
    ours, theirs = ([0, 0], [0, 1]) if rank == 0 else ([1, 2], [0, 2])

    def model(x, ours, theirs):
        out = x.new_empty(sum(theirs))
        dist.all_to_all_single(out, x, theirs, ours)
        return out

    model = compiled(model, dynamic)
    x = torch.tensor([] if rank == 0 else [10.0, 20.0, 30.0])
    return model(x, ours, theirs).tolist(), model(torch.empty(0), [0, 0], [0, 0]).tolist()


@pytest.mark.parametrize("dynamic", [False, True], ids=["static", "dynamic"])
def test_a_rank_may_send_nothing(ranks, dynamic):
    assert ranks.run(one_sends_nothing, dynamic) == [([10], []), ([20, 30], [])]


def reduced(rank, values, dtype, op):
    """Reduces values[rank], a list; returns list and storage bytes."""

    def model(x):
        dist.all_reduce(x, op=op)
        return x

    x = compiled(model)(torch.tensor(values[rank], dtype=dtype))
    return x.tolist(), x.contiguous().view(torch.uint8).tolist() if dtype is torch.bool else None


SUM, MIN, PRODUCT, AVG = dist.ReduceOp.SUM, dist.ReduceOp.MIN, dist.ReduceOp.PRODUCT, dist.ReduceOp.AVG


def test_truth_values(ranks):
    both = [[True, True, False]] * 2
    assert ranks.run(reduced, both, torch.bool, SUM) == [([True, True, False], [1, 1, 0])] * 2
    one = [[True, True, False], [False, True, False]]
    for op in (MIN, PRODUCT):
        assert ranks.run(reduced, one, torch.bool, op) == [([False, True, False], [0, 1, 0])] * 2


def test_not_a_number_wins_on_every_rank(ranks):
    nan = float("nan")
    for values in ([[1.0], [nan]], [[nan], [1.0]]):
        for (value,), _ in ranks.run(reduced, values, torch.float32, MIN):
            assert value != value


def test_sums_of_short_floats_are_formed_in_long_ones(ranks):
    assert ranks.run(reduced, [[40000.0], [40000.0]], torch.float16, AVG) == [([40000.0], None)] * 2
    assert ranks.run(reduced, [[-3], [0]], torch.int32, AVG) == [([-1], None)] * 2


@pytest.mark.full
def test_sums_of_short_floats_do_not_depend_on_order(four):
    assert four.run(reduced, [[256.0], [1.0], [1.0], [0.0]], torch.bfloat16, SUM) == [([258.0], None)] * 4
    assert four.run(reduced, [[2048.0], [1.0], [1.0], [0.0]], torch.float16, SUM) == [([2050.0], None)] * 4


def mean_of_truth(rank):
    return error(reduced, rank, [[True]] * 2, torch.bool, AVG)


def test_a_mean_of_truth_values_is_refused(ranks):
    for answer in ranks.run(mean_of_truth):
        assert answer.startswith("ValueError") and "bool" in answer and "avg" in answer


def overlapped(rank):
    def model(x, y):
        work = dist.all_reduce(y, async_op=True)
        z = x * 2
        work.wait()
        return y + z

    y = torch.tensor([rank + 1.0])
    return compiled(model)(torch.tensor([5.0]), y).item(), y.item()


def test_an_asynchronous_call_with_work_before_its_wait(ranks):
    assert ranks.run(overlapped) == [(13, 3)] * 2


def groups(rank):
    alone = dist.new_group([0])
    pair = dist.new_group([0, 1], use_local_synchronization=True)

    def model(x):
        if rank == 0:
            dist.all_reduce(x, group=alone)
        dist.all_reduce(x, group=pair)
        return x

    return compiled(model)(torch.tensor([rank + 1.0])).item()


def test_groups_of_one_and_of_members_only(ranks):
    assert ranks.run(groups) == [3, 3]


def uneven_list(rank):
    factor = 1 if rank == 0 else 10

    def model(a, b):
        out = torch.empty_like(a if rank == 0 else b)
        dist.reduce_scatter(out, [a, b])
        return out

    return compiled(model)(torch.tensor([1.0, 2.0]) * factor, torch.tensor([3.0]) * factor).tolist()


def test_reduce_scatter_of_an_uneven_list(ranks):
    assert ranks.run(uneven_list) == [[11, 22], [33]]


def even(rank):
    def model(x):
        out = torch.empty_like(x)
        dist.all_to_all_single(out, x)
        return out

    return compiled(model)(torch.full((4,), float(rank))).tolist()


def test_even_splits_larger_than_one(ranks):
    assert ranks.run(even) == [[0, 0, 1, 1]] * 2


def dimensions(rank):
    x = torch.tensor([[1.0, 2.0], [3.0, 4.0]]) + 4 * rank
    y = torch.arange(8.0).reshape(2, 4)
    gathered = compiled(lambda x: functional.all_gather_tensor(x, 1, dist.group.WORLD))(x)
    scattered = compiled(lambda y: functional.reduce_scatter_tensor(y, "sum", 1, dist.group.WORLD))(y)
    return gathered.tolist(), scattered.tolist()


def test_other_dimensions_than_the_first(ranks):
    gathered = [[1, 2, 5, 6], [3, 4, 7, 8]]
    assert ranks.run(dimensions) == [(gathered, [[0, 2], [8, 10]]), (gathered, [[4, 6], [12, 14]])]


def not_divisible(rank):
    def model(x):
        out = x.new_empty(2)
        dist.reduce_scatter_tensor(out, x)
        return out

    return error(compiled(model), torch.ones(5))


def test_rows_that_cannot_be_split(ranks):
    for answer in ranks.run(not_divisible):
        assert answer.startswith("ValueError") and "5" in answer and "2" in answer


def different_sizes(rank):
    def model(x):
        dist.all_reduce(x)
        return x

    model = compiled(model)
    x = torch.ones(100 if rank == 0 else 200, 256)
    first = error(model, x)
    return first, error(model, torch.ones(100, 256)), x.sum().item()


def test_ranks_that_reduce_different_sizes_are_told(fresh):
    for rank, (first, second, total) in enumerate(fresh(2, HCOM_TIMEOUT="5").run(different_sizes)):
        assert first.startswith("CollectiveError") and "all_reduce" in first, first
        assert "25600" in first and "51200" in first and "test_cases.py:" in first
        assert second.startswith("CollectiveError")
        assert total == (25600 if rank == 0 else 51200)


def root_of_group(rank):
    group = dist.new_group([1, 3])

    def model(x, **root):
        dist.broadcast(x, group=group, **root)
        return x

    def value(**root):
        return compiled(lambda x: model(x, **root))(torch.tensor([10.0 * rank])).item()

    wrong = error(lambda: compiled(lambda x: model(x, src=0))(torch.tensor([0.0]))) if rank == 1 else ""
    return value(src=3), value(group_src=1), wrong


@pytest.mark.full
def test_roots_are_named_in_either_numbering(four):
    answers = four.run(root_of_group)
    assert [answer[:2] for answer in answers] == [(0, 0), (30, 30), (20, 20), (30, 30)]
    assert "src 0 is not in the group" in answers[1][2]


def huge(rank):
    with torch._subclasses.FakeTensorMode(allow_non_fake_inputs=True):
        x = torch.empty(2**31 + 8, dtype=torch.int8)
        return list(torch.ops.hcom.all_gather_into_tensor([x], [*x.shape, 2, *x.shape], [2], [-1, -1], "int8", "", -1, 0, False, "0")[0].shape)


def test_counts_beyond_32_bits(ranks):
    assert ranks.run(huge) == [[2, 2**31 + 8]] * 2
