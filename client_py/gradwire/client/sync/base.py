"""What all sync streams are: an async stream, read on the background loop.

Knows: iteration, `with`, and that breaking out of a `for` ends the call. Does not know: what the items are.
"""

from __future__ import annotations

from collections.abc import Coroutine, Iterator
from types import TracebackType
from typing import Any, Generic, Protocol, Self, TypeVar

from gradwire.client.sync.portal import Portal

Item = TypeVar("Item")
Item_co = TypeVar("Item_co", covariant=True)


class Async(Protocol[Item_co]):
    """The part of an async stream that its twin needs."""

    def __anext__(self) -> Coroutine[Any, Any, Item_co]: ...

    def __aenter__(self) -> Coroutine[Any, Any, object]: ...

    def cancel(self) -> None: ...


class Stream(Generic[Item]):
    """Items of a call, as they come. Errors of the call are raised where it is read."""

    _async: Async[Item]

    def __init__(self, stream: Async[Item], loop: Portal) -> None:
        self._async = stream
        self._loop = loop

    def __iter__(self) -> Iterator[Item]:
        return _Iteration(self)

    def __next__(self) -> Item:
        try:
            return self._loop.run(self._async.__anext__())
        except StopAsyncIteration:
            raise StopIteration from None

    def __enter__(self) -> Self:
        self._loop.run(self._async.__aenter__())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.cancel()

    def cancel(self) -> None:
        """Ends the call and frees its place in the engine. Cancelling what has ended is fine."""
        self._async.cancel()


class _Iteration(Generic[Item]):
    """What a `for` holds. Breaking out of the loop drops it, and so ends the call at once."""

    def __init__(self, stream: Stream[Item]) -> None:
        self._stream = stream

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Item:
        return next(self._stream)

    def __del__(self) -> None:
        self._stream.cancel()
