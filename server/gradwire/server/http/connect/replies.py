"""The three forms of an answer: one message, envelopes, server-sent events.

A reply is written by one task at a time, and every reply ends exactly once.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

from google.protobuf.message import Message
from google.rpc import status_pb2

from gradwire.server.http.asgi import Send
from gradwire.server.http.connect.coding import Coding, encode, json_bytes
from gradwire.server.http.connect.envelopes import END_OF_STREAM, envelope
from gradwire.server.http.connect.failures import error_json
from gradwire.server.http.status import http_status


class Reply(ABC):
    """Writes with ASGI's `send`."""

    content_type: str

    def __init__(self, send: Send, coding: Coding) -> None:
        self._send = send
        self._coding = coding
        self._started = False

    @abstractmethod
    async def message(self, message: Message) -> None:
        """Send a message of the answer."""

    @abstractmethod
    async def end(self) -> None:
        """End it well."""

    @abstractmethod
    async def fail(self, status: status_pb2.Status) -> None:
        """End it with an error."""

    async def _start(self) -> None:
        if not self._started:
            self._started = True
            headers = [(b"content-type", self.content_type.encode()), (b"cache-control", b"no-store")]
            await self._send({"type": "http.response.start", "status": 200, "headers": headers})

    async def _write(self, data: bytes, *, more: bool) -> None:
        await self._start()
        await self._send({"type": "http.response.body", "body": data, "more_body": more})


class UnaryReply(Reply):
    """One message, or an error object with an HTTP status of its own."""

    def __init__(self, send: Send, coding: Coding) -> None:
        super().__init__(send, coding)
        self.content_type = f"application/{coding.name}"

    async def message(self, message: Message) -> None:
        data = await encode(self._coding, message)
        self._started = True
        await send_whole(self._send, 200, self.content_type, data)

    async def end(self) -> None:
        """The message was the end."""

    async def fail(self, status: status_pb2.Status) -> None:
        if not self._started:
            self._started = True
            await send_failure(self._send, status)


class EnvelopeReply(Reply):
    """Envelopes, the last of which says how the call ended; the HTTP status is always 200."""

    def __init__(self, send: Send, coding: Coding) -> None:
        super().__init__(send, coding)
        self.content_type = f"application/connect+{coding.name}"

    async def message(self, message: Message) -> None:
        await self._write(envelope(await encode(self._coding, message)), more=True)

    async def end(self) -> None:
        await self._write(envelope(b"{}", END_OF_STREAM), more=False)

    async def fail(self, status: status_pb2.Status) -> None:
        await self._write(envelope(json_bytes({"error": error_json(status)}), END_OF_STREAM), more=False)


class EventReply(Reply):
    """Server-sent events, for terminals and browsers: `data:` lines, then `event: end` or `event: error`."""

    content_type = "text/event-stream"

    async def message(self, message: Message) -> None:
        await self._write(b"data: " + await encode(self._coding, message) + b"\n\n", more=True)

    async def end(self) -> None:
        await self._write(b"event: end\ndata: {}\n\n", more=False)

    async def fail(self, status: status_pb2.Status) -> None:
        if not self._started:
            self._started = True
            await send_failure(self._send, status)
            return
        await self._write(b"event: error\ndata: " + json_bytes(error_json(status)) + b"\n\n", more=False)


async def send_failure(
    send: Send, status: status_pb2.Status, *, http: int | None = None, headers: tuple[tuple[bytes, bytes], ...] = ()
) -> None:
    """A whole answer that is an error object. `http` replaces the HTTP status that goes with the code."""
    body = json_bytes(error_json(status))
    await send_whole(send, http or http_status(status.code), "application/json", body, headers)


async def send_whole(
    send: Send, status: int, content_type: str, body: bytes, headers: tuple[tuple[bytes, bytes], ...] = ()
) -> None:
    """An answer in one piece."""
    own = [(b"content-type", content_type.encode()), (b"content-length", str(len(body)).encode()), *headers]
    await send({"type": "http.response.start", "status": status, "headers": own})
    await send({"type": "http.response.body", "body": body, "more_body": False})
