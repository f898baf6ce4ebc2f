"""Streams of requests that are answered in turn, for as long as the client goes on asking.

Knows: when such a stream ends by itself, and that it does so only while it waits: what was not read was not looked at.
Does not know: what is asked.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

IDLE_S = 60.0


class RequestStreams:
    """All of a servicer's. Belongs to the event loop that first reads."""

    def __init__(self, idle_s: float = IDLE_S) -> None:
        """A stream ends that waits for a request for `idle_s` seconds."""
        self.idle_s = idle_s
        self.dismissed = False
        self.open: set[RequestStream] = set()

    def dismiss(self) -> None:
        """The server shuts down: each stream ends as soon as it waits for a request."""
        self.dismissed = True
        for stream in self.open:
            stream.end()

    def each(self, requests: AsyncIterator[Any]) -> RequestStream:
        """`with` it as `stream`, `async for` gives the requests, until the client or this end has enough."""
        return RequestStream(self, requests)


class RequestStream:
    """One. (Generators in each other would cost each message as much as looking at it.)"""

    def __init__(self, streams: RequestStreams, requests: AsyncIterator[Any]) -> None:
        self._streams = streams
        self._next = requests.__anext__
        self._loop = asyncio.get_running_loop()
        self._task = asyncio.current_task()
        self._since: float | None = None  # by the loop's clock: it waits for a request; None while it answers one
        self._ended = False
        self._timer: asyncio.TimerHandle | None = None

    def __enter__(self) -> RequestStream:
        self._streams.open.add(self)
        self._look()
        return self

    def __exit__(self, *_: object) -> None:
        self._streams.open.discard(self)
        if self._timer is not None:
            self._timer.cancel()

    def __aiter__(self) -> RequestStream:
        return self

    async def __anext__(self) -> Any:
        if self._streams.dismissed:
            raise StopAsyncIteration
        self._since = self._loop.time()
        try:
            return await self._next()
        except asyncio.CancelledError:
            assert self._task is not None
            if not self._ended or self._task.uncancel() > 0:
                raise
            raise StopAsyncIteration from None
        finally:
            self._since = None

    def end(self) -> None:
        """Nothing happens to a stream that is answering."""
        if self._since is not None and not self._ended:
            self._ended = True
            assert self._task is not None
            self._task.cancel()

    def _look(self) -> None:
        """One timer a stream: a timeout around each wait would cost as much as the wait."""
        idle = self._loop.time() - self._since if self._since is not None else 0.0
        if idle >= self._streams.idle_s:
            self.end()
        else:
            self._timer = self._loop.call_later(self._streams.idle_s - idle, self._look)
