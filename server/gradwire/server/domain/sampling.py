"""Sampling from a job: versions, dead engines, and completions gathered from deltas."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field, replace

import numpy as np

from gradwire.server.domain.adapters import rebase
from gradwire.server.domain.bases import loaded
from gradwire.server.domain.caller import LOCAL_TENANT, Caller
from gradwire.server.domain.jobs import JobState
from gradwire.server.domain.registry import AnyJob, SamplingJob
from gradwire.server.engines.openai import Observer
from gradwire.server.engines.sampling import (
    CompletionDelta,
    PromptInfo,
    SampleEvent,
    SampleRequest,
    TopLogProbs,
    WeightSpan,
)
from gradwire.server.engines.tasks import to_the_end
from gradwire.server.engines.weights import MemoryReport
from gradwire.server.errors import FailedPrecondition, FieldViolation, InvalidArgument, Unavailable


def require_version(job: AnyJob, version: int, at_least: int) -> None:
    """Raises FailedPrecondition when the weights that serve a request are older than asked for."""
    if version < at_least:
        raise FailedPrecondition(
            "WEIGHTS_TOO_OLD",
            f"min_weight_version is {at_least}, but {job.name} has version {version}; sync first",
            subject=job.name,
            metadata={"weight_version": str(version)},
        )


def cache_salt(caller: Caller, salt: str = "") -> str | None:
    """Tenants never share a prefix cache: its timing would tell one what another asked. `salt` divides it further."""
    return f"{caller.tenant}\0{salt}" if salt or caller.tenant != LOCAL_TENANT else None


async def sample(
    job: SamplingJob, request: SampleRequest, observer: Observer | None = None, number: int = 0
) -> AsyncGenerator[SampleEvent, None]:
    """The engine's events. A dead engine fails the job at once.

    `observer` sees them, too, as those of prompt `number`, with log-probs whether or not these were asked for.
    """
    hidden = observer is not None and request.params.log_probs is None
    asked = replace(request, params=replace(request.params, log_probs=0)) if hidden else request
    events = job.engine.generate(asked)
    try:
        async for event in events:
            if observer is not None:
                observer(number, request.prompt_token_ids, event)
            yield _without_log_probs(event) if hidden else event
    except Unavailable:
        await job.fail_if_dead()
        raise
    finally:
        # Now, and not when the interpreter gets to it: this is what frees the request's place in the engine.
        if isinstance(events, AsyncGenerator):
            await events.aclose()


def _without_log_probs(event: SampleEvent) -> SampleEvent:
    return replace(event, deltas=tuple(replace(delta, log_probs=None, top_log_probs=None) for delta in event.deltas))


async def sleep(job: AnyJob, level: int, weights_asleep: Callable[[AnyJob], Awaitable[None]]) -> MemoryReport:
    """Put the engine to sleep. It goes on when the caller leaves: the job's state follows the engine's."""

    async def work() -> MemoryReport:
        memory = await job.engine.sleep(level)
        if level == 2 and memory.changed:  # its weights are dropped: it wakes with those of the model's folder
            rebase(job, loaded(job.config), job.base)
        job.set_state(JobState.SLEEPING, f"asleep, level {level}")
        await weights_asleep(job)
        return memory

    return await to_the_end(work())


async def wake(job: AnyJob, tags: Sequence[str] | None) -> MemoryReport:
    """Wake the engine, or parts of it. It goes on when the caller leaves, too."""

    async def work() -> MemoryReport:
        memory = await job.engine.wake(tags)
        version = await job.engine.weight_version()
        if version != job.weight_version:  # the weights were dropped, and are those of the model's folder again
            job.set_version(version)
        if tags is None or "kv_cache" in tags:
            job.set_state(JobState.READY, "awake")
        return memory

    return await to_the_end(work())


@dataclass(slots=True)
class Collected:
    """A prompt's completions, whole."""

    prompt: PromptInfo | None = None
    completions: list[CompletionDelta] = field(default_factory=list)


async def collect(
    job: SamplingJob, request: SampleRequest, path: str, observer: Observer | None = None, number: int = 0
) -> Collected:
    """Run a request to its end. A bad prompt is named by its `path` in the caller's message."""
    prompt: PromptInfo | None = None
    parts: dict[int, list[CompletionDelta]] = {}
    try:
        async with aclosing(sample(job, request, observer, number)) as events:
            async for event in events:
                prompt = event.prompt or prompt
                for delta in event.deltas:
                    parts.setdefault(delta.index, []).append(delta)
    except InvalidArgument as error:
        raise placed(error, path) from error
    return Collected(prompt, [join(parts[index]) for index in sorted(parts)])


def placed(error: InvalidArgument, path: str) -> InvalidArgument:
    """`prompt.token_ids` and `messages` of an engine as `prompts[3].token_ids` and `prompts[3].chat.messages`."""

    def place(violation: FieldViolation) -> FieldViolation:
        field = violation.field
        if field == "prompt" or field.startswith("prompt."):
            field = path + field.removeprefix("prompt")
        elif field == "messages" or field.startswith("messages"):
            field = f"{path}.chat.{field}"
        return FieldViolation(field, violation.description)

    return InvalidArgument([place(v) for v in error.violations], reason=error.reason)


def join(deltas: list[CompletionDelta]) -> CompletionDelta:
    """Deltas of one completion as one."""
    if len(deltas) == 1:
        return deltas[0]
    last = deltas[-1]
    log_probs = [d.log_probs for d in deltas if d.log_probs is not None]
    top = [d.top_log_probs for d in deltas if d.top_log_probs is not None]
    return CompletionDelta(
        index=last.index,
        first_token_index=0,
        token_ids=np.concatenate([d.token_ids for d in deltas]),
        text="".join(d.text for d in deltas),
        log_probs=np.concatenate(log_probs) if log_probs else None,
        top_log_probs=TopLogProbs(
            np.concatenate([t.token_ids for t in top]), np.concatenate([t.log_probs for t in top])
        )
        if top
        else None,
        weight_spans=merge_spans([span for d in deltas for span in d.weight_spans]),
        finish_reason=last.finish_reason,
        stop_reason=last.stop_reason,
    )


def merge_spans(spans: list[WeightSpan]) -> tuple[WeightSpan, ...]:
    """Neighbouring spans of one version as one."""
    merged: list[WeightSpan] = []
    for span in spans:
        if merged and merged[-1].version == span.version and merged[-1].end == span.start:
            merged[-1] = WeightSpan(span.version, merged[-1].start, span.end)
        else:
            merged.append(span)
    return tuple(merged)
