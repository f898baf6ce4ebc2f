"""Streams of requests that are answered in turn, for as long as the client goes on asking.

Knows: when such a stream ends by itself, and that it does so only while it waits: what was not read was not looked at.
Does not know: what is asked.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from dataclasses import dataclass
from typing import Any

IDLE_S = 60.0


class RequestStreams:
    """All of a servicer's. Belongs to the event loop that first reads."""

    def __init__(self, idle_s: float = IDLE_S) -> None:
        """A stream ends that waits for a request for `idle_s` seconds."""
        self._idle_s = idle_s
        self._open: set[_Waiting] = set()
        self._dismissed = False

    def dismiss(self) -> None:
        """The server shuts down: each stream ends as soon as it waits for a request."""
        self._dismissed = True
        for waiting in self._open:
            waiting.end()

    async def each(self, requests: AsyncIterator[Any]) -> AsyncGenerator[Any, None]:
        """The requests, until the client or this end has enough. Close it, as with `aclosing`."""
        task = asyncio.current_task()
        assert task is not None
        waiting = _Waiting(task)
        self._open.add(waiting)
        timer = self._look_at(waiting)
        try:
            while not self._dismissed:
                try:
                    message = await waiting.next_of(requests)
                except asyncio.CancelledError:
                    if not waiting.ended or task.uncancel() > 0:
                        raise
                    return
                except StopAsyncIteration:
                    return
                yield message
        finally:
            self._open.discard(waiting)
            timer.cancel()

    def _look_at(self, waiting: _Waiting) -> _Timer:
        """One timer a stream: a timeout around each wait would cost as much as the wait."""
        timer = _Timer()
        loop = asyncio.get_running_loop()

        def look() -> None:
            idle = loop.time() - waiting.since if waiting.since is not None else 0.0
            if idle >= self._idle_s:
                waiting.end()
            else:
                timer.handle = loop.call_later(self._idle_s - idle, look)

        look()
        return timer


@dataclass(eq=False, slots=True)
class _Waiting:
    """A stream, and since when it waits for a request (the loop's clock); None while it answers one."""

    task: asyncio.Task[Any]
    since: float | None = None
    ended: bool = False

    async def next_of(self, requests: AsyncIterator[Any]) -> Any:
        self.since = asyncio.get_running_loop().time()
        try:
            return await anext(requests)
        finally:
            self.since = None

    def end(self) -> None:
        """Nothing happens to a stream that is answering."""
        if self.since is not None and not self.ended:
            self.ended = True
            self.task.cancel()


@dataclass(slots=True)
class _Timer:
    handle: asyncio.TimerHandle | None = None

    def cancel(self) -> None:
        if self.handle is not None:
            self.handle.cancel()
