"""What an operator reads: why calls failed, what became of jobs, and what a server waits for at its end."""

from __future__ import annotations

import asyncio
import re

import pytest
from prometheus_client import CollectorRegistry

from gradwire.server import draining
from gradwire.server.domain.registry import JobRegistry
from gradwire.server.errors import GradwireError, InvalidArgument, NotFound, ResourceExhausted, Unavailable
from gradwire.server.observability.metrics import CallMetrics
from gradwire.server.rpc.interceptors.admission import Admission
from gradwire.server.rpc.interceptors.step import Call, Chain
from gradwire.server.rpc.interceptors.telemetry import Telemetry
from tests.domain.support import ALICE, SAMPLER, create
from tests.fake_engines import FakeEngines, FakeSampler

OPENAI = "/gradwire.openai.v1/Completions"
FWD_BWD = "/gradwire.v1.TrainingService/FwdBwd"


@pytest.mark.parametrize(
    ("method", "error", "said"),
    [
        (
            FWD_BWD,
            InvalidArgument.at("batch.input_ids.ragged", "bad", reason="BAD"),
            "INVALID_ARGUMENT 0.000s BAD batch.input_ids.ragged",
        ),
        (FWD_BWD, InvalidArgument.at('loss.params["s3cret"].x', "bad"), "INVALID_ARGUMENT 0.000s INVALID_FIELD loss"),
        (FWD_BWD, InvalidArgument.at("s3cret", "bad"), "INVALID_ARGUMENT 0.000s INVALID_FIELD"),
        (FWD_BWD, NotFound("job", "s3cret", "no job s3cret"), "NOT_FOUND 0.000s JOB_NOT_FOUND"),
        (
            "/gradwire.v1.SamplingService/Generate",
            InvalidArgument.at("prompts[3].token_ids.s3cret", "bad"),
            "INVALID_ARGUMENT 0.000s INVALID_FIELD prompts[3].token_ids",
        ),
        (OPENAI, InvalidArgument.at("s3cret", "x"), "INVALID_ARGUMENT 0.000s INVALID_FIELD"),
        (OPENAI, InvalidArgument.at("max_tokens", "s3cret"), "INVALID_ARGUMENT 0.000s INVALID_FIELD max_tokens"),
        (OPENAI, InvalidArgument.at("messages[3].s3cret", "x"), "INVALID_ARGUMENT 0.000s INVALID_FIELD messages[3]"),
        (OPENAI, InvalidArgument.at("messages.3.s3cret", "x"), "INVALID_ARGUMENT 0.000s INVALID_FIELD messages.3"),
        (OPENAI, InvalidArgument.at("logit_bias.9s3cret", "x"), "INVALID_ARGUMENT 0.000s INVALID_FIELD logit_bias"),
    ],
)
async def test_a_failed_call_is_logged_with_its_reason(
    caplog: pytest.LogCaptureFixture, method: str, error: Exception, said: str
) -> None:
    caplog.set_level("INFO", "gradwire")
    with pytest.raises(type(error)):
        async with Chain([Telemetry(CallMetrics(CollectorRegistry()))]).around(Call(method)):
            raise error
    (line,) = caplog.messages
    assert re.sub(r"\d\.\d{3}s", "0.000s", line) == f"{method} {said}"
    assert "s3cret" not in line


async def test_want_of_room_is_the_operators_to_read(caplog: pytest.LogCaptureFixture) -> None:
    why = "cannot write the checkpoint /data/checkpoints/a: [Errno 28] No space left on device"
    with pytest.raises(ResourceExhausted):
        async with Chain([Telemetry(CallMetrics(CollectorRegistry()))]).around(Call(FWD_BWD)):
            raise ResourceExhausted("CHECKPOINT_NOT_WRITTEN", why)
    (record,) = caplog.records
    assert record.levelname == "WARNING" and record.getMessage().endswith(f"CHECKPOINT_NOT_WRITTEN: {why}")


async def test_a_call_whose_client_left_is_cancelled_whatever_else_that_ended(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("DEBUG", "gradwire")

    async def serve() -> None:
        async with Chain([Telemetry(CallMetrics(CollectorRegistry()))]).around(Call(FWD_BWD)):
            try:
                await asyncio.sleep(60)
            except asyncio.CancelledError:
                raise Unavailable("FIRST_ATTEMPT_LEFT", "given up") from None

    task = asyncio.create_task(serve())
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(Unavailable):
        await task
    assert caplog.records[-1].levelname == "DEBUG" and f"{FWD_BWD} CANCELLED" in caplog.text


async def test_jobs_are_logged_as_they_come_and_go(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "gradwire")
    engines = FakeEngines()
    registry = JobRegistry(engines, max_jobs=2)
    (job,) = await create(registry, SAMPLER)
    job.fail("out of memory")
    await registry.destroy(job.job_id, ALICE)
    about = f"sampling_job/1 ({SAMPLER.model})"
    assert caplog.messages == [f"{about} is ready", f"{about} failed: out of memory", f"{about} is destroyed"]
    caplog.clear()
    engines.prepare_sampler = no_memory
    with pytest.raises(GradwireError):
        await create(registry, SAMPLER)
    about = f"sampling_job/2 ({SAMPLER.model})"
    assert caplog.messages == [f"{about} did not start: NO_MEMORY: no memory", f"{about} is destroyed, not started"]


def no_memory(engine: FakeSampler) -> None:
    engine.start_error = GradwireError("NO_MEMORY", "no memory")


async def test_a_drain_says_what_it_waits_for_again_and_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(draining, "_QUIET_S", 0.01)
    monkeypatch.setattr(draining, "_AGAIN_S", 0.01)
    admission, said, twice = Admission(10), list[str](), asyncio.Event()

    def tell(line: str) -> None:
        said.append(line)
        if len(said) == 2:
            twice.set()

    calls = [Call(FWD_BWD), Call(FWD_BWD), Call("/gradwire.openai.v1/Completions")]
    for call in calls:
        await admission.enter(call)
    drain = asyncio.create_task(draining.drain(admission, asyncio.Event(), 30.0, tell))
    await twice.wait()
    for call in calls:
        admission.leave(call, None)
    assert await drain
    assert said[0] == (
        "draining: 3 calls under way (2 TrainingService/FwdBwd, 1 openai.v1/Completions), 30 s left; "
        "a second signal ends them now"
    )


async def test_a_drain_of_nothing_is_silent() -> None:
    said: list[str] = []
    assert await draining.drain(Admission(10), asyncio.Event(), 30.0, said.append)
    assert said == []
