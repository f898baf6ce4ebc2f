"""Weight updates from a trainer outside this server: begin, transfer, then commit or abort.

What has arrived lies in a shared segment beside the sampler's weights and touches nothing until
the commit. An update that nobody feeds is given up.
"""

from __future__ import annotations

import asyncio
import hashlib
import math
import time
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import timedelta

from gradwire.server.domain.bases import from_outside
from gradwire.server.domain.caller import Caller
from gradwire.server.domain.registry import AnyJob
from gradwire.server.domain.weights import WeightSync, WeightTarget
from gradwire.server.engines.sharedmem import SharedSegment
from gradwire.server.engines.weights import SAFETENSORS_DTYPES, InFlightPolicy, TensorSpec, WeightManifest
from gradwire.server.errors import FailedPrecondition, FieldViolation, InvalidArgument, NotFound, ResourceExhausted

ITEMSIZES = {"float32": 4, "bfloat16": 2, "float16": 2}
_ALIGNMENT = 64  # bytes; a cache line, and enough for any vector load
MAX_UPDATE_BYTES = 2**42
MAX_OPEN_UPDATES = 8  # of one job: each holds a whole model in memory


@dataclass(frozen=True, slots=True)
class IncomingTensor:
    """A tensor that the caller announces. `sha256` is empty when it is not to be checked."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    sha256: bytes = b""


@dataclass(eq=False, slots=True)
class _Update:
    update_id: str
    tenant: str
    job: WeightTarget
    version: int
    manifest: WeightManifest
    digests: dict[str, bytes]
    segment: SharedSegment
    timeout_s: float
    touched: float = field(default_factory=time.monotonic)
    # Per tensor, the bytes received from its beginning: pieces come in order.
    received: dict[str, int] = field(default_factory=dict)
    committing: bool = False
    specs: dict[str, TensorSpec] = field(init=False)

    def __post_init__(self) -> None:
        self.specs = {spec.name: spec for spec in self.manifest.tensors}


class WeightUpdates:
    """One per server."""

    def __init__(self, sync: WeightSync) -> None:
        self._sync = sync
        self._updates: dict[str, _Update] = {}
        self._beginning: list[WeightTarget] = []

    async def begin(
        self, job: WeightTarget, tensors: Sequence[IncomingTensor], version: int, timeout_s: float, caller: Caller
    ) -> tuple[str, int]:
        """Id of a new update and the bytes that have to arrive."""
        _require_newer(job, version)
        manifest = _lay_out(tensors)
        job.engine.check_manifest(manifest)
        self._require_room(job)
        self._beginning.append(job)
        try:
            segment = await _segment(manifest.total_bytes)
        finally:
            self._beginning.remove(job)
        update = _Update(
            uuid.uuid4().hex, caller.tenant, job, version, manifest,
            {t.name: t.sha256 for t in tensors if t.sha256}, segment, timeout_s,
        )  # fmt: skip
        self._updates[update.update_id] = update
        return update.update_id, sum(t.nbytes for t in manifest.tensors)

    def receive(self, update_id: str, name: str, offset: int, data: bytes, caller: Caller) -> None:
        """One piece of a tensor. Pieces of a tensor come in order; sending one again is fine."""
        update = self._still_open(update_id, caller)
        spec = update.specs.get(name)
        if spec is None:
            raise InvalidArgument.at("name", f"the update's manifest has no tensor {name!r}")
        if offset + len(data) > spec.nbytes:
            raise InvalidArgument.at(
                "offset", f"bytes [{offset}, {offset + len(data)}) are outside {name}'s {spec.nbytes} bytes"
            )
        have = update.received.get(name, 0)
        if offset > have:
            raise InvalidArgument.at(
                "offset", f"is {offset}, but only {have} bytes of {name} came before; send in order"
            )
        start = spec.offset + offset
        update.segment.buffer[start : start + len(data)] = data
        update.received[name] = max(have, offset + len(data))
        update.touched = time.monotonic()

    def progress(self, update_id: str, caller: Caller) -> tuple[int, int]:
        """Bytes received and tensors complete."""
        update = self._get(update_id, caller)
        whole = sum(update.received.get(t.name, 0) == t.nbytes for t in update.manifest.tensors)
        return sum(update.received.values()), whole

    async def commit(self, update_id: str, in_flight: InFlightPolicy, caller: Caller) -> tuple[int, float]:
        """Put an update into effect; its version and the seconds of standstill.

        On an error the sampler keeps its weights and the update stays, to be completed or aborted.
        """
        update = self._still_open(update_id, caller)
        missing = [t.name for t in update.manifest.tensors if update.received.get(t.name, 0) != t.nbytes]
        if missing:
            raise FailedPrecondition(
                "UPDATE_INCOMPLETE",
                f"{len(missing)} tensors have not arrived whole, first {missing[0]}",
                subject=f"update/{update_id}",
            )
        update.committing = True  # from here on nobody may write to its bytes or take them away
        try:
            await asyncio.to_thread(_check_digests, update)
            async with self._sync.lock(update.job):
                update.job.require_working()
                _require_newer(update.job, update.version)
                pause_s = await self._sync.install(
                    update.job, update.segment.name, update.manifest, update.version, in_flight,
                    from_outside(update_id, update.version),
                )  # fmt: skip
        except BaseException:
            update.committing, update.touched = False, time.monotonic()
            raise
        self._drop(update)
        return update.version, pause_s

    def abort(self, update_id: str, caller: Caller) -> None:
        """Give an update up. Legal for one that is gone, and without effect on one that is being committed."""
        update = self._updates.get(update_id)
        if update is not None and update.tenant == caller.tenant and not update.committing:
            self._drop(update)

    def expire(self) -> None:
        """Give up what nobody feeds. Called now and then."""
        now = time.monotonic()
        for update in list(self._updates.values()):
            if now - update.touched > update.timeout_s and not update.committing:
                self._drop(update)

    async def forget(self, job: AnyJob) -> None:
        """A job ended: its updates are void. A commit that has begun ends first."""
        async with self._sync.lock(job):
            for update in [u for u in self._updates.values() if u.job is job]:
                self._drop(update)

    def _require_room(self, job: WeightTarget) -> None:
        held = sum(update.job is job for update in self._updates.values()) + self._beginning.count(job)
        if held >= MAX_OPEN_UPDATES:
            raise ResourceExhausted(
                "TOO_MANY_UPDATES",
                f"{job.name} has {held} updates that were begun; commit or abort one of them first",
                retry_after=timedelta(seconds=1),
            )

    def _get(self, update_id: str, caller: Caller) -> _Update:
        update = self._updates.get(update_id)
        if update is None or update.tenant != caller.tenant:
            raise NotFound(
                "update", update_id, f"no weight update {update_id!r}; it was committed, aborted or timed out"
            )
        return update

    def _still_open(self, update_id: str, caller: Caller) -> _Update:
        update = self._get(update_id, caller)
        if update.committing:
            raise FailedPrecondition(
                "UPDATE_COMMITTING", f"update {update_id} is being committed", subject=f"update/{update_id}"
            )
        return update

    def _drop(self, update: _Update) -> None:
        if self._updates.pop(update.update_id, None) is not None:
            update.segment.unlink()
            update.segment.close()


async def _segment(size: int) -> SharedSegment:
    made = asyncio.ensure_future(asyncio.to_thread(SharedSegment.create, size, label="update"))
    try:
        return await asyncio.shield(made)
    except asyncio.CancelledError:
        made.add_done_callback(_drop_made)  # the thread goes on, and nobody waits for what it makes
        raise


def _drop_made(made: asyncio.Future[SharedSegment]) -> None:
    if made.exception() is None:
        made.result().unlink()
        made.result().close()


def _require_newer(job: WeightTarget, version: int) -> None:
    if version <= job.weight_version:
        raise FailedPrecondition(
            "VERSION_NOT_NEWER",
            f"weight_version {version} is not above {job.weight_version}, which {job.name} serves",
            subject=job.name,
        )


def _lay_out(tensors: Sequence[IncomingTensor]) -> WeightManifest:
    specs: list[TensorSpec] = []
    seen: set[str] = set()
    end = 0
    for index, tensor in enumerate(tensors):
        if tensor.name in seen:
            raise InvalidArgument([FieldViolation(f"manifest[{index}].name", f"{tensor.name!r} stands there twice")])
        seen.add(tensor.name)
        nbytes = math.prod(tensor.shape) * ITEMSIZES[tensor.dtype]
        offset = -(-end // _ALIGNMENT) * _ALIGNMENT
        end = offset + nbytes
        specs.append(TensorSpec(tensor.name, SAFETENSORS_DTYPES[tensor.dtype], tensor.shape, offset, nbytes))
    if not 0 < end <= MAX_UPDATE_BYTES:
        raise InvalidArgument(
            [FieldViolation("manifest", f"is {end} bytes in all; it must be 1 to {MAX_UPDATE_BYTES}")]
        )
    return WeightManifest(tuple(specs), end)


def _check_digests(update: _Update) -> None:
    for spec in update.manifest.tensors:
        digest = update.digests.get(spec.name)
        if digest and hashlib.sha256(update.segment.buffer[spec.offset : spec.offset + spec.nbytes]).digest() != digest:
            update.received[spec.name] = 0
            raise FailedPrecondition(
                "CHECKSUM_MISMATCH",
                f"the bytes of {spec.name} do not have the SHA-256 of the manifest; send the tensor again",
                subject=f"update/{update.update_id}",
            )
