"""Replies of a deployed language model: the prompt of a conversation, the turn that stores it, the tokens as they come.

Knows: system prompts, windows, turns, cache salts. Does not know: doors, kinds of deployments other than this one.
"""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np

from gradwire.server.domain.caller import Caller
from gradwire.server.domain.deployments import Deployment
from gradwire.server.domain.prompting import Asked
from gradwire.server.domain.sampling import cache_salt, join, sample
from gradwire.server.domain.sessions import MemoryScope, Message, shelf_of
from gradwire.server.domain.turns import Turn, Turns
from gradwire.server.engines.sampling import (
    CompletionDelta,
    FinishReason,
    SampleRequest,
    SamplingParams,
    TokenIds,
)
from gradwire.server.engines.tasks import together
from gradwire.server.errors import GradwireError, InvalidArgument

_ids = itertools.count(1)
_BROKEN = (FinishReason.ABORT, FinishReason.ERROR)


@dataclass(frozen=True, slots=True)
class ReplyStart:
    """Before the first tokens."""

    params: SamplingParams
    """As they are used; `max_tokens` is what the context allows."""
    session_id: str
    """Conversation that both messages are stored in. Empty: nothing is stored."""
    num_dropped_messages: int
    """Oldest messages that the context had no room for."""
    num_prompt_tokens: int


@dataclass(frozen=True, slots=True)
class ReplyEnd:
    """After the last tokens: the reply is stored."""

    finish_reason: FinishReason
    stop_reason: str | int | None
    num_tokens: int
    num_prompt_tokens: int
    num_cached_tokens: int


ReplyEvent: TypeAlias = ReplyStart | CompletionDelta | ReplyEnd
"""In this order: one start, deltas, one end."""


@dataclass(frozen=True, slots=True)
class Reply:
    """A reply, whole."""

    prompt: str
    completion: CompletionDelta
    start: ReplyStart
    end: ReplyEnd


@dataclass(frozen=True, slots=True)
class Replies:
    """Replies, in the order of the prompts."""

    replies: Sequence[Reply]
    seconds: float
    """From the call to the last token."""


class Replier:
    """Replies for all deployed language models."""

    def __init__(self, turns: Turns) -> None:
        self._turns = turns

    async def whole(
        self,
        caller: Caller,
        deployment: Deployment,
        prompts: Sequence[str],
        given: Mapping[str, Any],
        session_id: str | None = None,
    ) -> Replies:
        """All replies; each prompt is a conversation of its own, or the only one is the next turn of `session_id`.

        The first failure ends the others. Raises as `stream` does, with paths into `prompts`.
        """
        if not prompts:
            raise InvalidArgument.at("prompts", "is empty; give at least one")
        if session_id is not None and len(prompts) > 1:
            raise InvalidArgument.at("prompts", f"are {len(prompts)}; a turn of session_id takes exactly one")
        began = time.perf_counter()
        asked = [Asked(caller, deployment, text, f"prompts[{i}]", given, False) for i, text in enumerate(prompts)]
        if len(asked) == 1:
            return Replies([await self._one(asked[0], session_id)], time.perf_counter() - began)
        replies = await together(self._one(one, None) for one in asked)
        return Replies(replies, time.perf_counter() - began)

    def stream(
        self,
        caller: Caller,
        deployment: Deployment,
        prompt: str,
        given: Mapping[str, Any],
        session_id: str | None = None,
    ) -> AsyncGenerator[ReplyEvent, None]:
        """The reply as it comes. `given` are the parameters that the request says, by SamplingParams' names.

        Close it (`aclosing`), or cancel whoever reads it, and the engine's slot is free; what came is stored, and
        marked. The message is stored before the first event, the reply before the last. Raises InvalidArgument
        (PROMPT_TOO_LONG; nothing is stored), Unavailable, Aborted when the conversation was deleted meanwhile.
        """
        return self._events(Asked(caller, deployment, prompt, "prompt", given, True), session_id)

    async def _one(self, asked: Asked, session_id: str | None) -> Reply:
        start: ReplyStart | None = None
        end: ReplyEnd | None = None
        deltas: list[CompletionDelta] = []
        async with aclosing(self._events(asked, session_id)) as events:
            async for event in events:
                match event:
                    case ReplyStart():
                        start = event
                    case ReplyEnd():
                        end = event
                    case _:
                        deltas.append(event)
        assert start is not None and end is not None and deltas, "an engine ends with a delta that says why"
        return Reply(asked.prompt, join(deltas), start, end)

    async def _events(self, asked: Asked, session_id: str | None) -> AsyncGenerator[ReplyEvent, None]:
        await asyncio.to_thread(asked.check)
        scope = asked.deployment.memory_scope
        if scope is MemoryScope.NONE:
            if session_id is not None:
                raise InvalidArgument.at("session_id", "was given, but this deployment keeps no conversations")
            async with aclosing(_sampled(asked, [Message("user", asked.prompt)], "", 0, None)) as events:
                async for event in events:
                    yield event
            return
        shelf = shelf_of(asked.deployment.deployment_id, scope, asked.caller)
        async with (
            self._turns.turn(shelf, session_id, asked.prompt) as turn,
            aclosing(_sampled(asked, turn.history, turn.session_id, turn.num_older, turn)) as events,
        ):
            sampling = False
            try:
                async for event in events:
                    sampling = True
                    yield event
            except GradwireError:
                if not sampling:  # refused, as by a sampler that sleeps: asked again, it must not be there twice
                    await turn.withdraw()
                raise


async def _sampled(
    asked: Asked, history: Sequence[Message], session_id: str, num_older: int, turn: Turn | None
) -> AsyncGenerator[ReplyEvent, None]:
    """Sample the reply to the last message of `history`, into `turn` where it is stored."""
    window, tokens = await asyncio.to_thread(asked.prepare, history)
    context = asked.engine.info.max_model_len
    start: ReplyStart | None = ReplyStart(
        replace(asked.params, max_tokens=max(1, min(asked.params.max_tokens, context - len(tokens)))),
        session_id,
        window.num_dropped_messages + num_older,
        len(tokens),
    )
    last: CompletionDelta | None = None
    num_tokens = num_cached = 0
    async with aclosing(sample(asked.job, _request(asked, tokens))) as events:
        async for event in events:
            # After the engine's first event: it has taken the request then, so a bad one is an error of the call.
            if start is not None:
                yield start
                start = None
            if event.prompt is not None:
                num_cached = event.prompt.num_cached_tokens
            for delta in event.deltas:
                last, num_tokens = delta, num_tokens + len(delta.token_ids)
                if turn is not None:
                    turn.extend(delta.text)
                yield delta
    assert last is not None and last.finish_reason is not None, "an engine ends with a delta that says why"
    if turn is not None:
        await (turn.break_off() if last.finish_reason in _BROKEN else turn.complete())
    yield ReplyEnd(last.finish_reason, last.stop_reason, num_tokens, len(tokens), num_cached)


def _request(asked: Asked, tokens: TokenIds) -> SampleRequest:
    return SampleRequest(
        request_id=f"reply-{next(_ids)}",
        prompt_token_ids=np.asarray(tokens, np.int32),
        params=asked.params,
        stream=asked.stream,
        cache_salt=cache_salt(asked.caller),
        adapter=asked.deployment.weights.adapter,
    )
