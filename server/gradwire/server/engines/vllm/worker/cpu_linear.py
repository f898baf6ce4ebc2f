"""Linear layers on the CPU: raw weights beside the packed copies that compute.

vLLM packs each linear weight for oneDNN and throws the raw one away, so that afterwards nothing
can be loaded, hashed or put back. `install` makes it keep the raw weight; the packed copy is made
by vLLM's own code. Embeddings are packed when they are first used as an output layer: most never
are, and vLLM's eager copy of them doubles the largest tensor for nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace

import torch
from torch import nn
from vllm.model_executor.layers import utils
from vllm.model_executor.layers.vocab_parallel_embedding import ParallelLMHead, VocabParallelEmbedding

Linear = Callable[[torch.Tensor, torch.Tensor, torch.Tensor | None], torch.Tensor]

_vllm_dispatch = utils.dispatch_cpu_unquantized_gemm


def install() -> None:
    """Replace vLLM's dispatch. Its callers look the name up when they load a model."""
    utils.dispatch_cpu_unquantized_gemm = _dispatch


def is_packed(module: nn.Module) -> bool:
    """Whether the module computes with a packed copy of its weight."""
    return "cpu_linear" in vars(module) and isinstance(getattr(module, "weight", None), torch.Tensor)


def pack(module: nn.Module) -> Linear:
    """A new packed copy of `module.weight` as it is now; the module is not touched.

    Replacing `module.cpu_linear` by it is what puts it to work. The old copy is freed with its
    closure.
    """
    if _packs_late(module):
        return _LatePacking(module)
    return _pack_now(module.weight)


def drop(module: nn.Module) -> None:
    """Free the packed copy; the module cannot compute until it gets another."""
    module.cpu_linear = _asleep


def _dispatch(layer: nn.Module, remove_weight: bool) -> None:
    weight = layer.weight
    if weight.is_meta or weight.ndim != 2:
        _vllm_dispatch(layer, remove_weight=remove_weight)
    elif _packs_late(layer):
        layer.cpu_linear = _LatePacking(layer)
    else:
        _vllm_dispatch(layer, remove_weight=False)


def _packs_late(module: nn.Module) -> bool:
    return isinstance(module, VocabParallelEmbedding) and not isinstance(module, ParallelLMHead)


def _pack_now(weight: torch.Tensor) -> Linear:
    shim = SimpleNamespace(weight=weight, bias=None)
    _vllm_dispatch(shim, remove_weight=False)
    linear: Linear = shim.cpu_linear
    return linear


class _LatePacking:
    """Packs the module's weight at the first use."""

    def __init__(self, module: nn.Module) -> None:
        self._module = module
        self._linear: Linear | None = None

    def __call__(self, x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
        if self._linear is None:
            self._linear = _pack_now(self._module.weight)
        return self._linear(x, weight, bias)


def _asleep(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
    raise RuntimeError("the engine's weights are asleep")
