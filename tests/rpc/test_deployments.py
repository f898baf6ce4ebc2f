"""DeploymentService over the wire: versions, replacement under load, names, and what comes back at a restart."""

from __future__ import annotations

import asyncio
import json
import shutil
import stat
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gradwire.client import (
    AlreadyExistsError,
    AsyncClient,
    DeploymentKind,
    DeploymentState,
    FailedPreconditionError,
    GradwireError,
    Health,
    InvalidArgumentError,
    LanguageModel,
    MemoryScope,
    PermissionDeniedError,
    PolicyBundle,
)
from gradwire.server.cli import main
from gradwire.server.domain import deployments as domain
from gradwire.server.domain.jobs import JobState
from gradwire.v1 import deployment_pb2 as pb
from tests.engines.policy.support import box, discrete, network, write
from tests.rpc.support import Served, failure, serving, until
from tests.rpc.test_auth import SECRETS, token

CART = {"policy": network(box(4), "categorical", discrete(3))}
OBSERVATION = np.ones(4, np.float32)


def connect(served: Served) -> AsyncClient:
    return AsyncClient(served.app.grpc_address, timeout=20.0)


async def test_names_are_listed_taken_and_given_back(served: Served) -> None:
    write(served.app.settings.bundles / "cart", CART)
    async with connect(served) as client:
        llm = await client.deployments.deploy_llm(
            "b", system_prompt="hi", params={"temperature": 0.5, "stop": ["x"]}, memory_scope="organization"
        )
        policy = await client.deployments.deploy_policy("a.1", "cart", deterministic=False)
        assert await client.deployments.list() == (policy, llm)
        assert policy.source == PolicyBundle("cart", deterministic=False)
        assert isinstance(llm.source, LanguageModel) and llm.source.system_prompt == "hi"
        assert (llm.source.params.temperature, llm.source.params.stop) == (0.5, ("x",))
        assert (llm.kind, llm.state, llm.memory_scope) == (
            DeploymentKind.LLM, DeploymentState.READY, MemoryScope.ORGANIZATION,
        )  # fmt: skip
        assert await client.deployments.get("a.1") == policy
        with pytest.raises(AlreadyExistsError, match="there already"):
            await client.deployments.deploy_policy("a.1", "cart")
        assert [await client.deployments.undeploy("a.1") for _ in range(2)] == [True, False]
        again = await client.deployments.deploy_policy("a.1", "cart")
        assert again.version == 2 and again.instance_id != policy.instance_id


async def test_a_long_listing_comes_in_pages(served: Served) -> None:
    names = [f"d{number}" for number in range(5)]
    async with connect(served) as client:
        for name in names:
            await client.deployments.deploy_llm(name, system_prompt="x" * (1 << 20))
        assert [found.deployment_id for found in await client.deployments.list()] == names
    first = await served.deployments.ListDeployments(pb.ListDeploymentsRequest())
    assert first.ByteSize() < 4 << 20  # what a client takes that nobody told otherwise
    await served.deployments.Deploy(pb.DeployRequest(deployment_id="d3", language_model={}, replace=True))
    await served.deployments.Undeploy(pb.UndeployRequest(deployment_id="d2"))
    pages, token = [], first.next_page_token
    while token:
        page = await served.deployments.ListDeployments(pb.ListDeploymentsRequest(page_size=1, page_token=token))
        pages.append([found.deployment_id for found in page.deployments])
        token = page.next_page_token
    assert pages == [["d1"], ["d3"], ["d4"]]
    failed = await failure(served.deployments.ListDeployments(pb.ListDeploymentsRequest(page_token="junk")))
    assert failed.fields == ["page_token"]


async def test_what_cannot_be_deployed_is_said_and_changes_nothing(served: Served, tmp_path: Path) -> None:
    root = served.app.settings.bundles
    write(root / "cart", CART)
    write(tmp_path / "outside", CART)
    (root / "link").symlink_to(tmp_path / "outside")
    async with connect(served) as client:
        before = await client.deployments.deploy_policy("cart", "cart")
        for name in ("../../outside", str(tmp_path / "outside"), "link", ".", "", "a\0b", "nothing", "x" * 999):
            with pytest.raises(InvalidArgumentError) as caught:
                await client.deployments.deploy_policy("cart", name, replace=True)
            assert caught.value.field_violations[0][0] == "policy.bundle", name
            if name == "nothing":  # an administrator may see where it was looked for
                assert f"{root.resolve()}/nothing does not exist" in str(caught.value)
            else:
                assert str(tmp_path) not in str(caught.value) or name == str(tmp_path / "outside")
        (root / "cart" / "policy.onnx").write_bytes(b"junk")
        with pytest.raises(InvalidArgumentError) as caught:
            await client.deployments.deploy_policy("cart", "cart", replace=True)
        assert caught.value.reason == "BAD_BUNDLE"
        for bad in ("", "a/b", "-x", "x" * 101):
            with pytest.raises(InvalidArgumentError):
                await client.deployments.deploy_llm(bad)
        with pytest.raises(InvalidArgumentError, match=r"language_model\.params\.n"):
            await client.deployments.deploy_llm("llm", params={"n": 2})
        with pytest.raises(GradwireError, match=r"language_model\.job_id: no job 9"):
            await client.deployments.deploy_llm("llm", job=9)
        with pytest.raises(GradwireError, match=r"language_model\.training_job_id: job 1 is a sampling job"):
            await client.deployments.deploy_llm("llm", follow=1)
        assert await client.deployments.list() == (before,)
        await client.inference.get_action(OBSERVATION)


async def test_the_memory_scope_sticks_to_the_name(served: Served) -> None:
    async with connect(served) as client:
        await client.deployments.deploy_llm("a", memory_scope="organization")
        await client.deployments.undeploy("a")
        with pytest.raises(FailedPreconditionError, match="organization") as caught:
            await client.deployments.deploy_llm("a", memory_scope="user")
        assert caught.value.reason == "MEMORY_SCOPE_FIXED"
        assert (await client.deployments.deploy_llm("a")).memory_scope is MemoryScope.ORGANIZATION


async def test_a_replacement_under_load_drops_nothing(served: Served) -> None:
    for seed in range(2):
        write(served.app.settings.bundles / f"v{seed}", {f"n{i}": CART["policy"] for i in range(seed, seed + 1)})
    async with connect(served) as client:
        await client.deployments.deploy_policy("cart", "v0")
        engines = [served.app.deployments.find("cart").engine]
        stop = asyncio.Event()
        answers = 0

        async def ask() -> None:
            nonlocal answers
            while not stop.is_set():
                await client.inference.get_action(OBSERVATION)
                answers += 1

        async with asyncio.TaskGroup() as group:
            for _ in range(16):
                group.create_task(ask())
            for version in range(2, 7):
                asked = answers
                made = await client.deployments.deploy_policy("cart", f"v{version % 2}", replace=True)
                assert made.version == version
                engines.append(served.app.deployments.find("cart").engine)
                await until(lambda asked=asked: answers > asked + 32)  # type: ignore[misc]
            stop.set()
        assert answers > 160
        await until(lambda: all(_closed(engine) for engine in engines[:-1]))
        assert not _closed(engines[-1])


def _closed(engine: Any) -> bool:
    return all(batcher._closed for batcher in engine._batchers.values())


async def test_deployments_come_back_at_a_restart(tmp_path: Path) -> None:
    async with serving(tmp_path) as served, connect(served) as client:
        root = served.app.settings.bundles
        write(root / "kept", CART)
        write(root / "lost", CART)
        kept = await client.deployments.deploy_policy("kept", "kept", deterministic=True)
        await client.deployments.deploy_policy("lost", "lost")
        await client.deployments.deploy_policy("gone", "lost")
        await client.deployments.undeploy("gone")
        params = {"max_tokens": 3, "stop": ["x"]}
        llm = await client.deployments.deploy_llm("llm", job=1, params=params, memory_scope="organization")
        training = await served.training_job()
        await client.deployments.deploy_llm("follows", follow=training)
        await client.inference.generate("ab", session_id="s", deployment_id="llm")
    shutil.rmtree(root / "lost")
    async with serving(tmp_path) as served, connect(served) as client:
        found = {d.deployment_id: d for d in await client.deployments.list()}
        assert sorted(found) == ["follows", "kept", "llm", "lost"]
        assert found["llm"].source == llm.source and found["llm"].memory_scope is MemoryScope.ORGANIZATION
        assert found["kept"].source == kept.source and found["kept"].deployed_at == kept.deployed_at
        assert found["kept"].instance_id != kept.instance_id
        await client.inference.get_action(OBSERVATION, deployment_id="kept")
        reply = (await client.inference.generate("abcd", session_id="s", deployment_id="llm")).replies[0]
        assert reply.text == "dcb" and (await client.sessions.get("s", deployment_id="llm")).session.num_messages == 4
        for name, reason in (("lost", "does not exist"), ("follows", f"training job {training}, which ended")):
            assert found[name].state is DeploymentState.FAILED and reason in found[name].error
            assert str(tmp_path) not in found[name].error  # others than administrators see it
            with pytest.raises(FailedPreconditionError, match=reason):
                await client.inference.get_status(deployment_id=name)
        assert (await client.deployments.deploy_llm("follows", replace=True)).version == 2


async def test_a_deployment_says_that_its_sampler_died(served: Served) -> None:
    async with connect(served) as client:
        created = await client.jobs.create(sampling={})
        job = created.sampling
        await client.deployments.deploy_llm("d", job=job)
        served.app.jobs.all()[-1].fail("out of memory")
        assert (await client.deployments.get()).error == f"sampling_job/{job.job_id} failed: out of memory"
        with pytest.raises(FailedPreconditionError, match="out of memory"):
            await client.inference.generate("hi")
        await client.jobs.destroy(job)
        assert "was destroyed" in (await client.deployments.get()).error
        assert served.app.jobs.built_in is not None and served.app.jobs.built_in.state is JobState.READY


async def test_settings_deploy_and_are_not_kept(tmp_path: Path) -> None:
    write(tmp_path / "elsewhere", CART)
    deployments = {
        "cart": {"bundle": str(tmp_path / "elsewhere"), "deterministic": True},
        "llm": {"llm": True, "memory_scope": "none", "params": {"max_tokens": 2}},
    }
    async with serving(tmp_path, deployments=deployments) as served, connect(served) as client:
        await client.inference.get_action(OBSERVATION, deployment_id="cart")
        reply = (await client.inference.generate("abc", deployment_id="llm")).replies[0]
        assert (reply.text, reply.session_id) == ("cb", "")
    async with serving(tmp_path) as served, connect(served) as client:
        assert await client.deployments.list() == ()
    with pytest.raises(ValueError, match=r"deployments\.cart: policy\.bundle: /.*/bundles/nothing does not exist"):
        async with serving(tmp_path, deployments={"cart": {"bundle": "nothing"}}):
            pass
    assert stat.S_IMODE((tmp_path / "data" / "bundles").stat().st_mode) == stat.S_IRWXU


async def test_only_who_deploys_sees_instructions(tmp_path: Path) -> None:
    write(tmp_path / "elsewhere", CART)
    deployments = {"cart": {"bundle": str(tmp_path / "elsewhere")}}
    async with serving(tmp_path, tokens=[token(name) for name in SECRETS], deployments=deployments) as served:
        address = served.app.grpc_address
        async with AsyncClient(address, token=SECRETS["admin"]) as admin:
            made = await admin.deployments.deploy_llm("d", system_prompt="secret")
            assert await admin.deployments.get("d") == made and isinstance(made.source, LanguageModel)
            shown = (await admin.deployments.get("cart")).source
            assert shown == PolicyBundle(str(tmp_path / "elsewhere"), None)
            assert made.source.system_prompt == "secret"
        async with AsyncClient(address, token=SECRETS["reader"]) as reader:
            cart, seen = await reader.deployments.list()
            assert cart.source == PolicyBundle("elsewhere", None)
            assert isinstance(seen.source, LanguageModel) and seen.source.system_prompt == ""
            for refused in (reader.deployments.deploy_llm("e"), reader.deployments.undeploy("d")):
                with pytest.raises(PermissionDeniedError, match="ADMIN"):
                    await refused


async def test_the_command_line(
    served: Served, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    write(served.app.settings.bundles / "cart", CART)

    async def gradwire(*arguments: str, code: int = 0) -> str:
        assert await asyncio.to_thread(main, list(arguments)) == code
        out, err = capsys.readouterr()
        return err if code else out

    there = ("--server", served.app.grpc_address)
    assert await gradwire("deploy", "cart", "--bundle", "cart", *there) == "cart: rl_policy, version 1, ready\n"
    assert "already" in await gradwire("deploy", "cart", "--bundle", "cart", *there, code=1)
    monkeypatch.setenv("GRADWIRE_ADDRESS", served.app.grpc_address)
    again = json.loads(
        await gradwire("deploy", "cart", "--bundle", "cart", "--replace", "--no-deterministic", "--json")
    )
    assert (again["version"], again["deterministic"], again["state"]) == (2, False, "ready")
    flags = ("--memory-scope", "none", "--param", "temperature=0", "--param", "stop=###", "--system-prompt", "hi")
    await gradwire("deploy", "llm", "--llm", "--job", "1", *flags)
    rows = json.loads(await gradwire("deployments", "--json"))
    assert [(r["deployment_id"], r["kind"], r.get("memory_scope")) for r in rows] == [
        ("cart", "rl_policy", None), ("llm", "llm", "none"),
    ]  # fmt: skip
    source = served.app.deployments.find("llm").source
    assert source == domain.LanguageModel(system_prompt="hi", params={"temperature": 0.0, "stop": ("###",)})
    shown = await gradwire("deployments")
    assert [line.split()[0] for line in shown.splitlines()] == ["NAME", "cart", "llm"]
    assert "--job is for --llm" in await gradwire("deploy", "x", "--bundle", "cart", "--job", "1", code=1)
    assert "--deterministic is for --bundle" in await gradwire("deploy", "x", "--llm", "--deterministic", code=1)
    assert "did you mean 'temperature'" in await gradwire("deploy", "x", "--llm", "--param", "temprature=1", code=1)
    for command in (("deploy", "cart", "--bundle", "cart"), ("undeploy", ""), ("deployments", "--token-file", "gone")):
        error = json.loads(await gradwire(*command, "--json", code=1))["error"]
        expected = {"deploy": "DEPLOYMENT_EXISTS", "undeploy": "INVALID_FIELD", "deployments": None}[command[0]]
        assert error["reason"] == expected and error["message"] and isinstance(error["field_violations"], list)
    assert json.loads(await gradwire("undeploy", "cart", "--json")) == {"deployment_id": "cart", "undeployed": True}
    assert await gradwire("undeploy", "cart") == "nothing was deployed as cart\n"


async def test_the_http_door_serves_the_same(tmp_path: Path) -> None:
    async with serving(tmp_path, http="127.0.0.1:0") as served:
        async with AsyncClient(f"http://{served.app.http_address}") as client:
            await client.deployments.deploy_llm("d")
            assert (await client.inference.get_status()).kind is DeploymentKind.LLM
            stream = client.inference.generate_stream("ab")
            assert (await stream.result()).text == "ba" and stream.session_id
            services = (await client.admin.get_capabilities()).services
        assert {"gradwire.v1.DeploymentService", "gradwire.v1.InferenceService"} <= set(services)
        async with connect(served) as client:
            for name in ("DeploymentService", "InferenceService"):
                assert await client.health(f"gradwire.v1.{name}") is Health.SERVING
