"""``python -m hcom_torch.bench``: step times of compiled models on 2 ranks, all forms in one run.

A tensor-parallel MLP (4 layers, hidden 1024, inner 1024, float32) at several batch sizes. The forms take turns step
by step, so that all of them see the same machine. Figures are medians of the slower rank, in milliseconds.

    hcom        our backend
    barrier     the same, each collective replaced by a barrier of its group, in the same place of the computation
    none        the same without any communication
    inductor    torch's own backend, collectives over gloo
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import time
from typing import Any, Callable

import torch
import torch.distributed as dist
import torch.multiprocessing as mp

RANKS, HIDDEN, INNER, LAYERS = 2, 1024, 1024, 4


def _mlp(collective: Callable[[torch.Tensor], torch.Tensor]) -> Callable[..., torch.Tensor]:
    def model(x: torch.Tensor, weights: list[Any]) -> torch.Tensor:
        for first, second in weights:
            x = collective(torch.relu(x @ first) @ second)
        return x

    return model


def _all_reduce(y: torch.Tensor) -> torch.Tensor:
    dist.all_reduce(y)
    return y


@torch.library.custom_op("hcom_bench::barrier", mutates_args=())
def _meet(y: torch.Tensor, group: str) -> torch.Tensor:
    """A barrier that waits for the tensor and that the rest of the model waits for."""
    torch.ops.hcom.barrier([], [], [], [-1, -1], "uint8", "", -1, 0, False, group)
    return y.clone()


@_meet.register_fake
def _(y: torch.Tensor, group: str) -> torch.Tensor:
    return torch.empty_like(y)


def _barrier(y: torch.Tensor) -> torch.Tensor:
    return _meet(y, dist.group.WORLD.group_name)


def _nothing(y: torch.Tensor) -> torch.Tensor:
    return y


def _gloo(y: torch.Tensor) -> torch.Tensor:
    from torch.distributed import _functional_collectives as functional

    return functional.all_reduce(y, "sum", dist.group.WORLD)


FORMS: dict[str, tuple[Callable[[torch.Tensor], torch.Tensor], str]] = {
    "hcom": (_all_reduce, "hcom"),
    "barrier": (_barrier, "inductor"),
    "none": (_nothing, "inductor"),
    "inductor": (_gloo, "inductor"),
}


def _backend(name: str) -> Any:
    import hcom_torch

    return hcom_torch.get_npu_backend() if name == "hcom" else name


def _rank(rank: int, store: str, batches: list[int], seconds: float, answer: Any) -> None:
    import hcom_torch

    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=RANKS)
    hcom_torch.patch_for_hcom()
    generator = torch.Generator().manual_seed(1)
    part = slice(rank * INNER // RANKS, (rank + 1) * INNER // RANKS)
    weights = []
    for _ in range(LAYERS):
        first = torch.randn(HIDDEN, INNER, generator=generator) / HIDDEN**0.5
        second = torch.randn(INNER, HIDDEN, generator=generator) / INNER**0.5
        weights.append((first[:, part].contiguous(), second[part].contiguous()))
    rows = []
    with torch.no_grad():
        # The first compilation of a process loads the compiler itself.
        for name in ("hcom", "inductor"):
            torch.compile(lambda x: torch.relu(x + 1), backend=_backend(name))(torch.ones(9))
        for batch in batches:
            x = torch.randn(batch, HIDDEN, generator=torch.Generator().manual_seed(batch))
            models, compiling = {}, {}
            for name, (collective, backend) in FORMS.items():
                torch._dynamo.reset()
                models[name] = torch.compile(
                    _mlp(collective), backend=_backend(backend), fullgraph=True, dynamic=False
                )
                begin = time.perf_counter()
                models[name](x, weights)
                compiling[name] = time.perf_counter() - begin
            want, got = models["inductor"](x, weights), models["hcom"](x, weights)
            torch.testing.assert_close(got, want)
            rows.append((batch, _measure(models, x, weights, seconds), compiling))
    everyone: list[Any] = [None] * RANKS
    dist.all_gather_object(everyone, rows)
    if rank == 0:
        answer.put(everyone)
    dist.destroy_process_group()


def _measure(models: dict[str, Any], x: torch.Tensor, weights: list[Any], seconds: float) -> dict[str, float]:
    """Median step of each form in ms. The forms take turns; every rank does the same number of rounds."""
    times: dict[str, list[float]] = {name: [] for name in models}
    rounds = torch.tensor([0])
    begin = time.perf_counter()
    while True:
        for name, model in models.items():
            dist.barrier()
            for _ in range(5):
                start = time.perf_counter()
                model(x, weights)
                times[name].append((time.perf_counter() - start) * 1000)
        rounds[0] = 1 if time.perf_counter() - begin < seconds else 0
        dist.broadcast(rounds, src=0)
        if rounds.item() == 0:
            return {name: statistics.median(values) for name, values in times.items()}


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m hcom_torch.bench",
        description="Step times of compiled models on 2 ranks.",
        epilog="Example: python -m hcom_torch.bench --batch 8 --batch 64 --seconds 5",
    )
    parser.add_argument("--batch", type=int, action="append", help="batch size (repeatable); 8, 16, 32, 64 without")
    parser.add_argument("--seconds", type=float, default=5.0, help="measuring time of each batch size")
    parser.add_argument("--json", action="store_true", help="print JSON")
    arguments = parser.parse_args()
    batches = arguments.batch or [8, 16, 32, 64]
    context = mp.get_context("spawn")
    answer = context.SimpleQueue()
    with tempfile.TemporaryDirectory() as folder:
        mp.spawn(_rank, (f"{folder}/store", batches, arguments.seconds, answer), nprocs=RANKS)
        everyone = answer.get()
    rows = []
    for index, batch in enumerate(batches):
        steps = {name: max(rank[index][1][name] for rank in everyone) for name in FORMS}
        compiling = {name: max(rank[index][2][name] for rank in everyone) for name in FORMS}
        rows.append({"batch": batch, "step_ms": steps, "compile_s": compiling})
    if arguments.json:
        print(json.dumps(rows, indent=2))
        return 0
    print(f"{'batch':>5}", *(f"{name:>9}" for name in FORMS), f"{'/barrier':>9}", f"{'/inductor':>9}  compile s (hcom, inductor)")
    for row in rows:
        step, compiling = row["step_ms"], row["compile_s"]
        ratios = step["hcom"] / step["barrier"], step["hcom"] / step["inductor"]
        print(
            f"{row['batch']:>5}",
            *(f"{step[name]:>9.2f}" for name in FORMS),
            *(f"{ratio:>9.2f}" for ratio in ratios),
            f" {compiling['hcom']:.1f} {compiling['inductor']:.1f}",
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
