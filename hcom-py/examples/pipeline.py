"""A model cut in two, micro-batches sent from one rank to the next: torchrun --nproc-per-node 2 pipeline.py"""

import torch
import torch.distributed as dist

import hcom_torch as hcom

BATCHES = 4


def first(inputs, weight):
    for x in inputs:
        dist.send(torch.tanh(x @ weight), dst=1)


def second(like, weight):
    outputs = []
    for _ in range(BATCHES):
        h = torch.empty_like(like)
        dist.recv(h, src=0)
        outputs.append(torch.tanh(h @ weight))
    return outputs


def main():
    dist.init_process_group("gloo")
    hcom.patch_for_hcom()
    generator = torch.Generator().manual_seed(0)
    weights = [torch.randn(16, 16, generator=generator) / 4 for _ in range(2)]
    inputs = [torch.randn(8, 16, generator=generator) for _ in range(BATCHES)]
    backend = hcom.get_npu_backend()
    if dist.get_rank() == 0:
        torch.compile(first, backend=backend, fullgraph=True)(inputs, weights[0])
        print(f"rank 0: sent {BATCHES} micro-batches")
    else:
        outputs = torch.compile(second, backend=backend, fullgraph=True)(inputs[0], weights[1])
        for x, y in zip(inputs, outputs, strict=True):
            torch.testing.assert_close(y, torch.tanh(torch.tanh(x @ weights[0]) @ weights[1]))
        print(f"rank 1: {len(outputs)} micro-batches, equal to the model on one rank")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
