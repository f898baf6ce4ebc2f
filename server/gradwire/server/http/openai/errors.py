"""Errors as OpenAI's clients read them: a status, an error object, and whether to try again."""

from __future__ import annotations

import math
from typing import Any

from google.rpc import code_pb2

from gradwire.server.errors import GradwireError, InvalidArgument, NotFound
from gradwire.server.http.status import http_status

_TYPES = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    409: "conflict_error",
    429: "rate_limit_error",
}


def status_of(error: GradwireError) -> int:
    """HTTP status."""
    return http_status(code_pb2.Code.Value(error.code))


def body_of(error: GradwireError) -> dict[str, Any]:
    """The error object: `param` is the first field that is wrong, `code` our reason."""
    param = None
    if isinstance(error, InvalidArgument):
        param = error.violations[0].field or None
    elif isinstance(error, NotFound):
        param = error.resource_type
    kind = _TYPES.get(status_of(error), "server_error")
    return {"error": {"message": error.message, "type": kind, "param": param, "code": error.reason.lower()}}


def headers_of(error: GradwireError) -> list[tuple[bytes, bytes]]:
    """`retry-after` where a time is known; `x-should-retry` where clients would guess wrong by the status."""
    after = getattr(error, "retry_after", None)
    if after is not None:
        return [(b"retry-after", str(math.ceil(after.total_seconds())).encode()), (b"x-should-retry", b"true")]
    # Clients retry every status from 500 and 409: what was said here stays true.
    return [(b"x-should-retry", b"false")]
