"""The identity that makes a mutating call safe to repeat."""

from __future__ import annotations

import uuid

from gradwire.client._convert.messages import put
from gradwire.client._core.arguments import check
from gradwire.v1 import operation_pb2 as pb


def operation(request_id: str | None, sequence_number: int | None) -> pb.OperationId:
    """`request_id`, or a fresh UUID: made once a call, so that all its attempts carry the same."""
    return put(pb.OperationId(), request_id=fresh(request_id), sequence_number=sequence_number)


def fresh(request_id: str | None) -> str:
    """`request_id` itself, or a fresh UUID. ValueError when it is empty: that would protect nothing."""
    if request_id is None:
        return str(uuid.uuid4())
    check(request_id, "request_id", str, "text of 1 to 128 characters")
    if not request_id:
        raise ValueError("request_id is empty; leave it out for a fresh one, or give one of 1 to 128 characters")
    return request_id
