"""OpenAI's door on fake engines: who may come in, what tenants share, and how failures look."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import pytest_asyncio

from gradwire.server.errors import FailedPrecondition, ResourceExhausted, Unavailable
from tests.rpc.support import Served, serving
from tests.rpc.test_auth import SECRETS, token

BODY = {"model": "m", "prompt": "abc"}


@pytest_asyncio.fixture
async def open_door(tmp_path: Path) -> AsyncIterator[tuple[Served, aiohttp.ClientSession]]:
    async with (
        serving(tmp_path, http="127.0.0.1:0") as served,
        aiohttp.ClientSession(f"http://{served.app.http_address}") as session,
    ):
        yield served, session


@pytest_asyncio.fixture
async def guarded_door(tmp_path: Path) -> AsyncIterator[tuple[Served, aiohttp.ClientSession]]:
    async with (
        serving(tmp_path, http="127.0.0.1:0", tokens=[token(name) for name in SECRETS]) as served,
        aiohttp.ClientSession(f"http://{served.app.http_address}") as session,
    ):
        yield served, session


async def error_of(session: aiohttp.ClientSession, **options: Any) -> tuple[int, dict[str, Any], Any]:
    options = {"json": BODY, **options}
    async with session.post("/v1/completions", **options) as response:
        return response.status, (await response.json())["error"], response.headers


async def test_a_token_is_asked_for_as_openai_does(guarded_door: tuple[Served, aiohttp.ClientSession]) -> None:
    served, session = guarded_door
    status, error, _ = await error_of(session)
    assert (status, error["type"], error["code"]) == (401, "authentication_error", "token_missing")
    status, error, _ = await error_of(session, headers={"authorization": "Bearer nobody"})
    assert (status, error["code"]) == (401, "token_unknown")
    assert "nobody" not in error["message"]
    status, error, _ = await error_of(session, headers={"authorization": f"Bearer {SECRETS['admin']}"})
    assert (status, error["type"], error["code"]) == (403, "permission_error", "missing_scope")
    assert "needs the scope INFERENCE; whoever has the scope admin makes one:" in error["message"]
    async with session.get("/v1/models") as response:
        assert response.status == 401
    assert served.engines.samplers[0].openai.bodies == []


async def test_tenants_share_no_prefix_cache(guarded_door: tuple[Served, aiohttp.ClientSession]) -> None:
    served, session = guarded_door
    for name in ("alice", "bob"):
        headers = {"authorization": f"Bearer {SECRETS[name]}"}
        async with session.post("/v1/completions", json={**BODY, "cache_salt": "s"}, headers=headers) as response:
            assert response.status == 200
    first, second = (call.cache_salt for call in served.engines.samplers[0].openai.calls)
    assert first and second and first != second
    assert all("cache_salt" not in body for body in served.engines.samplers[0].openai.bodies)


async def test_a_web_page_cannot_come_in_by_another_name(open_door: tuple[Served, aiohttp.ClientSession]) -> None:
    _, session = open_door
    status, error, _ = await error_of(session, headers={"host": "evil.example"})
    assert (status, error["code"]) == (403, "foreign_host")


@pytest.mark.parametrize(
    ("raised", "status", "code", "again"),
    [
        (FailedPrecondition("ENGINE_ASLEEP", "wake it first"), 400, "engine_asleep", "false"),
        (ResourceExhausted("ENGINE_BUSY", "full", retry_after=timedelta(seconds=2)), 429, "engine_busy", "true"),
        (Unavailable("ENGINE_UNAVAILABLE", "later"), 503, "engine_unavailable", "true"),
        (RuntimeError("a secret path"), 500, "internal", "false"),
    ],
)
async def test_failures_say_whether_to_try_again(
    open_door: tuple[Served, aiohttp.ClientSession], raised: Exception, status: int, code: str, again: str
) -> None:
    served, session = open_door
    served.engines.samplers[0].openai.error = raised
    found, error, headers = await error_of(session)
    assert (found, error["code"], headers["x-should-retry"]) == (status, code, again)
    assert "secret" not in error["message"]
    assert ("retry-after" in headers) == (again == "true")


async def test_a_dead_engine_fails_its_job(open_door: tuple[Served, aiohttp.ClientSession]) -> None:
    served, session = open_door
    engine = served.engines.samplers[0]
    engine.openai.error = Unavailable("ENGINE_DEAD", "it died")
    engine.dead = "killed"
    status, _, _ = await error_of(session)
    assert status == 503
    status, error, _ = await error_of(session)
    assert (status, error["code"]) == (400, "job_failed")
    assert error["message"].endswith("failed: killed. Restart the server, whose own job it is")


async def test_request_ids_of_callers_are_kept_when_they_are_fit(
    open_door: tuple[Served, aiohttp.ClientSession],
) -> None:
    _, session = open_door
    for sent, kept in (("mine.1", True), ("not fit", False), ("x" * 129, False)):
        async with session.post("/v1/completions", json=BODY, headers={"x-request-id": sent}) as response:
            assert (response.headers["x-request-id"] == sent) is kept
            assert (await response.json())["id"] == response.headers["x-request-id"]


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("completions", rb'{"prompt": "a", "\ud800": 1}'),
        ("completions", rb'{"prompt": "a", "cache_salt": "\ud800"}'),
        ("chat/completions", rb'{"messages": [{"role": "user", "content": "\udfff"}]}'),
        ("completions", rb'{"prompt": "a", "temperature": 1e999}'),
        ("completions", '{"prompt": "a"}'.encode("utf-16")),
        ("completions", b'{"prompt": "' + b"a" * 300_000 + b'", "user": "\\ud800"}'),  # read in a thread
        ("completions", b'{"a":' * 50_000),
    ],
)
async def test_json_that_is_no_text_is_the_callers_fault(
    open_door: tuple[Served, aiohttp.ClientSession], path: str, body: bytes
) -> None:
    served, session = open_door
    for profile in ("openai", "documented"):
        async with session.post(f"/v1/{path}", data=body, headers={"x-gradwire-profile": profile}) as response:
            error = (await response.json())["error"]
            assert (response.status, error["type"]) == (400, "invalid_request_error")
    assert served.engines.samplers[0].openai.bodies == []


async def test_a_server_of_the_documented_profile_reads_all_bodies_by_it(tmp_path: Path) -> None:
    async with (
        serving(tmp_path, http="127.0.0.1:0", openai_profile="documented") as served,
        aiohttp.ClientSession(f"http://{served.app.http_address}") as session,
    ):
        status, error, _ = await error_of(session, json={"prompt": "abc", "temperature": 3})
        assert (status, error["param"]) == (400, "temperature")
        for headers in ({}, {"x-gradwire-profile": "openai"}):
            async with session.post("/v1/completions", json=BODY, headers=headers) as response:
                assert response.status == 200
        documented, openai = served.engines.samplers[0].openai.bodies
        assert (documented["max_tokens"], documented["top_k"], documented["temperature"]) == (128, 50, 0.2)
        assert openai == BODY
        assert [call.fit_tokens for call in served.engines.samplers[0].openai.calls] == [True, False]
