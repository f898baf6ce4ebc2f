"""OpenAI's own client retries by itself, on a real server behind a proxy that refuses once and loses an answer once."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import openai
import pytest
from aiohttp import web

from gradwire.client import AsyncClient, RolloutCallStatus
from tests.serving import ServerProcess

DONE, RETRIED = RolloutCallStatus.DONE, RolloutCallStatus.RETRIED


@asynccontextmanager
async def lossy(server: ServerProcess) -> AsyncIterator[tuple[str, list[int]]]:
    """A proxy's address, and the statuses that it saw: its first request is a 503, of its second the answer is lost."""
    seen: list[int] = []

    async def pass_on(request: web.Request) -> web.StreamResponse:
        if not seen:
            seen.append(503)
            return web.Response(status=503, headers={"retry-after-ms": "1"})
        headers = {name: value for name, value in request.headers.items() if name.lower() != "host"}
        url = f"http://{server.doors['http']}{request.path_qs}"
        async with http.request(request.method, url, data=await request.read(), headers=headers) as answer:
            data = await answer.read()
            seen.append(answer.status)
        if len(seen) == 2:
            assert request.transport is not None
            request.transport.abort()  # the client sees its connection break
        return web.Response(body=data, status=answer.status, content_type=answer.content_type)

    app = web.Application()
    app.router.add_route("*", "/{path:.*}", pass_on)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    async with aiohttp.ClientSession() as http:
        await site.start()
        try:
            yield f"http://127.0.0.1:{runner.addresses[0][1]}", seen
        finally:
            await runner.cleanup()


@pytest.mark.parametrize("named", [True, False])
async def test_a_client_that_retries_by_itself_is_trained_on_once(server: ServerProcess, named: bool) -> None:
    options: Any = {"extra_headers": {"X-Request-Id": "mine"}} if named else {}
    async with AsyncClient(server.address) as client, lossy(server) as (address, seen):
        async with client.rollouts.open() as rollout:
            base_url = f"{address}/rollouts/{rollout.rollout_id}/v1"
            async with openai.AsyncOpenAI(base_url=base_url, api_key="-", max_retries=2) as agent:
                answer: Any = await agent.completions.create(
                    model="m", prompt="hello", max_tokens=6, temperature=1,
                    extra_body={"return_token_ids": True}, **options,
                )  # fmt: skip
            calls = (await rollout.get(with_tokens=True)).calls
        assert seen == [503, 200, 200]
        # Under a name it is sampled once. Without one it is sampled again, for the proxy had read what it lost; and the
        # answer that was lost is marked.
        assert [(call.status, call.num_retries) for call in calls] == (
            [(DONE, 1)] if named else [(RETRIED, 1), (DONE, 2)]
        )
        (found,) = await client.rollouts.collect(rollout.rollout_id)
        (row,) = found.rows
        assert row.token_ids[row.loss_mask].tolist() == answer.choices[0].token_ids
        assert [dropped.status for dropped in found.dropped] == ([] if named else [RETRIED])
        await client.rollouts.discard(rollout.rollout_id)
