"""Calls that end for the caller without an answer: what their errors say, and that repeating them is safe."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable

import numpy as np
import pytest
from google.rpc import error_details_pb2

from gradwire.client import (
    AsyncClient,
    CallCancelledError,
    Client,
    DeadlineExceededError,
    GradwireError,
    InvalidArgumentError,
    UnavailableError,
)
from gradwire.client._core.rpc import RPCS
from gradwire.client.arctic import SyncArcticRLClient
from gradwire.client.config import RetryConfig
from tests.client.fake import Fake
from tests.client.waiting import until
from tests.client.wire import failure

BATCH = {"input_ids": [[1, 2]]}
MAYBE = r"may have carried this call out, or may still do so: repeat it with request_id='(mine|.{36})'"
ONCE = RetryConfig(max_attempts=1)
CALLS: dict[str, Callable[[Client], object]] = {
    "JobService/CreateJobs": lambda c: c.jobs.create(training={}, request_id="mine"),
    "RolloutService/OpenRollouts": lambda c: c.rollouts.open_many([{"task_id": "t"}], request_id="mine"),
    "RolloutService/CollectRollouts": lambda c: c.rollouts.collect(request_id="mine"),
    "TrainingService/FwdBwd": lambda c: c.training.fwd_bwd(1, BATCH, request_id="mine"),
    "TrainingService/Step": lambda c: c.training.step(1, request_id="mine"),
    "TrainingService/ZeroGrad": lambda c: c.training.zero_grad(1, request_id="mine"),
    "TrainingService/SaveCheckpoint": lambda c: c.training.save_checkpoint(1, request_id="mine"),
    "TrainingService/LoadCheckpoint": lambda c: c.training.load_checkpoint(1, "a", request_id="mine"),
    "WeightService/Sync": lambda c: c.weights.sync(1, request_id="mine"),
}


def reason(text: str) -> error_details_pb2.ErrorInfo:
    return error_details_pb2.ErrorInfo(reason=text)


def test_every_call_that_carries_an_id_gives_it_to_its_error() -> None:
    fields = {path.removeprefix("/gradwire.v1."): rpc.request.DESCRIPTOR.fields_by_name for path, rpc in RPCS.items()}
    assert CALLS.keys() == {name for name, known in fields.items() if "operation" in known or "request_id" in known}
    with Client("127.0.0.1:1", retry=ONCE) as client:
        for name, call in CALLS.items():
            with pytest.raises(UnavailableError, match="no gradwire server") as caught:
                call(client)
            assert caught.value.request_id == "mine", name
            assert "carried" not in str(caught.value)  # nothing was sent
        with pytest.raises(UnavailableError) as caught:
            client.training.list_checkpoints()
        assert caught.value.request_id is None


async def test_a_deadline_names_the_id_that_the_call_is_repeated_with(fake: Fake, client: AsyncClient) -> None:
    fake.stall = True
    with pytest.raises(DeadlineExceededError, match=MAYBE) as caught:
        await client.training.step(1, timeout=0.1)
    error = caught.value
    assert error.request_id
    assert error.request_id in str(error)
    fake.stall = False
    assert (await client.training.step(1, request_id=error.request_id)).step == 1
    assert (await client.training.step(1, request_id=error.request_id)).step == 1
    assert {request.operation.request_id for request in fake.requests["Step"]} == {error.request_id}
    fake.stall = True
    with pytest.raises(DeadlineExceededError) as caught:
        await client.sampling.generate("hi", timeout=0.1)
    assert caught.value.request_id is None
    assert "carried" not in str(caught.value)
    with pytest.raises(DeadlineExceededError, match="may still do so: look before you repeat it"):
        await client.weights.commit_update("u1", timeout=0.1)


def test_a_deadline_of_a_blocking_client(sync_fake: Fake, sync_client: Client) -> None:
    sync_fake.stall = True
    for call in (
        lambda: sync_client.training.fwd_bwd(1, BATCH, timeout=0.1),
        lambda: sync_client.weights.sync(1, timeout=0.1),
    ):
        with pytest.raises(DeadlineExceededError, match=MAYBE) as caught:
            call()
        assert caught.value.request_id


async def test_a_connection_that_is_lost(fake: Fake) -> None:
    lost, draining = failure("UNAVAILABLE", "Socket closed"), failure("UNAVAILABLE", "draining", reason("DRAINING"))
    wrong = failure("INVALID_ARGUMENT", "no", reason("FIELDS"))
    retry = RetryConfig(max_attempts=2, initial_backoff_s=0.01)
    async with AsyncClient(fake.address, retry=retry) as client:
        for failures in ([lost, lost], [lost, draining], [draining, lost]):
            fake.failures["Step"] = list(failures)
            with pytest.raises(UnavailableError, match=MAYBE) as caught:
                await client.training.step(1, request_id="mine")
            assert (caught.value.request_id, caught.value.attempts) == ("mine", 2)
        fake.failures["Step"] = [draining, draining]
        with pytest.raises(UnavailableError) as caught:
            await client.training.step(1)
        assert "carried" not in str(caught.value)
        fake.failures["Step"] = [lost, wrong]  # the second speaks for the first: they have the same id
        with pytest.raises(InvalidArgumentError) as refused:
            await client.training.step(1, request_id="mine")
        assert refused.value.request_id == "mine"
        assert "carried" not in str(refused.value)


async def test_an_upload_that_fails_is_its_calls_failure(fake: Fake, plain_client: AsyncClient) -> None:
    fake.failures["UploadBatch"] = [failure("INTERNAL", "disk", reason("INTERNAL"))]
    large = {"input_ids": np.ones((2, 1_000_000), np.int32)}
    with pytest.raises(GradwireError, match="disk") as caught:
        await plain_client.training.fwd_bwd(1, large, request_id="mine")
    assert caught.value.request_id == "mine"
    assert "carried" not in str(caught.value)


async def test_closing_the_client_ends_a_call_with_its_id(fake: Fake) -> None:
    fake.stall = True
    client = AsyncClient(fake.address)
    task = asyncio.create_task(client.training.step(1, request_id="mine"))
    await until(lambda: fake.requests["Step"])
    await client.close()
    with pytest.raises(CallCancelledError, match="closed.*" + MAYBE) as caught:
        await task
    assert (caught.value.request_id, caught.value.method) == ("mine", "TrainingService/Step")


def test_closing_a_blocking_client_ends_a_call_with_its_id(sync_fake: Fake) -> None:
    sync_fake.stall = True
    client = Client(sync_fake.address)
    threading.Timer(0.2, client.close).start()
    with pytest.raises(CallCancelledError, match="closed.*" + MAYBE) as caught:
        client.training.step(1, request_id="mine")
    assert caught.value.request_id == "mine"


def test_an_arctic_client_takes_and_tells_the_id(sync_fake: Fake) -> None:
    protocol = "http" if sync_fake.http else "grpc"
    config = {"backend": "remote", "host": "127.0.0.1", "port": sync_fake.port, "comm_protocol": protocol}
    client = SyncArcticRLClient({"model_name": "tiny", "training_gpus": 1, **config})
    sync_fake.stall = True
    threading.Timer(0.2, lambda: client.close()).start()
    with pytest.raises(CallCancelledError, match="closed.*" + MAYBE) as caught:
        client.step(request_id="mine")
    assert caught.value.request_id == "mine"
    assert sync_fake.requests["Step"][0].operation.request_id == "mine"
