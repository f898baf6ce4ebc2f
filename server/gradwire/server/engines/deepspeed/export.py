"""Weights on their way out: layout, shared-memory segment, norm, checksums. Collectives, all of them.

Rank 0 writes; at ZeRO-3 the other ranks give their parts, one parameter at a time. Names are Hugging
Face's, tied tensors stand once; an adapter's are those of peft's files.
"""

from __future__ import annotations

import hashlib
import math
from contextlib import ExitStack

import torch

from gradwire.server.engines.deepspeed.parameters import Weights, base_weights, weights_of
from gradwire.server.engines.deepspeed.scorer import Scorer
from gradwire.server.engines.deepspeed.tensorfile import DTYPES, tensor_bytes
from gradwire.server.engines.deepspeed.trainer import Trainer
from gradwire.server.engines.sharedmem import SharedSegment
from gradwire.server.engines.weights import TensorChecksum, TensorSpec, WeightManifest
from gradwire.server.errors import InvalidArgument

ALIGNMENT = 64
EXPORT_DTYPES = ("F32", "BF16", "F16")


def weight_manifest(trainer: Trainer | Scorer, dtype: str, *, merged: bool = False) -> WeightManifest:
    """Where `export_weights` puts each tensor, at offsets that are multiples of 64.

    Of a job with an adapter: the adapter's tensors, or `merged` the whole model's with the adapter added.
    """
    return _laid_out(weights_of(trainer, merged=merged), dtype)


def _laid_out(state: Weights, dtype: str) -> WeightManifest:
    if dtype not in EXPORT_DTYPES:
        raise InvalidArgument.at("dtype", f"{dtype!r} is none of {', '.join(EXPORT_DTYPES)}")
    tensors, offset = [], 0
    for name in state.parameters:
        shape = state.shape(name)
        nbytes = math.prod(shape) * DTYPES[dtype].itemsize
        tensors.append(TensorSpec(name, dtype, shape, offset, nbytes))
        offset += -(-nbytes // ALIGNMENT) * ALIGNMENT
    return WeightManifest(tuple(tensors), offset)


def export_weights(trainer: Trainer, segment: str, manifest: WeightManifest, *, merged: bool = False) -> None:
    """Write the weights into a segment laid out as `weight_manifest` says."""
    state = weights_of(trainer, merged=merged)
    with ExitStack() as stack:
        target = trainer.ranks.attempt(lambda: _checked_segment(trainer, state, segment, manifest, stack))
        for spec in manifest.tensors:
            with state.weight(spec.name) as weight:
                if target is not None:
                    data = torch.from_numpy(target.array(spec.offset, spec.nbytes)).view(DTYPES[spec.dtype])
                    data.copy_(weight.reshape(-1))  # converts and copies at once


def weight_norm(trainer: Trainer | Scorer) -> float:
    """L2 norm of what trains in float64, tied tensors once."""
    state = weights_of(trainer, merged=False)
    total = 0.0
    for name in state.parameters:
        with state.weight(name) as weight:
            # A chunk at a time: a whole embedding in float64 would be twice the model's largest tensor.
            total += sum(float(part.double().square().sum()) for part in weight.reshape(-1).split(1 << 22))
    return math.sqrt(total)


def checksums(
    trainer: Trainer | Scorer, dtype: str, *, merged: bool = False, base: bool = False
) -> list[TensorChecksum]:
    """SHA-256 of each tensor's bytes in `dtype`; empty on ranks other than 0. `base`: of an adapter's model."""
    state = base_weights(trainer) if base and isinstance(trainer, Trainer) else weights_of(trainer, merged=merged)
    found = []
    for spec in _laid_out(state, dtype).tensors:
        with state.weight(spec.name) as weight:
            if trainer.ranks.rank == 0:
                digest = hashlib.sha256(tensor_bytes(weight, dtype)).hexdigest()
                found.append(TensorChecksum(spec.name, dtype, spec.shape, digest))
    return found


def _checked_segment(
    trainer: Trainer, state: Weights, segment: str, manifest: WeightManifest, stack: ExitStack
) -> SharedSegment | None:
    names = [spec.name for spec in manifest.tensors]
    if names != list(state.parameters):
        wrong = sorted(set(names) ^ set(state.parameters)) or ["the order"]
        raise InvalidArgument.at("manifest", f"does not list this model's tensors: {', '.join(wrong[:5])} differ")
    for spec in manifest.tensors:
        if spec.dtype not in EXPORT_DTYPES or tuple(spec.shape) != state.shape(spec.name):
            raise InvalidArgument.at(
                "manifest", f"{spec.name} is {spec.dtype} {tuple(spec.shape)}, the model's is {state.shape(spec.name)}"
            )
        if spec.nbytes != math.prod(spec.shape) * DTYPES[spec.dtype].itemsize or spec.offset % ALIGNMENT:
            raise InvalidArgument.at(
                "manifest", f"{spec.name}: {spec.nbytes} bytes at {spec.offset} do not fit its shape"
            )
    if trainer.ranks.rank:
        return None
    target = stack.enter_context(SharedSegment.attach(segment, writable=True))
    if target.size < manifest.total_bytes:
        raise InvalidArgument.at("segment", f"has {target.size} bytes, the manifest needs {manifest.total_bytes}")
    return target
