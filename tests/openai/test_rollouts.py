"""OpenAI's own client in a rollout of a real server: what is recorded is what the engine read and sampled."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import aiohttp
import numpy as np
import openai
import pytest

from gradwire.client import AsyncClient, Client, CollectedRollout, FailedPreconditionError, RolloutOutcome, RowStart
from tests.serving import ServerProcess

TOOL: Any = {
    "type": "function",
    "function": {"name": "look", "parameters": {"type": "object", "properties": {}, "additionalProperties": False}},
}
NO_BLANKS: Any = {"32": -100, "9": -100, "13": -100}


@pytest.fixture
def grpc(server: ServerProcess) -> Iterator[Client]:
    with Client(server.address) as made:
        yield made


def collected(client: Client, rollout_id: str, **options: Any) -> CollectedRollout:
    (found,) = client.rollouts.collect(rollout_id, **options)
    client.rollouts.discard(rollout_id)
    return found


def check(client: Client, found: CollectedRollout, prompts: dict[tuple[int, int], Any]) -> None:
    """Rows against what GetRollout says of the calls, and log-probs against the engine's own scoring of the rows."""
    assert sum(row.num_sampled_tokens for row in found.rows) == sum(len(c.token_ids) for c in prompts.values())
    version = client.weights.get_version().weight_version  # tests that ran before may have changed it
    seen = set()
    for row in found.rows:
        for turn in row.turns:
            key = turn.call_index, turn.completion_index
            seen.add(key)
            assert row.token_ids[turn.start : turn.end].tolist() == prompts[key].token_ids.tolist()
            assert [span.version for span in turn.weight_spans] == [version]
        if row.turns[0].constrained:
            continue  # its log-probs are of the tokens that the grammar left
        (score,) = client.sampling.log_probs([row.token_ids])
        assert score.prompt.log_probs is not None
        np.testing.assert_allclose(row.log_probs[row.loss_mask], score.prompt.log_probs[row.loss_mask], atol=1e-3)
    assert seen == set(prompts)


def test_a_dialogue_with_tools_streams_and_several_answers(grpc: Client, server: ServerProcess) -> None:
    with (
        grpc.rollouts.open("t", labels={"a": "b"}, timeout_s=300) as rollout,
        openai.OpenAI(base_url=rollout.base_url, api_key="-", max_retries=0) as client,
    ):
        assert client.models.list().data[0].id == "tiny"
        messages: list[Any] = [{"role": "user", "content": "hello"}]
        for turn in range(3):
            several = client.chat.completions.create(
                model="m", messages=messages, max_tokens=8, n=2 if turn == 1 else 1, temperature=1, seed=turn
            )
            assert several.choices[0].logprobs is None  # nobody asked
            assert (several.choices[0].model_extra or {})["token_ids"] is None
            answer = several.choices[-1].message.content or ""
            messages += [{"role": "assistant", "content": answer}, {"role": "user", "content": f"more {turn}"}]
        for _ in client.chat.completions.create(
            model="m", messages=messages, max_tokens=12, stream=True, temperature=1, seed=5
        ):
            pass
        called = client.chat.completions.create(
            model="m", messages=[{"role": "user", "content": "x"}], tools=[TOOL], max_tokens=80, temperature=0,
            logit_bias=NO_BLANKS, tool_choice={"type": "function", "function": {"name": "look"}}, stream=True,
        )  # fmt: skip
        # The parser of tool calls turns tokens into something else; what is recorded is before it.
        assert [chunk for chunk in called if chunk.choices[0].delta.tool_calls]
        whole = client.completions.create(model="m", prompt=["ab", "cd"], max_tokens=3)
        assert len(whole.choices) == 2
        details = rollout.get(with_tokens=True)
        rollout.finish(reward=1.5, step_rewards=[0, 1])
    assert [call.step for call in details.calls] == list(range(6))
    assert [call.constrained for call in details.calls] == [False] * 4 + [True, False]
    drawn = [call.sampling_params for call in details.calls]
    assert all(params is not None for params in drawn)
    assert [(p.n, p.temperature, p.max_tokens, p.seed) for p in drawn if p is not None] == [
        (1, 1, 8, 0), (2, 1, 8, 1), (1, 1, 8, 2), (1, 1, 12, 5), (1, 0, 80, None), (1, 1, 3, None),
    ]  # fmt: skip
    assert drawn[4] is not None and drawn[4].logit_bias == {32: -100, 9: -100, 13: -100}
    assert [call.streamed for call in details.calls] == [False, False, False, True, True, False]
    *dialogue, listed = details.calls
    assert [prompt.token_ids.tolist() for prompt in listed.prompts] == [list(b"ab"), list(b"cd")]
    found = collected(grpc, rollout.rollout_id)
    assert (found.rollout.outcome, found.rollout.reward, found.rollout.step_rewards) == ("ok", 1.5, {0: 0, 1: 1})
    completions = {(call.call_index, one.index): one for call in dialogue for one in call.prompts[0].completions}
    listed_rows = [row for row in found.rows if row.turns[0].call_index == listed.call_index]
    assert [row.token_ids[:2].tolist() for row in listed_rows] == [list(b"ab"), list(b"cd")]
    rest = tuple(row for row in found.rows if row.turns[0].call_index != listed.call_index)
    check(grpc, CollectedRollout(found.rollout, rest, found.dropped), completions)
    # Bytes that are no UTF-8 come back as other bytes: such an answer ends its row.
    assert {row.start for row in rest} - {RowStart.FIRST}
    assert sum(len(row.turns) for row in rest) == len(completions)


def test_an_agent_that_sends_tokens_back_has_one_row(grpc: Client) -> None:
    with (
        grpc.rollouts.open() as rollout,
        openai.OpenAI(base_url=rollout.base_url, api_key="-", max_retries=0) as client,
    ):
        tokens = list(b"hello")
        for _ in range(3):
            answer: Any = client.completions.create(
                model="m", prompt=tokens, max_tokens=6, temperature=1, extra_body={"return_token_ids": True}
            )
            tokens += [*answer.choices[0].token_ids, *b" next "]
        # Sent again under its name, as a client does whose answer was lost: the same answer, and no other call.
        once: Any = {
            "model": "m",
            "prompt": "x",
            "max_tokens": 4,
            "temperature": 1,
            "extra_headers": {"X-Request-Id": "r1"},
        }
        first = client.completions.create(**once)
        assert client.completions.create(**once) == first
        texts = [
            "".join(chunk.choices[0].text for chunk in client.completions.create(**once, stream=True)) for _ in range(2)
        ]
        assert texts[0] == texts[1]
        assert rollout.get().rollout.num_calls == 5
    found = collected(grpc, rollout.rollout_id)
    row = found.rows[0]
    assert row.token_ids.tolist() == tokens[: -len(b" next ")]
    assert [turn.step for turn in row.turns] == [0, 1, 2]


def test_the_trainer_finds_the_log_probs_that_were_recorded(grpc: Client) -> None:
    trainer = grpc.jobs.create(training={"model": "tiny", "dtype": "float32"}).training
    try:
        with (
            grpc.rollouts.open() as rollout,
            openai.OpenAI(base_url=rollout.base_url, api_key="-", max_retries=0) as client,
        ):
            messages: list[Any] = [{"role": "user", "content": "hello"}]
            for _ in range(2):
                answer = client.chat.completions.create(model="m", messages=messages, max_tokens=16, temperature=1)
                messages += [{"role": "assistant", "content": answer.choices[0].message.content}, messages[0]]
        found = collected(grpc, rollout.rollout_id)
        result = grpc.training.fwd_no_grad(trainer, {"input_ids": [row.token_ids for row in found.rows]})
        for row, log_probs in zip(found.rows, result.log_probs_shifted, strict=True):
            # Of the trainer, entry i is of token i + 1.
            np.testing.assert_allclose(
                log_probs[:-1][row.loss_mask[1:]], row.log_probs[1:][row.loss_mask[1:]], atol=1e-3
            )
    finally:
        grpc.jobs.destroy(trainer)


async def test_parallel_calls_and_a_reader_who_leaves(server: ServerProcess) -> None:
    async with AsyncClient(server.address) as client, aiohttp.ClientSession() as http:
        async with (
            client.rollouts.open(max_calls=5) as rollout,
            openai.AsyncOpenAI(base_url=rollout.base_url, api_key="-", max_retries=0) as agent,
        ):
            ask = [agent.completions.create(model="m", prompt="same", max_tokens=5, temperature=1) for _ in range(4)]
            await asyncio.gather(*ask)
            long = {"prompt": "x", "max_tokens": 1900, "ignore_eos": True, "stream": True}
            async with http.post(f"{rollout.base_url}/completions", json=long) as response:
                await response.content.readline()
            with pytest.raises(openai.RateLimitError, match="its 5 calls"):
                await agent.completions.create(model="m", prompt="one too many")
            async for update in client.rollouts.watch(rollout.rollout_id, timeout=60):
                if not update.rollout.num_running_calls:
                    break
        (found,) = await client.rollouts.collect(rollout.rollout_id)
        assert found.rollout.limit_reached
        assert [row.start for row in found.rows] == ["first", "branch", "branch", "branch"]
        assert [(dropped.call_index, dropped.status) for dropped in found.dropped] == [(4, "abandoned")]
        assert 0 < found.dropped[0].num_tokens < 1900
        await client.rollouts.discard(rollout.rollout_id)


async def test_a_rollout_ends_by_what_leaves_it(server: ServerProcess) -> None:
    async with AsyncClient(server.address) as client:
        ends: list[tuple[BaseException, RolloutOutcome]] = [
            (ValueError("bad tool"), RolloutOutcome.ENV_ERROR),
            (TimeoutError(), RolloutOutcome.TIMEOUT),
            (asyncio.CancelledError(), RolloutOutcome.CANCELLED),
        ]
        for error, outcome in ends:
            rollout = client.rollouts.open()
            with pytest.raises(type(error)):
                async with rollout:
                    raise error
            ended = (await rollout.get()).rollout
            assert ended.outcome is outcome
            assert ended.reason.startswith(type(error).__name__)
        rollout = client.rollouts.open(timeout_s=1)
        async with rollout, openai.AsyncOpenAI(base_url=rollout.base_url, api_key="-", max_retries=0) as agent:
            assert 0 < rollout.time_left_s <= 1
            with pytest.raises(openai.APIStatusError, match="its deadline passed"):
                await agent.completions.create(
                    model="m", prompt="x", n=64, max_tokens=2000, extra_body={"ignore_eos": True}
                )
            with pytest.raises(FailedPreconditionError, match="timeout"):
                await rollout.finish(reward=1.0)
        assert (await rollout.get()).rollout.outcome is RolloutOutcome.TIMEOUT
        await client.rollouts.discard([rollout.rollout_id])
