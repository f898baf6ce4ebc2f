"""Answers the bodies of OpenAI's API: checks them, hands them to vLLM's serving classes, and adds what is ours."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from typing import Any

from pydantic import ValidationError

from gradwire.server.engines.openai import Endpoint, OpenAiCall, Reply
from gradwire.server.engines.sampling import ModelInfo
from gradwire.server.engines.vllm.openai import failures
from gradwire.server.engines.vllm.openai.classes import ServingClasses
from gradwire.server.engines.vllm.openai.guard import CallState, GuardedEngine, current_state
from gradwire.server.engines.vllm.openai.limits import check_limits
from gradwire.server.errors import InvalidArgument

_ERROR = 'data: {"error"'


class OpenAiServing:
    """One per sampler. See `OpenAiEngine`."""

    def __init__(self, engine: GuardedEngine, info: ModelInfo, *, tool_parser: str | None) -> None:
        self._info = info
        self._classes = ServingClasses(engine, info, tool_parser)

    def models(self) -> Mapping[str, Any]:
        """See OpenAiEngine.models."""
        card = {
            "id": self._info.name,
            "object": "model",
            "created": 0,
            "owned_by": "gradwire",
            "max_model_len": self._info.max_model_len,
        }
        return {"object": "list", "data": [card]}

    async def answer(self, endpoint: Endpoint, body: Mapping[str, Any], call: OpenAiCall) -> Reply:
        """See OpenAiEngine.answer."""
        check_limits(body)
        # Any name will do: clients must send one, and send that of the model that they were written for.
        body = {**body, "model": self._info.name, "request_id": call.request_id, "cache_salt": None}
        body = _demanding(body)
        state = CallState(call)
        if call.fit_tokens:
            # vLLM refuses what there is no room for. It is asked for one token, and the guard, who knows the prompt's
            # length, asks for as many as are wanted and fit.
            state.max_tokens, state.min_tokens = body.get("max_tokens"), body.get("min_tokens") or 0
            body = {**body, "max_tokens": 1, "min_tokens": 0} if state.max_tokens else body
        with failures.translated():
            try:
                request = self._classes.parse(endpoint, body)
            except ValidationError as error:
                raise failures.unreadable(error) from error
            except (AttributeError, LookupError) as error:
                # Some of vLLM's validators look into a field before its type is checked.
                raise InvalidArgument.at(self._odd_field(endpoint, body), "is not of the type it must be") from error
            token = current_state.set(state)
            try:
                result = await self._classes.create(endpoint, request)
            finally:
                current_state.reset(token)
        task = asyncio.current_task()
        if task is not None and task.cancelling():
            raise asyncio.CancelledError  # vLLM answers a cancellation with an error that nobody reads
        if isinstance(result, AsyncGenerator):
            return await _begun(result, state)
        if hasattr(result, "error"):
            raise failures.returned(result.error)
        return {**result.model_dump(), **_versions(state)}

    def _odd_field(self, endpoint: Endpoint, body: Mapping[str, Any]) -> str:
        """The field without which the body can be looked through."""
        for name in body:
            try:
                self._classes.parse(endpoint, {key: value for key, value in body.items() if key != name})
            except (AttributeError, LookupError):
                continue
            except ValueError:  # ValidationError is one
                pass
            return name
        return ""


def _demanding(body: dict[str, Any]) -> dict[str, Any]:
    """A call that is demanded is one that its tool can take: arguments follow the schema.

    Where the model is free to call or not, it stays free: what it samples is then its own.
    """
    tools = body.get("tools")
    if not isinstance(tools, list) or body.get("tool_choice") in (None, "auto", "none"):
        return body
    functions = [tool.get("function") if isinstance(tool, dict) else None for tool in tools]
    strict = [
        {**tool, "function": {"strict": True, **function}} if isinstance(function, dict) else tool
        for tool, function in zip(tools, functions, strict=True)
    ]
    return {**body, "tools": strict}


async def _begun(lines: AsyncGenerator[str, None], state: CallState) -> AsyncIterator[str]:
    """A stream whose first line is there: until then a failure is an error, and not a broken stream."""
    first = await anext(lines, None)
    if first is None or first.startswith(_ERROR):
        await lines.aclose()
        raise _failure(first, state)
    return _stream(first, lines, state)


async def _stream(first: str, lines: AsyncGenerator[str, None], state: CallState) -> AsyncGenerator[str, None]:
    try:
        yield _with_versions(first, state)
        async for line in lines:
            if line.startswith(_ERROR):
                raise _failure(line, state)
            yield _with_versions(line, state)
    finally:
        await lines.aclose()


def _failure(line: str | None, state: CallState) -> Exception:
    if state.failure is not None:
        return failures.raised(state.failure)
    if line is None:
        return RuntimeError("vLLM's stream has no line")
    from vllm.entrypoints.serve.engine.protocol import ErrorResponse

    return failures.returned(ErrorResponse.model_validate_json(line.removeprefix("data: ")).error)


def _with_versions(line: str, state: CallState) -> str:
    """The last chunk of a choice says which weights sampled; the others are passed on as they are."""
    if not state.versions or '"finish_reason":"' not in line:
        return line
    chunk = json.loads(line.removeprefix("data: "))
    return f"data: {json.dumps({**chunk, **_versions(state)}, ensure_ascii=False, separators=(',', ':'))}\n\n"


def _versions(state: CallState) -> dict[str, Any]:
    """`weight_version` is the newest one that sampled; `weight_versions` has all where they are several."""
    if not state.versions:
        return {}
    several = {"weight_versions": sorted(state.versions)} if len(state.versions) > 1 else {}
    return {"weight_version": max(state.versions), **several}
