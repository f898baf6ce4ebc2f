"""`completions[i]` of an engine: a call that plain code, coroutines and threads make in the same words.

Knows: one server's /v1/completions, in the documented profile. Calls run on the client's own event loop, so that no
loop of the caller's is bound to them.
"""

from __future__ import annotations

import asyncio
import json
import logging
import uuid
from collections.abc import Coroutine, Generator, Iterator, Mapping
from concurrent.futures import Future
from typing import Any

from gradwire.client._core.extras import extra
from gradwire.client._core.loop import shared_loop
from gradwire.client.agentic.engine.deadline import remaining_s

log = logging.getLogger(__name__)

_RETRY_S = 1.0  # where the server names no time


class CompletionError(RuntimeError):
    """The server could not answer; nothing was wrong with the request. `status` is HTTP's, None without an answer."""

    def __init__(self, message: str, status: int | None = None) -> None:
        super().__init__(message)
        self.status = status


class Completion(Mapping[str, Any], Coroutine[Any, Any, dict[str, Any]]):
    """An answer under way: OpenAI's object to whoever reads keys (which waits), a coroutine to whoever awaits it.

    `await completion` and `completion.result()` give the dictionary itself. Both may be had several times, in any
    thread and event loop. Two completions are equal when they are the same call.
    """

    def __init__(self, future: Future[dict[str, Any]]) -> None:
        self._future = future
        self._waiting: Coroutine[Any, Any, dict[str, Any]] | None = None
        self._looked_at = False

    def result(self) -> dict[str, Any]:
        """The answer. Waits for it, and raises what went wrong; whatever interrupts the wait cancels the call."""
        self._looked_at = True
        try:
            return self._future.result()
        except BaseException:
            self._future.cancel()
            raise

    def cancel(self) -> bool:
        """Ends the call, and so frees its place in the engine."""
        return self._future.cancel()

    def __getitem__(self, key: str) -> Any:
        return self.result()[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self.result())

    def __len__(self) -> int:
        return len(self.result())

    # asyncio keeps what it waits for in sets; a mapping's own equality would wait for the answer there.
    __hash__ = object.__hash__

    def __eq__(self, other: object) -> bool:
        return self is other

    def __repr__(self) -> str:
        return f"<Completion {'done' if self._future.done() else 'under way'}>"

    async def _wait(self) -> dict[str, Any]:
        self._looked_at = True
        return await asyncio.wrap_future(self._future)

    def __await__(self) -> Generator[Any, Any, dict[str, Any]]:
        return self._wait().__await__()

    def send(self, value: Any) -> Any:
        """As of any coroutine; asyncio.run and tasks use it."""
        if self._waiting is None:
            self._waiting = self._wait()
        return self._waiting.send(value)

    def throw(self, kind: Any, value: Any = None, traceback: Any = None) -> Any:
        """As of any coroutine; a task that is cancelled uses it."""
        if self._waiting is None:
            self._waiting = self._wait()
        return self._waiting.throw(kind if value is None else value)

    def close(self) -> None:
        """As of any coroutine."""
        if self._waiting is not None:
            self._waiting.close()

    def __del__(self) -> None:
        if not self._looked_at:
            self._future.add_done_callback(_tell_of_failure)


def _tell_of_failure(future: Future[dict[str, Any]]) -> None:
    error = None if future.cancelled() else future.exception()
    if error is not None:
        log.warning("a completion failed and nobody looked at it: %s", error)


class Completions:
    """One server's completions, to be called with OpenAI's request.

    Args:
        address: "HOST:PORT", or with a path such as "HOST:PORT/jobs/3".
        token: the caller's, where the server asks for one.
        timeout_s: the most that a call takes, its retries included. A deadline around the call shortens it.
    """

    def __init__(self, address: str, *, token: str | None = None, timeout_s: float = 600.0) -> None:
        self.url = f"http://{address}/v1/completions"
        self._token = token
        self._timeout_s = timeout_s

    def __call__(self, request: Mapping[str, Any]) -> Completion:
        """Begins a call. The answer also has `token_ids` and `prompt_token_ids`, unless `return_token_ids` is false.

        Where the answer is read: ValueError for a request outside the documented ranges, TypeError for one that is
        no dictionary of JSON values, TimeoutError, and CompletionError when the server cannot be reached or fails.
        """
        return Completion(shared_loop().submit(self._call(request, remaining_s(self._timeout_s))))

    def __repr__(self) -> str:
        return f"<Completions of {self.url}>"

    async def _call(self, request: Mapping[str, Any], timeout_s: float | None) -> dict[str, Any]:
        body = _encoded(request)
        # The same id each time: the server knows a repeated call by it.
        headers = {
            "content-type": "application/json",
            "x-gradwire-profile": "documented",
            "x-request-id": uuid.uuid4().hex,
        }
        if self._token:
            headers["authorization"] = f"Bearer {self._token}"
        try:
            async with asyncio.timeout(timeout_s):
                return await self._post(body, headers)
        except TimeoutError:
            raise TimeoutError(f"{self.url} gave no answer within {timeout_s:.3g} s") from None

    async def _post(self, body: bytes, headers: dict[str, str]) -> dict[str, Any]:
        with extra("http", "an engine that asks for completions"):
            import aiohttp  # here: trajectories need no HTTP

        timeout = aiohttp.ClientTimeout(total=None)  # the one around this call counts
        async with aiohttp.ClientSession(timeout=timeout, cookie_jar=aiohttp.DummyCookieJar()) as session:
            while True:
                try:
                    async with session.post(self.url, data=body, headers=headers, allow_redirects=False) as response:
                        content = await response.read()
                except aiohttp.ClientError as error:
                    raise CompletionError(f"{self.url} cannot be reached: {error}") from error
                if response.status == 200:
                    return self._decoded(content)
                if response.headers.get("x-should-retry") != "true":
                    raise self._failure(response.status, content)
                await asyncio.sleep(_seconds(response.headers.get("retry-after")))

    def _decoded(self, content: bytes) -> dict[str, Any]:
        try:
            answer = json.loads(content)
        except ValueError as error:
            raise CompletionError(f"{self.url} answers with what is no JSON: {content[:200]!r}", 200) from error
        if not isinstance(answer, dict):
            raise CompletionError(f"{self.url} answers with a JSON {type(answer).__name__}, not an object", 200)
        return answer

    def _failure(self, status: int, content: bytes) -> Exception:
        try:
            text = str(json.loads(content)["error"]["message"])
        except (ValueError, KeyError, TypeError):
            text = content[:500].decode(errors="replace") or "no reason is given"
        if status in (400, 422):
            return ValueError(f"Input validation failed: {text}")
        return CompletionError(f"{self.url} answers {status}: {text}", status)


def _encoded(request: Mapping[str, Any]) -> bytes:
    if not isinstance(request, Mapping) or not all(isinstance(key, str) for key in request):
        raise TypeError(f"a request is a dictionary with string keys, got {type(request).__name__}")
    if request.get("stream"):
        raise ValueError("Input validation failed: completions give whole answers; a stream is to be had over HTTP")
    return json.dumps({"return_token_ids": True, **request}).encode()


def _seconds(text: str | None) -> float:
    try:
        return max(0.0, float(text)) if text else _RETRY_S
    except ValueError:
        return _RETRY_S  # a date, which only a proxy between would write
