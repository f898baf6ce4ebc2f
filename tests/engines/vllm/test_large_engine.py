"""What needs an engine of its own: memory that can be seen, a sleep that fails, and a process that hangs.

One engine serves all tests, in their order; the last one ends it.
"""

from __future__ import annotations

import asyncio
import os
import resource
import signal
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from gradwire.server.engines.sampling import SamplerConfig, SamplingParams
from gradwire.server.engines.vllm import liveness
from gradwire.server.engines.vllm.engine import VllmSampler
from gradwire.server.engines.vllm.processes import engine_processes
from gradwire.server.errors import ResourceExhausted, Unavailable
from tests.engines.vllm import support
from tests.engines.vllm.support import events, greedy
from tests.large_model import save_large_model

pytestmark = [pytest.mark.slow, pytest.mark.asyncio(loop_scope="module")]

KV_BYTES = 64 << 20
LAYERS = 8


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def large(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[tuple[VllmSampler, int]]:
    """A float32 engine, and the bytes of its weights and its cache."""
    folder = tmp_path_factory.mktemp("llama")
    parameters = save_large_model(folder, layers=LAYERS)
    config = SamplerConfig("large", str(folder), kv_cache_bytes=KV_BYTES, max_model_len=256)
    sampler = await support.started(config)
    yield sampler, 4 * parameters + KV_BYTES
    await sampler.shutdown()


@pytest.mark.parametrize("level", [1, 2])
async def test_memory_is_given_back(large: tuple[VllmSampler, int], level: int) -> None:
    sampler, nbytes = large
    tokens, sums = await greedy(sampler), await sampler.checksums()
    report = await sampler.sleep(level)
    assert report.changed and report.before_bytes - report.after_bytes > 0.8 * nbytes, (report, nbytes)
    assert not (await sampler.sleep(level)).changed
    report = await sampler.wake(None)
    assert report.changed and report.after_bytes - report.before_bytes > 0.8 * nbytes
    assert not (await sampler.wake(None)).changed
    assert await greedy(sampler) == tokens
    assert await sampler.checksums() == sums


async def test_a_sleep_that_fails_leaves_the_engine_awake(large: tuple[VllmSampler, int]) -> None:
    sampler, _ = large
    tokens = await greedy(sampler)
    before = {
        process.pid: resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (1 << 20, resource.RLIM_INFINITY))
        for process in engine_processes(sampler._link.llm)
    }
    with pytest.raises(ResourceExhausted, match=r"stays as it was.* aside in the folder .*File too large"):
        await sampler.sleep(1)
    assert await greedy(sampler) == tokens
    for pid, limit in before.items():
        resource.prlimit(pid, resource.RLIMIT_FSIZE, limit)
    assert (await sampler.sleep(1)).changed
    await sampler.wake(None)
    assert await greedy(sampler) == tokens


async def test_an_engine_that_hangs_is_noticed(large: tuple[VllmSampler, int], monkeypatch: pytest.MonkeyPatch) -> None:
    """While it computes it may take its time; stopped, it is ended, and with it the wait of whoever waits."""
    sampler, _ = large
    monkeypatch.setattr(liveness, "PERIOD_S", 0.1)
    monkeypatch.setattr(liveness, "ANSWER_S", 1.0)
    params = SamplingParams(max_tokens=200, ignore_eos=True)
    for _ in range(15):  # idle, and answering
        await sampler.check_health()
        await asyncio.sleep(0.1)
    waiting = [asyncio.create_task(events(sampler, "Hello", params, stream=True)) for _ in range(2)]
    await asyncio.sleep(0.2)
    for process in engine_processes(sampler._link.llm):
        os.kill(process.pid, signal.SIGSTOP)
    with pytest.raises(Unavailable, match="has not answered for") as caught:
        await asyncio.wait_for(_ill(sampler), 15)
    assert caught.value.reason == "ENGINE_NOT_ANSWERING"
    results = await asyncio.wait_for(asyncio.gather(*waiting, return_exceptions=True), 30)
    assert [type(result) for result in results] == [Unavailable] * 2, results
    with pytest.raises(Unavailable, match="has not answered for"):
        await sampler.check_health()


async def _ill(sampler: VllmSampler) -> None:
    """Until the check says that something is wrong."""
    while True:
        await sampler.check_health()
        await asyncio.sleep(0.1)
