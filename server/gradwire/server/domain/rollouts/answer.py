"""The answer to one request, as far as it has come: made once, by a task of its own, and read by whoever asks."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any

from gradwire.server.domain.rollouts.calls import Call
from gradwire.server.domain.rollouts.requests import Request


class Answer:
    """Whole, or as lines of a stream. `hold` is told how many more bytes are kept."""

    def __init__(self, request: Request, hold: Callable[[int], None]) -> None:
        self.request = request
        self.names: set[str] = set()  # that it was asked for by
        self.retries = request.retries  # of the last attempt that asked for it
        self.whole: Mapping[str, Any] | None = None
        self.num_readers = 0
        self.lost = False  # it had readers, none of whom got it
        self.delivered = False  # some reader is known to have it
        self.taken = asyncio.Event()  # it went out, whole, to some reader
        self.task: asyncio.Task[None] | None = None  # makes it
        self._hold: Callable[[int], None] | None = hold
        self._num_bytes = 0
        self._call: Call | None = None
        self._lines: list[str] = []
        self._ended = False
        self._error: Exception | None = None
        self._news = asyncio.Event()
        self._begun = asyncio.Event()  # a reader of its lines had some of them, or is about to
        self._awaited = asyncio.Event()  # unset: it is lost, and waits
        self._awaited.set()
        self._timer: asyncio.TimerHandle | None = None

    # Making

    def records(self, call: Call) -> None:
        """It is recorded as this call."""
        self._call = call
        call.unread = self.lost

    def put(self, answer: Mapping[str, Any]) -> None:
        """The whole answer."""
        self.whole = answer
        self._keep(len(json.dumps(answer)))
        self._tell()

    def add(self, line: str) -> None:
        """The next line of a stream."""
        self._lines.append(line)
        self._keep(len(line))
        self._tell()

    def end(self, error: Exception | None = None) -> None:
        """It is complete, or was given up for `error`."""
        self._ended, self._error = True, error
        self._tell()

    @property
    def complete(self) -> bool:
        """Nothing is missing."""
        return self.whole is not None or (self._ended and self._error is None)

    @property
    def can_wait(self) -> bool:
        """Whether it may be given to another reader when one has lost it: nobody can have used any of it.

        But where the client gave a key it says itself which request is the same.
        """
        untouched = not self.request.streamed or not self._begun.is_set()
        return not self.delivered and (self.complete or untouched or self.request.keyed)

    async def begun(self) -> None:
        """Returns when its lines are being read, by one who did not lose them."""
        await self._begun.wait()

    # Reading

    async def again(self) -> Mapping[str, Any] | AsyncIterator[str]:
        """The same answer for each reader, who follows its making. Raises what ended that."""
        while self.whole is None and not self._lines and not self._ended:
            await self._news.wait()
        if self.whole is not None:
            return self.whole
        if self._error is not None:
            raise self._error
        self._begun.set()
        return self._follow()

    async def _follow(self) -> AsyncIterator[str]:
        sent = 0
        while True:
            news = self._news
            while sent < len(self._lines):
                sent += 1
                yield self._lines[sent - 1]
            if self._ended:
                break
            await news.wait()
        if self._error is not None:
            raise self._error

    def _tell(self) -> None:
        self._news.set()
        self._news = asyncio.Event()

    # Waiting for a reader

    def claim(self, retries: int | None, turn: Callable[[], int]) -> None:
        """It has one more reader, of an attempt of this count. `turn` is now, in the order of the rollout."""
        self.num_readers += 1
        self.lost = False
        if retries is not None:
            self.retries = retries
        if self._call is not None:
            self._call.unread = False
            if self._call.ended is not None:
                self._call.ended = turn()  # what began meanwhile was asked before this was had
        self._stop_timer()
        self._awaited.set()

    def lose(self, until: asyncio.TimerHandle) -> None:
        """Nobody has it; it waits for another reader until the timer says otherwise."""
        self._stop_timer()
        self._timer = until
        self.lost = True
        self._awaited.clear()
        self._begun.clear()
        if self._call is not None:
            self._call.unread = True

    def expire(self, then: asyncio.TimerHandle) -> None:
        """It has gone out, and is forgotten soon."""
        self._stop_timer()
        self._timer = then

    async def rest(self) -> None:
        """Returns at once, or when it waits no more."""
        await self._awaited.wait()

    def give_up(self) -> None:
        """Nobody will read it: end its making."""
        self._stop_timer()
        if self.task is not None:
            self.task.cancel()
        self.lost = False
        self._awaited.set()

    def release(self) -> None:
        """It is kept no more, and waits for nobody."""
        self._stop_timer()
        self.lost = False
        self._awaited.set()
        if self._hold is not None:
            self._hold(-self._num_bytes)
        self._hold = None

    def _keep(self, size: int) -> None:
        self._num_bytes += size
        if self._hold is not None:
            self._hold(size)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
