"""Syncs and updates from outside: all or nothing, and the sampler samples on whatever happens."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest

from gradwire.server.domain import sampling, training
from gradwire.server.domain.registry import JobRegistry, SamplingJob, TrainingJob
from gradwire.server.domain.updates import IncomingTensor, WeightUpdates
from gradwire.server.domain.weights import WeightSync
from gradwire.server.engines.sampling import SamplerConfig
from gradwire.server.engines.sharedmem import SharedSegment
from gradwire.server.engines.training import SleepMode
from gradwire.server.engines.weights import InFlightPolicy
from gradwire.server.errors import FailedPrecondition, GradwireError, InvalidArgument, NotFound
from tests.domain.support import ALICE, BOB, SAMPLER, TRAINER, create, new_registry, settle
from tests.fake_engines import FakeEngines, FakeSampler, FakeTrainer

KEEP = InFlightPolicy.KEEP
DATA = np.arange(6, dtype=np.float32).tobytes()
TENSOR = IncomingTensor("w", "float32", (2, 3), hashlib.sha256(DATA).digest())


class World(NamedTuple):
    registry: JobRegistry
    source: TrainingJob
    target: SamplingJob
    trainer: FakeTrainer
    sampler: FakeSampler
    sync: WeightSync
    updates: WeightUpdates


@pytest.fixture
async def world(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[World]:
    engines = FakeEngines()
    registry = new_registry(engines)
    source, target = await create(registry, TRAINER, SAMPLER)
    sync = WeightSync()
    updates = WeightUpdates(sync)
    registry.on_destroy += [updates.forget, sync.forget]
    made: list[str] = []
    create_segment = SharedSegment.create

    def create_and_note(size: int, *, label: str = "") -> SharedSegment:
        segment = create_segment(size, label=label)
        made.append(segment.name)
        return segment

    monkeypatch.setattr(SharedSegment, "create", create_and_note)
    yield World(registry, source, target, engines.trainers[0], engines.samplers[0], sync, updates)
    await registry.shutdown()
    assert not [name for name in made if (Path("/dev/shm") / name).exists()], "shared memory is left"


async def one_step(trainer: FakeTrainer) -> None:
    trainer.gradients = 1
    await trainer.step(lr=0.5)


async def begin(world: World, *tensors: IncomingTensor, version: int = 5, timeout_s: float = 60.0) -> str:
    update_id, _ = await world.updates.begin(world.target, tensors or (TENSOR,), version, timeout_s, ALICE)
    return update_id


async def test_a_sync_carries_weights_and_version(world: World) -> None:
    await one_step(world.trainer)
    report = await world.sync.sync(world.source, world.target, in_flight=KEEP, verify=True)
    assert world.sampler.weights == world.trainer.weights.tobytes()
    assert report.weight_version == world.target.weight_version == world.sampler.version == 1
    assert not world.sampler.paused


async def test_a_sampler_that_rounds_the_trainers_weights_is_told_of_once(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    coarse: SamplingJob
    (coarse,) = await create(world.registry, SamplerConfig("tiny", dtype="bfloat16"))
    for target in (world.target, coarse, coarse):
        await world.sync.sync(world.source, target, in_flight=KEEP, verify=False)
    (said,) = [record.getMessage() for record in caplog.records if "float32" in record.getMessage()]
    assert said.startswith(f"{world.source.name} trains in float32 and {coarse.name} samples in bfloat16")


async def test_a_sync_that_fails_midway_keeps_version_and_weights_and_resumes(world: World) -> None:
    await world.sync.sync(world.source, world.target, in_flight=KEEP, verify=False)
    before = world.sampler.weights
    await one_step(world.trainer)
    world.sampler.update_error = GradwireError("COPY_FAILED", "copy failed")
    with pytest.raises(GradwireError, match="copy failed"):
        await world.sync.sync(world.source, world.target, in_flight=KEEP, verify=False)
    assert (world.sampler.weights, world.target.weight_version, world.sampler.paused) == (before, 0, False)
    world.sampler.update_error = None
    await world.sync.sync(world.source, world.target, in_flight=KEEP, verify=False)
    assert world.target.weight_version == 1


async def test_a_sampler_that_a_caller_paused_stays_paused(world: World) -> None:
    world.target.held = True
    await world.sampler.pause(KEEP)
    await world.sync.sync(world.source, world.target, in_flight=KEEP, verify=False)
    assert world.sampler.paused


async def test_verify_finds_a_sampler_that_does_not_hold_the_weights(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def forget(segment: str, manifest: object, version: int) -> None:
        world.sampler.weights = bytes(32)

    monkeypatch.setattr(world.sampler, "update_weights", forget)
    with pytest.raises(GradwireError) as caught:
        await world.sync.sync(world.source, world.target, in_flight=KEEP, verify=True)
    assert caught.value.reason == "CHECKSUM_MISMATCH"


async def test_a_sampler_is_not_ended_in_the_middle_of_a_sync(world: World) -> None:
    world.sampler.update_gate = asyncio.Event()
    syncing = asyncio.create_task(world.sync.sync(world.source, world.target, in_flight=KEEP, verify=False))
    await world.sampler.update_begun.wait()
    destroying = asyncio.create_task(world.registry.destroy(world.target.job_id, ALICE))
    await settle()
    assert world.sampler.shutdowns == 0
    world.sampler.update_gate.set()
    await asyncio.gather(syncing, destroying)
    assert world.sampler.shutdowns == 1
    with pytest.raises(FailedPrecondition) as caught:
        await world.sync.sync(world.source, world.target, in_flight=KEEP, verify=False)
    assert caught.value.reason == "JOB_DESTROYED"


@pytest.mark.parametrize("who", ["trainer", "sampler"])
async def test_what_a_sync_keeps_mapped_goes_when_a_side_sleeps(world: World, who: str) -> None:
    world.registry.on_sleep.append(world.sync.release)
    leave = world.registry.fell_asleep
    await world.sync.sync(world.source, world.target, in_flight=KEEP, verify=False)
    (segment,) = world.sync._segments.values()
    kept = Path("/dev/shm") / segment.name
    if who == "sampler":
        await sampling.sleep(world.target, 1, leave)
    else:
        await training.sleep(world.source, SleepMode.NON_LP, weights_asleep=leave, timeout=None)
        assert kept.exists()  # a sync can still come
        await training.sleep(world.source, SleepMode.LP_PARAMS, weights_asleep=leave, timeout=None)
    assert not kept.exists()
    await world.sync.sync(world.source, world.target, in_flight=KEEP, verify=False)  # the fakes do not mind


async def test_an_update_arrives_in_pieces_and_is_committed(world: World) -> None:
    update = await begin(world)
    world.updates.receive(update, "w", 0, DATA[:10], ALICE)
    world.updates.receive(update, "w", 4, DATA[4:10], ALICE)  # again: fine
    assert world.updates.progress(update, ALICE) == (10, 0)
    world.updates.receive(update, "w", 10, DATA[10:], ALICE)
    assert world.updates.progress(update, ALICE) == (24, 1)
    version, _ = await world.updates.commit(update, KEEP, ALICE)
    assert (version, world.target.weight_version, world.sampler.weights) == (5, 5, DATA)
    with pytest.raises(NotFound):
        world.updates.progress(update, ALICE)


async def test_pieces_out_of_order_or_place_are_refused(world: World) -> None:
    update = await begin(world)
    for name, offset, field in (("x", 0, "name"), ("w", 4, "offset"), ("w", 2**63, "offset")):
        with pytest.raises(InvalidArgument) as caught:
            world.updates.receive(update, name, offset, DATA, ALICE)
        assert caught.value.violations[0].field == field
    with pytest.raises(InvalidArgument, match="outside"):
        world.updates.receive(update, "w", 0, DATA + b"x", ALICE)


async def test_an_incomplete_update_is_not_committed_and_can_be_completed(world: World) -> None:
    update = await begin(world)
    world.updates.receive(update, "w", 0, DATA[:10], ALICE)
    with pytest.raises(FailedPrecondition) as caught:
        await world.updates.commit(update, KEEP, ALICE)
    assert caught.value.reason == "UPDATE_INCOMPLETE"
    world.updates.receive(update, "w", 10, DATA[10:], ALICE)
    await world.updates.commit(update, KEEP, ALICE)


async def test_other_bytes_than_the_checksum_says_are_not_committed(world: World) -> None:
    update = await begin(world)
    world.updates.receive(update, "w", 0, bytes(24), ALICE)
    with pytest.raises(FailedPrecondition) as caught:
        await world.updates.commit(update, KEEP, ALICE)
    assert caught.value.reason == "CHECKSUM_MISMATCH"
    assert (world.target.weight_version, world.sampler.weights) == (0, b"")
    world.updates.receive(update, "w", 0, DATA, ALICE)
    await world.updates.commit(update, KEEP, ALICE)


async def test_a_commit_that_fails_leaves_the_sampler_sampling_and_the_update_there(world: World) -> None:
    update = await begin(world)
    world.updates.receive(update, "w", 0, DATA, ALICE)
    world.sampler.update_error = GradwireError("COPY_FAILED", "copy failed")
    with pytest.raises(GradwireError):
        await world.updates.commit(update, KEEP, ALICE)
    assert (world.target.weight_version, world.sampler.paused) == (0, False)
    world.sampler.update_error = None
    await world.updates.commit(update, KEEP, ALICE)


async def test_versions_only_rise_at_the_beginning_and_at_the_commit(world: World) -> None:
    update = await begin(world, version=5)
    overtaking = await begin(world, version=7)
    for each in (update, overtaking):
        world.updates.receive(each, "w", 0, DATA, ALICE)
    await world.updates.commit(overtaking, KEEP, ALICE)
    with pytest.raises(FailedPrecondition) as caught:
        await world.updates.commit(update, KEEP, ALICE)
    assert caught.value.reason == "VERSION_NOT_NEWER"
    with pytest.raises(FailedPrecondition):
        await begin(world, version=7)
    assert world.target.weight_version == 7


async def test_abort_is_always_legal_and_nothing_is_left(world: World) -> None:
    update = await begin(world)
    for _ in range(2):
        world.updates.abort(update, ALICE)
    with pytest.raises(NotFound):
        world.updates.receive(update, "w", 0, DATA, ALICE)
    world.updates.abort("never was", ALICE)


async def test_while_it_is_committed_an_update_takes_nothing_and_cannot_be_taken_away(world: World) -> None:
    update = await begin(world, timeout_s=0.0)
    world.updates.receive(update, "w", 0, DATA, ALICE)
    world.sampler.update_gate = asyncio.Event()
    committing = asyncio.create_task(world.updates.commit(update, KEEP, ALICE))
    await world.sampler.update_begun.wait()
    with pytest.raises(FailedPrecondition):
        world.updates.receive(update, "w", 0, bytes(24), ALICE)
    with pytest.raises(FailedPrecondition):
        await world.updates.commit(update, KEEP, ALICE)
    world.updates.abort(update, ALICE)
    world.updates.expire()
    world.sampler.update_gate.set()
    await committing
    assert world.sampler.weights == DATA


async def test_an_update_that_nobody_feeds_is_given_up(world: World) -> None:
    stale, fresh = await begin(world, timeout_s=0.0), await begin(world)
    world.updates.expire()
    with pytest.raises(NotFound):
        world.updates.progress(stale, ALICE)
    assert world.updates.progress(fresh, ALICE) == (0, 0)


async def test_updates_end_with_their_job(world: World) -> None:
    update = await begin(world)
    await world.registry.destroy(world.target.job_id, ALICE)
    with pytest.raises(NotFound):
        world.updates.progress(update, ALICE)


async def test_another_tenant_does_not_find_an_update(world: World) -> None:
    update = await begin(world)
    with pytest.raises(NotFound):
        world.updates.receive(update, "w", 0, DATA, BOB)
    with pytest.raises(NotFound):
        await world.updates.commit(update, KEEP, BOB)
    world.updates.abort(update, BOB)
    assert world.updates.progress(update, ALICE) == (0, 0)


@pytest.mark.parametrize(
    ("tensors", "field"),
    [
        ((TENSOR, TENSOR), "manifest[1].name"),
        ((IncomingTensor("w", "float32", (2**62, 4)),), "manifest"),
        ((IncomingTensor("w", "float32", (0,)),), "manifest"),
    ],
)
async def test_a_manifest_that_cannot_be_is_refused(
    world: World, tensors: tuple[IncomingTensor, ...], field: str
) -> None:
    with pytest.raises(InvalidArgument) as caught:
        await begin(world, *tensors)
    assert caught.value.violations[0].field == field


async def test_tensors_of_a_manifest_do_not_touch_each_other(world: World) -> None:
    tensors = [IncomingTensor(name, "bfloat16", (3,)) for name in "abc"] + [IncomingTensor("empty", "float16", (0, 4))]
    update = await begin(world, *tensors)
    for name in "cab":
        world.updates.receive(update, name, 0, name.encode() * 6, ALICE)
    await world.updates.commit(update, KEEP, ALICE)
    assert world.sampler.weights == b"aaaaaabbbbbbcccccc"
