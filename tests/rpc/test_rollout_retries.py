"""Calls that are made again: served once, or marked."""

from __future__ import annotations

import asyncio

import numpy as np
import pytest

from gradwire.server.domain.rollouts.calls import Asked
from gradwire.server.engines.sampling import CompletionDelta, FinishReason, SampleEvent
from gradwire.v1 import rollout_pb2 as pb
from tests.rpc.rollouts import ABANDONED, DONE, OK, Played, path
from tests.rpc.support import until


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("header", ["x-request-id", "idempotency-key"])
async def test_a_request_sent_twice_is_served_once(played: Played, header: str, stream: bool) -> None:
    played.engine.gate = asyncio.Semaphore(0)
    (rollout,) = await played.open()
    headers = {header: "once"}
    sent = [asyncio.ensure_future(played.call(path(rollout), stream=stream, headers=headers)) for _ in range(2)]
    await until(lambda: len(played.engine.calls) == 1)
    for _ in range(3):
        played.engine.gate.release()
    first, second = await asyncio.wait_for(asyncio.gather(*sent), 20)
    assert first == second == await played.call(path(rollout), stream=stream, headers=headers)
    found = await played.get(rollout)
    assert (len(found.calls), len(played.engine.calls)) == (1, 1)
    played.engine.gate = None
    status, answer = await played.call(path(rollout), "other", headers=headers)
    if header == "idempotency-key":
        assert (status, answer["error"]["code"]) == (409, "idempotency_key_reused")
    else:
        assert (status, len((await played.get(rollout)).calls)) == (200, 2)


async def test_a_named_stream_goes_on_while_it_has_a_reader(played: Played) -> None:
    played.engine.gate = asyncio.Semaphore(1)
    (rollout,) = await played.open()
    shelf = played.served.app.rollouts.shelf("local")
    headers = {"idempotency-key": "once"}
    async with played.http.post(path(rollout), json={"prompt": "abc", "stream": True}, headers=headers) as response:
        await response.content.readline()
        kept = shelf.get(rollout.rollout_id).answers._named["key:once"]
        follower = asyncio.ensure_future(played.call(path(rollout), stream=True, headers=headers))
        await until(lambda: kept.num_readers == 2)
    for _ in range(2):
        played.engine.gate.release()
    status, answer = await asyncio.wait_for(follower, 20)
    assert (status, "[DONE]" in answer, len(played.engine.calls)) == (200, True, 1)
    assert [call.status for call in (await played.get(rollout)).calls] == [DONE]


async def test_a_named_stream_is_served_anew_when_nobody_reads_it(played: Played) -> None:
    played.engine.gate = asyncio.Semaphore(1)
    (rollout,) = await played.open()
    headers = {"x-request-id": "once"}
    async with played.http.post(path(rollout), json={"prompt": "abc", "stream": True}, headers=headers) as response:
        await response.content.readline()
    await until(lambda: played.engine.ended == 1, timeout_s=5)
    played.engine.gate = None
    status, answer = await played.call(path(rollout), stream=True, headers=headers)
    assert (status, "[DONE]" in answer) == (200, True)
    assert [call.status for call in (await played.get(rollout)).calls] == [ABANDONED, DONE]


async def test_a_reader_who_stops_at_the_last_token_has_its_answer(played: Played) -> None:
    (rollout,) = await played.open()
    shelf = played.served.app.rollouts.shelf("local")
    kept = shelf.get(rollout.rollout_id)
    with kept.recording(Asked("r", "completions")) as call:
        last = CompletionDelta(
            0, 0, np.array([1], np.int32), "", np.zeros(1, np.float32), finish_reason=FinishReason.STOP
        )
        kept.observer(call)(0, np.zeros(3, np.int32), SampleEvent((last,)))
        ended = await played.finish(rollout, step_rewards=[pb.StepReward(reward=1)])
    assert (ended.outcome, ended.step_rewards[0].reward) == (OK, 1)
    assert [call.status for call in (await played.get(rollout)).calls] == [DONE]


async def test_a_retry_without_a_name_is_marked(played: Played) -> None:
    (rollout,) = await played.open()
    await played.call(path(rollout))
    await played.call(path(rollout), headers={"x-stainless-retry-count": "1"})
    calls = (await played.get(rollout)).calls
    assert [call.status for call in calls] == [pb.ROLLOUT_CALL_STATUS_RETRIED, DONE]
    assert [call.num_retries for call in calls] == [0, 1]
    assert not calls[0].HasField("step")
