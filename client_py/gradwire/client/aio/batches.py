"""How a training batch travels: inside its call, by shared memory, or ahead of it in chunks when it is large.

Knows: sizes and the server's limits. Does not know: what the columns mean.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Iterator
from typing import Any, TypeVar

from gradwire.client._convert.messages import as_mapping, put_field
from gradwire.client._convert.shared import Lent
from gradwire.client._convert.times import moment
from gradwire.client._convert.training import batch_to_proto, put_batch
from gradwire.client._convert.weights import CHUNK_BYTES
from gradwire.client._core.attempts import part_of
from gradwire.client._core.connection import Connection, offload
from gradwire.client._core.countdown import Countdown
from gradwire.client._core.rpc import Response, Rpc
from gradwire.client.aio.admin import AsyncAdmin
from gradwire.client.errors import UnimplementedError
from gradwire.client.types.training import TrainingBatchLike, UploadedBatch
from gradwire.v1 import training_pb2 as pb

Asking = TypeVar("Asking", pb.FwdBwdRequest, pb.FwdNoGradRequest)

# An upload that is sent again leaves a batch that nobody names; the server forgets it by itself.
_UPLOAD = Rpc(
    "/gradwire.v1.TrainingService/UploadBatch", pb.UploadBatchRequest, pb.UploadBatchResponse, repeatable=True
)
_INLINE_BYTES = 4 * 1024 * 1024
"""Larger batches go in chunks: one large message holds up everything else that the server does."""
_GRPC_DEFAULT_LIMIT = 4 * 1024 * 1024


class BatchSender:
    """Sends the batches of one client."""

    def __init__(self, connection: Connection, admin: AsyncAdmin) -> None:
        self._connection = connection
        self._admin = admin
        self._inline_bytes: int | None = None

    async def unary(
        self,
        rpc: Rpc[Asking, Response],
        request: Asking,
        batch: TrainingBatchLike | UploadedBatch | str,
        countdown: Countdown,
    ) -> Response:
        """Calls `rpc` with `request`, to which this adds the rows: within it, by shared memory, or sent before."""
        with part_of(request):  # what fails before the call is a failure of the call, too
            return await self._unary(rpc, request, batch, countdown)

    async def _unary(
        self,
        rpc: Rpc[Asking, Response],
        request: Asking,
        batch: TrainingBatchLike | UploadedBatch | str,
        countdown: Countdown,
    ) -> Response:
        if isinstance(batch, str | UploadedBatch):
            put_field(request, "batch_id", batch if isinstance(batch, str) else batch.batch_id, "batch")
            return await self._connection.unary(rpc, request, timeout=countdown.left())

        async def plain() -> Response:
            if not await self._fits(request.batch, countdown):
                request.batch_id = (await self.send(request.job_id, request.batch, countdown)).batch_id
            return await self._connection.unary(rpc, request, timeout=countdown.left())

        with Lent(self._connection.segments) as lent:
            await offload(lambda: put_batch(request.batch, batch, lent), rough_size(batch))
            if not await self._fits(request.batch, countdown):
                lent.take_back()  # some of it found no room
                return await plain()
            return await lent.unary(self._connection, rpc, request, timeout=countdown.left(), plain=plain)

    async def upload(self, job: int, batch: TrainingBatchLike, countdown: Countdown) -> UploadedBatch:
        """Uploads a batch of any size."""
        return await self.send(job, await offload(lambda: batch_to_proto(batch), rough_size(batch)), countdown)

    async def send(self, job: int, message: pb.TrainingBatch, countdown: Countdown) -> UploadedBatch:
        """Streams a header and chunks."""
        data, digest = await asyncio.to_thread(_serialised, message)
        header = pb.UploadHeader(job_id=job, total_bytes=len(data), sha256=digest)

        def messages() -> Iterator[pb.UploadBatchRequest]:
            yield pb.UploadBatchRequest(header=header)
            for start in range(0, len(data), CHUNK_BYTES):
                yield pb.UploadBatchRequest(chunk=data[start : start + CHUNK_BYTES])

        response = await self._connection.upload(_UPLOAD, messages, timeout=countdown.left())
        return UploadedBatch(response.batch_id, moment(response, "expires_at"))

    async def _fits(self, message: pb.TrainingBatch, countdown: Countdown) -> bool:
        size = message.ByteSize()
        return size <= _INLINE_BYTES // 4 or size <= await self._limit(countdown)

    async def _limit(self, countdown: Countdown) -> int:
        if self._inline_bytes is None:
            try:
                most = (await self._admin.get_capabilities(timeout=countdown.left())).max_message_bytes
            except UnimplementedError:
                most = 0
            # Half: the request around the batch, and its answer, need room too.
            self._inline_bytes = min(_INLINE_BYTES, (most or _GRPC_DEFAULT_LIMIT) // 2)
        return self._inline_bytes


def _serialised(message: pb.TrainingBatch) -> tuple[bytes, bytes]:
    data = message.SerializeToString()
    return data, hashlib.sha256(data).digest()


def rough_size(batch: TrainingBatchLike) -> int:
    """About how many bytes a batch holds: enough to tell small from large."""
    return sum(_rough_bytes(column) for column in as_mapping(batch, "batch", "TrainingBatch").values())


def _rough_bytes(column: Any) -> int:
    if hasattr(column, "nbytes"):
        return int(column.nbytes)
    if isinstance(column, list | tuple) and column:
        first = column[0]
        if hasattr(first, "nbytes"):
            return sum(int(getattr(row, "nbytes", 0)) for row in column)
        return 8 * sum(len(row) if hasattr(row, "__len__") else 1 for row in column)
    return 0
