"""One gRPC channel and the calls over it: deadlines, retries, metadata, and large messages off the loop.

Knows: bytes, statuses and time. Does not know: what any message means. The channel is opened by the first
call and belongs to the event loop of that call.
"""

from __future__ import annotations

import asyncio
import math
import random
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from typing import TypeVar

import grpc
import grpc.aio

from gradwire.client._core.address import Address
from gradwire.client._core.options import Option
from gradwire.client._core.rpc import Request, Response, Rpc
from gradwire.client._core.status import error_from_rpc
from gradwire.client._core.stream import ServerStream
from gradwire.client.config import RetryConfig
from gradwire.client.errors import GradwireError, UnavailableError

T = TypeVar("T")

OFFLOAD_BYTES = 4 * 1024 * 1024
"""Encoding and decoding of more than this runs in a thread: it takes milliseconds."""
_LONGEST_WAIT_S = 60.0


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Everything that opening the channel takes. Its repr shows no secret."""

    address: Address
    options: tuple[Option, ...]
    credentials: grpc.ChannelCredentials | None
    metadata: tuple[tuple[str, str], ...]

    def __repr__(self) -> str:
        return f"Endpoint({self.address.shown!r}, tls={self.credentials is not None})"


class Connection:
    """The channel. `timeout` is in seconds, for calls that name none; None waits without end."""

    def __init__(self, endpoint: Endpoint, retry: RetryConfig, timeout: float | None) -> None:
        self._endpoint = endpoint
        self._retry = retry
        self._timeout = check_timeout(timeout)
        self._channel: grpc.aio.Channel | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._closed = False

    @property
    def address(self) -> str:
        """The server's address, for people."""
        return self._endpoint.address.shown

    async def unary(
        self,
        rpc: Rpc[Request, Response],
        request: Request,
        *,
        timeout: float | None = None,
        repeatable: bool | None = None,
    ) -> Response:
        """Sends `request`, again on UNAVAILABLE where that is safe. `timeout` covers all attempts."""
        data = await offload(request.SerializeToString, request.ByteSize())

        async def attempt(remaining: float | None) -> Response:
            method: grpc.aio.UnaryUnaryMultiCallable[bytes, bytes] = self.channel().unary_unary(rpc.path)
            call = method(data, timeout=remaining, metadata=self._endpoint.metadata)
            return await self._answer(rpc, call)

        safe = rpc.repeatable if repeatable is None else repeatable
        return await self.repeat(attempt, safe, timeout)

    async def upload(
        self,
        rpc: Rpc[Request, Response],
        messages: Callable[[], Iterable[Request]],
        *,
        timeout: float | None = None,
    ) -> Response:
        """Streams `messages()` to the server; called anew for each attempt."""

        async def attempt(remaining: float | None) -> Response:
            data = (message.SerializeToString() for message in messages())
            method: grpc.aio.StreamUnaryMultiCallable[bytes, bytes] = self.channel().stream_unary(rpc.path)
            call = method(data, timeout=remaining, metadata=self._endpoint.metadata)
            return await self._answer(rpc, call)

        return await self.repeat(attempt, rpc.repeatable, timeout)

    def stream(
        self, rpc: Rpc[Request, Response], request: Request, *, timeout: float | None = None
    ) -> ServerStream[Response]:
        """Begins a server stream at once; the core of gRPC retries it until its first message."""
        method: grpc.aio.UnaryStreamMultiCallable[bytes, bytes] = self.channel().unary_stream(rpc.path)
        data = request.SerializeToString()
        call = method(data, timeout=self.deadline(timeout), metadata=self._endpoint.metadata)
        return ServerStream(call, rpc, self.address)

    async def repeat(
        self, attempt: Callable[[float | None], Awaitable[T]], repeatable: bool, timeout: float | None
    ) -> T:
        """Runs `attempt(seconds left)` until it succeeds, fails for good, or time or attempts run out."""
        clock = asyncio.get_running_loop().time
        limit = self.deadline(timeout)
        end = math.inf if limit is None else clock() + limit
        for number in range(1, self._retry.max_attempts + 1):
            try:
                return await attempt(None if limit is None else max(end - clock(), 0.001))
            except GradwireError as error:
                error.attempts = number
                wait = self._wait(error, number)
                again = repeatable and isinstance(error, UnavailableError) and number < self._retry.max_attempts
                if not again or wait > _LONGEST_WAIT_S or clock() + wait >= end:
                    raise
            await asyncio.sleep(wait)
        raise AssertionError("the last attempt returns or raises")

    def channel(self) -> grpc.aio.Channel:
        """The open channel. RuntimeError when the client is closed, or is another loop's."""
        if self._closed:
            raise RuntimeError("this client is closed; make a new one")
        loop = asyncio.get_running_loop()
        if self._channel is None:
            self._loop = loop
            end = self._endpoint
            if end.credentials is None:
                self._channel = grpc.aio.insecure_channel(end.address.target, options=end.options)
            else:
                self._channel = grpc.aio.secure_channel(end.address.target, end.credentials, options=end.options)
        elif self._loop is not loop:
            raise RuntimeError(
                "this AsyncClient was first used on another event loop and stays with it; "
                "make one AsyncClient for each loop, or use the sync Client"
            )
        return self._channel

    async def close(self) -> None:
        """Cancels what is under way and closes the channel. Closing again is fine."""
        self._closed = True
        channel, self._channel = self._channel, None
        if channel is not None:
            await channel.close()

    def deadline(self, timeout: float | None) -> float | None:
        """Seconds for a call: its own `timeout`, or the client's; None for no limit."""
        chosen = self._timeout if timeout is None else check_timeout(timeout)
        return None if chosen is None or math.isinf(chosen) else chosen

    async def _answer(self, rpc: Rpc[Request, Response], call: Awaitable[bytes]) -> Response:
        try:
            data = await call
        except grpc.aio.AioRpcError as error:
            raise error_from_rpc(error, rpc.path, self.address) from error
        return await offload(lambda: rpc.response.FromString(data), len(data))

    def _wait(self, error: GradwireError, number: int) -> float:
        if error.retry_after is not None:
            return error.retry_after
        grown = self._retry.initial_backoff_s * self._retry.backoff_multiplier ** (number - 1)
        return min(grown, self._retry.max_backoff_s) * random.uniform(0.8, 1.2)


async def offload(work: Callable[[], T], size: int) -> T:
    """`work()`, in a thread when it handles more than OFFLOAD_BYTES."""
    return await asyncio.to_thread(work) if size > OFFLOAD_BYTES else work()


def check_timeout(timeout: float | None) -> float | None:
    """`timeout` itself; ValueError unless it is None or above 0 (infinity means no limit)."""
    if timeout is not None and not timeout > 0:
        raise ValueError(f"timeout is {timeout!r}; it is in seconds and above 0 (math.inf for no limit)")
    return timeout
