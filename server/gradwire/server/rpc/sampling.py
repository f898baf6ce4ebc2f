"""SamplingService: prompts in, completions out."""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence
from contextlib import aclosing
from typing import Any

import numpy as np

from gradwire.server.codec import sampling as codec
from gradwire.server.codec.completions import encode_event, encode_prompt, encode_result, encode_score
from gradwire.server.codec.jobs import IN_FLIGHT, encode_memory
from gradwire.server.domain.adapters import able
from gradwire.server.domain.caller import current_caller
from gradwire.server.domain.jobs import JobKind
from gradwire.server.domain.registry import AnyJob, JobRegistry, LogProbJob, SamplingJob
from gradwire.server.domain.rollouts.calls import Asked
from gradwire.server.domain.rollouts.placing import place, recording
from gradwire.server.domain.rollouts.rollout import Rollout
from gradwire.server.domain.rollouts.store import RolloutStore
from gradwire.server.domain.sampling import Collected, collect, require_version, sample, sleep, wake
from gradwire.server.domain.sampling import cache_salt as salted
from gradwire.server.domain.training import guarded
from gradwire.server.engines.base import SamplerEngine
from gradwire.server.engines.openai import Observer
from gradwire.server.engines.sampling import PromptInfo, SampleRequest, SamplingParams, TokenIds
from gradwire.server.engines.scoring import Scores
from gradwire.server.engines.tasks import together
from gradwire.server.engines.weights import InFlightPolicy
from gradwire.server.errors import FieldViolation, InvalidArgument
from gradwire.server.observability.metrics import CallMetrics
from gradwire.server.rpc.prompts import prompt_tokens, scored_tokens
from gradwire.v1 import sampling_pb2, sampling_pb2_grpc

MAX_COMPLETIONS = 16_384  # of one call: its results are held until the last one is done


def _check_count(prompts: int, n: int) -> None:
    if prompts * n > MAX_COMPLETIONS:
        raise InvalidArgument.at(
            "params.n",
            f"{n} completions of {prompts} prompts are {prompts * n}; a call takes at most {MAX_COMPLETIONS}",
        )


def _max_tokens(engine: SamplerEngine, params: SamplingParams, prompt: TokenIds) -> int:
    return max(1, min(params.max_tokens, engine.info.max_model_len - len(prompt)))


class SamplingServicer(sampling_pb2_grpc.SamplingServiceServicer):
    """Adapter of the sampling jobs."""

    def __init__(self, jobs: JobRegistry, metrics: CallMetrics, rollouts: RolloutStore) -> None:
        self._jobs = jobs
        self._rollouts = rollouts
        self._metrics = metrics
        self._ids = itertools.count(1)

    def _job(self, request: Any) -> SamplingJob:
        return self._jobs.sampling(request.job_id, current_caller())

    def _place(self, request: Any) -> tuple[SamplingJob, Rollout | None]:
        return place(self._jobs, self._rollouts, request.rollout_id, request.job_id, current_caller(), field="job_id")

    def _served(self, job: AnyJob, request: Any) -> str:
        """The engine's name of the adapter that the request uses, of a version that it takes."""
        found = able(job, request.adapter, current_caller().tenant)
        require_version(job, found.weight_version, request.min_weight_version)
        return found.engine_name

    def _scoring_job(self, request: Any) -> AnyJob:
        """A sampling job, or one that only scores."""
        return self._jobs.of_kind(request.job_id, current_caller(), JobKind.SAMPLING, JobKind.LOG_PROB)

    def _request(
        self, tokens: TokenIds, params: SamplingParams, *, adapter: str, stream: bool = False, cache_salt: str = "",
        priority: int = 0,
    ) -> SampleRequest:  # fmt: skip
        return SampleRequest(
            request_id=f"rpc-{next(self._ids)}",
            prompt_token_ids=tokens,
            params=params,
            stream=stream,
            cache_salt=salted(current_caller(), cache_salt),
            priority=priority,
            adapter=adapter,
        )

    async def Generate(self, request: sampling_pb2.GenerateRequest, context: Any) -> sampling_pb2.GenerateResponse:
        job, rollout = self._place(request)
        adapter, engine = self._served(job, request), job.engine
        read = codec.decode_params(request.params, max_log_probs=engine.info.max_log_probs)
        params = read.params
        _check_count(len(request.prompts), params.n)
        paths = [f"prompts[{i}]" for i in range(len(request.prompts))]
        prompts = await prompt_tokens(engine, request.prompts, paths)
        requests = [
            self._request(tokens, params, adapter=adapter, cache_salt=request.cache_salt, priority=request.priority)
            for tokens in prompts
        ]
        with codec.in_request_terms(), recording(rollout, _asked(requests[0])) as observer:
            results = await _sample_all(job, requests, paths, observer)
        usage = sampling_pb2.Usage(
            prompt_tokens=sum(map(len, prompts)),
            completion_tokens=sum(len(c.token_ids) for r in results for c in r.completions),
            cached_tokens=sum(r.prompt.num_cached_tokens for r in results if r.prompt),
        )
        self._metrics.sampled_tokens.inc(usage.completion_tokens)
        most = max(_max_tokens(engine, params, tokens) for tokens in prompts)
        return sampling_pb2.GenerateResponse(
            results=[encode_result(t, r) for t, r in zip(prompts, results, strict=True)],
            params=read.encode(max_tokens=most),
            usage=usage,
        )

    async def GenerateStream(self, request: sampling_pb2.GenerateStreamRequest, context: Any) -> None:  # type: ignore[override]
        job, rollout = self._place(request)
        adapter, engine = self._served(job, request), job.engine
        read = codec.decode_params(request.params, max_log_probs=engine.info.max_log_probs)
        params = read.params
        (tokens,) = await prompt_tokens(engine, [request.prompt], ["prompt"])
        start: sampling_pb2.StreamStart | None = sampling_pb2.StreamStart(
            params=read.encode(max_tokens=_max_tokens(engine, params, tokens)),
            prompt=encode_prompt(tokens, None),
        )
        end = sampling_pb2.StreamEnd(usage=sampling_pb2.Usage(prompt_tokens=len(tokens)))
        sampled = self._request(
            tokens, params, adapter=adapter, stream=True, cache_salt=request.cache_salt, priority=request.priority
        )
        with codec.in_request_terms(), recording(rollout, _asked(sampled)) as observer:
            async with aclosing(sample(job, sampled, observer)) as events:
                async for event in events:
                    delta = encode_event(event, end)
                    # With the first tokens, not before: the engine has taken the request then, so a bad one is an
                    # error and not a broken stream. And few messages: each costs both sides more than its tokens do.
                    message = sampling_pb2.GenerateStreamResponse(start=start, delta=delta)
                    start = None
                    if len(end.completions) == params.n:
                        end.completions.sort(key=lambda completion: completion.index)
                        message.end.CopyFrom(end)
                        # Before the caller can know that it is over, and look at the count.
                        self._metrics.sampled_tokens.inc(end.usage.completion_tokens)
                    if message.ByteSize():
                        await context.write(message)

    async def LogProbs(self, request: sampling_pb2.LogProbsRequest, context: Any) -> sampling_pb2.LogProbsResponse:
        job = self._scoring_job(request)
        adapter, engine = self._served(job, request), job.engine
        if request.top_k > engine.info.max_log_probs:
            raise InvalidArgument.at("top_k", f"is {request.top_k}; this job gives at most {engine.info.max_log_probs}")
        pairs = await scored_tokens(engine, request.items)
        if job.kind is JobKind.LOG_PROB:
            found = await _scored_by_reference(job, pairs, request.top_k)
            scores = [
                encode_score(pair, PromptInfo(sum(map(len, pair)), 0, row.log_probs, row.top), found.weight_version)
                for pair, row in zip(pairs, found.rows, strict=True)
            ]
            return sampling_pb2.LogProbsResponse(scores=scores)
        # One token is sampled and thrown away: an engine that samples scores only what it then continues.
        params = SamplingParams(temperature=0.0, max_tokens=1, prompt_log_probs=request.top_k)
        requests = [self._request(np.concatenate(pair), params, adapter=adapter) for pair in pairs]
        results = await _sample_all(job, requests, [f"items[{i}].prompt" for i in range(len(pairs))])
        return sampling_pb2.LogProbsResponse(
            scores=[encode_score(p, r.prompt, _version_of(r)) for p, r in zip(pairs, results, strict=True)]
        )

    async def Sleep(self, request: sampling_pb2.SleepRequest, context: Any) -> sampling_pb2.SleepResponse:
        job = self._scoring_job(request)
        memory = await sleep(job, request.level or 1, self._jobs.fell_asleep)
        return sampling_pb2.SleepResponse(memory=encode_memory(memory), changed=memory.changed)

    async def Wake(self, request: sampling_pb2.WakeRequest, context: Any) -> sampling_pb2.WakeResponse:
        job = self._scoring_job(request)
        tags: Sequence[str] | None = None
        if request.part != sampling_pb2.WAKE_PART_UNSPECIFIED:
            tags = ["weights" if request.part == sampling_pb2.WAKE_PART_WEIGHTS else "kv_cache"]
        memory = await wake(job, tags)
        return sampling_pb2.WakeResponse(memory=encode_memory(memory), changed=memory.changed)

    async def ResetPrefixCache(
        self, request: sampling_pb2.ResetPrefixCacheRequest, context: Any
    ) -> sampling_pb2.ResetPrefixCacheResponse:
        job = self._scoring_job(request)
        if job.kind is JobKind.SAMPLING:  # a log-prob job keeps none
            await guarded(job, job.engine.reset_prefix_cache)
        return sampling_pb2.ResetPrefixCacheResponse()

    async def Pause(self, request: sampling_pb2.PauseRequest, context: Any) -> sampling_pb2.PauseResponse:
        job = self._job(request)
        policy = IN_FLIGHT.get(request.in_flight, InFlightPolicy.WAIT)
        job.held = True
        await guarded(job, lambda: job.engine.pause(policy))
        return sampling_pb2.PauseResponse()

    async def Resume(self, request: sampling_pb2.ResumeRequest, context: Any) -> sampling_pb2.ResumeResponse:
        job = self._job(request)
        job.held = False
        await guarded(job, job.engine.resume)
        return sampling_pb2.ResumeResponse()


def _asked(request: SampleRequest) -> Asked:
    """What a rollout notes of a call, by its first prompt."""
    return Asked(
        request.request_id,
        "generate",
        streamed=request.stream,
        constrained=request.params.structured is not None,
        params=request.params,
    )


async def _sample_all(
    job: SamplingJob, requests: list[SampleRequest], paths: list[str], observer: Observer | None = None
) -> list[Collected]:
    """All completions of all requests, whose prompts stand at `paths`; the first failure cancels the rest."""
    if len(requests) == 1:
        return [await collect(job, requests[0], paths[0], observer)]
    return await together(
        collect(job, request, path, observer, number)
        for number, (request, path) in enumerate(zip(requests, paths, strict=True))
    )


async def _scored_by_reference(job: LogProbJob, pairs: list[tuple[TokenIds, TokenIds]], top_k: int) -> Scores:
    """Scores of a log-prob job; what is wrong with a row is wrong with its item."""
    rows = [np.concatenate(pair) for pair in pairs]
    try:
        return await guarded(job, lambda: job.engine.score(rows, top_k=top_k))
    except InvalidArgument as error:
        violations = [FieldViolation(re.sub(r"^rows\b", "items", v.field), v.description) for v in error.violations]
        raise InvalidArgument(violations, reason=error.reason) from error


def _version_of(collected: Collected) -> int:
    spans = collected.completions[0].weight_spans
    return spans[0].version if spans else 0
