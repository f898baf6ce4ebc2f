"""The door for OpenAI's clients: reads the body, runs the chain of steps around the sampler, writes JSON or events."""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any

from gradwire.server.domain.adapters import BASE, able
from gradwire.server.domain.caller import current_caller
from gradwire.server.domain.openai import answer
from gradwire.server.domain.registry import SamplingJob
from gradwire.server.domain.sampling import cache_salt
from gradwire.server.engines.openai import Endpoint, OpenAiCall
from gradwire.server.errors import GradwireError, InvalidArgument, NotFound, draining
from gradwire.server.http.asgi import Send
from gradwire.server.http.body import Body, BodyLimits
from gradwire.server.http.delivery import SCOPE_KEY, Delivery
from gradwire.server.http.headers import announced_length, names_this_host, peer_of
from gradwire.server.http.json_body import check_escapes, json_object, off_loop
from gradwire.server.http.openai.errors import body_of, headers_of, status_of
from gradwire.server.http.openai.paths import Target, rollout_of, target_of
from gradwire.server.http.openai.profiles import DOCUMENTED, PROFILES, READERS
from gradwire.server.http.openai.recording import Recorder
from gradwire.server.http.refusals import foreign_name, wrong_verb
from gradwire.server.http.works import Ending, Works
from gradwire.server.rpc.interceptors.errors import shown
from gradwire.server.rpc.interceptors.step import Call, Chain

_REQUEST_ID = re.compile(r"[A-Za-z0-9_.-]{1,128}")
_PROFILE_HEADER = "x-gradwire-profile"
_DONE = "data: [DONE]\n\n"


class OpenAiDoor:
    """An ASGI application. `count` is told how many tokens were sampled."""

    def __init__(
        self, recorder: Recorder, chain: Chain, count: Callable[[int], None], *, limits: BodyLimits, guarded: bool,
        profile: str,
    ) -> None:  # fmt: skip
        self._recorder = recorder
        self._chain = chain
        self._count = count
        self._limits = limits
        self._guarded = guarded
        self._profile = profile
        self._works = Works()

    def serves(self, path: str) -> bool:
        """Whether a path is one of this door's, or looks like it."""
        return path.startswith("/v1/") or target_of(path) is not None

    async def __call__(self, scope: Any, receive: Any, send: Send) -> None:
        """Answer one request."""
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
        asked = headers.get("x-request-id", "")
        request_id = asked if _REQUEST_ID.fullmatch(asked) else uuid.uuid4().hex
        reply = _Answer(send, request_id, scope.get("state", {}).get(SCOPE_KEY) or Delivery())
        target = target_of(scope["path"])
        if target is None:
            await reply.fail(_no_such_path(scope["path"]))
        elif not self._guarded and not names_this_host(headers):
            await reply.fail(foreign_name())
        elif scope["method"] != target.verb:
            await reply.fail(wrong_verb(target.verb), status=405)
        else:
            await self._answer(target, scope, headers, receive, reply)

    async def _answer(self, target: Target, scope: Any, headers: dict[str, str], receive: Any, reply: _Answer) -> None:
        peer = peer_of(scope.get("client"))
        call = Call(target.method, peer, headers)
        body = Body(receive, limit=self._limits.max_bytes, patience_s=self._limits.patience_s, gzipped=False)
        query = scope.get("query_string", b"")
        if await self._works.run(self._work(target, call, body, reply, query), body) is not Ending.OWN:
            await reply.fail(draining())

    async def _work(self, target: Target, call: Call, body: Body, reply: _Answer, query: bytes) -> None:
        try:
            async with self._chain.around(call):
                rollout_id = rollout_of(target, call.metadata, query)
                job, rollout = self._recorder.place(rollout_id, target.job_id, current_caller())
                data = await body.whole(announced_length(call.metadata))
                if target.endpoint is None:
                    await reply.json(_models(job, target))
                    return
                profile = self._reader(call)
                content = await off_loop(len(data), lambda: _read(data, profile, target))
                sampled = self._call(job, content, reply.request_id, profile)
                if rollout is None:
                    await _sample(job, target.endpoint, content, sampled, reply)
                else:
                    await self._recorder.sample(rollout, call.metadata, target.endpoint, content, sampled, reply)
        except Exception as error:
            await reply.fail(shown(call.method, error))

    def _reader(self, call: Call) -> str:
        name = call.metadata.get(_PROFILE_HEADER, self._profile)
        if name not in PROFILES:
            raise InvalidArgument.at("", f"{_PROFILE_HEADER} is {name[:40]!r}; it is one of {', '.join(PROFILES)}")
        return name

    def _call(self, job: SamplingJob, body: dict[str, Any], request_id: str, profile: str) -> OpenAiCall:
        caller, salt = current_caller(), body.pop("cache_salt", None) or ""
        if not isinstance(salt, str):
            raise InvalidArgument.at("cache_salt", f"must be a string, got {type(salt).__name__}")
        return OpenAiCall(
            request_id,
            cache_salt=cache_salt(caller, salt),
            adapter=_adapter(job, body, caller.tenant),
            fit_tokens=profile == DOCUMENTED,
            counter=self._count,
        )

    async def close(self) -> None:
        """End the calls that are still under way."""
        await self._works.close()


class _Answer:
    """Writes with ASGI's `send`, once."""

    def __init__(self, send: Send, request_id: str, delivery: Delivery) -> None:
        self.request_id = request_id
        self.delivery = delivery
        self._send = send
        self._streams = False
        self._done = False

    async def json(self, content: Mapping[str, Any], status: int = 200, headers: Any = ()) -> None:
        """The whole answer."""
        self._done = True
        data = json.dumps(content, ensure_ascii=False, separators=(",", ":")).encode()
        await self._start(status, b"application/json", [(b"content-length", str(len(data)).encode()), *headers])
        await self._send({"type": "http.response.body", "body": data})

    async def stream(self, lines: AsyncIterator[str]) -> None:
        """Events as they come, the last one together with the end: clients that have it close their connection, and
        with the end on its way to them it would count as lost."""
        self._streams = True
        await self._start(200, b"text/event-stream", [(b"x-accel-buffering", b"no")])
        last = ""
        try:
            async for line in lines:
                if line == _DONE:
                    last = line
                else:
                    await self._event(line)
        finally:
            close = getattr(lines, "aclose", None)
            if close is not None:
                await close()
        await self._end(last)

    async def fail(self, error: GradwireError, status: int | None = None) -> None:
        """An error: the answer itself, or the last event of a stream that has begun."""
        if self._done:
            return
        if not self._streams:
            await self.json(body_of(error), status or status_of(error), headers_of(error))
            return
        await self._event(f"data: {json.dumps(body_of(error), ensure_ascii=False)}\n\n")
        await self._end(_DONE)

    async def _start(self, status: int, content_type: bytes, headers: list[tuple[bytes, bytes]]) -> None:
        always = [
            (b"content-type", content_type),
            (b"cache-control", b"no-store"),
            (b"x-request-id", self.request_id.encode()),
        ]
        await self._send({"type": "http.response.start", "status": status, "headers": [*always, *headers]})

    async def _event(self, line: str) -> None:
        await self._send({"type": "http.response.body", "body": line.encode(), "more_body": True})

    async def _end(self, line: str) -> None:
        self._done = True
        await self._send({"type": "http.response.body", "body": line.encode()})


async def _sample(job: SamplingJob, endpoint: Endpoint, body: dict[str, Any], call: OpenAiCall, reply: _Answer) -> None:
    result = await answer(job, endpoint, body, call)
    if isinstance(result, Mapping):
        await reply.json(result)
    else:
        await reply.stream(result)


def _adapter(job: SamplingJob, body: dict[str, Any], tenant: str) -> str:
    """The engine's name of the adapter that `model` names; any other name is what requests without one use."""
    model = str(body.get("model", ""))
    named = model == BASE or (tenant, model) in job.adapters
    return able(job, model if named else "", tenant, field="model").engine_name


def _read(data: bytes, profile: str, target: Target) -> dict[str, Any]:
    assert target.endpoint is not None
    body = json_object(data)
    check_escapes(data, body)
    return READERS[profile](target.endpoint, body)


def _models(job: SamplingJob, target: Target) -> Mapping[str, Any]:
    models = job.engine.openai.models()
    if not target.model:
        return models
    for model in models["data"]:
        if model["id"] == target.model:
            return dict(model)
    names = ", ".join(model["id"] for model in models["data"])
    raise NotFound("model", target.model, f"no model {target.model[:200]!r} here; there is: {names}")


def _no_such_path(path: str) -> NotFound:
    return NotFound(
        "path", path, f"nothing at {path[:200]}; there is /v1/models, /v1/completions, /v1/chat/completions"
    )
