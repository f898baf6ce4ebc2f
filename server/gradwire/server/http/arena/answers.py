"""Writes an answer with ASGI's `send`, once: JSON, nothing, or text as it comes."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from gradwire.server.errors import GradwireError
from gradwire.server.http.arena.errors import STREAM_ERROR, body_of, headers_of, marker_of, status_of
from gradwire.server.http.asgi import Send

Headers = Iterable[tuple[bytes, bytes]]


class Answer:
    """The answer of one request."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self._streams = False
        self._done = False

    async def json(self, content: Any, status: int = 200, headers: Headers = ()) -> None:
        """The whole answer."""
        text = json.dumps(content, ensure_ascii=False, separators=(",", ":"))
        data = text.encode(errors="backslashreplace")  # an error may quote half a character, which JSON writes so
        await self._whole(status, data, [(b"content-type", b"application/json"), *headers])

    async def json_bytes(self, data: bytes) -> None:
        """The whole answer, written already."""
        await self._whole(200, data, [(b"content-type", b"application/json")])

    async def nothing(self) -> None:
        """204: done, and there is nothing to say."""
        self._done = True
        await self._start(204, [])
        await self._send({"type": "http.response.body", "body": b""})

    async def begin_text(self, headers: Headers = ()) -> None:
        """Begin a text that is sent in parts. From now on errors are parts of it."""
        self._streams = True
        plain = (b"content-type", b"text/plain; charset=utf-8")
        await self._start(200, [plain, (b"x-accel-buffering", b"no"), *headers])

    async def text(self, part: str) -> None:
        """A part, which is a chunk of HTTP: clients look for an error at the beginning of each."""
        if part.startswith(STREAM_ERROR[:-1]):  # a model said so
            await self._part(part[:1])
            part = part[1:]
        if part:  # an empty chunk would be the last one
            await self._part(part)

    async def end(self) -> None:
        """The text is whole."""
        self._done = True
        await self._send({"type": "http.response.body", "body": b""})

    async def fail(self, error: GradwireError, status: int | None = None, headers: Headers = ()) -> None:
        """An error: the answer itself, or the last part of a text that has begun."""
        if self._done:
            return
        if self._streams:
            await self._part(marker_of(error))
            await self.end()
        else:
            await self.json(body_of(error), status or status_of(error), [*headers_of(error), *headers])

    async def _part(self, part: str) -> None:
        await self._send({"type": "http.response.body", "body": part.encode(), "more_body": True})

    async def _whole(self, status: int, data: bytes, headers: list[tuple[bytes, bytes]]) -> None:
        self._done = True
        await self._start(status, [(b"content-length", str(len(data)).encode()), *headers])
        await self._send({"type": "http.response.body", "body": data})

    async def _start(self, status: int, headers: list[tuple[bytes, bytes]]) -> None:
        always = (b"cache-control", b"no-store")
        await self._send({"type": "http.response.start", "status": status, "headers": [always, *headers]})
