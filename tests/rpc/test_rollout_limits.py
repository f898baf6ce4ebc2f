"""Limits, expiry and tenants of rollouts."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from grpc import StatusCode

from gradwire.v1 import rollout_pb2 as pb
from tests.rpc.rollouts import OK, Played, path
from tests.rpc.support import failure, serving, until
from tests.rpc.test_auth import SECRETS, bearer, token


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

        await until(lambda: len(served.app.rollouts) == 1)  # the one that is open
        gone = await failure(played.get(ended))
        assert gone.code is StatusCode.NOT_FOUND
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
