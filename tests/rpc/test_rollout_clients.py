"""How the clients' open rollouts end: by a limit that an agent ran into, and by `cancel`."""

from __future__ import annotations

import asyncio
import contextlib
import urllib.request

import pytest

from gradwire.client import AsyncClient, AsyncOpenRollout, Client, FailedPreconditionError, RolloutOutcome
from gradwire.v1 import rollout_pb2 as pb
from tests.rpc.rollouts import Played, path


def ask(base_url: str) -> None:
    """Raises HTTPError, as openai's client raises RateLimitError: neither has anything of ours."""
    headers = {"content-type": "application/json"}
    request = urllib.request.Request(base_url + "/completions", b'{"prompt": "abc"}', headers)
    with urllib.request.urlopen(request) as response:
        response.read()


async def play(opened: AsyncOpenRollout, calls: int) -> None:
    async with opened as rollout:
        for _ in range(calls):
            await asyncio.to_thread(ask, rollout.base_url)
        raise ZeroDivisionError("of the environment")


async def test_an_agent_that_a_limit_stopped_is_truncated(played: Played) -> None:
    async with AsyncClient(played.served.app.grpc_address) as client:
        opened = client.rollouts.open("t", max_calls=1)
        with pytest.raises(OSError, match="429"):
            await play(opened, 2)
        ended = (await opened.get()).rollout
        assert (ended.outcome, ended.reward) == (RolloutOutcome.TRUNCATED, None)
        assert ended.reason.startswith("a limit refused a call: HTTPError")
        # It is as good as any other once it has its reward, which it takes once.
        given = await client.rollouts.finish(opened.rollout_id, "truncated", reward=0.5)
        assert given.reward == 0.5 and given.reason == ended.reason
        with pytest.raises(FailedPreconditionError, match="has ended already"):
            await client.rollouts.finish(opened.rollout_id, "truncated", reward=1.0)

        within = client.rollouts.open("t", max_calls=1)
        with pytest.raises(ZeroDivisionError):
            await play(within, 1)
        assert (await within.get()).rollout.outcome is RolloutOutcome.ENV_ERROR


async def test_a_limit_stops_a_plain_agent_just_so(played: Played) -> None:
    def play() -> RolloutOutcome:
        with Client(played.served.app.grpc_address) as client:
            opened = client.rollouts.open("t", max_sampled_tokens=1)
            with contextlib.suppress(OSError), opened as rollout:
                for _ in range(2):
                    ask(rollout.base_url)
                raise AssertionError("the limit refused no call")
            return opened.get().rollout.outcome

    assert await asyncio.to_thread(play) is RolloutOutcome.TRUNCATED


async def test_what_the_agent_says_itself_stands(played: Played) -> None:
    (rollout,) = await played.open(pb.RolloutSpec(max_calls=1))
    for _ in range(2):
        await played.call(path(rollout))
    assert (await played.finish(rollout, pb.ROLLOUT_OUTCOME_OK, reward=1.0)).outcome == pb.ROLLOUT_OUTCOME_OK


async def test_an_open_rollout_is_cancelled(played: Played) -> None:
    address = played.served.app.grpc_address
    async with AsyncClient(address) as client, client.rollouts.open() as rollout:
        ended = await rollout.cancel("enough")
        assert (ended.outcome, ended.reason) == (RolloutOutcome.CANCELLED, "enough")
        assert await rollout.cancel() == ended

    def plain() -> tuple[RolloutOutcome, RolloutOutcome]:
        with Client(address) as client, client.rollouts.open() as rollout:
            rollout.finish(reward=1.0)
            after = rollout.cancel("too late").outcome
            with client.rollouts.open() as other:
                return other.cancel("enough").outcome, after

    assert await asyncio.to_thread(plain) == (RolloutOutcome.CANCELLED, RolloutOutcome.OK)
