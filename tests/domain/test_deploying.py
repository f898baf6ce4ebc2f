"""Deployments' life: what is under way when one ends, what a database that fails leaves, and whose weights answer."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gradwire.server.domain.adapters import engine_name
from gradwire.server.domain.deploying import Deployer, bundle_path
from gradwire.server.domain.deployment_records import DeploymentRecord
from gradwire.server.domain.deployments import Deployment, Deployments, LanguageModel, PolicyBundle, Weights
from gradwire.server.domain.hidden_states import HiddenStates
from gradwire.server.domain.inference import ActionRequest, Inference
from gradwire.server.domain.jobs import Adapter
from gradwire.server.domain.turns import Turns
from gradwire.server.engines.acting import Actions, PolicyInfo, Predictions, Value
from gradwire.server.errors import AlreadyExists, InvalidArgument, NotFound, Unavailable
from tests.domain.support import ALICE, SAMPLER, TRAINER, create, new_registry, settle
from tests.fake_engines import FakeEngines


class Gated:
    """An engine that answers when it is let to; fails, as a bug would, when it is asked after its end."""

    def __init__(self) -> None:
        self.gate = asyncio.Event()
        self.closed = False
        self.info = PolicyInfo("rl_policy", "", (), {}, {}, recurrent=True, supports_action_mask=False)

    async def act(self, observation: Value, **options: Any) -> Actions:
        await self.gate.wait()
        assert not self.closed
        return Actions(observation, {"h": np.zeros(1)}, 0.0)

    async def predict(self, inputs: Value, *, batched: bool = False) -> Predictions:
        raise AssertionError("a policy")

    async def close(self) -> None:
        self.closed = True


class Memory:
    """A store that can be told to fail."""

    def __init__(self) -> None:
        self.records: dict[str, DeploymentRecord] = {}
        self.broken = False

    async def all(self) -> Sequence[DeploymentRecord]:
        return list(self.records.values())

    async def find(self, deployment_id: str) -> DeploymentRecord | None:
        return self.records.get(deployment_id)

    async def put(self, record: DeploymentRecord) -> None:
        if self.broken:
            raise Unavailable("DATABASE_UNAVAILABLE", "gone")
        self.records[record.deployment_id] = record


class World:
    """Deployments whose engines are `Gated`."""

    def __init__(self, store: Memory | None = None) -> None:
        self.engines: list[Gated] = []
        self.store = store or Memory()
        self.states = HiddenStates()
        self.deployments = Deployments()
        self.jobs = new_registry(FakeEngines())
        self.deployer = Deployer(self.deployments, self.jobs, self.store, self._load, Path("/bundles"))
        self.deployer.on_end.append(self.states.forget)
        self.inference = Inference(self.deployments, Turns(None), self.states)  # type: ignore[arg-type]  # no turns here

    async def _load(self, path: Path) -> Gated:
        self.engines.append(Gated())
        return self.engines[-1]

    async def deploy(self, *, replacing: bool = False) -> Deployment:
        return await self.deployer.deploy(ALICE, "p", PolicyBundle("b"), replacing=replacing)

    def ask(self, session_id: str = "") -> asyncio.Task[Actions]:
        request = ActionRequest(np.ones(1), session_id=session_id)
        return asyncio.create_task(self.inference.act(ALICE, "p", request))


@pytest.mark.parametrize("replacing", [True, False], ids=["replaced", "undeployed"])
async def test_what_is_under_way_ends_before_its_engine_does(replacing: bool) -> None:
    world = World()
    await world.deploy()
    asked = [world.ask(), world.ask("s"), world.ask("s")]  # the last one waits for the session's turn
    await settle()
    if replacing:
        await world.deploy(replacing=True)
    else:
        assert await world.deployer.undeploy("p")
        with pytest.raises(NotFound):
            await world.ask()
    old = world.engines[0]
    await settle()
    assert not old.closed and not any(task.done() for task in asked)
    old.gate.set()
    for actions in await asyncio.gather(*asked):
        assert np.array_equal(np.asarray(actions.action), [1])
    await settle()
    assert old.closed and len(world.states) == 0  # nothing is kept of what answers no more
    assert [engine.closed for engine in world.engines[1:]] == [False] * replacing


async def test_a_caller_that_leaves_frees_the_deployment() -> None:
    world = World()
    await world.deploy()
    asked = world.ask("s")
    await settle()
    await world.deployer.undeploy("p")
    asked.cancel()
    await settle()
    assert world.engines[0].closed


async def test_a_database_that_fails_changes_nothing() -> None:
    world = World()
    before = await world.deploy()
    world.store.broken = True
    with pytest.raises(Unavailable):
        await world.deploy(replacing=True)
    with pytest.raises(Unavailable):
        await world.deployer.undeploy("p")
    assert world.deployments.find("p") is before
    assert [engine.closed for engine in world.engines] == [False, True]
    world.store.broken = False
    assert (await world.deploy(replacing=True)).version == 2
    for number in range(3):
        assert not await world.deployer.undeploy(f"never-{number}")
    assert not world.deployer._changing and not world.deployer._changes  # names of bad calls take no memory


async def test_a_deployment_goes_on_when_its_maker_leaves_and_two_makers_are_ordered() -> None:
    world = World()
    first = asyncio.create_task(world.deploy())
    await asyncio.sleep(0)
    first.cancel()
    made = await asyncio.gather(world.deploy(replacing=True), world.deploy(replacing=True))
    assert [deployment.version for deployment in made] == [2, 3]
    await world.deployer.close()
    assert all(engine.closed for engine in world.engines)


async def test_whose_weights_answer() -> None:
    world = World()
    (sampler,) = await create(world.jobs, SAMPLER)
    mine, other = await create(world.jobs, TRAINER, TRAINER)
    source = LanguageModel(sampler.job_id, training_job_id=mine.job_id)
    follows = await world.deployer.deploy(ALICE, "follows", source)
    whatever = await world.deployer.deploy(ALICE, "whatever", LanguageModel(sampler.job_id))
    assert follows.weights == whatever.weights == Weights(0)
    sampler.set_version(3, mine.job_id)
    assert follows.weights == whatever.weights == Weights(3, mine.job_id)

    def adapter(name: str, of: int, version: int, since: float) -> None:
        known = engine_name("alice", name)
        sampler.adapters["alice", name] = Adapter(name, known, version, of, 8, since)

    adapter("default", other.job_id, 7, sampler.version_since + 1)
    assert whatever.weights == Weights(7, other.job_id, "alice/default")  # as a request that names no adapter
    assert follows.weights == Weights(3, mine.job_id)
    adapter("mine", mine.job_id, 9, sampler.version_since + 2)
    assert follows.weights == Weights(9, mine.job_id, "alice/mine")
    sampler.set_version(10, mine.job_id)
    sampler.version_since += 10
    assert follows.weights == Weights(10, mine.job_id)


def test_links_do_not_lead_out_of_the_root(tmp_path: Path) -> None:
    root = tmp_path / "root"
    (root / "in").mkdir(parents=True)
    (root / "loop").symlink_to("loop")
    (root / "up").symlink_to("..")
    (root / "alias").symlink_to("in")
    assert bundle_path(root, "in") == bundle_path(root, "alias") == root / "in"
    for bad in ("loop", "up", "up/root", "..", "/", "in/..", "\0"):
        with pytest.raises(InvalidArgument):
            bundle_path(root, bad)
    assert bundle_path(root, "../elsewhere", anywhere=True) == tmp_path / "elsewhere"


async def test_a_server_follows_what_another_of_the_same_store_changes() -> None:
    one = World()
    other = World(one.store)
    first = await one.deploy()
    await other.deployer.refresh()
    there = other.deployments.find("p")
    assert (there.version, there.source) == (1, first.source) and there.instance_id != first.instance_id
    await other.deployer.refresh()  # and nothing is new
    assert other.deployments.find("p") is there and len(other.engines) == 1

    asked = other.ask()
    await settle()
    await one.deploy(replacing=True)
    await other.deployer.refresh()
    assert other.deployments.find("p").version == 2
    assert not other.engines[0].closed  # it is still answering
    other.engines[0].gate.set()
    await asked
    await settle()
    assert other.engines[0].closed

    assert await other.deployer.undeploy("p")
    await one.deployer.refresh()
    assert one.deployments.all() == [] and one.engines[1].closed


async def test_a_name_that_another_server_took_is_taken_before_it_is_seen_here() -> None:
    one = World()
    other = World(one.store)
    await one.deploy()
    with pytest.raises(AlreadyExists):
        await other.deploy()
    assert await other.deployer.undeploy("p")
    assert not await other.deployer.undeploy("p")
    assert (await other.deploy()).version == 2


async def test_of_two_that_are_deployed_at_once_all_servers_end_with_one() -> None:
    one = World()
    other = World(one.store)
    await one.deploy()
    record = one.store.records.pop("p")
    await other.deploy()  # as if it had looked before the first one was stored
    assert record.version == one.store.records["p"].version
    await one.deployer.refresh()
    assert one.deployments.find("p").deployed_at == other.deployments.find("p").deployed_at


async def test_what_is_of_a_servers_settings_or_jobs_is_its_own() -> None:
    one = World()
    other = World(one.store)
    await one.deployer.deploy(ALICE, "p", PolicyBundle("b"), replacing=True, configured=True)
    await other.deployer.refresh()
    assert other.deployments.all() == []
    await other.deploy()
    await one.deployer.refresh()
    mine = one.deployments.find("p")
    assert mine.configured and mine.version == 1 and other.deployments.find("p").version == 2
    (job,) = await create(one.jobs, SAMPLER)
    await one.deployer.deploy(ALICE, "llm", LanguageModel(job_id=job.job_id))
    await other.deployer.refresh()
    assert [deployment.deployment_id for deployment in other.deployments.all()] == ["p"]


async def test_a_version_of_another_server_that_cannot_be_made_here_says_so() -> None:
    one = World()
    other = World(one.store)
    await one.deploy()

    async def missing(path: Path) -> Gated:
        raise InvalidArgument.at("", "there is no such bundle")

    other.deployer._load = missing
    await other.deployer.refresh()
    assert "no such bundle" in other.deployments.find("p").trouble


async def test_what_the_settings_deploy_anew_is_not_made_twice() -> None:
    one = World()
    await one.deploy()
    later = World(one.store)
    await later.deployer.restore(without={"p"})
    assert later.engines == [] and later.deployments.all() == []
    await later.deployer.restore()
    assert later.deployments.find("p").version == 1


async def test_the_log_says_what_the_settings_replace(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "gradwire")
    one = World()
    await create(one.jobs, SAMPLER)
    source = LanguageModel(job_id=1, system_prompt="Be brief.", params={"temperature": 0.2})
    await one.deployer.deploy(ALICE, "p", source)
    for start in range(2):
        later = World(one.store)
        await later.deployer.restore(without={"p"})
        await later.deployer.deploy(ALICE, "p", PolicyBundle("b", True), replacing=True, configured=True)
        record = caplog.records[-1]
        text = f"deployed p, version {start + 2}: bundle b, deterministic"
        if not start:  # the second time nothing is lost
            text += ", in place of version 1: language model (of sampling job 1, system prompt of 9 characters, "
            text += "temperature=0.2) (kept no longer: this server's settings have the name)"
        assert (record.getMessage(), record.levelname) == (text, "INFO" if start else "WARNING")
