"""An MLP whose hidden layer is split over the ranks: torchrun --nproc-per-node 2 tensor_parallel_mlp.py

Every rank holds a part of the columns of the first matrix and the same rows of the second; the sum of the
ranks' results is the result of the whole.
"""

import torch
import torch.distributed as dist

import hcom_torch as hcom


class Layer(torch.nn.Module):
    def __init__(self, size, inner, seed):
        super().__init__()
        rank, ranks = dist.get_rank(), dist.get_world_size()
        generator = torch.Generator().manual_seed(seed)
        first = torch.randn(size, inner, generator=generator) / size**0.5
        second = torch.randn(inner, size, generator=generator) / inner**0.5
        self.first = torch.nn.Parameter(first.chunk(ranks, 1)[rank].contiguous())
        self.second = torch.nn.Parameter(second.chunk(ranks, 0)[rank].contiguous())
        self.whole = (first, second)

    def forward(self, x):
        y = torch.relu(x @ self.first) @ self.second
        dist.all_reduce(y)
        return y


def main():
    dist.init_process_group("gloo")
    hcom.patch_for_hcom()
    layers = torch.nn.Sequential(*[Layer(64, 256, seed) for seed in range(4)])
    model = torch.compile(layers, backend=hcom.get_npu_backend(), fullgraph=True)
    x = torch.randn(8, 64, generator=torch.Generator().manual_seed(9))
    with torch.no_grad():
        got = model(x)
        want = x
        for layer in layers:
            first, second = layer.whole
            want = torch.relu(want @ first) @ second
    difference = (got - want).abs().max().item()
    print(f"rank {dist.get_rank()}: largest difference to one rank {difference:.1e}")
    assert difference < 1e-4
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
