"""A reply as it comes: pieces of text to iterate over, and all the rest once it has ended.

Knows: that nothing is checked and nothing sent before the first piece is asked for. Does not know: what is checked.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from types import TracebackType
from typing import Self, TypeVar

from gradwire.client.aio.streams import AsyncReplyStream
from gradwire.client.arena.errors import ArenaInferenceError, arena_errors
from gradwire.client.arena.models import LLMCompletionResult, TokenUsage
from gradwire.client.arena.results import completion_of, usage_of
from gradwire.client.sync.base import Stream
from gradwire.client.types.sampling import StreamDelta

T = TypeVar("T")


class AsyncTextStream:
    """Pieces of a reply. Errors, of the arguments too, are raised where the first piece is read.

    The reply ends early by `cancel()`, by leaving its `async with`, and by being dropped.
    """

    def __init__(self, begin: Callable[[], Awaitable[AsyncReplyStream]], wait_s: float) -> None:
        """`wait_s` is the longest wait for a piece, in seconds."""
        self._begin = begin
        self._wait_s = wait_s
        self._stream: AsyncReplyStream | None = None

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> str:
        with arena_errors():
            stream = await self._begun()
            while True:
                text = (await self._next(stream)).text
                if text:  # none while a character, or what may be a stop string, is unfinished
                    return text

    async def __aenter__(self) -> Self:
        with arena_errors():
            await self._within(self._begun_and_answered())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.cancel()

    def cancel(self) -> None:
        """Ends the reply and frees its place in the engine; what came is kept in the session. Again is fine."""
        if self._stream is not None:
            self._stream.cancel()

    async def result(self) -> LLMCompletionResult:
        """Reads to the end; the same as `generate` gives, pieces already read included."""
        with arena_errors():
            stream = await self._begun()
            try:
                while True:
                    await self._next(stream)
            except StopAsyncIteration:
                return completion_of(await stream.result())

    @property
    def session_id(self) -> str:
        """Chat session that the reply belongs to, also when it is new; empty when nothing is stored.

        Known from the first piece on, and in `with`; RuntimeError before.
        """
        return self._known().session_id

    @property
    def num_dropped_messages(self) -> int:
        """Oldest messages of the session that did not fit into the context. Known when `session_id` is."""
        return self._known().num_dropped_messages

    @property
    def usage(self) -> TokenUsage:
        """Token counts. RuntimeError until the stream has been read to its end."""
        return usage_of(self._known().usage)

    async def _begun(self) -> AsyncReplyStream:
        if self._stream is None:
            self._stream = await self._begin()
        return self._stream

    async def _begun_and_answered(self) -> None:
        await (await self._begun()).__aenter__()

    async def _next(self, stream: AsyncReplyStream) -> StreamDelta:
        return await self._within(stream.__anext__())

    async def _within(self, work: Awaitable[T]) -> T:
        try:
            async with asyncio.timeout(self._wait_s) as limit:
                return await work
        except TimeoutError:
            self.cancel()
            if not limit.expired():
                raise  # the deadline of the whole call
            raise ArenaInferenceError(
                f"Network error reaching agent endpoint: nothing of the reply came for {self._wait_s:g} s; "
                "construct with a longer timeout="
            ) from None

    def _known(self) -> AsyncReplyStream:
        if self._stream is None:
            raise RuntimeError("the stream has not begun; read a piece of it first, or enter it with `with`")
        return self._stream


class TextStream(Stream[str]):
    """As AsyncTextStream, for plain code: an iterator of pieces."""

    _async: AsyncTextStream

    def __iter__(self) -> Self:
        """Itself, as an iterator is documented: leaving a `for` ends nothing, and another one goes on."""
        return self

    def result(self) -> LLMCompletionResult:
        """Reads to the end; the same as `generate` gives, pieces already read included."""
        return self._loop.run(self._async.result())

    @property
    def session_id(self) -> str:
        """As `AsyncTextStream.session_id`."""
        return self._async.session_id

    @property
    def num_dropped_messages(self) -> int:
        """As `AsyncTextStream.num_dropped_messages`."""
        return self._async.num_dropped_messages

    @property
    def usage(self) -> TokenUsage:
        """As `AsyncTextStream.usage`."""
        return self._async.usage
