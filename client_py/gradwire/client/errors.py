"""The errors of gradwire's clients: one class per gRPC status code.

Knows: what each code means to a caller. Does not know: how a status is read off the wire
(`_core.status` does).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar

FieldViolation = tuple[str, str]
"""Path of a field in the request (`batch.loss_mask`), and what would be right."""


class GradwireError(Exception):
    """A call that failed. `str()` of it says what was wrong and, where known, what would be right."""

    code: ClassVar[str] = "UNKNOWN"
    """The gRPC status code."""

    def __init__(
        self,
        message: str,
        *,
        reason: str = "",
        metadata: Mapping[str, str] | None = None,
        field_violations: Sequence[FieldViolation] = (),
        retry_after: float | None = None,
        correlation_id: str | None = None,
        method: str = "",
    ) -> None:
        self.message = message
        """What the server (or the connection) said."""
        self.reason = reason
        """Stable UPPER_SNAKE_CASE word for programs, such as WEIGHTS_TOO_OLD. Empty when there is none."""
        self.metadata = dict(metadata or {})
        """Facts that go with the reason."""
        self.field_violations = tuple(field_violations)
        """(field, description) of each bad field; only of INVALID_ARGUMENT."""
        self.retry_after = retry_after
        """Seconds after which the same call may succeed. None: not known, or never."""
        self.correlation_id = correlation_id
        """Finds the call in the server's log. None when the server gave none."""
        self.method = method
        """The RPC, like "SamplingService/Generate"."""
        self.attempts = 1
        """How often the call was sent."""
        self.request_id: str | None = None
        """The id under which the server applies the call once: repeated with it, a call that it carried out is not
        applied again. None where the call has none."""
        self._answered = True  # False: the server may have got the call, and what became of it is not known
        super().__init__(message)

    def __str__(self) -> str:
        notes = [self._subject()]
        if self.reason:
            notes.append(f"[{self.reason}]")
        notes.append(self.message or "the server gave no reason")
        if self.retry_after is not None:
            notes.append(f"(try again in {self.retry_after:g} s)")
        if self.attempts > 1:
            notes.append(f"(sent {self.attempts} times)")
        if self.correlation_id and self.correlation_id not in self.message:
            notes.append(f"(correlation id {self.correlation_id})")
        return " ".join(notes)

    def _subject(self) -> str:
        return f"{self.method}: {self.code}" if self.method else self.code


class CallCancelledError(GradwireError):
    """The call was cancelled, here or by the server. (A cancelled asyncio task gets asyncio's own error.)

    The server may still carry it out: repeat it with its `request_id`.
    """

    code = "CANCELLED"


class UnknownError(GradwireError):
    """A status that says nothing of its cause."""

    code = "UNKNOWN"


class InvalidArgumentError(GradwireError, ValueError):
    """The request can never work as written; `field_violations` name the fields."""

    code = "INVALID_ARGUMENT"


class DeadlineExceededError(GradwireError, TimeoutError):
    """The call's timeout passed first. The server may still carry the call out: repeat it with its `request_id`."""

    code = "DEADLINE_EXCEEDED"


class NotFoundError(GradwireError, LookupError):
    """No such thing, or not the caller's: the two look the same."""

    code = "NOT_FOUND"


class AlreadyExistsError(GradwireError):
    """The name or the request id is taken by something else."""

    code = "ALREADY_EXISTS"


class PermissionDeniedError(GradwireError):
    """Known caller, missing scope."""

    code = "PERMISSION_DENIED"


class ResourceExhaustedError(GradwireError):
    """Out of room; `retry_after` says when to try again, None when the same call never fits."""

    code = "RESOURCE_EXHAUSTED"


class FailedPreconditionError(GradwireError):
    """Right request, wrong state."""

    code = "FAILED_PRECONDITION"


class AbortedError(GradwireError):
    """Overtaken by something else; start the larger operation again."""

    code = "ABORTED"


class OutOfRangeError(GradwireError):
    """Past the end of something."""

    code = "OUT_OF_RANGE"


class UnimplementedError(GradwireError):
    """A documented part that this server does not run."""

    code = "UNIMPLEMENTED"


class InternalError(GradwireError):
    """A bug in the server; `correlation_id` finds it in the server's log."""

    code = "INTERNAL"


class UnavailableError(GradwireError, ConnectionError):
    """The server cannot be reached, or not now (starting, draining, an engine died)."""

    code = "UNAVAILABLE"


class DataLossError(GradwireError):
    """Bytes arrived damaged, or a stream lost tokens."""

    code = "DATA_LOSS"


class UnauthenticatedError(GradwireError):
    """No token, or one that the server does not know."""

    code = "UNAUTHENTICATED"


BY_CODE: Mapping[str, type[GradwireError]] = {
    kind.code: kind
    for kind in (
        CallCancelledError,
        UnknownError,
        InvalidArgumentError,
        DeadlineExceededError,
        NotFoundError,
        AlreadyExistsError,
        PermissionDeniedError,
        ResourceExhaustedError,
        FailedPreconditionError,
        AbortedError,
        OutOfRangeError,
        UnimplementedError,
        InternalError,
        UnavailableError,
        DataLossError,
        UnauthenticatedError,
    )
}
"""Class of each gRPC status code."""
