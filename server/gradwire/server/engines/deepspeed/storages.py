"""Which memory of a rank holds what, for sleep: the model's own, what trains it, and scratch.

Found by walking what DeepSpeed 0.19 and torch's optimizer hold, so that no list of attribute names per ZeRO
stage has to be kept; what two owners share is found once. Works without an optimizer: then there is the model only.
Does not know: where the bytes go.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from gradwire.server.engines.deepspeed.gradients import GradientStore

SMALLEST = 4096  # bytes; less than a page is not worth a move


@dataclass(frozen=True, slots=True)
class Storages:
    """Distinct storages: whose bytes are kept, and whose bytes nobody will read again."""

    kept: list[torch.UntypedStorage] = field(default_factory=list)
    scratch: list[torch.UntypedStorage] = field(default_factory=list)


def own_memory(module: nn.Module) -> None:
    """Give every parameter memory of its own.

    One that is a view of a mapped safetensors file can be neither freed nor resized.
    """
    for parameter in module.parameters():
        if not parameter.untyped_storage().resizable():
            parameter.data = parameter.data.clone()


def model_storages(module: nn.Module) -> Storages:
    """The parameters of forward and backward: whole ones, and a rank's part of them at ZeRO stage 3."""
    tensors = [t for p in module.parameters() for t in (p.data, getattr(p, "ds_tensor", None)) if t is not None]
    return Storages(list(_distinct(tensors, set())))


def training_storages(
    module: nn.Module,
    zero: object | None,
    optimizer: torch.optim.Optimizer | None,
    gradients: GradientStore | None,
) -> Storages:
    """Gradients, master weights and optimizer state; everything beside the model. `zero`: DeepSpeed's optimizer."""
    known = {_key(storage) for storage in model_storages(module).kept}
    scratch = list(_distinct(_scratch(zero), known))
    roots: list[Any] = [[vars(p) | {"grad": p.grad} for p in module.parameters()]]
    roots += [] if gradients is None else gradients.slots()
    roots += [] if optimizer is None else [dict(optimizer.state), optimizer.param_groups]
    roots += [] if zero is None else [vars(zero)]
    return Storages(list(_distinct(_tensors(roots, {}), known)), scratch)


def _scratch(zero: object | None) -> Iterator[Tensor]:
    """Buffers of the reduction, empty between two calls: 2 GB are set aside for them, few pages are ever touched."""
    for bucket in getattr(zero, "ipg_buckets", {}).values():
        if not bucket.elements:
            yield from _tensors(bucket.buffer, {})


def _distinct(tensors: Iterable[Tensor], known: set[int]) -> Iterator[torch.UntypedStorage]:
    """The tensors' storages, each once, without those in `known`, which grows."""
    for tensor in tensors:
        if tensor.layout is not torch.strided or tensor.device.type == "meta":
            continue
        storage = tensor.untyped_storage()
        if storage.nbytes() >= SMALLEST and storage.resizable() and _key(storage) not in known:
            known.add(_key(storage))
            yield storage


def _key(storage: torch.UntypedStorage) -> int:
    return storage.data_ptr()


def _tensors(value: Any, seen: dict[int, object]) -> Iterator[Tensor]:
    """All tensors in nested containers, with their gradients; modules and other objects are not entered."""
    if id(value) in seen:
        return
    seen[id(value)] = value  # held, or its id would become another's
    if isinstance(value, Tensor):
        yield value
        if value.is_leaf and value.grad is not None:
            yield value.grad
    elif isinstance(value, Mapping):
        for key, item in list(value.items()):
            yield from _tensors(key, seen)
            yield from _tensors(item, seen)
    elif isinstance(value, (list, tuple, set, frozenset)):
        for item in value:
            yield from _tensors(item, seen)
    elif isinstance(value, torch.optim.Optimizer):
        yield from _tensors([dict(value.state), value.param_groups], seen)
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        yield from _tensors([getattr(value, f.name) for f in dataclasses.fields(value)], seen)
