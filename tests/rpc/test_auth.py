"""Who may call what: tokens, scopes, tenants, and what stays open."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from grpc import StatusCode, aio
from grpc_health.v1 import health_pb2, health_pb2_grpc

from gradwire.server.rpc.interceptors.auth import is_same_host
from gradwire.v1 import admin_pb2, deployment_pb2, job_pb2, sampling_pb2, training_pb2
from tests.rpc.support import Served, failure, serving, text_prompt

SECRETS = {"alice": "secret-of-alice", "bob": "secret-of-bob", "reader": "secret-of-reader", "admin": "secret-of-admin",
           "trainer": "secret-of-trainer"}  # fmt: skip
SCOPES = {"alice": ["INFERENCE", "TRAINING"], "bob": ["INFERENCE", "TRAINING"], "reader": ["INFERENCE"],
          "trainer": ["TRAINING"]}  # fmt: skip
GENERATE = sampling_pb2.GenerateRequest(prompts=[text_prompt("ab")])
LIST = job_pb2.ListJobsRequest()


def token(name: str) -> dict[str, object]:
    return {
        "name": name,
        "sha256": hashlib.sha256(SECRETS[name].encode()).hexdigest(),
        "tenant": name,
        "scopes": SCOPES.get(name, ["ADMIN"]),
    }


def bearer(secret: str) -> aio.Metadata:
    return aio.Metadata(("authorization", f"Bearer {secret}"))


@pytest.fixture
async def guarded(tmp_path: Path) -> AsyncIterator[Served]:
    """A server that wants tokens."""
    async with serving(tmp_path, tokens=[token(name) for name in SECRETS]) as running:
        yield running


async def test_without_a_token_nothing_is_served(guarded: Served) -> None:
    for header in (None, SECRETS["alice"], "Bearer", "Basic " + SECRETS["alice"]):
        metadata = aio.Metadata(("authorization", header)) if header else None
        failed = await failure(guarded.sampling.Generate(GENERATE, metadata=metadata))
        assert (failed.code, failed.reason) == (StatusCode.UNAUTHENTICATED, "TOKEN_MISSING")
        assert "gradwire token create --tenant NAME" in failed.text


async def test_an_unknown_token_is_refused(guarded: Served) -> None:
    for secret in ("wrong", SECRETS["alice"] + "x", hashlib.sha256(SECRETS["alice"].encode()).hexdigest()):
        failed = await failure(guarded.sampling.Generate(GENERATE, metadata=bearer(secret)))
        assert (failed.code, failed.reason) == (StatusCode.UNAUTHENTICATED, "TOKEN_UNKNOWN")


async def test_a_refusal_comes_before_the_request_is_looked_at(guarded: Served) -> None:
    failed = await failure(guarded.sampling.Generate(sampling_pb2.GenerateRequest()))
    assert failed.code is StatusCode.UNAUTHENTICATED


async def test_a_scope_opens_its_services_and_no_others(guarded: Served) -> None:
    reader, admin = bearer(SECRETS["reader"]), bearer(SECRETS["admin"])
    await guarded.sampling.Generate(GENERATE, metadata=reader)
    for call in (
        guarded.jobs.ListJobs(LIST, metadata=reader),
        guarded.jobs.CreateJobs(job_pb2.CreateJobsRequest(), metadata=reader),
        guarded.training.UploadBatch(iter([]), metadata=reader),
        guarded.admin.ListTokens(admin_pb2.ListTokensRequest(), metadata=reader),
        guarded.sampling.Generate(GENERATE, metadata=admin),
        guarded.sampling.Sleep(sampling_pb2.SleepRequest(), metadata=reader),  # it is everyone's sampler
        guarded.sampling.Pause(sampling_pb2.PauseRequest(), metadata=reader),
    ):
        failed = await failure(call)
        assert (failed.code, failed.reason) == (StatusCode.PERMISSION_DENIED, "MISSING_SCOPE")
        assert failed.metadata["scope"] in failed.text
        assert f"--scope {failed.metadata['scope'].lower()}" in failed.text
    listing = deployment_pb2.ListDeploymentsRequest()
    failed = await failure(guarded.deployments.ListDeployments(listing, metadata=bearer(SECRETS["trainer"])))
    assert failed.metadata["scope"] == "INFERENCE"  # the lesser of the two that open it
    made = "gradwire token create --tenant trainer --user trainer --scope inference --scope training"
    assert failed.text.endswith(made)


async def test_health_and_capabilities_are_open(guarded: Served) -> None:
    health = health_pb2_grpc.HealthStub(guarded.channel)
    assert (await health.Check(health_pb2.HealthCheckRequest())).status == health_pb2.HealthCheckResponse.SERVING
    assert (await guarded.admin.GetCapabilities(admin_pb2.GetCapabilitiesRequest())).version


async def test_tenants_do_not_see_each_others_jobs(guarded: Served) -> None:
    alice, bob = bearer(SECRETS["alice"]), bearer(SECRETS["bob"])
    (job,) = await guarded.create(metadata=alice)
    assert [j.job_id for j in (await guarded.jobs.ListJobs(LIST, metadata=alice)).jobs] == [1, job.job_id]
    assert [j.job_id for j in (await guarded.jobs.ListJobs(LIST, metadata=bob)).jobs] == [1]
    for call in (
        guarded.jobs.GetJob(job_pb2.GetJobRequest(job_id=job.job_id), metadata=bob),
        guarded.jobs.DestroyJob(job_pb2.DestroyJobRequest(job_id=job.job_id), metadata=bob),
        guarded.training.Step(training_pb2.StepRequest(job_id=job.job_id), metadata=bob),
    ):
        failed = await failure(call)
        assert failed.code is StatusCode.NOT_FOUND
        assert failed.text == f"job_id: no job {job.job_id}; your jobs are: 1"


async def test_tenants_share_no_checkpoints_no_request_ids_and_no_prefix_cache(guarded: Served) -> None:
    alice, bob = bearer(SECRETS["alice"]), bearer(SECRETS["bob"])
    request = job_pb2.CreateJobsRequest(training=job_pb2.TrainingJobConfig(), request_id="r")
    (hers,) = await guarded.create(request, metadata=alice)
    (his,) = await guarded.create(request, metadata=bob)
    assert hers.job_id != his.job_id
    save = training_pb2.SaveCheckpointRequest(job_id=hers.job_id, name="a")
    await guarded.training.SaveCheckpoint(save, metadata=alice)
    listed = await guarded.training.ListCheckpoints(training_pb2.ListCheckpointsRequest(), metadata=bob)
    assert list(listed.checkpoints) == []
    delete = training_pb2.DeleteCheckpointRequest(name="a")
    assert not (await guarded.training.DeleteCheckpoint(delete, metadata=bob)).deleted
    assert (await guarded.training.DeleteCheckpoint(delete, metadata=alice)).deleted
    score = sampling_pb2.LogProbsRequest(items=[sampling_pb2.ScoreItem(prompt=text_prompt("ab"))])
    for who in (alice, bob):
        await guarded.sampling.Generate(GENERATE, metadata=who)
        await guarded.sampling.LogProbs(score, metadata=who)
    salts = [request.cache_salt for request in guarded.engines.samplers[0].requests]
    assert salts[0] == salts[1] and salts[2] == salts[3] and salts[0] != salts[2]
    assert None not in salts


async def test_no_secret_is_ever_logged(guarded: Served, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG):
        guarded.engines.samplers[0].generate_error = RuntimeError("boom")
        await failure(guarded.sampling.Generate(GENERATE, metadata=bearer(SECRETS["alice"])))
        await failure(guarded.sampling.Generate(GENERATE, metadata=bearer("wrong-secret")))
        await failure(guarded.jobs.ListJobs(LIST, metadata=bearer(SECRETS["reader"])))
    assert caplog.records
    for secret in (*SECRETS.values(), "wrong-secret"):
        assert secret not in caplog.text
        assert secret not in repr(guarded.app.settings)


@pytest.mark.parametrize(
    ("peer", "same_host"),
    [
        ("ipv4:127.0.0.1:4711", True),
        ("ipv4:127.8.9.10:1", True),
        ("ipv6:%5B::1%5D:4711", True),
        ("ipv6:[::1]:4711", True),
        ("ipv6:%5B::ffff:127.0.0.1%5D:4711", True),
        ("unix:", True),
        ("unix:/run/gradwire.sock", True),
        ("ipv4:10.0.0.1:127", False),
        ("ipv4:127.0.0.1.evil:1", False),
        ("ipv6:%5B::2%5D:1", False),
        ("ipv6:%5B::10%5D:1", False),
        ("ipv6:%5B::ffff:10.0.0.1%5D:4711", False),
        ("unixlike:x", False),
        ("", False),
    ],
)
def test_who_is_on_this_host(peer: str, same_host: bool) -> None:
    assert is_same_host(peer) is same_host
