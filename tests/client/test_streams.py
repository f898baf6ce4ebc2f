"""Streams: joined whole, gaps seen, and cancelled however they are left."""

from __future__ import annotations

import asyncio
import gc

import numpy as np
import pytest

from gradwire.client import AsyncClient, CallCancelledError, DataLossError, FinishReason, JobState
from gradwire.v1 import sampling_pb2
from tests.client.fake import Fake
from tests.client.waiting import until
from tests.client.wire import failure, float32, int32

Delta = sampling_pb2.CompletionDelta
Span = sampling_pb2.WeightSpan


def two_deltas() -> list[list[Delta]]:
    """ "hello" in two pieces, sampled by versions 3, 3 and 4."""
    first = Delta(text="he", token_ids=int32(1), weight_spans=[Span(version=3, start=0, end=1)])
    spans = [Span(version=3, start=1, end=2), Span(version=4, start=2, end=3)]
    second = Delta(first_token_index=1, text="llo", token_ids=int32(2, 3), weight_spans=spans)
    for delta in (first, second):
        size = len(delta.token_ids) // 4
        delta.log_probs.values = float32(*[-1.0] * size)
        delta.log_probs.top_k = 2
        delta.log_probs.top_token_ids = int32(*range(2 * size))
        delta.log_probs.top_values = float32(*[-2.0] * 2 * size)
    return [[first], [second]]


async def test_items_and_the_joined_result(fake: Fake, client: AsyncClient) -> None:
    fake.deltas = two_deltas()
    async with client.sampling.generate_stream("hi", max_tokens=3) as stream:
        assert stream.params.max_tokens == 3
        assert stream.prompt.token_ids.tolist() == [1, 2]
        texts = [delta.text async for delta in stream]
        result = await stream.result()
    assert texts == ["he", "llo"]
    completion = result[0].completions[0]
    assert result.text == "hello"
    assert completion.token_ids.tolist() == [1, 2, 3]
    assert completion.token_ids.dtype == np.int32
    assert completion.log_probs is not None
    assert completion.log_probs.tolist() == [-1, -1, -1]
    assert completion.top_log_probs is not None
    assert completion.top_log_probs.token_ids.shape == (3, 2)
    assert [(s.version, s.start, s.end) for s in completion.weight_spans] == [(3, 0, 2), (4, 2, 3)]
    assert completion.weight_version == 4
    assert completion.finish_reason is FinishReason.LENGTH
    assert result.usage.completion_tokens == 3
    assert result[0].prompt.num_cached_tokens == 1


async def test_text_reads_to_the_end(fake: Fake, client: AsyncClient) -> None:
    fake.deltas = two_deltas()
    assert await client.sampling.generate_stream("hi").text() == "hello"


async def test_several_completions_in_one_message(fake: Fake, client: AsyncClient) -> None:
    fake.deltas = [
        [Delta(index=0, text="a", token_ids=int32(1)), Delta(index=1, text="x", token_ids=int32(7))],
        [Delta(index=1, first_token_index=1, text="y", token_ids=int32(8))],
    ]
    stream = client.sampling.generate_stream("hi", n=2)
    assert [(d.index, d.text) async for d in stream] == [(0, "a"), (1, "x"), (1, "y")]
    assert [c.text for c in (await stream.result()).completions] == ["a", "xy"]
    with pytest.raises(ValueError, match="2 completions"):
        await stream.text()


@pytest.mark.parametrize("second_begins", [0, 2])
async def test_a_gap_raises(fake: Fake, client: AsyncClient, second_begins: int) -> None:
    fake.deltas = two_deltas()
    fake.deltas[1][0].first_token_index = second_begins
    stream = client.sampling.generate_stream("hi")
    with pytest.raises(DataLossError, match="token 1 was expected"):
        await stream.result()


async def test_not_known_before_it_begins(client: AsyncClient) -> None:
    stream = client.sampling.generate_stream("hi")
    with pytest.raises(RuntimeError, match="has not begun"):
        _ = stream.params
    with pytest.raises(RuntimeError, match="has not ended"):
        _ = stream.usage
    stream.cancel()


async def test_error_in_the_stream_is_raised_where_it_is_read(fake: Fake, client: AsyncClient) -> None:
    fake.failures["GenerateStream"] = [failure("FAILED_PRECONDITION", "asleep")]
    stream = client.sampling.generate_stream("hi")
    with pytest.raises(Exception, match="asleep"):
        async for _ in stream:
            pass


async def test_break_cancels(fake: Fake, client: AsyncClient) -> None:
    fake.deltas, fake.stall = two_deltas(), True
    stream = client.sampling.generate_stream("hi")
    async for _ in stream:
        await until(lambda: fake.lingering["GenerateStream"])
        break
    await until(lambda: fake.cancelled["GenerateStream"] == 1)
    with pytest.raises(CallCancelledError, match="cancelled here"):
        await stream.result()


async def test_leaving_the_block_cancels(fake: Fake, client: AsyncClient) -> None:
    fake.stall = True

    async def leave() -> None:
        async with client.sampling.generate_stream("hi"):
            await until(lambda: fake.lingering["GenerateStream"])
            raise KeyError

    with pytest.raises(KeyError):
        await leave()
    await until(lambda: fake.cancelled["GenerateStream"] == 1)


async def test_dropping_it_cancels(fake: Fake, client: AsyncClient) -> None:
    fake.deltas, fake.stall = two_deltas(), True
    stream = client.sampling.generate_stream("hi")
    await stream.__anext__()
    await until(lambda: fake.lingering["GenerateStream"])
    del stream
    gc.collect()
    await until(lambda: fake.cancelled["GenerateStream"] == 1)


async def test_cancel_wakes_a_reader(fake: Fake, client: AsyncClient) -> None:
    fake.stall = True
    stream = client.sampling.generate_stream("hi")
    reading = asyncio.create_task(stream.result())
    await until(lambda: fake.lingering["GenerateStream"])
    await asyncio.sleep(0.05)
    stream.cancel()
    with pytest.raises(CallCancelledError):
        await reading
    stream.cancel()
    await until(lambda: fake.cancelled["GenerateStream"] == 1)


async def test_cancelling_the_reading_task_is_asyncios_own_error(fake: Fake, client: AsyncClient) -> None:
    fake.stall = True
    reading = asyncio.create_task(client.sampling.generate_stream("hi").result())
    await until(lambda: fake.lingering["GenerateStream"])
    await asyncio.sleep(0.05)
    reading.cancel()
    with pytest.raises(asyncio.CancelledError):
        await reading
    await until(lambda: fake.cancelled["GenerateStream"] == 1)


async def test_a_stream_read_to_its_end_is_not_cancelled(fake: Fake, client: AsyncClient) -> None:
    fake.deltas = two_deltas()
    for _ in range(3):
        async for _ in client.sampling.generate_stream("hi"):
            pass
    gc.collect()
    await asyncio.sleep(0.05)
    assert fake.cancelled["GenerateStream"] == 0


async def test_watching_a_job(client: AsyncClient) -> None:
    updates = [update async for update in client.jobs.watch(7)]
    assert [update.job.state for update in updates] == [JobState.READY, JobState.DESTROYED]


async def test_closing_the_client_ends_its_streams(fake: Fake) -> None:
    fake.stall = True
    client = AsyncClient(fake.address)
    stream = client.sampling.generate_stream("hi")
    reading = asyncio.create_task(stream.result())
    await until(lambda: fake.lingering["GenerateStream"])
    await asyncio.sleep(0.05)
    await client.close()
    await client.close()
    with pytest.raises((CallCancelledError, asyncio.CancelledError)):
        await reading
    await until(lambda: fake.cancelled["GenerateStream"] == 1)
    with pytest.raises(RuntimeError, match="closed"):
        await client.jobs.list()
