"""Calls made in a rollout: recorded while they are answered, and answered once however often they are sent."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Mapping
from dataclasses import replace
from typing import Any, Protocol

from gradwire.server.domain.caller import Caller
from gradwire.server.domain.openai import answer
from gradwire.server.domain.registry import JobRegistry, SamplingJob
from gradwire.server.domain.rollouts.answers import Answer, key_of
from gradwire.server.domain.rollouts.calls import Asked
from gradwire.server.domain.rollouts.placing import place
from gradwire.server.domain.rollouts.rollout import Rollout
from gradwire.server.domain.rollouts.store import RolloutStore
from gradwire.server.engines.openai import Endpoint, OpenAiCall

_RETRY_COUNT = "x-stainless-retry-count"  # of the clients that are made for OpenAI's own API


class Replies(Protocol):
    """Where an answer goes."""

    async def json(self, content: Mapping[str, Any]) -> None:
        """The whole of it."""

    async def stream(self, lines: AsyncIterator[str]) -> None:
        """As it comes."""


class Recorder:
    """Finds the rollout of a call, and records what is sampled in it."""

    def __init__(self, jobs: JobRegistry, rollouts: RolloutStore) -> None:
        self._jobs = jobs
        self._rollouts = rollouts

    def place(self, rollout_id: str, job_id: int, caller: Caller) -> tuple[SamplingJob, Rollout | None]:
        """The job that answers, and the rollout, if there is one."""
        return place(self._jobs, self._rollouts, rollout_id, job_id, caller)

    async def sample(
        self, rollout: Rollout, headers: Mapping[str, str], endpoint: Endpoint, body: Mapping[str, Any],
        call: OpenAiCall, reply: Replies,
    ) -> None:  # fmt: skip
        """Answer a call, or give its first answer again."""
        key = key_of(headers, call.request_id, endpoint, body)
        kept = rollout.answers.find(key)
        if kept is not None:
            await _send(reply, await kept.again())
            return
        kept = rollout.answers.begin(key) if key is not None else None
        try:
            await self._record(rollout, headers, endpoint, body, call, reply, kept)
        except BaseException as error:
            if kept is not None:
                rollout.answers.drop(kept, error if isinstance(error, Exception) else None)
            raise

    async def _record(
        self, rollout: Rollout, headers: Mapping[str, str], endpoint: Endpoint, body: Mapping[str, Any],
        call: OpenAiCall, reply: Replies, kept: Answer | None,
    ) -> None:  # fmt: skip
        asked = Asked(
            call.request_id,
            endpoint,
            streamed=bool(body.get("stream")),
            num_retries=_retries(headers),
            constrained=_constrained(body),
        )
        with rollout.recording(asked) as recorded:
            rollout.job.require_working()
            observed = replace(call, observer=rollout.observer(recorded), settled=recorded.settle)
            result = await answer(rollout.job, endpoint, body, observed)
            if isinstance(result, Mapping):
                if kept is not None:
                    kept.put(result)
                    rollout.hold(kept.num_bytes)
                await reply.json(result)
            else:
                await reply.stream(result if kept is None else _keeping(result, kept, rollout))


def _retries(headers: Mapping[str, str]) -> int:
    count = headers.get(_RETRY_COUNT, "")
    return int(count) if re.fullmatch("[0-9]{1,4}", count) else 0


def _constrained(body: Mapping[str, Any]) -> bool:
    """A grammar binds what is sampled."""
    form = body.get("response_format")
    return (
        (isinstance(form, Mapping) and form.get("type") != "text")
        or bool(body.get("structured_outputs"))
        or (bool(body.get("tools")) and body.get("tool_choice") not in (None, "auto", "none"))
    )


async def _keeping(lines: AsyncIterator[str], kept: Answer, rollout: Rollout) -> AsyncIterator[str]:
    try:
        async for line in lines:
            kept.add(line)
            rollout.hold(len(line))
            yield line
        kept.end()
    finally:
        close = getattr(lines, "aclose", None)
        if close is not None:
            await close()


async def _send(reply: Replies, result: Mapping[str, Any] | AsyncIterator[str]) -> None:
    if isinstance(result, Mapping):
        await reply.json(result)
    else:
        await reply.stream(result)
