"""What the client decides by itself: credentials, checks, what is sent, and which error comes of which answer."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

from gradwire.client.arena import Agent, ArenaAuthError, ArenaInferenceError, AsyncAgent, LLMParams
from gradwire.v1 import inference_pb2 as pb
from tests.arena.fake import STATUS, FakeAgent
from tests.client.wire import failure, retry_info

SECRET = "arena_pat_5f2d_verysecret"


def agent_of(fake: FakeAgent, kind: str, **options: Any) -> Any:
    fake.status = STATUS[kind]
    return Agent(f"{fake.address}/NAME/", **options)


def refused(action: Any, status: int, text: str) -> ArenaInferenceError:
    with pytest.raises(ArenaInferenceError, match=text) as caught:
        action()
    assert caught.value.status_code == status
    return caught.value


@pytest.mark.parametrize(
    ("given", "environment", "sent"),
    [
        ({}, {}, (None, None)),
        ({"api_key": "k"}, {"ARENA_API_KEY": "e"}, ("k", None)),
        ({}, {"ARENA_API_KEY": "e", "GRADWIRE_TOKEN": "g"}, ("e", None)),
        ({}, {"GRADWIRE_TOKEN": "g"}, ("g", None)),
        ({"org_key": "o", "external_user_id": "u"}, {"ARENA_API_KEY": "e"}, ("o", "u")),
        ({"external_user_id": "u"}, {"ARENA_ORG_KEY": "o"}, ("o", "u")),
        ({}, {"ARENA_ORG_KEY": "o", "ARENA_EXTERNAL_USER_ID": "u", "ARENA_API_KEY": "e"}, ("o", "u")),
        # What is written here comes before what the environment happens to hold.
        ({"api_key": "k"}, {"ARENA_ORG_KEY": "o", "ARENA_EXTERNAL_USER_ID": "u"}, ("k", None)),
        ({"api_key": "k"}, {"ARENA_ORG_KEY": "o"}, ("k", None)),
    ],
)
def test_which_credential_goes_with_every_call(
    fake: FakeAgent, monkeypatch: pytest.MonkeyPatch, given: Any, environment: dict[str, str], sent: Any
) -> None:
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    with agent_of(fake, "llm", **given) as agent:
        agent.generate("hi")
        list(agent.generate_stream("hi"))
        agent.list_sessions()
    token, user = sent
    expected = (f"Bearer {token}" if token else None, user)
    seen = [(m.get("authorization"), m.get("x-external-user-id")) for m in fake.metadata]
    assert seen == [expected] * 4


@pytest.mark.parametrize("given", [{"org_key": "o"}, {"external_user_id": "u"}, {"api_key": "k", "org_key": "o"}])
def test_an_organisations_key_and_its_user_come_together(given: dict[str, str]) -> None:
    with pytest.raises(ArenaAuthError, match="needs"):
        Agent("grpc://127.0.0.1:1", **given)  # type: ignore[arg-type]
    with pytest.raises(ArenaAuthError, match="visible ASCII"):
        Agent("grpc://127.0.0.1:1", org_key="o", external_user_id="two words")


def test_a_credential_shows_nowhere(fake: FakeAgent, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("DEBUG")
    fake.failures["GenerateReply"].append(failure("INTERNAL", "broken"))
    with agent_of(fake, "llm", api_key=SECRET) as agent:
        error = refused(lambda: agent.generate("hi"), 500, "broken")
        held: list[object] = [agent, agent._async, *vars(agent).values(), *vars(agent._async).values()]
        held += [agent._async._client._connection, agent._async._client._connection._endpoint]
        assert SECRET not in "".join(map(repr, held)) + repr(error) + repr(error.__cause__) + caplog.text
        assert repr(agent) == f"<Agent endpoint='{fake.address}/NAME'>"
    refused(lambda: Agent(f"grpc://user:{SECRET}@host", probe_on_init=False), 0, "pass credentials as api_key")
    refused(lambda: Agent("grpc://elsewhere:1/x", api_key=SECRET, probe_on_init=False), 0, "in the clear")
    with pytest.raises(ArenaInferenceError) as caught:
        Agent("grpc://127.0.0.1:1", api_key=f"{SECRET}\n")
    assert SECRET not in str(caught.value)


def test_metadata_is_fetched_on_construction_and_kept(fake: FakeAgent) -> None:
    with agent_of(fake, "rl") as agent:
        assert agent.metadata is agent.status()
        assert (agent.metadata.deployment_id, agent.metadata.agent.algo) == ("cartpole", "PPO")
        fake.status = STATUS["llm"]
        assert agent.status(refresh=True).deployment_id == "chat" and agent.metadata.deployment_id == "chat"
    assert [request.deployment_id for request in fake.requests["GetStatus"]] == ["NAME", "NAME"]
    with agent_of(fake, "rl", probe_on_init=False) as agent:
        assert agent.metadata is None and len(fake.requests["GetStatus"]) == 2
        refused(lambda: agent.get_action([1.0]), 0, "Metadata not loaded")
        agent.status()
        agent.get_action([1.0])


ROUTES: dict[str, tuple[str, Callable[[Any], object]]] = {
    "get_action": ("rl", lambda agent: agent.get_action(np.zeros(2))),
    "predict": ("supervised", lambda agent: agent.predict(np.zeros(2))),
    "generate": ("llm", lambda agent: agent.generate("hi")),
    "generate_stream": ("llm", lambda agent: list(agent.generate_stream("hi"))),
    "list_sessions": ("llm", lambda agent: agent.list_sessions()),
    "get_session": ("llm", lambda agent: agent.get_session("s1")),
    "delete_session": ("llm", lambda agent: agent.delete_session("s1")),
}


@pytest.mark.parametrize("kind", ["llm", "rl", "supervised", "silent"])
def test_a_call_of_the_wrong_kind_is_refused_before_it_is_sent(fake: FakeAgent, kind: str) -> None:
    with agent_of(fake, kind) as agent:
        for wanted, call in ROUTES.values():
            if kind in (wanted, "silent"):  # a deployment that does not say what it is decides by itself
                call(agent)
            else:
                refused(lambda call=call: call(agent), 0, "Deployment is not")
    sent = sum(len(requests) for name, requests in fake.requests.items() if name != "GetStatus")
    assert sent == {"llm": 5, "rl": 1, "supervised": 1, "silent": 7}[kind]


def test_a_stream_checks_nothing_before_its_first_piece(fake: FakeAgent) -> None:
    with agent_of(fake, "llm") as agent:
        streams = [agent.generate_stream(" "), agent.generate_stream("hi", session_id=" ")]
        streams.append(agent.generate_stream("hi", params={"temprature": 1}))
        for stream, text in zip(streams, ("index 0 is empty", "session_id must be", "'temperature'"), strict=True):
            refused(lambda stream=stream: next(stream), 0, text)
        assert not fake.requests["GenerateReplyStream"]
    with agent_of(fake, "rl") as agent:
        wrong = agent.generate_stream("hi")
        refused(lambda: next(wrong), 0, "not an LLM")


def test_prompts_and_session_ids_are_checked(fake: FakeAgent) -> None:
    with agent_of(fake, "llm") as agent:
        refused(lambda: agent.generate([]), 0, "At least one prompt")
        refused(lambda: agent.generate(["hi", "  "]), 0, "index 1 is empty")
        refused(lambda: agent.generate(["hi", None]), 0, "index 1 is empty")
        for call in (agent.get_session, agent.delete_session):
            refused(lambda call=call: call("  "), 0, "non-empty")
        assert not fake.requests["GenerateReply"]
        agent.generate("hi", session_id=" s9 ")
        agent.generate("hi")
        with_id, without = fake.requests["GenerateReply"]
        assert with_id.session_id == "s9" and not without.HasField("session_id")
        assert agent.delete_session(" s1 ") and not agent.delete_session("a/../../x?y=1")
        assert [r.session_id for r in fake.requests["DeleteSession"]] == ["s1", "a/../../x?y=1"]


@pytest.mark.parametrize(
    ("kind", "call", "complaint"),
    [
        ("llm", lambda agent: agent.generate(5), r"prompts is 5 \(int\); it takes text or a list of such$"),
        (
            "llm",
            lambda agent: agent.generate("hi", params="x"),
            r"params is 'x' \(str\); it takes an LLMParams or a dict$",
        ),
        ("llm", lambda agent: next(agent.generate_stream("hi", params=5)), r"params is 5 \(int\)"),
        ("llm", lambda agent: agent.generate("hi", timeout="x"), r"timeout is 'x' \(str\); it is in seconds"),
        ("llm", lambda agent: agent.list_sessions(limit="x"), r"limit is 'x' \(str\); it takes a whole number"),
        ("rl", lambda agent: agent.get_action([1.0], info=5), r"info is 5 \(int\); it takes a dict"),
        ("rl", lambda agent: agent.get_action([1.0], seed="x"), r"seed is 'x' \(str\); it takes a whole number$"),
        ("rl", lambda agent: agent.get_action([1.0], batched="x"), r"batched is 'x' \(str\); it takes True or False$"),
        ("supervised", lambda agent: agent.predict([1.0], batched="x"), r"batched is 'x' \(str\)"),
    ],
)
def test_an_argument_of_a_wrong_type(fake: FakeAgent, kind: str, call: Any, complaint: str) -> None:
    with agent_of(fake, kind) as agent:
        refused(lambda: call(agent), 0, complaint)


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ({"endpoint": 5}, r"endpoint is 5 \(int\); it takes text, such as grpc://"),
        ({"deployment": 5}, r"deployment is 5 \(int\)"),
        ({"api_key": b"secret"}, "api_key is of type bytes; it takes text"),
        ({"org_key": "o", "external_user_id": 5}, "external_user_id is of type int; it takes text"),
        ({"timeout": "x"}, r"timeout is 'x' \(str\)"),
        ({"retry": 3}, r"retry is 3 \(int\); it takes a RetryConfig"),
    ],
)
def test_what_an_agent_is_made_with(arguments: dict[str, Any], complaint: str) -> None:
    with pytest.raises((ArenaInferenceError, ArenaAuthError), match=complaint) as caught:
        AsyncAgent(**{"endpoint": "grpc://127.0.0.1:1/NAME", **arguments})
    assert "secret" not in str(caught.value)


def test_what_parameters_become(fake: FakeAgent) -> None:
    own = LLMParams(max_new_tokens=7, top_k=3)
    with agent_of(fake, "llm", generate_params=own) as agent:
        agent.generate("hi")
        agent.generate("hi", params=LLMParams(temperature=0.2))
        agent.generate("hi", params={"do_sample": False, "stop": ["\n"], "seed": 4, "log_probs": 0})
        agent.generate("hi", params={"max_tokens": 2, "repetition_penalty": 1.5, "min_p": 0.1})
        first, second, third, fourth = (request.params for request in fake.requests["GenerateReply"])
        assert (first.max_tokens, first.top_k) == (7, 3)
        assert (round(first.temperature, 4), round(first.top_p, 4)) == (0.7, 0.9)
        # Only what the override sets: the rest stays the agent's own.
        assert (second.max_tokens, second.top_k, round(second.temperature, 4)) == (7, 3, 0.2)
        assert (third.temperature, list(third.stop), third.seed, third.log_probs) == (0, ["\n"], 4, 0)
        assert not third.HasField("top_p") and not third.HasField("top_k")
        assert (fourth.max_tokens, fourth.repetition_penalty, round(fourth.min_p, 4)) == (2, 1.5, 0.1)
        refused(lambda: agent.generate("hi", params={"n": 2}), 0, "'n' is not known")
        twice = {"max_tokens": 2, "max_new_tokens": 3}
        refused(lambda: agent.generate("hi", params=twice), 0, "give one of them")


def test_what_generate_returns(fake: FakeAgent) -> None:
    with agent_of(fake, "llm") as agent:
        found = agent.generate(["a", "b"])
        assert [(r.prompt, r.completion, r.session_id, r.finish_reason) for r in found.results] == [
            ("a", "Hello", "new", "stop"), ("b", "Hello", "new", "stop"),
        ]  # fmt: skip
        assert (found.batch_size, found.inference_time_ms, found.tokens_per_second) == (2, 4000.0, 2.0)
        assert (found.usage.prompt_tokens, found.results[0].token_ids) == (3, (1, 2))
        with pytest.raises(ValueError, match="2 completions"):
            _ = found.session_id
        assert json.loads(found.model_dump_json())["results"][0]["completion"] == "Hello"


def test_what_a_stream_gives(fake: FakeAgent) -> None:
    with agent_of(fake, "llm") as agent:
        stream = agent.generate_stream("hi")
        with pytest.raises(RuntimeError, match="has not begun"):
            _ = stream.session_id
        assert next(stream) == "Hel" and stream.session_id == "new"
        assert list(stream) == ["lo"] and list(stream) == []
        result = stream.result()
        assert (result.completion, result.finish_reason, stream.usage.completion_tokens) == ("Hello", "length", 3)
        assert agent.generate_stream("hi").result() == result


def test_a_stream_that_fails_raises_a_typed_error_after_its_pieces(fake: FakeAgent) -> None:
    fake.failures["later"].append(failure("RESOURCE_EXHAUSTED", "too much", retry_info(2)))
    with agent_of(fake, "llm") as agent:
        stream = agent.generate_stream("hi")
        assert [next(stream), next(stream)] == ["Hel", "lo"]
        error = refused(lambda: next(stream), 429, "too much")
        assert (error.code, error.retry_after) == ("RESOURCE_EXHAUSTED", 2.0)


def test_a_stream_ends_when_it_is_cancelled_and_when_nothing_comes(fake: FakeAgent) -> None:
    fake.stall = True
    with agent_of(fake, "llm", timeout=0.3) as agent:
        with agent.generate_stream("hi") as stream:
            next(stream)
        refused(lambda: list(stream), 0, "cancelled here")
        refused(lambda: list(agent.generate_stream("hi")), 0, "nothing of the reply came for 0.3 s")
        refused(lambda: list(agent.generate_stream("hi", timeout=0.1)), 0, "timeout")
    end = time.monotonic() + 5
    while fake.cancelled < 3 and time.monotonic() < end:
        time.sleep(0.01)
    assert fake.cancelled == 3


def test_arrays_come_back_as_they_were_sent(fake: FakeAgent) -> None:
    with agent_of(fake, "recurrent") as agent:
        sent = {"image": np.arange(6, dtype=np.uint8).reshape(2, 3), "more": (np.array([1.5], np.float32), np.int64(3))}
        action, hidden = agent.get_action(sent, hidden_state={"h": np.ones(2, np.float32)}, seed=3, deterministic=True)
        assert isinstance(action, dict) and isinstance(hidden, dict)
        np.testing.assert_array_equal(action["image"], sent["image"])
        assert action["image"].dtype == np.uint8 and action["more"][1].shape == () and int(action["more"][1]) == 3
        request = fake.requests["GetAction"][0]
        assert request.HasField("hidden_state") and request.seed == 3 and request.deterministic
        agent.get_action([[1.0, 2.0]], batched=True, session_id="episode")
        request = fake.requests["GetAction"][1]
        assert (request.batched, list(request.observation.tensor.shape)) == (True, [1, 2])
        assert request.session_id == "episode" and not request.HasField("deterministic")
        agent.get_action([np.zeros(2), np.zeros(3)])
        assert len(fake.requests["GetAction"][2].observation.list.items) == 2
        refused(lambda: agent.get_action({"a": None}), 0, r"observation\['a'\] is None")
        refused(lambda: agent.get_action("text"), 0, "observation holds")
    with agent_of(fake, "rl") as agent:
        agent.get_action([1.0], hidden_state=np.ones(2))
        assert not fake.requests["GetAction"][-1].HasField("hidden_state")
    with agent_of(fake, "supervised") as agent:
        outputs, result = agent.predict(np.zeros((3, 2), np.float32), batched=True)
        assert outputs.shape == (3, 2) and (result.batch_size, result.inference_time_ms) == (3, 1.5)


def test_several_agents_take_dicts_by_agent(fake: FakeAgent) -> None:
    both = {"a": np.zeros(2), "b": np.zeros(2)}
    with agent_of(fake, "multi") as agent:
        refused(lambda: agent.get_action(np.zeros(2)), 0, "keyed by agent id")
        refused(lambda: agent.get_action(both, info={"action_mask": np.ones(2)}), 0, "action_mask must be a dict")
        refused(lambda: agent.get_action(both, env_defined_actions=np.ones(2)), 0, "env_defined_actions must be a dict")
        info = {"action_mask": {"a": np.ones(2), "b": None}, "env_defined_actions": {"a": np.nan, "b": 1}}
        agent.get_action(both, info=info)
        agent.get_action(both, env_defined_actions={"a": None, "b": None})
        first, second = fake.requests["GetAction"]
        assert set(first.action_mask.map.entries) == {"a"} and set(first.env_defined_actions.map.entries) == {"a", "b"}
        assert not second.HasField("env_defined_actions") and not second.HasField("action_mask")


@pytest.mark.parametrize(
    ("status", "kind", "number"),
    [
        ("UNAUTHENTICATED", ArenaAuthError, 401),
        ("PERMISSION_DENIED", ArenaAuthError, 403),
        ("INVALID_ARGUMENT", ArenaInferenceError, 400),
        ("NOT_FOUND", ArenaInferenceError, 404),
        ("ABORTED", ArenaInferenceError, 409),
        ("RESOURCE_EXHAUSTED", ArenaInferenceError, 429),
        ("INTERNAL", ArenaInferenceError, 500),
        ("UNIMPLEMENTED", ArenaInferenceError, 501),
    ],
)
def test_each_status_is_its_error_on_every_route(fake: FakeAgent, status: str, kind: Any, number: int) -> None:
    routes = {"GenerateReply": "generate", "GenerateReplyStream": "generate_stream", "ListSessions": "list_sessions"}
    with agent_of(fake, "llm") as agent:
        for rpc, route in routes.items():
            fake.failures[rpc].append(failure(status, "this is why"))
            with pytest.raises(kind, match="this is why") as caught:
                ROUTES[route][1](agent)
            assert caught.value.status_code == number
        fake.failures["GetSession"].append(failure("NOT_FOUND", "no such session"))
        assert (
            str(refused(lambda: agent.get_session("s7"), 404, "s7")) == "InferenceError (404): Session 's7' not found."
        )


def test_actions_have_deadlines_threads_and_an_end(fake: FakeAgent) -> None:
    with agent_of(fake, "rl") as agent:
        with ThreadPoolExecutor(8) as threads:
            found = list(threads.map(lambda n: agent.get_action(np.array([n]))[0].item(), range(100)))
        assert found == list(range(100))
        fake.failures["GetAction"].append(failure("UNAVAILABLE", "restarting", retry_info(0.01)))
        refused(lambda: agent.get_action([1.0], session_id="kept"), 0, "restarting")  # its state would advance twice
        fake.stall = True
        began = time.monotonic()
        refused(lambda: agent.get_action([1.0], timeout=0.2), 0, "timeout")
        assert time.monotonic() - began < 5
    with pytest.raises(RuntimeError, match="closed"):
        agent.get_action([1.0])


def test_a_server_that_is_not_there_is_a_network_error_and_a_busy_one_is_asked_again(fake: FakeAgent) -> None:
    refused(lambda: Agent("grpc://127.0.0.1:9", timeout=1), 0, "Network error reaching agent endpoint")
    with agent_of(fake, "rl") as agent:
        fake.failures["GetAction"] += [failure("UNAVAILABLE", "restarting", retry_info(0.01))] * 2
        agent.get_action([1.0])
        assert len(fake.requests["GetAction"]) == 3
    with agent_of(fake, "llm") as agent:
        # A message is not stored twice: such a call is not sent again.
        fake.failures["GenerateReply"] += [failure("UNAVAILABLE", "restarting", retry_info(0.01))]
        refused(lambda: agent.generate("hi"), 0, "restarting")
        assert len(fake.requests["GenerateReply"]) == 1


async def test_the_async_agent_probes_by_itself(fake: FakeAgent) -> None:
    from gradwire.client._core.loop import shared_loop

    async def work() -> None:
        agent = AsyncAgent(f"{fake.address}/NAME")
        assert agent.metadata is None
        assert (await agent.generate("hi")).results[0].completion == "Hello"
        assert agent.metadata is not None and len(fake.requests["GetStatus"]) == 1
        assert [piece async for piece in agent.generate_stream("hi")] == ["Hel", "lo"]
        async with agent.generate_stream("hi") as stream:
            assert stream.session_id == "new" and (await stream.result()).completion == "Hello"
        await agent.close()
        async with AsyncAgent(fake.address) as second:
            assert second.metadata is not None
            assert [s.session_id for s in await second.list_sessions()] == ["s1"]
            assert (await second.get_session("s1")).messages[0].content == "Hi"
            assert await second.delete_session("s1")
        closed = AsyncAgent(fake.address, probe_on_init=False)
        with pytest.raises(ArenaInferenceError, match="Metadata not loaded"):
            await closed.generate("hi")
        await closed.close()

    shared_loop().run(work())  # the fake's loop; grpc.aio wants one


def test_metadata_says_the_spaces(fake: FakeAgent) -> None:
    fake.status = pb.GetStatusResponse(
        kind=pb.DEPLOYMENT_KIND_RL_POLICY,
        weight_version=4,
        agent=pb.AgentInfo(name="PPO", supports_action_mask=True),
        instance_id="i",
    )
    fake.status.agent.action_space.update({"type": "Discrete", "n": 2, "start": 0})
    with Agent(fake.address) as agent:
        status = agent.status()
        assert status.agent is not None and status.agent.action_space == {"type": "Discrete", "n": 2, "start": 0}
        assert (status.weight_version, status.instance_id, status.agent.supports_action_mask) == (4, "i", True)
        assert status.agent.observation_space is None and status.memory_scope == ""
