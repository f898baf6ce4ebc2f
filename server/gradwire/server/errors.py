"""The errors that the server means to show a caller.

Raised anywhere (domain, engines, codec); an interceptor turns each into a gRPC status with
google.rpc details. Anything else that is raised is a bug: the caller sees INTERNAL and a
correlation id, the text stays in the log. This module knows nothing of gRPC.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta


@dataclass(frozen=True, slots=True)
class FieldViolation:
    """One bad field: its path in the request (`batch.loss_mask`) and what would be right."""

    field: str
    description: str


class GradwireError(Exception):
    """Base of the errors a caller sees. `reason` is a stable UPPER_SNAKE_CASE word for programs."""

    code = "INTERNAL"

    def __init__(self, reason: str, message: str, *, metadata: Mapping[str, str] | None = None) -> None:
        super().__init__(message)
        self.reason = reason
        self.message = message
        self.metadata = dict(metadata or {})


class InvalidArgument(GradwireError):
    """The request can never work as written; `violations` name the fields."""

    code = "INVALID_ARGUMENT"

    def __init__(
        self,
        violations: Sequence[FieldViolation],
        *,
        reason: str = "INVALID_FIELD",
        metadata: Mapping[str, str] | None = None,
    ) -> None:
        text = "; ".join(f"{v.field}: {v.description}" if v.field else v.description for v in violations)
        super().__init__(reason, text, metadata=metadata)
        self.violations = tuple(violations)

    @classmethod
    def at(cls, field: str, description: str, *, reason: str = "INVALID_FIELD") -> InvalidArgument:
        """The common case of one bad field."""
        return cls([FieldViolation(field, description)], reason=reason)


class NotFound(GradwireError):
    """No such thing, or not the caller's: the two look the same."""

    code = "NOT_FOUND"

    def __init__(self, resource_type: str, resource_name: str, message: str) -> None:
        super().__init__(f"{resource_type.upper()}_NOT_FOUND", message)
        self.resource_type = resource_type
        self.resource_name = resource_name


class AlreadyExists(GradwireError):
    """The name or request id is taken by something else."""

    code = "ALREADY_EXISTS"


class FailedPrecondition(GradwireError):
    """Right request, wrong state. `subject` is what is in that state (`sampling_job/1`)."""

    code = "FAILED_PRECONDITION"

    def __init__(
        self, reason: str, message: str, *, subject: str = "", metadata: Mapping[str, str] | None = None
    ) -> None:
        super().__init__(reason, message, metadata=metadata)
        self.subject = subject


class Aborted(GradwireError):
    """Overtaken by something else; start the larger operation again."""

    code = "ABORTED"


class DeadlineExceeded(GradwireError):
    """The caller's deadline, or a limit of ours, passed first."""

    code = "DEADLINE_EXCEEDED"


class PermissionDenied(GradwireError):
    """Known caller, missing scope."""

    code = "PERMISSION_DENIED"


class Unauthenticated(GradwireError):
    """No credential, or one that is not known."""

    code = "UNAUTHENTICATED"


class Unimplemented(GradwireError):
    """A documented part that this server does not run."""

    code = "UNIMPLEMENTED"


class ResourceExhausted(GradwireError):
    """Out of room; `retry_after` says when to try again, None when the same call never fits."""

    code = "RESOURCE_EXHAUSTED"

    def __init__(self, reason: str, message: str, *, retry_after: timedelta | None = None) -> None:
        super().__init__(reason, message)
        self.retry_after = retry_after


class Unavailable(GradwireError):
    """Not now (starting, draining, an engine died); retry the same call after `retry_after`."""

    code = "UNAVAILABLE"

    def __init__(self, reason: str, message: str, *, retry_after: timedelta | None = timedelta(seconds=1)) -> None:
        super().__init__(reason, message)
        self.retry_after = retry_after


def draining() -> Unavailable:
    """What new calls get, and those that would wait for long, while the server ends."""
    return Unavailable("DRAINING", "the server is shutting down")
