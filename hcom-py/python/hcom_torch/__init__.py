"""Collective communication inside the graphs of ``torch.compile``.

>>> import torch, hcom_torch as hcom                                                # doctest: +SKIP
>>> hcom.patch_for_hcom()                                                           # doctest: +SKIP
>>> config = hcom.CompilerConfig()                                                  # doctest: +SKIP
>>> opt_model = torch.compile(model, backend=hcom.get_npu_backend(compiler_config=config))  # doctest: +SKIP

Every collective of ``torch.distributed`` that the model calls becomes part of one graph, is compared across
ranks before it first runs, and runs on native threads while the computation around it goes on.
"""

from . import distributed, scope
from . import gradients as _gradients
from ._native import CollectiveError, __version__
from .backend import get_compiler, get_npu_backend
from .config import CompilerConfig
from .patch import patch_for_hcom, unpatch

__all__ = [
    "CollectiveError",
    "CompilerConfig",
    "__version__",
    "distributed",
    "get_compiler",
    "get_npu_backend",
    "patch_for_hcom",
    "scope",
    "unpatch",
]
