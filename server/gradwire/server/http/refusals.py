"""Why a request is refused before it reaches a call, whatever API it is of."""

from __future__ import annotations

from gradwire.server.errors import InvalidArgument, PermissionDenied, ResourceExhausted


def foreign_name() -> PermissionDenied:
    """The Host header names another host, and nobody needs a token here."""
    return PermissionDenied(
        "FOREIGN_HOST",
        "without tokens this server answers only to loopback names in the Host header, such as localhost; "
        "web pages could reach it by other names. Start it without insecure_no_auth to call it by another",
    )


def wrong_verb(verbs: str) -> InvalidArgument:
    """The path takes other HTTP methods."""
    return InvalidArgument.at("", f"this path takes {verbs}", reason="WRONG_METHOD")


def too_large(size: int | None, limit: int) -> ResourceExhausted:
    """A message above the server's cap. `size` in bytes where it is known."""
    has = f"has {size} bytes" if size is not None else "has more bytes than that"
    return ResourceExhausted(
        "MESSAGE_TOO_LARGE",
        f"the message {has}; this server takes at most {limit} in one (limits.max_message_bytes). "
        "Send a large batch in chunks with TrainingService.UploadBatch",
    )
