"""Unary calls that block their thread, over gRPC's own blocking channel.

For calls of which microseconds count: the way over the background loop and back costs more than all the rest of the
client. A sub-client on a BlockingConnection has the methods that it always has, but nothing in them waits: `at_once`
runs them without a loop. Knows: deadlines and retries, as `connection` has them. Does not know: streams, HTTP.
"""

from __future__ import annotations

import math
import os
import threading
import time
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

import grpc

from gradwire.client._core.opening import Endpoint
from gradwire.client._core.options import channel_options
from gradwire.client._core.retry import wait_before_next
from gradwire.client._core.rpc import Encoded, Request, Response, Rpc
from gradwire.client._core.shared import SegmentPool
from gradwire.client._core.status import error_from_rpc
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
        limit = self.deadline(timeout)
        end = math.inf if limit is None else time.monotonic() + limit
        safe = rpc.repeatable if repeatable is None else repeatable
        retry = self._retry if safe else RetryConfig(max_attempts=1)
        number = 0
        while True:
            number += 1
            if begun is not None:
                begun()
            try:
                return self._attempt(rpc, data, None if limit is None else max(end - time.monotonic(), 0.001))
            except GradwireError as error:
                error.attempts = number
                wait = wait_before_next(retry, error, number, end - time.monotonic())
                if wait is None:
                    raise
            time.sleep(wait)  # noqa: ASYNC251  # there is no loop to hold up

    def close(self) -> None:
        """Cancels what is under way and closes the channel. Closing again is fine."""
        with self._lock:
            self._closed = True
            channel, self._channel = self._channel, None
        if channel is not None:
            channel.close()

    def _attempt(self, rpc: Rpc[Request, Response], data: bytes, timeout: float | None) -> Response:
        call: Callable[..., bytes] = self._open().unary_unary(rpc.path)
        try:
            answer = call(data, timeout=timeout, metadata=self._endpoint.metadata)
        except grpc.RpcError as error:
            # It has what the asynchronous error has: code(), details(), trailing_metadata().
            raise error_from_rpc(error, rpc.path, self._endpoint.address.shown) from error  # type: ignore[arg-type]
        return rpc.response.FromString(answer)

    def _open(self) -> grpc.Channel:
        if os.getpid() != self._pid:
            raise RuntimeError("this process was forked from one that used a gradwire client; start it by spawn")
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
