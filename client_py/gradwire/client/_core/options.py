"""Channel options, credentials and metadata, in gRPC's own words.

Knows: gRPC's option names; it ignores ones that are misspelt, so tests check what they do.
Does not know: calls.
"""

from __future__ import annotations

import os
import re
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import grpc

from gradwire.client._core.address import Address
from gradwire.client.config import KeepAliveConfig, TLSConfig

Option = tuple[str, str | int]
_KEY = re.compile("[a-z0-9_.-]+")


_TRUTHS = dict.fromkeys(("1", "true", "yes", "on", ""), True) | dict.fromkeys(("0", "false", "no", "off"), False)


@cache
def user_agent() -> str:
    """`gradwire-python/<version>`."""
    try:
        return f"gradwire-python/{version('gradwire')}"
    except PackageNotFoundError:
        return "gradwire-python/unknown"


def channel_options(
    address: Address,
    keepalive: KeepAliveConfig,
    max_message_bytes: int,
    server_name: str | None,
) -> list[Option]:
    """Options of the channel."""
    options: list[Option] = [
        ("grpc.primary_user_agent", user_agent()),
        ("grpc.max_receive_message_length", max_message_bytes),
        ("grpc.max_send_message_length", max_message_bytes),
        ("grpc.keepalive_time_ms", int(keepalive.interval_s * 1000)),
        ("grpc.keepalive_timeout_ms", int(keepalive.timeout_s * 1000)),
        # The one that counts: without it an unanswered ping ends the connection after a minute (gRPC 1.85).
        ("grpc.http2.ping_timeout_ms", int(keepalive.timeout_s * 1000)),
        ("grpc.keepalive_permit_without_calls", int(keepalive.without_calls)),
        # Without it the core sends two pings without data in between and then no more.
        ("grpc.http2.max_pings_without_data", 0),
        # A restarted server is found again at once: the core's own first wait is a second. (Its
        # min_reconnect_backoff_ms is left alone: in truth it limits how long connecting may take.)
        ("grpc.initial_reconnect_backoff_ms", 100),
        ("grpc.max_reconnect_backoff_ms", 2000),
        # A client's connection is its own: otherwise two clients of a process share one, and its fate.
        ("grpc.use_local_subchannel_pool", 1),
        # What was never sent is sent again by the core; all else is retried by `_core.retry`, which waits as long as
        # RetryInfo says, tries more than 5 times and sends again more than 256 KiB.
        ("grpc.enable_retries", 1),
    ]
    if address.local:
        options.append(("grpc.enable_http_proxy", 0))
    if address.unix:
        # The default is the escaped path, which some HTTP/2 servers refuse.
        options.append(("grpc.default_authority", "localhost"))
    if server_name:
        options.append(("grpc.ssl_target_name_override", server_name))
    return options


def credentials(tls: TLSConfig) -> grpc.ChannelCredentials:
    """TLS credentials. OSError when a file cannot be read."""
    return grpc.ssl_channel_credentials(
        root_certificates=pem(tls.root_certificates),
        private_key=pem(tls.client_key),
        certificate_chain=pem(tls.client_certificate),
    )


def pem(value: bytes | str | Path | None) -> bytes | None:
    """Bytes of a certificate or key that is given as such, or as the path of a file."""
    if value is None or isinstance(value, bytes):
        return value
    if isinstance(value, str) and "-----BEGIN" in value:
        return value.encode()
    return Path(value).read_bytes()


def bearer(token: str | None, address: Address, secure: bool) -> tuple[tuple[str, str], ...]:
    """Metadata that carries `token`. ValueError when it would travel in the clear."""
    if token is None:
        return ()
    if not token or not token.isascii() or not token.isprintable() or " " in token:
        raise ValueError("the token is empty or holds characters that no token has; pass the secret alone, unquoted")
    if not secure and not address.local:
        raise ValueError(
            f"a token would travel to {address.shown} in the clear. Connect with {address.secure_form} (or tls=), "
            "or reach the server over a loopback address, such as an SSH tunnel's"
        )
    return (("authorization", f"Bearer {token}"),)


def check_metadata(key: str, value: str | bytes) -> None:
    """ValueError that names the key, and never shows the value, if gRPC and HTTP cannot carry the two."""
    if not _KEY.fullmatch(key) or key.startswith("grpc-"):
        raise ValueError(f"metadata holds {key!r}; a key is of letters, digits, '-', '_' and '.', and not grpc-...")
    text = value.decode("latin-1") if isinstance(value, bytes) else value
    if not key.endswith("-bin") and not (text.isascii() and text.isprintable()):
        raise ValueError(
            f"metadata[{key!r}] holds a character that is not printable ASCII, such as a tab or a line's end; send "
            "other text percent-encoded, or as bytes under a key that ends in -bin"
        )


def wants_shared_memory(chosen: bool | None) -> bool:
    """`chosen`, or GRADWIRE_SHARED_MEMORY, or True. ValueError when that is neither true nor false."""
    if chosen is not None:
        return chosen
    text = os.environ.get("GRADWIRE_SHARED_MEMORY", "")
    if text.strip().lower() not in _TRUTHS:
        raise ValueError(f"GRADWIRE_SHARED_MEMORY is {text!r}; it is true or false")
    return _TRUTHS[text.strip().lower()]
