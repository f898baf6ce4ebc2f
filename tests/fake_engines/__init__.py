"""Engines that keep the Protocols and compute next to nothing: for tests of what is around engines.

The sampler answers a prompt with its own tokens, reversed; the trainer's weights are one vector that
each step moves by the learning rate. Both can be told to fail or to wait at a given point.
"""

from __future__ import annotations

from collections.abc import Callable

from gradwire.server.engines.sampling import SamplerConfig
from gradwire.server.engines.scoring import LogProbConfig
from gradwire.server.engines.training import TrainingConfig
from tests.fake_engines.openai import FakeOpenAi
from tests.fake_engines.reference import FakeLogProb
from tests.fake_engines.sampler import FakeSampler
from tests.fake_engines.trainer import FakeTrainer, write_checkpoint

__all__ = ["FakeEngines", "FakeLogProb", "FakeOpenAi", "FakeSampler", "FakeTrainer", "write_checkpoint"]


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
