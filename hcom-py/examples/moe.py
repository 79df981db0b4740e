"""Experts on different ranks, tokens sent to them and back: torchrun --nproc-per-node 2 moe.py

How many tokens go where is uneven and differs between ranks: each rank tells the others its splits, then
the tokens travel with all_to_all_single.
"""

import torch
import torch.distributed as dist

import hcom_torch as hcom


def mixture(tokens, weight, ours, theirs):
    """Tokens sorted by expert: `ours[i]` of them go to rank i, `theirs[i]` come from there."""
    received = tokens.new_empty(sum(theirs), tokens.shape[1])
    dist.all_to_all_single(received, tokens, theirs, ours)
    computed = torch.relu(received @ weight)
    returned = torch.empty_like(tokens)
    dist.all_to_all_single(returned, computed, ours, theirs)
    return returned


def main():
    dist.init_process_group("gloo")
    hcom.patch_for_hcom()
    rank, ranks = dist.get_rank(), dist.get_world_size()
    weights = [torch.eye(4) * (expert + 1) for expert in range(ranks)]
    model = torch.compile(mixture, backend=hcom.get_npu_backend(), fullgraph=True, dynamic=True)
    for step in range(3):
        experts = (torch.arange(6) * (step + rank + 1) // 2 % ranks).sort().values
        ours = torch.bincount(experts, minlength=ranks)
        theirs = torch.empty_like(ours)
        dist.all_to_all_single(theirs, ours)
        tokens = torch.arange(24.0).reshape(6, 4) + 100 * rank
        out = model(tokens, weights[rank], ours.tolist(), theirs.tolist())
        assert torch.equal(out, tokens * (experts + 1).unsqueeze(1)), (rank, step)
        print(f"rank {rank}, step {step}: sent {ours.tolist()}, received {theirs.tolist()}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
