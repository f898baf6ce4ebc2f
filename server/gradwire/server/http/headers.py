"""What a request's headers, and its connection, say whatever API it is of."""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping

from gradwire.server.addresses import is_loopback


def content_type(headers: Mapping[str, str]) -> str:
    """Without parameters such as charset."""
    return headers.get("content-type", "").partition(";")[0].strip().lower()


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


def names_this_host(headers: Mapping[str, str]) -> bool:
    """The Host header is a loopback name.

    A web page can make a browser call a name of its own that leads to 127.0.0.1 (DNS rebinding): Host is that name.
    """
    host = headers.get("host", "")
    name = host[1:].partition("]")[0] if host.startswith("[") else host.partition(":")[0]
    return not host or is_loopback(name)
