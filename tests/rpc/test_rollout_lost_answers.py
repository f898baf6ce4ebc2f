"""A client that counts its retries, as OpenAI's do, and loses its connection: what it lost is what it gets."""

from __future__ import annotations

import asyncio
import itertools
import random

import pytest

from gradwire.server.domain.rollouts import answers
from gradwire.server.domain.rollouts.calls import CallStatus
from gradwire.v1 import rollout_pb2 as pb
from tests.rpc.rollouts import ABANDONED, DONE, RETRIED, Played, counted, path, read_id, send, statuses
from tests.rpc.support import until


async def lost(played: Played, rollout: pb.Rollout, headers: dict[str, str], *, answered: bool) -> None:
    """A request whose connection breaks before its answer goes out, or with all of it on its way."""
    count = len(played.engine.calls)
    connection = await send(played, path(rollout), headers)
    await until(lambda: len(played.engine.calls) == count + 1)
    if answered:
        shelf = played.served.app.rollouts.shelf("local").get(rollout.rollout_id)
        await until(lambda: shelf.calls[-1].ended_at is not None)
    connection.close()


@pytest.mark.parametrize("headers", [{}, {"x-request-id": "of-this-attempt"}, {"idempotency-key": "of-all"}])
@pytest.mark.parametrize("answered", [False, True])
async def test_a_lost_answer_is_given_again(played: Played, answered: bool, headers: dict[str, str]) -> None:
    played.engine.gate = asyncio.Semaphore(1 if answered else 0)
    (rollout,) = await played.open()
    await lost(played, rollout, counted(0) | headers, answered=answered)
    names = {"x-request-id": "of-the-next"} if "x-request-id" in headers else headers
    again = asyncio.ensure_future(played.call(path(rollout), headers=counted(1) | names))
    await asyncio.sleep(0.05)
    assert played.engine.ended == int(answered)  # still sampling, for a client that is gone
    played.engine.gate.release()
    status, answer = await asyncio.wait_for(again, 20)
    assert (status, answer["id"]) == (200, played.engine.calls[0].request_id)
    assert await statuses(played, rollout) == [DONE]
    # What was given again is given no more, but by its name.
    played.engine.gate = None
    await played.call(path(rollout), headers=counted(2) | names)
    assert len(played.engine.calls) == (1 if names else 2)


async def test_equal_requests_are_kept_apart(played: Played) -> None:
    (rollout,) = await played.open()
    for _ in range(3):
        await lost(played, rollout, counted(0), answered=True)
    _, read = await played.call(path(rollout), headers=counted(0))
    gone = [call.request_id for call in played.engine.calls[:3]]
    found = await asyncio.gather(*(played.call(path(rollout), headers=counted(1)) for _ in range(4)))
    ids = [answer["id"] for _, answer in found]
    # Three of the four take what was lost, the fourth never came before; nobody takes what was read.
    assert len({*ids, read["id"]}) == 5
    assert set(gone) < set(ids)
    assert len(played.engine.calls) == len(await statuses(played, rollout)) == 5


@pytest.mark.parametrize("again", [False, True])
async def test_who_begins_anew_and_counts_from_there_gets_the_newer_answer(played: Played, again: bool) -> None:
    """An agent's own loop, above a client that counts."""
    (rollout,) = await played.open()
    for _ in range(2):
        await lost(played, rollout, counted(0), answered=True)
    first, second = (call.request_id for call in played.engine.calls)
    _, answer = await played.call(path(rollout), headers=counted(1))
    assert answer["id"] == second
    assert await statuses(played, rollout) == [RETRIED, DONE]
    if again:  # there were two clients
        _, answer = await played.call(path(rollout), headers=counted(1))
        assert answer["id"] == first
        assert await statuses(played, rollout) == [DONE, DONE]


async def test_what_is_given_late_counts_though_the_prompt_was_asked_again_meanwhile(played: Played) -> None:
    (rollout,) = await played.open()
    await lost(played, rollout, counted(0), answered=True)
    await played.call(path(rollout), headers=counted(0))
    assert await statuses(played, rollout) == [RETRIED, DONE]
    _, answer = await played.call(path(rollout), headers=counted(1))
    assert answer["id"] == played.engine.calls[0].request_id
    assert await statuses(played, rollout) == [DONE, DONE]


async def test_other_requests_do_not_get_what_was_lost(played: Played) -> None:
    (rollout,) = await played.open()
    (other,) = await played.open()
    await lost(played, rollout, counted(1), answered=True)
    for where, prompt, headers in (
        (rollout, "abcd", counted(2)),
        (other, "abc", counted(2)),
        (rollout, "abc", counted(0)),
        (rollout, "abc", counted(1)),
        (rollout, "abc", {}),
        (rollout, "abc", counted(2) | {"idempotency-key": "new"}),
    ):
        count = len(played.engine.calls)
        assert (await played.call(path(where), prompt, headers=headers))[0] == 200
        assert len(played.engine.calls) == count + 1
    await played.call(path(rollout), stream=True, headers=counted(2))
    assert len(played.engine.calls) == 8


@pytest.mark.parametrize("count", ["-1", "one", "1.5", "12345", ""])
async def test_what_is_no_count_says_nothing(played: Played, count: str) -> None:
    played.engine.gate = asyncio.Semaphore(0)
    (rollout,) = await played.open()
    await lost(played, rollout, counted(count), answered=False)
    await until(lambda: played.engine.ended == 1, timeout_s=5)  # its slot is free at once
    played.engine.gate = None
    assert (await played.call(path(rollout), headers=counted(count)))[0] == 200
    assert await statuses(played, rollout) == [ABANDONED, DONE]


async def test_a_client_that_does_not_come_back(played: Played, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(answers, "RETRY_WITHIN_S", 0.1)
    played.engine.gate = asyncio.Semaphore(1)
    (rollout,) = await played.open()
    shelf = played.served.app.rollouts.shelf("local").get(rollout.rollout_id)
    await lost(played, rollout, counted(0), answered=True)
    await lost(played, rollout, counted(0), answered=False)
    await until(lambda: shelf.calls[-1].ended_at is not None)
    assert (played.engine.ended, await statuses(played, rollout)) == (2, [DONE, ABANDONED])
    assert played.served.app.rollouts.num_bytes == 2 * 1024 + 6 * 4 - 12 + 3 * 8  # calls and tokens, and no answers
    played.engine.gate = None
    await played.call(path(rollout), headers=counted(1))
    assert len(played.engine.calls) == 3


async def test_an_answer_that_waits_ends_with_its_rollout(played: Played) -> None:
    played.engine.gate = asyncio.Semaphore(0)
    (rollout,) = await played.open()
    await lost(played, rollout, counted(0), answered=False)
    await lost(played, rollout, counted(0), answered=False)
    played.engine.gate.release()  # one is made to its end; nobody has it
    await until(lambda: played.engine.ended == 1)
    await played.finish(rollout)
    await until(lambda: played.engine.ended == 2, timeout_s=5)
    assert await statuses(played, rollout) == [ABANDONED, ABANDONED]


async def test_no_answer_waits_for_a_client_when_the_server_goes(played: Played) -> None:
    played.engine.gate = asyncio.Semaphore(0)
    (rollout,) = await played.open()
    await lost(played, rollout, counted(0), answered=False)
    played.served.app.rollouts.dismiss()
    await until(lambda: played.engine.ended == 1, timeout_s=5)
    await lost(played, rollout, counted(0), answered=False)
    await until(lambda: played.engine.ended == 2, timeout_s=5)


async def test_an_answer_is_lost_twice(played: Played) -> None:
    played.engine.gate = asyncio.Semaphore(0)
    (rollout,) = await played.open()
    await lost(played, rollout, counted(0), answered=False)
    (call,) = played.served.app.rollouts.shelf("local").get(rollout.rollout_id).calls
    await until(lambda: call.unread)
    second = await send(played, path(rollout), counted(1))
    await until(lambda: not call.unread)
    played.engine.gate.release()
    await until(lambda: call.ended_at is not None)
    second.close()
    status, answer = await played.call(path(rollout), headers=counted(2))
    assert (status, answer["id"]) == (200, played.engine.calls[0].request_id)
    assert await statuses(played, rollout) == [DONE]


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("seed", [0, 1])
async def test_many_equal_requests_on_bad_connections(played: Played, seed: int, stream: bool) -> None:
    """Connections break before, while and after an answer is made; each request ends with one answer of its own."""
    chance, many = random.Random(seed), 40
    gate = asyncio.Semaphore(0)
    if stream:
        played.engine.head_gate = gate
    else:
        played.engine.gate = gate
    (rollout,) = await played.open()

    async def ask() -> str:
        for retries in itertools.count():
            connection = await send(played, path(rollout), counted(retries), stream=stream)
            if retries == 8 or chance.random() < 0.4:
                with connection:
                    return await read_id(connection)
            await asyncio.sleep(chance.random() * 0.05)
            connection.close()
            await asyncio.sleep(0.02)
        raise AssertionError

    async def sample() -> None:
        while True:
            gate.release()
            await asyncio.sleep(chance.random() * 0.005)

    sampling = asyncio.ensure_future(sample())
    ids = await asyncio.wait_for(asyncio.gather(*(ask() for _ in range(many))), 30)
    sampling.cancel()
    shelf = played.served.app.rollouts.shelf("local").get(rollout.rollout_id)
    assert sorted(ids) == sorted(call.asked.request_id for call in shelf.calls)
    assert (len(set(ids)), len(played.engine.calls)) == (many, many)
    assert all(call.status is CallStatus.DONE for call in shelf.calls)
