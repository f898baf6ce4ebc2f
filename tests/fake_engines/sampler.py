"""Answers a prompt with its own tokens, reversed."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncGenerator, Sequence

import numpy as np

from gradwire.server.engines.sampling import (
    CompletionDelta,
    FinishReason,
    PromptInfo,
    SampledTokens,
    SampleEvent,
    SamplerConfig,
    SampleRequest,
    SamplerLoad,
    SamplingParams,
    TokenIds,
    WeightSpan,
)
from gradwire.server.engines.sharedmem import SharedSegment
from gradwire.server.engines.weights import (
    AdapterSpec,
    InFlightPolicy,
    MemoryReport,
    TensorChecksum,
    WeightManifest,
)
from gradwire.server.errors import FailedPrecondition, InvalidArgument
from tests.fake_engines.openai import FakeOpenAi
from tests.fake_engines.process import CONTEXT, WEIGHT, FakeModel


class FakeSampler(FakeModel):
    """`token_gate`, when set, is awaited before each token; `open` are the requests being sampled."""

    def __init__(self, config: SamplerConfig) -> None:
        super().__init__()
        self.config = config
        self.openai = FakeOpenAi()
        self.tokens = SampledTokens()
        self.load_gate: asyncio.Event | None = None
        self.token_gate: asyncio.Semaphore | None = None
        self.generate_error: Exception | None = None
        self.finish = FinishReason.LENGTH
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
        self.adapters: dict[str, int] = {}  # versions by name

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
            self.tokens.prompt += len(tokens)
            yield SampleEvent((), PromptInfo(len(tokens), 0, scores))
            answer = tokens[::-1][: params.max_tokens]
            for place in range(len(answer)):
                if self.token_gate is not None:
                    await self.token_gate.acquire()
                if self.generate_error is not None:
                    raise self.generate_error
                last = place == len(answer) - 1
                self.tokens.sampled += params.n
                yield SampleEvent(tuple(self._delta(i, place, answer, last, params) for i in range(params.n)))
        finally:
            self.open.discard(request.request_id)

    def _delta(self, index: int, place: int, answer: TokenIds, last: bool, params: SamplingParams) -> CompletionDelta:
        return CompletionDelta(
            index=index,
            first_token_index=place,
            token_ids=answer[place : place + 1],
            text=bytes(answer[place : place + 1].astype(np.uint8)).decode(errors="replace"),
            log_probs=None if params.log_probs is None else np.array([-0.25], np.float32),
            weight_spans=(WeightSpan(self.version, place, place + 1),),
            finish_reason=self.finish if last else None,
        )

    async def load(self) -> SamplerLoad:
        await self.check_health()
        if self.load_gate is not None:
            await self.load_gate.wait()
        return SamplerLoad(len(self.open), 0, 0.25)

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
        assert self.paused
        self.adapters[name] = version

    async def remove_adapter(self, name: str) -> None:
        self.adapters.pop(name, None)

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
