"""Jobs: whose they are, how they come and go, and what happens when an engine does not play along."""

from __future__ import annotations

import asyncio

import pytest

from gradwire.server.domain.jobs import JobState
from gradwire.server.domain.monitor import JobMonitor
from gradwire.server.domain.operations import Operation
from gradwire.server.errors import (
    Aborted,
    FailedPrecondition,
    GradwireError,
    InvalidArgument,
    NotFound,
    PermissionDenied,
    ResourceExhausted,
    Unavailable,
)
from tests.domain.support import ALICE, BOB, SAMPLER, TRAINER, create, new_registry, settle, state_of
from tests.fake_engines import FakeEngines, FakeSampler, FakeTrainer


def fail_to_start(engine: FakeSampler | FakeTrainer) -> None:
    engine.start_error = GradwireError("NO_MEMORY", "no memory")


async def test_tenants_never_see_each_others_jobs() -> None:
    registry = new_registry(FakeEngines())
    (job,) = await create(registry, TRAINER)
    assert registry.visible(BOB) == []
    for ask in (registry.get, registry.training):
        with pytest.raises(NotFound) as caught:
            ask(job.job_id, BOB)
        with pytest.raises(NotFound) as missing:
            ask(99, BOB)
        assert caught.value.message.replace("1", "99") == missing.value.message
    with pytest.raises(NotFound):
        await registry.destroy(job.job_id, BOB)
    assert registry.visible(ALICE) == [job]


async def test_the_built_in_job_is_everyones_and_nobody_can_destroy_it() -> None:
    registry = new_registry(FakeEngines())
    job = await registry.start_built_in(SAMPLER, lambda job_id, line: None)
    assert registry.sampling(0, ALICE) is registry.sampling(job.job_id, BOB) is job
    with pytest.raises(PermissionDenied):
        await registry.destroy(job.job_id, ALICE)
    assert state_of(job) is JobState.READY


async def test_without_a_built_in_job_an_id_is_required() -> None:
    registry = new_registry(FakeEngines())
    with pytest.raises(InvalidArgument) as caught:
        registry.sampling(0, ALICE, field="sampling_job_id")
    assert caught.value.violations[0].field == "sampling_job_id"


async def test_a_job_of_the_other_kind_is_refused() -> None:
    registry = new_registry(FakeEngines())
    (job,) = await create(registry, TRAINER)
    with pytest.raises(InvalidArgument, match="is a training job; this call takes a sampling job"):
        registry.sampling(job.job_id, ALICE)


async def test_when_the_second_engine_fails_to_start_nothing_is_left() -> None:
    engines = FakeEngines()
    engines.prepare_trainer = fail_to_start
    registry = new_registry(engines)
    with pytest.raises(GradwireError, match="no memory"):
        await create(registry, SAMPLER, TRAINER)
    assert registry.all() == []
    assert [engines.samplers[0].shutdowns, engines.trainers[0].shutdowns] == [1, 1]


async def test_when_the_second_engine_cannot_be_made_nothing_is_left() -> None:
    engines = FakeEngines()

    def refuse(engine: FakeTrainer) -> None:
        raise InvalidArgument.at("training.zero_stage", "is not possible here")

    engines.prepare_trainer = refuse
    registry = new_registry(engines)
    with pytest.raises(InvalidArgument):
        await create(registry, SAMPLER, TRAINER)
    assert registry.all() == []


async def test_a_clean_up_that_fails_does_not_hide_why_the_start_failed() -> None:
    engines = FakeEngines()
    engines.prepare_sampler = lambda engine: setattr(engine, "shutdown_error", RuntimeError("stuck"))
    engines.prepare_trainer = fail_to_start
    registry = new_registry(engines)
    with pytest.raises(GradwireError, match="no memory"):
        await create(registry, SAMPLER, TRAINER)
    assert registry.all() == []


async def test_a_creation_whose_caller_leaves_is_undone() -> None:
    engines = FakeEngines()
    engines.prepare_trainer = lambda engine: setattr(engine, "start_gate", asyncio.Event())
    registry = new_registry(engines)
    creating = asyncio.create_task(create(registry, SAMPLER, TRAINER))
    await settle()
    creating.cancel()
    with pytest.raises(asyncio.CancelledError):
        await creating
    assert registry.all() == []
    assert [engines.samplers[0].shutdowns, engines.trainers[0].shutdowns] == [1, 1]


async def test_destroying_a_job_that_starts_fails_its_creation() -> None:
    engines = FakeEngines()
    engines.prepare_trainer = lambda engine: setattr(engine, "start_gate", asyncio.Event())
    registry = new_registry(engines)
    creating = asyncio.create_task(create(registry, SAMPLER, TRAINER))
    await settle()
    await registry.destroy(2, ALICE)
    with pytest.raises(Aborted, match="destroyed while it was starting"):
        await creating
    assert registry.all() == []
    assert [engines.samplers[0].shutdowns, engines.trainers[0].shutdowns] == [1, 1]


async def test_there_is_a_most_number_of_jobs() -> None:
    registry = new_registry(FakeEngines(), max_jobs=1)
    (job,) = await create(registry, SAMPLER)
    with pytest.raises(ResourceExhausted):
        await create(registry, SAMPLER)
    await registry.destroy(job.job_id, ALICE)
    (other,) = await create(registry, SAMPLER)
    assert other.job_id == 2  # numbers are never used again


async def test_a_dead_engine_fails_its_job_and_tells_the_watchers() -> None:
    engines = FakeEngines()
    registry = new_registry(engines)
    dying, living = await create(registry, SAMPLER, TRAINER)
    lines = dying.watch()
    engines.samplers[0].dead = "it ran out of memory"
    await asyncio.gather(*JobMonitor(registry).look_after_all())
    assert dying.state is JobState.FAILED
    assert lines.get_nowait() == "it ran out of memory"
    assert living.state is JobState.READY
    with pytest.raises(FailedPrecondition, match="it ran out of memory") as caught:
        registry.sampling(dying.job_id, ALICE)
    assert caught.value.reason == "JOB_FAILED"


async def test_a_failed_job_stays_failed_until_it_is_destroyed() -> None:
    registry = new_registry(FakeEngines())
    (job,) = await create(registry, SAMPLER)
    job.fail("died")
    job.set_state(JobState.SLEEPING, "asleep")
    assert state_of(job) is JobState.FAILED
    await registry.destroy(job.job_id, ALICE)
    job.fail("again")
    assert state_of(job) is JobState.DESTROYED


async def test_an_engine_that_does_not_answer_does_not_hide_another_that_died() -> None:
    engines = FakeEngines()
    registry = new_registry(engines)
    _, dying = await create(registry, SAMPLER, TRAINER)
    engines.samplers[0].health_gate = asyncio.Event()
    monitor = JobMonitor(registry)
    monitor.look_after_all()
    await settle()
    engines.trainers[0].dead = "gone"
    monitor.look_after_all()
    await settle()
    assert dying.state is JobState.FAILED
    engines.samplers[0].health_gate.set()


async def test_destroy_waits_for_the_operation_that_has_begun() -> None:
    engines = FakeEngines()
    registry = new_registry(engines)
    (job,) = await create(registry, TRAINER)
    gate, begun = asyncio.Event(), asyncio.Event()

    async def work() -> int:
        begun.set()
        await gate.wait()
        assert engines.trainers[0].shutdowns == 0
        return 7

    running = asyncio.create_task(job.operations.run(Operation(), work))
    held = asyncio.create_task(job.operations.run(Operation(sequence_number=5), work))
    await begun.wait()
    destroying = asyncio.create_task(registry.destroy(job.job_id, ALICE))
    await settle()
    assert not destroying.done()
    gate.set()
    await destroying
    assert await running == 7
    with pytest.raises(FailedPrecondition, match="was destroyed"):
        await held
    assert engines.trainers[0].shutdowns == 1


async def test_destroying_twice_at_once_ends_the_engine_once() -> None:
    engines = FakeEngines()
    registry = new_registry(engines)
    (job,) = await create(registry, TRAINER)
    results = await asyncio.gather(
        registry.destroy(job.job_id, ALICE), registry.destroy(job.job_id, ALICE), return_exceptions=True
    )
    assert [type(result) for result in results] == [type(None), NotFound]
    assert engines.trainers[0].shutdowns == 1


async def test_a_destroy_goes_on_when_its_caller_leaves() -> None:
    engines = FakeEngines()
    registry = new_registry(engines)
    (job,) = await create(registry, TRAINER)
    destroying = asyncio.create_task(registry.destroy(job.job_id, ALICE))
    await asyncio.sleep(0)
    destroying.cancel()
    await settle()
    assert state_of(job) is JobState.DESTROYED
    assert engines.trainers[0].shutdowns == 1


async def test_an_engine_that_does_not_end_well_is_gone_all_the_same() -> None:
    engines = FakeEngines()
    registry = new_registry(engines)
    sampler, trainer = await create(registry, SAMPLER, TRAINER)
    engines.samplers[0].shutdown_error = RuntimeError("stuck")
    await registry.destroy(sampler.job_id, ALICE)
    assert sampler.state is JobState.DESTROYED
    engines.trainers[0].shutdown_error = RuntimeError("stuck")
    await registry.shutdown()
    assert trainer.state is JobState.DESTROYED


async def test_a_hook_that_fails_does_not_keep_the_engine_alive() -> None:
    engines = FakeEngines()
    registry = new_registry(engines)
    (job,) = await create(registry, SAMPLER)

    async def broken(_: object) -> None:
        raise RuntimeError("broken")

    registry.on_destroy.append(broken)
    await registry.destroy(job.job_id, ALICE)
    assert engines.samplers[0].shutdowns == 1


async def test_shutdown_waits_for_jobs_that_are_ending_already() -> None:
    engines = FakeEngines()
    registry = new_registry(engines)
    (job,) = await create(registry, TRAINER)
    gate = asyncio.Event()
    running = asyncio.create_task(job.operations.run(Operation(), gate.wait))
    await settle()
    destroying = asyncio.create_task(registry.destroy(job.job_id, ALICE))
    await settle()
    stopping = asyncio.create_task(registry.shutdown())
    await settle()
    assert not stopping.done()
    gate.set()
    await asyncio.gather(running, destroying, stopping)
    assert engines.trainers[0].shutdowns == 1


async def test_a_job_takes_no_work_before_it_has_started() -> None:
    engines = FakeEngines()
    engines.prepare_sampler = lambda engine: setattr(engine, "start_gate", asyncio.Event())
    registry = new_registry(engines)
    creating = asyncio.create_task(create(registry, SAMPLER))
    await settle()
    with pytest.raises(Unavailable) as caught:
        registry.sampling(1, ALICE)
    assert caught.value.reason == "JOB_STARTING"
    creating.cancel()
    await asyncio.wait([creating])
