"""Retries: bounded, once applied, as long apart as the server asks, and only where safe."""

from __future__ import annotations

import asyncio
import math
import time
from typing import Any

import numpy as np
import pytest

from gradwire.client import (
    AsyncClient,
    CallCancelledError,
    Client,
    DeadlineExceededError,
    NotFoundError,
    UnavailableError,
)
from gradwire.client.config import RetryConfig
from tests.client.fake import Fake
from tests.client.waiting import until
from tests.client.wire import failure, retry_info


async def test_a_step_whose_answer_was_lost_is_applied_once(fake: Fake, client: AsyncClient) -> None:
    fake.drop_responses = 2
    result = await client.training.step(1)
    assert result.step == 1
    sent = {request.operation.request_id for request in fake.requests["Step"]}
    assert len(fake.requests["Step"]) == 3
    assert len(sent) == 1
    assert (await client.training.step(1)).step == 2


async def test_request_id_and_sequence_number_are_the_callers(fake: Fake, client: AsyncClient) -> None:
    await client.training.step(1, request_id="mine", sequence_number=4)
    operation = fake.requests["Step"][0].operation
    assert (operation.request_id, operation.sequence_number) == ("mine", 4)
    await client.weights.sync(1)
    await client.training.fwd_bwd(1, {"input_ids": [[1, 2]]})
    assert len({fake.requests[name][0].operation.request_id for name in ("Sync", "FwdBwd")}) == 2
    with pytest.raises(ValueError, match="request_id is empty"):
        await client.training.step(1, request_id="")


async def test_the_wait_that_the_server_asks_for_is_kept(fake: Fake, client: AsyncClient) -> None:
    fake.failures["Generate"] = [failure("UNAVAILABLE", "draining", retry_info(0.4))]
    begin = time.monotonic()
    await client.sampling.generate("hi")
    assert time.monotonic() - begin >= 0.4


async def test_attempts_are_bounded(fake: Fake) -> None:
    fake.failures["Generate"] = [failure("UNAVAILABLE", "down")] * 10
    retry = RetryConfig(max_attempts=3, initial_backoff_s=0.01)
    async with AsyncClient(fake.address, retry=retry) as client:
        with pytest.raises(UnavailableError, match="sent 3 times") as caught:
            await client.sampling.generate("hi")
    assert caught.value.attempts == 3
    assert len(fake.requests["Generate"]) == 3


@pytest.mark.parametrize("kind", ["unary", "stream", "blocking"])
async def test_what_ended_the_call_is_told_when_nobody_answers_later(kind: str) -> None:
    fake = await Fake().start()
    fake.stall = kind != "stream"  # which would have begun then, and is not sent again
    fake.failures["GenerateStream"] = [failure("UNAVAILABLE", "shutting down", retry_info(0.2))]
    retry = RetryConfig(max_attempts=2, initial_backoff_s=0.01)

    def block() -> None:
        with Client(fake.address, retry=retry) as client:
            client.sampling.generate("hi")

    async with AsyncClient(fake.address, retry=retry) as client:
        call: asyncio.Future[Any]
        if kind == "blocking":
            call = asyncio.ensure_future(asyncio.to_thread(block))
        elif kind == "stream":
            call = asyncio.ensure_future(client.sampling.generate_stream("hi").result())
        else:
            call = asyncio.ensure_future(client.sampling.generate("hi"))
        await until(lambda: bool(fake.requests["Generate"] or fake.requests["GenerateStream"]))
        await fake.stop()
        with pytest.raises(UnavailableError, match=r"went away during the call: .*; and since then no gradwire server"):
            await call


async def test_no_attempt_begins_that_the_deadline_would_not_see(fake: Fake, client: AsyncClient) -> None:
    fake.failures["Generate"] = [failure("UNAVAILABLE", "draining", retry_info(9.0))]
    begin = time.monotonic()
    with pytest.raises(UnavailableError):
        await client.sampling.generate("hi", timeout=5.0)
    assert time.monotonic() - begin < 5.0


async def test_only_what_is_safe_to_repeat_is(fake: Fake, client: AsyncClient) -> None:
    fake.failures["CreateToken"] = [failure("UNAVAILABLE", "down")]
    with pytest.raises(UnavailableError):
        await client.admin.create_token("acme", ["training"])
    fake.failures["GenerateReply"] = [failure("UNAVAILABLE", "down")]
    with pytest.raises(UnavailableError):
        await client.inference.generate("hi")
    fake.failures["GetAction"] = [failure("UNAVAILABLE", "down")] * 2
    with pytest.raises(UnavailableError):
        await client.inference.get_action(np.zeros(2), session_id="s")
    assert [len(fake.requests[name]) for name in ("CreateToken", "GenerateReply", "GetAction")] == [1, 1, 1]
    await client.inference.get_action(np.zeros(2))
    assert len(fake.requests["GetAction"]) == 3


async def test_other_codes_are_not_retried(fake: Fake, client: AsyncClient) -> None:
    fake.failures["Generate"] = [failure("INTERNAL", "bug")]
    with pytest.raises(Exception, match="bug"):
        await client.sampling.generate("hi")
    assert len(fake.requests["Generate"]) == 1


async def test_a_connection_that_drops_in_the_call(fake: Fake, client: AsyncClient) -> None:
    fake.stall = True
    task = asyncio.create_task(client.training.step(1))
    await until(lambda: fake.requests["Step"])
    fake.stall = False
    address = fake.address
    await fake.stop()
    await fake.start(address)
    assert (await task).step == 1
    assert len({request.operation.request_id for request in fake.requests["Step"]}) == 1


async def test_a_large_message_is_retried_too(fake: Fake, plain_client: AsyncClient) -> None:
    # The channel's own retries stop at 256 KiB.
    fake.failures["FwdBwd"] = [failure("UNAVAILABLE", "down")]
    await plain_client.training.fwd_bwd(1, {"input_ids": np.ones((4, 100_000), np.int32)})
    assert [len(request.batch.input_ids.dense.data) for request in fake.requests["FwdBwd"]] == [1_600_000] * 2


async def test_an_upload_is_retried_whole(fake: Fake, client: AsyncClient) -> None:
    fake.failures["UploadBatch"] = [failure("UNAVAILABLE", "down")]
    ids = np.arange(2_000_000, dtype=np.int32).reshape(2, -1)
    uploaded = await client.training.upload_batch(1, {"input_ids": ids})
    assert len(fake.requests["UploadBatch"]) == 2
    assert uploaded.batch_id == "0"


async def test_a_stream_is_retried_until_its_first_message(fake: Fake, client: AsyncClient) -> None:
    fake.failures["GenerateStream"] = [failure("UNAVAILABLE", "down")] * 2
    assert await client.sampling.generate_stream("hi").result() is not None
    assert len(fake.requests["GenerateStream"]) == 3


async def test_a_stream_waits_as_long_as_the_server_asks(fake: Fake, client: AsyncClient) -> None:
    fake.failures["GenerateStream"] = [failure("UNAVAILABLE", "draining", retry_info(0.4))]
    begin = time.monotonic()
    await client.sampling.generate_stream("hi").result()
    assert time.monotonic() - begin >= 0.4
    fake.failures["GenerateStream"] = [failure("UNAVAILABLE", "draining", retry_info(9.0))]
    begin = time.monotonic()
    with pytest.raises(UnavailableError):
        await client.sampling.generate_stream("hi", timeout=5.0).result()
    assert time.monotonic() - begin < 5.0


async def test_a_stream_is_cancelled_while_it_waits(fake: Fake, client: AsyncClient) -> None:
    fake.failures["GenerateStream"] = [failure("UNAVAILABLE", "draining", retry_info(9.0))] * 5
    stream = client.sampling.generate_stream("hi")
    reading = asyncio.create_task(stream.result())
    await until(lambda: fake.requests["GenerateStream"])
    await asyncio.sleep(0.1)
    begin = time.monotonic()
    stream.cancel()
    with pytest.raises(CallCancelledError):
        await reading
    assert time.monotonic() - begin < 5.0
    assert len(fake.requests["GenerateStream"]) == 1


async def test_after_its_first_message_a_stream_is_not_begun_again(fake: Fake, client: AsyncClient) -> None:
    fake.stall = True
    stream = client.sampling.generate_stream("hi")
    async with stream:
        await fake.stop()
        with pytest.raises((UnavailableError, CallCancelledError)):
            await stream.result()
        await fake.start(fake.address)
    assert len(fake.requests["GenerateStream"]) == 1


async def test_job_creation_goes_on_under_the_same_id(fake: Fake, client: AsyncClient) -> None:
    fake.failures["CreateJobs"] = [failure("UNAVAILABLE", "lost")]
    lines: list[str] = []
    jobs = await client.jobs.create(training={}, on_progress=lambda line: lines.append(line.message))
    assert jobs.training.job_id == 7
    assert lines == ["loading", "compiling"] * 2
    assert len({request.request_id for request in fake.requests["CreateJobs"]}) == 1


async def test_a_job_destroyed_by_a_lost_attempt_is_destroyed(fake: Fake, client: AsyncClient) -> None:
    fake.failures["DestroyJob"] = [failure("UNAVAILABLE", "lost"), failure("NOT_FOUND", "no job 7")]
    await client.jobs.destroy(7)
    fake.failures["DestroyJob"] = [failure("NOT_FOUND", "no job 7")]
    with pytest.raises(NotFoundError):
        await client.jobs.destroy(7)


async def test_deadlines(fake: Fake) -> None:
    fake.stall = True
    async with AsyncClient(fake.address, timeout=1.0) as client:
        with pytest.raises(DeadlineExceededError, match="longer timeout"):
            await client.sampling.generate("hi")
        with pytest.raises(TimeoutError):
            await client.sampling.generate("hi", timeout=0.5)
        await until(lambda: fake.cancelled["Generate"] == 2)
        fake.stall = False
        await client.sampling.generate("hi", timeout=math.inf)
        for wrong in (0, -1, math.nan):
            with pytest.raises(ValueError, match="seconds and above 0"):
                await client.sampling.generate("hi", timeout=wrong)


async def test_cancelling_the_task_cancels_the_call(fake: Fake, client: AsyncClient) -> None:
    fake.stall = True
    task = asyncio.create_task(client.sampling.generate("hi"))
    await until(lambda: fake.lingering["Generate"])
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await until(lambda: fake.cancelled["Generate"] == 1)


def test_a_retry_config_is_checked() -> None:
    for wrong in ({"max_attempts": 0}, {"initial_backoff_s": 9.0}, {"backoff_multiplier": 0.5}):
        with pytest.raises(ValueError, match=r"must be|at most"):
            RetryConfig(**wrong)


async def test_a_segment_that_several_attempts_named_is_not_used_again(fake: Fake, client: AsyncClient) -> None:
    """A server may still be at the first of them."""
    pool, large = client._connection.segments, np.arange(1 << 19, dtype=np.int32)
    for failures, left in (([], 1), ([failure("UNAVAILABLE", "down", retry_info(0.01))], 0), ([], 1)):
        fake.failures["GetAction"] = failures
        result = await client.inference.get_action(large)
        np.testing.assert_array_equal(result.action, large)
        assert len(pool._all) == left
