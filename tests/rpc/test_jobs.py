"""JobService on fake engines: creation with progress, repeated and abandoned calls, watching, leases."""

from __future__ import annotations

import asyncio
import json
from datetime import timedelta

import pytest
from google.protobuf import duration_pb2
from grpc import StatusCode

from gradwire.server.cli import main
from gradwire.server.errors import GradwireError
from gradwire.v1 import job_pb2
from tests.fake_engines import FakeSampler, FakeTrainer
from tests.rpc.support import Served, failure, until

TRAINING = job_pb2.TrainingJobConfig()
SAMPLING = job_pb2.SamplingJobConfig()


def both(request_id: str = "") -> job_pb2.CreateJobsRequest:
    return job_pb2.CreateJobsRequest(training=TRAINING, sampling=SAMPLING, request_id=request_id)


async def job_ids(served: Served) -> list[int]:
    return [job.job_id for job in (await served.jobs.ListJobs(job_pb2.ListJobsRequest())).jobs]


async def until_jobs(served: Served, ids: list[int]) -> None:
    async def there() -> bool:
        return await job_ids(served) == ids

    await until(there)


class Gates:
    """Holds trainers back in their start."""

    def __init__(self, served: Served) -> None:
        self.open = asyncio.Event()
        self.reached = asyncio.Event()
        served.engines.prepare_trainer = self._prepare

    def _prepare(self, engine: FakeTrainer) -> None:
        engine.start_gate = self.open
        self.reached.set()


async def test_progress_comes_before_the_jobs(served: Served) -> None:
    responses = [response async for response in served.jobs.CreateJobs(both())]
    kinds = [response.WhichOneof("event") for response in responses]
    assert kinds == ["progress"] * (len(responses) - 1) + ["created"]
    lines = [(response.progress.job_id, response.progress.message) for response in responses[:-1]]
    assert (2, "loading") in lines and (3, "loading") in lines
    jobs = responses[-1].created.jobs
    assert [(job.job_id, job.kind) for job in jobs] == [
        (2, job_pb2.JOB_KIND_SAMPLING),
        (3, job_pb2.JOB_KIND_TRAINING),
    ]
    assert all(job.state == job_pb2.JOB_STATE_READY and not job.built_in for job in jobs)
    assert jobs[1].training.loss == "grpo"


async def test_progress_is_sent_while_the_engine_starts(served: Served) -> None:
    gates = Gates(served)
    call = served.jobs.CreateJobs(job_pb2.CreateJobsRequest(training=TRAINING))
    events = aiter(call)
    assert (await anext(events)).progress.message.startswith("starting training_job/2")
    gates.open.set()
    responses = [response async for response in events]
    assert responses[-1].HasField("created")


async def test_a_failed_start_leaves_no_job(served: Served) -> None:
    def fail(engine: FakeTrainer) -> None:
        engine.start_error = GradwireError("NO_MEMORY", "no memory for the optimizer")

    served.engines.prepare_trainer = fail
    failed = await failure(served.jobs.CreateJobs(both()))
    assert (failed.reason, failed.text) == ("NO_MEMORY", "no memory for the optimizer")
    assert await job_ids(served) == [1]


async def test_a_cancelled_creation_without_an_id_is_undone(served: Served) -> None:
    gates = Gates(served)
    call = served.jobs.CreateJobs(both())
    await gates.reached.wait()
    call.cancel()
    await until_jobs(served, [1])
    assert [engine.shutdowns for engine in (*served.engines.samplers[1:], *served.engines.trainers)] == [1, 1]


async def test_a_cancelled_creation_with_an_id_goes_on_for_the_retry(served: Served) -> None:
    gates = Gates(served)
    call = served.jobs.CreateJobs(both("r1"))
    await gates.reached.wait()
    call.cancel()
    gates.open.set()
    jobs = await served.create(both("r1"))
    assert [job.job_id for job in jobs] == [2, 3]
    assert await job_ids(served) == [1, 2, 3]


async def test_the_same_id_returns_the_same_jobs_and_another_payload_is_refused(served: Served) -> None:
    first = await served.create(both("r1"))
    assert await served.create(both("r1")) == first
    assert await job_ids(served) == [1, 2, 3]
    other = job_pb2.CreateJobsRequest(training=TRAINING, request_id="r1")
    assert (await failure(served.jobs.CreateJobs(other))).code is StatusCode.ALREADY_EXISTS


async def test_nothing_asked_for_is_an_error(served: Served) -> None:
    failed = await failure(served.jobs.CreateJobs(job_pb2.CreateJobsRequest()))
    assert failed.code is StatusCode.INVALID_ARGUMENT


async def test_a_loss_is_checked_before_the_engine_starts(served: Served) -> None:
    config = job_pb2.TrainingJobConfig(loss="grpo")
    config.loss_config.update({"clip_ratio_lo": 0.2})
    failed = await failure(served.jobs.CreateJobs(job_pb2.CreateJobsRequest(training=config)))
    assert failed.code is StatusCode.INVALID_ARGUMENT
    assert failed.fields == ["training.loss_config.clip_ratio_lo"]
    assert served.engines.trainers == []


@pytest.mark.parametrize(("dtype", "meant"), [("bf16", "bfloat16"), ("Float32", "float32")])
async def test_a_word_that_is_none_of_a_fields_gets_the_nearest(served: Served, dtype: str, meant: str) -> None:
    config = job_pb2.TrainingJobConfig(dtype=dtype)
    failed = await failure(served.jobs.CreateJobs(job_pb2.CreateJobsRequest(training=config)))
    assert failed.fields == ["training.dtype"]
    assert f"'{dtype}' is none of float32, bfloat16. Did you mean '{meant}'?" in failed.text


async def test_jobs_are_listed_by_kind_and_destroyed_once(served: Served) -> None:
    await served.create(both())
    training = await served.jobs.ListJobs(job_pb2.ListJobsRequest(kind=job_pb2.JOB_KIND_TRAINING))
    assert [job.job_id for job in training.jobs] == [3]
    await served.jobs.DestroyJob(job_pb2.DestroyJobRequest(job_id=3))
    assert (await failure(served.jobs.DestroyJob(job_pb2.DestroyJobRequest(job_id=3)))).code is StatusCode.NOT_FOUND
    built_in = await failure(served.jobs.DestroyJob(job_pb2.DestroyJobRequest(job_id=1)))
    assert (built_in.code, built_in.reason) == (StatusCode.PERMISSION_DENIED, "BUILT_IN_JOB")


async def test_a_watch_shows_the_state_now_then_each_change_and_ends_with_the_job(served: Served) -> None:
    job_id = await served.training_job()
    call = served.jobs.WatchJob(job_pb2.WatchJobRequest(job_id=job_id))
    events = aiter(call)
    first = await anext(events)
    assert (first.job.state, first.message) == (job_pb2.JOB_STATE_READY, "")
    await served.jobs.DestroyJob(job_pb2.DestroyJobRequest(job_id=job_id))
    rest = [response async for response in events]
    assert [(response.job.state, response.message) for response in rest] == [(job_pb2.JOB_STATE_DESTROYED, "destroyed")]


async def test_a_watch_of_a_job_that_fails_to_start_ends(served: Served) -> None:
    served.engines.prepare_sampler = self_destruct = SelfDestruct()
    creating = served.jobs.CreateJobs(job_pb2.CreateJobsRequest(sampling=SAMPLING))
    await self_destruct.made.wait()
    call = served.jobs.WatchJob(job_pb2.WatchJobRequest(job_id=2))
    events = aiter(call)
    assert (await anext(events)).job.state == job_pb2.JOB_STATE_STARTING
    self_destruct.gate.set()
    assert [response.job.state async for response in events] == [job_pb2.JOB_STATE_DESTROYED]
    assert (await failure(creating)).reason == "NO_MEMORY"


class SelfDestruct:
    """Prepares samplers that fail to start, when the gate opens."""

    def __init__(self) -> None:
        self.gate = asyncio.Event()
        self.made = asyncio.Event()

    def __call__(self, engine: FakeSampler) -> None:
        engine.start_gate = self.gate
        engine.start_error = GradwireError("NO_MEMORY", "no memory")
        self.made.set()


async def test_a_watch_tells_why_a_job_failed(served: Served) -> None:
    job_id = await served.training_job()
    call = served.jobs.WatchJob(job_pb2.WatchJobRequest(job_id=job_id))
    events = aiter(call)
    await anext(events)
    served.engines.trainers[0].dead = "worker 0 was killed"
    served.app.monitor.look_after_all()
    (last,) = [response async for response in events]
    assert (last.job.state, last.job.error) == (job_pb2.JOB_STATE_FAILED, "worker 0 was killed")


async def test_leases_are_shown_and_renewed(served: Served) -> None:
    lease = duration_pb2.Duration()
    lease.FromTimedelta(timedelta(seconds=60))
    (job,) = await served.create(job_pb2.CreateJobsRequest(training=TRAINING, lease=lease))
    assert job.HasField("lease_expires_at")
    response = await served.jobs.Heartbeat(job_pb2.HeartbeatRequest(job_ids=[job.job_id, 1]))
    assert [entry.job_id for entry in response.leases] == [job.job_id, 1]
    assert response.leases[0].HasField("expires_at") and not response.leases[1].HasField("expires_at")
    assert (await failure(served.jobs.Heartbeat(job_pb2.HeartbeatRequest(job_ids=[9])))).code is StatusCode.NOT_FOUND


async def test_the_command_line_finds_and_destroys_what_a_script_left_behind(
    served: Served, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("GRADWIRE_ADDRESS", served.app.grpc_address)

    async def gradwire(*arguments: str, code: int = 0) -> tuple[str, str]:
        assert await asyncio.to_thread(main, ["job", *arguments]) == code
        out, err = capsys.readouterr()
        return out, err

    await served.training_job()
    leased = job_pb2.CreateJobsRequest(training=TRAINING, lease=duration_pb2.Duration(seconds=60))
    await served.create(leased)
    served.app.jobs.all()[1].fail("out of memory")
    lines = [line.split() for line in (await gradwire("list"))[0].splitlines()]
    assert [line[:3] for line in lines] == [
        ["JOB", "KIND", "STATE"], ["1", "sampling", "ready"], ["2", "training", "failed"], ["3", "training", "ready"],
    ]  # fmt: skip
    assert lines[1][-4:] == ["the", "server's", "own", "-"] and lines[2][-4:] == ["none", "out", "of", "memory"]
    rows = json.loads((await gradwire("list", "--kind", "training", "--json"))[0])
    assert [(row["job_id"], row["lease_expires_at"] is None) for row in rows] == [(2, True), (3, False)]
    out, err = await gradwire("destroy", "2", "9", "3", code=1)
    assert out == "destroyed job 2\ndestroyed job 3\n" and "no job 9" in err
    assert await job_ids(served) == [1]
    assert "cannot be destroyed" in (await gradwire("destroy", "1", code=1))[1]
