"""`client.sampling`: sample completions, score text, and put a sampler to sleep."""

from __future__ import annotations

from typing import Unpack

from gradwire.client._convert.enums import enum_to_proto
from gradwire.client._convert.jobs import job_id
from gradwire.client._convert.messages import put
from gradwire.client._convert.prompts import prompt_to_proto, prompts_to_proto
from gradwire.client._convert.rollouts import rollout_id
from gradwire.client._convert.sampling import (
    generate_from_proto,
    memory_from_proto,
    params_to_proto,
    score_items_to_proto,
    scores_from_proto,
)
from gradwire.client._core.connection import Connection, offload
from gradwire.client._core.rpc import Rpc
from gradwire.client.aio.streams import AsyncSampleStream
from gradwire.client.types.jobs import JobRef
from gradwire.client.types.rollouts import RolloutRef
from gradwire.client.types.sampling import (
    GenerateResult,
    InFlightPolicy,
    MemoryChange,
    Prompt,
    Prompts,
    SamplingKeywords,
    SamplingParamsLike,
    Score,
    WakePart,
)
from gradwire.v1 import sampling_pb2 as pb

_SERVICE = "/gradwire.v1.SamplingService/"
_GENERATE = Rpc(_SERVICE + "Generate", pb.GenerateRequest, pb.GenerateResponse, repeatable=True)
_GENERATE_STREAM = Rpc(
    _SERVICE + "GenerateStream", pb.GenerateStreamRequest, pb.GenerateStreamResponse, repeatable=True, streaming=True
)
_LOG_PROBS = Rpc(_SERVICE + "LogProbs", pb.LogProbsRequest, pb.LogProbsResponse, repeatable=True)
_SLEEP = Rpc(_SERVICE + "Sleep", pb.SleepRequest, pb.SleepResponse, repeatable=True)
_WAKE = Rpc(_SERVICE + "Wake", pb.WakeRequest, pb.WakeResponse, repeatable=True)
_RESET = Rpc(_SERVICE + "ResetPrefixCache", pb.ResetPrefixCacheRequest, pb.ResetPrefixCacheResponse, repeatable=True)
_PAUSE = Rpc(_SERVICE + "Pause", pb.PauseRequest, pb.PauseResponse, repeatable=True)
_RESUME = Rpc(_SERVICE + "Resume", pb.ResumeRequest, pb.ResumeResponse, repeatable=True)


class AsyncSampling:
    """Samples from the model of a sampling job: `job`, or the one that the server was started with."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    async def generate(
        self,
        prompts: Prompts,
        params: SamplingParamsLike | None = None,
        *,
        job: JobRef | None = None,
        adapter: str = "",
        min_weight_version: int = 0,
        cache_salt: str = "",
        priority: int = 0,
        rollout: RolloutRef | None = None,
        timeout: float | None = None,
        **sampling: Unpack[SamplingKeywords],
    ) -> GenerateResult:
        """Completions of one or more prompts, whole.

        `prompts` is text, token ids, a list of chat messages, or a list of any of these. `params` and
        keywords such as `max_tokens=64` say how to sample; keywords win. `adapter` names one that was synced
        ("base": the model itself; default: the one synced without a name, where there is one); an unknown one is
        NotFoundError. `min_weight_version` raises FailedPreconditionError when the sampler's weights are older.
        Requests with different `cache_salt`s share no cached prefix. Lower `priority` (-1000 to 1000) goes first
        when the engine is full. `rollout` records the call in one of `client.rollouts`, of whose job it then is. An
        unknown parameter is a TypeError.
        """
        request = pb.GenerateRequest(
            job_id=job_id(job),
            prompts=prompts_to_proto(prompts),
            params=params_to_proto(params, sampling),
            rollout_id="" if rollout is None else rollout_id(rollout),
        )
        put(request, adapter=adapter, min_weight_version=min_weight_version, cache_salt=cache_salt, priority=priority)
        response = await self._connection.unary(_GENERATE, request, timeout=timeout)
        return await offload(lambda: generate_from_proto(response), response.ByteSize())

    def generate_stream(
        self,
        prompt: Prompt,
        params: SamplingParamsLike | None = None,
        *,
        job: JobRef | None = None,
        adapter: str = "",
        min_weight_version: int = 0,
        cache_salt: str = "",
        priority: int = 0,
        rollout: RolloutRef | None = None,
        timeout: float | None = None,
        **sampling: Unpack[SamplingKeywords],
    ) -> AsyncSampleStream:
        """Completions of one prompt, token by token. The call begins at once; see `generate` for the rest."""
        request = pb.GenerateStreamRequest(
            job_id=job_id(job),
            prompt=prompt_to_proto(prompt, "prompt"),
            params=params_to_proto(params, sampling),
            rollout_id="" if rollout is None else rollout_id(rollout),
        )
        put(request, adapter=adapter, min_weight_version=min_weight_version, cache_salt=cache_salt, priority=priority)
        return AsyncSampleStream(self._connection.stream(_GENERATE_STREAM, request, timeout=timeout))

    async def log_probs(
        self,
        prompts: Prompts,
        completions: Prompts | None = None,
        *,
        top_k: int = 0,
        job: JobRef | None = None,
        adapter: str = "",
        min_weight_version: int = 0,
        timeout: float | None = None,
    ) -> tuple[Score, ...]:
        """Log-probs of given text: one score a prompt.

        `completions` are what follows each prompt, text or token ids; without them only the prompts are scored.
        `top_k` also returns that many of the most likely tokens at each place, at most the job's
        `facts.max_log_probs`. `job` is a sampling or a log-prob job; `adapter`, as in `generate`, is one of a
        sampling job, and `min_weight_version` is as there. Log-probs are at temperature 1; the first token of all,
        which follows nothing, has NaN.
        """
        request = pb.LogProbsRequest(job_id=job_id(job), items=score_items_to_proto(prompts, completions))
        put(request, top_k=top_k, adapter=adapter, min_weight_version=min_weight_version)
        return tuple(scores_from_proto(await self._connection.unary(_LOG_PROBS, request, timeout=timeout)))

    async def sleep(self, level: int = 1, *, job: JobRef | None = None, timeout: float | None = None) -> MemoryChange:
        """Gives the engine's memory back until `wake`; running requests end with finish reason "abort".

        Level 1 keeps the weights (on a CPU in a file without a name, on a GPU in host memory); level 2 drops them,
        for when new ones will be synced: `wake` brings those of the model's folder, version 0. Asking twice is
        fine: `changed` is False then. The result has the bytes that the engine's processes held before and after.

        Until then `generate`, `log_probs` and a sync raise FailedPreconditionError (SAMPLER_ASLEEP). Raises
        ResourceExhaustedError (SLEEP_FAILED) when the weights find no room; the engine is then awake as before.
        `job` is a sampling or a log-prob job; one of these on DeepSpeed has level 1 only.
        """
        request = put(pb.SleepRequest(job_id=job_id(job)), level=level)
        response = await self._connection.unary(_SLEEP, request, timeout=timeout)
        return memory_from_proto(response.memory, response.changed)

    async def wake(
        self, part: WakePart | str | None = None, *, job: JobRef | None = None, timeout: float | None = None
    ) -> MemoryChange:
        """Undoes `sleep`: all of it, or "weights" first (enough for a sync) and "kv_cache" later.

        What is awake stays so. Raises FailedPreconditionError (WEIGHTS_ASLEEP) for "kv_cache" before "weights".
        """
        request = pb.WakeRequest(job_id=job_id(job), part=enum_to_proto(pb.WakePart, part, "part"))
        response = await self._connection.unary(_WAKE, request, timeout=timeout)
        return memory_from_proto(response.memory, response.changed)

    async def reset_prefix_cache(self, *, job: JobRef | None = None, timeout: float | None = None) -> None:
        """Forgets cached prefixes, so that nothing computed by older weights is used again."""
        await self._connection.unary(_RESET, pb.ResetPrefixCacheRequest(job_id=job_id(job)), timeout=timeout)

    async def pause(
        self,
        in_flight: InFlightPolicy | str | None = None,
        *,
        job: JobRef | None = None,
        timeout: float | None = None,
    ) -> None:
        """Stops sampling until `resume`. `in_flight`: requests in the engine are awaited ("wait", the default), ended
        ("abort") or kept ("keep")."""
        policy = enum_to_proto(pb.InFlightPolicy, in_flight, "in_flight")
        await self._connection.unary(_PAUSE, pb.PauseRequest(job_id=job_id(job), in_flight=policy), timeout=timeout)

    async def resume(self, *, job: JobRef | None = None, timeout: float | None = None) -> None:
        """Samples again after `pause`."""
        await self._connection.unary(_RESUME, pb.ResumeRequest(job_id=job_id(job)), timeout=timeout)
