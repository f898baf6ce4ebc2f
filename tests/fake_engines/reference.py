"""Scores with weights that stay as they were."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import numpy as np

from gradwire.server.engines.sampling import (
    TokenIds,
    TopLogProbs,
)
from gradwire.server.engines.scoring import LogProbConfig, RowScores, Scores, check_rows
from gradwire.server.engines.sharedmem import SharedSegment
from gradwire.server.engines.training import (
    ForwardResult,
    TrainingBatch,
)
from gradwire.server.engines.weights import (
    MemoryReport,
    TensorChecksum,
    WeightManifest,
)
from gradwire.server.errors import InvalidArgument
from tests.fake_engines.process import CONTEXT, VOCABULARY, WEIGHT, FakeModel


class FakeLogProb(FakeModel):
    """Scores token t as -t under version 0, and one less a version."""

    def __init__(self, config: LogProbConfig) -> None:
        super().__init__()
        self.config = config
        self.version = 0
        self.weights = b""
        self.update_error: Exception | None = None
        self.error: Exception | None = None

    async def score(self, rows: Sequence[TokenIds], *, top_k: int = 0) -> Scores:
        if self.error is not None:
            raise self.error
        check_rows(rows, vocab_size=VOCABULARY, longest=CONTEXT)
        scored = []
        for row in rows:
            values = (-row - self.version).astype(np.float32)
            values[0] = np.nan
            ids = np.tile(np.arange(top_k, dtype=np.int32), (len(row), 1))
            scored.append(RowScores(values, TopLogProbs(ids, -ids.astype(np.float32)) if top_k else None))
        return Scores(tuple(scored), self.version)

    async def fwd_no_grad(
        self, batch: TrainingBatch, *, temperature: float = 1.0, entropy: bool = False
    ) -> ForwardResult:
        if entropy:
            raise InvalidArgument.at("entropy", "this engine gives none")
        return ForwardResult(batch.input_ids.astype(np.float32), None, self.version)

    def check_manifest(self, manifest: WeightManifest) -> None:
        pass

    async def update_weights(self, segment: str, manifest: WeightManifest, version: int) -> None:
        if self.update_error is not None:
            raise self.update_error
        with SharedSegment.attach(segment) as attached:
            self.weights = b"".join(attached.array(t.offset, t.nbytes).tobytes() for t in manifest.tensors)
        self.version = version

    async def weight_version(self) -> int:
        return self.version

    async def weight_norm(self) -> float:
        return float(np.linalg.norm(np.frombuffer(self.weights, dtype=np.float32)))

    async def checksums(self) -> list[TensorChecksum]:
        shape = (len(self.weights) // 4,)
        return [TensorChecksum(WEIGHT, "F32", shape, hashlib.sha256(self.weights).hexdigest())]

    async def sleep(self, level: int) -> MemoryReport:
        return MemoryReport(2000, 1000)

    async def wake(self, tags: Sequence[str] | None) -> MemoryReport:
        return MemoryReport(1000, 2000)
