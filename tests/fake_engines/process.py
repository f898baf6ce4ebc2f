"""What all fakes share: the life of an engine's processes, and the sizes of the model."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import numpy as np

from gradwire.server.engines.base import Progress
from gradwire.server.engines.sampling import ModelInfo, SamplerConfig, TokenIds
from gradwire.server.engines.scoring import LogProbConfig
from gradwire.server.errors import InvalidArgument, Unavailable

VOCABULARY = 256
CONTEXT = 64
WEIGHT = "model.weight"


class FakeProcess:
    """A start and an end that tests can stop or break, and a pulse."""

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


class FakeModel(FakeProcess):
    """What fakes that read text share: a model of bytes, without a chat template."""

    config: SamplerConfig | LogProbConfig

    @property
    def info(self) -> ModelInfo:
        return ModelInfo(
            self.config.model, self.config.model_path, CONTEXT, VOCABULARY,
            "float32" if self.config.dtype == "auto" else self.config.dtype, (0,),
            has_chat_template=False, max_log_probs=self.config.max_log_probs, architecture="Fake",
        )  # fmt: skip

    def tokenize(self, text: str, *, add_special_tokens: bool = True) -> TokenIds:
        return np.frombuffer(text.encode(), dtype=np.uint8).astype(np.int32)

    def apply_chat_template(
        self, messages: Sequence[dict[str, object]], *, add_generation_prompt: bool = True
    ) -> TokenIds:
        raise InvalidArgument.at("messages", "the model has no chat template")
