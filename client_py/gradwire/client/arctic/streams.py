"""Streams of an ArcticRL client, readable from any event loop."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Coroutine
from types import TracebackType
from typing import Any, Self

from gradwire.client.aio.streams import AsyncSampleStream
from gradwire.client.arctic.results import Result, delta_result, generate_results

Run = Callable[[Coroutine[Any, Any, Any]], Coroutine[Any, Any, Any]]


class ArcticRLStream:
    """Deltas of one prompt's completions. Leaving `async with`, or `cancel()`, ends the call."""

    def __init__(self, begin: Callable[[], AsyncSampleStream], run: Run) -> None:
        self._begin = begin
        self._run = run
        self._stream: AsyncSampleStream | None = None

    def __aiter__(self) -> AsyncIterator[Result]:
        return self._deltas()

    async def _deltas(self) -> AsyncIterator[Result]:
        try:
            while True:
                try:
                    yield await self.__anext__()
                except StopAsyncIteration:
                    return
        finally:
            # Breaking out of the loop ends the call; after its end this does nothing.
            await self.cancel()

    async def __anext__(self) -> Result:
        delta = await self._run(self._next())
        if delta is None:
            raise StopAsyncIteration
        return delta_result(delta)

    async def result(self) -> Result:
        """Reads to the end; what `generate` returns for the prompt, deltas already read included."""
        (result,) = generate_results(await self._run(self._result()))
        return result

    async def cancel(self) -> None:
        """Ends the call and frees its place in the engine. Cancelling what has ended is fine."""
        if self._stream is not None:
            await self._run(self._cancel())

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.cancel()

    def _open(self) -> AsyncSampleStream:
        if self._stream is None:
            self._stream = self._begin()
        return self._stream

    async def _next(self) -> Any:
        # A StopAsyncIteration cannot leave a coroutine.
        try:
            return await self._open().__anext__()
        except StopAsyncIteration:
            return None

    async def _result(self) -> Any:
        return await self._open().result()

    async def _cancel(self) -> None:
        if self._stream is not None:
            self._stream.cancel()
