"""WeightService on fake engines: syncs are applied once, updates arrive whole or not at all."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator

import numpy as np
from grpc import StatusCode

from gradwire.server.errors import GradwireError
from gradwire.v1 import job_pb2, operation_pb2, sampling_pb2, tensor_pb2, training_pb2, weight_pb2
from tests.rpc.support import Served, failure, small_batch, text_prompt

DATA = np.arange(8, dtype="<f4").tobytes()


async def trained_job(served: Served) -> int:
    job_id = await served.training_job()
    await served.training.FwdBwd(training_pb2.FwdBwdRequest(job_id=job_id, batch=small_batch()))
    await served.training.Step(training_pb2.StepRequest(job_id=job_id))
    return job_id


def begin_request(version: int = 3) -> weight_pb2.BeginUpdateRequest:
    spec = weight_pb2.TensorSpec(
        name="w", dtype=tensor_pb2.DATA_TYPE_FLOAT32, shape=[8], sha256=hashlib.sha256(DATA).digest()
    )
    return weight_pb2.BeginUpdateRequest(manifest=[spec], weight_version=version)


def pieces(update_id: str, data: bytes = DATA) -> Iterator[weight_pb2.TransferUpdateRequest]:
    for offset in range(0, len(data), 10):
        yield weight_pb2.TransferUpdateRequest(
            update_id=update_id if offset == 0 else "", name="w", offset=offset, data=data[offset : offset + 10]
        )


async def test_a_sync_moves_the_weights_and_their_version(served: Served) -> None:
    job_id = await trained_job(served)
    response = await served.weights.Sync(weight_pb2.SyncRequest(training_job_id=job_id, verify=True))
    assert (response.weight_version, response.size_bytes, response.num_tensors) == (1, 32, 1)
    assert response.transport == weight_pb2.WEIGHT_TRANSPORT_SHARED_MEMORY
    assert (await served.weights.GetVersion(weight_pb2.GetVersionRequest())).weight_version == 1
    generated = await served.sampling.Generate(
        sampling_pb2.GenerateRequest(prompts=[text_prompt("ab")], min_weight_version=1)
    )
    assert generated.results[0].completions[0].weight_spans[0].version == 1


async def test_a_repeated_sync_is_carried_once(served: Served) -> None:
    job_id = await trained_job(served)
    request = weight_pb2.SyncRequest(
        training_job_id=job_id, operation=operation_pb2.OperationId(request_id="s", sequence_number=1)
    )
    first = await served.weights.Sync(request)
    served.engines.samplers[0].update_error = GradwireError("COPY_FAILED", "copied twice")
    assert await served.weights.Sync(request) == first


async def test_a_failed_sync_leaves_a_sampler_that_samples(served: Served) -> None:
    job_id = await trained_job(served)
    served.engines.samplers[0].update_error = GradwireError("COPY_FAILED", "copy failed")
    failed = await failure(served.weights.Sync(weight_pb2.SyncRequest(training_job_id=job_id)))
    assert failed.reason == "COPY_FAILED"
    generated = await served.sampling.Generate(sampling_pb2.GenerateRequest(prompts=[text_prompt("ab")]))
    assert generated.results[0].completions[0].weight_spans[0].version == 0


async def test_jobs_of_the_wrong_kind_name_their_field(served: Served) -> None:
    job_id = await served.training_job()
    for request, field in (
        (weight_pb2.SyncRequest(training_job_id=1), "training_job_id"),
        (weight_pb2.SyncRequest(training_job_id=job_id, sampling_job_id=job_id), "sampling_job_id"),
    ):
        assert (await failure(served.weights.Sync(request))).fields == [field]


async def reference_job(served: Served) -> int:
    (job,) = await served.create(job_pb2.CreateJobsRequest(log_prob=job_pb2.LogProbJobConfig()))
    assert job.kind == job_pb2.JOB_KIND_LOG_PROB and job.log_prob.engine == job_pb2.LOG_PROB_ENGINE_VLLM
    assert job.facts.max_log_probs == job.log_prob.max_log_probs == 20
    return int(job.job_id)


async def test_a_reference_is_reset_or_keeps_what_it_has(served: Served) -> None:
    trainer, reference = await trained_job(served), await reference_job(served)
    (engine,) = served.engines.references
    request = weight_pb2.SyncRequest(training_job_id=trainer, log_prob_job_id=reference)
    engine.update_error = GradwireError("WEIGHT_UPDATE_FAILED", "the old weights stay")
    assert (await failure(served.weights.Sync(request))).reason == "WEIGHT_UPDATE_FAILED"
    version = weight_pb2.GetVersionRequest(job_id=reference)
    assert (await served.weights.GetVersion(version)).weight_version == engine.version == 0

    engine.update_error = None
    report = await served.weights.Sync(request)
    assert report.weight_version == (await served.weights.GetVersion(version)).weight_version == 1
    assert engine.weights == served.engines.trainers[0].weights.tobytes()
    assert (await served.weights.GetVersion(weight_pb2.GetVersionRequest())).weight_version == 0  # not the sampler

    update = begin_request()
    update.log_prob_job_id = reference
    begun = await served.weights.BeginUpdate(update)
    await served.weights.TransferUpdate(pieces(begun.update_id))
    await served.weights.CommitUpdate(weight_pb2.CommitUpdateRequest(update_id=begun.update_id))
    assert (engine.weights, engine.version) == (DATA, 3)


async def test_both_sides_can_prove_what_they_hold(served: Served) -> None:
    job_id = await trained_job(served)
    await served.weights.Sync(weight_pb2.SyncRequest(training_job_id=job_id))
    sums = [
        (await served.weights.GetChecksums(weight_pb2.GetChecksumsRequest(job_id=each))).checksums
        for each in (job_id, 1)
    ]
    norms = [(await served.weights.GetNorm(weight_pb2.GetNormRequest(job_id=each))).norm for each in (job_id, 1)]
    assert sums[0] == sums[1]
    assert norms[0] == norms[1]


async def test_an_update_from_outside_is_begun_sent_and_committed(served: Served) -> None:
    begun = await served.weights.BeginUpdate(begin_request())
    assert begun.total_bytes == len(DATA)
    progress = await served.weights.TransferUpdate(pieces(begun.update_id))
    assert (progress.received_bytes, progress.complete_tensors) == (len(DATA), 1)
    committed = await served.weights.CommitUpdate(weight_pb2.CommitUpdateRequest(update_id=begun.update_id))
    assert committed.weight_version == 3
    assert served.engines.samplers[0].weights == DATA


async def test_a_broken_update_changes_nothing_and_can_be_aborted_twice(served: Served) -> None:
    update_id = (await served.weights.BeginUpdate(begin_request())).update_id
    await served.weights.TransferUpdate(pieces(update_id, bytes(32)))
    commit = weight_pb2.CommitUpdateRequest(update_id=update_id)
    assert (await failure(served.weights.CommitUpdate(commit))).precondition == (
        "CHECKSUM_MISMATCH", f"update/{update_id}",
    )  # fmt: skip
    for _ in range(2):
        await served.weights.AbortUpdate(weight_pb2.AbortUpdateRequest(update_id=update_id))
    assert (await failure(served.weights.CommitUpdate(commit))).resource == ("update", update_id)
    assert served.engines.samplers[0].weights == b""


async def test_a_transfer_names_its_update_first(served: Served) -> None:
    for messages in (iter([]), pieces("")):
        failed = await failure(served.weights.TransferUpdate(messages))
        assert failed.code is StatusCode.INVALID_ARGUMENT
        assert failed.fields == ["update_id"]
