"""A log-prob job on DeepSpeed's workers, seen from the front process: forward-only ranks as one LogProbEngine.

Tokenises, checks what it is given, deals rows to the workers, joins their answers. Does not know: torch, or what
becomes of a worker that fails (operations.py).
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from gradwire.server.engines.base import Progress
from gradwire.server.engines.deepspeed import messages as m
from gradwire.server.engines.deepspeed.config import checked_config
from gradwire.server.engines.deepspeed.dealing import check_temperature, forward, fwd_no_grad, joined
from gradwire.server.engines.deepspeed.launcher import LocalLauncher, free_port
from gradwire.server.engines.deepspeed.operations import WorkerGroup
from gradwire.server.engines.manifest import Shapes, check_manifest, folder_shapes
from gradwire.server.engines.render import Renderer, check_length
from gradwire.server.engines.sampling import ModelInfo, TokenIds, TopLogProbs
from gradwire.server.engines.scoring import (
    VLLM,
    LogProbConfig,
    RowScores,
    Scores,
    check_rows,
    check_widths,
    refuse_foreign_fields,
)
from gradwire.server.engines.training import ForwardResult, SleepMode, TrainingBatch, TrainingConfig
from gradwire.server.engines.weights import MemoryReport, TensorChecksum, WeightManifest
from gradwire.server.errors import InvalidArgument, Unavailable
from gradwire.server.losses.checks import check_layout, check_token_ids, default_mask
from gradwire.worker.v1 import worker_pb2 as pb

_VLLM_ONLY = ("kv_cache_bytes", "gpu_memory_utilization", "tensor_parallel_size")
_SAFETENSORS = {"float32": "F32", "bfloat16": "BF16"}


class DeepSpeedScorer:
    """LogProbEngine (engines/base.py) on `config.num_workers` forward-only ranks.

    A call is one operation of the workers, so weights of one version answer it.
    """

    def __init__(self, config: LogProbConfig, *, launcher: LocalLauncher | None = None) -> None:
        """Raises InvalidArgument for a configuration that can never work. `model_path` is a local folder."""
        refuse_foreign_fields(config, _VLLM_ONLY, VLLM)
        self._limits = config
        self._config = checked_config(_worker_config(config))
        self._group = WorkerGroup(launcher or LocalLauncher())
        self._weight_version = 0
        self._renderer: Renderer | None = None
        self._info: ModelInfo | None = None
        self._shapes: Shapes = {}

    @property
    def info(self) -> ModelInfo:
        """What scores. Valid after `start`."""
        if self._info is None:
            raise Unavailable("ENGINE_NOT_RUNNING", "the log-prob engine has not been started")
        return self._info

    async def start(self, progress: Progress) -> None:
        """Start the workers and load the model; on an error nothing is left running."""
        world, folder = self._config.num_workers, Path(self._config.model_path)
        try:
            self._renderer = await asyncio.to_thread(Renderer, str(folder))
            self._shapes = await asyncio.to_thread(folder_shapes, folder)
            progress(f"starting {world} log-prob worker{'s' if world > 1 else ''}")
            await self._group.start(world)
            progress(f"loading {self._config.model}")
            config = m.config_to_proto(self._config)
            request = pb.InitRequest(config=config, master_port=free_port(), forward_only=True)
            (first, *_) = await self._group.operate("Init", [request] * world)
            self._info = _describe(self._limits, self._config, self._renderer, first.vocab_size)
            progress(f"log-prob engine ready: {first.num_parameters:,} parameters, {self._config.dtype}")
        except BaseException:
            self._group.give_up()  # not wait for a model to be loaded that nobody wants any more
            await self.shutdown()
            raise

    def tokenize(self, text: str, *, add_special_tokens: bool = True) -> TokenIds:
        """Token ids of a text, int32 [T]. Blocks; may be called from any thread."""
        tokens = self._tokens
        check_length(len(text), self.info, tokens.longest_token)
        return tokens.tokenize(text, add_special_tokens=add_special_tokens)

    def apply_chat_template(
        self, messages: Sequence[dict[str, object]], *, add_generation_prompt: bool = True
    ) -> TokenIds:
        """Token ids of a conversation, int32 [T]. Raises InvalidArgument at `messages`."""
        characters = sum(len(str(message.get("content", ""))) for message in messages)
        check_length(characters, self.info, self._tokens.longest_token)
        return self._tokens.apply_chat_template(messages, add_generation_prompt=add_generation_prompt)

    async def score(self, rows: Sequence[TokenIds], *, top_k: int = 0) -> Scores:
        """Log-probs of each row's tokens, and of the `top_k` most likely ones at each place."""
        check_rows(rows, vocab_size=self.info.vocab_size, longest=self.info.max_model_len)
        offsets = np.concatenate(([0], np.cumsum([len(row) for row in rows]))).astype(np.int64)
        batch = TrainingBatch(np.concatenate(rows).astype(np.int32), offsets, max(map(len, rows)))
        make = partial(pb.FwdNoGradRequest, temperature=1.0, top_k=top_k)
        shares, answers = await forward(self._group, batch, default_mask(batch), self._config.num_workers, make)
        shifted = joined(batch, shares, [a.log_probs for a in answers])
        tops: list[npt.NDArray[Any]] = []
        if top_k:
            tops.append(joined(batch, shares, [a.top_token_ids for a in answers], "<i4", top_k))
            tops.append(joined(batch, shares, [a.top_log_probs for a in answers], "<f4", top_k))
        scored = tuple(_unshifted(slice(*ends), shifted, tops) for ends in pairwise(offsets))
        return Scores(scored, answers[0].weight_version)

    async def fwd_no_grad(
        self, batch: TrainingBatch, *, temperature: float = 1.0, entropy: bool = False
    ) -> ForwardResult:
        """Log-probs of a batch's own tokens; where it has a loss mask, only there, and 0 elsewhere."""
        check_temperature(temperature)
        check_layout(batch)
        check_token_ids(batch, self.info.vocab_size)
        check_widths(batch, self.info.max_model_len)
        world = self._config.num_workers
        return await fwd_no_grad(self._group, batch, world, temperature=temperature, entropy=entropy)

    def check_manifest(self, manifest: WeightManifest) -> None:
        """Raises InvalidArgument, at `manifest` and `manifest[i]`, for what does not fit the model."""
        check_manifest(manifest, self._shapes)

    async def update_weights(self, segment: str, manifest: WeightManifest, version: int) -> None:
        """Load a segment's tensors as weight version `version`, after the operations before it. All or nothing."""
        check_manifest(manifest, self._shapes)
        request = pb.LoadWeightsRequest(
            segment=segment,
            tensors=m.manifest_to_proto(manifest),
            total_bytes=manifest.total_bytes,
            weight_version=version,
        )
        await self._group.operate("LoadWeights", self._alike(request), self._take_version)

    async def weight_version(self) -> int:
        """Version of the weights that score now."""
        return self._weight_version

    async def weight_norm(self) -> float:
        """L2 norm of all parameters, float64 accumulation, tied tensors once."""
        (first, *_) = await self._group.operate("GetNorm", self._alike(pb.GetNormRequest()))
        norm: float = first.norm
        return norm

    async def checksums(self) -> list[TensorChecksum]:
        """Checksums under Hugging Face names, in the engine's dtype, tied tensors once."""
        request = pb.GetChecksumsRequest(dtype=_SAFETENSORS[self._config.dtype])
        (first, *_) = await self._group.operate("GetChecksums", self._alike(request))
        return [TensorChecksum(c.name, c.dtype, tuple(c.shape), c.sha256) for c in first.checksums]

    async def sleep(self, level: int) -> MemoryReport:
        """Give the weights' memory back, after the operations before it; they come back as they were."""
        if level != 1:
            raise InvalidArgument.at(
                "level", f"is {level}; a log-prob job on DeepSpeed keeps its weights aside: 1 is all it can"
            )
        request = pb.SleepRequest(mode=SleepMode.ALL.value)
        return m.memory_from_proto(await self._group.operate("Sleep", self._alike(request)))

    async def wake(self, tags: Sequence[str] | None) -> MemoryReport:
        """Undo `sleep`, all of it."""
        if tags is not None:
            raise InvalidArgument.at("part", "a log-prob job on DeepSpeed wakes as a whole; leave it out")
        return m.memory_from_proto(await self._group.operate("Wake", self._alike(pb.WakeRequest())))

    async def check_health(self) -> None:
        """Raises Unavailable when a worker is dead or does not answer. Does not wait for operations."""
        await self._group.check_health()

    async def shutdown(self) -> None:
        """Stop the workers; returns when they are gone. Waits for a running operation first."""
        await self._group.shutdown()

    @property
    def _tokens(self) -> Renderer:
        if self._renderer is None:
            raise Unavailable("ENGINE_NOT_RUNNING", "the log-prob engine has not been started")
        return self._renderer

    def _take_version(self, answers: Sequence[Any]) -> None:
        self._weight_version = answers[0].weight_version

    def _alike(self, request: Any) -> list[Any]:
        return [request] * self._config.num_workers


def _worker_config(config: LogProbConfig) -> TrainingConfig:
    """What the workers are started with. Raises InvalidArgument for float16."""
    dtype = config.dtype
    if dtype == "float16":
        raise InvalidArgument.at("config.dtype", "the deepspeed engine computes in float32 or bfloat16, not float16")
    if dtype == "auto":
        own = _own(config, "dtype") or _own(config, "torch_dtype")
        dtype = own if own in _SAFETENSORS else "float32"
    given: dict[str, Any] = {"max_tokens_per_micro_batch": config.max_tokens_per_micro_batch, "threads": config.threads}
    return TrainingConfig(
        model=config.model,
        model_path=config.model_path,
        dtype=dtype,
        num_workers=config.num_workers,
        **{name: value for name, value in given.items() if value},
    )


def _own(config: LogProbConfig, name: str) -> Any:
    """An entry of the model's config.json; None when it has none."""
    file = Path(config.model_path) / "config.json"
    return json.loads(file.read_text(encoding="utf-8")).get(name) if file.is_file() else None


def _describe(limits: LogProbConfig, config: TrainingConfig, renderer: Renderer, vocab_size: int) -> ModelInfo:
    own = int(_own(limits, "max_position_embeddings") or 1 << 20)
    wanted = limits.max_model_len or own
    if wanted > own:
        raise InvalidArgument.at("config.max_model_len", f"is {wanted}; the model has {own} positions")
    eos = _own(limits, "eos_token_id")
    if eos is None:
        eos = renderer.eos_token_id
    return ModelInfo(
        name=config.model,
        path=config.model_path,
        max_model_len=wanted,
        vocab_size=vocab_size,
        dtype=config.dtype,
        eos_token_ids=(eos,) if isinstance(eos, int) else tuple(eos or ()),
        has_chat_template=renderer.has_chat_template,
        max_log_probs=min(limits.max_log_probs, vocab_size),
        architecture=(_own(limits, "architectures") or [""])[0],
    )


def _unshifted(row: slice, shifted: npt.NDArray[np.float32], tops: list[npt.NDArray[Any]]) -> RowScores:
    """A row of the shifted grid, entry i about token i + 1, as entries about token i."""
    log_probs = np.concatenate(([np.nan], shifted[row, 0][:-1])).astype(np.float32)
    if not tops:
        return RowScores(log_probs)
    ids, values = (np.roll(column[row], 1, axis=0) for column in tops)  # the last entry, unscored, comes first
    return RowScores(log_probs, TopLogProbs(ids, values))
