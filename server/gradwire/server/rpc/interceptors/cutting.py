"""Calls that are cut off while they are served: the caller learns why, which grpc.aio's own end of all calls does not
tell.

Knows tasks. Does not know gRPC.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import TracebackType
from typing import Any

from gradwire.server.errors import GradwireError

_PATIENCE_S = 1.0  # with what a call does last


class CutError(Exception):
    """In place of the cancellation by which a call was cut off."""

    def __init__(self, why: GradwireError) -> None:
        super().__init__(why.message)
        self.why = why


class CallsUnderWay:
    """Those of a door whose calls have a task each."""

    def __init__(self, why: Callable[[], GradwireError]) -> None:
        self._why = why
        self._tasks: set[asyncio.Task[Any]] = set()
        self._cut: set[asyncio.Task[Any]] = set()

    def told_why(self) -> _Told:
        """Around what serves a call, in its task: raises CutError when the call is cut off."""
        return _Told(self)

    async def cut(self) -> None:
        """Cancel all of them; returns when they have ended, or after a second."""
        self._cut = set(self._tasks)
        for task in self._cut:
            task.cancel()
        if self._cut:
            await asyncio.wait(self._cut, timeout=_PATIENCE_S)

    def begin(self, task: asyncio.Task[Any]) -> None:
        """A call is served from now on."""
        self._tasks.add(task)

    def end(self, task: asyncio.Task[Any]) -> GradwireError | None:
        """Why it was cut off, if it was."""
        self._tasks.discard(task)
        return self._why() if task in self._cut else None


class _Told:
    """(A generator as a context manager takes several times as long.)"""

    __slots__ = ("_calls", "_task")

    def __init__(self, calls: CallsUnderWay) -> None:
        self._calls = calls
        task = asyncio.current_task()
        assert task is not None
        self._task = task

    def __enter__(self) -> None:
        self._calls.begin(self._task)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        why = self._calls.end(self._task)
        if why is not None and isinstance(error, asyncio.CancelledError):
            self._task.uncancel()
            raise CutError(why) from error
