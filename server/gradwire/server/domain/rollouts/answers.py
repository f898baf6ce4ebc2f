"""Answers kept for a client that may send the same request again: it is served once, and told the same twice."""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from typing import Any

from gradwire.server.errors import AlreadyExists, Unavailable


@dataclass(frozen=True, slots=True)
class Key:
    """Names a request. `strict`: the same name with another content is a mistake, and not another request."""

    name: str
    content: str
    strict: bool


def key_of(headers: Mapping[str, str], request_id: str, endpoint: str, body: Mapping[str, Any]) -> Key | None:
    """By Idempotency-Key, else by the request id that the client gave; None for a client that gives neither."""
    text = json.dumps([endpoint, body], sort_keys=True, ensure_ascii=False)
    content = hashlib.sha256(text.encode()).hexdigest()
    name = headers.get("idempotency-key", "")[:256]
    if name:
        return Key(f"key:{name}", content, strict=True)
    if headers.get("x-request-id") == request_id:
        return Key(f"id:{request_id}:{content}", content, strict=False)
    return None


class Answer:
    """The answer to one request, as far as it has come. Whole, or as lines of a stream."""

    def __init__(self, key: Key) -> None:
        self.key = key
        self.whole: Mapping[str, Any] | None = None
        self.num_bytes = 0
        self._lines: list[str] = []
        self._ended = False
        self._error: Exception | None = None
        self._news = asyncio.Event()

    def put(self, answer: Mapping[str, Any]) -> None:
        """The whole answer."""
        self.whole = answer
        self.num_bytes = len(json.dumps(answer))
        self._tell()

    def add(self, line: str) -> None:
        """The next line of a stream."""
        self._lines.append(line)
        self.num_bytes += len(line)
        self._tell()

    def end(self, error: Exception | None = None) -> None:
        """It is complete, or was given up for `error`."""
        self._ended, self._error = True, error
        self._tell()

    @property
    def complete(self) -> bool:
        """Nothing is missing."""
        return self.whole is not None or (self._ended and self._error is None)

    async def again(self) -> Mapping[str, Any] | AsyncIterator[str]:
        """The same answer for another reader, who follows the first. Raises what the first one raised."""
        while self.whole is None and not self._lines and not self._ended:
            await self._news.wait()
        if self.whole is not None:
            return self.whole
        if self._error is not None:
            raise self._error
        return self._follow()

    async def _follow(self) -> AsyncIterator[str]:
        sent = 0
        while True:
            news = self._news
            while sent < len(self._lines):
                sent += 1
                yield self._lines[sent - 1]
            if self._ended:
                break
            await news.wait()
        if self._error is not None:
            raise self._error

    def _tell(self) -> None:
        self._news.set()
        self._news = asyncio.Event()


class Answers:
    """Those of a rollout. Only such as were given are kept: what failed is asked anew."""

    def __init__(self) -> None:
        self._kept: dict[str, Answer] = {}

    def find(self, key: Key | None) -> Answer | None:
        """That of the same request. AlreadyExists for another request of the same name."""
        kept = self._kept.get(key.name) if key is not None else None
        if kept is None or key is None:
            return None
        if kept.key.content != key.content:
            raise AlreadyExists("IDEMPOTENCY_KEY_REUSED", "this Idempotency-Key was sent with another request before")
        return kept

    def begin(self, key: Key) -> Answer:
        """Room for the answer to a new request."""
        answer = self._kept[key.name] = Answer(key)
        return answer

    def drop(self, answer: Answer, error: Exception | None) -> None:
        """It was given up, unless it was complete by then; whoever follows it is told so."""
        if answer.complete:
            return
        if self._kept.get(answer.key.name) is answer:
            del self._kept[answer.key.name]
        answer.end(error or Unavailable("FIRST_ATTEMPT_LEFT", "the attempt that was being served was given up"))

    def clear(self) -> int:
        """Forget all; the bytes that they took."""
        size = sum(answer.num_bytes for answer in self._kept.values())
        self._kept.clear()
        return size
