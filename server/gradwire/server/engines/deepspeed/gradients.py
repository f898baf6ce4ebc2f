"""Where each ZeRO stage keeps the gradients accumulated so far, for looking at, putting back and clearing.

DeepSpeed has no public way to undo a backward pass. A call that fails half-way must leave the gradients
as they were, so this module knows, for DeepSpeed 0.19, the accumulators behind each stage:

| stage | accumulator |
|---|---|
| 0, 1 (fp32) | `param.grad`, reduced at the step |
| 1 (bf16) | flat fp32 buffers of BF16_Optimizer, reduced at the step |
| 2 | tensors of this rank's parameters, already averaged over the ranks |
| 3 | one flat partition, already averaged over the ranks |

Does not know: losses, batches, steps.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Protocol

import torch
from torch import Tensor, nn

Snapshot = list[Tensor | None]


class GradientStore(Protocol):
    """One stage's accumulators."""

    def slots(self) -> list[Tensor | None]:
        """The live accumulators of this rank, in an order that does not change."""

    def put(self, index: int, value: Tensor | None) -> None:
        """Make a slot hold a value that `slots` gave earlier."""

    def clear(self) -> None:
        """Forget all accumulated gradients."""


def snapshot(store: GradientStore) -> Snapshot:
    """Copies of the accumulators: one memcpy of this rank's gradients."""
    return [None if slot is None else slot.clone() for slot in store.slots()]


def restore(store: GradientStore, saved: Snapshot) -> None:
    """Undo everything accumulated since `snapshot`."""
    for index, value in enumerate(saved):
        store.put(index, value)


@torch.no_grad()
def all_finite(store: GradientStore) -> bool:
    """Whether this rank's accumulators hold finite numbers only."""
    # One number decides: a sum of absolute values is finite only if each of them is. (It may overflow
    # where none is infinite, so a sum that is not finite is looked at again.)
    for slot in store.slots():
        if slot is not None and not bool(slot.abs().sum().isfinite()) and not bool(slot.isfinite().all()):
            return False
    return True


def gradient_store(engine: Any) -> GradientStore:
    """The store that fits an initialized DeepSpeed engine."""
    stage = engine.zero_optimization_stage()
    if stage == 3:
        return _PartitionedGradients(engine.optimizer)
    if stage == 2:
        return _ReducedGradients(engine.optimizer)
    if hasattr(engine.optimizer, "fp32_groups_gradients_flat"):
        return _FlatGradients(engine.optimizer)
    return _ParameterGradients(engine.module.parameters())


class _ParameterGradients:
    def __init__(self, parameters: Iterable[nn.Parameter]) -> None:
        self._parameters = [parameter for parameter in parameters if parameter.requires_grad]

    def slots(self) -> list[Tensor | None]:
        return [parameter.grad for parameter in self._parameters]

    def put(self, index: int, value: Tensor | None) -> None:
        self._parameters[index].grad = value

    def clear(self) -> None:
        for parameter in self._parameters:
            parameter.grad = None


class _FlatGradients:
    def __init__(self, optimizer: Any) -> None:
        self._optimizer = optimizer

    def slots(self) -> list[Tensor | None]:
        return list(self._optimizer.fp32_groups_gradients_flat)

    def put(self, index: int, value: Tensor | None) -> None:
        assert value is not None
        self._optimizer.fp32_groups_gradients_flat[index].copy_(value)

    def clear(self) -> None:
        self._optimizer.zero_grad()


class _ReducedGradients:
    """fp32 jobs fill `all_grad_tensors`, bf16 jobs flat buffers in `averaged_gradients`."""

    def __init__(self, optimizer: Any) -> None:
        self._optimizer = optimizer

    def slots(self) -> list[Tensor | None]:
        slots: list[Tensor | None] = []
        for group in range(len(self._optimizer.bit16_groups)):
            flat = getattr(self._optimizer.averaged_gradients.get(group), "flat_partition", None)
            listed = self._optimizer.all_grad_tensors.get(group) or []
            slots += [flat] if flat is not None else list(listed)
        return slots

    def put(self, index: int, value: Tensor | None) -> None:
        slot = self.slots()[index]
        assert slot is not None
        assert value is not None
        slot.copy_(value)

    def clear(self) -> None:
        for group in range(len(self._optimizer.bit16_groups)):
            self._optimizer.all_grad_tensors[group] = None
            self._optimizer.averaged_gradients[group] = None
        self._optimizer.zero_grad(set_to_none=True)


class _PartitionedGradients:
    def __init__(self, optimizer: Any) -> None:
        self._optimizer = optimizer

    def slots(self) -> list[Tensor | None]:
        return [self._optimizer.grad_partitions_flat_buffer]

    def put(self, index: int, value: Tensor | None) -> None:
        assert value is not None
        self._optimizer.grad_partitions_flat_buffer.copy_(value)

    def clear(self) -> None:
        self._optimizer.grad_partitions_flat_buffer.zero_()
        self._optimizer.zero_grad(set_to_none=True)
