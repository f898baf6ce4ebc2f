"""Calls made in a rollout: recorded while they are answered, and answered once however often they are sent."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from dataclasses import replace
from typing import Any, Protocol

from gradwire.server.domain.caller import Caller, current_caller
from gradwire.server.domain.openai import answer
from gradwire.server.domain.registry import JobRegistry, SamplingJob
from gradwire.server.domain.rollouts.answer import Answer
from gradwire.server.domain.rollouts.answers import Reading
from gradwire.server.domain.rollouts.calls import Asked, Call
from gradwire.server.domain.rollouts.placing import place
from gradwire.server.domain.rollouts.requests import request_of, retries_of
from gradwire.server.domain.rollouts.rollout import Rollout
from gradwire.server.domain.rollouts.store import RolloutStore
from gradwire.server.engines.openai import Endpoint, OpenAiCall, Reply
from gradwire.server.errors import GradwireError
from gradwire.server.http.delivery import Delivery


class Replies(Protocol):
    """Where an answer goes, and whether it comes there."""

    delivery: Delivery

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
        asked = Asked(
            call.request_id,
            endpoint,
            streamed=bool(body.get("stream")),
            num_retries=retries_of(headers) or 0,
            constrained=_constrained(body),
        )
        caller = current_caller()
        origin = caller.name, caller.user, call.cache_salt, call.fit_tokens
        request = request_of(headers, call.request_id, endpoint, body, origin)
        if request is None:
            with rollout.recording(asked) as recorded:
                await _send(reply, await _result(rollout, recorded, endpoint, body, call))
            return
        answers = rollout.answers
        kept = answers.find(request)
        if kept is None:
            kept = answers.begin(request)
            kept.task = asyncio.get_running_loop().create_task(_make(rollout, kept, asked, endpoint, body, call))
        await _give(kept, answers.read(kept, request), reply)


async def _result(
    rollout: Rollout, recorded: Call, endpoint: Endpoint, body: Mapping[str, Any], call: OpenAiCall
) -> Reply:
    rollout.job.require_working()
    observed = replace(call, observer=rollout.observer(recorded), settled=recorded.settle)
    return await answer(rollout.job, endpoint, body, observed)


async def _make(
    rollout: Rollout, kept: Answer, asked: Asked, endpoint: Endpoint, body: Mapping[str, Any], call: OpenAiCall
) -> None:
    """Make an answer that is kept, in a task of its own: its first reader may leave, and the next one go on."""
    try:
        with rollout.recording(asked) as recorded:
            kept.records(recorded)
            result = await _result(rollout, recorded, endpoint, body, call)
            if isinstance(result, Mapping):
                kept.put(result)
                await kept.taken.wait()
            else:
                await _keep(result, kept)
    except Exception as error:
        rollout.answers.drop(kept, error)  # its readers raise it
        if not kept.num_readers and not isinstance(error, GradwireError):
            raise  # else nobody would hear of it
    except asyncio.CancelledError:
        rollout.answers.drop(kept, None)
        raise


async def _keep(lines: AsyncIterator[str], kept: Answer) -> None:
    try:
        async for line in lines:
            kept.add(line)
        kept.end()
        await kept.begun()
    finally:
        close = getattr(lines, "aclose", None)
        if close is not None:
            await close()


async def _give(kept: Answer, reading: Reading, reply: Replies) -> None:
    """Send what is kept, or is still being made. What was lost on its way stays here until it is asked for again."""
    reply.delivery.then(reading.settle)
    try:
        await _send(reply, await kept.again())
    except asyncio.CancelledError:
        await reading.left()
        raise
    except Exception:
        reading.failed()
        raise
    else:
        reading.sent()


def _constrained(body: Mapping[str, Any]) -> bool:
    """A grammar binds what is sampled."""
    form = body.get("response_format")
    return (
        (isinstance(form, Mapping) and form.get("type") != "text")
        or bool(body.get("structured_outputs"))
        or (bool(body.get("tools")) and body.get("tool_choice") not in (None, "auto", "none"))
    )


async def _send(reply: Replies, result: Reply) -> None:
    if isinstance(result, Mapping):
        await reply.json(result)
    else:
        await reply.stream(result)
