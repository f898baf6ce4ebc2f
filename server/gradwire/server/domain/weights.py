"""Carrying a trainer's weights into a sampler or a reference: all or nothing, and the target always goes on."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TypeAlias

from gradwire.server.domain.adapters import DEFAULT, check_adapter_sync, engine_name, note, rebase
from gradwire.server.domain.bases import Base, Bases, Origin
from gradwire.server.domain.jobs import JobKind
from gradwire.server.domain.registry import AnyJob, LogProbJob, SamplingJob, TrainingJob
from gradwire.server.engines.sharedmem import SharedSegment
from gradwire.server.engines.weights import (
    SAFETENSORS_DTYPES,
    AdapterSpec,
    InFlightPolicy,
    TensorChecksum,
    WeightManifest,
    differing,
)
from gradwire.server.errors import GradwireError, InvalidArgument

WeightTarget: TypeAlias = SamplingJob | LogProbJob

log = logging.getLogger(__name__)


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

    def __init__(self, origin: Origin = lambda folder: None) -> None:
        self.bases = Bases(origin)
        self._segments: dict[tuple[int, int], SharedSegment] = {}
        self._locks: dict[int, asyncio.Lock] = {}
        self._told: set[tuple[int, int]] = set()  # pairs of jobs whose difference in precision the log has

    async def sync(
        self, source: TrainingJob, target: WeightTarget, *, in_flight: InFlightPolicy, verify: bool,
        merge: bool = False,
    ) -> SyncReport:  # fmt: skip
        """Carry `source`'s weights to `target`. Run it in `source`'s operation log, so that they hold still.

        Of a job that trains an adapter it takes `merge`: the whole model with the adapter added.
        """
        began = time.monotonic()
        async with self.lock(target):
            target.require_working()  # it may have ended while we waited
            version = source.engine.weight_version
            dtype = SAFETENSORS_DTYPES[target.engine.info.dtype]
            segment, manifest = await self._export(source, target, dtype, merged=merge)
            exported = time.monotonic()
            carried = self.bases.carried(source, target)
            pause_s = await self.install(target, segment.name, manifest, version, in_flight, carried, source.job_id)
            if verify:
                ours, theirs = source.engine.checksums(dtype, merged=merge), target.engine.checksums()
                _compare(source, target, *await asyncio.gather(ours, theirs))
        return _report(manifest, version, began, exported, pause_s)

    async def sync_adapter(
        self, source: TrainingJob, target: WeightTarget, name: str, tenant: str, *, in_flight: InFlightPolicy,
        verify: bool, lives: Callable[[int], bool],
    ) -> SyncReport:  # fmt: skip
        """Carry only the adapter that `source` trains, under a name. Run it in `source`'s operation log, too."""
        began = time.monotonic()
        async with self.lock(target):
            target.require_working()
            lora = check_adapter_sync(source, target, name, tenant, lives=lives)
            sampler: SamplingJob = target  # type: ignore[assignment]  # the check says so
            await self.bases.require_same(source, sampler)
            version, known = source.engine.weight_version, engine_name(tenant, name)
            dtype = SAFETENSORS_DTYPES[target.engine.info.dtype]
            segment, manifest = await self._export(source, target, dtype, merged=False)
            exported = time.monotonic()

            async def load() -> None:
                spec = AdapterSpec(lora.rank, lora.alpha)
                await sampler.engine.update_adapter(known, spec, segment.name, manifest, version)
                note(sampler, tenant, name, source, version, lora.rank)

            pause_s = await standing_still(sampler, in_flight, load)
            if verify:
                ours, theirs = source.engine.checksums(dtype), sampler.engine.checksums(known)
                _compare(source, target, *await asyncio.gather(ours, theirs))
        return _report(manifest, version, began, exported, pause_s)

    async def _export(
        self, source: TrainingJob, target: WeightTarget, dtype: str, *, merged: bool
    ) -> tuple[SharedSegment, WeightManifest]:
        self._tell_precision(source, target)
        manifest = await source.engine.weight_manifest(dtype, merged=merged)
        if merged or source.engine.config.lora is None:
            _require_fit(source, target, manifest)
        segment = await asyncio.to_thread(self._segment, source.job_id, target.job_id, manifest.total_bytes)
        await source.engine.export_weights(segment.name, manifest, merged=merged)
        return segment, manifest

    def _tell_precision(self, source: TrainingJob, target: WeightTarget) -> None:
        """Warns once a pair of jobs: nothing else shows why so little is learnt."""
        pair, ours, theirs = (source.job_id, target.job_id), source.engine.config.dtype, target.engine.info.dtype
        if target.kind is not JobKind.SAMPLING or ours != "float32" or theirs == ours or pair in self._told:
            return
        self._told.add(pair)
        log.warning(
            "%s trains in float32 and %s samples in %s: small steps are rounded away in the sync, its tokens are "
            "off-policy, and little is learnt; sample in float32 too (GRADWIRE_SAMPLER__DTYPE=float32 for the server's "
            'own sampler, "dtype": "float32" for one that is created)',
            source.name, target.name, theirs,
        )  # fmt: skip

    async def install(
        self, target: WeightTarget, segment: str, manifest: WeightManifest, version: int, in_flight: InFlightPolicy,
        base: Base, training_job_id: int = 0,
    ) -> float:  # fmt: skip
        """Pause, load a whole model, resume; seconds of standstill. The target goes on whatever happens.

        A sampler that a caller has paused stays so; requests that name no adapter use the model itself from then on,
        and those of adapters that were trained on another one end. A log-prob engine sees to it itself that no call
        is answered by two versions, so `in_flight` is nothing to it.
        """
        if target.kind is JobKind.LOG_PROB:
            return await _install_reference(target, segment, manifest, version)
        sampler: SamplingJob = target  # type: ignore[assignment]  # the kind says so

        async def load() -> None:
            await sampler.engine.update_weights(segment, manifest, version)
            sampler.set_version(version, training_job_id)
            ended = [sampler.adapters.pop(key) for key in list(sampler.adapters) if key[1] == DEFAULT]
            for adapter in (*ended, *rebase(sampler, base, self.bases.served(sampler))):
                await sampler.engine.remove_adapter(adapter.engine_name)

        return await standing_still(sampler, in_flight, load)

    def lock(self, job: AnyJob) -> asyncio.Lock:
        """Held while weights of `job` change."""
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
        async with self.lock(job):
            for pair in [pair for pair in self._segments if job.job_id in pair]:
                _drop(self._segments.pop(pair))

    async def forget(self, job: AnyJob) -> None:
        """A job ended: free the segments it was part of, after a sync that is under way."""
        await self.release(job)
        self.bases.forget(job)
        self._locks.pop(job.job_id, None)
        self._told = {pair for pair in self._told if job.job_id not in pair}


def _drop(segment: SharedSegment) -> None:
    segment.unlink()
    segment.close()


async def standing_still(
    target: SamplingJob, in_flight: InFlightPolicy, change: Callable[[], Awaitable[None]]
) -> float:
    """Change something while nothing is sampled; seconds of standstill."""
    paused = time.monotonic()
    try:
        await target.engine.pause(in_flight)
        if in_flight is InFlightPolicy.WAIT:
            paused = time.monotonic()
        await change()
    finally:
        if not target.held:
            await target.engine.resume()
    return time.monotonic() - paused


async def _install_reference(target: AnyJob, segment: str, manifest: WeightManifest, version: int) -> float:
    began = time.monotonic()
    await target.engine.update_weights(segment, manifest, version)
    target.set_version(version)
    return time.monotonic() - began


def _require_fit(source: TrainingJob, target: WeightTarget, manifest: WeightManifest) -> None:
    """Raises InvalidArgument, of jobs and models, unless the target takes the source's: nobody wrote a manifest."""
    try:
        target.engine.check_manifest(manifest)
    except InvalidArgument as error:
        serves = "serves" if target.kind is JobKind.SAMPLING else "scores with"
        raise InvalidArgument.at(
            f"{target.kind}_job_id",
            f"{source.name} trains {source.config.model}, {target.name} {serves} {target.config.model}, whose tensors "
            f"are others ({error.violations[0].description}). Sync into a job of {source.config.model}",
            reason=error.reason,
        ) from error


def _report(manifest: WeightManifest, version: int, began: float, exported: float, pause_s: float) -> SyncReport:
    return SyncReport(
        weight_version=version,
        num_bytes=manifest.total_bytes,
        num_tensors=len(manifest.tensors),
        export_s=exported - began,
        pause_s=pause_s,
        total_s=time.monotonic() - began,
    )


def _compare(
    source: TrainingJob, target: WeightTarget, ours: list[TensorChecksum], theirs: list[TensorChecksum]
) -> None:
    if different := differing(ours, theirs):
        raise GradwireError(
            "CHECKSUM_MISMATCH",
            f"{len(different)} tensors of {target.name} differ from {source.name} after the sync, "
            f"first {different[0]}; sync again, and report it if it stays",
        )
