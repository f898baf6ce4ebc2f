"""What lets go of old things goes on, whatever one of the stores does."""

from __future__ import annotations

import asyncio

import pytest

from gradwire.server.domain import expiring


async def test_a_store_that_fails_does_not_end_the_tidying(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(expiring, "INTERVAL_S", 0.001)
    rounds = 0
    third = asyncio.Event()

    def fails() -> None:
        raise RuntimeError("a bug")

    def counts() -> None:
        nonlocal rounds
        rounds += 1
        if rounds == 3:
            third.set()

    tidying = asyncio.create_task(expiring.expire_forever(fails, counts))
    async with asyncio.timeout(5):
        await third.wait()
    tidying.cancel()
    assert "a bug" in caplog.text
