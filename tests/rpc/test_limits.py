"""A full server says so, and still answers who asks for its health."""

from __future__ import annotations

import asyncio
from pathlib import Path

from grpc import StatusCode
from grpc_health.v1 import health_pb2, health_pb2_grpc

from gradwire.v1 import job_pb2, sampling_pb2
from tests.rpc.support import failure, serving, text_prompt, until

GENERATE = sampling_pb2.GenerateRequest(prompts=[text_prompt("ab")])


async def test_a_service_that_is_full_refuses_with_a_time_to_retry(tmp_path: Path) -> None:
    async with serving(tmp_path, limits={"max_calls_per_service": 2}) as served:
        engine = served.engines.samplers[0]
        engine.token_gate = asyncio.Semaphore(0)
        running = [asyncio.ensure_future(served.sampling.Generate(GENERATE)) for _ in range(2)]
        await until(lambda: len(engine.open) == 2)
        failed = await failure(served.sampling.Generate(GENERATE))
        assert (failed.code, failed.reason) == (StatusCode.RESOURCE_EXHAUSTED, "TOO_MANY_CALLS")
        assert failed.retry_after > 0
        await served.jobs.ListJobs(job_pb2.ListJobsRequest())  # other services have room of their own
        health = health_pb2_grpc.HealthStub(served.channel)
        assert (await health.Check(health_pb2.HealthCheckRequest())).status == health_pb2.HealthCheckResponse.SERVING
        for _ in range(4):
            engine.token_gate.release()
        await asyncio.gather(*running)
        engine.token_gate = None
        await served.sampling.Generate(GENERATE)


async def test_there_is_room_again_after_calls_that_failed_or_were_cancelled(tmp_path: Path) -> None:
    async with serving(tmp_path, limits={"max_calls_per_service": 1}) as served:
        for _ in range(3):
            failed = await failure(served.sampling.Generate(sampling_pb2.GenerateRequest()))
            assert failed.code is StatusCode.INVALID_ARGUMENT
        engine = served.engines.samplers[0]
        engine.token_gate = asyncio.Semaphore(0)
        call = served.sampling.Generate(GENERATE)
        await engine.opened.wait()
        call.cancel()
        await until(lambda: not engine.open)
        engine.token_gate = None
        await served.sampling.Generate(GENERATE)


async def test_the_number_of_jobs_is_limited(tmp_path: Path) -> None:
    async with serving(tmp_path, limits={"max_jobs": 1}) as served:
        request = job_pb2.CreateJobsRequest(training=job_pb2.TrainingJobConfig())
        failed = await failure(served.jobs.CreateJobs(request))
        assert (failed.code, failed.reason) == (StatusCode.RESOURCE_EXHAUSTED, "TOO_MANY_JOBS")
