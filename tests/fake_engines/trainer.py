"""Its weights are one vector that each step moves by the learning rate."""

from __future__ import annotations

import asyncio
import hashlib
import json
import time
from pathlib import Path

import numpy as np
import numpy.typing as npt

from gradwire.server.engines.sharedmem import SharedSegment
from gradwire.server.engines.training import (
    CheckpointInfo,
    ForwardResult,
    FwdBwdResult,
    LossSpec,
    SleepMode,
    StepResult,
    TrainerPart,
    TrainingBatch,
    TrainingConfig,
)
from gradwire.server.engines.weights import (
    MemoryReport,
    TensorChecksum,
    TensorSpec,
    WeightManifest,
)
from gradwire.server.errors import FailedPrecondition
from tests.fake_engines.process import VOCABULARY, WEIGHT, FakeProcess


class FakeTrainer(FakeProcess):
    """`gate`, when set, is awaited inside each fwd_bwd and step; `applied` lists what was done."""

    def __init__(self, config: TrainingConfig) -> None:
        super().__init__()
        self._config = config
        self._version = 0
        self._steps = 0
        self.weights: npt.NDArray[np.float32] = np.ones(8, np.float32)
        self.base = self.weights  # of an adapter
        self.gradients = 0
        self.gate: asyncio.Event | None = None
        self.begun = asyncio.Event()
        self.error: Exception | None = None
        self.applied: list[str] = []
        self.asleep: frozenset[TrainerPart] = frozenset()

    @property
    def config(self) -> TrainingConfig:
        return self._config

    @property
    def weight_version(self) -> int:
        return self._version

    @property
    def vocab_size(self) -> int:
        return VOCABULARY

    async def _reach(self, name: str) -> None:
        self.begun.set()
        if self.gate is not None:
            await self.gate.wait()
        if self.error is not None:
            raise self.error
        self.applied.append(name)

    async def fwd_bwd(self, batch: TrainingBatch, loss: LossSpec, *, outputs: bool = False) -> FwdBwdResult:
        await self._reach("fwd_bwd")
        self.gradients += 1
        values = batch.input_ids.astype(np.float32) if outputs else None
        assert batch.loss_mask is not None
        return FwdBwdResult(1.5, int(np.count_nonzero(batch.loss_mask)), {"loss": 1.5}, 1, values, values)

    async def fwd_no_grad(
        self, batch: TrainingBatch, *, temperature: float = 1.0, entropy: bool = False
    ) -> ForwardResult:
        values = batch.input_ids.astype(np.float32)
        return ForwardResult(values, values if entropy else None, self._version)

    async def step(self, *, lr: float | None = None, max_grad_norm: float | None = None) -> StepResult:
        await self._reach("step")
        if not self.gradients:
            raise FailedPrecondition("NO_GRADIENTS", "there are no gradients to apply")
        rate = self._config.optimizer.lr if lr is None else lr
        self.weights = self.weights - np.float32(rate)
        self.gradients, self._version, self._steps = 0, self._version + 1, self._steps + 1
        return StepResult(1.0, rate, self._version, self._steps)

    async def zero_grad(self) -> int:
        await self._reach("zero_grad")
        dropped, self.gradients = self.gradients, 0
        return dropped

    async def save_checkpoint(self, path: Path, *, name: str, merged: bool = False) -> CheckpointInfo:
        await self._reach("save_checkpoint")
        path.mkdir()  # noqa: ASYNC240
        info = CheckpointInfo(name, str(path), self._version, self._steps, 32, time.time())
        write_checkpoint(path, info)
        return info

    async def load_checkpoint(self, path: Path) -> StepResult:
        await self._reach("load_checkpoint")
        self._steps = int(json.loads((path / "checkpoint.json").read_text())["step"])
        self._version += 1
        return StepResult(0.0, 1e-5, self._version, self._steps)

    async def weight_manifest(self, dtype: str, *, merged: bool = False) -> WeightManifest:
        size = self.weights.nbytes
        return WeightManifest((TensorSpec(WEIGHT, dtype, self.weights.shape, 0, size),), size)

    async def export_weights(self, segment: str, manifest: WeightManifest, *, merged: bool = False) -> None:
        with SharedSegment.attach(segment, writable=True) as attached:
            attached.buffer[: self.weights.nbytes] = self.weights.tobytes()

    async def weight_norm(self) -> float:
        return float(np.linalg.norm(self.weights))

    async def sleep(self, mode: SleepMode) -> MemoryReport:
        await self._reach(f"sleep {mode}")
        before, self.asleep = self.asleep, self.asleep | mode.parts
        return MemoryReport(2000, 1000, changed=self.asleep != before)

    async def wake(self) -> MemoryReport:
        await self._reach("wake")
        changed, self.asleep = bool(self.asleep), frozenset()
        return MemoryReport(1000, 2000, changed)

    async def empty_cache(self) -> MemoryReport:
        await self._reach("empty_cache")
        return MemoryReport(2000, 1900)

    async def checksums(self, dtype: str, *, merged: bool = False, base: bool = False) -> list[TensorChecksum]:
        digest = hashlib.sha256((self.base if base else self.weights).tobytes()).hexdigest()
        return [TensorChecksum(WEIGHT, dtype, self.weights.shape, digest)]


def write_checkpoint(path: Path, info: CheckpointInfo) -> None:
    """The file that makes a folder a checkpoint."""
    facts = {
        "weight_version": info.weight_version,
        "step": info.step,
        "nbytes": info.nbytes,
        "created_unix": info.created_unix,
        "files": {},
    }
    (path / "checkpoint.json").write_text(json.dumps(facts))
