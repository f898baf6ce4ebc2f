"""Every member of the document on a real server: a language model in vLLM, policies and a model on ONNX Runtime."""

from __future__ import annotations

import io
import json
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gradwire.client import Client
from gradwire.client.arena import (
    Agent,
    ArenaClient,
    ArenaInferenceError,
    ArenaValidationError,
    AsyncAgent,
    LLMParams,
    StatusResponse,
    deploy_agent,
    open_inference_agent,
)
from gradwire.client.types.inference import MemoryScope
from gradwire.server.cli import main
from gradwire.server.engines.policy.manifest import Network
from tests.arena.bundles import NETWORKS
from tests.engines.policy.support import linear
from tests.serving import ServerProcess

SHORT = LLMParams(max_new_tokens=6)


@pytest.fixture(scope="module")
def addresses(server: ServerProcess) -> Iterator[dict[str, str]]:
    """A chat and a deployment of each bundle; the server's addresses by scheme."""
    with Client(server.address) as client:
        client.deployments.deploy_llm("chat")
        for name in NETWORKS:
            client.deployments.deploy_policy(name, name)
        yield {"grpc": f"grpc://{server.address}", "http": f"http://{server.doors['http']}"}
        for name in ("chat", "shared", "plain", *NETWORKS):
            client.deployments.undeploy(name)


@pytest.fixture(params=["grpc", "http"])
def base(request: pytest.FixtureRequest, addresses: dict[str, str]) -> str:
    """The server's address, over each transport."""
    return addresses[request.param]


def refused(action: Any, status: int, text: str) -> ArenaInferenceError:
    with pytest.raises(ArenaInferenceError, match=text) as caught:
        action()
    assert caught.value.status_code == status, caught.value
    return caught.value


def expected(name: str, **inputs: Any) -> dict[str, Any]:
    """The network's outputs for one row of inputs, in numpy."""
    spec = Network.model_validate_json(json.dumps(NETWORKS[name]))
    return {key: value[0] for key, value in linear(spec, {k: np.asarray(v)[None] for k, v in inputs.items()}).items()}


def test_status_says_what_a_deployment_is(base: str) -> None:
    kinds = {}
    for name in ("chat", "cartpole", "memory", "pair", "iris"):
        with Agent(f"{base}/{name}") as agent:
            status = agent.status()
            assert status is agent.metadata and status.success and status.deployment_id == name and status.instance_id
            assert status.agent is not None
            kinds[name] = {
                flag for flag in ("llm", "supervised", "recurrent", "multi_agent") if getattr(status.agent, flag)
            }
            if name == "cartpole":
                assert status.agent.algo == "PPO" and status.agent.supports_action_mask
                space = status.agent.action_space
                assert space is not None and (space["type"], space["n"], space["start"]) == ("Discrete", 2, 0)
            if name == "chat":
                assert status.memory_scope == "user"
    assert kinds == {
        "chat": {"llm"}, "cartpole": set(), "memory": {"recurrent"}, "pair": {"multi_agent"}, "iris": {"supervised"}
    }  # fmt: skip
    refused(lambda: Agent(f"{base}/nobody"), 404, "no deployment 'nobody'")


def test_actions_are_the_policys(base: str) -> None:
    observation = np.array([0.3, -1.0, 0.2, 2.0], np.float32)
    best = int(np.argmax(expected("cartpole", obs=observation)["logits"]))
    with Agent(f"{base}/cartpole") as agent:
        action: Any
        action, hidden = agent.get_action(observation, deterministic=True)
        assert action.shape == () and int(action) == best and hidden is None
        mask = np.array([1, 1])
        mask[best] = 0
        assert int(agent.get_action(observation, info={"action_mask": mask}, deterministic=True)[0]) == 1 - best  # type: ignore[arg-type]
        action, _ = agent.get_action(np.tile(observation, (64, 1)), batched=True, deterministic=True)
        assert action.tolist() == [best] * 64
        rows = np.zeros((64, 4), np.float32)
        first, again, other = (
            np.asarray(agent.get_action(rows, batched=True, deterministic=False, seed=seed)[0]).tolist()
            for seed in (1, 1, 2)
        )
        assert first == again != other and set(first) == {0, 1}
        refused(lambda: agent.get_action(observation[:3]), 400, "must be \\[4\\]")
        error = refused(lambda: agent.get_action(np.full(4, np.nan)), 400, "NaN")
        assert error.field_violations[0][0] == "observation" and error.reason
        refused(lambda: agent.get_action(observation, info={"action_mask": np.zeros(2)}), 400, "allows nothing")


def test_dict_tuple_and_image_observations(base: str) -> None:
    image = np.arange(48, dtype=np.uint8).reshape(4, 4, 3)
    pose = (np.array([0.5, -0.5], np.float32), np.array(2))
    flat = {"obs.image": image, "obs.pose.0": pose[0], "obs.pose.1": pose[1]}
    with Agent(f"{base}/robot") as agent:
        action: Any = agent.get_action({"image": image, "pose": pose}, deterministic=True)[0]
        np.testing.assert_allclose(action, np.tanh(expected("robot", **flat)["mean"]), rtol=1e-4)
        assert action.dtype == np.float32


def test_a_recurrent_policys_state_is_the_callers_or_the_servers(base: str) -> None:
    observations = np.random.default_rng(0).normal(size=(4, 2)).astype(np.float32)
    with Agent(f"{base}/memory") as agent:
        held, kept, hidden = [], [], None
        state = np.full(3, 0.5, np.float32)
        for observation in observations:
            action: Any
            action, hidden = agent.get_action(observation, hidden_state=hidden)
            outputs = expected("memory", obs=observation, **{"state.h": state})
            np.testing.assert_allclose(action, outputs["action"], rtol=1e-4)
            state = outputs["next_state.h"]
            held.append(float(action[0]))
            action, _ = agent.get_action(observation, session_id=f"episode-{base[:4]}")
            kept.append(float(action[0]))
        assert held == kept and len(set(held)) == 4


def test_several_agents(base: str) -> None:
    observations = {"left": np.array([1.0, 0.0]), "right": np.array([0.0, 1.0])}
    best = {key: int(np.argmax(expected("pair", obs=value)["logits"])) for key, value in observations.items()}
    with Agent(f"{base}/pair") as agent:
        assert agent.metadata is not None and agent.metadata.agent is not None
        assert agent.metadata.agent.agent_ids == ("left", "right")
        actions: Any = agent.get_action(observations, deterministic=True)[0]
        assert {key: int(value) for key, value in actions.items()} == best
        mask = np.ones(3, np.int8)
        mask[best["left"]] = 0
        actions = agent.get_action(
            observations,
            info={"action_mask": {"left": mask, "right": None}},
            env_defined_actions={"left": None, "right": 2},
            deterministic=True,
        )[0]
        assert int(actions["left"]) != best["left"] and int(actions["right"]) == 2
        refused(lambda: agent.get_action({"left": np.zeros(2), "up": np.zeros(2)}), 400, "no agent of the policy")


def test_several_agents_with_states(base: str) -> None:
    observations = {"left": np.array([1.0, 0.0], np.float32), "right": np.array([0.0, -1.0], np.float32)}
    states = dict.fromkeys(observations, np.full(3, 0.5, np.float32))
    hidden: Any = None
    with Agent(f"{base}/duo") as agent:
        assert agent.metadata is not None and agent.metadata.agent is not None
        assert agent.metadata.agent.recurrent and agent.metadata.agent.multi_agent
        for _ in range(3):
            actions: Any
            actions, hidden = agent.get_action(observations, hidden_state=hidden)
            kept: Any = agent.get_action(observations, session_id=f"duo-{base[:4]}")[0]
            for key, observation in observations.items():
                outputs = expected("duo", obs=observation, **{"state.h": states[key]})
                states[key] = outputs["next_state.h"]
                np.testing.assert_allclose(actions[key], outputs["action"], rtol=1e-4)
                np.testing.assert_allclose(hidden[key]["h"], states[key], rtol=1e-4)
                np.testing.assert_array_equal(kept[key], actions[key])
        refused(lambda: agent.get_action(observations, hidden_state={"up": hidden["left"]}), 400, "hidden_state.*up")


def test_predictions_are_the_models(base: str) -> None:
    rows = np.random.default_rng(0).normal(size=(3, 4)).astype(np.float32)
    with Agent(f"{base}/iris") as agent:
        outputs: Any
        outputs, result = agent.predict(rows, batched=True)
        np.testing.assert_allclose(outputs[1], expected("iris", obs=rows[1])["logits"], rtol=1e-4)
        assert result.batch_size == 3 and result.inference_time_ms > 0 and result.success
        assert agent.predict(rows[0])[0].shape == (3,)  # type: ignore[union-attr]


def test_replies_and_their_sessions(base: str) -> None:
    with Agent(f"{base}/chat", generate_params=SHORT) as agent:
        found = agent.generate(["one", "two"], params={"seed": 3, "log_probs": 0})
        assert [r.prompt for r in found.results] == ["one", "two"] and found.batch_size == 2
        assert found.usage.completion_tokens == sum(len(r.token_ids) for r in found.results) > 0
        assert found.inference_time_ms > 0 and found.tokens_per_second > 0
        first = found.results[0]
        assert (
            first.log_probs is not None and len(first.log_probs) == len(first.token_ids) and max(first.log_probs) <= 0
        )
        assert first.finish_reason in ("length", "stop") and first.session_id != found.results[1].session_id

        stream = agent.generate_stream("and?", params={"do_sample": False}, session_id=first.session_id)
        text = "".join(stream)
        assert stream.session_id == first.session_id and stream.result().completion == text
        sessions = agent.list_sessions()
        assert sessions[0].session_id == first.session_id and sessions[0].num_messages == 4
        assert sessions[0].created_at and sessions[0].last_updated and sessions[0].created_at < sessions[0].last_updated
        detail = agent.get_session(first.session_id)
        assert [(m.role, m.content) for m in detail.messages] == [
            ("user", "one"), ("assistant", first.completion), ("user", "and?"), ("assistant", text),
        ]  # fmt: skip
        for session in sessions:
            assert agent.delete_session(session.session_id)
        assert not agent.delete_session(first.session_id) and agent.list_sessions() == []
        refused(lambda: agent.get_session(first.session_id), 404, "not found")

        again = [agent.generate("x", params={"seed": 9}).results[0].token_ids for _ in range(2)]
        assert again[0] == again[1]
        refused(lambda: agent.generate("x", params={"top_p": 1.5}), 400, "top_p")


def test_a_strangers_session_is_as_one_that_never_was(base: str) -> None:
    options: dict[str, Any] = {"org_key": "any", "generate_params": SHORT}
    with (
        Agent(f"{base}/chat", external_user_id="ann", **options) as ann,
        Agent(f"{base}/chat", external_user_id="bob", **options) as bob,
    ):
        mine = ann.generate("hi").session_id
        assert [s.session_id for s in ann.list_sessions()] == [mine] and bob.list_sessions() == []
        missing = str(refused(lambda: bob.get_session("f" * 32), 404, "not found"))
        assert str(refused(lambda: bob.get_session(mine), 404, "not found")) == missing.replace("f" * 32, mine)
        assert not bob.delete_session(mine) and not bob.delete_session("f" * 32)
        for odd in ("a/b", "../../status", "a?b=c", "ü"):
            refused(lambda odd=odd: bob.get_session(odd), 404, "not found")
            assert not bob.delete_session(odd)
            refused(lambda odd=odd: bob.generate("hi", session_id=odd), 400, "session_id")
        assert ann.delete_session(mine)


def test_a_prompt_of_10_mb_is_refused_and_leaves_nothing(base: str) -> None:
    with Agent(f"{base}/chat", org_key="any", external_user_id="long") as agent:
        refused(lambda: agent.generate("word " * 2_000_000), 400, "prompts.0.")
        refused(lambda: list(agent.generate_stream("word " * 2_000_000)), 400, "prompt: ")
        assert agent.generate("hi", params=SHORT).results[0].session_id
        (session,) = agent.list_sessions()
        assert agent.delete_session(session.session_id)


def test_a_client_that_vanishes_leaves_its_reply_marked(base: str) -> None:
    options: dict[str, Any] = {"org_key": "any", "external_user_id": "gone"}
    agent = Agent(f"{base}/chat", **options)
    stream = agent.generate_stream("hi", params={"max_tokens": 1500, "ignore_eos": True})
    next(stream)
    agent.close()
    with Agent(f"{base}/chat", **options) as other:
        end = time.monotonic() + 20
        while len(messages := other.get_session(stream.session_id).messages) < 2 and time.monotonic() < end:
            time.sleep(0.05)
        assert [(m.role, m.incomplete) for m in messages] == [("user", False), ("assistant", True)]
        assert messages[1].content
        other.delete_session(stream.session_id)


def test_the_server_too_refuses_a_call_of_the_wrong_kind(base: str) -> None:
    with Agent(f"{base}/chat") as chat, Agent(f"{base}/cartpole") as cartpole:
        refused(lambda: chat.get_action(np.zeros(4)), 0, "Deployment is not RL")
        for agent in (chat, cartpole):
            agent._async.metadata = StatusResponse()  # as of a deployment that does not say what it is
        assert refused(lambda: chat.get_action(np.zeros(4)), 400, "chat|cartpole").reason == "WRONG_DEPLOYMENT_KIND"
        assert refused(lambda: cartpole.generate("hi"), 400, "cartpole").reason == "WRONG_DEPLOYMENT_KIND"
        assert refused(lambda: cartpole.predict(np.zeros(4)), 400, "chat|cartpole").reason == "WRONG_DEPLOYMENT_KIND"
        refused(lambda: list(cartpole.generate_stream("hi")), 400, "cartpole")


async def test_the_async_agent_streams_too(addresses: dict[str, str]) -> None:
    async with AsyncAgent(f"{addresses['http']}/chat", generate_params=SHORT) as agent:
        async with agent.generate_stream("hi") as stream:
            pieces = [piece async for piece in stream]
        assert (await agent.get_session(stream.session_id)).messages[1].content == "".join(pieces)
        assert await agent.delete_session(stream.session_id)


def test_deploying_by_arenas_names(addresses: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ARENA_BASE_URL", addresses["grpc"])
    row = deploy_agent("shared", memory_scope="organization")
    assert (
        row["url"] == f"{addresses['grpc']}/shared" and row["memory_scope"] == "organization" and row["kind"] == "llm"
    )
    options: dict[str, Any] = {"org_key": "any", "external_user_id": "ann"}
    with ArenaClient(**options) as arena:
        again = arena.deploy_agent("shared")  # a new version; the scope stays as it was chosen
        assert again["memory_scope"] == "organization" and again["version"] == row["version"] + 1
        assert [r["name"] for r in arena.list_inference_deployments(name="shared")] == ["shared"]
        assert "cartpole" in {r["name"] for r in arena.list_inference_deployments()}
        with pytest.raises(ArenaInferenceError, match="memory"):
            arena.deploy_agent("shared", memory_scope="user")
        with pytest.raises(ArenaValidationError, match="'user' or 'organization'"):
            arena.deploy_agent("shared", memory_scope="all")  # type: ignore[arg-type]
        with pytest.raises(ArenaValidationError, match="of language models"):
            arena.deploy_agent("plain", "cartpole", "user")
        assert arena.deploy_agent("plain", "cartpole", deterministic=True)["kind"] == "rl_policy"
        with arena.open_inference_agent("plain") as agent:
            assert agent.metadata is not None and agent.metadata.deployment_id == "plain"
        with (
            arena.open_inference_agent("shared") as ann,
            open_inference_agent("shared", org_key="any", external_user_id="bob") as bob,
        ):
            session = ann.generate("hi", params=SHORT).session_id
            assert [s.session_id for s in bob.list_sessions()] == [session]  # all users of the organisation see it
            assert bob.delete_session(session)
    with Client(addresses["grpc"]) as client:
        assert client.deployments.get("shared").memory_scope is MemoryScope.ORGANIZATION


def test_the_command_line_on_a_real_server(
    addresses: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkeypatch.setenv("GRADWIRE_ADDRESS", addresses["grpc"])

    def run(*arguments: str) -> list[Any]:
        assert main(["agent", *arguments, "--json"]) == 0
        return [json.loads(line) for line in capsys.readouterr().out.splitlines()]

    run("run", "chat", "--select")
    ends = [run("generate", "--prompt", text, "--max-new-tokens", "4")[-1] for text in ("one", "two")]
    session = ends[0]["session_id"]
    assert ends[1]["session_id"] == session
    (listed,) = run("sessions", "list")
    assert (listed[0]["session_id"], listed[0]["num_messages"], listed[0]["current"]) == (session, 4, True)
    (shown,) = run("sessions", "get", session)
    assert [m["content"] for m in shown["messages"]][::2] == ["one", "two"]
    assert run("sessions", "clear") == [{"cleared": True}]
    other = run("generate", "--prompt", "afresh", "--max-new-tokens", "4")[-1]["session_id"]
    current = {row["session_id"]: row["current"] for row in run("sessions", "list")[0]}  # beside other tests' own
    assert other != session and (current[other], current[session]) == (True, False)
    run("sessions", "resume", "--session", session)
    assert run("generate", "--prompt", "three", "--max-new-tokens", "4")[-1]["session_id"] == session
    assert run("sessions", "delete", other, "--yes") == [{"session_id": other, "deleted": True}]
    assert run("sessions", "delete", session, "--yes") == [{"session_id": session, "deleted": True}]
    assert run("sessions", "delete", session, "--yes") == [{"session_id": session, "deleted": False}]
    np.save(tmp_path / "o.npy", np.zeros(4, np.float32))
    monkeypatch.setattr(sys, "stdin", io.StringIO(f"[0.3, -1.0, 0.2, 2.0]\n{tmp_path}/o.npy\n"))
    assert [set(line) for line in run("run", "cartpole", "--deterministic")] == [{"action"}] * 2
    (status,) = run("status", "iris")
    assert status["agent"]["supervised"]
