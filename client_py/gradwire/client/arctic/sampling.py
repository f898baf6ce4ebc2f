"""The sampling half of an ArcticRL client: completions, scores, sleep, and weights from the trainer."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from types import NoneType
from typing import Any

from gradwire.client._convert.nearest import check_names
from gradwire.client._core.arguments import check, items
from gradwire.client.arctic.base import ArcticRLBase
from gradwire.client.arctic.results import (
    Result,
    generate_results,
    inference_result,
    memory_result,
    norm_result,
    score_result,
    sync_result,
    workers_result,
)
from gradwire.client.arctic.sampling_params import read_params
from gradwire.client.arctic.streams import ArcticRLStream
from gradwire.client.types.jobs import JobKind
from gradwire.client.types.sampling import Prompt, Prompts

_TAGS = ("weights", "kv_cache")


class ArcticRLSampling(ArcticRLBase):
    """Methods of the sampling and the log-prob job. Each is a ValueError when its job is missing."""

    async def generate(
        self,
        prompts: Prompts,
        sampling_params: Mapping[str, Any] | None = None,
        *,
        min_weight_version: int = 0,
    ) -> list[Result]:
        """Completions of prompts: texts, lists of token ids, or lists of chat messages.

        `sampling_params` are vLLM's names (max_tokens, temperature, n, logprobs, ...). Returns one dict a
        prompt: text, token_ids, finish_reason, prompt_len, generation_len, prefix_cache_len, prompt_token_ids,
        weight_version, and `logprobs` / `prompt_logprobs` ([{token_id: {logprob, rank}}]) where asked for.
        With n above 1 these are the first completion's; `completions` has all n. Weights older than
        `min_weight_version` are FailedPreconditionError.
        """
        job = self.sampling_job_id
        params = read_params(sampling_params)
        found = await self._run(
            self._client.sampling.generate(prompts, params, job=job, min_weight_version=min_weight_version)
        )
        return generate_results(found)

    def generate_stream(
        self,
        prompt: Prompt,
        sampling_params: Mapping[str, Any] | None = None,
        *,
        min_weight_version: int = 0,
    ) -> ArcticRLStream:
        """Completions of one prompt as they come: `async for delta in client.generate_stream(...)`.

        A delta is {index, first_token_index, text, token_ids, weight_spans[, logprobs]}. `result()` reads to
        the end, and returns what `generate` does for the prompt. The call begins when it is first read.
        """
        job = self.sampling_job_id
        params = read_params(sampling_params)

        def begin() -> Any:
            return self._client.sampling.generate_stream(prompt, params, job=job, min_weight_version=min_weight_version)

        return ArcticRLStream(begin, self._run)

    async def log_probs(self, prompts: Prompts, completions: Prompts | None = None, top_k: int = 1) -> Result:
        """Log-probs of given text under the log-prob job's weights.

        `completions` follow the prompts, one each; None scores the prompts alone. `top_k` (1 or more) is how
        many of the most likely tokens are named at each place. Returns {job_id, results}: a dict a prompt with
        prompt_token_ids, token_ids, `prompt_logprobs` (None for the first token) and `logprobs` as
        [{token_id: {logprob, rank}}], and the same as float32 arrays `prompt_log_probs` [P] and `log_probs` [C].
        """
        job = self.log_prob_job_id
        if isinstance(top_k, bool) or not isinstance(top_k, int) or top_k < 1:
            raise ValueError(f"top_k is {top_k!r}; it is a whole number of at least 1")
        found = await self._run(self._client.sampling.log_probs(prompts, completions, top_k=top_k, job=job))
        return {"job_id": job, "results": [score_result(score) for score in found]}

    async def sync_weights(
        self, cuda_ipc: bool = False, low_memory: bool = False, *, request_id: str | None = None
    ) -> Result:
        """Carries the trainer's weights into the sampler, all or nothing, and wakes it if it slept.

        `cuda_ipc` (or the configuration's) asks for CUDA IPC: FailedPreconditionError where the server cannot,
        naming what it can. `low_memory` then moves one tensor at a time. `request_id` as for the training job's
        calls. Returns {job_id, status: "ok", weight_version, size_bytes, num_tensors, transport, export_s, pause_s,
        total_s}.
        """
        job, target = self.training_job_id, self.sampling_job_id
        check(cuda_ipc, "cuda_ipc", (bool, int, NoneType), "True or False")
        check(low_memory, "low_memory", (bool, int, NoneType), "True or False")
        transport = "cuda_ipc" if cuda_ipc or self._config.cuda_ipc else None
        sampling, weights = self._client.sampling, self._client.weights
        await self._run(sampling.wake("weights", job=target))
        found = await self._run(
            weights.sync(
                job,
                target,
                transport=transport,
                low_memory=low_memory or self._config.low_memory,
                request_id=request_id,
            )
        )
        await self._run(sampling.wake("kv_cache", job=target))
        return sync_result(job, found)

    async def weight_norm(self) -> Result:
        """L2 norms of both sides' weights, and which tensors differ. Reads all weights twice.

        Returns {training_norm, sampling_norm, training_num_params, sampling_num_params,
        training_weight_version, sampling_weight_version, different_tensors}. After a sync the last is empty.
        """
        return await self._run(self._weight_norm(self.training_job_id, self.sampling_job_id))

    async def _weight_norm(self, source: int, target: int) -> Result:
        weights = self._client.weights
        ours, theirs = await asyncio.gather(weights.get_norm(source), weights.get_norm(target))
        sampled = await weights.get_checksums(target)
        # The trainer's in the sampler's type: that is what a sync carries.
        dtypes = {checksum.dtype for checksum in sampled.checksums.values()}
        trained = await weights.get_checksums(source, dtype=dtypes.pop() if len(dtypes) == 1 else None)
        return norm_result(ours, theirs, trained, sampled)

    async def sleep_inference(self, level: int = 1) -> Result:
        """Gives the sampler's memory back. Level 1 keeps the weights aside, 2 drops them.

        A log-prob job sleeps by `sleep_log_prob`, whatever its engine. Returns {job_id, sampling: {status, level,
        workers: [{gpu_mb, before_bytes, after_bytes, freed_bytes, elapsed}]}}; `status` is "sleeping" or
        "already_sleeping".
        """
        if isinstance(level, bool) or level not in (1, 2):
            raise ValueError(f"level is {level!r}; it is 1 (keep the weights aside) or 2 (drop them)")
        job, began = self.sampling_job_id, time.monotonic()
        found = await self._run(self._client.sampling.sleep(level, job=job))
        status = "sleeping" if found.changed else "already_sleeping"
        return inference_result(job, memory_result(status, found, time.monotonic() - began), level=level)

    async def wake_inference(self, tags: Sequence[str] | None = None) -> Result:
        """Undoes `sleep_inference`: all of it, or ["weights"], then ["kv_cache"].

        Returns as there; `status` is "ready", "weights_ready" or "already_ready".
        """
        given = _TAGS if tags is None else tags
        chosen = [given] if isinstance(given, str) else items(given, "tags", f"a list of {', '.join(_TAGS)}")
        check_names("tags", chosen, _TAGS)
        if not chosen:
            raise ValueError(f"tags is empty; it is None for all, or some of {', '.join(_TAGS)}")
        part = chosen[0] if len(set(chosen)) == 1 else None
        job, began = self.sampling_job_id, time.monotonic()
        found = await self._run(self._client.sampling.wake(part, job=job))
        status = "weights_ready" if part == "weights" else "ready"
        status = status if found.changed else "already_ready"
        return inference_result(job, memory_result(status, found, time.monotonic() - began))

    async def reset_prefix_cache(self) -> Result:
        """Forgets cached prefixes. Returns {job_id, sampling: {status: "prefix_cache_reset"}}."""
        job = self.sampling_job_id
        await self._run(self._client.sampling.reset_prefix_cache(job=job))
        return {"job_id": job, "sampling": {"status": "prefix_cache_reset"}}

    async def sleep_log_prob(self) -> Result:
        """Gives the memory of the log-prob job back, whatever its engine; `wake_log_prob` undoes it.

        Returns as `sleep_training`, or {"status": "no_log_prob_job"} when there is none.
        """
        return await self._log_prob_engine("offloaded", "already_offloaded", sleep=True)

    async def wake_log_prob(self) -> Result:
        """Undoes `sleep_log_prob`. As there; `status` is "on_gpu" or "already_on_gpu"."""
        return await self._log_prob_engine("on_gpu", "already_on_gpu", sleep=False)

    async def _log_prob_engine(self, changed: str, same: str, *, sleep: bool) -> Result:
        job = self._jobs.get(JobKind.LOG_PROB)
        if job is None:
            return {"status": "no_log_prob_job"}
        sampling, began = self._client.sampling, time.monotonic()
        found = await self._run(sampling.sleep(job=job) if sleep else sampling.wake(job=job))
        return workers_result(job, memory_result(changed if found.changed else same, found, time.monotonic() - began))
