"""Rollouts on a fake engine: what is recorded, watched and collected."""

from __future__ import annotations

import asyncio
from typing import Any

import numpy as np
import pytest
from google.protobuf.duration_pb2 import Duration
from grpc import StatusCode, aio

from gradwire.server.domain.rollouts.calls import Asked
from gradwire.server.engines.sampling import CompletionDelta, SampleEvent
from gradwire.v1 import rollout_pb2 as pb
from gradwire.v1 import sampling_params_pb2, sampling_pb2
from tests.fake_engines.openai import LOG_PROB
from tests.rpc.rollouts import DONE, OK, Played, collected_once, ids, path
from tests.rpc.support import failure, ids_prompt, until


async def test_calls_are_recorded_by_path_header_and_query(played: Played) -> None:
    (rollout,) = await played.open()
    name = rollout.rollout_id
    assert rollout.base_path == f"/rollouts/{name}/v1"
    assert (await played.call(path(rollout), "ab"))[0] == 200
    assert (await played.call("/v1/completions", "abba", headers={"x-gradwire-rollout": name}))[0] == 200
    assert (await played.call(f"/v1/completions?rollout={name}", "x", stream=True))[0] == 200
    assert (await played.call("/v1/completions", "not recorded"))[0] == 200
    found = await played.get(rollout, with_tokens=True)
    assert [(c.status, c.step, c.streamed) for c in found.calls] == [
        (DONE, 0, False),
        (DONE, 1, False),
        (DONE, 2, True),
    ]
    (prompt,) = found.calls[1].prompts
    assert (prompt.token_ids, prompt.completions[0].token_ids) == (ids("abba"), ids("abba"))
    assert np.frombuffer(prompt.completions[0].log_probs, "<f4").tolist() == [LOG_PROB] * 4
    assert found.rollout.num_sampled_tokens == 7
    status, answer = await played.call(path(rollout), headers={"x-gradwire-rollout": "ro-other"})
    assert (status, "several rollouts" in answer["error"]["message"]) == (400, True)
    status, answer = await played.call("/jobs/7/v1/completions", headers={"x-gradwire-rollout": name})
    assert (status, "job 7" in answer["error"]["message"]) == (400, True)


async def test_rows_of_an_ended_rollout(played: Played) -> None:
    (rollout,) = await played.open(pb.RolloutSpec(task_id="t", labels={"split": "train"}))
    await played.call(path(rollout), "ab")
    await played.call(path(rollout), "abba!")  # goes on from "ab" and its answer "ba"
    assert await played.collect() == []
    await played.finish(rollout, reward=0.5, step_rewards=[pb.StepReward(step=1, reward=2)])
    (found,) = await played.collect()
    (row,) = found.rows
    assert row.token_ids == ids("abba!!abba")
    assert row.loss_mask == bytes([0, 0, 1, 1, 0, 1, 1, 1, 1, 1])
    assert np.frombuffer(row.log_probs, "<f4").tolist() == [0, 0, *[LOG_PROB] * 2, 0, *[LOG_PROB] * 5]
    assert [(turn.step, turn.start, turn.end) for turn in row.turns] == [(0, 2, 4), (1, 5, 10)]
    assert row.turns[1].weight_spans[0].end == 5
    assert (found.rollout.reward, found.rollout.step_rewards[0].reward) == (0.5, 2)
    assert found.rollout.spec.labels == {"split": "train"}
    assert found.rollout.HasField("collected_at")
    assert await played.collect() == []  # once
    (again,) = await played.collect(rollout_ids=[rollout.rollout_id])  # or by name
    assert again.rows == found.rows
    async with played.http.get("/metrics") as page:
        assert 'gradwire_rollout_rows_total{start="first"} 2.0' in (await page.text()).splitlines()


async def test_a_collection_whose_answer_was_lost_can_be_asked_for_again(played: Played) -> None:
    for rollout in await played.open(pb.RolloutSpec(), pb.RolloutSpec(), request_id="o"):
        await played.finish(rollout)
    assert len(await played.open(pb.RolloutSpec(), pb.RolloutSpec(), request_id="o")) == 2
    first = await played.collect(request_id="c", max_rollouts=1)
    assert await played.collect(request_id="c", max_rollouts=1) == first
    second = await played.collect(request_id="d", max_rollouts=1)
    assert first[0].rollout.rollout_id != second[0].rollout.rollout_id
    failed = await failure(played.rpc.CollectRollouts(pb.CollectRolloutsRequest(request_id="c")))
    assert (failed.code, failed.reason) == (StatusCode.ALREADY_EXISTS, "REQUEST_ID_REUSED")


async def test_what_does_not_reach_its_collector_is_there_for_the_next(played: Played) -> None:
    opened = await played.open(*[pb.RolloutSpec()] * 4)
    for rollout in opened:  # together more than the connection takes unread
        shelf = played.served.app.rollouts.shelf("local")
        with shelf.get(rollout.rollout_id).recording(Asked("r", "completions")) as call:
            sampled = CompletionDelta(0, 0, np.array([1], np.int32), "", np.zeros(1, np.float32))
            call.observe(0, np.zeros(400_000, np.int32), SampleEvent((sampled,)))
        await played.finish(rollout)
    stream = played.rpc.CollectRollouts(pb.CollectRolloutsRequest(request_id="r"))
    await until(collected_once(played, rollout))
    stream.cancel()

    async def is_back() -> bool:
        return not (await played.get(rollout)).rollout.HasField("collected_at")

    await until(is_back)
    assert len(await played.collect(request_id="r")) == 4


async def test_groups_are_collected_whole_and_waited_for(played: Played) -> None:
    specs: list[dict[str, Any]] = [
        {"group_id": "g", "sample_index": 1},
        {"group_id": "g"},
        {"group_id": "h", "group_size": 2},
    ]
    a, b, other = await played.open(*(pb.RolloutSpec(**spec) for spec in specs))
    await played.finish(a)
    await played.finish(other)  # its group is to have another one
    assert await played.collect(whole_groups=True) == []
    waiting = asyncio.ensure_future(played.collect(whole_groups=True, wait=Duration(seconds=20)))
    await asyncio.sleep(0)
    await played.finish(b)
    found = await waiting
    assert [message.rollout.rollout_id for message in found] == [b.rollout_id, a.rollout_id]
    named = asyncio.ensure_future(played.collect(rollout_ids=[a.rollout_id, other.rollout_id]))
    assert len(await named) == 2


@pytest.mark.parametrize("log_probs", [None, 0])
async def test_calls_of_the_sampling_service_are_recorded_too(played: Played, log_probs: int | None) -> None:
    (rollout,) = await played.open()
    params = sampling_params_pb2.SamplingParams(n=2, max_tokens=3, log_probs=log_probs)
    name = rollout.rollout_id
    prompts = [ids_prompt(1, 2, 3), ids_prompt(4, 5, 6)]
    answer = await played.served.sampling.Generate(
        sampling_pb2.GenerateRequest(prompts=prompts, params=params, rollout_id=name)
    )
    request = sampling_pb2.GenerateStreamRequest(prompt=prompts[0], params=params, rollout_id=name)
    parts = [part async for part in played.served.sampling.GenerateStream(request)]
    shown = [c.HasField("log_probs") for part in parts for c in part.delta.completions]
    shown += [c.HasField("log_probs") for result in answer.results for c in result.completions]
    assert set(shown) == {log_probs is not None}
    found = await played.get(rollout, with_tokens=True)
    assert [(c.endpoint, c.streamed, c.step) for c in found.calls] == [("generate", False, 0), ("generate", True, 1)]
    drawn = found.calls[0].sampling_params
    assert (drawn.n, drawn.max_tokens, drawn.temperature, drawn.top_p, drawn.HasField("seed")) == (2, 3, 1, 1, False)
    for prompt, result in zip(found.calls[0].prompts, answer.results, strict=True):
        assert prompt.token_ids == result.prompt.token_ids
        assert [c.token_ids for c in prompt.completions] == [c.token_ids for c in result.completions]
        assert all(len(c.log_probs) == len(c.token_ids) for c in prompt.completions)
    wrong = sampling_pb2.GenerateRequest(prompts=prompts, job_id=77, rollout_id=name)
    assert (await failure(played.served.sampling.Generate(wrong))).fields == ["job_id"]
    await played.finish(rollout)
    late = sampling_pb2.GenerateRequest(prompts=prompts, rollout_id=name)
    assert (await failure(played.served.sampling.Generate(late))).reason == "ROLLOUT_ENDED"


async def test_followers_see_each_change_and_the_end(played: Played) -> None:
    one, two = await played.open(pb.RolloutSpec(), pb.RolloutSpec())
    request = pb.WatchRolloutsRequest(rollout_ids=[one.rollout_id, two.rollout_id])
    stream = played.rpc.WatchRollouts(request)
    first = [await stream.read(), await stream.read()]
    assert {message.rollout.rollout_id for message in first} == {one.rollout_id, two.rollout_id}
    await played.call(path(one))
    assert (await stream.read()).rollout.num_calls == 1
    await played.finish(one)
    await played.rpc.DiscardRollouts(pb.DiscardRolloutsRequest(rollout_ids=[two.rollout_id]))
    rest = []
    while (message := await stream.read()) is not aio.EOF:
        rest.append(message)
    assert any(message.rollout.outcome == OK for message in rest)
    assert any(message.gone for message in rest)
