"""Checksums and norms of the weights that compute.

On the CPU the numbers come out of a packed copy, which cannot be read. So the raw tensors are
hashed, and `check_packed` proves on a sample that each packed copy is made of them.
"""

from __future__ import annotations

import hashlib

import torch
from torch import nn

from gradwire.server.engines import host_memory
from gradwire.server.engines.vllm.worker import cpu_linear
from gradwire.server.engines.vllm.worker.hf_names import hf_tensors

DTYPE_NAMES = {torch.float32: "F32", torch.bfloat16: "BF16", torch.float16: "F16"}
PROBES = 4  # input columns compared per layer


def checksums(model: nn.Module, dtype: torch.dtype) -> list[tuple[str, str, list[int], str]]:
    """(Hugging Face name, dtype, shape, SHA-256 of the row-major bytes) of each tensor.

    Tensors that vLLM keeps in a wider dtype (norms of some models) are hashed in the model's own.
    """
    rows = []
    for name, tensor in hf_tensors(model):
        plain = tensor.to(dtype).contiguous().cpu()
        digest = hashlib.sha256(host_memory.bytes_of(plain)).hexdigest()
        rows.append((name, DTYPE_NAMES[dtype], list(plain.shape), digest))
    return rows


def squared_norm(model: nn.Module) -> float:
    """Sum of squares over all parameters, accumulated in float64, tied tensors once."""
    total = 0.0
    for _, tensor in hf_tensors(model):
        total += float(torch.linalg.vector_norm(tensor, dtype=torch.float64)) ** 2
    return total


@torch.no_grad()
def check_packed(model: nn.Module) -> None:
    """Raises RuntimeError when a layer computes with other weights than the model shows.

    A row of the identity through the packed layer gives one column of its weight, bit for bit: where the
    weight is finite, for 0 times infinity is not 0.
    """
    for name, module in model.named_modules():
        if not cpu_linear.is_packed(module) or module.weight.ndim != 2:
            continue
        weight = module.weight
        columns = torch.randint(weight.shape[1], (PROBES,))
        probe = torch.nn.functional.one_hot(columns, weight.shape[1]).to(weight.dtype)
        seen = module.cpu_linear(probe, weight, None)
        finite = weight.isfinite().all(dim=1)
        if not torch.equal(seen[:, finite], weight.t()[columns][:, finite]):
            raise RuntimeError(f"{name} computes with stale weights")
