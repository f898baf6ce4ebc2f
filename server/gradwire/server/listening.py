"""How the gRPC server listens: message sizes, keepalive, TLS."""

from __future__ import annotations

import grpc
from grpc import aio

from gradwire.server.addresses import is_loopback, split_address
from gradwire.server.config import MIB, Settings


def message_cap(settings: Settings) -> int:
    """Bytes of the largest message that is taken."""
    return settings.limits.max_message_bytes + MIB  # room for the fields around a full payload


def server_options(settings: Settings) -> list[tuple[str, int]]:
    """Of the gRPC server."""
    size = message_cap(settings)
    return [
        ("grpc.max_receive_message_length", size),
        ("grpc.max_send_message_length", size),
        ("grpc.so_reuseport", 0),  # a second server on the same port is a mistake, not a share
        # Long silent calls are normal here, and so are clients that ping during them.
        ("grpc.keepalive_permit_without_calls", 1),
        ("grpc.http2.max_ping_strikes", 0),
        ("grpc.http2.min_ping_interval_without_data_ms", 10_000),
    ]


def listen(server: aio.Server, settings: Settings) -> str:
    """Take the port; the address with its real one. OSError when it cannot be."""
    host, _ = split_address(settings.grpc)
    try:
        if settings.tls is None:
            assert is_loopback(host)  # Settings has refused everything else
            port = server.add_insecure_port(settings.grpc)
        else:
            port = server.add_secure_port(settings.grpc, _tls_credentials(settings))
    except RuntimeError as error:
        reason = "the port is taken, or not allowed; give another with --grpc HOST:PORT (port 0: a free one)"
        if settings.tls is not None:
            reason += "; or gRPC takes no certificate or key of the kind that [tls] names"
        raise OSError(f"cannot listen on {settings.grpc}: {reason}") from error
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _tls_credentials(settings: Settings) -> grpc.ServerCredentials:
    """From the PEM files that the settings name."""
    tls = settings.tls
    assert tls is not None
    client_ca = tls.client_ca.read_bytes() if tls.client_ca else None
    return grpc.ssl_server_credentials(
        [(tls.key.read_bytes(), tls.certificate.read_bytes())],
        root_certificates=client_ca,
        require_client_auth=client_ca is not None,
    )
