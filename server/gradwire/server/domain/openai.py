"""OpenAI's API on a sampling job. A dead engine fails the job at once, as it does in domain/sampling.py."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

from gradwire.server.domain.registry import SamplingJob
from gradwire.server.engines.openai import Endpoint, OpenAiCall, Reply
from gradwire.server.errors import Unavailable


async def answer(job: SamplingJob, endpoint: Endpoint, body: Mapping[str, Any], call: OpenAiCall) -> Reply:
    """See OpenAiEngine.answer."""
    async with _watched(job):
        reply = await job.engine.openai.answer(endpoint, body, call)
    return reply if isinstance(reply, Mapping) else _stream(job, reply)


async def _stream(job: SamplingJob, lines: AsyncIterator[str]) -> AsyncIterator[str]:
    try:
        async with _watched(job):
            async for line in lines:
                yield line
    finally:
        close = getattr(lines, "aclose", None)
        if close is not None:
            await close()


@asynccontextmanager
async def _watched(job: SamplingJob) -> AsyncIterator[None]:
    try:
        yield
    except Unavailable:
        await job.fail_if_dead()
        raise
