"""Collectives that ``torch.distributed`` does not have."""

from .calls import all_gather_into_tensor_uneven, reduce_scatter_tensor_uneven

__all__ = ["all_gather_into_tensor_uneven", "reduce_scatter_tensor_uneven"]
