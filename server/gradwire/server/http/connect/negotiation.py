"""What a request's headers ask for: the form of the bodies, the deadline, compression."""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from dataclasses import dataclass

from gradwire.server.addresses import is_loopback
from gradwire.server.errors import InvalidArgument
from gradwire.server.http.connect.coding import BINARY, JSON, Coding
from gradwire.server.http.connect.methods import Method
from gradwire.server.http.connect.replies import EnvelopeReply, EventReply, Reply, UnaryReply

_PROXIES = ("forwarded", "x-forwarded-for", "x-real-ip", "via")


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


def content_type(headers: Mapping[str, str]) -> str:
    """Without parameters such as charset."""
    return headers.get("content-type", "").partition(";")[0].strip().lower()


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


def announced_length(headers: Mapping[str, str]) -> int | None:
    """Content-Length; the HTTP parser has checked that it is a number."""
    text = headers.get("content-length")
    return int(text) if text is not None else None


def peer_of(client: tuple[str, int] | None) -> str:
    """The other end of the connection as gRPC writes it."""
    if client is None:
        return ""
    host, port = client
    try:
        version = ipaddress.ip_address(host.partition("%")[0]).version
    except ValueError:
        return ""
    return f"ipv4:{host}:{port}" if version == 4 else f"ipv6:[{host}]:{port}"


def is_forwarded(headers: Mapping[str, str]) -> bool:
    """A proxy sent the request: its own address says nothing of the caller."""
    return any(name in headers for name in _PROXIES)


def names_this_host(headers: Mapping[str, str]) -> bool:
    """The Host header is a loopback name.

    A web page can make a browser call a name of its own that leads to 127.0.0.1 (DNS rebinding): Host is that name.
    """
    host = headers.get("host", "")
    name = host[1:].partition("]")[0] if host.startswith("[") else host.partition(":")[0]
    return not host or is_loopback(name)
