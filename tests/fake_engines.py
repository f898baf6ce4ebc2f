"""Engines that keep the Protocols and compute next to nothing: for tests of what is around engines.

The sampler answers a prompt with its own tokens, reversed; the trainer's weights are one vector that
each step moves by the learning rate. Both can be told to fail or to wait at a given point.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from gradwire.server.engines.base import Progress
from gradwire.server.engines.openai import Endpoint, OpenAiCall, Reply
from gradwire.server.engines.sampling import (
    CompletionDelta,
    FinishReason,
    ModelInfo,
    PromptInfo,
    SampleEvent,
    SamplerConfig,
    SampleRequest,
    TokenIds,
    TopLogProbs,
    WeightSpan,
)
from gradwire.server.engines.scoring import LogProbConfig, RowScores, Scores, check_rows
from gradwire.server.engines.sharedmem import SharedSegment
from gradwire.server.engines.training import (
    CheckpointInfo,
    ForwardResult,
    FwdBwdResult,
    LossSpec,
    SleepMode,
    StepResult,
    TrainerPart,
    TrainingBatch,
    TrainingConfig,
)
from gradwire.server.engines.weights import (
    AdapterSpec,
    InFlightPolicy,
    MemoryReport,
    TensorChecksum,
    TensorSpec,
    WeightManifest,
)
from gradwire.server.errors import FailedPrecondition, InvalidArgument, Unavailable

VOCABULARY = 256
CONTEXT = 64
WEIGHT = "model.weight"


class _Process:
    """What both fakes share: a start and an end that tests can stop or break, and a pulse."""

    def __init__(self) -> None:
        self.start_error: BaseException | None = None
        self.start_gate: asyncio.Event | None = None
        self.shutdown_error: Exception | None = None
        self.dead = ""
        self.health_gate: asyncio.Event | None = None
        self.shutdowns = 0

    async def start(self, progress: Progress) -> None:
        progress("loading")
        if self.start_gate is not None:
            await self.start_gate.wait()
        if self.start_error is not None:
            raise self.start_error

    async def check_health(self) -> None:
        if self.health_gate is not None:
            await self.health_gate.wait()
        if self.dead:
            raise Unavailable("ENGINE_DEAD", self.dead)

    async def shutdown(self) -> None:
        self.shutdowns += 1
        if self.shutdown_error is not None:
            raise self.shutdown_error


class FakeOpenAi:
    """Says how many bytes the prompt has. `bodies` and `calls` are what it was asked."""

    def __init__(self) -> None:
        self.bodies: list[Mapping[str, Any]] = []
        self.calls: list[OpenAiCall] = []
        self.error: Exception | None = None

    def models(self) -> Mapping[str, Any]:
        """One."""
        return {"object": "list", "data": [{"id": "fake", "object": "model"}]}

    async def answer(self, endpoint: Endpoint, body: Mapping[str, Any], call: OpenAiCall) -> Reply:
        """The same as a whole and as a stream."""
        self.bodies.append(body)
        self.calls.append(call)
        if self.error is not None:
            raise self.error
        answer = {"id": call.request_id, "length": len(body.get("prompt", ""))}
        return self._stream(answer) if body.get("stream") else answer

    async def _stream(self, answer: Mapping[str, Any]) -> AsyncIterator[str]:
        yield f"data: {answer['id']}\n\n"
        yield "data: [DONE]\n\n"


class FakeSampler(_Process):
    """`token_gate`, when set, is awaited before each token; `open` are the requests being sampled."""

    def __init__(self, config: SamplerConfig) -> None:
        super().__init__()
        self.config = config
        self.openai = FakeOpenAi()
        self.token_gate: asyncio.Semaphore | None = None
        self.generate_error: Exception | None = None
        self.manifest_error: Exception | None = None
        self.update_error: Exception | None = None
        self.update_gate: asyncio.Event | None = None
        self.update_begun = asyncio.Event()
        self.requests: list[SampleRequest] = []
        self.open: set[str] = set()
        self.opened = asyncio.Event()
        self.paused = False
        self.asleep = 0
        self.version = 0
        self.weights = b""

    @property
    def info(self) -> ModelInfo:
        return ModelInfo(
            self.config.model, self.config.model_path, CONTEXT, VOCABULARY, "float32", (0,),
            has_chat_template=False, max_log_probs=self.config.max_log_probs, architecture="Fake",
        )  # fmt: skip

    def tokenize(self, text: str, *, add_special_tokens: bool = True) -> TokenIds:
        return np.frombuffer(text.encode(), dtype=np.uint8).astype(np.int32)

    def apply_chat_template(
        self, messages: Sequence[dict[str, object]], *, add_generation_prompt: bool = True
    ) -> TokenIds:
        raise InvalidArgument.at("messages", "the model has no chat template")

    def decode(self, token_ids: TokenIds, *, skip_special_tokens: bool = True) -> str:
        return bytes(token_ids.astype(np.uint8)).decode(errors="replace")

    async def generate(self, request: SampleRequest) -> AsyncGenerator[SampleEvent, None]:
        self.requests.append(request)
        tokens = request.prompt_token_ids
        if len(tokens) >= CONTEXT:
            raise InvalidArgument.at("prompt.token_ids", f"{len(tokens)} tokens do not fit", reason="PROMPT_TOO_LONG")
        if self.asleep:
            raise FailedPrecondition("ENGINE_ASLEEP", "the engine sleeps")
        self.open.add(request.request_id)
        self.opened.set()
        try:
            params = request.params
            scores = None if params.prompt_log_probs is None else np.full(len(tokens), -1.0, np.float32)
            yield SampleEvent((), PromptInfo(len(tokens), 0, scores))
            answer = tokens[::-1][: params.max_tokens]
            for place in range(len(answer)):
                if self.token_gate is not None:
                    await self.token_gate.acquire()
                if self.generate_error is not None:
                    raise self.generate_error
                last = place == len(answer) - 1
                yield SampleEvent(tuple(self._delta(i, place, answer, last) for i in range(params.n)))
        finally:
            self.open.discard(request.request_id)

    def _delta(self, index: int, place: int, answer: TokenIds, last: bool) -> CompletionDelta:
        return CompletionDelta(
            index=index,
            first_token_index=place,
            token_ids=answer[place : place + 1],
            text=self.decode(answer[place : place + 1]),
            weight_spans=(WeightSpan(self.version, place, place + 1),),
            finish_reason=FinishReason.LENGTH if last else None,
        )

    async def num_unfinished(self) -> int:
        return len(self.open)

    async def reset_prefix_cache(self) -> None:
        return

    async def pause(self, policy: InFlightPolicy) -> None:
        self.paused = True

    async def resume(self) -> None:
        self.paused = False

    def check_manifest(self, manifest: WeightManifest) -> None:
        if self.manifest_error is not None:
            raise self.manifest_error

    async def update_weights(self, segment: str, manifest: WeightManifest, version: int) -> None:
        assert self.paused
        self.update_begun.set()
        if self.update_gate is not None:
            await self.update_gate.wait()
        if self.update_error is not None:
            raise self.update_error
        with SharedSegment.attach(segment) as attached:
            self.weights = b"".join(attached.array(t.offset, t.nbytes).tobytes() for t in manifest.tensors)
        self.version = version

    async def weight_version(self) -> int:
        return self.version

    async def update_adapter(
        self, name: str, spec: AdapterSpec, segment: str, manifest: WeightManifest, version: int
    ) -> None:
        raise NotImplementedError

    async def remove_adapter(self, name: str) -> None:
        raise NotImplementedError

    async def weight_norm(self, adapter: str = "") -> float:
        return float(np.linalg.norm(np.frombuffer(self.weights, dtype=np.float32)))

    async def checksums(self, adapter: str = "") -> list[TensorChecksum]:
        shape = (len(self.weights) // 4,)
        return [TensorChecksum(WEIGHT, "F32", shape, hashlib.sha256(self.weights).hexdigest())]

    async def sleep(self, level: int) -> MemoryReport:
        changed, self.asleep = not self.asleep, self.asleep or level
        return MemoryReport(2000, 1000, changed)

    async def wake(self, tags: Sequence[str] | None) -> MemoryReport:
        if self.asleep == 2:
            self.version = 0  # the weights were dropped
        changed, self.asleep = bool(self.asleep), 0
        return MemoryReport(1000, 2000, changed)


class FakeTrainer(_Process):
    """`gate`, when set, is awaited inside each fwd_bwd and step; `applied` lists what was done."""

    def __init__(self, config: TrainingConfig) -> None:
        super().__init__()
        self._config = config
        self._version = 0
        self._steps = 0
        self.weights: npt.NDArray[np.float32] = np.ones(8, np.float32)
        self.gradients = 0
        self.gate: asyncio.Event | None = None
        self.begun = asyncio.Event()
        self.error: Exception | None = None
        self.applied: list[str] = []
        self.asleep: frozenset[TrainerPart] = frozenset()

    @property
    def config(self) -> TrainingConfig:
        return self._config

    @property
    def weight_version(self) -> int:
        return self._version

    @property
    def vocab_size(self) -> int:
        return VOCABULARY

    async def _reach(self, name: str) -> None:
        self.begun.set()
        if self.gate is not None:
            await self.gate.wait()
        if self.error is not None:
            raise self.error
        self.applied.append(name)

    async def fwd_bwd(self, batch: TrainingBatch, loss: LossSpec, *, outputs: bool = False) -> FwdBwdResult:
        await self._reach("fwd_bwd")
        self.gradients += 1
        values = batch.input_ids.astype(np.float32) if outputs else None
        assert batch.loss_mask is not None
        return FwdBwdResult(1.5, int(np.count_nonzero(batch.loss_mask)), {"loss": 1.5}, 1, values, values)

    async def fwd_no_grad(
        self, batch: TrainingBatch, *, temperature: float = 1.0, entropy: bool = False
    ) -> ForwardResult:
        values = batch.input_ids.astype(np.float32)
        return ForwardResult(values, values if entropy else None, self._version)

    async def step(self, *, lr: float | None = None, max_grad_norm: float | None = None) -> StepResult:
        await self._reach("step")
        if not self.gradients:
            raise FailedPrecondition("NO_GRADIENTS", "there are no gradients to apply")
        rate = self._config.optimizer.lr if lr is None else lr
        self.weights = self.weights - np.float32(rate)
        self.gradients, self._version, self._steps = 0, self._version + 1, self._steps + 1
        return StepResult(1.0, rate, self._version, self._steps)

    async def save_checkpoint(self, path: Path, *, name: str, merged: bool = False) -> CheckpointInfo:
        await self._reach("save_checkpoint")
        path.mkdir()  # noqa: ASYNC240
        info = CheckpointInfo(name, str(path), str(path / "hf"), self._version, self._steps, 32, time.time())
        write_checkpoint(path, info)
        return info

    async def load_checkpoint(self, path: Path) -> StepResult:
        await self._reach("load_checkpoint")
        self._steps = int(json.loads((path / "checkpoint.json").read_text())["step"])
        self._version += 1
        return StepResult(0.0, 1e-5, self._version, self._steps)

    async def weight_manifest(self, dtype: str, *, merged: bool = False) -> WeightManifest:
        size = self.weights.nbytes
        return WeightManifest((TensorSpec(WEIGHT, dtype, self.weights.shape, 0, size),), size)

    async def export_weights(self, segment: str, manifest: WeightManifest, *, merged: bool = False) -> None:
        with SharedSegment.attach(segment, writable=True) as attached:
            attached.buffer[: self.weights.nbytes] = self.weights.tobytes()

    async def weight_norm(self) -> float:
        return float(np.linalg.norm(self.weights))

    async def sleep(self, mode: SleepMode) -> MemoryReport:
        await self._reach(f"sleep {mode}")
        before, self.asleep = self.asleep, self.asleep | mode.parts
        return MemoryReport(2000, 1000, changed=self.asleep != before)

    async def wake(self) -> MemoryReport:
        await self._reach("wake")
        changed, self.asleep = bool(self.asleep), frozenset()
        return MemoryReport(1000, 2000, changed)

    async def empty_cache(self) -> MemoryReport:
        await self._reach("empty_cache")
        return MemoryReport(2000, 1900)

    async def checksums(self, dtype: str, *, merged: bool = False) -> list[TensorChecksum]:
        digest = hashlib.sha256(self.weights.tobytes()).hexdigest()
        return [TensorChecksum(WEIGHT, dtype, self.weights.shape, digest)]


class FakeLogProb(_Process):
    """Scores token t as -t under version 0, and one less a version."""

    def __init__(self, config: LogProbConfig) -> None:
        super().__init__()
        self.config = config
        self.version = 0
        self.weights = b""
        self.update_error: Exception | None = None
        self.error: Exception | None = None

    @property
    def info(self) -> ModelInfo:
        return ModelInfo(
            self.config.model, self.config.model_path, CONTEXT, VOCABULARY, "float32", (0,),
            has_chat_template=False, max_log_probs=self.config.max_log_probs, architecture="Fake",
        )  # fmt: skip

    def tokenize(self, text: str, *, add_special_tokens: bool = True) -> TokenIds:
        return np.frombuffer(text.encode(), dtype=np.uint8).astype(np.int32)

    def apply_chat_template(
        self, messages: Sequence[dict[str, object]], *, add_generation_prompt: bool = True
    ) -> TokenIds:
        raise InvalidArgument.at("messages", "the model has no chat template")

    async def score(self, rows: Sequence[TokenIds], *, top_k: int = 0) -> Scores:
        if self.error is not None:
            raise self.error
        check_rows(rows, vocab_size=VOCABULARY, longest=CONTEXT)
        scored = []
        for row in rows:
            values = (-row - self.version).astype(np.float32)
            values[0] = np.nan
            ids = np.tile(np.arange(top_k, dtype=np.int32), (len(row), 1))
            scored.append(RowScores(values, TopLogProbs(ids, -ids.astype(np.float32)) if top_k else None))
        return Scores(tuple(scored), self.version)

    async def fwd_no_grad(
        self, batch: TrainingBatch, *, temperature: float = 1.0, entropy: bool = False
    ) -> ForwardResult:
        if entropy:
            raise InvalidArgument.at("entropy", "this engine gives none")
        return ForwardResult(batch.input_ids.astype(np.float32), None, self.version)

    def check_manifest(self, manifest: WeightManifest) -> None:
        pass

    async def update_weights(self, segment: str, manifest: WeightManifest, version: int) -> None:
        if self.update_error is not None:
            raise self.update_error
        with SharedSegment.attach(segment) as attached:
            self.weights = b"".join(attached.array(t.offset, t.nbytes).tobytes() for t in manifest.tensors)
        self.version = version

    async def weight_version(self) -> int:
        return self.version

    async def weight_norm(self) -> float:
        return float(np.linalg.norm(np.frombuffer(self.weights, dtype=np.float32)))

    async def checksums(self) -> list[TensorChecksum]:
        shape = (len(self.weights) // 4,)
        return [TensorChecksum(WEIGHT, "F32", shape, hashlib.sha256(self.weights).hexdigest())]

    async def sleep(self, level: int) -> MemoryReport:
        return MemoryReport(2000, 1000)

    async def wake(self, tags: Sequence[str] | None) -> MemoryReport:
        return MemoryReport(1000, 2000)


def write_checkpoint(path: Path, info: CheckpointInfo) -> None:
    """The file that makes a folder a checkpoint."""
    facts = {
        "weight_version": info.weight_version,
        "step": info.step,
        "nbytes": info.nbytes,
        "created_unix": info.created_unix,
    }
    (path / "checkpoint.json").write_text(json.dumps(facts))


class FakeEngines:
    """An engine factory; `prepare_sampler` and `prepare_trainer` see each engine before it starts."""

    def __init__(self) -> None:
        self.samplers: list[FakeSampler] = []
        self.trainers: list[FakeTrainer] = []
        self.references: list[FakeLogProb] = []
        self.prepare_sampler: Callable[[FakeSampler], None] = lambda engine: None
        self.prepare_trainer: Callable[[FakeTrainer], None] = lambda engine: None

    def sampler(self, config: SamplerConfig) -> FakeSampler:
        engine = FakeSampler(config)
        self.prepare_sampler(engine)
        self.samplers.append(engine)
        return engine

    def trainer(self, config: TrainingConfig) -> FakeTrainer:
        engine = FakeTrainer(config)
        self.prepare_trainer(engine)
        self.trainers.append(engine)
        return engine

    def log_prob(self, config: LogProbConfig) -> FakeLogProb:
        engine = FakeLogProb(config)
        self.references.append(engine)
        return engine
