"""Seeds: the same tokens alone and under load, where prompts are read over several steps."""

from __future__ import annotations

import asyncio

import pytest

from gradwire.server.engines.sampling import SamplingParams
from gradwire.server.engines.vllm.engine import VllmSampler
from gradwire.server.engines.weights import InFlightPolicy
from tests.engines.vllm.support import events, joined, sample, until_idle

pytestmark = [pytest.mark.slow, pytest.mark.asyncio(loop_scope="session")]


async def completions(sampler: VllmSampler, prompt: str, params: SamplingParams) -> list[list[int]]:
    collected = await events(sampler, prompt, params)
    return [joined(collected, index).token_ids.tolist() for index in range(params.n)]


async def test_under_load_as_alone(sampler: VllmSampler) -> None:
    """12 prompts of up to 200 tokens, 8 completions each, 64 tokens a step: every prefill is split."""
    prompts = [f"{number}: " + "a quick brown fox " * (number % 11 + 1) for number in range(12)]
    params = [SamplingParams(n=8, seed=100 + number, max_tokens=10, ignore_eos=True) for number in range(12)]
    pairs = list(zip(prompts, params, strict=True))
    alone = [await completions(sampler, prompt, wanted) for prompt, wanted in pairs]
    for _ in range(2):
        await sampler.reset_prefix_cache()
        loaded = await asyncio.gather(*(completions(sampler, prompt, wanted) for prompt, wanted in pairs))
        assert loaded == alone


async def test_preempted_in_the_middle(sampler: VllmSampler) -> None:
    """A request that loses its cache in the middle goes on with the random numbers it would have had."""
    params = SamplingParams(seed=7, max_tokens=200, ignore_eos=True)
    prompt = "something rather long to begin with, longer than a step of the engine can read at once " * 2
    undisturbed = (await sample(sampler, prompt, params)).token_ids.tolist()

    task = asyncio.create_task(events(sampler, prompt, params, stream=True))
    await asyncio.sleep(0.05)
    await sampler.pause(InFlightPolicy.KEEP)
    assert not task.done()
    await sampler.reset_prefix_cache()
    await sampler.resume()
    assert joined(await task).token_ids.tolist() == undisturbed
    await until_idle(sampler)


async def test_seeds_differ(sampler: VllmSampler) -> None:
    one, two, again = [
        (await sample(sampler, "Hello", SamplingParams(seed=seed, max_tokens=20, ignore_eos=True))).text
        for seed in (1, 2, 1)
    ]
    assert one == again != two
