"""Whoever watches or waits holds a place of the service for long: a tenant may have a part of them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from grpc import StatusCode

from gradwire.v1 import job_pb2, rollout_pb2
from tests.rpc.support import Served, failure, serving, until
from tests.rpc.test_auth import SECRETS, bearer, token


@pytest.fixture
async def guarded(tmp_path: Path) -> AsyncIterator[Served]:
    """A server of two tenants, each with a rollout, that serves eight calls of a service at once."""
    tokens = [token("alice"), token("bob")]
    async with serving(tmp_path, tokens=tokens, limits={"max_calls_per_service": 8}) as running:
        for name in ("alice", "bob"):
            request = rollout_pb2.OpenRolloutsRequest(rollouts=[rollout_pb2.RolloutSpec()])
            await running.rollouts.OpenRollouts(request, metadata=bearer(SECRETS[name]))
        yield running


@pytest.mark.parametrize(
    ("service", "method", "request_", "instead"),
    [
        ("jobs", "WatchJob", job_pb2.WatchJobRequest(), "GetJob"),
        ("rollouts", "WatchRollouts", rollout_pb2.WatchRolloutsRequest(), "GetRollout"),
    ],
)
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
