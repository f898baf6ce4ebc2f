"""Whoever watches or waits holds a place of the service for long: a tenant may have a part of them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from grpc import StatusCode, aio

from gradwire.server.rpc import watching
from gradwire.server.rpc.interceptors import auth
from gradwire.v1 import admin_pb2, job_pb2, rollout_pb2
from tests.rpc.support import Served, failure, serving, until
from tests.rpc.test_auth import SECRETS, bearer, token
from tests.rpc.test_tokens import create, revoke


@pytest.fixture
async def guarded(tmp_path: Path) -> AsyncIterator[Served]:
    """A server of two tenants, each with a rollout, that serves eight calls of a service at once."""
    tokens = [token("alice"), token("bob")]
    async with serving(tmp_path, tokens=tokens, limits={"max_calls_per_service": 8}) as running:
        for name in ("alice", "bob"):
            request = rollout_pb2.OpenRolloutsRequest(rollouts=[rollout_pb2.RolloutSpec()])
            await running.rollouts.OpenRollouts(request, metadata=bearer(SECRETS[name]))
        yield running


WATCHES = [
    ("jobs", "WatchJob", job_pb2.WatchJobRequest(), "GetJob"),
    ("rollouts", "WatchRollouts", rollout_pb2.WatchRolloutsRequest(), "GetRollout"),
]


@pytest.mark.parametrize(("service", "method", "request_", "instead"), WATCHES)
async def test_a_tenant_watches_from_a_quarter_of_the_places(
    guarded: Served, service: str, method: str, request_: Any, instead: str
) -> None:
    def watch(name: str) -> Any:
        return getattr(getattr(guarded, service), method)(request_, metadata=bearer(SECRETS[name]))

    held = [watch("alice") for _ in range(2)]
    for call in held:
        await anext(aiter(call))
    refused = await failure(watch("alice"))
    assert (refused.code, refused.reason) == (StatusCode.RESOURCE_EXHAUSTED, "TOO_MANY_STREAMS")
    assert refused.retry_after > 0 and instead in refused.text
    others = watch("bob")
    await anext(aiter(others))
    held[0].cancel()

    await until(lambda: guarded.app._admission.active == 2)  # alice's other one, and bob's
    await anext(aiter(watch("alice")))


async def test_a_tenant_waits_in_a_quarter_of_the_places(guarded: Served) -> None:
    def collect(name: str, **options: Any) -> Any:
        request = rollout_pb2.CollectRolloutsRequest(**options)
        return guarded.rollouts.CollectRollouts(request, metadata=bearer(SECRETS[name]))

    waiting = [collect(name, wait={"seconds": 3000}) for name in ("alice", "alice", "bob")]
    await until(lambda: guarded.app._admission.active == 3)
    refused = await failure(collect("alice", wait={"seconds": 3000}))
    assert (refused.code, refused.reason) == (StatusCode.RESOURCE_EXHAUSTED, "TOO_MANY_STREAMS")
    assert [message async for message in collect("alice")] == []
    for call in waiting:
        call.cancel()


@pytest.mark.parametrize(("service", "method", "request_", "instead"), WATCHES)
async def test_who_watches_in_silence_is_sent_away_when_its_token_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, service: str, method: str, request_: Any, instead: str
) -> None:
    monkeypatch.setattr(watching, "ASK_S", 0.1)
    monkeypatch.setattr(auth, "CACHE_S", 0.0)
    async with serving(tmp_path, tokens=[token("admin")]) as guarded:
        scopes = [admin_pb2.SCOPE_INFERENCE, admin_pb2.SCOPE_TRAINING]
        token_id, secret = await create(guarded, scopes=scopes)
        opening = rollout_pb2.OpenRolloutsRequest(rollouts=[rollout_pb2.RolloutSpec()])
        await guarded.rollouts.OpenRollouts(opening, metadata=bearer(secret))
        watch = getattr(getattr(guarded, service), method)(request_, metadata=bearer(secret))
        assert await watch.read() is not aio.EOF
        following = asyncio.ensure_future(watch.read())
        assert not (await asyncio.wait([following], timeout=0.3))[0]  # a good token may go on
        await revoke(guarded, token_id)
        failed = await failure(following)
        assert (failed.code, failed.reason) == (StatusCode.UNAUTHENTICATED, "TOKEN_REVOKED")
        await until(lambda: guarded.app._admission.active == 0)


async def test_what_was_waited_for_is_not_given_to_a_token_that_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(auth, "CACHE_S", 0.0)
    async with serving(tmp_path, tokens=[token("admin")]) as guarded:
        token_id, secret = await create(guarded)
        _, heir = await create(guarded)  # of the same tenant
        opening = rollout_pb2.OpenRolloutsRequest(rollouts=[rollout_pb2.RolloutSpec()])
        opened = await guarded.rollouts.OpenRollouts(opening, metadata=bearer(secret))
        waiting = rollout_pb2.CollectRolloutsRequest(wait={"seconds": 300})
        collecting = asyncio.ensure_future(guarded.rollouts.CollectRollouts(waiting, metadata=bearer(secret)).read())
        await until(lambda: guarded.app._admission.active == 1)
        await revoke(guarded, token_id)
        end = rollout_pb2.FinishRolloutRequest(
            rollout_id=opened.rollouts[0].rollout_id, outcome=rollout_pb2.ROLLOUT_OUTCOME_OK
        )
        await guarded.rollouts.FinishRollout(end, metadata=bearer(heir))
        failed = await failure(collecting)
        assert (failed.code, failed.reason) == (StatusCode.UNAUTHENTICATED, "TOKEN_REVOKED")
        again = guarded.rollouts.CollectRollouts(rollout_pb2.CollectRolloutsRequest(), metadata=bearer(heir))
        assert (await again.read()).rollout.rollout_id == end.rollout_id  # nothing was lost with it
