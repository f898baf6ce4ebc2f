"""Workers that neither answer nor die, and starts that nobody waits for: nothing hangs, nothing is left."""

from __future__ import annotations

import asyncio
import os
import signal
import time

import pytest

from gradwire.server.engines.deepspeed import DeepSpeedTrainer, operations
from gradwire.server.engines.training import LossSpec
from gradwire.server.errors import InvalidArgument, Unavailable
from tests.engines.deepspeed.support import random_batch, running, tiny_config
from tests.serving import descendants

pytestmark = pytest.mark.slow


def workers() -> list[int]:
    return [pid for pid, line in descendants(os.getpid()).items() if "deepspeed.worker" in line]


async def test_a_stuck_worker_ends_the_job_and_whoever_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(operations, "ANSWER_SECONDS", 2.0)
    async with running(tiny_config()) as trainer:
        call = asyncio.create_task(trainer.fwd_bwd(random_batch(1, 3000), LossSpec("grpo")))
        await asyncio.sleep(0.5)
        (pid,) = workers()
        os.kill(pid, signal.SIGSTOP)
        with pytest.raises(Unavailable, match="does not answer"):
            await trainer.check_health()
        async with asyncio.timeout(10):
            with pytest.raises(Unavailable, match="does not answer"):
                await call
        with pytest.raises(Unavailable, match="does not answer"):
            await trainer.step()
    assert not workers()


async def test_a_cancelled_start_does_not_wait_for_the_model(monkeypatch: pytest.MonkeyPatch) -> None:
    trainer = DeepSpeedTrainer(tiny_config())
    loading = asyncio.Event()
    start = asyncio.create_task(trainer.start(lambda line: loading.set() if "loading" in line else None))
    await loading.wait()
    (pid,) = workers()
    os.kill(pid, signal.SIGSTOP)  # so that it would take for ever
    began = time.monotonic()
    start.cancel()
    with pytest.raises(asyncio.CancelledError):
        await start
    assert time.monotonic() - began < 10
    assert not workers()


async def test_a_start_that_is_cancelled_between_two_workers_leaves_none() -> None:
    trainer = DeepSpeedTrainer(tiny_config(num_workers=4))
    start = asyncio.create_task(trainer.start(lambda _: None))
    while len(workers()) < 2 and not start.done():  # noqa: ASYNC110 (there is no event)
        await asyncio.sleep(0)
    start.cancel()
    with pytest.raises(asyncio.CancelledError):
        await start
    assert not workers()


def test_more_workers_than_the_machine_can_run_are_refused() -> None:
    with pytest.raises(InvalidArgument, match="more than this machine") as caught:
        DeepSpeedTrainer(tiny_config(num_workers=1000))
    assert caught.value.violations[0].field == "config.num_workers"
