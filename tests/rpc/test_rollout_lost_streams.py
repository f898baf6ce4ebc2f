"""A client that counts its retries or names its requests loses a stream: before it has begun, or in its middle."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from gradwire.server.domain.rollouts import answers
from gradwire.server.domain.rollouts.calls import Call
from gradwire.v1 import rollout_pb2 as pb
from tests.rpc.rollouts import ABANDONED, DONE, Played, counted, path, send, statuses
from tests.rpc.support import until

KEYS: Any = [{}, {"idempotency-key": "of-all"}]


def open_gate(gate: asyncio.Semaphore) -> None:
    for _ in range(5):
        gate.release()


def call_of(played: Played, rollout: pb.Rollout) -> Call:
    """The last one, as the server has it."""
    return played.served.app.rollouts.shelf("local").get(rollout.rollout_id).calls[-1]


async def streamed_id(played: Played, rollout: pb.Rollout, headers: dict[str, str]) -> str:
    status, text = await asyncio.wait_for(played.call(path(rollout), stream=True, headers=headers), 20)
    lines = [line.removeprefix("data: ") for line in text.split("\n\n")]
    assert (status, lines[1:]) == (200, ["99", "98", "97", "[DONE]", ""])
    return lines[0]


@pytest.mark.parametrize("headers", KEYS)
@pytest.mark.parametrize("ready", [False, True])
async def test_a_stream_is_lost_before_it_begins(played: Played, ready: bool, headers: dict[str, str]) -> None:
    played.engine.head_gate = asyncio.Semaphore(0)
    (rollout,) = await played.open()
    connection = await send(played, path(rollout), counted(0) | headers, stream=True)
    await until(lambda: len(played.engine.calls) == 1)
    connection.close()
    call = call_of(played, rollout)
    await until(lambda: call.unread)
    if ready:  # all of it is made before it is asked for again, or nothing
        played.engine.head_gate.release()
    await until(lambda: played.engine.ended == int(ready))
    again = asyncio.ensure_future(streamed_id(played, rollout, counted(1) | headers))
    await until(lambda: not call.unread)
    played.engine.head_gate.release()
    assert await again == played.engine.calls[0].request_id
    assert (await statuses(played, rollout), len(played.engine.calls)) == ([DONE], 1)


async def test_a_stream_goes_out_and_nobody_reads_it(played: Played) -> None:
    (rollout,) = await played.open()
    connection = await send(played, path(rollout), counted(0), stream=True)
    await until(lambda: len(played.engine.calls) == 1)
    await until(lambda: call_of(played, rollout).ended_at is not None)
    connection.close()
    assert await streamed_id(played, rollout, counted(1)) == played.engine.calls[0].request_id
    assert await statuses(played, rollout) == [DONE]


async def test_a_stream_that_is_left_with_its_last_line_is_not_lost(played: Played) -> None:
    """OpenAI's client closes its connection then, and does not wait for the end of the body."""
    (rollout,) = await played.open()
    kept = played.served.app.rollouts.shelf("local").get(rollout.rollout_id).answers._kept
    loop = asyncio.get_running_loop()
    for _ in range(20):
        connection, data = await send(played, path(rollout), counted(0), stream=True), b""
        while b"[DONE]" not in data:
            data += (piece := await loop.sock_recv(connection, 1 << 16))
            assert piece
        assert data.endswith(b"[DONE]\n\n\r\n0\r\n\r\n")  # in one piece
        connection.close()
        await until(lambda: not kept, timeout_s=5)  # one that is lost waits longer


@pytest.mark.parametrize("headers", KEYS)
async def test_a_stream_is_lost_in_its_middle(played: Played, headers: dict[str, str]) -> None:
    """Without a key its place is free at once: OpenAI's clients do not retry what has begun."""
    played.engine.gate = asyncio.Semaphore(1)
    (rollout,) = await played.open()
    body = {"prompt": "abc", "stream": True}
    async with played.http.post(path(rollout), json=body, headers=counted(0) | headers) as response:
        await response.content.readline()
    if not headers:
        await until(lambda: played.engine.ended == 1, timeout_s=5)
    open_gate(played.engine.gate)
    again = await streamed_id(played, rollout, counted(1) | headers)
    assert (again == played.engine.calls[0].request_id) == bool(headers)
    assert await statuses(played, rollout) == ([DONE] if headers else [ABANDONED, DONE])


@pytest.mark.parametrize("begins", [False, True])
async def test_a_stream_nobody_comes_back_for(played: Played, begins: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(answers, "RETRY_WITHIN_S", 0.2)
    played.engine.head_gate = asyncio.Semaphore(int(begins))
    played.engine.gate = asyncio.Semaphore(int(begins))
    (rollout,) = await played.open()
    body = {"prompt": "abc", "stream": True}
    post = played.http.post(path(rollout), json=body, headers=counted(0) | {"idempotency-key": "of-all"})
    asking = asyncio.ensure_future(post.__aenter__())
    await until(lambda: len(played.engine.calls) == 1)
    if begins:
        (await asking).close()
    asking.cancel()
    await until(lambda: call_of(played, rollout).unread)
    for gate in (played.engine.head_gate, played.engine.gate):
        open_gate(gate)  # it is made to its end; nobody has it
    await until(lambda: played.engine.ended == 1)

    async def abandoned() -> bool:
        return await statuses(played, rollout) == [ABANDONED]

    await until(abandoned, timeout_s=5)
    assert played.served.app.rollouts.num_bytes == 1024 + 3 * 4 + 3 * 8  # the call and its tokens
