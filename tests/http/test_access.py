"""Who may call over HTTP: tokens, scopes, TLS; and what becomes of calls while the server closes."""

from __future__ import annotations

import asyncio
import hashlib
import json
import ssl
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from google.rpc import error_details_pb2

from gradwire.server.domain.caller import current_caller
from gradwire.v1 import sampling_pb2
from tests.certificate import Certificate
from tests.http.support import CONNECT_JSON, GENERATE, JSON, STREAM, detail, envelope, post, serving_http
from tests.rpc.support import Served, failure, text_prompt, until

PROMPT = b'{"prompts": [{"text": "abc"}]}'
TOKENS = [
    {"name": "sampler", "sha256": hashlib.sha256(b"secret").hexdigest(), "scopes": ["INFERENCE"], "tenant": "blue"},
]
MAKES_ONE = "whoever has the scope admin makes one: gradwire token create --tenant blue --user sampler --scope {}"


@pytest.mark.parametrize("header", [{}, {"authorization": "Bearer wrong"}, {"authorization": "Basic secret"}])
async def test_without_a_known_token_nothing_is_served(tmp_path: Path, header: dict[str, str]) -> None:
    async with serving_http(tmp_path, tokens=TOKENS) as served:
        answer = await post(served, GENERATE, b"not even read", JSON, header)
        assert (answer.status, answer.error["code"]) == (401, "unauthenticated")
        assert answer.reason in ("TOKEN_MISSING", "TOKEN_UNKNOWN")
        stream = await post(served, STREAM, envelope(b'{"prompt": {"text": "ab"}}'), CONNECT_JSON, header)
        assert stream.error["code"] == "unauthenticated"
        capabilities = await post(served, "/gradwire.v1.AdminService/GetCapabilities", b"{}", JSON, header)
        assert capabilities.status == 200


async def test_a_token_names_its_tenant_and_has_its_scopes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with serving_http(tmp_path, tokens=TOKENS) as served:
        header = {"authorization": "Bearer secret", "host": "any.example"}
        assert (await post(served, GENERATE, PROMPT, JSON, header)).status == 200
        assert (served.engines.samplers[0].requests[-1].cache_salt or "").startswith("blue\0")
        answer = await post(served, "/gradwire.v1.JobService/ListJobs", b"{}", JSON, header)
        assert (answer.status, answer.reason) == (403, "MISSING_SCOPE")
        assert MAKES_ONE.format("inference --scope training") in answer.error["message"]


@pytest.mark.parametrize(("headers", "same"), [({}, True), ({"x-forwarded-for": "127.0.0.1"}, False)])
async def test_behind_a_proxy_nobody_is_on_this_host(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, headers: dict[str, str], same: bool
) -> None:
    async with serving_http(tmp_path) as served:
        seen = []
        sampler = served.engines.samplers[0]
        generate = sampler.generate

        def look(request: Any) -> Any:
            seen.append(current_caller().same_host)
            return generate(request)

        monkeypatch.setattr(sampler, "generate", look)
        assert (await post(served, GENERATE, PROMPT, JSON, headers)).status == 200
        assert seen == [same]


async def test_from_elsewhere_pages_for_the_operator_take_a_token(tmp_path: Path) -> None:
    async with serving_http(tmp_path, tokens=TOKENS) as served:
        via = {"x-forwarded-for": "192.0.2.1"}
        assert (await post(served, "/metrics", method="GET", headers=via)).status == 401
        assert (await post(served, "/health", method="GET", headers=via)).json == {"serving": True}
        token = {**via, "authorization": "Bearer secret"}
        assert (await post(served, "/metrics", method="GET", headers=token)).status == 200
        assert "jobs" in (await post(served, "/health", method="GET", headers=token)).json


async def test_tls_with_the_certificate_of_grpc(tmp_path: Path, certificate: Certificate) -> None:
    cert, key = certificate
    tls = {"certificate": cert, "key": key, "client_ca": cert}
    async with serving_http(tmp_path, tls=tls) as served:
        url = f"https://localhost:{served.app.http_address.rpartition(':')[2]}{GENERATE}"
        trusting = ssl.create_default_context(cafile=str(cert))
        known = ssl.create_default_context(cafile=str(cert))
        known.load_cert_chain(cert, key)
        async with aiohttp.ClientSession() as session:
            async with session.post(url, data=PROMPT, headers={"content-type": JSON}, ssl=known) as response:
                assert response.status == 200
            with pytest.raises(aiohttp.ClientError):  # callers show a certificate, too
                await session.post(url, data=PROMPT, ssl=trusting)
            with pytest.raises(aiohttp.ClientError):
                await session.post(url.replace("https", "http"), data=PROMPT)


# The end of the server


async def held_stream(served: Served) -> tuple[asyncio.Task[Any], asyncio.Semaphore]:
    """A stream that has had one token and waits for more."""
    sampler = served.engines.samplers[0]
    sampler.token_gate = asyncio.Semaphore(1)
    stream = asyncio.create_task(post(served, STREAM, envelope(b'{"prompt": {"text": "abcd"}}'), CONNECT_JSON))
    await asyncio.wait_for(sampler.opened.wait(), 10)
    return stream, sampler.token_gate


async def test_while_draining_streams_finish_and_new_calls_are_refused(tmp_path: Path) -> None:
    async with serving_http(tmp_path, limits={"drain_seconds": 600.0}) as served:
        stream, gate = await held_stream(served)
        stopping = asyncio.create_task(served.app.stop())
        await until(lambda: served.app._admission._draining)
        answer = await post(served, GENERATE, PROMPT, JSON)
        assert (answer.status, answer.reason) == (503, "DRAINING")
        assert detail(answer.error, error_details_pb2.RetryInfo()).retry_delay.seconds == 1
        for _ in range(3):
            gate.release()
        assert json.loads((await stream).messages[-1])["end"]["completions"][0]["numTokens"] == 4
        await stopping


async def test_a_second_signal_ends_calls_with_an_error(tmp_path: Path) -> None:
    async with serving_http(tmp_path, limits={"drain_seconds": 600.0}) as served:
        stream, _ = await held_stream(served)
        stopping = asyncio.create_task(served.app.stop())
        await until(lambda: served.app._admission._draining)
        served.app.hurry()
        assert (await stream).error["code"] == "unavailable"
        await asyncio.wait_for(stopping, 10)
        assert not served.engines.samplers[0].open


async def test_a_full_service_refuses_with_a_time_to_retry(tmp_path: Path) -> None:
    async with serving_http(tmp_path, limits={"max_calls_per_service": 1, "drain_seconds": 0.0}) as served:
        stream, _ = await held_stream(served)
        answer = await post(served, GENERATE, PROMPT, JSON)
        assert (answer.status, answer.reason) == (429, "TOO_MANY_CALLS")
        over_grpc = served.sampling.Generate(sampling_pb2.GenerateRequest(prompts=[text_prompt("ab")]))
        assert (await failure(over_grpc)).reason == "TOO_MANY_CALLS"  # the limit is that of both doors together
        stream.cancel()
