"""InferenceService over the wire: policies on ONNX Runtime, language models on a fake sampler."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from grpc import StatusCode

from gradwire.client import (
    AsyncClient,
    DeploymentKind,
    FailedPreconditionError,
    FinishReason,
    GradwireError,
    InvalidArgumentError,
    MemoryScope,
    NotFoundError,
)
from gradwire.server.domain.caller import LOCAL_CALLER
from gradwire.server.engines.sampling import FinishReason as EngineFinish
from gradwire.v1 import inference_pb2
from tests.engines.policy.support import box, discrete, linear, network, spec_of, write
from tests.fake_engines.process import CONTEXT
from tests.rpc.support import Served, failure, serving, until

RECURRENT = network(box(2), "deterministic", box(1), states={"h": {"shape": [3], "initial": 0.5}})


@pytest.fixture
async def client(served: Served) -> AsyncIterator[AsyncClient]:
    """A client of the server."""
    async with AsyncClient(served.app.grpc_address, timeout=20.0) as made:
        yield made


def bundle(served: Served, name: str, networks: dict[str, Any], **fields: Any) -> str:
    write(served.app.settings.bundles / name, networks, **fields)
    return name


def array(value: Any) -> npt.NDArray[Any]:
    assert isinstance(value, np.ndarray)
    return value


async def refused(call: Any) -> GradwireError:
    with pytest.raises(InvalidArgumentError) as caught:
        await call
    return caught.value


async def test_a_policy_acts_and_says_what_it_is(served: Served, client: AsyncClient) -> None:
    folder = bundle(served, "cart", {"policy": network(box(4), "categorical", discrete(3))}, algo="PPO")
    made = await client.deployments.deploy_policy("cart", folder, deterministic=True)
    status = await client.inference.get_status()
    assert (status.kind, status.instance_id, status.weight_version) == (DeploymentKind.RL_POLICY, made.instance_id, 1)
    assert status.agent.name == "PPO" and status.agent.supports_action_mask and not status.agent.recurrent
    assert status.agent.action_space["n"] == 3 and status.agent.observation_space["shape"] == [4]
    observation = np.array([0.1, -2.0, 0.3, 4.0], np.float32)
    spec = spec_of((served.app.deployments.find("cart").engine).manifest)  # type: ignore[union-attr]
    best = int(np.argmax(linear(spec, {"obs": observation[None]})["logits"]))
    for _ in range(3):
        result = await client.inference.get_action(observation)
        assert result.action == best and result.action.shape == () and result.hidden_state is None
    mask = np.ones(3, np.int64)
    mask[best] = 0
    assert (await client.inference.get_action(observation, action_mask=mask)).action != best
    batch = await client.inference.get_action(np.stack([observation] * 5), batched=True)
    assert array(batch.action).tolist() == [best] * 5
    several = [
        array((await client.inference.get_action(observation, deterministic=False, seed=seed)).action).item()
        for seed in (*range(20), 0)
    ]
    assert several[0] == several[-1] and len(set(several)) > 1


async def test_what_a_policy_cannot_take_is_named(served: Served, client: AsyncClient) -> None:
    folder = bundle(served, "cart", {"policy": network(box(4), "categorical", discrete(3))})
    await client.deployments.deploy_policy("cart", folder)
    good = np.zeros(4, np.float32)
    for error, field in (
        (await refused(client.inference.get_action(np.full(4, np.nan, np.float32))), "observation"),
        (await refused(client.inference.get_action(np.zeros((1, 4), np.float32))), "observation"),
        (await refused(client.inference.get_action({"x": good})), "observation"),
        (await refused(client.inference.get_action(good, action_mask=np.zeros(3, np.int64))), "action_mask"),
        (await refused(client.inference.get_action(good, hidden_state={"h": good})), "hidden_state"),
        (await refused(client.inference.get_action(good, session_id="../x")), "session_id"),
        (await refused(client.inference.predict(good)), "deployment_id"),
        (await refused(client.inference.generate("hi")), "deployment_id"),
        (await refused(client.sessions.list()), "deployment_id"),
    ):
        assert error.field_violations[0][0] == field
    assert (await refused(client.inference.generate_stream("hi").result())).reason == "WRONG_DEPLOYMENT_KIND"
    with pytest.raises(NotFoundError, match="no deployment 'other'; there are cart"):
        await client.inference.get_action(good, deployment_id="other")
    deep = inference_pb2.Value(tensor={"dtype": "DATA_TYPE_FLOAT32", "shape": [4], "data": good.tobytes()})
    for _ in range(20):
        deep = inference_pb2.Value(list=inference_pb2.ValueList(items=[deep]))
    failed = await failure(served.inference.GetAction(inference_pb2.GetActionRequest(observation=deep)))
    assert failed.code is StatusCode.INVALID_ARGUMENT and failed.fields[0].startswith("observation[0][0]")


async def test_a_supervised_model_predicts(served: Served, client: AsyncClient) -> None:
    folder = bundle(served, "model", {"net": network(box(2), None, None, outputs=["y"])})
    await client.deployments.deploy_policy("model", folder)
    assert (await client.inference.get_status()).kind is DeploymentKind.SUPERVISED
    found = await client.inference.predict(np.ones((3, 2), np.float32), batched=True)
    assert found.batch_size == 3 and array(found.outputs).shape == (3, 3)
    assert (await refused(client.inference.get_action([1.0, 2.0]))).reason == "WRONG_DEPLOYMENT_KIND"


async def test_the_server_keeps_hidden_states_by_session(served: Served, client: AsyncClient) -> None:
    folder = bundle(served, "memory", {"policy": RECURRENT})
    await client.deployments.deploy_policy("memory", folder)
    observations = np.random.default_rng(0).normal(size=(4, 2)).astype(np.float32)
    state, by_hand = None, []
    for observation in observations:
        result = await client.inference.get_action(observation, hidden_state=state)
        state = result.hidden_state
        by_hand.append(result.action)
    kept = [(await client.inference.get_action(o, session_id="one")).action for o in observations]
    np.testing.assert_array_equal(kept, by_hand)
    later = await client.inference.get_action(observations[0], session_id="one")
    assert not np.array_equal(array(later.action), array(by_hand[0]))
    # Another session, and another user's of the same name, begin with the initial state.
    first = await client.inference.get_action(observations[0], session_id="two")
    np.testing.assert_array_equal(first.action, by_hand[0])
    async with AsyncClient(served.app.grpc_address, metadata={"x-external-user-id": "eve"}) as eve:
        np.testing.assert_array_equal(
            (await eve.inference.get_action(observations[0], session_id="one")).action, by_hand[0]
        )
    error = await refused(client.inference.get_action(observations, batched=True, session_id="one"))
    assert error.field_violations[0][0] == "session_id" and "another batch size" in str(error)
    reset = await client.inference.get_action(observations[0], session_id="one", hidden_state={"h": np.full(3, 0.5)})
    np.testing.assert_array_equal(reset.action, by_hand[0])
    await client.deployments.deploy_policy("memory", folder, replace=True)
    anew = await client.inference.get_action(observations[0], session_id="two")
    np.testing.assert_array_equal(anew.action, by_hand[0])


async def test_agents_that_are_not_asked_keep_their_states(served: Served, client: AsyncClient) -> None:
    folder = bundle(served, "pair", {"a": RECURRENT, "b": RECURRENT}, agents={"left": "a", "right": "b"})
    await client.deployments.deploy_policy("pair", folder)
    assert (await client.inference.get_status()).agent.agent_ids == ("left", "right")
    one = np.ones(2, np.float32)
    ask = client.inference.get_action
    both = await ask({"left": one, "right": one})
    assert isinstance(both.hidden_state, dict)
    expected = await ask({"right": one}, hidden_state={"right": both.hidden_state["right"]})
    await ask({"left": one, "right": one}, session_id="s")
    await ask({"left": one}, session_id="s")
    found = await ask({"right": one}, session_id="s")
    assert isinstance(found.action, dict) and isinstance(expected.action, dict)
    np.testing.assert_array_equal(found.action["right"], expected.action["right"])
    assert (await refused(ask({"left": one, "nobody": one}))).field_violations[0][0] == "observation.nobody"


async def test_two_turns_of_one_conversation(served: Served, client: AsyncClient) -> None:
    await client.deployments.deploy_llm("helper", system_prompt="be kind")
    first = (await client.inference.generate("abc")).replies[0]
    assert first.session_id and first.text == "cba\ndnik eb" and first.completion.finish_reason is FinishReason.LENGTH
    stream = client.inference.generate_stream("de", session_id=first.session_id)
    parts = [delta.text async for delta in stream]
    assert "".join(parts) == (await stream.result()).text and len(parts) > 1
    assert stream.session_id == first.session_id and stream.num_dropped_messages == 0
    conversation = await client.sessions.get(first.session_id)
    assert [(m.role, m.content) for m in conversation.messages] == [
        ("user", "abc"), ("assistant", first.text), ("user", "de"), ("assistant", "".join(parts)),
    ]  # fmt: skip
    prompt = bytes(served.engines.samplers[0].requests[-1].prompt_token_ids.astype(np.uint8)).decode()
    assert prompt == f"be kind\nabc\n{first.text}\nde"


async def test_the_oldest_turns_leave_the_prompt_and_stay_stored(served: Served, client: AsyncClient) -> None:
    await client.deployments.deploy_llm("helper", params={"max_tokens": 2})
    dropped = []
    for number in range(9):
        reply = (await client.inference.generate(f"message {number}", session_id="s")).replies[0]
        dropped.append(reply.num_dropped_messages)
    assert dropped[0] == 0 and dropped[-1] >= 8 and dropped == sorted(dropped)
    assert len((await client.sessions.get("s")).messages) == 18
    error = await refused(client.inference.generate("x" * 100, session_id="s"))
    assert (error.reason, error.field_violations[0][0]) == ("PROMPT_TOO_LONG", "prompts[0]")
    assert len((await client.sessions.get("s")).messages) == 18
    long = (await client.inference.generate("y" * 60, session_id="s")).replies[0]  # fits, though with little room
    assert long.num_dropped_messages == 18


async def test_prompts_are_conversations_of_their_own(served: Served, client: AsyncClient) -> None:
    await client.deployments.deploy_llm("helper", params={"max_tokens": 3, "temperature": 0})
    found = await client.inference.generate(["abc", "defg"])
    assert [(r.prompt, r.text) for r in found.replies] == [("abc", "cba"), ("defg", "gfe")]
    assert len({r.session_id for r in found.replies}) == 2
    assert (found.usage.prompt_tokens, found.usage.completion_tokens) == (7, 6)
    assert (await refused(client.inference.generate(["a", "b"], session_id="s"))).field_violations[0][0] == "prompts"
    assert (await refused(client.inference.generate(["a", " "]))).field_violations[0][0] == "prompts[1]"
    assert (await refused(client.inference.generate("a", n=2, temperature=1))).field_violations[0][0] == "params.n"
    assert (await client.inference.generate("abcd", max_tokens=1)).replies[0].text == "d"


async def test_nothing_is_stored_where_nothing_should_be(served: Served, client: AsyncClient) -> None:
    await client.deployments.deploy_llm("forgetful", memory_scope=MemoryScope.UNSPECIFIED)
    assert (await client.inference.get_status()).memory_scope is MemoryScope.UNSPECIFIED
    assert (await client.inference.generate("ab")).replies[0].session_id == ""
    stream = client.inference.generate_stream("ab")
    assert ((await stream.result()).text, stream.session_id) == ("ba", "")
    assert (await refused(client.inference.generate("ab", session_id="s"))).field_violations[0][0] == "session_id"


async def test_a_reply_that_breaks_off_is_kept_and_its_slot_is_free(served: Served, client: AsyncClient) -> None:
    await client.deployments.deploy_llm("helper")
    sampler = served.engines.samplers[0]
    sampler.token_gate = asyncio.Semaphore(2)
    stream = client.inference.generate_stream("abcd", session_id="s")
    assert (await anext(stream)).text == "d"
    await until(lambda: len(sampler.open) == 1)
    stream.cancel()
    await until(lambda: not sampler.open)

    async def stored() -> bool:
        messages = (await client.sessions.get("s")).messages
        return len(messages) == 2 and messages[1].incomplete and messages[1].content == "dc"

    await until(stored)
    sampler.token_gate = None
    sampler.generate_error = RuntimeError("a bug of the engine")
    error = await failure(served.inference.GenerateReply(inference_pb2.GenerateReplyRequest(prompts=["x"])))
    assert error.code is StatusCode.INTERNAL and "a bug of the engine" not in error.text
    sampler.generate_error = None
    assert (await client.inference.generate("z", session_id="s", max_tokens=1)).replies[0].text == "z"


async def test_a_reply_that_the_engine_ends_is_marked(served: Served, client: AsyncClient) -> None:
    await client.deployments.deploy_llm("helper")
    served.engines.samplers[0].finish = EngineFinish.ABORT  # as a weight update with the abort policy ends it
    reply = (await client.inference.generate("ab", session_id="s")).replies[0]
    assert (reply.text, reply.completion.finish_reason) == ("ba", FinishReason.ABORT)
    assert (await client.sessions.get("s")).messages[1].incomplete


async def test_a_deployment_that_is_removed_answers_what_is_under_way(served: Served, client: AsyncClient) -> None:
    await client.deployments.deploy_llm("helper")
    sampler = served.engines.samplers[0]
    sampler.token_gate = asyncio.Semaphore(1)
    stream = client.inference.generate_stream("abc", session_id="s")
    assert (await anext(stream)).text == "c"
    assert await client.deployments.undeploy("helper")
    with pytest.raises(NotFoundError):
        await client.inference.generate("x")
    for _ in range(3):
        sampler.token_gate.release()
    assert (await stream.result()).text == "cba"
    await client.deployments.deploy_llm("helper")
    assert [m.content for m in (await client.sessions.get("s")).messages] == ["abc", "cba"]


async def test_what_the_engine_refuses_was_never_said(served: Served, client: AsyncClient) -> None:
    await client.deployments.deploy_llm("helper")
    await client.inference.generate("ab", session_id="s")
    await client.sampling.sleep()
    for session_id in ("s", "new"):
        with pytest.raises(FailedPreconditionError, match="sleeps"):
            await client.inference.generate("cd", session_id=session_id)
        with pytest.raises(FailedPreconditionError, match="sleeps"):
            await client.inference.generate_stream("cd", session_id=session_id).result()
    await client.sampling.wake()
    assert [(s.session_id, s.num_messages) for s in await client.sessions.list()] == [("s", 2)]
    assert (await client.inference.generate("cd", session_id="s", max_tokens=1)).replies[0].text == "d"


async def test_long_messages_are_refused_before_they_are_read(served: Served, client: AsyncClient) -> None:
    await client.deployments.deploy_llm("helper")
    sampler = served.engines.samplers[0]
    counted: list[int] = []
    tokenize = sampler.tokenize

    def counting(text: str, **options: Any) -> Any:
        counted.append(len(text))
        return tokenize(text, **options)

    sampler.tokenize = counting  # type: ignore[method-assign]
    error = await refused(client.inference.generate_stream("x" * (10 << 20), session_id="s").result())
    assert (error.reason, error.field_violations[0][0]) == ("PROMPT_TOO_LONG", "prompt")
    assert not counted and await client.sessions.list() == ()
    # A long past is not read either: 40 of its messages are more than any context of this size holds.
    shelf = served.app.deployments.shelf("helper", LOCAL_CALLER)
    for number in range(40):
        async with served.app.turns.turn(shelf, "s", f"{number} " + "y" * 200) as turn:
            turn.extend("z" * 200)
            await turn.complete()
    reply = (await client.inference.generate("ab", session_id="s", max_tokens=1)).replies[0]
    assert reply.num_dropped_messages == 80 and max(counted) <= CONTEXT * 64 + 100


async def test_tenants_share_no_prefixes_and_no_conversations(tmp_path: Path) -> None:
    from tests.rpc.test_auth import SECRETS, token

    async with serving(tmp_path, tokens=[token(name) for name in SECRETS], deployments={"d": {"llm": True}}) as served:
        for name in ("alice", "bob"):
            async with AsyncClient(served.app.grpc_address, token=SECRETS[name]) as client:
                await client.inference.generate("ab", session_id="s")
                assert (await client.sessions.get("s")).session.num_messages == 2
                await client.inference.generate("cd", session_id="s")
                assert [d.deployment_id for d in await client.deployments.list()] == ["d"]
                with pytest.raises(GradwireError, match="ADMIN"):
                    await client.deployments.deploy_llm("mine")
        salts = [request.cache_salt for request in served.engines.samplers[0].requests]
        assert salts[0] == salts[1] != salts[2] == salts[3] and None not in salts
