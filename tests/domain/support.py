"""Callers and jobs for the tests of the domain."""

from __future__ import annotations

import asyncio

from gradwire.server.domain.caller import Caller
from gradwire.server.domain.jobs import JobState
from gradwire.server.domain.registry import AnyJob, JobRegistry
from gradwire.server.engines.sampling import SamplerConfig
from gradwire.server.engines.training import TrainingConfig
from tests.fake_engines import FakeEngines

SCOPES = frozenset({"INFERENCE", "TRAINING"})
ALICE = Caller("alice", "a", SCOPES)
BOB = Caller("bob", "b", SCOPES)
SAMPLER = SamplerConfig("tiny")
TRAINER = TrainingConfig("tiny")


def new_registry(engines: FakeEngines, *, max_jobs: int = 8) -> JobRegistry:
    return JobRegistry(engines, max_jobs=max_jobs)


async def create(
    registry: JobRegistry, *configs: SamplerConfig | TrainingConfig, lease_s: float | None = None
) -> list[AnyJob]:
    """Jobs of Alice's."""
    return await registry.create(configs, tenant="alice", lease_s=lease_s, progress=lambda job_id, line: None)


def state_of(job: AnyJob) -> JobState:
    """Its state, which a type checker cannot take for the one asserted before."""
    return job.state


async def settle() -> None:
    """Let every task that can run do so."""
    for _ in range(20):
        await asyncio.sleep(0)
