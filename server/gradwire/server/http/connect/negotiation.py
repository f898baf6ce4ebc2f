"""What a request asks of Connect by its headers: the form of the bodies, the deadline."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from gradwire.server.errors import InvalidArgument
from gradwire.server.http.connect.coding import BINARY, JSON, Coding
from gradwire.server.http.connect.methods import Method
from gradwire.server.http.connect.replies import EnvelopeReply, EventReply, Reply, UnaryReply


@dataclass(frozen=True, slots=True)
class Form:
    """How both bodies of a call are written."""

    coding: Coding
    reply: type[Reply]
    enveloped: bool  # the request's body


_UNARY = {"application/proto": Form(BINARY, UnaryReply, False), "application/json": Form(JSON, UnaryReply, False)}
_STREAM = {
    "application/connect+proto": Form(BINARY, EnvelopeReply, True),
    "application/connect+json": Form(JSON, EnvelopeReply, True),
}
_SERVER_STREAM = {**_STREAM, "application/json": Form(JSON, EventReply, False)}


def forms(method: Method) -> dict[str, Form]:
    """The content types that a method takes."""
    if not method.streams:
        return _UNARY
    return _STREAM if method.streams_requests else _SERVER_STREAM


def timeout_s(headers: Mapping[str, str]) -> float | None:
    """Seconds that the caller gives the call."""
    text = headers.get("connect-timeout-ms")
    if text is None:
        return None
    if not text.isascii() or not text.isdigit() or len(text) > 10:
        raise InvalidArgument.at(
            "", f"Connect-Timeout-Ms is {text[:40]!r}; it has at most 10 digits", reason="BAD_HEADER"
        )
    return int(text) / 1000


def check_version(headers: Mapping[str, str]) -> None:
    """Connect's version, where it is given."""
    version = headers.get("connect-protocol-version", "1")
    if version != "1":
        raise InvalidArgument.at("", f"Connect-Protocol-Version is {version[:40]!r}; it is 1", reason="BAD_HEADER")
