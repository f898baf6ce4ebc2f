"""The door itself: paths, bodies, other jobs, callers who leave, a sampler that sleeps."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from typing import Any

import aiohttp
import openai
import pytest
import pytest_asyncio

from gradwire.client import AsyncClient, Client
from tests.serving import ServerProcess


@pytest_asyncio.fixture
async def session(server: ServerProcess) -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession(f"http://{server.doors['http']}") as made:
        yield made


@pytest.fixture
def grpc(server: ServerProcess) -> Iterator[Client]:
    with Client(server.address) as made:
        yield made


@pytest.mark.parametrize("path", ["completions", "chat/completions"])
async def test_the_documents_snippet_works_as_printed(server: ServerProcess, path: str) -> None:
    class Wrapper:
        server_addresses = (server.doors["http"],)

    self = Wrapper()
    completions_request: dict[str, Any] = {"max_tokens": 5, "temperature": 0.2, "top_k": 50, "detokenize": False}
    if path == "completions":
        completions_request |= {"prompt": "hello", "logprobs": 1}
    else:
        completions_request["messages"] = [{"role": "user", "content": "hello"}]

    base_url = f"http://{self.server_addresses[0]}/v1/{path}"
    headers = {"Content-Type": "application/json"}

    async with aiohttp.ClientSession() as session:  # noqa: SIM117 - as printed
        async with session.post(base_url, headers=headers, json=completions_request) as response:
            if response.status != 200:
                err_msg = await response.text()
                raise Exception(f"Http request failed. status = {response.status}: {err_msg}")
            result = await response.json()
    assert result["choices"][0]["finish_reason"] in ("length", "stop")


async def test_the_documented_profile_can_be_asked_for(session: aiohttp.ClientSession) -> None:
    headers = {"x-gradwire-profile": "documented"}
    async with session.post("/v1/completions", json={"prompt": "a", "max_tokens": 3}, headers=headers) as response:
        choice = (await response.json())["choices"][0]
    assert len(choice["logprobs"]["token_logprobs"]) == 3
    async with session.post("/v1/completions", json={"prompt": "a", "temperature": 3}, headers=headers) as response:
        assert response.status == 400
        error = (await response.json())["error"]
    assert (error["param"], error["type"]) == ("temperature", "invalid_request_error")
    assert "between 0 and 2" in error["message"]
    headers = {"x-gradwire-profile": "x"}
    async with session.post("/v1/completions", json={"prompt": "a"}, headers=headers) as response:
        assert response.status == 400


@pytest.mark.parametrize(
    ("verb", "path", "data", "status"),
    [
        ("POST", "/v1/completions", b"{", 400),
        ("POST", "/v1/completions", b"[1]", 400),
        ("POST", "/v1/completions", b'{"prompt": "a", "temperature": NaN}', 400),
        ("POST", "/v1/completions", b"[" * 100_000, 400),
        ("POST", "/v1/completions", b"\xff\xfe", 400),
        ("POST", "/v1/completions", b"", 400),
        ("POST", "/v1/completions", b'{"prompt": "a", "structured_outputs": true}', 400),
        ("POST", "/v1/chat/completions", b'{"messages": [], "structured_outputs": 7}', 400),
        ("POST", "/v1/completions", b'{"prompt": "' + b"a" * (40 << 20), 429),
        ("GET", "/v1/completions", None, 405),
        ("POST", "/v1/models", b"{}", 405),
        ("POST", "/v1/embeddings", b"{}", 404),
        ("POST", "/jobs/999/v1/completions", b'{"prompt": "a"}', 404),
    ],
)
async def test_what_is_no_request_is_an_error_object(
    session: aiohttp.ClientSession, verb: str, path: str, data: bytes | None, status: int
) -> None:
    async with session.request(verb, path, data=data) as response:
        assert response.status == status
        error = (await response.json())["error"]
        assert response.headers["x-request-id"]
    assert error["message"]
    assert error["code"]


@pytest.mark.parametrize("stream", [True, False])
async def test_a_caller_who_leaves_frees_the_slot(
    session: aiohttp.ClientSession, server: ServerProcess, stream: bool
) -> None:
    clock = asyncio.get_running_loop().time
    long = {"prompt": "x", "max_tokens": 1900, "ignore_eos": True, "n": 8}
    async with AsyncClient(server.address) as client:
        began = clock()
        async with session.post("/v1/completions", json=long) as response:
            assert response.status == 200
        whole = clock() - began
        call = asyncio.ensure_future(session.post("/v1/completions", json={**long, "stream": stream}).__aenter__())
        if stream:
            response = await call
            await response.content.readline()
            response.close()
        else:
            await asyncio.sleep(whole / 10)  # until it samples: nothing tells
            call.cancel()
        # To pause is to wait for what runs: with the request still there, for nearly all of it.
        began = clock()
        await client.sampling.pause("wait", timeout=60)
        await client.sampling.resume()
        assert clock() - began < whole / 2


async def test_a_sleeping_sampler_says_so_before_a_stream_begins(
    session: aiohttp.ClientSession, server: ServerProcess
) -> None:
    async with AsyncClient(server.address) as client:
        (job,) = await client.jobs.create(sampling={"model": "tiny", "kv_cache_bytes": 64 << 20})
        try:
            path = f"/jobs/{job.job_id}/v1/completions"
            async with session.post(path, json={"prompt": "a", "max_tokens": 1}) as response:
                assert response.status == 200
            await client.sampling.sleep(job=job)
            for stream in (False, True):
                async with session.post(path, json={"prompt": "a", "stream": stream}) as response:
                    assert response.status == 400
                    error = (await response.json())["error"]
                assert "asleep" in error["message"]
            await client.sampling.wake(job=job)
            async with session.post(path, json={"prompt": "a", "max_tokens": 1}) as response:
                assert response.status == 200
        finally:
            await client.jobs.destroy(job)


def test_openais_sampling_is_counted(server: ServerProcess, grpc: Client) -> None:
    import urllib.request

    def count(name: str = "gradwire_sampled_tokens_total") -> float:
        with urllib.request.urlopen(f"http://{server.doors['http']}/metrics") as page:
            lines = page.read().decode().splitlines()
        return next(float(line.split()[-1]) for line in lines if line.startswith(name))

    of_job = 'gradwire_sampler_sampled_tokens_total{job="1",model="tiny"}'
    before, job_before = count(), count(of_job)
    with openai.OpenAI(base_url=f"http://{server.doors['http']}/v1", api_key="-") as client:
        client.completions.create(model="m", prompt="a", max_tokens=7, extra_body={"ignore_eos": True}, n=2)
        list(
            client.completions.create(model="m", prompt="a", max_tokens=5, extra_body={"ignore_eos": True}, stream=True)
        )
    assert count() - before == count(of_job) - job_before == 19
    assert count('gradwire_sampler_up{job="1"') == 1 and count('gradwire_sampler_running_requests{job="1"') == 0
