"""GradwireError <-> google.rpc.Status: every error on the wire carries typed details."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import grpc
from google.protobuf import any_pb2, duration_pb2, message
from google.rpc import code_pb2, error_details_pb2, status_pb2

from gradwire.server import errors

DOMAIN = "gradwire"
DETAILS_KEY = "grpc-status-details-bin"
# The trailers of a call hold 8 KiB, and lose everything beyond: a long text is cut rather than lost with all
# details. On the wire the message stands twice, once percent-encoded (x 3 at worst) and once in base64.
_MESSAGE_BYTES = 1000
_VIOLATIONS_BYTES = 2000
_DESCRIPTION_BYTES = 600
_NAME_BYTES = 600

_CLASSES: dict[int, type[errors.GradwireError]] = {
    code_pb2.Code.Value(cls.code): cls
    for cls in (
        errors.NotFound,
        errors.AlreadyExists,
        errors.Aborted,
        errors.DeadlineExceeded,
        errors.PermissionDenied,
        errors.Unauthenticated,
        errors.Unimplemented,
    )
}


def _pack(detail: message.Message) -> any_pb2.Any:
    packed = any_pb2.Any()
    packed.Pack(detail)
    return packed


def _retry_info(after: timedelta) -> error_details_pb2.RetryInfo:
    delay = duration_pb2.Duration()
    delay.FromTimedelta(after)
    return error_details_pb2.RetryInfo(retry_delay=delay)


def _cut(text: str, limit: int) -> str:
    data = text.encode()
    return text if len(data) <= limit else data[: limit - 3].decode(errors="ignore") + "..."


def _bad_request(violations: Sequence[errors.FieldViolation]) -> error_details_pb2.BadRequest:
    """As many violations as there is room for, at least one."""
    message = error_details_pb2.BadRequest()
    for violation in violations:
        message.field_violations.add(
            field=_cut(violation.field, _DESCRIPTION_BYTES),
            description=_cut(violation.description, _DESCRIPTION_BYTES),
        )
        if message.ByteSize() > _VIOLATIONS_BYTES:
            break
    return message


def to_status(error: errors.GradwireError) -> status_pb2.Status:
    """The status of an error: ErrorInfo always, and what its kind calls for beside it."""
    text = _cut(error.message, _MESSAGE_BYTES)
    metadata = {key: _cut(value, _NAME_BYTES) for key, value in error.metadata.items()}
    details: list[message.Message] = [
        error_details_pb2.ErrorInfo(reason=error.reason, domain=DOMAIN, metadata=metadata)
    ]
    match error:
        case errors.InvalidArgument():
            details.append(_bad_request(error.violations))
        case errors.NotFound():
            details.append(
                error_details_pb2.ResourceInfo(
                    resource_type=error.resource_type,
                    resource_name=_cut(error.resource_name, _NAME_BYTES),
                    description=text,
                )
            )
        case errors.FailedPrecondition():
            violation = error_details_pb2.PreconditionFailure.Violation(
                type=error.reason, subject=_cut(error.subject, _NAME_BYTES), description=text
            )
            details.append(error_details_pb2.PreconditionFailure(violations=[violation]))
        case errors.ResourceExhausted() | errors.Unavailable():
            if error.retry_after is not None:
                details.append(_retry_info(error.retry_after))
    return status_pb2.Status(
        code=code_pb2.Code.Value(error.code), message=text, details=[_pack(detail) for detail in details]
    )


def from_status(status: status_pb2.Status) -> errors.GradwireError:
    """The error that a status was made of; one of unknown kind becomes a plain GradwireError."""
    info = error_details_pb2.ErrorInfo()
    bad = error_details_pb2.BadRequest()
    resource = error_details_pb2.ResourceInfo()
    precondition = error_details_pb2.PreconditionFailure()
    retry = error_details_pb2.RetryInfo()
    for detail in status.details:
        for target in (info, bad, resource, precondition, retry):
            if detail.Is(target.DESCRIPTOR):
                detail.Unpack(target)
    reason, text, metadata = info.reason or "UNKNOWN", status.message, dict(info.metadata)
    after = retry.retry_delay.ToTimedelta() if retry.HasField("retry_delay") else None
    match code_pb2.Code.Name(status.code):
        case "INVALID_ARGUMENT":
            violations = [errors.FieldViolation(v.field, v.description) for v in bad.field_violations]
            violations = violations or [errors.FieldViolation("", text)]
            return errors.InvalidArgument(violations, reason=reason, metadata=metadata)
        case "NOT_FOUND":
            return errors.NotFound(resource.resource_type or "resource", resource.resource_name, text)
        case "FAILED_PRECONDITION":
            subject = precondition.violations[0].subject if precondition.violations else ""
            return errors.FailedPrecondition(reason, text, subject=subject, metadata=metadata)
        case "RESOURCE_EXHAUSTED":
            return errors.ResourceExhausted(reason, text, retry_after=after)
        case "UNAVAILABLE":
            return errors.Unavailable(reason, text, retry_after=after)
        case _:
            return _CLASSES.get(status.code, errors.GradwireError)(reason, text, metadata=metadata)


def from_rpc_error(error: grpc.RpcError) -> errors.GradwireError:
    """The error behind a failed call of ours to another gradwire process."""
    trailers: Any = error.trailing_metadata() or ()
    for key, value in trailers:
        if key == DETAILS_KEY:
            return from_status(status_pb2.Status.FromString(value))
    code: int = error.code().value[0]
    return from_status(status_pb2.Status(code=code, message=error.details() or error.code().name))
