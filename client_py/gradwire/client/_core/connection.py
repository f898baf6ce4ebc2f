"""One channel and the calls over it: deadlines, retries, metadata, and large messages off the loop.

Knows: bytes, statuses and time. Does not know: what any message means, nor whether the channel is gRPC's or
HTTP's. The channel is opened by the first call and belongs to the event loop of that call.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator
from typing import Any, TypeVar, cast

import grpc.aio
from google.protobuf.message import Message

from gradwire.client._core.address import reachable
from gradwire.client._core.arguments import given
from gradwire.client._core.attempts import Attempts
from gradwire.client._core.blocking import BlockingConnection
from gradwire.client._core.opening import Endpoint
from gradwire.client._core.rpc import Encoded, Request, Response, Rpc
from gradwire.client._core.shared import SegmentPool
from gradwire.client._core.status import deadline_passed, error_from_rpc, stream_ended
from gradwire.client._core.stream import ServerStream
from gradwire.client._core.transport import Channel, StreamCall
from gradwire.client._core.turns import Turns
from gradwire.client.config import RetryConfig
from gradwire.client.errors import GradwireError

T = TypeVar("T")

_ENDLESS_S = 1e9
"""Thirty years and more: to gRPC, which counts in nanoseconds, much more than this is in the past."""
OFFLOAD_BYTES = 4 * 1024 * 1024
"""Encoding and decoding of more than this runs in a thread: it takes milliseconds."""


class Connection:
    """The channel. `timeout` is in seconds, for calls that name none; None waits without end."""

    def __init__(self, endpoint: Endpoint, retry: RetryConfig, timeout: float | None) -> None:
        self._endpoint = endpoint
        self._retry = retry
        self._timeout = check_timeout(timeout)
        self._channel: Channel | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._closed = False
        self._streams: dict[str, Turns] = {}
        self._without_turns: dict[str, float] = {}  # until when, by time.monotonic()
        self.segments = SegmentPool(endpoint.shared_memory and endpoint.address.local)
        """Shared memory for large tensors, where the server is on this host."""

    @property
    def address(self) -> str:
        """The server's address, for people."""
        return self._endpoint.address.shown

    def reachable(self, url: str) -> str:
        """A URL that the server gave of itself, with the host that this client knows it by."""
        return reachable(url, self._endpoint.address)

    async def unary(
        self,
        rpc: Rpc[Request, Response],
        request: Request | Encoded,
        *,
        timeout: float | None = None,
        repeatable: bool | None = None,
        begun: Callable[[], None] | None = None,
    ) -> Response:
        """Sends `request`, again on UNAVAILABLE where that is safe. `timeout` covers all attempts.

        `begun` is called at the beginning of each.
        """
        data = await offload(request.SerializeToString, request.ByteSize())

        async def attempt(remaining: float | None) -> Response:
            if begun is not None:
                begun()
            call = self.channel().unary_unary(rpc.path)(data, timeout=remaining, metadata=self._endpoint.metadata)
            return await self._answer(rpc, call)

        safe = rpc.repeatable if repeatable is None else repeatable
        return await self.repeat(attempt, rpc, request, timeout, safe=safe)

    async def upload(
        self,
        rpc: Rpc[Request, Response],
        messages: Callable[[], Iterable[Request]],
        *,
        timeout: float | None = None,
    ) -> Response:
        """Streams `messages()` to the server; called anew for each attempt. What they raise is raised here."""
        failed: list[Exception] = []

        def encoded() -> Iterator[bytes]:
            try:
                for message in messages():
                    yield message.SerializeToString()
            except Exception as error:
                failed.append(error)
                raise

        async def attempt(remaining: float | None) -> Response:
            call = self.channel().stream_unary(rpc.path)(encoded(), timeout=remaining, metadata=self._endpoint.metadata)
            try:
                return await self._answer(rpc, call)
            except (asyncio.CancelledError, GradwireError):
                if failed:  # the transport cancels the call then, or takes the server for gone
                    raise failed[0] from None
                raise

        return await self.repeat(attempt, rpc, None, timeout, safe=rpc.repeatable)

    def stream(
        self, rpc: Rpc[Request, Response], request: Request, *, timeout: float | None = None
    ) -> ServerStream[Response]:
        """Begins a server stream at once; until its first message it is sent again as `unary` is."""
        data = request.SerializeToString()

        def begin(remaining: float | None) -> StreamCall:
            return self.channel().unary_stream(rpc.path)(data, timeout=remaining, metadata=self._endpoint.metadata)

        retry = self._retry if rpc.repeatable else RetryConfig(max_attempts=1)
        return ServerStream(begin, rpc, self.address, retry, self.deadline(timeout))

    def turns(self, rpc: Rpc[Request, Response], wanted: bool | None) -> bool:
        """Whether a request goes by `in_turn`: where it is wanted, and the transport and the server have it."""
        refused = time.monotonic() < self._without_turns.get(rpc.path, -math.inf)
        return bool(wanted) and not self._endpoint.address.http and not refused

    def refuse_turns(self, rpc: Rpc[Request, Response], seconds: float = math.inf) -> None:
        """The server does not have this method, or no room for another stream: calls go by themselves for so long."""
        self._without_turns[rpc.path] = time.monotonic() + seconds

    async def in_turn(
        self, rpc: Rpc[Request, Response], request: Request, *, timeout: float | None = None, repeatable: bool
    ) -> Response:
        """Sends `request` on a stream that stays open, when those before it have been answered; again as `unary`."""
        data = request.SerializeToString()

        async def attempt(remaining: float | None) -> Response:
            turns = self._turns(rpc.path)
            try:
                async with asyncio.timeout(remaining):
                    answer = await turns.ask(data)
            except TimeoutError as error:
                raise deadline_passed(rpc.path, self.address) from error
            except grpc.aio.AioRpcError as error:
                raise error_from_rpc(error, rpc.path, self.address) from error
            if answer is None:
                raise stream_ended(rpc.path)
            return rpc.response.FromString(answer)

        return await self.repeat(attempt, rpc, request, timeout, safe=repeatable)

    def _turns(self, path: str) -> Turns:
        channel = cast(grpc.aio.Channel, self.channel())  # `turns` has seen to it
        turns = self._streams.get(path)
        if turns is None:
            turns = self._streams[path] = Turns(lambda: channel.stream_stream(path)(metadata=self._endpoint.metadata))
        return turns

    async def repeat(
        self,
        attempt: Callable[[float | None], Awaitable[T]],
        rpc: Rpc[Any, Any],
        request: Message | Encoded | None,
        timeout: float | None,
        *,
        safe: bool,
    ) -> T:
        """Runs `attempt(seconds left)` until it succeeds, fails for good, or time or attempts run out.

        It sends `request` (None: a stream of them) to `rpc`. One that is not `safe` is sent once.
        """
        clock = asyncio.get_running_loop().time
        limit = self.deadline(timeout)
        end = math.inf if limit is None else clock() + limit
        attempts = Attempts(rpc, request, safe, self._retry)
        while True:
            try:
                return await attempt(None if limit is None else max(end - clock(), 0.001))
            except GradwireError as error:
                wait = attempts.failed(error, end - clock())
                if wait is None:
                    raise
            except asyncio.CancelledError:
                task = asyncio.current_task()
                if not self._closed or (task and task.cancelling()):
                    raise
                raise attempts.closed() from None  # the channel cancels its calls; nobody has cancelled this task
            await asyncio.sleep(wait)

    def channel(self) -> Channel:
        """The open channel. RuntimeError when the client is closed, or is another loop's."""
        if self._closed:
            raise RuntimeError("this client is closed; make a new one")
        loop = asyncio.get_running_loop()
        if self._channel is None:
            self._loop = loop
            self._channel = self._endpoint.open()
        elif self._loop is not loop:
            raise RuntimeError(
                "this AsyncClient was first used on another event loop and stays with it; "
                "make one AsyncClient for each loop, or use the sync Client"
            )
        return self._channel

    def blocking(self) -> BlockingConnection | None:
        """A connection to the same place whose calls block; None over HTTP, which has none."""
        if self._endpoint.address.http:
            return None
        return BlockingConnection(self._endpoint, self._retry, self.deadline, self.segments)

    async def close(self) -> None:
        """Cancels what is under way and closes the channel. Closing again is fine."""
        self._closed = True
        self.segments.close()
        channel, self._channel = self._channel, None
        if channel is not None:
            await channel.close()

    def deadline(self, timeout: float | None) -> float | None:
        """Seconds for a call: its own `timeout`, or the client's; None for no limit."""
        chosen = self._timeout if timeout is None else check_timeout(timeout)
        return None if chosen is None or chosen > _ENDLESS_S else chosen

    async def _answer(self, rpc: Rpc[Request, Response], call: Awaitable[bytes]) -> Response:
        try:
            data = await call
        except grpc.aio.AioRpcError as error:
            raise error_from_rpc(error, rpc.path, self.address) from error
        return await offload(lambda: rpc.response.FromString(data), len(data))


async def offload(work: Callable[[], T], size: int) -> T:
    """`work()`, in a thread when it handles more than OFFLOAD_BYTES."""
    return await asyncio.to_thread(work) if size > OFFLOAD_BYTES else work()


def check_timeout(timeout: float | None, where: str = "timeout") -> float | None:
    """`timeout` itself, which errors call `where`.

    ValueError unless it is None or above 0 (infinity means no limit), TypeError for no number.
    """
    if timeout is None:
        return None
    try:
        if not isinstance(timeout, bool) and timeout > 0:
            return float(timeout)
        kind = TypeError if isinstance(timeout, bool) else ValueError
    except (TypeError, ValueError, RuntimeError, OverflowError) as error:
        kind = ValueError if isinstance(error, OverflowError) else TypeError
    raise kind(f"{where} is {given(timeout)}; it is in seconds and above 0 (math.inf for no limit)")
