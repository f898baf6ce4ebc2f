"""Sleep gives memory back for real, and wake brings the very same weights."""

from __future__ import annotations

import asyncio

import pytest

from gradwire.server.engines.sampling import FinishReason, SamplingParams
from gradwire.server.engines.vllm.engine import VllmSampler
from gradwire.server.engines.weights import InFlightPolicy, MemoryReport
from gradwire.server.errors import FailedPrecondition, InvalidArgument
from tests.engines.vllm import support
from tests.engines.vllm.support import events, folder_state, greedy, joined, sample, update

pytestmark = [pytest.mark.slow, pytest.mark.asyncio(loop_scope="session")]

KV_BYTES = 128 << 20


def freed(report: MemoryReport) -> int:
    return report.before_bytes - report.after_bytes


async def test_level_1_brings_back_synced_weights(sampler: VllmSampler) -> None:
    new = support.changed(folder_state())
    await update(sampler, new, 4)
    tokens, sums = await greedy(sampler), await sampler.checksums()
    for _ in range(2):
        report = await sampler.sleep(1)
        assert freed(report) > 0.8 * KV_BYTES
        await sampler.wake(None)
        assert await greedy(sampler) == tokens
        assert await sampler.checksums() == sums
        assert await sampler.weight_version() == 4
    await update(sampler, folder_state(), 0)


async def test_level_2_brings_back_the_folders(sampler: VllmSampler) -> None:
    tokens = await greedy(sampler)
    await update(sampler, support.changed(folder_state()), 4)
    assert await greedy(sampler) != tokens
    assert freed(await sampler.sleep(2)) > 0.8 * KV_BYTES
    await sampler.wake(None)
    assert await greedy(sampler) == tokens
    assert await sampler.weight_version() == 0


async def test_weights_first_then_update_then_cache(sampler: VllmSampler) -> None:
    """The order of a training loop: the trainer has the memory, then the weights move, then sampling goes on."""
    new = support.changed(folder_state())
    await update(sampler, new, 1)
    tokens = await greedy(sampler)
    await update(sampler, folder_state(), 2)

    await sampler.sleep(2)
    with pytest.raises(FailedPrecondition, match='"weights" before "kv_cache"'):
        await sampler.wake(["kv_cache"])
    with pytest.raises(FailedPrecondition, match="asleep"):
        await sampler.checksums()
    await sampler.wake(["weights"])
    with pytest.raises(FailedPrecondition, match="kv_cache"):
        await sample(sampler, "Hello")
    await update(sampler, new, 3)
    await sampler.wake(["kv_cache"])
    assert await greedy(sampler) == tokens
    assert await sampler.weight_version() == 3
    await update(sampler, folder_state(), 0)


async def test_asleep_refuses_at_once(sampler: VllmSampler) -> None:
    await sampler.sleep(1)
    for call in (sample(sampler, "Hello"), sampler.weight_norm(), sampler.checksums()):
        with pytest.raises(FailedPrecondition, match="asleep"):
            await asyncio.wait_for(call, 30)
    with (
        support.segment_of(folder_state()) as (segment, manifest),
        pytest.raises(FailedPrecondition, match="asleep"),
    ):
        await sampler.update_weights(segment.name, manifest, 1)
    await sampler.check_health()
    await sampler.wake(None)
    assert len(await greedy(sampler)) == 24


async def test_asking_twice_changes_nothing(sampler: VllmSampler) -> None:
    tokens = await greedy(sampler)
    await sampler.wake(None)
    await sampler.sleep(1)
    await sampler.sleep(2)  # still level 1: the weights are in the file already
    await sampler.wake(["weights"])
    await sampler.wake(["weights"])
    await sampler.sleep(1)
    await sampler.wake(["weights", "kv_cache"])
    await sampler.wake(None)
    assert await greedy(sampler) == tokens


async def test_running_requests_end_with_abort(sampler: VllmSampler) -> None:
    params = SamplingParams(temperature=0, max_tokens=400, ignore_eos=True)
    task = asyncio.create_task(events(sampler, "Hello", params, stream=True))
    await asyncio.sleep(0.1)
    await sampler.sleep(1)
    whole = joined(await asyncio.wait_for(task, 30))
    assert whole.finish_reason is FinishReason.ABORT and 0 < len(whole.token_ids) < 400
    await sampler.wake(None)
    assert await sampler.num_unfinished() == 0


async def test_paused_before_is_paused_after(sampler: VllmSampler) -> None:
    await sampler.pause(InFlightPolicy.ABORT)
    await sampler.sleep(1)
    await sampler.wake(None)
    task = asyncio.create_task(greedy(sampler))
    await asyncio.sleep(0.2)
    assert not task.done()
    await sampler.resume()
    assert len(await task) == 24


async def test_unknown_level_and_tag(sampler: VllmSampler) -> None:
    with pytest.raises(InvalidArgument, match="level"):
        await sampler.sleep(3)
    with pytest.raises(InvalidArgument, match="nap"):
        await sampler.wake(["nap"])
