"""Adapters and the models under them: one on another model than it was trained on is refused, or none can use it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import NamedTuple

import pytest

from gradwire.server.domain import sampling
from gradwire.server.domain.adapters import able, served
from gradwire.server.domain.deployments import Deployment, LanguageModel
from gradwire.server.domain.jobs import JobKind
from gradwire.server.domain.registry import AnyJob, JobRegistry, SamplingJob, TrainingJob
from gradwire.server.domain.updates import IncomingTensor, WeightUpdates
from gradwire.server.domain.weights import WeightSync
from gradwire.server.engines.sampling import SamplerConfig
from gradwire.server.engines.training import LoraConfig, TrainingConfig
from gradwire.server.engines.weights import InFlightPolicy
from gradwire.server.errors import FailedPrecondition, InvalidArgument
from tests.domain.support import ALICE, create, new_registry
from tests.fake_engines import FakeEngines, FakeSampler, FakeTrainer

KEEP = InFlightPolicy.KEEP
FULL = TrainingConfig("tiny", dtype="float32")
LORA = TrainingConfig("tiny", dtype="float32", lora=LoraConfig(2, 2.0))


class World(NamedTuple):
    registry: JobRegistry
    sync: WeightSync
    full: TrainingJob
    lora: TrainingJob
    sampler: SamplingJob
    engine: FakeSampler
    engines: FakeEngines
    written: dict[str, tuple[int, int]]

    async def whole(self, source: TrainingJob, *, merge: bool = False) -> None:
        await self.sync.sync(source, self.sampler, in_flight=KEEP, verify=False, merge=merge)

    async def adapter(self, source: TrainingJob, name: str = "a") -> None:
        await self.sync.sync_adapter(
            source, self.sampler, name, "alice", in_flight=KEEP, verify=False, lives=self.registry.holds
        )

    async def refused(self, source: TrainingJob) -> str:
        before = dict(self.sampler.adapters), dict(self.engine.adapters)
        with pytest.raises(FailedPrecondition) as caught:
            await self.adapter(source)
        assert (caught.value.reason, caught.value.subject) == ("ADAPTER_BASE_DIFFERS", self.sampler.name)
        assert (self.sampler.adapters, self.engine.adapters) == before
        return caught.value.message


@pytest.fixture
async def world() -> AsyncIterator[World]:
    engines, written = FakeEngines(), dict[str, tuple[int, int]]()
    registry = new_registry(engines)
    full, lora, sampler = await create(registry, FULL, LORA, SamplerConfig("tiny", max_loras=4, max_lora_rank=4))
    sync = WeightSync(written.get)
    registry.on_destroy.append(sync.forget)
    yield World(registry, sync, full, lora, sampler, engines.samplers[0], engines, written)
    await registry.shutdown()


async def one_step(job: AnyJob, lr: float = 0.5) -> None:
    trainer = job.engine
    assert isinstance(trainer, FakeTrainer)
    trainer.gradients = 1
    await trainer.step(lr=lr)


async def test_an_adapter_is_refused_where_another_job_s_weights_are_under_it(world: World) -> None:
    await one_step(world.full)
    await world.whole(world.full)
    said = await world.refused(world.lora)
    assert f"{world.lora.name} trains its adapter on tiny, but {world.sampler.name} serves the weights of" in said
    assert f"{world.full.name} in version 1" in said
    assert "Sync with merge" in said
    assert f"a checkpoint of {world.full.name}" in said


async def test_an_adapter_is_refused_on_top_of_itself_and_a_merged_loop_goes_on(world: World) -> None:
    await world.whole(world.lora, merge=True)  # version 0 is the model itself
    await world.adapter(world.lora)
    for _ in range(2):
        await one_step(world.lora)
        await world.whole(world.lora, merge=True)
    assert f"serves the weights of {world.lora.name} in version 2" in await world.refused(world.lora)


async def test_equal_bytes_from_elsewhere_are_no_other_model_and_are_read_once(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    await one_step(world.full, lr=0.0)
    await world.whole(world.full)
    reads = 0
    read = world.engine.checksums

    async def counted(adapter: str = "") -> list[object]:
        nonlocal reads
        reads += 1
        return list(await read(adapter))

    monkeypatch.setattr(world.engine, "checksums", counted)
    await world.adapter(world.lora)
    await world.adapter(world.lora)
    assert reads == 1
    await one_step(world.full)
    await world.whole(world.full)
    for _ in range(2):
        await world.refused(world.lora)
    assert reads == 2


async def test_a_checkpoint_is_the_weights_of_the_job_that_wrote_it(world: World) -> None:
    await one_step(world.full)
    world.written["/checkpoints/full/hf"] = world.full.job_id, 1
    config = TrainingConfig("checkpoint:full", "/checkpoints/full/hf", dtype="float32", lora=LoraConfig(2, 2.0))
    on_it: TrainingJob
    (on_it,) = await create(world.registry, config)
    trainer = world.engines.trainers[-1]
    trainer.base = trainer.base + 1  # where the places are the same, nobody looks at the bytes
    world.engine.weights = world.engines.trainers[0].weights.tobytes()
    assert "trains its adapter on checkpoint:full, but" in await world.refused(on_it)
    await world.whole(world.full)
    await world.adapter(on_it)
    await one_step(world.full)
    await world.whole(world.full)
    await world.refused(on_it)


async def test_an_update_from_outside_is_another_model(world: World) -> None:
    updates = WeightUpdates(world.sync)
    data = bytes(32)
    update, _ = await updates.begin(world.sampler, [IncomingTensor("w", "float32", (8,))], 5, 60.0, ALICE)
    updates.receive(update, "w", 0, data, ALICE)
    await updates.commit(update, KEEP, ALICE)
    assert "serves weights from outside this server in version 5" in await world.refused(world.lora)


@pytest.mark.parametrize("merge", [False, True])
async def test_other_weights_under_an_adapter_end_its_requests_until_it_is_synced_again(
    world: World, merge: bool
) -> None:
    source = world.lora if merge else world.full
    await world.adapter(world.lora, "default")
    await world.adapter(world.lora, "a")
    deployment = Deployment("d", source=LanguageModel(training_job_id=world.lora.job_id), tenant="alice")
    deployment.job = world.sampler
    await world.whole(world.full)  # version 0: the model as it was loaded
    assert able(world.sampler, "a", "alice").engine_name == "alice/a"
    assert deployment.trouble == ""
    await one_step(source)
    await world.whole(source, merge=merge)
    assert world.engine.adapters == {}  # the requests in it ended
    with pytest.raises(FailedPrecondition, match=r"'a' was trained on tiny, but .* now serves the weights") as caught:
        able(world.sampler, "a", "alice")
    assert caught.value.reason == "ADAPTER_BASE_DIFFERS"
    assert ("was trained on tiny" in deployment.trouble) is not merge  # a merged sync is what it follows
    assert served(world.sampler, "a", "alice").weight_version == 0  # to be looked at and unloaded
    assert able(world.sampler, "", "alice").engine_name == ""
    fresh: TrainingJob
    (fresh,) = await create(world.registry, FULL)
    await world.whole(fresh)
    with pytest.raises(FailedPrecondition):
        able(world.sampler, "a", "alice")
    await world.adapter(world.lora)
    assert able(world.sampler, "a", "alice").engine_name == "alice/a"


async def test_dropped_weights_are_the_models_own_again(world: World) -> None:
    await world.adapter(world.lora)
    await sampling.sleep(world.sampler, 2, world.registry.fell_asleep)
    await sampling.wake(world.sampler, None)
    able(world.sampler, "a", "alice")  # the model under it is as it was
    await one_step(world.full)
    await world.whole(world.full)
    await sampling.sleep(world.sampler, 1, world.registry.fell_asleep)
    await sampling.sleep(world.sampler, 2, world.registry.fell_asleep)  # asleep already, at level 1
    await sampling.wake(world.sampler, None)
    await world.refused(world.lora)
    await sampling.sleep(world.sampler, 2, world.registry.fell_asleep)
    await sampling.wake(world.sampler, None)
    await world.adapter(world.lora)


async def test_models_that_do_not_fit_are_told_of_as_jobs(world: World) -> None:
    world.engine.manifest_error = InvalidArgument.at("manifest[0]", "w: no such tensor", reason="MANIFEST_MISMATCH")
    other: TrainingJob
    (other,) = await create(world.registry, TrainingConfig("tiny-untied"))
    with pytest.raises(InvalidArgument) as caught:
        await world.whole(other)
    (violation,) = caught.value.violations
    assert (violation.field, caught.value.reason) == (f"{JobKind.SAMPLING}_job_id", "MANIFEST_MISMATCH")
    assert f"{other.name} trains tiny-untied, {world.sampler.name} serves tiny, whose" in violation.description
