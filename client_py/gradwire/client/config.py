"""How a client connects, retries and stays connected: one frozen dataclass per concern.

Knows: names, units and defaults. Does not know: gRPC's own option names (`_core.options` does).
"""

from __future__ import annotations

from dataclasses import dataclass
from numbers import Integral, Real
from os import PathLike
from pathlib import Path
from types import NoneType

from gradwire.client._core.arguments import check

_LONGEST_S = 2_000_000
"""gRPC's options are milliseconds in 32 bits."""


@dataclass(frozen=True, slots=True)
class RetryConfig:
    """When and how often a call that got UNAVAILABLE is sent again.

    Only calls that are safe to repeat are: reads, and mutating calls that carry a request id. A wait that
    the server asks for (RetryInfo) comes before the backoff of this configuration. The call's deadline
    bounds all attempts together.
    """

    max_attempts: int = 5
    """Attempts in all, the first included. 1 never retries."""
    initial_backoff_s: float = 0.1
    """Wait before the second attempt, in seconds; a random part of a fifth is added or taken."""
    max_backoff_s: float = 5.0
    """Longest wait between attempts, in seconds."""
    backoff_multiplier: float = 2.0
    """Each wait is this many times the one before."""

    def __post_init__(self) -> None:
        check(self.max_attempts, "max_attempts", Integral, "a whole number")
        for name in ("initial_backoff_s", "max_backoff_s", "backoff_multiplier"):
            check(getattr(self, name), name, Real, "a number")
        if self.max_attempts < 1:
            raise ValueError(f"max_attempts is {self.max_attempts}; it must be at least 1 (1 never retries)")
        if not 0 < self.initial_backoff_s <= self.max_backoff_s:
            raise ValueError("initial_backoff_s must be above 0 and at most max_backoff_s")
        if not self.backoff_multiplier >= 1:  # NaN is not
            raise ValueError(f"backoff_multiplier is {self.backoff_multiplier}; it must be at least 1")


@dataclass(frozen=True, slots=True)
class KeepAliveConfig:
    """Pings that notice a dead connection during a long silent call. Over HTTP they are TCP's, in whole seconds."""

    interval_s: float = 30.0
    """A ping after this long without traffic, in seconds."""
    timeout_s: float = 15.0
    """The connection counts as dead when a ping is unanswered for this long, in seconds."""
    without_calls: bool = False
    """Ping even while no call is under way."""

    def __post_init__(self) -> None:
        check(self.without_calls, "without_calls", bool, "True or False")
        for name in ("interval_s", "timeout_s"):
            seconds = getattr(self, name)
            check(seconds, name, Real, "a number")
            if not 0 < seconds <= _LONGEST_S:
                raise ValueError(f"{name} is {seconds}; it is in seconds, above 0 and at most {_LONGEST_S}")


@dataclass(frozen=True, slots=True)
class TLSConfig:
    """TLS of the connection. Each certificate and key is PEM: bytes, or the path of a file."""

    root_certificates: bytes | str | Path | None = None
    """Certificates that the server's must descend from. Default: the ones that gRPC ships; over HTTP the system's."""
    client_certificate: bytes | str | Path | None = None
    """The caller's certificate chain, for mutual TLS. Needs client_key."""
    client_key: bytes | str | Path | None = None
    """The caller's private key. Needs client_certificate."""
    server_name: str | None = None
    """Name expected in the server's certificate. Default: the address's host."""

    def __post_init__(self) -> None:
        for name in ("root_certificates", "client_certificate", "client_key"):
            kinds = (bytes, str, PathLike, NoneType)
            check(getattr(self, name), name, kinds, "PEM: bytes, or the path of a file", secret=True)
        check(self.server_name, "server_name", (str, NoneType), "text")
        if (self.client_certificate is None) != (self.client_key is None):
            raise ValueError("client_certificate and client_key belong together: give both, or neither")

    def __repr__(self) -> str:
        mutual = self.client_certificate is not None
        return f"TLSConfig(server_name={self.server_name!r}, mutual={mutual})"
