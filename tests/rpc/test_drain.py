"""The end of a server: new calls are refused with details, what runs may finish, a second signal hurries."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from grpc import StatusCode, aio
from grpc_health.v1 import health_pb2, health_pb2_grpc

from gradwire.v1 import job_pb2, rollout_pb2, sampling_pb2
from tests.fake_engines import FakeTrainer
from tests.rpc.support import Failure, Served, failure, serving, text_prompt, until

GENERATE = sampling_pb2.GenerateRequest(prompts=[text_prompt("ab")])
STREAM = sampling_pb2.GenerateStreamRequest(prompt=text_prompt("abcd"))


@pytest.fixture
async def patient(tmp_path: Path) -> AsyncIterator[Served]:
    """A server that waits for its calls as long as they take."""
    async with serving(tmp_path, limits={"drain_seconds": 600.0}) as running:
        yield running
        running.app.hurry()


async def running_stream(served: Served) -> AsyncIterator[sampling_pb2.GenerateStreamResponse]:
    """A stream that has had one token and waits for more."""
    served.engines.samplers[0].token_gate = asyncio.Semaphore(1)
    events = aiter(served.sampling.GenerateStream(STREAM))
    for _ in range(2):
        await anext(events)
    return events


async def until_draining(served: Served) -> None:
    health = health_pb2_grpc.HealthStub(served.channel)
    not_serving = health_pb2.HealthCheckResponse.NOT_SERVING

    async def draining() -> bool:
        return bool((await health.Check(health_pb2.HealthCheckRequest())).status == not_serving)

    await until(draining)


async def test_a_running_stream_finishes_while_new_calls_are_refused(patient: Served) -> None:
    events = await running_stream(patient)
    stopping = asyncio.create_task(patient.app.stop())
    await until_draining(patient)
    async with aio.insecure_channel(patient.app.grpc_address) as other:
        for served in (patient, Served(patient.app, patient.engines, other)):
            failed = await failure(served.sampling.Generate(GENERATE))
            assert (failed.code, failed.reason) == (StatusCode.UNAVAILABLE, "DRAINING")
            assert failed.retry_after > 0
    gate = patient.engines.samplers[0].token_gate
    assert gate is not None
    for _ in range(3):
        gate.release()
    rest = [event async for event in events]
    assert rest[-1].end.completions[0].num_tokens == 4
    await stopping
    assert patient.engines.samplers[0].shutdowns == 1


async def test_a_second_signal_ends_what_still_runs(patient: Served, caplog: pytest.LogCaptureFixture) -> None:
    events = await running_stream(patient)
    unary = asyncio.ensure_future(failure(patient.sampling.Generate(GENERATE)))
    await until(lambda: len(patient.engines.samplers[0].open) == 2)
    stopping = asyncio.create_task(patient.app.stop())
    await until_draining(patient)
    patient.app.hurry()
    with pytest.raises(aio.AioRpcError) as caught:
        await anext(events)
    for failed in (Failure(caught.value), await unary):
        assert (failed.code, failed.reason) == (StatusCode.UNAVAILABLE, "DRAINING")
    await stopping
    assert not patient.engines.samplers[0].open
    (line,) = [record for record in caplog.records if record.levelname == "WARNING"]
    assert line.getMessage() == "cut 2 calls: 1 SamplingService/GenerateStream, 1 SamplingService/Generate"


async def test_the_drain_has_an_end(tmp_path: Path) -> None:
    async with serving(tmp_path, limits={"drain_seconds": 0.05}) as served:
        events = await running_stream(served)
        await served.app.stop()
        with pytest.raises(aio.AioRpcError):
            await anext(events)
        assert not served.engines.samplers[0].open


async def test_whoever_only_watches_does_not_hold_the_server(patient: Served) -> None:
    job = aiter(patient.jobs.WatchJob(job_pb2.WatchJobRequest()))
    health = aiter(health_pb2_grpc.HealthStub(patient.channel).Watch(health_pb2.HealthCheckRequest()))
    await anext(job)
    await anext(health)
    await patient.app.stop()
    with pytest.raises(aio.AioRpcError) as caught:
        await anext(job)
    assert caught.value.code() is StatusCode.UNAVAILABLE


async def test_a_creation_that_is_under_way_is_undone(tmp_path: Path) -> None:
    async with serving(tmp_path) as served:
        begun = asyncio.Event()

        def prepare(engine: FakeTrainer) -> None:
            engine.start_gate = asyncio.Event()
            begun.set()

        served.engines.prepare_trainer = prepare
        events = aiter(served.jobs.CreateJobs(job_pb2.CreateJobsRequest(training=job_pb2.TrainingJobConfig())))
        await anext(events)
        await begun.wait()
        await served.app.stop()
        assert served.app.jobs.all() == []
        assert [engine.shutdowns for engine in (*served.engines.samplers, *served.engines.trainers)] == [1, 1]


async def test_who_waits_for_rollouts_is_told_at_once(patient: Served) -> None:
    waiting = patient.rollouts.CollectRollouts(rollout_pb2.CollectRolloutsRequest(wait={"seconds": 3000}))
    following = patient.rollouts.WatchRollouts(rollout_pb2.WatchRolloutsRequest())
    await until(lambda: patient.app._admission.active == 2)
    stopping = asyncio.create_task(patient.app.stop())
    for call in (waiting, following):
        failed = await asyncio.wait_for(failure(call), 20)
        assert (failed.code, failed.reason) == (StatusCode.UNAVAILABLE, "DRAINING")
    await asyncio.wait_for(stopping, 20)
