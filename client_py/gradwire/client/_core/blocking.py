"""Calls that block their thread, over gRPC's own blocking channel.

For calls of which microseconds count: the way over the background loop and back costs more than all the rest of the
client. A sub-client on a BlockingConnection has the methods that it always has, but nothing in them waits: `at_once`
runs them without a loop. Knows: deadlines and retries, as `connection` has them. Does not know: streams of answers to
one request, HTTP.
"""

from __future__ import annotations

import math
import os
import threading
import time
from collections.abc import Callable, Coroutine, Iterator
from typing import Any, TypeVar

import grpc

from gradwire.client._core.attempts import Attempts
from gradwire.client._core.opening import Endpoint
from gradwire.client._core.options import channel_options
from gradwire.client._core.rpc import Encoded, Request, Response, Rpc
from gradwire.client._core.shared import SegmentPool
from gradwire.client._core.status import deadline_passed, error_from_rpc, stream_ended
from gradwire.client._core.turns import BlockingTurns
from gradwire.client.config import RetryConfig
from gradwire.client.errors import GradwireError

T = TypeVar("T")


def at_once(work: Coroutine[Any, Any, T]) -> T:
    """The result of a coroutine in which nothing waits. RuntimeError when something does."""
    try:
        work.send(None)
    except StopIteration as done:
        return done.value
    work.close()
    raise RuntimeError("a call that was to block waited for a loop instead")


class BlockingConnection:
    """A channel of its own to a gRPC endpoint, opened by the first call. Several threads may use it."""

    def __init__(
        self,
        endpoint: Endpoint,
        retry: RetryConfig,
        deadline: Callable[[float | None], float | None],
        segments: SegmentPool,
    ) -> None:
        """`deadline` gives the seconds of a call for the timeout that it names."""
        self._endpoint = endpoint
        self._retry = retry
        self.deadline = deadline
        self.segments = segments
        self._channel: grpc.Channel | None = None
        self._streams: dict[str, BlockingTurns] = {}
        self._lock = threading.Lock()
        self._closed = False
        self._pid = os.getpid()

    async def unary(
        self,
        rpc: Rpc[Request, Response],
        request: Request | Encoded,
        *,
        timeout: float | None = None,
        repeatable: bool | None = None,
        begun: Callable[[], None] | None = None,
    ) -> Response:
        """As `Connection.unary`, a coroutine by form alone: it blocks."""
        data = request.SerializeToString()

        def attempt(remaining: float | None) -> Response:
            if begun is not None:
                begun()
            return self._call(rpc, data, remaining)

        safe = rpc.repeatable if repeatable is None else repeatable
        return self._repeat(attempt, Attempts(rpc, request, safe, self._retry), timeout)

    def turns(self, rpc: Rpc[Request, Response], wanted: bool | None) -> bool:
        """As `Connection.turns`; not said otherwise, those that follow one another closely take turns."""
        turns = self._turns(rpc.path)
        suit = turns.suit()
        return suit if wanted is None else wanted and not turns.refused

    def refuse_turns(self, rpc: Rpc[Request, Response], seconds: float = math.inf) -> None:
        """As `Connection.refuse_turns`."""
        self._turns(rpc.path).refuse(seconds)

    async def in_turn(
        self, rpc: Rpc[Request, Response], request: Request, *, timeout: float | None = None, repeatable: bool
    ) -> Response:
        """As `Connection.in_turn`, a coroutine by form alone: it blocks."""
        data = request.SerializeToString()
        turns = self._turns(rpc.path)

        def attempt(remaining: float | None) -> Response:
            try:
                answer = turns.ask(data, remaining)
            except TimeoutError as error:
                raise deadline_passed(rpc.path, self._endpoint.address.shown) from error
            except grpc.RpcError as error:
                raise error_from_rpc(error, rpc.path, self._endpoint.address.shown) from error  # type: ignore[arg-type]
            if answer is None:
                raise stream_ended(rpc.path)
            return rpc.response.FromString(answer)

        return self._repeat(attempt, Attempts(rpc, request, repeatable, self._retry), timeout)

    def _turns(self, path: str) -> BlockingTurns:
        self._check_process()  # an open stream would wait for threads that are not here
        turns = self._streams.get(path)
        if turns is None:

            def begin(requests: Iterator[bytes]) -> Any:
                method: Callable[..., Any] = self._open().stream_stream(path)
                return method(requests, metadata=self._endpoint.metadata)

            turns = self._streams[path] = BlockingTurns(begin)
        return turns

    def _repeat(self, attempt: Callable[[float | None], T], attempts: Attempts, timeout: float | None) -> T:
        limit = self.deadline(timeout)
        end = math.inf if limit is None else time.monotonic() + limit
        while True:
            try:
                return attempt(None if limit is None else max(end - time.monotonic(), 0.001))
            except GradwireError as error:
                wait = attempts.failed(error, end - time.monotonic())
                if wait is None:
                    raise
            time.sleep(wait)

    def close(self) -> None:
        """Cancels what is under way and closes the channel. Closing again is fine."""
        with self._lock:
            self._closed = True
            channel, self._channel = self._channel, None
        for turns in self._streams.values():
            turns.close()
        if channel is not None:
            channel.close()

    def _call(self, rpc: Rpc[Request, Response], data: bytes, timeout: float | None) -> Response:
        call: Callable[..., bytes] = self._open().unary_unary(rpc.path)
        try:
            answer = call(data, timeout=timeout, metadata=self._endpoint.metadata)
        except grpc.RpcError as error:
            # It has what the asynchronous error has: code(), details(), trailing_metadata().
            raise error_from_rpc(error, rpc.path, self._endpoint.address.shown) from error  # type: ignore[arg-type]
        return rpc.response.FromString(answer)

    def _check_process(self) -> None:
        if os.getpid() != self._pid:
            raise RuntimeError("this process was forked from one that used a gradwire client; start it by spawn")

    def _open(self) -> grpc.Channel:
        self._check_process()
        with self._lock:
            if self._closed:
                raise RuntimeError("this client is closed; make a new one")
            if self._channel is None:
                end = self._endpoint
                options = channel_options(end.address, end.keepalive, end.max_message_bytes, end.server_name)
                if end.credentials is None:
                    self._channel = grpc.insecure_channel(end.address.target, options=options)
                else:
                    assert isinstance(end.credentials, grpc.ChannelCredentials)
                    self._channel = grpc.secure_channel(end.address.target, end.credentials, options=options)
            return self._channel
