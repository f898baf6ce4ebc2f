"""New weights into a running engine: they are the ones that sample, all of them or none."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncIterator

import numpy as np
import pytest
import pytest_asyncio
import torch

from gradwire.server.engines.sampling import FinishReason, SampleEvent, SamplingParams
from gradwire.server.engines.sharedmem import SharedSegment
from gradwire.server.engines.vllm import engine as engine_module
from gradwire.server.engines.vllm.engine import VllmSampler
from gradwire.server.engines.weights import InFlightPolicy, WeightManifest
from gradwire.server.errors import GradwireError, InvalidArgument
from tests.engines.vllm import support
from tests.engines.vllm.support import Reference, State, events, folder_state, greedy, joined, prompt_of, update

pytestmark = [pytest.mark.slow, pytest.mark.asyncio(loop_scope="session")]

PROMPT = "Hello there"


@pytest_asyncio.fixture(loop_scope="session")
async def original(sampler: VllmSampler) -> AsyncIterator[State]:
    """The folder's weights; put back, as version 0, when the test is over."""
    state = folder_state()
    yield state
    await update(sampler, state, 0)


def norm(state: State) -> float:
    return sum(float(tensor.double().square().sum()) for tensor in state.values()) ** 0.5


def checksums(state: State) -> dict[str, str]:
    return {
        name: hashlib.sha256(tensor.contiguous().view(-1).view(torch.uint8).numpy()).hexdigest()
        for name, tensor in state.items()
    }


async def assert_serves(sampler: VllmSampler, reference: Reference, state: State, version: int) -> None:
    """The engine's tokens, norm and checksums are those of `state`."""
    reference.load(state)
    assert await greedy(sampler, PROMPT) == reference.greedy(sampler.tokenize(PROMPT))
    assert await sampler.weight_version() == version
    assert await sampler.weight_norm() == pytest.approx(norm(state), rel=1e-10)
    rows = await sampler.checksums()
    assert {row.name: row.sha256 for row in rows} == checksums(state)
    assert all(row.shape == tuple(state[row.name].shape) and row.dtype == "F32" for row in rows)


async def test_tied(sampler: VllmSampler, reference: Reference, original: State) -> None:
    await assert_serves(sampler, reference, original, 0)
    for version in (1, 2):
        new = support.changed(original, seed=version)
        await update(sampler, new, version)
        await assert_serves(sampler, reference, new, version)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), 0.0, 1e30])
async def test_weights_that_went_wrong_are_served_and_proved_as_they_are(
    sampler: VllmSampler, original: State, value: float
) -> None:
    """Only the trainer knows what it wants; the engine lives on and tells no lie about what it has."""
    wrong = {name: torch.full_like(tensor, value) for name, tensor in original.items()}
    await update(sampler, wrong, 1)
    assert len(await greedy(sampler, PROMPT)) == 24
    found = await sampler.weight_norm()
    assert found == pytest.approx(norm(wrong), rel=1e-6, nan_ok=True)
    assert {row.name: row.sha256 for row in await sampler.checksums()} == checksums(wrong)


async def test_untied_beside_the_tied_one(sampler: VllmSampler) -> None:
    """A second engine in the same front, with an output layer of its own."""
    second = await support.started(support.config("tiny-untied"))
    try:
        reference, state = Reference("tiny-untied"), folder_state("tiny-untied")
        await assert_serves(second, reference, state, 0)
        new = support.changed(state)
        await update(second, new, 5)
        await assert_serves(second, reference, new, 5)
        assert await sampler.weight_version() == 0
    finally:
        await second.shutdown()
    assert len(await greedy(sampler)) == 24


async def test_other_dtypes_are_converted(sampler: VllmSampler, reference: Reference, original: State) -> None:
    new = {name: tensor.bfloat16() for name, tensor in support.changed(original).items()}
    await update(sampler, new, 3)
    await assert_serves(sampler, reference, {name: tensor.float() for name, tensor in new.items()}, 3)


async def test_log_probs_follow(sampler: VllmSampler, reference: Reference, original: State) -> None:
    new = support.changed(original)
    await update(sampler, new, 1)
    reference.load(new)
    prompt = sampler.tokenize("some prompt that is scored")
    got = prompt_of(await events(sampler, prompt, SamplingParams(max_tokens=1, prompt_log_probs=0))).log_probs
    expected = reference.log_probs(prompt.tolist())[np.arange(len(prompt)), prompt]
    assert got is not None
    np.testing.assert_allclose(got[1:], expected[1:], atol=1e-4)


async def test_prefix_cache_is_forgotten(sampler: VllmSampler, reference: Reference, original: State) -> None:
    """A cached prefix of the old weights would change the tokens after it."""
    prompt = sampler.tokenize("a prefix that is long enough to fill blocks of the cache " * 6)
    await events(sampler, prompt)
    new = support.changed(original)
    await update(sampler, new, 1)
    reference.load(new)
    after = await events(sampler, prompt)
    assert prompt_of(after).num_cached_tokens == 0
    assert joined(after).token_ids.tolist() == reference.greedy(prompt)


async def streamed_over_an_update(
    sampler: VllmSampler, state: State, version: int, policy: InFlightPolicy, tokens: int = 300
) -> list[SampleEvent]:
    params = SamplingParams(temperature=0, max_tokens=tokens, ignore_eos=True, log_probs=0)
    task = asyncio.create_task(events(sampler, PROMPT, params, stream=True))
    await asyncio.sleep(0.1)
    assert not task.done()
    await update(sampler, state, version, policy)
    return await task


async def test_keep_goes_on_with_the_new_weights(sampler: VllmSampler, reference: Reference, original: State) -> None:
    new = support.changed(original)
    collected = await streamed_over_an_update(sampler, new, 4, InFlightPolicy.KEEP)
    whole = joined(collected)
    assert whole.finish_reason is FinishReason.LENGTH and len(whole.token_ids) == 300
    versions = {span.version for span in whole.weight_spans}
    assert versions == {0, 4}
    change = min(span.start for span in whole.weight_spans if span.version == 4)
    covered = [position for span in whole.weight_spans for position in range(span.start, span.end)]
    assert covered == list(range(300)) and all(span.start >= change for span in whole.weight_spans if span.version == 4)

    # Every token and log-prob is that of the version its span names, given all tokens before it:
    # nothing that the old weights have cached is left.
    tokens = [*sampler.tokenize(PROMPT).tolist(), *whole.token_ids.tolist()]
    first = len(tokens) - 300
    assert whole.log_probs is not None
    for state, part in ((original, slice(0, change)), (new, slice(change, 300))):
        reference.load(state)
        expected = reference.log_probs(tokens)[first:][part]
        assert expected.argmax(-1).tolist() == whole.token_ids[part].tolist()
        np.testing.assert_allclose(whole.log_probs[part], expected.max(-1), atol=1e-4)


async def test_spans_of_a_request_that_does_not_stream(sampler: VllmSampler, original: State) -> None:
    params = SamplingParams(n=2, seed=1, max_tokens=200, ignore_eos=True)
    task = asyncio.create_task(events(sampler, PROMPT, params))
    await asyncio.sleep(0.1)
    await update(sampler, support.changed(original), 9)
    (event,) = await task
    for delta in event.deltas:
        assert [span.version for span in delta.weight_spans] == [0, 9]
        assert (delta.weight_spans[0].start, delta.weight_spans[-1].end) == (0, 200)


async def test_wait_ends_on_the_old_weights(sampler: VllmSampler, original: State) -> None:
    whole = joined(await streamed_over_an_update(sampler, support.changed(original), 6, InFlightPolicy.WAIT))
    assert {span.version for span in whole.weight_spans} == {0} and len(whole.token_ids) == 300


async def test_abort_ends_at_once(sampler: VllmSampler, original: State) -> None:
    whole = joined(await streamed_over_an_update(sampler, support.changed(original), 6, InFlightPolicy.ABORT))
    assert whole.finish_reason is FinishReason.ABORT and 0 < len(whole.token_ids) < 300


async def test_requests_that_come_while_paused_wait(sampler: VllmSampler) -> None:
    await sampler.pause(InFlightPolicy.KEEP)
    task = asyncio.create_task(greedy(sampler))
    await asyncio.sleep(0.2)
    assert not task.done()
    await sampler.resume()
    assert len(await task) == 24


async def refused(sampler: VllmSampler, state: State, manifest: WeightManifest | None = None) -> GradwireError:
    with support.segment_of(state) as (segment, own):
        await sampler.pause(InFlightPolicy.KEEP)
        try:
            with pytest.raises(GradwireError) as caught:
                await sampler.update_weights(segment.name, manifest or own, 77)
        finally:
            await sampler.resume()
    return caught.value


async def test_failure_in_the_middle_keeps_the_old(
    sampler: VllmSampler, reference: Reference, original: State, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the front's check off, the worker fails at the last tensor, after it has read the others."""
    monkeypatch.setattr(engine_module, "check_manifest", lambda manifest, shapes: None)
    before = support.changed(original, seed=1)
    await update(sampler, before, 1)
    bad = support.changed(original, seed=2)
    last = list(bad)[-1]
    for broken in ({**bad, last: bad[last][:-1]}, {k: v for k, v in bad.items() if k != last}):
        error = await refused(sampler, broken)
        assert error.reason == "WEIGHT_UPDATE_FAILED" and "old weights stay" in error.message
        await assert_serves(sampler, reference, before, 1)
    await update(sampler, bad, 2)
    await assert_serves(sampler, reference, bad, 2)


async def test_cancelled_in_the_middle_keeps_the_old(
    sampler: VllmSampler, reference: Reference, original: State
) -> None:
    new = support.changed(original)
    with support.segment_of(new) as (segment, manifest):
        await sampler.pause(InFlightPolicy.KEEP)
        task = asyncio.create_task(sampler.update_weights(segment.name, manifest, 8))
        await asyncio.sleep(0.002)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await sampler.resume()
    await assert_serves(sampler, reference, original, 0)
    await update(sampler, new, 8)
    await assert_serves(sampler, reference, new, 8)


async def test_manifest_that_does_not_fit(sampler: VllmSampler, original: State) -> None:
    missing = {name: tensor for name, tensor in original.items() if name != "model.norm.weight"}
    error = await refused(sampler, missing)
    assert isinstance(error, InvalidArgument) and "model.norm.weight is missing" in error.message
    error = await refused(sampler, {**original, "model.extra": torch.zeros(2)})
    assert "model.extra: the model has no such tensor" in error.message
    assert await sampler.weight_version() == 0 and len(await greedy(sampler)) == 24


async def test_segment_that_is_gone_or_too_small(sampler: VllmSampler, original: State) -> None:
    with support.segment_of(original) as (segment, manifest):
        pass
    with pytest.raises(InvalidArgument, match="no shared-memory segment"):
        await sampler.update_weights(segment.name, manifest, 1)
    with SharedSegment.create(64) as small:
        with pytest.raises(InvalidArgument, match="the segment has 64 bytes"):
            await sampler.update_weights(small.name, manifest, 1)
        small.unlink()
