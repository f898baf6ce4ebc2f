"""Where a deployment is, from what a caller wrote: the server's address, and the deployment's name as its path.

Knows: `grpc://host:port/NAME` and its kin. Does not know: connections.
"""

from __future__ import annotations

from dataclasses import dataclass
from types import NoneType
from urllib.parse import unquote

from gradwire.client._core.address import parse_address
from gradwire.client._core.arguments import check


@dataclass(frozen=True, slots=True)
class Place:
    """A deployment on a server."""

    shown: str
    """The endpoint as it was written, without a slash at its end."""
    address: str
    """Of the server, as `AsyncClient` takes it."""
    deployment: str
    """Name of the deployment; empty for the server's only one."""


def parse_endpoint(endpoint: str, deployment: str = "") -> Place:
    """`grpc://`, `grpcs://`, `http://`, `https://` or no scheme, HOST[:PORT][/NAME]; or `unix:///PATH`.

    Of a longer path the last part is the name, so that the base URL of Arena's HTTP door is an endpoint too.
    ValueError, without the text where it may hold a secret.
    """
    check(endpoint, "endpoint", str, "text, such as grpc://HOST:PORT/DEPLOYMENT")
    check(deployment, "deployment", str, "text")
    text = endpoint.strip()
    scheme, separator, rest = text.partition("://")
    if scheme == "unix" or text.startswith("unix:"):
        return Place(text, text, deployment)
    if not separator:
        scheme, rest = "", text
    authority, _, path = rest.partition("/")
    if "@" in authority:
        raise ValueError("the endpoint holds a user or password; pass credentials as api_key= or org_key=")
    if not authority or "?" in text or "#" in text:
        raise ValueError(f"endpoint {text!r} is not like grpc://HOST:PORT/DEPLOYMENT or https://HOST:PORT/DEPLOYMENT")
    named = unquote(path.rstrip("/").rpartition("/")[2])
    if named and deployment and named != deployment:
        raise ValueError(f"endpoint {text!r} names deployment {named!r}, and deployment= names {deployment!r}")
    return Place(text.rstrip("/"), f"{scheme}{separator}{authority}", named or deployment)


def server_url(address: str | None) -> str:
    """A server's address with its scheme and port; default as `AsyncClient` has it. ValueError as it raises."""
    check(address, "base_url", (str, NoneType), "text, such as grpc://HOST:PORT")
    found = parse_address(address)
    return found.shown if found.http or found.unix else f"{'grpcs' if found.tls else 'grpc'}://{found.shown}"
