"""What a deployment is, to whoever has no token: the Arena's clients may ask, at both doors, and are told the same."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from grpc import aio

from gradwire.server.domain.caller import LOCAL_CALLER
from gradwire.server.domain.deployments import Deployment, LanguageModel, PolicyBundle
from gradwire.v1 import inference_pb2, inference_pb2_grpc
from tests.engines.policy.support import box, discrete, network, write
from tests.rpc.support import Served, failure, serving
from tests.rpc.test_auth import SECRETS, bearer, token
from tests.rpc.test_doors import get

NAMES = ("pair", "chat", "/srv")
"""What nobody learns who may use none of them."""


@pytest.fixture
async def guarded(tmp_path: Path) -> AsyncIterator[Served]:
    """Wants tokens; has a language model, a policy of two agents, and a deployment that failed."""
    async with serving(tmp_path, http="127.0.0.1:0", tokens=[token(name) for name in SECRETS]) as running:
        app = running.app
        write(app.settings.bundles / "pair", {"a": network(box(2), "categorical", discrete(3))},
              agents={"left": "a", "right": "a"})  # fmt: skip
        await app.deployer.deploy(LOCAL_CALLER, "chat", LanguageModel())
        await app.deployer.deploy(LOCAL_CALLER, "pair", PolicyBundle("pair"))
        app.deployments.put(Deployment("broken", error="no file /srv/secret.zip"))
        yield running


def status(served: Served, name: str, metadata: aio.Metadata | None = None) -> Any:
    stub: Any = inference_pb2_grpc.InferenceServiceStub(served.channel)  # typed for metadata of tuples only
    return stub.GetStatus(inference_pb2.GetStatusRequest(deployment_id=name), metadata=metadata)


def fields(message: Any) -> set[str]:
    return {field.name for field, _ in message.ListFields()}


@pytest.mark.parametrize("metadata", [None, bearer(SECRETS["trainer"])], ids=["no token", "no scope"])
async def test_less_is_told_to_whoever_may_not_use_it(guarded: Served, metadata: aio.Metadata | None) -> None:
    chat = await status(guarded, "chat", metadata)
    assert fields(chat) == {"deployment_id", "instance_id", "kind", "agent"}
    assert fields(chat.agent) == {"name"} and "/" not in chat.agent.name
    assert fields(await status(guarded, "pair", metadata)) == {"deployment_id", "instance_id"}
    for name in ("nothing", "", "broken"):
        text = (await failure(status(guarded, name, metadata))).text
        assert "token" in text and not any(word in text for word in NAMES)


async def test_the_http_door_tells_no_more(guarded: Served) -> None:
    code, text = await get(guarded, "/deployments/chat/status")
    assert code == 200 and json.loads(text)["agent"].keys() == {
        "algo", "multi_agent", "llm", "recurrent", "supervised"
    }  # fmt: skip
    for path, expected in (("/deployments/nothing/status", 404), ("/status", 400), ("/deployments/broken/status", 503)):
        code, text = await get(guarded, path)
        assert code == expected and "token" in text and not any(word in text for word in NAMES)


async def test_whoever_may_use_it_is_told_all(guarded: Served) -> None:
    reader = bearer(SECRETS["reader"])
    assert list((await status(guarded, "pair", reader)).agent.agent_ids) == ["left", "right"]
    assert "broken, chat, pair" in (await failure(status(guarded, "nothing", reader))).text
    assert "/srv/secret.zip" in (await failure(status(guarded, "broken", reader))).text


async def test_a_token_that_is_sent_has_to_be_a_good_one(guarded: Served) -> None:
    """So that a client learns it as it connects, and not at its first prompt."""
    assert (await failure(status(guarded, "chat", bearer("wrong")))).reason == "TOKEN_UNKNOWN"
    stub = inference_pb2_grpc.InferenceServiceStub(guarded.channel)
    action = inference_pb2.GetActionRequest(deployment_id="pair")
    assert (await failure(stub.GetAction(action))).reason == "TOKEN_MISSING"
