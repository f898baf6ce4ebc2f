"""Errors of agents: the document's classes, each with the HTTP status that its door would have answered with.

Knows: which status of gRPC is which of HTTP. The cause, with all that the server said, is `error.__cause__`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from pydantic import ValidationError

from gradwire.client.errors import FieldViolation, GradwireError, PermissionDeniedError, UnauthenticatedError

_HTTP_STATUS: Mapping[str, int] = {
    "INVALID_ARGUMENT": 400,
    "OUT_OF_RANGE": 400,
    "NOT_FOUND": 404,
    "ALREADY_EXISTS": 409,
    "ABORTED": 409,
    "FAILED_PRECONDITION": 400,
    "RESOURCE_EXHAUSTED": 429,
    "CANCELLED": 499,
    "UNKNOWN": 500,
    "INTERNAL": 500,
    "DATA_LOSS": 500,
    "UNIMPLEMENTED": 501,
    "UNAVAILABLE": 503,
    "DEADLINE_EXCEEDED": 504,
}
# Without a reason they are the connection's own, and no server's answer.
_OF_THE_CONNECTION = ("UNAVAILABLE", "DEADLINE_EXCEEDED", "CANCELLED")


class ArenaError(Exception):
    """Base of all errors of this package."""


class ArenaValidationError(ArenaError, ValueError):
    """An argument that can be refused without asking the server."""


class ArenaAuthError(ArenaError):
    """No credential, an unknown or ended one, or one that is not allowed to do this."""

    def __init__(self, message: str, *, sdk_hint: str = "", cli_hint: str = "", status_code: int = 0) -> None:
        self.message = message
        self.sdk_hint = sdk_hint
        self.cli_hint = cli_hint
        self.status_code = status_code
        """401, 403, or 0 when it was found before any request."""
        super().__init__(message)

    def __str__(self) -> str:
        return "\n".join(filter(None, (self.message, self.sdk_hint)))


class ArenaAPIError(ArenaError):
    """A call that failed."""

    label = "APIError"

    def __init__(
        self,
        detail: str,
        *,
        status_code: int = 0,
        extras: Mapping[str, object] | None = None,
        sdk_hint: str = "",
        cli_hint: str = "",
    ) -> None:
        self.detail = detail
        """What was wrong and, where known, what would be right."""
        self.status_code = status_code
        """Of HTTP; 0 when the server was not asked, or could not be reached."""
        self.extras = dict(extras or {})
        """Further facts, such as the server's correlation id."""
        self.sdk_hint = sdk_hint
        self.cli_hint = cli_hint
        super().__init__(detail)

    def __str__(self) -> str:
        status = f" ({self.status_code})" if self.status_code else ""
        facts = (f"{name}: {value}" for name, value in self.extras.items())
        return "\n".join(filter(None, (f"{self.label}{status}: {self.detail}", *facts, self.sdk_hint)))

    @property
    def cause(self) -> GradwireError | None:
        """The error of the connection or the server behind it."""
        return self.__cause__ if isinstance(self.__cause__, GradwireError) else None

    @property
    def code(self) -> str:
        """The gRPC status, like "NOT_FOUND"; empty when the server was not asked."""
        return self.cause.code if self.cause else ""

    @property
    def reason(self) -> str:
        """The server's stable word for what happened, like "WRONG_DEPLOYMENT_KIND"; empty when there is none."""
        return self.cause.reason if self.cause else ""

    @property
    def field_violations(self) -> tuple[FieldViolation, ...]:
        """(field, what would be right) of each bad field."""
        return self.cause.field_violations if self.cause else ()

    @property
    def retry_after(self) -> float | None:
        """Seconds after which the same call may succeed. None: not known, or never."""
        return self.cause.retry_after if self.cause else None


class ArenaInferenceError(ArenaAPIError):
    """A call to a deployed agent that failed."""

    label = "InferenceError"


@contextmanager
def arena_errors() -> Iterator[None]:
    """Errors of the client underneath, and of arguments that cannot be sent, leave as this package's own."""
    try:
        yield
    except GradwireError as error:
        raise arena_error(error) from error
    except ValidationError as error:
        raise ArenaInferenceError("; ".join(item["msg"] for item in error.errors())) from error
    except (TypeError, ValueError) as error:
        raise ArenaInferenceError(str(error)) from error


def arena_error(error: GradwireError) -> ArenaError:
    """The document's error for a call that failed."""
    if isinstance(error, UnauthenticatedError):
        return ArenaAuthError(
            f"Agent endpoint returned 401 Unauthorized: {error.message}",
            sdk_hint="Pass api_key=, or set ARENA_API_KEY (or ARENA_ORG_KEY and ARENA_EXTERNAL_USER_ID).",
            cli_hint="Pass --token-file, or set ARENA_API_KEY (or ARENA_ORG_KEY and ARENA_EXTERNAL_USER_ID).",
            status_code=401,
        )
    if isinstance(error, PermissionDeniedError):
        message = "Your Arena credential is not allowed to use this deployment"
        return ArenaAuthError(f"{message}: {error.message}", status_code=403)
    if error.code in _OF_THE_CONNECTION and not error.reason:
        return ArenaInferenceError(f"Network error reaching agent endpoint: {error.message}")
    extras = {"Correlation id": error.correlation_id} if error.correlation_id else {}
    return ArenaInferenceError(error.message, status_code=_HTTP_STATUS.get(error.code, 500), extras=extras)
