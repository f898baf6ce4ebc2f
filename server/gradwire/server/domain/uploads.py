"""Batches that were sent in chunks: kept for a while, for their sender to name."""

from __future__ import annotations

import hashlib
import time
import uuid
from dataclasses import dataclass
from datetime import timedelta

from gradwire.server.domain.caller import Caller
from gradwire.server.errors import InvalidArgument, NotFound, ResourceExhausted

LIFETIME_S = 600.0


@dataclass(frozen=True, slots=True)
class StoredBatch:
    """Serialised bytes and when they are forgotten (Unix seconds)."""

    batch_id: str
    tenant: str
    job_id: int
    data: bytes
    sha256: bytes
    expires: float


class IncomingBatch:
    """An upload that is under way."""

    def __init__(self, total_bytes: int, sha256: bytes) -> None:
        self._buffer = bytearray()
        self._total = total_bytes
        self._digest = sha256

    def add(self, chunk: bytes) -> None:
        """The next bytes."""
        if len(self._buffer) + len(chunk) > self._total:
            raise InvalidArgument.at("chunk", f"more than the {self._total} bytes that the header announced")
        self._buffer += chunk

    def finish(self) -> bytes:
        """All bytes, checked against length and checksum."""
        if len(self._buffer) != self._total:
            raise InvalidArgument.at(
                "header.total_bytes", f"announced {self._total} bytes, {len(self._buffer)} came; send the batch again"
            )
        if hashlib.sha256(self._buffer).digest() != self._digest:
            raise InvalidArgument.at("header.sha256", "does not match the bytes that came; send the batch again")
        return bytes(self._buffer)


class UploadStore:
    """One per server. Holds at most `capacity` bytes in all, those under way included."""

    def __init__(self, *, max_upload_bytes: int, capacity: int) -> None:
        self.max_upload_bytes = max_upload_bytes
        self._capacity = capacity
        self._used = 0
        self._batches: dict[str, StoredBatch] = {}

    def begin(self, total_bytes: int, sha256: bytes) -> IncomingBatch:
        """Make room for an upload; give it back with `release` when the upload breaks off."""
        self.expire()
        if total_bytes > self.max_upload_bytes:
            raise InvalidArgument.at(
                "header.total_bytes",
                f"is {total_bytes}; this server takes at most {self.max_upload_bytes} in one upload: split the batch "
                "(gradients of several fwd_bwd calls add up)",
            )
        if self._used + total_bytes > self._capacity:
            raise ResourceExhausted(
                "UPLOADS_FULL",
                f"uploads hold {self._used} of {self._capacity} bytes; those sent before are forgotten in time",
                retry_after=self._soonest_room(),
            )
        self._used += total_bytes
        return IncomingBatch(total_bytes, sha256)

    def _soonest_room(self) -> timedelta:
        soonest = min((batch.expires for batch in self._batches.values()), default=0.0)
        return timedelta(seconds=max(1.0, soonest - time.time()))

    def release(self, total_bytes: int) -> None:
        """An upload broke off."""
        self._used -= total_bytes

    def keep(self, data: bytes, sha256: bytes, job_id: int, caller: Caller) -> StoredBatch:
        """A finished upload, whose room `begin` made."""
        batch = StoredBatch(uuid.uuid4().hex, caller.tenant, job_id, data, sha256, time.time() + LIFETIME_S)
        self._batches[batch.batch_id] = batch
        return batch

    def get(self, batch_id: str, job_id: int, caller: Caller) -> StoredBatch:
        """A batch of the caller's."""
        self.expire()
        batch = self._batches.get(batch_id)
        if batch is None or batch.tenant != caller.tenant or batch.job_id != job_id:
            raise NotFound(
                "batch",
                batch_id,
                f"no uploaded batch {batch_id!r} of job {job_id}; it is forgotten after {LIFETIME_S:.0f} s",
            )
        return batch

    def expire(self) -> None:
        """Forget old batches."""
        now = time.time()
        for batch in [b for b in self._batches.values() if b.expires < now]:
            del self._batches[batch.batch_id]
            self._used -= len(batch.data)
