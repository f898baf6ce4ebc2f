"""OperationId messages -> the domain's operations: a mutating call's identity, its fingerprint, its time."""

from __future__ import annotations

import asyncio
import hashlib
from typing import Any, TypeVar

from google.protobuf.message import Message

from gradwire.server.codec.times import duration
from gradwire.server.domain.operations import Operation
from gradwire.server.domain.training import Timed
from gradwire.v1 import sampling_pb2

Response = TypeVar("Response", bound=Message)

_DEADLINE_MARGIN_S = 0.2  # our own error must leave before the client's deadline ends the call


def _digest(method: str, request: Any, extra: bytes) -> bytes:
    payload = type(request)()
    payload.CopyFrom(request)
    payload.ClearField("operation")
    if extra:
        payload.ClearField("batch_id")  # the same rows, sent again, are the same payload
    elif "batch" in payload.DESCRIPTOR.fields_by_name and payload.HasField("batch"):
        # So are those that came within the call: a client may send them one way now and another way later.
        extra = hashlib.sha256(payload.batch.SerializeToString(deterministic=True)).digest()
        payload.ClearField("batch")
    return hashlib.sha256(method.encode() + b"\0" + extra + payload.SerializeToString(deterministic=True)).digest()


async def operation_of(method: str, request: Any, *, extra: bytes = b"") -> Operation:
    """The operation that a request is. `extra` stands for an upload: its digest, whatever its id."""
    identity = request.operation
    if not identity.request_id and not identity.HasField("sequence_number"):
        return Operation()
    fingerprint = await asyncio.to_thread(_digest, method, request, extra) if identity.request_id else b""
    return Operation(
        request_id=identity.request_id,
        sequence_number=identity.sequence_number if identity.HasField("sequence_number") else None,
        fingerprint=fingerprint,
    )


def time_left(context: Any) -> float | None:
    """Seconds until the call's deadline, less a margin to answer in; None without a deadline."""
    remaining: float | None = context.time_remaining()
    return None if remaining is None else max(0.0, remaining - _DEADLINE_MARGIN_S)


def with_timing(timed: Timed[Response]) -> Response:
    """A copy of an operation's answer that says how long it took: the answer itself is kept for a retry."""
    response: Any = type(timed.value)()
    response.CopyFrom(timed.value)
    response.timing.CopyFrom(sampling_pb2.Timing(queued=duration(timed.queued_s), run=duration(timed.run_s)))
    return response
