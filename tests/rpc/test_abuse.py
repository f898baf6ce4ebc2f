"""Callers that send rubbish, go away in the middle, or ask for too much."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from grpc import StatusCode

from gradwire.server.domain import registry
from gradwire.server.domain.updates import MAX_OPEN_UPDATES
from gradwire.server.engines.weights import MemoryReport
from gradwire.server.errors import InvalidArgument, Unavailable
from gradwire.v1 import job_pb2, sampling_pb2, weight_pb2
from tests.fake_engines import FakeTrainer
from tests.rpc.support import Failure, Served, failure, text_prompt, until
from tests.rpc.test_weights import begin_request, trained_job

RUBBISH = (b"\xff" * 20, b"\x0a\x05ab", b"\x0a" * 999)


@pytest.mark.parametrize("data", RUBBISH)
@pytest.mark.parametrize("method", ["SamplingService/Generate", "JobService/GetJob"])
async def test_bytes_that_are_no_message_are_the_callers_fault(served: Served, method: str, data: bytes) -> None:
    channel: Any = served.channel
    failed = await failure(channel.unary_unary(f"/gradwire.v1.{method}")(data))
    assert (failed.code, failed.reason) == (StatusCode.INVALID_ARGUMENT, "NOT_A_MESSAGE")


@pytest.mark.parametrize(
    ("kind", "method"),
    [
        ("unary_stream", "SamplingService/GenerateStream"),
        ("stream_unary", "TrainingService/UploadBatch"),
        ("stream_unary", "WeightService/TransferUpdate"),
    ],
)
async def test_so_they_are_in_streams(served: Served, kind: str, method: str, caplog: pytest.LogCaptureFixture) -> None:
    stub = getattr(served.channel, kind)(f"/gradwire.v1.{method}")
    failed = await failure(stub(RUBBISH[0] if kind == "unary_stream" else iter([RUBBISH[0]])))
    assert isinstance(failed, Failure)
    assert (failed.code, failed.reason) == (StatusCode.INVALID_ARGUMENT, "NOT_A_MESSAGE")
    assert "Traceback" not in caplog.text


async def test_dropped_weights_are_not_called_newer_than_they_are(served: Served) -> None:
    await served.weights.Sync(weight_pb2.SyncRequest(training_job_id=await trained_job(served)))
    await served.sampling.Sleep(sampling_pb2.SleepRequest(level=2))
    await served.sampling.Wake(sampling_pb2.WakeRequest())
    assert (await served.weights.GetVersion(weight_pb2.GetVersionRequest())).weight_version == 0
    request = sampling_pb2.GenerateRequest(prompts=[text_prompt("ab")], min_weight_version=1)
    assert (await failure(served.sampling.Generate(request))).reason == "WEIGHTS_TOO_OLD"


async def test_a_caller_that_leaves_while_the_sampler_falls_asleep(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, go_on = asyncio.Event(), asyncio.Event()

    async def sleep(level: int) -> MemoryReport:
        begun.set()
        await go_on.wait()
        return MemoryReport(2, 1)

    monkeypatch.setattr(served.engines.samplers[0], "sleep", sleep)
    call = served.sampling.Sleep(sampling_pb2.SleepRequest())
    await asyncio.wait_for(begun.wait(), 30)
    call.cancel()
    await asyncio.sleep(0.05)
    go_on.set()

    async def asleep() -> bool:
        job = (await served.jobs.GetJob(job_pb2.GetJobRequest())).job
        return bool(job.state == job_pb2.JOB_STATE_SLEEPING)

    await until(asleep)


async def test_an_update_that_cannot_fit_takes_no_memory(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    served.engines.samplers[0].manifest_error = InvalidArgument.at("manifest[0]", "the model has no such tensor")
    monkeypatch.setattr("gradwire.server.engines.sharedmem.SharedSegment.create", None)
    assert (await failure(served.weights.BeginUpdate(begin_request()))).fields == ["manifest[0]"]


async def test_updates_that_nobody_ends_are_bounded(served: Served) -> None:
    calls = [served.weights.BeginUpdate(begin_request()) for _ in range(MAX_OPEN_UPDATES)]
    begun = [await call for call in calls]
    failed = await failure(served.weights.BeginUpdate(begin_request()))
    assert (failed.code, failed.reason) == (StatusCode.RESOURCE_EXHAUSTED, "TOO_MANY_UPDATES")
    assert failed.retry_after > 0
    for update in begun:
        await served.weights.AbortUpdate(weight_pb2.AbortUpdateRequest(update_id=update.update_id))
    assert (await served.weights.BeginUpdate(begin_request())).update_id


async def test_what_an_engine_refuses_of_a_configuration_is_named_as_the_request_names_it(served: Served) -> None:
    def refuse(engine: FakeTrainer) -> None:
        engine.start_error = InvalidArgument.at("config.num_workers", "more than this machine can run")

    served.engines.prepare_trainer = refuse
    request = job_pb2.CreateJobsRequest(training=job_pb2.TrainingJobConfig())
    assert (await failure(served.jobs.CreateJobs(request))).fields == ["training.num_workers"]


async def test_a_stuck_engine_keeps_neither_its_job_nor_a_sync(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "PATIENCE_S", 0.1)
    trainer = await trained_job(served)
    (job,) = await served.create(job_pb2.CreateJobsRequest(sampling=job_pb2.SamplingJobConfig()))
    engine = served.engines.samplers[-1]
    engine.update_gate = asyncio.Event()  # it does not come out of the update by itself

    async def shutdown() -> None:
        assert engine.update_gate is not None
        engine.update_error = Unavailable("ENGINE_NOT_RUNNING", "the engine was stopped")
        engine.update_gate.set()

    monkeypatch.setattr(engine, "shutdown", shutdown)
    sync = served.weights.Sync(weight_pb2.SyncRequest(training_job_id=trainer, sampling_job_id=job.job_id))
    await asyncio.wait_for(engine.update_begun.wait(), 30)
    await served.jobs.DestroyJob(job_pb2.DestroyJobRequest(job_id=job.job_id), timeout=10)
    assert (await failure(sync)).reason == "ENGINE_NOT_RUNNING"
