"""Errors as the Arena's clients read them: a status, and an object whose `detail` says what is wrong."""

from __future__ import annotations

import math
from typing import Any

from google.rpc import code_pb2

from gradwire.server.errors import FieldViolation, GradwireError, InvalidArgument, NotFound
from gradwire.server.http.status import http_status

STREAM_ERROR = "\n[ERROR: "
"""Begins a part of a streamed reply that says why the reply ends here."""

_WIRE_PATHS = {
    "params.max_tokens": "params.max_new_tokens",
    "policy.bundle": "experiment_name",
    "language_model.training_job_id": "experiment_name",
    "memory_scope": "memoryScope",
}


def in_wire_terms(error: GradwireError) -> GradwireError:
    """The same error, with our names of fields as the wire's."""
    if not isinstance(error, InvalidArgument):
        return error
    violations = [FieldViolation(_wire_path(at.field), at.description) for at in error.violations]
    return InvalidArgument(violations, reason=error.reason, metadata=error.metadata)


def _wire_path(path: str) -> str:
    if path.partition(".")[0].partition("[")[0] == "observation":
        return "obs" + path.removeprefix("observation")
    return _WIRE_PATHS.get(path, path)


def status_of(error: GradwireError) -> int:
    """HTTP status. A deployment that failed is the server's fault, whatever gRPC calls it."""
    if error.reason == "DEPLOYMENT_FAILED":
        return 503
    return http_status(code_pb2.Code.Value(error.code))


def body_of(error: GradwireError) -> dict[str, Any]:
    """`detail`, our reason as `code`, and the field that is wrong."""
    detail = "unknown session_id" if isinstance(error, NotFound) and error.resource_type == "session" else error.message
    body: dict[str, Any] = {"detail": detail, "code": error.reason.lower()}
    if isinstance(error, InvalidArgument) and error.violations[0].field:
        body["field"] = error.violations[0].field
    return body


def headers_of(error: GradwireError) -> list[tuple[bytes, bytes]]:
    """`retry-after` where a time is known."""
    after = getattr(error, "retry_after", None)
    return [] if after is None else [(b"retry-after", str(math.ceil(after.total_seconds())).encode())]


def marker_of(error: GradwireError) -> str:
    """The last part of a stream that broke off."""
    return f"{STREAM_ERROR}{error.reason.lower()}: {error.message}]"
