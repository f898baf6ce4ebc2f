"""grpc.health.v1 Check, with its two messages written by hand.

Knows: that protocol's bytes (a string field 1 asked, an enum field 1 answered). The package that has them,
grpcio-health-checking, is the server's.
"""

from __future__ import annotations

from enum import StrEnum

from gradwire.client._core.varint import varint

CHECK = "/grpc.health.v1.Health/Check"


class Health(StrEnum):
    """Health of a service."""

    UNKNOWN = "unknown"
    SERVING = "serving"
    NOT_SERVING = "not_serving"
    SERVICE_UNKNOWN = "service_unknown"


def encode_check(service: str) -> bytes:
    """A HealthCheckRequest."""
    name = service.encode()
    return b"\x0a" + varint(len(name)) + name if name else b""


def decode_check(data: bytes) -> Health:
    """Status of a HealthCheckResponse; a value that is not known reads as UNKNOWN."""
    status = data[1] if len(data) >= 2 and data[0] == 0x08 else 0
    known = list(Health)
    return known[status] if status < len(known) else Health.UNKNOWN
