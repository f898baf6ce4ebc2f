"""`client.sampling`: sample completions, score text, and put a sampler to sleep.

Generated from `gradwire.client.aio.sampling` by scripts/gen_sync_client.py; edit that instead.
"""

from __future__ import annotations

from typing import Unpack

from gradwire.client.aio.sampling import AsyncSampling
from gradwire.client.sync.portal import Portal
from gradwire.client.sync.streams import SampleStream
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


class Sampling:
    """Samples from the model of a sampling job: `job`, or the one that the server was started with."""

    def __init__(self, client: AsyncSampling, loop: Portal) -> None:
        self._async = client
        self._loop = loop

    def generate(
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
        return self._loop.run(
            self._async.generate(
                prompts,
                params,
                job=job,
                adapter=adapter,
                min_weight_version=min_weight_version,
                cache_salt=cache_salt,
                priority=priority,
                rollout=rollout,
                timeout=timeout,
                **sampling,
            )
        )

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
    ) -> SampleStream:
        """Completions of one prompt, token by token. The call begins at once; see `generate` for the rest."""
        return SampleStream(
            self._loop.call(
                lambda: self._async.generate_stream(
                    prompt,
                    params,
                    job=job,
                    adapter=adapter,
                    min_weight_version=min_weight_version,
                    cache_salt=cache_salt,
                    priority=priority,
                    rollout=rollout,
                    timeout=timeout,
                    **sampling,
                )
            ),
            self._loop,
        )

    def log_probs(
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
        return self._loop.run(
            self._async.log_probs(
                prompts,
                completions,
                top_k=top_k,
                job=job,
                adapter=adapter,
                min_weight_version=min_weight_version,
                timeout=timeout,
            )
        )

    def sleep(self, level: int = 1, *, job: JobRef | None = None, timeout: float | None = None) -> MemoryChange:
        """Gives the engine's memory back until `wake`; running requests end with finish reason "abort".

        Level 1 keeps the weights (on a CPU in a file without a name, on a GPU in host memory); level 2 drops them,
        for when new ones will be synced: `wake` brings those of the model's folder, version 0. Asking twice is
        fine: `changed` is False then. The result has the bytes that the engine's processes held before and after.

        Until then `generate`, `log_probs` and a sync raise FailedPreconditionError (SAMPLER_ASLEEP). Raises
        ResourceExhaustedError (SLEEP_FAILED) when the weights find no room; the engine is then awake as before.
        `job` is a sampling or a log-prob job; one of these on DeepSpeed has level 1 only.
        """
        return self._loop.run(self._async.sleep(level, job=job, timeout=timeout))

    def wake(
        self, part: WakePart | str | None = None, *, job: JobRef | None = None, timeout: float | None = None
    ) -> MemoryChange:
        """Undoes `sleep`: all of it, or "weights" first (enough for a sync) and "kv_cache" later.

        What is awake stays so. Raises FailedPreconditionError (WEIGHTS_ASLEEP) for "kv_cache" before "weights".
        """
        return self._loop.run(self._async.wake(part, job=job, timeout=timeout))

    def reset_prefix_cache(self, *, job: JobRef | None = None, timeout: float | None = None) -> None:
        """Forgets cached prefixes, so that nothing computed by older weights is used again."""
        self._loop.run(self._async.reset_prefix_cache(job=job, timeout=timeout))

    def pause(
        self, in_flight: InFlightPolicy | str | None = None, *, job: JobRef | None = None, timeout: float | None = None
    ) -> None:
        """Stops sampling until `resume`. `in_flight`: requests in the engine are awaited ("wait", the default), ended
        ("abort") or kept ("keep").
        """
        self._loop.run(self._async.pause(in_flight, job=job, timeout=timeout))

    def resume(self, *, job: JobRef | None = None, timeout: float | None = None) -> None:
        """Samples again after `pause`."""
        self._loop.run(self._async.resume(job=job, timeout=timeout))
