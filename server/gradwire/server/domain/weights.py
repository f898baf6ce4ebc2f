"""Carrying a trainer's weights into a sampler or a reference: all or nothing, and the target always goes on."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from typing import TypeAlias

from gradwire.server.domain.jobs import JobKind
from gradwire.server.domain.registry import AnyJob, LogProbJob, SamplingJob, TrainingJob
from gradwire.server.engines.base import SamplerEngine
from gradwire.server.engines.sharedmem import SharedSegment
from gradwire.server.engines.weights import InFlightPolicy, TensorChecksum, WeightManifest
from gradwire.server.errors import GradwireError

WeightTarget: TypeAlias = SamplingJob | LogProbJob

SAFETENSORS_DTYPES = {"float32": "F32", "bfloat16": "BF16", "float16": "F16"}


@dataclass(frozen=True, slots=True)
class SyncReport:
    """What a sync did; times in seconds."""

    weight_version: int
    num_bytes: int
    num_tensors: int
    export_s: float
    pause_s: float
    total_s: float


class WeightSync:
    """One per server. Keeps a mapped segment per pair of jobs: filling fresh pages costs ten times as much."""

    def __init__(self) -> None:
        self._segments: dict[tuple[int, int], SharedSegment] = {}
        self._locks: dict[int, asyncio.Lock] = {}

    async def sync(
        self, source: TrainingJob, target: WeightTarget, *, in_flight: InFlightPolicy, verify: bool
    ) -> SyncReport:
        """Carry `source`'s weights to `target`. Run it in `source`'s operation log, so that they hold still."""
        began = time.monotonic()
        async with self._lock(target):
            target.require_working()  # it may have ended while we waited
            version = source.engine.weight_version
            dtype = SAFETENSORS_DTYPES[target.engine.info.dtype]
            # A reference is a whole model, whatever part of it trains.
            merged = target.kind is JobKind.LOG_PROB
            manifest = await source.engine.weight_manifest(dtype, merged=merged)
            segment = await asyncio.to_thread(self._segment, source.job_id, target.job_id, manifest.total_bytes)
            await source.engine.export_weights(segment.name, manifest, merged=merged)
            exported = time.monotonic()
            pause_s = await install(target, segment.name, manifest, version, in_flight)
            if verify:
                await self._verify(source, target, dtype)
        return SyncReport(
            weight_version=version,
            num_bytes=manifest.total_bytes,
            num_tensors=len(manifest.tensors),
            export_s=exported - began,
            pause_s=pause_s,
            total_s=time.monotonic() - began,
        )

    async def _verify(self, source: TrainingJob, target: WeightTarget, dtype: str) -> None:
        merged = target.kind is JobKind.LOG_PROB
        ours, theirs = await asyncio.gather(source.engine.checksums(dtype, merged=merged), target.engine.checksums())
        different = differing(ours, theirs)
        if different:
            raise GradwireError(
                "CHECKSUM_MISMATCH",
                f"{len(different)} tensors of {target.name} differ from {source.name} after the sync, "
                f"first {different[0]}; sync again, and report it if it stays",
            )

    def lock(self, job: WeightTarget) -> asyncio.Lock:
        """Held while weights of `job` change."""
        return self._lock(job)

    def _lock(self, job: WeightTarget) -> asyncio.Lock:
        return self._locks.setdefault(job.job_id, asyncio.Lock())

    def _segment(self, source: int, target: int, size: int) -> SharedSegment:
        segment = self._segments.get((source, target))
        if segment is not None and segment.size >= size:
            return segment
        if segment is not None:
            _drop(segment)
        self._segments[source, target] = SharedSegment.create(size, label="sync")
        return self._segments[source, target]

    async def release(self, job: AnyJob) -> None:
        """No sync of this job can come while it sleeps: free the segments it is part of, after one under way."""
        async with self._locks.setdefault(job.job_id, asyncio.Lock()):
            for pair in [pair for pair in self._segments if job.job_id in pair]:
                _drop(self._segments.pop(pair))

    async def forget(self, job: AnyJob) -> None:
        """A job ended: free the segments it was part of, after a sync that is under way."""
        await self.release(job)
        self._locks.pop(job.job_id, None)


def _drop(segment: SharedSegment) -> None:
    segment.unlink()
    segment.close()


async def install(
    target: WeightTarget, segment: str, manifest: WeightManifest, version: int, in_flight: InFlightPolicy
) -> float:
    """Pause, load, resume; seconds of standstill. The target goes on whatever happens.

    A sampler that a caller has paused stays so. A log-prob engine sees to it itself that no call is answered by
    two versions, so `in_flight` is nothing to it.
    """
    if target.kind is JobKind.LOG_PROB:
        return await _install_reference(target, segment, manifest, version)
    sampler: AnyJob = target
    engine: SamplerEngine = sampler.engine
    paused = time.monotonic()
    try:
        await engine.pause(in_flight)
        if in_flight is InFlightPolicy.WAIT:
            paused = time.monotonic()
        await engine.update_weights(segment, manifest, version)
        target.set_version(version)
    finally:
        if not target.held:
            await engine.resume()
    return time.monotonic() - paused


async def _install_reference(target: AnyJob, segment: str, manifest: WeightManifest, version: int) -> float:
    began = time.monotonic()
    await target.engine.update_weights(segment, manifest, version)
    target.set_version(version)
    return time.monotonic() - began


def differing(left: list[TensorChecksum], right: list[TensorChecksum]) -> list[str]:
    """Names of tensors that are not the same on both sides, or are on one side only."""
    ours, theirs = {c.name: c for c in left}, {c.name: c for c in right}
    return sorted(name for name in ours.keys() | theirs.keys() if ours.get(name) != theirs.get(name))
