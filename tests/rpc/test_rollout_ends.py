"""How rollouts end: outcomes, deadlines, failures, who leaves."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from google.protobuf.duration_pb2 import Duration
from grpc import StatusCode

from gradwire.server.errors import InvalidArgument, Unavailable
from gradwire.v1 import job_pb2
from gradwire.v1 import rollout_pb2 as pb
from tests.rpc.rollouts import ABANDONED, CANCELLED, OK, Played, path
from tests.rpc.support import failure, until


async def test_an_end_is_one_end(played: Played) -> None:
    (rollout,) = await played.open()
    first = await played.finish(rollout, reward=1.0)
    assert await played.finish(rollout, reward=1.0) == first
    failed = await failure(
        played.rpc.FinishRollout(pb.FinishRolloutRequest(rollout_id=rollout.rollout_id, outcome=CANCELLED))
    )
    assert (failed.code, failed.reason, failed.metadata) == (
        StatusCode.FAILED_PRECONDITION, "ROLLOUT_ENDED", {"outcome": "ok"},
    )  # fmt: skip
    status, answer = await played.call(path(rollout))
    assert (status, answer["error"]["code"]) == (400, "rollout_ended")
    cancelled = await played.rpc.CancelRollouts(pb.CancelRolloutsRequest(rollout_ids=[rollout.rollout_id]))
    assert cancelled.rollouts[0].outcome == OK


@pytest.mark.parametrize(
    ("options", "field"),
    [
        ({"outcome": 0}, "outcome"),
        ({"outcome": OK, "reward": float("nan")}, "reward"),
        ({"outcome": OK, "step_rewards": [pb.StepReward(step=1, reward=1)]}, "step_rewards[0].step"),
        ({"outcome": OK, "step_rewards": [pb.StepReward(reward=float("inf"))]}, "step_rewards[0].reward"),
        ({"outcome": OK, "step_rewards": [pb.StepReward(), pb.StepReward()]}, "step_rewards[1].step"),
    ],
)
async def test_a_bad_end_is_named(played: Played, options: Any, field: str) -> None:
    (rollout,) = await played.open()
    await played.call(path(rollout))
    failed = await failure(played.rpc.FinishRollout(pb.FinishRolloutRequest(rollout_id=rollout.rollout_id, **options)))
    assert (failed.code, failed.fields) == (StatusCode.INVALID_ARGUMENT, [field])
    assert (await played.get(rollout)).rollout.outcome == 0


@pytest.mark.parametrize("stream", [False, True])
async def test_a_deadline_ends_the_rollout_and_its_calls(played: Played, stream: bool) -> None:
    played.engine.gate = asyncio.Semaphore(1 if stream else 0)
    (rollout,) = await played.open(pb.RolloutSpec(timeout=Duration(seconds=1)))
    status, answer = await played.call(path(rollout), stream=stream)
    if stream:
        assert "its deadline passed" in answer
    else:
        assert (status, answer["error"]["code"]) == (504, "rollout_ended")
    assert played.engine.ended == 1
    timeout = pb.ROLLOUT_OUTCOME_TIMEOUT
    await played.finish(rollout, timeout, reward=-1.0)
    again = pb.FinishRolloutRequest(rollout_id=rollout.rollout_id, outcome=timeout, reward=-2)
    assert (await failure(played.rpc.FinishRollout(again))).reason == "ROLLOUT_ENDED"
    found = await played.get(rollout, with_tokens=True)
    assert (found.rollout.outcome, found.rollout.reward) == (timeout, -1)
    assert "deadline" in found.rollout.reason
    assert [call.status for call in found.calls] == [ABANDONED]
    (collected,) = await played.collect()
    assert (list(collected.rows), [d.num_tokens for d in collected.dropped]) == ([], [2] if stream else [])
    (kept,) = await played.collect(rollout_ids=[rollout.rollout_id], include_abandoned=True)
    assert len(kept.rows) == (1 if stream else 0)


@pytest.mark.parametrize("ending", ["cancel", "finish", "discard"])
async def test_who_ends_a_rollout_ends_its_calls(played: Played, ending: str) -> None:
    played.engine.gate = asyncio.Semaphore(0)
    (rollout,) = await played.open()
    name = rollout.rollout_id
    sent = asyncio.ensure_future(played.call(path(rollout)))
    await until(lambda: len(played.engine.calls) == 1)
    if ending == "cancel":
        request = pb.CancelRolloutsRequest(rollout_ids=[name], reason="enough")
        (ended,) = (await played.rpc.CancelRollouts(request)).rollouts
        assert (ended.outcome, ended.reason, ended.num_running_calls) == (CANCELLED, "enough", 0)
    elif ending == "finish":
        await played.finish(rollout)
    else:
        await played.rpc.DiscardRollouts(pb.DiscardRolloutsRequest(rollout_ids=[name]))
    status, answer = await asyncio.wait_for(sent, 20)
    assert (status, answer["error"]["code"], played.engine.ended) == (400, "rollout_ended", 1)


async def test_a_reader_who_leaves_is_marked(played: Played) -> None:
    played.engine.gate = asyncio.Semaphore(1)
    (rollout,) = await played.open()
    async with played.http.post(path(rollout), json={"prompt": "abc", "stream": True}) as response:
        await response.content.readline()
    await until(lambda: played.engine.ended == 1)
    (call,) = (await played.get(rollout)).calls
    assert (call.status, call.HasField("step")) == (ABANDONED, False)
    assert (await played.get(rollout)).rollout.outcome == 0
    await played.finish(rollout)
    async with played.http.get("/metrics") as page:
        lines = (await page.text()).splitlines()
    held = played.served.app.rollouts.num_bytes
    assert held == 1024 + 3 * 4 + 2 * 8  # a call; ids of its prompt; ids and log-probs of what was sampled
    for line in (
        'gradwire_ended_rollouts_total{outcome="ok"} 1.0',
        "gradwire_rollouts 1.0",
        f"gradwire_rollout_bytes {held}.0",
    ):
        assert line in lines


@pytest.mark.parametrize(
    ("error", "outcome"),
    [
        (RuntimeError("a bug"), pb.ROLLOUT_OUTCOME_INFRA_ERROR),
        (Unavailable("ENGINE_UNAVAILABLE", "later"), pb.ROLLOUT_OUTCOME_UNSPECIFIED),
        (InvalidArgument.at("prompt", "no"), pb.ROLLOUT_OUTCOME_UNSPECIFIED),
    ],
)
async def test_a_failure_of_the_server_is_no_failure_of_the_policy(
    played: Played, error: Exception, outcome: Any
) -> None:
    (rollout,) = await played.open()
    played.engine.error = error
    await played.call(path(rollout))
    found = await played.get(rollout)
    assert (found.rollout.outcome, found.calls[0].status) == (outcome, pb.ROLLOUT_CALL_STATUS_FAILED)
    if outcome == 0:
        env, infra = pb.ROLLOUT_OUTCOME_ENV_ERROR, pb.ROLLOUT_OUTCOME_INFRA_ERROR
        ended = await played.finish(rollout, env, reason="the agent died of it")
        assert ended.outcome == (infra if isinstance(error, Unavailable) else env)
        assert await played.finish(rollout, env, reason="the agent died of it") == ended


async def test_a_dead_engine_ends_its_rollouts(played: Played) -> None:
    (rollout,) = await played.open()
    played.engine.error = Unavailable("ENGINE_DEAD", "it died")
    played.served.engines.samplers[0].dead = "killed"
    await played.call(path(rollout))
    found = (await played.get(rollout)).rollout
    assert (found.outcome, "killed" in found.reason) == (pb.ROLLOUT_OUTCOME_INFRA_ERROR, True)


async def test_a_destroyed_job_cancels_its_rollouts(played: Played) -> None:
    (job,) = await played.served.create(job_pb2.CreateJobsRequest(sampling=job_pb2.SamplingJobConfig()))
    (rollout,) = await played.open(job_id=job.job_id)
    await played.served.jobs.DestroyJob(job_pb2.DestroyJobRequest(job_id=job.job_id))
    found = (await played.get(rollout)).rollout
    assert (found.outcome, "destroyed" in found.reason) == (CANCELLED, True)
    assert (await played.call(path(rollout)))[0] == 400
