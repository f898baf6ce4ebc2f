"""The body of a request, read no faster than it is used and never beyond its cap.

A sender that stops, or drips, is given up: it would hold a place in the server for nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from gradwire.server.errors import DeadlineExceeded, InvalidArgument
from gradwire.server.http.connect.coding import COMPRESSED, END_OF_STREAM, PREFIX, inflate, too_large

Receive = Callable[[], Awaitable[Any]]
_SLOWEST = 16 << 10  # bytes a second, once the patience is used up


@dataclass(frozen=True, slots=True)
class BodyLimits:
    """What a body may take."""

    max_bytes: int
    patience_s: float
    """Seconds for a body, beyond which it must come at 16 KiB a second."""


class CallerLeft(asyncio.CancelledError):
    """The connection broke. To whoever serves the call it is a cancellation."""


class Body:
    """Reads with ASGI's `receive`. A message may take `patience_s`, and a second more for each 16 KiB of it."""

    def __init__(self, receive: Receive, *, limit: int, patience_s: float, gzipped: bool) -> None:
        self._receive = receive
        self._limit = limit
        self._patience_s = patience_s
        self._gzipped = gzipped
        self._ended = asyncio.Event()
        self._buffer = bytearray()
        self.left = False
        """The connection broke."""

    async def whole(self, announced: int | None) -> bytes:
        """All of it as one message. `announced` is its Content-Length."""
        if announced is not None and announced > self._limit:
            raise too_large(announced, self._limit)
        await self._fill(self._limit + 1)
        if len(self._buffer) > self._limit:
            raise too_large(None, self._limit)
        data = bytes(self._buffer)
        self._buffer.clear()
        return await inflate(data, self._limit) if self._gzipped and data else data

    async def messages(self) -> AsyncIterator[bytes]:
        """Each envelope's message."""
        while await self._fill(PREFIX.size):
            if len(self._buffer) < PREFIX.size:
                raise _truncated()
            flags, size = PREFIX.unpack_from(self._buffer)
            if size > self._limit:
                raise too_large(size, self._limit)
            self._check(flags)
            await self._fill(PREFIX.size + size)
            data = bytes(memoryview(self._buffer)[PREFIX.size : PREFIX.size + size])
            if len(data) < size:
                raise _truncated()
            del self._buffer[: PREFIX.size + size]
            yield await inflate(data, self._limit) if flags & COMPRESSED else data

    def _check(self, flags: int) -> None:
        if flags & ~(COMPRESSED | END_OF_STREAM) or (flags & COMPRESSED and not self._gzipped):
            text = (
                f"an envelope has flags {flags:#x}; 0 is a message, and 1 a gzipped one after Connect-Content-Encoding"
            )
            raise InvalidArgument.at("", text, reason="BAD_ENVELOPE")
        if flags & END_OF_STREAM:
            raise InvalidArgument.at(
                "", "a request has no end-of-stream envelope; it ends with its body", reason="BAD_ENVELOPE"
            )

    async def _fill(self, size: int) -> bool:
        """Read until `size` bytes lie ready or the body ends; whether any do."""
        clock = asyncio.get_running_loop().time
        began = clock()
        while len(self._buffer) < size and not self._ended.is_set():
            allowed = began + self._patience_s + len(self._buffer) / _SLOWEST
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
        return bool(self._buffer)

    async def caller_leaves(self) -> None:
        """Returns when the connection breaks after the body was read."""
        await self._ended.wait()
        while (await self._receive())["type"] != "http.disconnect":
            pass
        self.left = True


def _truncated() -> InvalidArgument:
    return InvalidArgument.at("", "the body ends in the middle of an envelope", reason="TRUNCATED_ENVELOPE")
