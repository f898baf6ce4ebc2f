"""Calls under way: each ends when its caller leaves, its time is over or the server closes, and so the engine's slot is
free again."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from enum import Enum, auto
from typing import Any

from gradwire.server.http.body import Body

_LAST_WORDS_S = 1.0


class Ending(Enum):
    """How a call ended."""

    OWN = auto()
    """By itself, or with its caller gone."""
    LATE = auto()
    """Its time was over, and the caller still waits."""
    CLOSED = auto()
    """By `close`, and the caller still waits."""


class Works:
    """The calls of one door."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[None]] = set()

    async def run(self, work: Coroutine[Any, Any, None], body: Body, *, seconds: float | None = None) -> Ending:
        """Run it to its end, or the caller's, for at most so many seconds."""
        loop = asyncio.get_running_loop()
        task = loop.create_task(work)
        leaving = loop.create_task(body.caller_leaves())
        self._tasks.add(task)
        try:
            await asyncio.wait({task, leaving}, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
            late = not task.done() and not body.left
            if not task.done():
                task.cancel()
                await asyncio.wait({task})
            if not task.cancelled() or body.left:
                return Ending.OWN
            return Ending.LATE if late else Ending.CLOSED
        finally:
            self._tasks.discard(task)
            task.cancel()
            leaving.cancel()

    async def close(self) -> None:
        """End the calls that are still under way."""
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(set(self._tasks), timeout=_LAST_WORDS_S)
