"""One server stream on the wire.

Knows: reading, cancelling, beginning again, and that a stream nobody holds any more must be cancelled: grpc.aio
keeps an abandoned call alive for ever. Does not know: what the messages mean.
"""

from __future__ import annotations

import asyncio
import math
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic

import grpc
import grpc.aio

from gradwire.client._core.retry import wait_before_next
from gradwire.client._core.rpc import Request, Response, Rpc
from gradwire.client._core.status import FirstCause, error_from_rpc, short_name
from gradwire.client._core.transport import StreamCall
from gradwire.client.config import RetryConfig
from gradwire.client.errors import CallCancelledError


class ServerStream(Generic[Response]):
    """Messages of one call, read one by one. Dropping the last reference cancels the call.

    `begin(seconds left)` begins the call; again, as `retry` says, while it fails before its first message.
    """

    def __init__(
        self,
        begin: Callable[[float | None], StreamCall],
        rpc: Rpc[Request, Response],
        address: str,
        retry: RetryConfig,
        timeout: float | None,
    ) -> None:
        loop = asyncio.get_running_loop()
        self._begin = begin
        self._path = rpc.path
        self._parse = rpc.response.FromString
        self._address = address
        self._retry = retry
        self._clock = loop.time
        self._end = math.inf if timeout is None else loop.time() + timeout
        self._attempts = 1
        self._first = FirstCause()
        self._cancelled = False
        self._ended = False
        self._begun = False
        self._live = _Live(begin(timeout))
        self._cancel = weakref.finalize(self, _cancel_soon, self._live, loop)
        self._cancel.atexit = False

    async def read(self) -> Response | None:
        """The next message, None after the last. Raises GradwireError for a status other than OK."""
        if self._ended:
            return None
        try:
            data = await self._read()
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if self._cancelled and not (task and task.cancelling()):
                raise self._cancelled_error() from None
            raise
        if not isinstance(data, bytes):  # the end is an object of its own
            self._end_here()
            if self._cancelled:
                raise self._cancelled_error()
            return None
        self._begun = True
        return self._parse(data)

    async def _read(self) -> Any:
        while True:
            try:
                return await self._live.call.read()
            except grpc.aio.AioRpcError as failure:
                error = error_from_rpc(failure, self._path, self._address)
                error.attempts = self._attempts
                self._first.tell(error)
                left = self._end - self._clock()
                wait = None if self._begun else wait_before_next(self._retry, error, self._attempts, left)
                if wait is None or self._cancelled:
                    self._end_here()
                    raise error from failure
            self._live.pause = asyncio.ensure_future(asyncio.sleep(wait))
            await self._live.pause
            self._attempts += 1
            left = self._end - self._clock()
            self._live.call = self._begin(None if math.isinf(left) else max(left, 0.001))

    def _end_here(self) -> None:
        self._ended = True
        self._cancel.detach()  # nothing is left to cancel

    def cancel(self) -> None:
        """Ends the call; may be called from any thread, and again."""
        if not self._ended:
            self._cancelled = True
            self._cancel()

    def _cancelled_error(self) -> CallCancelledError:
        return CallCancelledError("this stream was cancelled here", method=short_name(self._path))


@dataclass(slots=True)
class _Live:
    """What there is to cancel: the call, or the pause before the next."""

    call: StreamCall
    pause: asyncio.Future[None] | None = None

    def cancel(self) -> None:
        if self.pause is not None:
            self.pause.cancel()
        self.call.cancel()


def _cancel_soon(live: _Live, loop: asyncio.AbstractEventLoop) -> None:
    # A finalizer may run in any thread, and in the middle of anything: only the loop may touch the call.
    if not loop.is_closed():
        loop.call_soon_threadsafe(live.cancel)
