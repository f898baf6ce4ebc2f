"""What `/metrics` says of the sampling jobs."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path

import aiohttp
import pytest

from gradwire.server.observability import samplers
from gradwire.v1 import job_pb2, sampling_pb2
from tests.rpc.support import Served, model_folder, serving, text_prompt, until

SAMPLED = "gradwire_sampler_sampled_tokens_total"
RUNNING = "gradwire_sampler_running_requests"
UP = "gradwire_sampler_up"


async def metrics(served: Served) -> dict[tuple[str, str], float]:
    """Values of the samplers' metrics by name and job."""
    async with aiohttp.ClientSession() as session, session.get(f"http://{served.app.http_address}/metrics") as page:
        assert page.status == 200
        text = await page.text()
    found = re.findall(r'^(gradwire_sampler_\w+)\{job="(\d+)",model="[^"]+"\} (\S+)$', text, re.MULTILINE)
    assert len(found) == len({line[:2] for line in found})
    assert len(re.findall(r"^# TYPE (\S+) ", text, re.MULTILINE)) == len(set(re.findall(r"^# TYPE (\S+) ", text, re.M)))
    return {(name, job): float(value) for name, job, value in found}


async def test_each_sampler_has_its_load_and_its_tokens_while_it_is_there(tmp_path: Path) -> None:
    async with serving(tmp_path, http="127.0.0.1:0") as served:
        config = job_pb2.SamplingJobConfig(model=str(model_folder(tmp_path / "other")))
        for number in ("2", "3"):  # destroyed and made again
            (job,) = await served.create(job_pb2.CreateJobsRequest(sampling=config))
            await served.sampling.Generate(sampling_pb2.GenerateRequest(prompts=[text_prompt("abc")]))
            found = await metrics(served)
            assert {job for _, job in found} == {"1", number}
            assert found[UP, "1"] == found[UP, number] == 1
            assert found["gradwire_sampler_kv_cache_usage_ratio", number] == 0.25
            assert found[SAMPLED, number] == 0
            await served.jobs.DestroyJob(job_pb2.DestroyJobRequest(job_id=job.job_id))
        found = await metrics(served)
        assert {job for _, job in found} == {"1"}
        assert found[SAMPLED, "1"] == found["gradwire_sampler_prompt_tokens_total", "1"] == 6
        assert found["gradwire_sampler_waiting_requests", "1"] == found[RUNNING, "1"] == 0


async def test_an_engine_that_is_busy_or_dead_does_not_hold_the_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(samplers, "_ANSWER_S", 0.02)
    async with serving(tmp_path, http="127.0.0.1:0") as served:
        engine = served.engines.samplers[0]
        engine.token_gate = asyncio.Semaphore(0)
        call = asyncio.ensure_future(served.sampling.Generate(sampling_pb2.GenerateRequest(prompts=[text_prompt("a")])))
        await until(lambda: bool(engine.open))
        assert (await metrics(served))[RUNNING, "1"] == 1
        engine.load_gate = asyncio.Event()
        for _ in range(2):
            found = await metrics(served)
            assert found[UP, "1"] == 0 and found[SAMPLED, "1"] == 0 and (RUNNING, "1") not in found
        engine.load_gate.set()
        await until(lambda: not served.app._samplers._asked)
        assert (await metrics(served))[UP, "1"] == 1
        engine.dead = "killed"
        assert (await metrics(served))[UP, "1"] == 0
        engine.dead = ""
        engine.token_gate.release()
        await call
