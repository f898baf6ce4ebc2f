"""A job with a lease: kept by heartbeats, paused without, then destroyed."""

from __future__ import annotations

import asyncio

import pytest

from gradwire.server.domain.jobs import JobState
from gradwire.server.domain.monitor import JobMonitor
from gradwire.server.domain.registry import AnyJob, JobRegistry
from gradwire.server.errors import FailedPrecondition, NotFound
from tests.domain.support import ALICE, BOB, SAMPLER, TRAINER, create, new_registry, settle, state_of
from tests.fake_engines import FakeEngines

LEASE_S = 100.0


def age(job: AnyJob, seconds: float) -> None:
    """As if the last heartbeat had come so long ago."""
    assert job.lease is not None
    job.lease.renewed -= seconds


async def look(registry: JobRegistry) -> None:
    await asyncio.gather(*JobMonitor(registry).look_after_all())
    await settle()


async def test_without_a_heartbeat_the_job_pauses_and_refuses_work() -> None:
    registry = new_registry(FakeEngines())
    (job,) = await create(registry, TRAINER, lease_s=LEASE_S)
    age(job, LEASE_S + 1)
    await look(registry)
    assert state_of(job) is JobState.PAUSED
    with pytest.raises(FailedPrecondition) as caught:
        registry.training(job.job_id, ALICE)
    assert caught.value.reason == "LEASE_LAPSED"


async def test_a_heartbeat_brings_a_paused_job_back() -> None:
    registry = new_registry(FakeEngines())
    (job,) = await create(registry, TRAINER, lease_s=LEASE_S)
    age(job, LEASE_S + 1)
    await look(registry)
    registry.heartbeat([job.job_id], ALICE)
    assert state_of(job) is JobState.READY
    await look(registry)
    assert registry.training(job.job_id, ALICE) is job


async def test_a_sleeping_job_comes_back_asleep() -> None:
    registry = new_registry(FakeEngines())
    (job,) = await create(registry, SAMPLER, lease_s=LEASE_S)
    job.set_state(JobState.SLEEPING, "asleep")
    age(job, LEASE_S + 1)
    await look(registry)
    assert state_of(job) is JobState.PAUSED
    registry.heartbeat([job.job_id], ALICE)
    assert state_of(job) is JobState.SLEEPING


async def test_falling_asleep_does_not_end_a_pause() -> None:
    registry = new_registry(FakeEngines())
    (job,) = await create(registry, SAMPLER, lease_s=LEASE_S)
    age(job, LEASE_S + 1)
    await look(registry)
    job.set_state(JobState.SLEEPING, "asleep")  # the call began before the lease lapsed
    assert state_of(job) is JobState.PAUSED
    registry.heartbeat([job.job_id], ALICE)
    assert state_of(job) is JobState.SLEEPING


async def test_after_twice_the_lease_the_job_is_destroyed_and_its_watchers_are_told() -> None:
    engines = FakeEngines()
    registry = new_registry(engines)
    (job,) = await create(registry, TRAINER, lease_s=LEASE_S)
    lines = job.watch()
    age(job, 2 * LEASE_S + 1)
    await look(registry)
    assert state_of(job) is JobState.DESTROYED
    assert lines.get_nowait() == "destroyed"
    assert engines.trainers[0].shutdowns == 1
    with pytest.raises(NotFound):
        registry.get(job.job_id, ALICE)


async def test_heartbeats_renew_all_or_none() -> None:
    registry = new_registry(FakeEngines())
    (job,) = await create(registry, TRAINER, lease_s=LEASE_S)
    age(job, 50)
    assert job.lease is not None
    before = job.lease.renewed
    with pytest.raises(NotFound):
        registry.heartbeat([job.job_id, 99], ALICE)
    with pytest.raises(NotFound):
        registry.heartbeat([job.job_id], BOB)
    assert job.lease.renewed == before


async def test_a_lease_begins_when_all_jobs_of_the_call_are_ready() -> None:
    engines, gate = FakeEngines(), asyncio.Event()
    engines.prepare_trainer = lambda engine: setattr(engine, "start_gate", gate)
    registry = new_registry(engines)
    creating = asyncio.create_task(create(registry, SAMPLER, TRAINER, lease_s=0.0))
    await settle()
    await look(registry)  # a lease of no length, and yet nothing lapses
    assert [job.state for job in registry.all()] == [JobState.READY, JobState.STARTING]
    gate.set()
    jobs = await creating
    assert all(job.lease is not None for job in jobs)


async def test_a_job_without_a_lease_stays() -> None:
    registry = new_registry(FakeEngines())
    (job,) = await create(registry, TRAINER)
    await look(registry)
    assert state_of(job) is JobState.READY
    assert registry.heartbeat([job.job_id], ALICE) == [job]
