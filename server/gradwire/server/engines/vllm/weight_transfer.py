"""Weights from a shared-memory segment into a running model: a weight-transfer engine of vLLM.

vLLM creates one in each worker, under the name that plugin.py registers, and drives it by its own
verbs: start, update (here: read the segment and stage), finish (commit). `discard` and `failure`
are ours: a worker must not raise, because vLLM's executor then leaves the answers of the other
workers in their queues and takes them for those of the next call.
"""

from __future__ import annotations

import logging
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Protocol

import torch
from vllm.distributed.weight_transfer.base import (
    WeightTransferEngine,
    WeightTransferInitInfo,
    WeightTransferUpdateInfo,
)
from vllm.platforms import current_platform

from gradwire.server.engines.sharedmem import SharedSegment

logger = logging.getLogger(__name__)

DTYPES = {"F32": torch.float32, "BF16": torch.bfloat16, "F16": torch.float16}


@dataclass
class SharedMemoryInitInfo(WeightTransferInitInfo):
    """Nothing to agree on beforehand."""


@dataclass
class SharedMemoryUpdateInfo(WeightTransferUpdateInfo):
    """One segment with a whole model: rows of (name, dtype, shape, offset, nbytes)."""

    segment: str
    tensors: list[tuple[str, str, list[int], int, int]] = field(default_factory=list)


class Staged(Protocol):
    """New weights that wait for their commit."""

    def commit(self) -> None:
        """Put them to work."""

    def discard(self) -> None:
        """Leave the model as it was before."""


class SharedMemoryWeightTransfer(WeightTransferEngine[SharedMemoryInitInfo, SharedMemoryUpdateInfo]):
    """Reads segments; how new weights replace old ones depends on the platform."""

    init_info_cls = SharedMemoryInitInfo
    update_info_cls = SharedMemoryUpdateInfo
    supports_draft_weight_update = False

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._staged: Staged | None = None
        self.failure = ""  # why the last update was not staged; empty when it was

    def init_transfer_engine(self, init_info: SharedMemoryInitInfo) -> None:
        """Nothing to do: a segment is attached when it comes."""

    def start_weight_update(self) -> None:
        """Forget what an update that never finished has left."""
        self.discard()

    def receive_weights(self, update_info: SharedMemoryUpdateInfo) -> None:
        """Stage a segment's tensors. On an error the model is as it was, and `failure` tells."""
        try:
            with SharedSegment.attach(update_info.segment) as segment:
                self._staged = self._stage(views(segment, update_info.tensors))
        except Exception as error:
            logger.exception("an update of weights failed")
            self.failure = f"{type(error).__name__}: {error}"

    def finish_weight_update(self) -> None:
        """Put the staged weights to work."""
        if self._staged is None:
            raise RuntimeError("no staged weights to finish with")
        self._staged.commit()
        self._staged = None

    def discard(self) -> None:
        """Drop staged weights. Legal at any time."""
        staged, self._staged, self.failure = self._staged, None, ""
        if staged is not None:
            staged.discard()

    def shutdown(self) -> None:
        """Nothing is held open between updates."""

    def _stage(self, weights: Iterator[tuple[str, torch.Tensor]]) -> Staged:
        from gradwire.server.engines.vllm.worker.adapters import without_adapters

        with without_adapters(self.model) as model:
            if current_platform.is_cpu():
                from gradwire.server.engines.vllm.worker.staging import StagedWeights

                return StagedWeights.stage(model, weights)
            from gradwire.server.engines.vllm.worker.in_place import InPlaceWeights

            return InPlaceWeights.load(model, self.model_config, weights)


def views(
    segment: SharedSegment, tensors: list[tuple[str, str, list[int], int, int]]
) -> Iterator[tuple[str, torch.Tensor]]:
    """(name, tensor) pairs that share the segment's memory."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="The given NumPy array is not writable")
        for name, dtype, shape, offset, nbytes in tensors:
            raw = torch.from_numpy(segment.array(offset, nbytes))
            yield name, raw.view(DTYPES[dtype]).view(shape)
