"""Collectives of an unmodified torch_npu on the CPU library, one process of this file per rank.

Started by `hcom launch --fake -n N -- python3 collectives.py` (the gate: `cargo xtask ci --only torch-npu`). Every
element of every tensor tells its rank and its place, and every rank compares all that it received.
"""

import os

import torch
import torch.distributed as dist
import torch_npu  # noqa: F401  (registers the device "npu" and the backend "hccl")

RANK, SIZE = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
COUNT = 1000
DTYPES = (torch.float32, torch.float16, torch.bfloat16, torch.int32, torch.int64, torch.int8)


def data(rank, count=COUNT, dtype=torch.float32, salt=0):
    """What `rank` contributes. Small integers: exact in every type, sums of them too."""
    places = torch.arange(count)
    return ((places * 3 + rank * 5 + salt) % 13 - 4).to(dtype)


def npu(tensor):
    return tensor.to("npu")


def check(got, expected, what):
    assert got.device.type == "npu", f"{what}: the result is on {got.device}"
    got = got.cpu()
    assert got.dtype == expected.dtype and got.shape == expected.shape, f"{what}: {got.dtype} {got.shape}"
    wrong = (got != expected).nonzero()
    assert not len(wrong), (
        f"{what}: {len(wrong)} of {got.numel()} elements differ; first at {wrong[0].tolist()}: "
        f"got {got[tuple(wrong[0])]}, expected {expected[tuple(wrong[0])]}"
    )


def all_reduce():
    combine = {
        dist.ReduceOp.SUM: lambda a: a.sum(0),
        dist.ReduceOp.MAX: lambda a: a.max(0).values,
        dist.ReduceOp.MIN: lambda a: a.min(0).values,
        dist.ReduceOp.PRODUCT: lambda a: a.prod(0),
    }
    for dtype in DTYPES:
        for op, of in combine.items():
            if op == dist.ReduceOp.PRODUCT and dtype != torch.float32:
                continue
            tensor = npu(data(RANK, dtype=dtype))
            dist.all_reduce(tensor, op)
            everybody = torch.stack([data(rank, dtype=torch.float64) for rank in range(SIZE)])
            check(tensor, of(everybody).to(dtype), f"all_reduce {op} {dtype}")


def average():
    tensor = npu(data(RANK))
    dist.all_reduce(tensor, dist.ReduceOp.AVG)
    everybody = torch.stack([data(rank) for rank in range(SIZE)])
    check(tensor, everybody.sum(0) / SIZE, "all_reduce AVG")


def broadcast():
    for root in range(SIZE):
        tensor = npu(data(RANK, salt=root))
        dist.broadcast(tensor, root)
        check(tensor, data(root, salt=root), f"broadcast from {root}")


def reduce():
    for root in range(SIZE):
        tensor = npu(data(RANK, salt=root))
        dist.reduce(tensor, root)
        if RANK == root:
            total = sum(data(rank, salt=root) for rank in range(SIZE))
            check(tensor, total, f"reduce to {root}")


def all_gather():
    for dtype in DTYPES:
        parts = [npu(torch.zeros(COUNT, dtype=dtype)) for _ in range(SIZE)]
        dist.all_gather(parts, npu(data(RANK, dtype=dtype)))
        for rank, part in enumerate(parts):
            check(part, data(rank, dtype=dtype), f"all_gather {dtype}, part of rank {rank}")


def all_gather_into_tensor():
    out = npu(torch.zeros(SIZE * COUNT))
    dist.all_gather_into_tensor(out, npu(data(RANK)))
    check(out, torch.cat([data(rank) for rank in range(SIZE)]), "all_gather_into_tensor")


def reduce_scatter():
    parts = [npu(data(RANK, salt=to)) for to in range(SIZE)]
    out = npu(torch.zeros(COUNT))
    dist.reduce_scatter(out, parts)
    check(out, sum(data(rank, salt=RANK) for rank in range(SIZE)), "reduce_scatter")


def reduce_scatter_tensor():
    out = npu(torch.zeros(COUNT))
    dist.reduce_scatter_tensor(out, npu(torch.cat([data(RANK, salt=to) for to in range(SIZE)])))
    check(out, sum(data(rank, salt=RANK) for rank in range(SIZE)), "reduce_scatter_tensor")


def scatter():
    for root in range(SIZE):
        parts = [npu(data(root, salt=to)) for to in range(SIZE)] if RANK == root else None
        out = npu(torch.zeros(COUNT))
        dist.scatter(out, parts, root)
        check(out, data(root, salt=RANK), f"scatter from {root}")


def gather():
    for root in range(SIZE):
        parts = [npu(torch.zeros(COUNT)) for _ in range(SIZE)] if RANK == root else None
        dist.gather(npu(data(RANK, salt=root)), parts, root)
        for rank, part in enumerate(parts or ()):
            check(part, data(rank, salt=root), f"gather to {root}, part of rank {rank}")


def sent(source, to):
    """Rows of different lengths, from each rank to each other one; some are empty."""
    return data(source, count=(source * 3 + to * 2) % 5 * 7, salt=to)


def all_to_all():
    out = [npu(torch.zeros(len(sent(source, RANK)))) for source in range(SIZE)]
    dist.all_to_all(out, [npu(sent(RANK, to)) for to in range(SIZE)])
    for source, part in enumerate(out):
        check(part, sent(source, RANK), f"all_to_all, from rank {source}")


def all_to_all_single():
    out = npu(torch.zeros(SIZE * COUNT))
    dist.all_to_all_single(out, npu(torch.cat([data(RANK, salt=to) for to in range(SIZE)])))
    expected = torch.cat([data(source, salt=RANK) for source in range(SIZE)])
    check(out, expected, "all_to_all_single")
    incoming = [sent(source, RANK) for source in range(SIZE)]
    outgoing = [sent(RANK, to) for to in range(SIZE)]
    out = npu(torch.zeros(sum(map(len, incoming))))
    splits = [list(map(len, incoming)), list(map(len, outgoing))]
    dist.all_to_all_single(out, npu(torch.cat(outgoing)), *splits)
    check(out, torch.cat(incoming), "all_to_all_single with splits")


def send_recv():
    """Each rank in turn sends to all higher ones, which send their answer back."""
    for low in range(SIZE):
        for high in range(low + 1, SIZE):
            tensor = npu(torch.zeros(COUNT))
            if RANK == low:
                dist.send(npu(data(low, salt=high)), high)
                dist.recv(tensor, high)
                check(tensor, data(high, salt=low), f"recv from {high}")
            elif RANK == high:
                dist.recv(tensor, low)
                check(tensor, data(low, salt=high), f"recv from {low}")
                dist.send(npu(data(high, salt=low)), low)


def batch_isend_irecv():
    before, after = (RANK - 1) % SIZE, (RANK + 1) % SIZE
    tensor = npu(torch.zeros(COUNT))
    calls = [
        dist.P2POp(dist.isend, npu(data(RANK, salt=after)), after),
        dist.P2POp(dist.irecv, tensor, before),
    ]
    for work in dist.batch_isend_irecv(calls):
        work.wait()
    check(tensor, data(before, salt=RANK), f"batch_isend_irecv, from {before}")


def new_group():
    """Pairs of ranks, and all ranks but the first in opposite order of creation."""
    for first in range(0, SIZE, 2):
        members = list(range(first, min(first + 2, SIZE)))
        group = dist.new_group(members)
        if RANK in members:
            tensor = npu(data(RANK))
            dist.all_reduce(tensor, group=group)
            check(tensor, sum(data(rank) for rank in members), f"all_reduce in {members}")
            dist.destroy_process_group(group)


def asynchronous():
    """Several operations under way at once, each waited for afterwards."""
    tensors = [npu(data(RANK, salt=salt)) for salt in range(8)]
    works = [dist.all_reduce(tensor, async_op=True) for tensor in tensors]
    for salt, (work, tensor) in enumerate(zip(works, tensors)):
        work.wait()
        check(tensor, sum(data(rank, salt=salt) for rank in range(SIZE)), f"asynchronous all_reduce {salt}")


def computed():
    """An all_reduce between operators of the device: a layer split over the ranks, compared with the whole."""
    x = data(0, 4 * 8 * SIZE).view(4, 8 * SIZE)
    w = data(1, 8 * SIZE * 6).view(8 * SIZE, 6)
    mine = slice(RANK * 8, (RANK + 1) * 8)
    y = npu(x[:, mine].contiguous()) @ npu(w[mine].contiguous())
    dist.all_reduce(y)
    check(torch.relu(y + 1), torch.relu(x @ w + 1), "a layer split over the ranks")


def main():
    torch.npu.set_device(int(os.environ["LOCAL_RANK"]))
    dist.init_process_group("hccl")
    tests = (
        all_reduce, broadcast, reduce, all_gather, all_gather_into_tensor, reduce_scatter,
        reduce_scatter_tensor, scatter, gather, all_to_all, all_to_all_single, send_recv,
        batch_isend_irecv, dist.barrier, new_group, asynchronous, computed,
    )  # fmt: skip
    for test in tests:
        test()
        if RANK == 0:
            print(f"torch_npu on {SIZE} ranks: {test.__name__} ok", flush=True)
    dist.destroy_process_group()


main()
