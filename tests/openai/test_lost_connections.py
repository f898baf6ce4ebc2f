"""OpenAI's own client loses a connection and retries by itself: it is served once, and recorded once."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import openai
import pytest

from gradwire.client import AsyncClient, AsyncOpenRollout, RolloutCallStatus
from tests.rpc.support import until
from tests.serving import ServerProcess

DONE = RolloutCallStatus.DONE
CHAT: Any = {
    "model": "m", "messages": [{"role": "user", "content": "hello"}], "max_tokens": 48, "temperature": 1,
    "extra_body": {"return_token_ids": True, "ignore_eos": True},
}  # fmt: skip


@asynccontextmanager
async def wire(server: ServerProcess, cut: int, when: Callable[[], Awaitable[None]]) -> AsyncIterator[str]:
    """An address that leads to the server, and breaks the first `cut` connections when `when` returns.

    Nothing of their answers is read before: what the server has written is lost.
    """
    host, port = server.doors["http"].rsplit(":", 1)
    count = 0

    async def pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(1 << 16):
            writer.write(data)
        writer.close()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal count
        count += 1
        loses = count <= cut
        up_reader, up_writer = await asyncio.open_connection(host, int(port))
        if loses:
            up_writer.transport.pause_reading()  # type: ignore[attr-defined]
            sending = asyncio.ensure_future(pump(reader, up_writer))
            waiting = asyncio.ensure_future(when())
            await asyncio.wait({sending, waiting}, return_when=asyncio.FIRST_COMPLETED)
            for task in (sending, waiting):
                task.cancel()
        else:
            await asyncio.gather(pump(reader, up_writer), pump(up_reader, writer), return_exceptions=True)
        for end in (writer, up_writer):
            end.transport.abort()

    listening = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with listening:
        yield "http://{}:{}".format(*listening.sockets[0].getsockname())


def moment(rollout: AsyncOpenRollout, name: str, count: int = 1) -> Callable[[], Awaitable[None]]:
    """Returns when `count` calls are being sampled, or are answered, or never."""

    async def reached() -> bool:
        calls = (await rollout.get()).calls
        ready = name == "sampling" or all(call.status is DONE for call in calls)
        return name != "never" and len(calls) == count and ready

    return lambda: until(reached)


async def check(rollout: AsyncOpenRollout, answers: list[Any]) -> None:
    details = await rollout.get(with_tokens=True)
    assert [(call.status, call.num_retries) for call in details.calls] == [(DONE, 0)] * len(answers)
    assert details.rollout.num_sampled_tokens == 48 * len(answers)
    sampled = {tuple(call.prompts[0].completions[0].token_ids.tolist()) for call in details.calls}
    assert len({answer.id for answer in answers}) == len(answers)
    assert {tuple(answer.choices[0].token_ids) for answer in answers} == sampled


@pytest.mark.parametrize("name", ["sampling", "answered", "never"])
async def test_a_connection_breaks(server: ServerProcess, name: str) -> None:
    options: Any = {"api_key": "-", "max_retries": 1, "timeout": 1.0 if name == "never" else 60.0}

    async def ask(rollout: AsyncOpenRollout, plain: bool) -> Any:
        async with wire(server, 1, moment(rollout, name)) as address:
            base_url = f"{address}/rollouts/{rollout.rollout_id}/v1"
            if plain:
                with openai.OpenAI(base_url=base_url, **options) as agent:
                    return await asyncio.to_thread(lambda: agent.chat.completions.create(**CHAT))
            async with openai.AsyncOpenAI(base_url=base_url, **options) as other:
                return await other.chat.completions.create(**CHAT)

    async with AsyncClient(server.address) as client:
        async with client.rollouts.open() as first, client.rollouts.open() as second:
            answers = await asyncio.gather(ask(first, plain=True), ask(second, plain=False))
            for rollout, answer in zip((first, second), answers, strict=True):
                await check(rollout, [answer])
        for found in await client.rollouts.collect([first.rollout_id, second.rollout_id]):
            assert (len(found.rows), found.dropped) == (1, ())
            await client.rollouts.discard(found.rollout.rollout_id)


@pytest.mark.parametrize("name", ["answered", "never"])
async def test_a_stream_whose_head_does_not_come(server: ServerProcess, name: str) -> None:
    options: Any = {"api_key": "-", "max_retries": 1, "timeout": 1.0 if name == "never" else 60.0}
    async with AsyncClient(server.address) as client:
        async with client.rollouts.open() as rollout, wire(server, 1, moment(rollout, name)) as address:
            base_url = f"{address}/rollouts/{rollout.rollout_id}/v1"
            async with openai.AsyncOpenAI(base_url=base_url, **options) as agent:
                chunks = [chunk async for chunk in await agent.chat.completions.create(**CHAT, stream=True)]
            pieces = [getattr(choice, "token_ids", None) or [] for chunk in chunks for choice in chunk.choices]
            details = await rollout.get(with_tokens=True)
        assert [(call.status, call.num_retries) for call in details.calls] == [(DONE, 0)]
        sampled = details.calls[0].prompts[0].completions[0].token_ids.tolist()
        assert (len(sampled), [token for piece in pieces for token in piece]) == (48, sampled)
        (found,) = await client.rollouts.collect([rollout.rollout_id])
        assert (len(found.rows), found.dropped) == (1, ())
        await client.rollouts.discard(rollout.rollout_id)


async def test_several_answers_to_one_prompt_stay_several(server: ServerProcess) -> None:
    async with AsyncClient(server.address) as client, client.rollouts.open() as rollout:
        async with wire(server, 2, moment(rollout, "answered", 4)) as address:
            base_url = f"{address}/rollouts/{rollout.rollout_id}/v1"
            async with openai.AsyncOpenAI(base_url=base_url, api_key="-", max_retries=1) as agent:
                answers = await asyncio.gather(*(agent.chat.completions.create(**CHAT) for _ in range(4)))
        await check(rollout, answers)
