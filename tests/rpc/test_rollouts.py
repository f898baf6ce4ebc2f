"""Rollouts on a fake engine: outcomes, limits, tenants, retries, and who gets what was collected."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
import numpy as np
import pytest
import pytest_asyncio
from google.protobuf.duration_pb2 import Duration
from grpc import StatusCode, aio

from gradwire.server.domain.rollouts.calls import Asked
from gradwire.server.engines.sampling import CompletionDelta, FinishReason, SampleEvent
from gradwire.server.errors import InvalidArgument, Unavailable
from gradwire.v1 import job_pb2, sampling_params_pb2, sampling_pb2
from gradwire.v1 import rollout_pb2 as pb
from tests.fake_engines.openai import LOG_PROB
from tests.rpc.support import Served, failure, ids_prompt, serving, until
from tests.rpc.test_auth import SECRETS, bearer, token

OK, CANCELLED = pb.ROLLOUT_OUTCOME_OK, pb.ROLLOUT_OUTCOME_CANCELLED
DONE, ABANDONED = pb.ROLLOUT_CALL_STATUS_DONE, pb.ROLLOUT_CALL_STATUS_ABANDONED


@dataclass
class Played:
    """A server, and an HTTP client of its OpenAI door."""

    served: Served
    http: aiohttp.ClientSession
    metadata: Any = None
    headers: dict[str, str] = field(default_factory=dict)

    @property
    def rpc(self) -> Any:
        return self.served.rollouts

    @property
    def engine(self) -> Any:
        return self.served.engines.samplers[0].openai

    async def open(self, *specs: pb.RolloutSpec, **options: Any) -> list[pb.Rollout]:
        request = pb.OpenRolloutsRequest(rollouts=specs or [pb.RolloutSpec()], **options)
        return list((await self.rpc.OpenRollouts(request, metadata=self.metadata)).rollouts)

    async def call(
        self, where: str, prompt: str = "abc", *, stream: bool = False, headers: Any = None
    ) -> tuple[int, Any]:
        body = {"prompt": prompt, "stream": stream}
        async with self.http.post(where, json=body, headers={**self.headers, **(headers or {})}) as response:
            return response.status, await (response.text() if stream else response.json())

    async def get(self, rollout: pb.Rollout, **options: Any) -> pb.GetRolloutResponse:
        request = pb.GetRolloutRequest(rollout_id=rollout.rollout_id, **options)
        return await self.rpc.GetRollout(request, metadata=self.metadata)

    async def finish(self, rollout: pb.Rollout, outcome: Any = OK, **options: Any) -> pb.Rollout:
        request = pb.FinishRolloutRequest(rollout_id=rollout.rollout_id, outcome=outcome, **options)
        return (await self.rpc.FinishRollout(request, metadata=self.metadata)).rollout

    async def collect(self, **options: Any) -> list[pb.CollectRolloutsResponse]:
        request = pb.CollectRolloutsRequest(**options)
        return [message async for message in self.rpc.CollectRollouts(request, metadata=self.metadata)]


@pytest_asyncio.fixture
async def played(tmp_path: Path) -> AsyncIterator[Played]:
    async with (
        serving(tmp_path, http="127.0.0.1:0", limits={"max_rollouts": 20}) as served,
        aiohttp.ClientSession(f"http://{served.app.http_address}") as http,
    ):
        yield Played(served, http)


def path(rollout: pb.Rollout) -> str:
    return f"{rollout.base_path}/completions"


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


def ids(text: str) -> bytes:
    return np.frombuffer(text.encode(), np.uint8).astype("<i4").tobytes()


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


def collected_once(played: Played, rollout: pb.Rollout) -> Callable[[], Any]:
    async def collected() -> bool:
        return (await played.get(rollout)).rollout.HasField("collected_at")

    return collected


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


async def test_a_named_request_is_served_anew_when_its_first_attempt_is_left(played: Played) -> None:
    played.engine.gate = asyncio.Semaphore(1)
    (rollout,) = await played.open()
    headers = {"idempotency-key": "once"}
    async with played.http.post(path(rollout), json={"prompt": "abc", "stream": True}, headers=headers) as response:
        await response.content.readline()
        follower = asyncio.ensure_future(played.call(path(rollout), stream=True, headers=headers))
        await asyncio.sleep(0.1)
    status, answer = await follower
    assert status == 503 or "first_attempt_left" in answer
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


@pytest.mark.parametrize("limit", [{"max_calls": 1}, {"max_sampled_tokens": 3}])
async def test_limits_refuse_further_calls(played: Played, limit: dict[str, Any]) -> None:
    (rollout,) = await played.open(pb.RolloutSpec(**limit))
    assert (await played.call(path(rollout)))[0] == 200
    status, answer = await played.call(path(rollout), "d")
    assert (status, answer["error"]["code"]) == (429, "rollout_limit")
    assert (await played.get(rollout)).rollout.limit_reached
    assert (await played.finish(rollout, pb.ROLLOUT_OUTCOME_TRUNCATED, reward=0.1)).reward == 0.1


async def test_a_full_store_says_what_to_do_and_lets_go_of_what_was_collected(played: Played) -> None:
    opened = await played.open(*[pb.RolloutSpec()] * 20)
    failed = await failure(played.rpc.OpenRollouts(pb.OpenRolloutsRequest(rollouts=[pb.RolloutSpec()])))
    assert (failed.code, failed.reason) == (StatusCode.RESOURCE_EXHAUSTED, "TOO_MANY_ROLLOUTS")
    assert "collect and discard" in failed.text
    for rollout in opened[:2]:
        await played.finish(rollout)
    await played.collect(max_rollouts=1)
    assert len(await played.open()) == 1  # in the place of the one that was collected
    gone = await played.rpc.DiscardRollouts(pb.DiscardRolloutsRequest(rollout_ids=[opened[1].rollout_id, "ro-none"]))
    assert gone.num_discarded == 1
    failed = await failure(played.rpc.GetRollout(pb.GetRolloutRequest(rollout_id=opened[0].rollout_id)))
    assert (failed.code, failed.resource) == (StatusCode.NOT_FOUND, ("rollout", opened[0].rollout_id))


async def test_what_is_kept_expires_and_bytes_are_bounded(tmp_path: Path) -> None:
    limits = {"rollout_retention_seconds": 0.05, "max_rollout_bytes": 2000}
    async with (
        serving(tmp_path, http="127.0.0.1:0", limits=limits) as served,
        aiohttp.ClientSession(f"http://{served.app.http_address}") as http,
    ):
        played = Played(served, http)
        full, ended = await played.open(pb.RolloutSpec(), pb.RolloutSpec())
        await played.call(path(full), "x" * 200)
        status, answer = await played.call(path(full))
        assert (status, answer["error"]["code"]) == (429, "rollout_store_full")
        failed = await failure(served.rollouts.OpenRollouts(pb.OpenRolloutsRequest(rollouts=[pb.RolloutSpec()])))
        assert failed.reason == "ROLLOUT_STORE_FULL"
        await played.finish(ended)

        async def gone() -> bool:
            request = pb.DiscardRolloutsRequest(rollout_ids=[ended.rollout_id])
            return not (await served.rollouts.DiscardRollouts(request)).num_discarded

        await asyncio.sleep(0.2)
        assert await gone()
        await served.rollouts.DiscardRollouts(pb.DiscardRolloutsRequest(rollout_ids=[full.rollout_id]))
        assert len(await played.open()) == 1


async def test_another_tenants_rollout_looks_like_none(tmp_path: Path) -> None:
    async with (
        serving(tmp_path, http="127.0.0.1:0", tokens=[token(name) for name in SECRETS]) as served,
        aiohttp.ClientSession(f"http://{served.app.http_address}") as http,
    ):
        alice, bob = (
            Played(served, http, bearer(SECRETS[name]), {"authorization": f"Bearer {SECRETS[name]}"})
            for name in ("alice", "bob")
        )
        (mine,) = await alice.open()
        assert (await alice.call(path(mine)))[0] == 200
        requests: list[Callable[[str], Any]] = [
            lambda name: bob.rpc.GetRollout(pb.GetRolloutRequest(rollout_id=name), metadata=bob.metadata),
            lambda name: bob.rpc.WatchRollouts(pb.WatchRolloutsRequest(rollout_ids=[name]), metadata=bob.metadata),
            lambda name: bob.rpc.CancelRollouts(pb.CancelRolloutsRequest(rollout_ids=[name]), metadata=bob.metadata),
            lambda name: bob.rpc.CollectRollouts(pb.CollectRolloutsRequest(rollout_ids=[name]), metadata=bob.metadata),
            lambda name: bob.rpc.FinishRollout(
                pb.FinishRolloutRequest(rollout_id=name, outcome=OK), metadata=bob.metadata
            ),
        ]
        missing = "ro-" + "0" * 24
        for request in requests:
            theirs, none = await failure(request(mine.rollout_id)), await failure(request(missing))
            assert theirs.code is StatusCode.NOT_FOUND
            assert theirs.text.replace(mine.rollout_id, missing) == none.text
        theirs_http = await bob.call(path(mine))
        none_http = await bob.call(path(pb.Rollout(base_path=f"/rollouts/{missing}/v1")))
        assert theirs_http[0] == none_http[0] == 404
        assert str(theirs_http[1]).replace(mine.rollout_id, missing) == str(none_http[1])
        assert (await bob.rpc.DiscardRollouts(
            pb.DiscardRolloutsRequest(rollout_ids=[mine.rollout_id]), metadata=bob.metadata
        )).num_discarded == 0  # fmt: skip
        await alice.finish(mine)
        assert await bob.collect() == []
        assert len(await alice.collect()) == 1


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


async def test_a_destroyed_job_cancels_its_rollouts(played: Played) -> None:
    (job,) = await played.served.create(job_pb2.CreateJobsRequest(sampling=job_pb2.SamplingJobConfig()))
    (rollout,) = await played.open(job_id=job.job_id)
    await played.served.jobs.DestroyJob(job_pb2.DestroyJobRequest(job_id=job.job_id))
    found = (await played.get(rollout)).rollout
    assert (found.outcome, "destroyed" in found.reason) == (CANCELLED, True)
    assert (await played.call(path(rollout)))[0] == 400
