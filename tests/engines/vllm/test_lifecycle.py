"""Clients that go away, an engine that is killed, and what is left after a shutdown."""

from __future__ import annotations

import asyncio
import dataclasses
import os
import random
import signal
import subprocess
import sys
import textwrap
import time
from typing import Any

import psutil  # type: ignore[import-untyped]
import pytest

from gradwire.server.engines.sampling import FinishReason, SampleRequest, SamplingParams
from gradwire.server.engines.vllm.engine import VllmSampler
from gradwire.server.engines.vllm.processes import engine_processes
from gradwire.server.engines.weights import InFlightPolicy
from gradwire.server.errors import InvalidArgument, Unavailable
from gradwire.server.models.resolve import resolve_model
from tests.engines.vllm import support
from tests.engines.vllm.support import events, greedy, until_idle

pytestmark = [pytest.mark.slow, pytest.mark.asyncio(loop_scope="session")]

ENDLESS = SamplingParams(max_tokens=450, ignore_eos=True)


async def assert_all_slots_are_free(sampler: VllmSampler) -> None:
    """As many requests as the engine has slots run at once, so no slot is held by a ghost."""
    await until_idle(sampler)
    params = SamplingParams(max_tokens=4, ignore_eos=True)
    async with asyncio.timeout(20):
        await asyncio.gather(*(events(sampler, "Hello", params) for _ in range(32)))
    assert await sampler.num_unfinished() == 0


@pytest.mark.parametrize("n", [1, 4])
async def test_cancelling_the_task(sampler: VllmSampler, n: int) -> None:
    params = SamplingParams(n=n, max_tokens=450, ignore_eos=True)
    tasks = [asyncio.create_task(events(sampler, "Hello", params, stream=True)) for _ in range(8)]
    async with asyncio.timeout(5):
        while await sampler.num_unfinished() < 8 * n:  # noqa: ASYNC110  the engine has no event for it
            await asyncio.sleep(0.01)
    for task in tasks:
        task.cancel()
    results = await asyncio.gather(*tasks, return_exceptions=True)
    assert all(isinstance(result, asyncio.CancelledError) for result in results)
    assert await sampler.num_unfinished() == 0
    await assert_all_slots_are_free(sampler)


async def test_cancelling_before_the_first_token(sampler: VllmSampler) -> None:
    for _ in range(20):
        task = asyncio.create_task(events(sampler, "Hello", ENDLESS))
        await asyncio.sleep(0)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
    await assert_all_slots_are_free(sampler)


async def test_tokens_are_counted_once_and_cached_ones_apart(sampler: VllmSampler) -> None:
    prompt = "What is read a second time is found in the prefix cache, whole blocks of it. " * 4
    params = SamplingParams(n=2, max_tokens=5, ignore_eos=True)
    for stream in (False, True):
        before = dataclasses.replace(sampler.tokens)
        await events(sampler, prompt, params, stream=stream)
        assert sampler.tokens.prompt - before.prompt == len(sampler.tokenize(prompt))
        assert sampler.tokens.sampled - before.sampled == 10
    assert 32 <= sampler.tokens.cached - before.cached < len(sampler.tokenize(prompt))


async def test_closing_the_iterator(sampler: VllmSampler) -> None:
    stream = sampler.generate(SampleRequest("x", sampler.tokenize("Hello"), ENDLESS, stream=True))
    await anext(stream)
    assert await sampler.num_unfinished() == 1
    load = await sampler.load()
    assert (load.running, load.waiting) == (1, 0) and 0 < load.kv_cache_usage < 1
    await stream.aclose()  # type: ignore[attr-defined]
    assert await sampler.num_unfinished() == 0
    load = await sampler.load()
    assert (load.running, load.kv_cache_usage) == (0, 0)
    with pytest.raises(StopAsyncIteration):
        await anext(stream)
    await assert_all_slots_are_free(sampler)


async def test_cancelled_while_paused(sampler: VllmSampler) -> None:
    await sampler.pause(InFlightPolicy.KEEP)
    task = asyncio.create_task(events(sampler, "Hello", ENDLESS))
    await asyncio.sleep(0.1)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    await sampler.resume()
    await assert_all_slots_are_free(sampler)


async def test_same_request_id_at_once(sampler: VllmSampler) -> None:
    """The ids that vLLM sees are ours."""
    params = SamplingParams(temperature=0, max_tokens=30, ignore_eos=True)
    both = await asyncio.gather(*(events(sampler, prompt, params, stream=True) for prompt in ("Hello", "Good bye")))
    alone = [await events(sampler, prompt, params) for prompt in ("Hello", "Good bye")]
    assert [support.joined(e).text for e in both] == [support.joined(e).text for e in alone]


async def test_killed_engine() -> None:
    """Everything that waits ends with Unavailable within seconds, and the front lives on."""
    victim = await support.started(support.config())
    running = engine_processes(victim._link.llm)
    try:
        waiting: list[asyncio.Task[Any]] = [
            asyncio.create_task(events(victim, "Hello", ENDLESS, stream=True)) for _ in range(3)
        ]
        await asyncio.sleep(0.1)
        await victim.pause(InFlightPolicy.KEEP)
        waiting.append(asyncio.create_task(greedy(victim)))
        await asyncio.sleep(0.1)
        for process in running:
            os.kill(process.pid, signal.SIGKILL)
        waiting.append(asyncio.create_task(victim.weight_version()))
        began = time.monotonic()
        results = await asyncio.wait_for(asyncio.gather(*waiting, return_exceptions=True), 10)
        assert [type(result) for result in results] == [Unavailable] * len(waiting), results
        assert time.monotonic() - began < 5
        for call in (victim.check_health(), greedy(victim), victim.sleep(1), victim.pause(InFlightPolicy.KEEP)):
            with pytest.raises(Unavailable):
                await asyncio.wait_for(call, 5)
    finally:
        began = time.monotonic()
        await victim.shutdown()
        assert time.monotonic() - began < 10


async def test_shutdown_leaves_nothing() -> None:
    before = dict(os.environ)
    random_state = random.getstate()
    engine = await support.started(support.config())
    assert dict(os.environ) == before  # vLLM's own changes are not left to processes started later
    assert random.getstate() == random_state  # vLLM would seed the front with the engine's seed
    running = engine_processes(engine._link.llm)
    assert running
    await engine.pause(InFlightPolicy.KEEP)
    task = asyncio.create_task(events(engine, "Hello", ENDLESS, stream=True))
    await asyncio.sleep(0.1)
    began = time.monotonic()
    await engine.shutdown()
    assert time.monotonic() - began < 10
    assert not any(process.is_running() for process in running)
    try:  # which of the two depends on how far the engine gets with its own shutdown
        assert support.joined(await asyncio.wait_for(task, 5)).finish_reason is FinishReason.ABORT
    except Unavailable:
        pass
    await engine.shutdown()
    for call in (engine.check_health(), greedy(engine)):
        with pytest.raises(Unavailable):
            await call


async def test_engine_dies_with_its_front() -> None:
    code = textwrap.dedent(
        """
        import asyncio, os, sys
        from gradwire.server.engines.sampling import SamplerConfig
        from gradwire.server.engines.vllm.engine import VllmSampler
        from gradwire.server.engines.vllm.processes import engine_processes

        async def main():
            engine = VllmSampler(SamplerConfig("tiny", sys.argv[1], kv_cache_bytes=64 << 20))
            await engine.start(lambda line: None)
            print("PIDS", *[process.pid for process in engine_processes(engine._link.llm)], flush=True)
            os.kill(os.getpid(), 9)

        if __name__ == "__main__":
            asyncio.run(main())
        """
    )
    folder = str(resolve_model("tiny"))

    def run() -> list[int]:
        done = subprocess.run([sys.executable, "-c", code, folder], stdout=subprocess.PIPE, text=True, check=False)
        (line,) = [line for line in done.stdout.splitlines() if line.startswith("PIDS")]
        return [int(pid) for pid in line.split()[1:]]

    left = [psutil.Process(pid) for pid in await asyncio.to_thread(run) if psutil.pid_exists(pid)]
    _, alive = await asyncio.to_thread(psutil.wait_procs, left, 10)
    assert not alive


async def test_cancelled_while_it_starts() -> None:
    children = psutil.Process().children(recursive=True)
    engine = VllmSampler(support.config())
    task = asyncio.create_task(engine.start(lambda line: None))
    await asyncio.sleep(4)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert set(psutil.Process().children(recursive=True)) <= set(children)


async def test_before_the_start() -> None:
    engine = VllmSampler(support.config())
    for call in (greedy_unstarted(engine), engine.check_health()):
        with pytest.raises(Unavailable, match="not"):
            await call
    await engine.shutdown()


async def greedy_unstarted(engine: VllmSampler) -> None:
    engine.tokenize("Hello")


async def test_configuration_that_does_not_fit() -> None:
    engine = VllmSampler(support.config(max_model_len=1 << 20))
    with pytest.raises(InvalidArgument, match="max_model_len"):
        await engine.start(lambda line: None)
    with pytest.raises(InvalidArgument, match="enforce_eager"):
        await VllmSampler(support.config(enforce_eager=False)).start(lambda line: None)
    await engine.shutdown()
