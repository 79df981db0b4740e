"""Gradients through collectives, checked against those of the same program on one rank."""

import pytest
import torch
import torch.distributed as dist

import hcom_torch as hcom


def compiled(function, dynamic=False):
    return torch.compile(function, backend=hcom.get_npu_backend(), fullgraph=True, dynamic=dynamic)


def leaf(rank, rows=4):
    values = torch.arange(rows * 2, dtype=torch.float32).reshape(rows, 2) / 8 + rank + 1
    return values.requires_grad_()


def weight(rank, shape):
    count = torch.Size(shape).numel()
    return (torch.arange(count, dtype=torch.float32) + 10 * (rank + 1)).reshape(shape)


def all_reduce(x):
    y = x * x
    dist.all_reduce(y)
    return y


def all_reduce_mean(x):
    y = x * x
    dist.all_reduce(y, op=dist.ReduceOp.AVG)
    return y


def all_gather_into_tensor(x):
    y = x * x
    out = y.new_empty(2 * y.shape[0], 2)
    dist.all_gather_into_tensor(out, y)
    return out


def all_gather(x):
    y = x * x
    out = [torch.empty_like(y) for _ in range(2)]
    dist.all_gather(out, y)
    return torch.cat(out)


def reduce_scatter_tensor(x):
    y = x * x
    out = y.new_empty(y.shape[0] // 2, 2)
    dist.reduce_scatter_tensor(out, y)
    return out


def all_to_all_single(x):
    y = x * x
    out = torch.empty_like(y)
    dist.all_to_all_single(out, y)
    return out


def all_to_all_uneven(x):
    y = x * x
    splits = [3, 1] if dist.get_rank() == 0 else [2, 2]
    theirs = [3, 2] if dist.get_rank() == 0 else [1, 2]
    out = y.new_empty(sum(theirs), 2)
    dist.all_to_all_single(out, y, theirs, splits)
    return out


def on_one_rank(name, inputs):
    """What the ranks compute, as one program of both inputs."""
    a, b = (x * x for x in inputs)
    if name == "all_reduce":
        return [a + b] * 2
    if name == "all_reduce_mean":
        return [(a + b) / 2] * 2
    if name in ("all_gather_into_tensor", "all_gather"):
        return [torch.cat([a, b])] * 2
    if name == "reduce_scatter_tensor":
        return list((a + b).chunk(2))
    if name == "all_to_all_single":
        return [torch.cat([a[:2], b[:2]]), torch.cat([a[2:], b[2:]])]
    return [torch.cat([a[:3], b[:2]]), torch.cat([a[3:], b[2:]])]


FORMS = [
    all_reduce,
    all_reduce_mean,
    all_gather_into_tensor,
    all_gather,
    reduce_scatter_tensor,
    all_to_all_single,
    all_to_all_uneven,
]


def gradient(rank, form):
    x = leaf(rank)
    y = compiled(form)(x)
    (y * weight(rank, y.shape)).sum().backward()
    return y.detach(), x.grad


@pytest.mark.parametrize("form", FORMS, ids=lambda form: form.__name__)
def test_gradients_are_those_of_one_program(ranks, form):
    inputs = [leaf(0), leaf(1)]
    outputs = on_one_rank(form.__name__, inputs)
    sum((y * weight(rank, y.shape)).sum() for rank, y in enumerate(outputs)).backward()
    for rank, (y, grad) in enumerate(ranks.run(gradient, form)):
        assert torch.equal(y, outputs[rank].detach()), rank
        assert torch.allclose(grad, inputs[rank].grad), (rank, grad, inputs[rank].grad)


def broadcast(x):
    y = x * x
    dist.broadcast(y, src=0)
    return y


def maximum(x):
    y = x * x
    dist.all_reduce(y, op=dist.ReduceOp.MAX)
    return y


def refused(rank, form):
    try:
        gradient(rank, form)
    except RuntimeError as error:
        return str(error)
    return "no error"


@pytest.mark.parametrize(
    ("form", "said"),
    [(broadcast, "broadcast has no gradient; these have one: all_reduce"), (maximum, "reduction max has no gradient")],
    ids=["broadcast", "max"],
)
def test_what_has_no_gradient_says_so(ranks, form, said):
    for answer in ranks.run(refused, form):
        assert said in answer


def without_gradients(rank):
    x = leaf(rank)
    with torch.no_grad():
        one = compiled(broadcast)(x)
    with torch.inference_mode():
        two = compiled(all_reduce)(x)
    return one.tolist(), two.tolist(), one.requires_grad, two.requires_grad


def test_without_gradients_every_call_works(ranks):
    a, b = ((leaf(rank) ** 2).detach() for rank in range(2))
    for answer in ranks.run(without_gradients):
        assert answer == (a.tolist(), (a + b).tolist(), False, False)
