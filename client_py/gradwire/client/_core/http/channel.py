"""The channel: what grpc.aio.Channel is to the connection, over aiohttp.

Knows: requests, answers, deadlines and cancelling, which closes the call's connection and so ends the call on the
server. Does not know: messages. Each call under way has a connection of its own; idle ones are used again.
"""

from __future__ import annotations

import asyncio
import base64
import socket
import ssl
import urllib.request
import weakref
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import urlsplit

import aiohttp
import grpc
import grpc.aio

from gradwire.client._core.http.envelopes import END_OF_STREAM, Envelopes, envelope
from gradwire.client._core.http.failures import failed, failure_in, failure_of, too_large
from gradwire.client._core.transport import Metadata, StreamMethod, UnaryMethod, UploadMethod
from gradwire.client.config import KeepAliveConfig

_PROTO, _STREAM = "application/proto", "application/connect+proto"
_CONNECT_S = 20.0
_IDLE_S = 60.0  # less than a server keeps an idle connection
_ERROR_BYTES = 1 << 20
_AHEAD = 64  # messages that wait for their reader; then the server waits


class _Connector(aiohttp.TCPConnector):
    def __del__(self, *_: Any) -> None:
        """aiohttp's complains of a client that was not closed; the sockets close by themselves."""


class HttpChannel:
    """`base` is http://host:port. Belongs to the running loop."""

    def __init__(
        self, base: str, *, tls: ssl.SSLContext | None, server_name: str | None, local: bool, max_message_bytes: int,
        keepalive: KeepAliveConfig, user_agent: str,
    ) -> None:  # fmt: skip
        self._base = base
        self._server_name = server_name
        self._proxy = None if local else _proxy_for(base)
        self.limit = max_message_bytes
        self._streams: set[HttpStream] = set()
        self._closed = False
        connector = _Connector(
            limit=0, keepalive_timeout=_IDLE_S, ssl=tls if tls is not None else True, socket_factory=_sockets(keepalive)
        )
        self._session = aiohttp.ClientSession(
            connector=connector,
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=_CONNECT_S),
            headers={"user-agent": user_agent, "connect-protocol-version": "1", "accept-encoding": "identity"},
            auto_decompress=False,
            cookie_jar=aiohttp.DummyCookieJar(),
            read_bufsize=1 << 20,
        )
        weakref.finalize(self, self._session.detach)  # a client that is dropped, or a process that ends, is no mistake

    def unary_unary(self, method: str) -> UnaryMethod:
        """One message, one answer."""

        async def call(request: bytes, *, timeout: float | None = None, metadata: Metadata | None = None) -> bytes:
            self.check_size(request)
            async with self.request(method, request, _PROTO, timeout, metadata) as response:
                return await self.whole(response)

        return call

    def unary_stream(self, method: str) -> StreamMethod:
        """One message, a stream."""

        def call(request: bytes, *, timeout: float | None = None, metadata: Metadata | None = None) -> HttpStream:
            stream = HttpStream(self, method, request, timeout, metadata)
            self._streams.add(stream)
            return stream

        return call

    def stream_unary(self, method: str) -> UploadMethod:
        """A stream, one answer."""

        async def call(
            requests: Iterable[bytes], *, timeout: float | None = None, metadata: Metadata | None = None
        ) -> bytes:
            async with self.request(method, self._enveloped(requests), _STREAM, timeout, metadata) as response:
                envelopes = Envelopes(self.limit)
                messages = [message async for message in _messages(response, envelopes)]
            if len(messages) != 1:
                raise failed(grpc.StatusCode.INTERNAL, f"the answer has {len(messages)} messages where it has one")
            return messages[0]

        return call

    async def _enveloped(self, requests: Iterable[bytes]) -> AsyncIterator[bytes]:
        for request in requests:
            self.check_size(request)
            yield envelope(request)

    def check_size(self, request: bytes) -> None:
        """Raises AioRpcError for a message that the client was told not to send."""
        if len(request) > self.limit:
            raise too_large(len(request), self.limit, sent=True)

    @asynccontextmanager
    async def request(
        self, method: str, data: Any, content_type: str, timeout: float | None, metadata: Metadata | None
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        """An answer with status 200. Everything that goes wrong in the block, too, becomes an AioRpcError."""
        headers = {"content-type": content_type, **_headers(metadata)}
        if timeout is not None:
            headers["connect-timeout-ms"] = str(max(1, min(int(timeout * 1000), 9_999_999_999)))
        try:
            async with (
                asyncio.timeout(timeout),
                self._session.post(
                    self._base + method, data=data, headers=headers, proxy=self._proxy,
                    server_hostname=self._server_name, allow_redirects=False,
                ) as response,
            ):  # fmt: skip
                if response.status != 200:
                    raise failure_of(response.status, await response.content.read(_ERROR_BYTES))
                if response.content_type != content_type:
                    text = f"the answer is {response.content_type}, not {content_type}: is this a gradwire server?"
                    raise failed(grpc.StatusCode.UNKNOWN, text)
                yield response
        except TimeoutError as error:
            if isinstance(error, aiohttp.ClientError):  # connecting took too long
                raise failed(grpc.StatusCode.UNAVAILABLE, str(error)) from error
            raise failed(grpc.StatusCode.DEADLINE_EXCEEDED, "Deadline Exceeded") from None
        except (aiohttp.ClientError, ConnectionError) as error:
            if self._closed:
                raise failed(grpc.StatusCode.CANCELLED, "the client was closed") from None
            raise failed(grpc.StatusCode.UNAVAILABLE, str(error) or type(error).__name__) from error

    async def whole(self, response: aiohttp.ClientResponse) -> bytes:
        """The body of an answer, if it is not too large."""
        if response.content_length is not None and response.content_length > self.limit:
            raise too_large(response.content_length, self.limit, sent=False)
        data = bytearray()
        while chunk := await response.content.readany():
            data += chunk
            if len(data) > self.limit:
                raise too_large(None, self.limit, sent=False)
        return bytes(data)

    def forget(self, stream: HttpStream) -> None:
        """A stream has ended."""
        self._streams.discard(stream)

    async def close(self) -> None:
        """End all calls."""
        self._closed = True
        for stream in list(self._streams):
            stream.cancel()
        await self._session.close()


class HttpStream:
    """A server's stream. It begins at once, and one reader reads it.

    One task holds the connection from beginning to end, so that cancelling it is all that ending the call takes.
    """

    def __init__(
        self, channel: HttpChannel, method: str, request: bytes, timeout: float | None, metadata: Metadata | None
    ) -> None:
        self._channel = channel
        self._arrived: deque[bytes] = deque()
        self._wake = asyncio.Event()
        self._room = asyncio.Event()
        self._cancelled = False
        self._task = asyncio.ensure_future(self._receive(method, request, timeout, metadata))
        self._task.add_done_callback(self._ended)

    async def _receive(self, method: str, request: bytes, timeout: float | None, metadata: Metadata | None) -> None:
        self._channel.check_size(request)
        async with self._channel.request(method, envelope(request), _STREAM, timeout, metadata) as response:
            async for message in _messages(response, Envelopes(self._channel.limit)):
                self._arrived.append(message)
                self._wake.set()
                if len(self._arrived) >= _AHEAD:
                    self._room.clear()
                    await self._room.wait()

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._channel.forget(self)
        if not task.cancelled():
            task.exception()  # looked at: whoever reads raises it, and nobody has to read
        self._wake.set()

    async def read(self) -> Any:
        """Bytes of the next message; grpc.aio.EOF after the last. Raises AioRpcError."""
        while not self._arrived:
            if self._cancelled or self._task.done():
                return self._end()
            self._wake.clear()
            try:
                await self._wake.wait()
            except asyncio.CancelledError:
                self.cancel()
                raise
        self._room.set()
        return self._arrived.popleft()

    def _end(self) -> Any:
        if self._cancelled or self._task.cancelled():
            raise asyncio.CancelledError
        error = self._task.exception()
        if error is not None:
            raise error
        return grpc.aio.EOF

    def cancel(self) -> None:
        """End it; what has arrived and was not read is lost."""
        self._cancelled = True
        self._arrived.clear()
        self._task.cancel()
        self._wake.set()


async def _messages(response: aiohttp.ClientResponse, envelopes: Envelopes) -> AsyncIterator[bytes]:
    while chunk := await response.content.readany():
        envelopes.feed(chunk)
        while (found := envelopes.next()) is not None:
            flags, data = found
            if flags == END_OF_STREAM:
                if (error := failure_in(data)) is not None:
                    raise error
                while await response.content.readany():
                    pass  # to the end of the answer, so that its connection can be used again
                return
            yield data
    raise failed(grpc.StatusCode.UNAVAILABLE, "the connection closed before the stream's end")


def _headers(metadata: Metadata | None) -> dict[str, str]:
    """Metadata as headers; bytes in base64."""
    return {
        key: base64.b64encode(value).decode().rstrip("=") if isinstance(value, bytes) else value
        for key, value in metadata or ()
    }


def _proxy_for(base: str) -> str | None:
    """The proxy that the environment names for an address (https_proxy, no_proxy), as gRPC takes it."""
    parts = urlsplit(base)
    if urllib.request.proxy_bypass(parts.hostname or ""):
        return None
    return urllib.request.getproxies().get(parts.scheme)


def _sockets(keepalive: KeepAliveConfig) -> Callable[[Any], socket.socket]:
    """Makes sockets that notice a peer that is gone. TCP counts in whole seconds."""
    interval, timeout = max(1, round(keepalive.interval_s)), max(1, round(keepalive.timeout_s))
    options = {
        "TCP_KEEPIDLE": interval,
        "TCP_KEEPINTVL": max(1, timeout // 3),
        "TCP_KEEPCNT": 3,
        "TCP_USER_TIMEOUT": (interval + timeout) * 1000,
    }

    def make(info: Any) -> socket.socket:
        family, kind, protocol, *_ = info
        made = socket.socket(family, kind, protocol)
        made.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for name, value in options.items():
            if hasattr(socket, name):
                made.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
        return made

    return make
