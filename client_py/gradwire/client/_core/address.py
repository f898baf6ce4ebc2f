"""Where the server is, from what a caller wrote.

Knows: `host:port`, `grpc://`, `grpcs://`, `http://`, `https://`, `unix://` and the environment's defaults.
Does not know: channels.
"""

from __future__ import annotations

import ipaddress
import os
from dataclasses import dataclass

DEFAULT_ADDRESS = "127.0.0.1:50051"
DEFAULT_PORT = 50051
_FORMS = (
    '"host:port", "grpc://host:port", "grpcs://host:port", "http://host:port", "https://host:port" or "unix:///path"'
)
_PORTS = {"grpc": DEFAULT_PORT, "grpcs": DEFAULT_PORT, "http": 80, "https": 443}


@dataclass(frozen=True, slots=True)
class Address:
    """A server's address, taken apart."""

    target: str
    """As gRPC names it; over HTTP the URL."""
    shown: str
    """As people write it."""
    tls: bool
    """The address itself asks for TLS (grpcs://)."""
    local: bool
    """Bytes stay on this machine: a loopback address or a Unix socket."""
    unix: bool = False
    """It is a Unix socket."""
    http: bool = False
    """Calls go by HTTP."""

    @property
    def secure_form(self) -> str:
        """The same place with TLS."""
        return f"https://{self.target.partition('://')[2]}" if self.http else f"grpcs://{self.shown}"


def parse_address(text: str | None) -> Address:
    """`text`, or GRADWIRE_ADDRESS, or 127.0.0.1:50051. ValueError names the forms that are understood."""
    text = (text or os.environ.get("GRADWIRE_ADDRESS") or DEFAULT_ADDRESS).strip()
    scheme, separator, rest = text.partition("://")
    if not separator:
        # "unix:path" has no slashes, and "host:port" has no scheme.
        scheme, rest = ("unix", text[5:]) if text.startswith("unix:") else ("grpc", text)
    if scheme == "unix":
        if not rest:
            raise ValueError(f"address {text!r} names no socket; write unix:///path/to/socket")
        return Address(f"unix:{rest}", f"unix://{rest}", tls=False, local=True, unix=True)
    if scheme not in _PORTS:
        raise ValueError(f"address {text!r} begins with {scheme}://; an address is {_FORMS}")
    host, port = _host_and_port(rest.rstrip("/"), text, _PORTS[scheme])
    shown_host = f"[{host}]" if ":" in host else host
    http = scheme in ("http", "https")
    shown = f"{scheme}://{shown_host}:{port}" if http else f"{shown_host}:{port}"
    return Address(shown, shown, tls=scheme in ("grpcs", "https"), local=_is_loopback(host), http=http)


def _host_and_port(rest: str, text: str, default: int) -> tuple[str, int]:
    if rest.startswith("["):
        host, _, after = rest[1:].partition("]")
        port = after.removeprefix(":")
    elif rest.count(":") > 1:
        host, port = rest, ""
    else:
        host, _, port = rest.partition(":")
    if not host or any(character in host for character in "/@ ?#"):
        raise ValueError(f"address {text!r} has no usable host; an address is {_FORMS}")
    if not port:
        return host, default
    if not port.isdigit() or not 1 <= int(port) <= 65535:
        raise ValueError(f"address {text!r} has port {port!r}; a port is a number from 1 to 65535")
    return host, int(port)


def _is_loopback(host: str) -> bool:
    return host.lower() == "localhost" or _is_loopback_number(host)


def _is_loopback_number(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def reachable(url: str, address: Address) -> str:
    """`url`, which a server at `address` gave of itself, with the host that this client calls it by.

    A host that stands for all, or for the server's own machine, says nothing to a client, nor to the certificate of
    the name it uses. Over HTTP the two are the same place. An empty URL stays empty.
    """
    if not url or address.unix:
        return url
    if address.http:
        return address.target.rstrip("/")
    scheme, _, rest = url.partition("://")
    host, _, port = rest.rpartition(":")
    ours = address.shown.rpartition(":")[0]
    if host in ("0.0.0.0", "[::]") or (_is_loopback(host.strip("[]")) and not _is_loopback_number(ours.strip("[]"))):
        return f"{scheme}://{ours}:{port}"
    return url  # of two numbers for this machine, the server knows which one it listens at
