"""A running model's tensors under their Hugging Face names.

vLLM fuses q, k, v and gate, up into one tensor each, pads the vocabulary and shards over the
tensor-parallel group. `hf_tensors` undoes the three. It relies on what every vLLM model declares
(`packed_modules_mapping`, `output_partition_sizes`), not on the architecture.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import nn
from vllm.distributed import get_tensor_model_parallel_world_size, tensor_model_parallel_all_gather
from vllm.model_executor.layers.vocab_parallel_embedding import VocabParallelEmbedding


def hf_tensors(model: nn.Module) -> Iterator[tuple[str, torch.Tensor]]:
    """(name, whole tensor) of every parameter, tied ones once, under the first owner's name.

    A collective when the model is sharded: every worker has to run through all of it. The tensors
    are views of the live weights where they can be.
    """
    packed = getattr(model, "packed_modules_mapping", {})
    for name, parameter in model.named_parameters():
        path, _, attribute = name.rpartition(".")
        module = model.get_submodule(path)
        prefix, _, leaf = path.rpartition(".")
        parts = packed.get(leaf, [leaf])
        for part, tensor in zip(parts, _split(module, parameter.data, len(parts)), strict=True):
            whole = _unpad(module, _gather(parameter, tensor))
            yield ".".join(filter(None, (prefix, part, attribute))), whole


def _split(module: nn.Module, tensor: torch.Tensor, count: int) -> list[torch.Tensor]:
    """The tensor's rows as the `count` tensors that vLLM has fused."""
    if count == 1:
        return [tensor]
    sizes = list(getattr(module, "output_partition_sizes", ()))
    if len(sizes) != count or sum(sizes) != tensor.shape[0]:
        raise RuntimeError(f"{type(module).__name__} has rows {sizes}; cannot take it apart into {count} tensors")
    return list(tensor.split(sizes))


def _gather(parameter: nn.Parameter, tensor: torch.Tensor) -> torch.Tensor:
    """All shards of one tensor, in order. The same tensor where it is not sharded."""
    if get_tensor_model_parallel_world_size() == 1:
        return tensor
    dimension = getattr(parameter, "input_dim" if _sharded_on_input(parameter) else "output_dim", None)
    if dimension is None:
        return tensor  # norms and the like: every worker holds all of it
    return tensor_model_parallel_all_gather(tensor.contiguous(), dimension)


def _sharded_on_input(parameter: nn.Parameter) -> bool:
    # Both attributes are set on every linear weight; a row-parallel layer's loader shards the input.
    loader = getattr(parameter, "weight_loader", None)
    return type(getattr(loader, "__self__", None)).__name__ == "RowParallelLinear"


def _unpad(module: nn.Module, tensor: torch.Tensor) -> torch.Tensor:
    """Without the rows by which vLLM rounds the vocabulary up."""
    if isinstance(module, VocabParallelEmbedding):
        return tensor[: module.org_vocab_size]
    return tensor
