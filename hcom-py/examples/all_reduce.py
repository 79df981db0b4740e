"""One all_reduce in a compiled model: torchrun --nproc-per-node 2 all_reduce.py"""

import torch
import torch.distributed as dist

import hcom_torch as hcom


class Model(torch.nn.Module):
    def forward(self, x, y):
        x = x + y
        dist.all_reduce(x)
        return x * 2


def main():
    dist.init_process_group("gloo")
    hcom.patch_for_hcom()
    config = hcom.CompilerConfig()
    model = torch.compile(Model(), backend=hcom.get_npu_backend(compiler_config=config), fullgraph=True)
    rank = dist.get_rank()
    out = model(torch.tensor([rank + 1.0, 10.0]), torch.ones(2))
    print(f"rank {rank}: {out.tolist()}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
