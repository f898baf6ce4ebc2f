"""Errors as grpc.aio raises them, from Connect's JSON, from HTTP statuses and from broken connections."""

from __future__ import annotations

import base64
import binascii
import json
from typing import Any

import grpc
import grpc.aio
from google.rpc import status_pb2

_CODES = {code.name.lower(): code for code in grpc.StatusCode} | {"canceled": grpc.StatusCode.CANCELLED}
# Of answers that no gradwire server made: a proxy's. As the protocol says.
_BY_HTTP = {
    400: grpc.StatusCode.INTERNAL,
    401: grpc.StatusCode.UNAUTHENTICATED,
    403: grpc.StatusCode.PERMISSION_DENIED,
    404: grpc.StatusCode.UNIMPLEMENTED,
    429: grpc.StatusCode.UNAVAILABLE,
    502: grpc.StatusCode.UNAVAILABLE,
    503: grpc.StatusCode.UNAVAILABLE,
    504: grpc.StatusCode.UNAVAILABLE,
}
_NO_METADATA = grpc.aio.Metadata()


def failed(code: grpc.StatusCode, message: str, trailers: grpc.aio.Metadata = _NO_METADATA) -> grpc.aio.AioRpcError:
    """The error of a call that ended so."""
    return grpc.aio.AioRpcError(code, _NO_METADATA, trailers, message)


def too_large(size: int | None, limit: int, *, sent: bool) -> grpc.aio.AioRpcError:
    """In the words of gRPC, which `status.py` explains."""
    verb = "Sent" if sent else "Received"
    return failed(
        grpc.StatusCode.RESOURCE_EXHAUSTED,
        f"CLIENT: {verb} message larger than max ({limit + 1 if size is None else size} vs. {limit})",
    )


def failure_of(status: int, body: bytes) -> grpc.aio.AioRpcError:
    """The error of an answer whose HTTP status is not 200."""
    try:
        error = json.loads(body)
        code = _CODES[error["code"]]
    except (ValueError, TypeError, KeyError):
        text = body[:200].decode(errors="replace").strip()
        return failed(_BY_HTTP.get(status, grpc.StatusCode.UNKNOWN), f"HTTP {status}: {text}")
    return _with_details(code, error)


def failure_in(end: bytes) -> grpc.aio.AioRpcError | None:
    """The error in a stream's last envelope; None when it ended well."""
    try:
        error = json.loads(end).get("error")
        return _with_details(_CODES.get(error.get("code"), grpc.StatusCode.UNKNOWN), error) if error else None
    except (ValueError, AttributeError):
        return failed(grpc.StatusCode.INTERNAL, "the stream's end is no JSON object")


def _with_details(code: grpc.StatusCode, error: dict[str, Any]) -> grpc.aio.AioRpcError:
    number: int = code.value[0]
    message = str(error.get("message", ""))
    status = status_pb2.Status(code=number, message=message)
    for detail in error.get("details", ()):
        try:
            value = base64.b64decode(detail["value"] + "=" * (-len(detail["value"]) % 4))
            status.details.add(type_url=f"type.googleapis.com/{detail['type']}", value=value)
        except (KeyError, TypeError, binascii.Error):
            continue  # a detail that cannot be read; the code and the message stand
    trailers = grpc.aio.Metadata(("grpc-status-details-bin", status.SerializeToString()))
    return failed(code, message, trailers)
