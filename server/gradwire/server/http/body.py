"""The body of a request, read no faster than it is used and never beyond its cap.

A sender that stops, or drips, is given up: it would hold a place in the server for nothing.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from gradwire.server.errors import DeadlineExceeded
from gradwire.server.http.asgi import Receive
from gradwire.server.http.compression import inflate
from gradwire.server.http.refusals import too_large
from gradwire.server.rpc.interceptors.patience import SLOWEST


@dataclass(frozen=True, slots=True)
class BodyLimits:
    """What a body may take."""

    max_bytes: int
    patience_s: float
    """Seconds for a body, beyond which it must come at 16 KiB a second."""


class CallerLeft(asyncio.CancelledError):
    """The connection broke. To whoever serves the call it is a cancellation."""


class Body:
    """Reads with ASGI's `receive`. One read may take `patience_s`, and a second more for each 16 KiB of it."""

    def __init__(self, receive: Receive, *, limit: int, patience_s: float, gzipped: bool) -> None:
        self.limit = limit
        """Bytes that one message may have."""
        self.gzipped = gzipped
        self._receive = receive
        self._patience_s = patience_s
        self._ended = asyncio.Event()
        self._buffer = bytearray()
        self.left = False
        """The connection broke."""

    async def whole(self, announced: int | None) -> bytes:
        """All of it. `announced` is its Content-Length."""
        if announced is not None and announced > self.limit:
            raise too_large(announced, self.limit)
        await self._fill(self.limit + 1)
        if len(self._buffer) > self.limit:
            raise too_large(None, self.limit)
        data = await self.take(len(self._buffer))
        return await inflate(data, self.limit) if self.gzipped and data else data

    async def take(self, size: int) -> bytes:
        """The next `size` bytes; fewer where the body ends before."""
        await self._fill(size)
        data = bytes(memoryview(self._buffer)[:size])
        del self._buffer[: len(data)]
        return data

    async def _fill(self, size: int) -> None:
        """Read until `size` bytes lie ready or the body ends."""
        clock = asyncio.get_running_loop().time
        began = clock()
        while len(self._buffer) < size and not self._ended.is_set():
            allowed = began + self._patience_s + len(self._buffer) / SLOWEST
            try:
                async with asyncio.timeout_at(allowed):
                    message = await self._receive()
            except TimeoutError:
                raise DeadlineExceeded(
                    "BODY_TOO_SLOW", f"no whole message came within {allowed - began:.0f} s; send it faster"
                ) from None
            if message["type"] == "http.disconnect":
                self.left = True
                raise CallerLeft
            self._buffer += message.get("body", b"")
            if not message.get("more_body", False):
                self._ended.set()

    async def caller_leaves(self) -> None:
        """Returns when the connection breaks after the body was read."""
        await self._ended.wait()
        while (await self._receive())["type"] != "http.disconnect":
            pass
        self.left = True
