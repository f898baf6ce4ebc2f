"""Adapters in a running engine: each computes as peft does, beside the model itself and each other."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncIterator
from typing import Any

import numpy as np
import peft
import pytest
import pytest_asyncio
import torch

from gradwire.server.engines.sampling import FinishReason, SampleRequest, SamplingParams
from gradwire.server.engines.vllm.engine import VllmSampler
from gradwire.server.engines.weights import AdapterSpec, InFlightPolicy
from gradwire.server.errors import FailedPrecondition, GradwireError, InvalidArgument, NotFound
from tests.engines.vllm import support
from tests.engines.vllm.support import Reference, State, events, folder_state, joined, prompt_of, sample, segment_of

pytestmark = [pytest.mark.slow, pytest.mark.asyncio(loop_scope="module")]

# Longer than two blocks of the prefix cache, so that a second request finds a part of it there.
PROMPT = "A prompt that is long enough to be found in the cache of prefixes, if anything of it may be: " * 2
SPEC = AdapterSpec(rank=4, alpha=8.0)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def engine() -> AsyncIterator[VllmSampler]:
    """`tiny`, fp32, with room for two adapters of rank 6."""
    engine = await support.started(support.config(max_loras=2, max_lora_rank=6))
    yield engine
    await engine.shutdown()


@pytest_asyncio.fixture(loop_scope="module")
async def sampler(engine: VllmSampler) -> AsyncIterator[VllmSampler]:
    """Without adapters before and after."""
    yield engine
    for name in ("one", "two"):
        await engine.remove_adapter(name)


class PeftReference(Reference):
    """`tiny` with an adapter by peft's code."""

    def __init__(self, factors: State, spec: AdapterSpec = SPEC) -> None:
        super().__init__()
        config = peft.LoraConfig(
            r=spec.rank, lora_alpha=int(spec.alpha), target_modules="all-linear", task_type="CAUSAL_LM"
        )
        self.model: Any = peft.get_peft_model(self.model, config).eval()
        assert not peft.set_peft_model_state_dict(self.model, factors).unexpected_keys


def factors(seed: int, rank: int = SPEC.rank) -> State:
    """Random factors on all linear layers, large enough to change what is sampled."""
    generator = torch.Generator().manual_seed(seed)
    made: State = {}
    for name, weight in folder_state().items():
        if weight.ndim == 2 and "embed" not in name:
            stem = f"base_model.model.{name.removesuffix('.weight')}"
            made[f"{stem}.lora_A.weight"] = torch.randn(rank, weight.shape[1], generator=generator) / 8
            made[f"{stem}.lora_B.weight"] = torch.randn(weight.shape[0], rank, generator=generator) / 8
    return made


async def load(
    sampler: VllmSampler,
    name: str,
    state: State,
    version: int,
    spec: AdapterSpec = SPEC,
    policy: InFlightPolicy = InFlightPolicy.KEEP,
) -> None:
    """Pause, load, resume."""
    with segment_of(state) as (segment, manifest):
        await sampler.pause(policy)
        try:
            await sampler.update_adapter(name, spec, segment.name, manifest, version)
        finally:
            await sampler.resume()


async def tokens(sampler: VllmSampler, adapter: str = "", version: int | None = None) -> list[int]:
    found = await sample(sampler, PROMPT, adapter=adapter)
    if version is not None:
        assert [(s.version, s.start, s.end) for s in found.weight_spans] == [(version, 0, len(found.token_ids))]
    return found.token_ids.tolist()


async def test_two_adapters_and_the_model_side_by_side(sampler: VllmSampler) -> None:
    prompt = sampler.tokenize(PROMPT)
    plain = Reference().greedy(prompt)
    assert await tokens(sampler, "", 0) == plain
    first, second, later = (PeftReference(factors(seed)).greedy(prompt) for seed in (1, 2, 3))
    assert len({tuple(plain), tuple(first), tuple(second), tuple(later)}) == 4
    await load(sampler, "one", factors(1), 5)
    await load(sampler, "two", factors(2), 7)
    for _ in range(2):  # the second time with cached prefixes
        found = await asyncio.gather(tokens(sampler, "one", 5), tokens(sampler, "two", 7), tokens(sampler, "", 0))
        assert list(found) == [first, second, plain]
    cached = [prompt_of(await events(sampler, PROMPT, adapter=name)).num_cached_tokens for name in ("one", "")]
    assert min(cached) > 0
    await load(sampler, "one", factors(3), 6)
    found = await asyncio.gather(tokens(sampler, "one", 6), tokens(sampler, "two", 7), tokens(sampler, "", 0))
    assert list(found) == [later, second, plain]
    assert prompt_of(await events(sampler, PROMPT, adapter="two")).num_cached_tokens > 0  # untouched by the other
    assert await sampler.weight_version() == 0


async def test_log_probs_norm_and_checksums(sampler: VllmSampler) -> None:
    state = factors(1)
    await load(sampler, "one", state, 1)
    params = SamplingParams(temperature=0.0, max_tokens=1, prompt_log_probs=0)
    prompt = sampler.tokenize(PROMPT)
    rows = PeftReference(state).log_probs(prompt.tolist())
    found = prompt_of(await events(sampler, PROMPT, params, adapter="one")).log_probs
    assert found is not None
    assert found[1:] == pytest.approx(rows[np.arange(1, len(prompt)), prompt[1:]], abs=1e-4)
    norm = sum(float(tensor.double().square().sum()) for tensor in state.values()) ** 0.5
    assert await sampler.weight_norm("one") == pytest.approx(norm, rel=1e-9)
    sums = {row.name: (row.dtype, row.shape, row.sha256) for row in await sampler.checksums("one")}
    assert sums == {
        name: ("F32", tuple(tensor.shape), hashlib.sha256(tensor.numpy().tobytes()).hexdigest())
        for name, tensor in state.items()
    }
    own = {row.name for row in await sampler.checksums()}
    assert own == set(folder_state())


async def test_a_request_in_flight_goes_on_with_the_new_version(sampler: VllmSampler) -> None:
    await load(sampler, "one", factors(1), 1)
    prompt = sampler.tokenize(PROMPT)
    params = SamplingParams(temperature=0.0, max_tokens=200, ignore_eos=True)
    collected = []
    async for event in sampler.generate(SampleRequest("long", prompt, params, stream=True, adapter="one")):
        collected.append(event)
        if len(collected) == 3:
            await load(sampler, "one", factors(2), 2)
    found = joined(collected)
    spans = support_spans(found.weight_spans)
    assert [version for version, _, _ in spans] == [1, 2]
    cut = spans[0][2]
    assert 0 < cut < 200
    ids = found.token_ids.tolist()
    assert ids[:cut] == PeftReference(factors(1)).greedy(prompt, cut)
    expected = PeftReference(factors(2)).greedy(np.concatenate((prompt, found.token_ids[:cut])), 20)
    assert ids[cut : cut + 20] == expected


def support_spans(spans: Any) -> list[tuple[int, int, int]]:
    """Neighbours of one version as one."""
    merged: list[tuple[int, int, int]] = []
    for span in spans:
        if merged and merged[-1][0] == span.version:
            merged[-1] = (span.version, merged[-1][1], span.end)
        else:
            merged.append((span.version, span.start, span.end))
    return merged


async def test_what_cannot_be_loaded_changes_nothing(sampler: VllmSampler) -> None:
    await load(sampler, "one", factors(1), 1)
    before = await tokens(sampler, "one", 1)
    with pytest.raises(GradwireError, match="max_lora_rank"):
        await load(sampler, "one", factors(1, rank=9), 2, AdapterSpec(9, 9.0))
    with pytest.raises(InvalidArgument, match=r"down_proj.lora_A.weight: shape \[4, 640\].*\[3, 640\]"):
        await load(sampler, "one", factors(1), 2, AdapterSpec(3, 3.0))
    stem, rows = "base_model.model.model.embed_tokens", folder_state()["model.embed_tokens.weight"].shape
    strange = {f"{stem}.lora_A.weight": torch.zeros(4, rows[1]), f"{stem}.lora_B.weight": torch.zeros(rows[0], 4)}
    with pytest.raises(GradwireError, match=r"takes no adapter on 1 of its modules.*embed_tokens"):
        await load(sampler, "one", factors(1) | strange, 2)
    halved = {name: tensor for name, tensor in factors(1).items() if "0.mlp.down_proj.lora_B" not in name}
    with pytest.raises(InvalidArgument, match=r"lora_B\.weight is missing"):
        await load(sampler, "one", halved, 2)
    await load(sampler, "two", factors(2), 1)
    with pytest.raises(FailedPrecondition, match="holds 2 of at most 2 adapters"):
        await load(sampler, "three", factors(3), 1)
    with pytest.raises(NotFound, match="no adapter 'three'"):
        await tokens(sampler, "three")
    assert await tokens(sampler, "one", 1) == before


async def test_removal_ends_its_requests_and_frees_the_slot(sampler: VllmSampler) -> None:
    await load(sampler, "one", factors(1), 1)
    await load(sampler, "two", factors(2), 1)
    params = SamplingParams(max_tokens=300, ignore_eos=True, n=2, seed=1)
    started = asyncio.Event()
    ends: list[FinishReason] = []

    async def stream() -> None:
        tokens_of_prompt = sampler.tokenize(PROMPT)
        async for event in sampler.generate(SampleRequest("s", tokens_of_prompt, params, stream=True, adapter="one")):
            started.set()
            ends.extend(delta.finish_reason for delta in event.deltas if delta.finish_reason)

    task = asyncio.create_task(stream())
    await asyncio.wait_for(started.wait(), 10)
    other = asyncio.create_task(tokens(sampler, "two", 1))
    await sampler.remove_adapter("one")
    await asyncio.wait_for(task, 10)
    assert ends == [FinishReason.ABORT] * 2
    assert await other == PeftReference(factors(2)).greedy(sampler.tokenize(PROMPT))
    with pytest.raises(NotFound, match="no adapter 'one'"):
        await tokens(sampler, "one")
    await sampler.remove_adapter("one")
    await load(sampler, "three", factors(3), 9)
    assert await tokens(sampler, "three", 9) == PeftReference(factors(3)).greedy(sampler.tokenize(PROMPT))
    await sampler.remove_adapter("three")


async def test_new_weights_and_sleep_leave_adapters_on(sampler: VllmSampler) -> None:
    state = folder_state()
    new = support.changed(state, seed=4)
    await load(sampler, "one", factors(1), 3)
    prompt = sampler.tokenize(PROMPT)
    await support.update(sampler, new, 8)
    both = PeftReference(factors(1))
    both.model.base_model.model.load_state_dict(
        {name.replace(".weight", ".base_layer.weight") if is_linear(name) else name: t for name, t in new.items()},
        strict=False,
    )
    assert await tokens(sampler, "one", 3) == both.greedy(prompt)
    assert await sampler.weight_version() == 8
    assert {row.name for row in await sampler.checksums()} == set(state)
    for level, version in ((1, 8), (2, 0)):
        await sampler.sleep(level)
        await sampler.wake(None)
        assert await sampler.weight_version() == version
    assert await tokens(sampler, "one", 3) == PeftReference(factors(1)).greedy(prompt)
    assert await tokens(sampler, "", 0) == Reference().greedy(prompt)


def is_linear(name: str) -> bool:
    return "_proj" in name
