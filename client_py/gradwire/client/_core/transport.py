"""What a connection asks of a channel, whichever way it carries bytes.

Knows: the shape that grpc.aio's channel has and the one over HTTP has too. Both raise grpc.aio.AioRpcError with a
`grpc-status-details-bin` trailer, so that retries and errors are the same over both.
"""

from __future__ import annotations

from collections.abc import Awaitable, Iterable, Sequence
from typing import Any, Protocol

Metadata = Sequence[tuple[str, str]]


class StreamCall(Protocol):
    """One server's stream."""

    async def read(self) -> Any:
        """Bytes of the next message; at the end something that is not bytes."""
        ...

    def cancel(self) -> Any:
        """End it; a reader gets CancelledError."""
        ...


class UnaryMethod(Protocol):
    """Sends one message and awaits one."""

    def __call__(
        self, request: bytes, *, timeout: float | None = None, metadata: Metadata | None = None
    ) -> Awaitable[bytes]: ...


class StreamMethod(Protocol):
    """Sends one message and begins a stream."""

    def __call__(
        self, request: bytes, *, timeout: float | None = None, metadata: Metadata | None = None
    ) -> StreamCall: ...


class UploadMethod(Protocol):
    """Sends messages and awaits one."""

    def __call__(
        self, requests: Iterable[bytes], *, timeout: float | None = None, metadata: Metadata | None = None
    ) -> Awaitable[bytes]: ...


class Channel(Protocol):
    """A connection to one server. `timeout` is in seconds."""

    def unary_unary(self, method: str) -> UnaryMethod:
        """The call of a method, by its path."""
        ...

    def unary_stream(self, method: str) -> StreamMethod:
        """Of a method that streams its answer."""
        ...

    def stream_unary(self, method: str) -> UploadMethod:
        """Of a method that takes a stream."""
        ...

    async def close(self) -> None:
        """End all calls."""
        ...
