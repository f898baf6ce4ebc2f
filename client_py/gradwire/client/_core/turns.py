"""Streams on which each request is answered before the next is sent: for asyncio, and for a thread that blocks.

On one there is no call to begin and to end each time. Knows: that a stream may end between two requests, and that one
which fails, or whose answer nobody waited for, is not used again. Does not know: retries, nor what the bytes mean.
"""

from __future__ import annotations

import asyncio
import math
import queue
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import grpc
import grpc.aio

from gradwire.client._core.alarm import Alarm
from gradwire.client._core.countdown import Countdown

_CLOSELY_S = 1.0
_ENDED_MEANWHILE = "Internal error from Core"
"""What grpc.aio says when the call ends while it begins to write: nothing was sent (grpc issue 36066)."""


class Turns:
    """For one event loop. Begun by the first request, and anew by the next when it has ended."""

    def __init__(self, begin: Callable[[], Any]) -> None:
        """`begin` begins a call of grpc.aio that writes and reads bytes."""
        self._begin = begin
        self._call: Any = None
        self._lock = asyncio.Lock()

    async def ask(self, data: bytes) -> bytes | None:
        """The answer, in this caller's turn; None when a new stream, too, ended without a look at the request.

        Raises grpc.aio.AioRpcError.
        """
        async with self._lock:
            if self._call is not None and not self._call.done():
                answer = await self._try(data)
                if answer is not None:
                    return answer
            self._call = self._begin()
            return await self._try(data)

    async def _try(self, data: bytes) -> bytes | None:
        call, self._call = self._call, None
        try:
            answer = await _asked(call, data)
        except BaseException:
            call.cancel()
            raise
        if not isinstance(answer, bytes):
            return None
        self._call = call
        return answer


async def _asked(call: Any, data: bytes) -> Any:
    try:
        await call.write(data)
    except asyncio.InvalidStateError:
        pass  # it has ended; reading says how
    except grpc.aio.AioRpcError as error:
        if error.code() is grpc.StatusCode.INTERNAL and error.details() == _ENDED_MEANWHILE:
            return None
        raise
    return await call.read()


class BlockingTurns:
    """For threads. One of them asks at a time."""

    def __init__(self, begin: Callable[[Iterator[bytes]], Any]) -> None:
        """`begin` begins a blocking call that sends what the iterator gives, and is an iterator of the answers."""
        self._begin = begin
        self._stream: _Stream | None = None
        self._lock = threading.Lock()
        self._asked = -math.inf
        self._refused_until = -math.inf

    def suit(self) -> bool:
        """Whether a request of now should take its turn: it follows another closely, and nobody else is asking."""
        before, self._asked = self._asked, time.monotonic()
        return self._asked - before < _CLOSELY_S and not self.refused and not self._lock.locked()

    @property
    def refused(self) -> bool:
        """The server has no such method, or had no room for another stream a moment ago."""
        return time.monotonic() < self._refused_until

    def refuse(self, seconds: float) -> None:
        """No request suits for so long."""
        self._refused_until = time.monotonic() + seconds

    def ask(self, data: bytes, timeout: float | None) -> bytes | None:
        """The answer; None when a new stream, too, ended without a look at the request.

        Raises grpc.RpcError, and TimeoutError after `timeout` seconds, those that it waited for its turn included.
        """
        left = Countdown(timeout).left
        # Python's locks wait for no longer than TIMEOUT_MAX (292 years).
        if not self._lock.acquire(timeout=min(left(), threading.TIMEOUT_MAX)):
            raise TimeoutError
        try:
            if self._stream is not None and self._stream.active:
                answer = self._try(self._stream, data, left())
                if answer is not None:
                    return answer
            return self._try(_Stream(self._begin), data, left())
        finally:
            self._lock.release()

    def _try(self, stream: _Stream, data: bytes, timeout: float) -> bytes | None:
        self._stream = stream  # so that `close` finds it
        answer = None
        try:
            answer = stream.ask(data, timeout)
        finally:
            if answer is None or stream.late:
                self._stream = None
                stream.drop()
        return answer

    def close(self) -> None:
        """Ends the stream, in the middle of a turn too."""
        stream = self._stream
        if stream is not None:
            stream.drop()


class _Stream:
    """One call. gRPC's threads send what is put into the queue."""

    def __init__(self, begin: Callable[[Iterator[bytes]], Any]) -> None:
        self._requests: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        self._call = begin(iter(self._requests.get, None))
        self._alarm = Alarm(self._ring)
        self.late = False
        # Otherwise the thread that waits for the next request waits for ever.
        weakref.finalize(self, self._requests.put, None).atexit = False

    @property
    def active(self) -> bool:
        """It had not ended when last heard of."""
        return bool(self._call.is_active())

    def ask(self, data: bytes, timeout: float) -> bytes | None:
        if timeout < math.inf:
            self._alarm.set(timeout)
        self._requests.put(data)
        try:
            answer: bytes | None = next(self._call, None)
        except grpc.RpcError:
            if self.late:
                raise TimeoutError from None
            raise
        finally:
            self._alarm.clear()
        return answer

    def drop(self) -> None:
        """End the call."""
        self._call.cancel()
        self._requests.put(None)

    def _ring(self) -> None:
        self.late = True
        self._call.cancel()
