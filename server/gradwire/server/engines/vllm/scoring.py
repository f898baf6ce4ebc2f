"""`VllmScorer`: a log-prob engine on vLLM, a sampler whose prompts' log-probs are asked for.

vLLM gives the log-probs of its own distribution: no temperature, no entropies.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import fields
from itertools import pairwise

import numpy as np

from gradwire.server.engines.base import Progress
from gradwire.server.engines.exclusion import SharedOrAlone
from gradwire.server.engines.sampling import (
    ModelInfo,
    PromptInfo,
    SamplerConfig,
    SampleRequest,
    SamplingParams,
    TokenIds,
)
from gradwire.server.engines.scoring import (
    DEEPSPEED,
    LogProbConfig,
    RowScores,
    Scores,
    check_rows,
    check_widths,
    refuse_foreign_fields,
)
from gradwire.server.engines.tasks import together
from gradwire.server.engines.training import ForwardResult, TrainingBatch
from gradwire.server.engines.vllm.engine import VllmSampler
from gradwire.server.engines.weights import InFlightPolicy, MemoryReport, TensorChecksum, WeightManifest
from gradwire.server.errors import InvalidArgument, Unavailable
from gradwire.server.losses.checks import check_layout, check_token_ids, default_mask

_SHARED = {field.name for field in fields(SamplerConfig)} & {field.name for field in fields(LogProbConfig)}


class VllmScorer:
    """LogProbEngine (engines/base.py). A call is scored by one version: updates wait for calls, and calls for them."""

    def __init__(self, config: LogProbConfig) -> None:
        """Raises InvalidArgument for settings of the other engine."""
        refuse_foreign_fields(config, ("max_tokens_per_micro_batch", "threads"), DEEPSPEED)
        self._sampler = VllmSampler(_sampler_config(config))
        self._turns = SharedOrAlone()
        self._version = 0
        self._numbers = itertools.count()

    @property
    def info(self) -> ModelInfo:
        """What scores. Valid after `start`."""
        return self._sampler.info

    async def start(self, progress: Progress) -> None:
        """Load the model and start the engine's processes."""
        await self._sampler.start(progress)

    def tokenize(self, text: str, *, add_special_tokens: bool = True) -> TokenIds:
        """Token ids of a text, int32 [T]. Blocks."""
        return self._sampler.tokenize(text, add_special_tokens=add_special_tokens)

    def apply_chat_template(
        self, messages: Sequence[dict[str, object]], *, add_generation_prompt: bool = True
    ) -> TokenIds:
        """Token ids of a conversation, int32 [T]."""
        return self._sampler.apply_chat_template(messages, add_generation_prompt=add_generation_prompt)

    async def score(self, rows: Sequence[TokenIds], *, top_k: int = 0) -> Scores:
        """Log-probs of each row's tokens, and of the `top_k` most likely ones at each place."""
        check_rows(rows, vocab_size=self.info.vocab_size, longest=self._longest)
        async with self._turns.shared():
            version = self._version
            scores = await together(self._score(row, top_k) for row in rows)
        return Scores(tuple(scores), version)

    async def fwd_no_grad(
        self, batch: TrainingBatch, *, temperature: float = 1.0, entropy: bool = False
    ) -> ForwardResult:
        """Log-probs of a batch's own tokens; where it has a loss mask, only there, and 0 elsewhere."""
        if temperature != 1.0:
            raise InvalidArgument.at(
                "temperature",
                f"is {temperature:g}; a log-prob job on vLLM computes at 1 only, one on DeepSpeed at any",
            )
        if entropy:
            raise InvalidArgument.at(
                "entropy", "a log-prob job on vLLM gives no entropies; make one with the deepspeed engine"
            )
        check_layout(batch)
        check_token_ids(batch, self.info.vocab_size)
        check_widths(batch, self._longest)
        rows = [batch.input_ids[start:end] for start, end in pairwise(batch.row_offsets)]
        scores = await self.score(rows)
        # Entry i belongs to token i + 1; a row's last is nobody's.
        shifted = np.concatenate([np.append(row.log_probs[1:], np.float32(0)) for row in scores.rows])
        shifted[default_mask(batch) == 0] = 0
        return ForwardResult(shifted.astype(np.float32), None, scores.weight_version)

    @property
    def _longest(self) -> int:
        # One token is sampled and thrown away: vLLM scores only what it then continues.
        return self.info.max_model_len - 1

    async def _score(self, row: TokenIds, top_k: int) -> RowScores:
        request = SampleRequest(
            request_id=f"score-{next(self._numbers)}",
            prompt_token_ids=row,
            params=SamplingParams(temperature=0.0, max_tokens=1, prompt_log_probs=top_k),
            stream=False,
        )
        found: PromptInfo | None = None
        async for event in self._sampler.generate(request):
            found = event.prompt or found
        if found is None or found.log_probs is None:  # ended by sleep
            raise Unavailable("SCORING_ENDED", "the engine gave the request up; send it again")
        return RowScores(found.log_probs, found.top_log_probs)

    def check_manifest(self, manifest: WeightManifest) -> None:
        """Raises InvalidArgument when it does not fit the model."""
        self._sampler.check_manifest(manifest)

    async def update_weights(self, segment: str, manifest: WeightManifest, version: int) -> None:
        """Load a segment's tensors as weight version `version`, after the calls under way. All or nothing."""
        async with self._turns.alone():
            try:
                await self._sampler.pause(InFlightPolicy.WAIT)
                await self._sampler.update_weights(segment, manifest, version)
                self._version = version
            finally:
                await self._sampler.resume()

    async def weight_version(self) -> int:
        """Version of the weights that score now."""
        return self._version

    async def weight_norm(self) -> float:
        """L2 norm of all parameters."""
        return await self._sampler.weight_norm()

    async def checksums(self) -> list[TensorChecksum]:
        """Checksums under Hugging Face names, in the engine's dtype."""
        return await self._sampler.checksums()

    async def sleep(self, level: int) -> MemoryReport:
        """Give memory back, after the calls under way. See VllmSampler.sleep."""
        async with self._turns.alone():
            return await self._sampler.sleep(level)

    async def wake(self, tags: Sequence[str] | None) -> MemoryReport:
        """Undo `sleep`: all of it, or "weights" first and "kv_cache" later."""
        async with self._turns.alone():
            memory = await self._sampler.wake(tags)
            self._version = await self._sampler.weight_version()  # 0 when they were dropped
            return memory

    async def check_health(self) -> None:
        """Raises Unavailable when a process of the engine is dead."""
        await self._sampler.check_health()

    async def shutdown(self) -> None:
        """Stop the engine's processes."""
        await self._sampler.shutdown()


def _sampler_config(config: LogProbConfig) -> SamplerConfig:
    given = {name: value for name in _SHARED if (value := getattr(config, name)) or name == "max_log_probs"}
    # No prefix is reused where the log-probs of the whole prompt are asked for.
    return SamplerConfig(data_parallel_size=config.num_workers, enable_prefix_caching=False, **given)
