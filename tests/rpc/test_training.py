"""TrainingService on a fake trainer: applied once, uploads, outputs, checkpoints."""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections.abc import Awaitable, Iterator
from itertools import chain
from typing import Any

import numpy as np
import pytest
from grpc import StatusCode

from gradwire.server.codec.tensor import array_to_tensor, tensor_to_array
from gradwire.server.engines.sharedmem import SharedSegment
from gradwire.server.errors import ResourceExhausted
from gradwire.server.rpc import operation as operation_module
from gradwire.server.rpc.interceptors import patience
from gradwire.v1 import job_pb2, operation_pb2, tensor_pb2, training_pb2
from tests.rpc.support import Served, failure, small_batch


@pytest.fixture
async def job_id(served: Served) -> int:
    return await served.training_job()


def operation(request_id: str, number: int | None = None) -> operation_pb2.OperationId:
    return operation_pb2.OperationId(request_id=request_id, sequence_number=number)


def fwd_bwd(job_id: int, request_id: str = "", number: int | None = None) -> training_pb2.FwdBwdRequest:
    return training_pb2.FwdBwdRequest(job_id=job_id, batch=small_batch(), operation=operation(request_id, number))


def upload(
    job_id: int, data: bytes, *, announced: int | None = None, digest: bytes | None = None
) -> Iterator[training_pb2.UploadBatchRequest]:
    header = training_pb2.UploadHeader(
        job_id=job_id,
        total_bytes=len(data) if announced is None else announced,
        sha256=hashlib.sha256(data).digest() if digest is None else digest,
    )
    yield training_pb2.UploadBatchRequest(header=header)
    for start in range(0, len(data), 16):
        yield training_pb2.UploadBatchRequest(chunk=data[start : start + 16])


async def test_a_step_that_is_sent_again_is_applied_once(served: Served, job_id: int) -> None:
    await served.training.FwdBwd(fwd_bwd(job_id))
    step = training_pb2.StepRequest(job_id=job_id, operation=operation("s1"), learning_rate=0.0)
    first = await served.training.Step(step)
    assert await served.training.Step(step) == first
    assert (first.weight_version, first.learning_rate) == (1, 0.0)
    assert served.engines.trainers[0].applied == ["fwd_bwd", "step"]
    step.learning_rate = 0.5
    failed = await failure(served.training.Step(step))
    assert (failed.code, failed.reason) == (StatusCode.ALREADY_EXISTS, "REQUEST_ID_REUSED")


async def test_one_id_for_two_methods_is_refused(served: Served, job_id: int) -> None:
    await served.training.FwdBwd(fwd_bwd(job_id, "same"))
    failed = await failure(served.training.Step(training_pb2.StepRequest(job_id=job_id, operation=operation("same"))))
    assert failed.code is StatusCode.ALREADY_EXISTS


async def test_numbers_put_pipelined_calls_in_order(served: Served, job_id: int) -> None:
    step = served.training.Step(training_pb2.StepRequest(job_id=job_id, operation=operation("b", 2)))
    await served.training.FwdBwd(fwd_bwd(job_id, "a", 1))
    assert (await step).step == 1
    assert served.engines.trainers[0].applied == ["fwd_bwd", "step"]


async def test_a_gap_is_told_before_the_deadline_ends_the_call(
    served: Served, job_id: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(operation_module, "_DEADLINE_MARGIN_S", 29.9)  # the gap is held for what remains: 0.1 s
    failed = await failure(served.training.FwdBwd(fwd_bwd(job_id, "b", 2), timeout=30.0))
    assert failed.code is StatusCode.FAILED_PRECONDITION
    assert failed.precondition == ("SEQUENCE_GAP", f"training_job/{job_id}")
    assert failed.metadata == {"next_sequence_number": "1"}


async def test_a_number_that_was_applied_is_no_other_calls(served: Served, job_id: int) -> None:
    await served.training.FwdBwd(fwd_bwd(job_id, "a", 1))
    await served.training.FwdBwd(fwd_bwd(job_id, "a", 1))  # the same call, once more
    failed = await failure(served.training.FwdBwd(fwd_bwd(job_id, "b", 1)))
    assert (failed.code, failed.reason) == (StatusCode.FAILED_PRECONDITION, "SEQUENCE_REUSED")
    assert failed.metadata == {"next_sequence_number": "2"}
    assert served.engines.trainers[0].applied == ["fwd_bwd"]


async def test_a_step_whose_caller_leaves_is_applied_and_kept(served: Served, job_id: int) -> None:
    engine = served.engines.trainers[0]
    engine.gradients, engine.gate = 1, asyncio.Event()
    step = training_pb2.StepRequest(job_id=job_id, operation=operation("s"))
    call = served.training.Step(step)
    await engine.begun.wait()
    call.cancel()
    engine.gate.set()
    assert (await served.training.Step(step)).weight_version == 1
    assert engine.applied == ["step"]


async def test_gradients_are_dropped_once(served: Served, job_id: int) -> None:
    first = training_pb2.ZeroGradRequest(job_id=job_id, operation=operation("z"))
    for request_id in ("a", "b"):
        await served.training.FwdBwd(fwd_bwd(job_id, request_id))
    assert (await served.training.ZeroGrad(first)).num_dropped == 2
    failed = await failure(served.training.Step(training_pb2.StepRequest(job_id=job_id)))
    assert (failed.code, failed.reason) == (StatusCode.FAILED_PRECONDITION, "NO_GRADIENTS")
    await served.training.FwdBwd(fwd_bwd(job_id, "c"))
    assert (await served.training.ZeroGrad(first)).num_dropped == 2  # the first one's answer: c's gradients stay
    assert (await served.training.Step(training_pb2.StepRequest(job_id=job_id))).weight_version == 1
    assert (await served.training.ZeroGrad(training_pb2.ZeroGradRequest(job_id=job_id))).num_dropped == 0


async def test_a_dead_trainer_fails_its_job_and_is_not_worth_a_retry(served: Served, job_id: int) -> None:
    from gradwire.server.errors import Unavailable

    engine = served.engines.trainers[0]
    engine.error, engine.dead = Unavailable("TRAINER_DIED", "killed"), "worker 0 was killed"
    failed = await failure(served.training.FwdBwd(fwd_bwd(job_id)))
    assert failed.code is StatusCode.FAILED_PRECONDITION
    assert failed.reason == "JOB_FAILED"
    says = f"training_job/{job_id} failed: worker 0 was killed. Destroy it, create another and load its last checkpoint"
    assert failed.text == says
    assert (await failure(served.training.FwdBwd(fwd_bwd(job_id)))).text == says


async def test_outputs_come_in_the_batchs_layout_and_defaults_are_warned_of(served: Served, job_id: int) -> None:
    request = fwd_bwd(job_id)
    request.return_outputs = True
    response = await served.training.FwdBwd(request)
    assert tensor_to_array(response.log_probs_shifted.dense, "t").tolist() == [[1, 2, 3], [4, 5, 6]]
    assert (response.num_tokens, response.num_loss_tokens) == (6, 4)
    assert "no advantages: 1 everywhere" in response.warnings
    assert "no old_log_probs_shifted: those of this pass, so every ratio is 1" in response.warnings


async def test_advantages_that_teach_nothing_are_warned_of(served: Served, job_id: int) -> None:
    async def warned(loss: str, *advantages: float) -> bool:
        request = training_pb2.FwdBwdRequest(job_id=job_id, batch=small_batch())
        request.loss.name = loss
        array = np.array([[row, row, 1] for row in advantages], np.float32)  # nothing counts on a row's last token
        request.batch.advantages.dense.CopyFrom(array_to_tensor(array))
        response = await served.training.FwdBwd(request)
        return any("the rewards teach nothing" in warning for warning in response.warnings)

    assert await warned("grpo", 0, 0)
    assert not await warned("grpo", 0, 0.5)
    assert not await warned("cross_entropy", 0, 0)  # which reads no advantages


async def test_a_forward_pass_has_entropy_only_when_asked(served: Served, job_id: int) -> None:
    request = training_pb2.FwdNoGradRequest(job_id=job_id, batch=small_batch())
    assert not (await served.training.FwdNoGrad(request)).HasField("entropy")
    request.entropy = True
    assert (await served.training.FwdNoGrad(request)).HasField("entropy")


async def test_a_batch_may_lie_in_shared_memory(served: Served, job_id: int) -> None:
    ids = np.array([[1, 2, 3]], "<i4")
    with SharedSegment.create(ids.nbytes, label="test") as segment:
        segment.buffer[:] = ids.tobytes()
        memory = tensor_pb2.SharedMemory(name=segment.name, length=ids.nbytes)
        tensor = tensor_pb2.Tensor(dtype=tensor_pb2.DATA_TYPE_INT32, shape=ids.shape, shared_memory=memory)
        batch = training_pb2.TrainingBatch(input_ids=tensor_pb2.BatchTensor(dense=tensor))
        response = await served.training.FwdBwd(training_pb2.FwdBwdRequest(job_id=job_id, batch=batch))
        segment.unlink()
    assert response.num_tokens == 3


# Uploads


async def test_an_uploaded_batch_can_be_named(served: Served, job_id: int) -> None:
    batch_id = (await served.training.UploadBatch(upload(job_id, small_batch().SerializeToString()))).batch_id
    response = await served.training.FwdBwd(training_pb2.FwdBwdRequest(job_id=job_id, batch_id=batch_id))
    assert response.num_tokens == 6


async def test_the_same_rows_uploaded_again_are_the_same_payload(served: Served, job_id: int) -> None:
    data = small_batch().SerializeToString()
    for _ in range(2):
        batch_id = (await served.training.UploadBatch(upload(job_id, data))).batch_id
        request = training_pb2.FwdBwdRequest(job_id=job_id, batch_id=batch_id, operation=operation("f"))
        await served.training.FwdBwd(request)
    assert served.engines.trainers[0].applied == ["fwd_bwd"]


async def test_uploads_that_do_not_fit_their_header_are_refused(served: Served, job_id: int) -> None:
    data = bytes(40)
    for messages, field in (
        (upload(job_id, data, announced=41), "header.total_bytes"),
        (upload(job_id, data, announced=39), "chunk"),
        (upload(job_id, data, digest=bytes(32)), "header.sha256"),
        (upload(job_id, data, announced=2**40), "header.total_bytes"),
        (iter([training_pb2.UploadBatchRequest(chunk=b"x")]), "header"),
        (iter([]), "header"),
        (iter([*upload(job_id, data, announced=99), *upload(job_id, data)]), "chunk"),
    ):
        failed = await failure(served.training.UploadBatch(messages))
        assert failed.code is StatusCode.INVALID_ARGUMENT
        assert failed.fields == [field]


async def test_a_refusal_reaches_a_client_that_is_still_sending(served: Served, job_id: int) -> None:
    limit = served.app.settings.limits.max_upload_bytes
    header = training_pb2.UploadBatchRequest(
        header=training_pb2.UploadHeader(job_id=job_id, total_bytes=limit + 1, sha256=bytes(32))
    )
    for _ in range(20):
        chunks = (training_pb2.UploadBatchRequest(chunk=bytes(16)) for _ in range(400))
        failed = await failure(served.training.UploadBatch(chain([header], chunks)))
        assert failed.code is StatusCode.INVALID_ARGUMENT, failed.text
        assert failed.fields == ["header.total_bytes"]


async def test_an_upload_that_stalls_is_given_up(served: Served, job_id: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else four of a header alone would keep everybody's uploads out for as long as they like."""
    monkeypatch.setattr(patience, "PATIENCE_S", 0.2)
    header = training_pb2.UploadHeader(
        job_id=job_id, total_bytes=served.app.settings.limits.max_upload_bytes, sha256=bytes(32)
    )
    calls, began = [served.training.UploadBatch() for _ in range(4)], time.monotonic()
    for call in calls:
        await call.write(training_pb2.UploadBatchRequest(header=header))
        await call.write(training_pb2.UploadBatchRequest(chunk=bytes(1 << 12)))  # is worth a quarter of a second
    for call in calls:
        failed = await failure(call)
        assert (failed.code, failed.reason) == (StatusCode.DEADLINE_EXCEEDED, "UPLOAD_TOO_SLOW")
        assert time.monotonic() - began > 0.4
    await served.training.UploadBatch(upload(job_id, small_batch().SerializeToString()))


async def test_uploads_that_broke_off_take_no_room(served: Served, job_id: int) -> None:
    limit = served.app.settings.limits.max_upload_bytes
    for _ in range(8):  # together more than the server stores
        await failure(served.training.UploadBatch(upload(job_id, bytes(10), announced=limit)))
    await served.training.UploadBatch(upload(job_id, small_batch().SerializeToString()))


@pytest.mark.parametrize("data", [b"\xff\xff\xff", training_pb2.TrainingBatch().SerializeToString() or b"\x1a\0"])
async def test_uploaded_bytes_that_are_no_batch_are_refused_when_they_are_named(
    served: Served, job_id: int, data: bytes
) -> None:
    batch_id = (await served.training.UploadBatch(upload(job_id, data))).batch_id
    failed = await failure(served.training.FwdBwd(training_pb2.FwdBwdRequest(job_id=job_id, batch_id=batch_id)))
    assert failed.code is StatusCode.INVALID_ARGUMENT


async def test_rows_of_an_upload_are_held_to_the_same_rules(served: Served, job_id: int) -> None:
    batch = small_batch()
    batch.attention_mask.CopyFrom(array_to_tensor(np.ones((2,) + (1,) * 20, np.uint8)))
    batch_id = (await served.training.UploadBatch(upload(job_id, batch.SerializeToString()))).batch_id
    failed = await failure(served.training.FwdBwd(training_pb2.FwdBwdRequest(job_id=job_id, batch_id=batch_id)))
    assert failed.fields == ["batch.attention_mask.shape"]


# Checkpoints


async def test_checkpoints_are_saved_listed_in_pages_and_loaded(served: Served, job_id: int) -> None:
    for name in ("a", "b", "c"):
        request = training_pb2.SaveCheckpointRequest(job_id=job_id, name=name)
        checkpoint = (await served.training.SaveCheckpoint(request)).checkpoint
        assert (checkpoint.name, checkpoint.job_id) == (name, job_id)
    names, token = [], ""
    while True:
        page = await served.training.ListCheckpoints(training_pb2.ListCheckpointsRequest(page_size=2, page_token=token))
        names += [checkpoint.name for checkpoint in page.checkpoints]
        token = page.next_page_token
        if not token:
            break
        # A new one moves nobody from one page to the next.
        await served.training.SaveCheckpoint(training_pb2.SaveCheckpointRequest(job_id=job_id, name="d"))
    assert names == ["c", "b", "a"]
    loaded = await served.training.LoadCheckpoint(training_pb2.LoadCheckpointRequest(job_id=job_id, name="a"))
    assert (loaded.checkpoint.name, loaded.weight_version) == ("a", 1)


async def test_a_taken_name_is_refused_and_a_repeated_save_is_not(served: Served, job_id: int) -> None:
    request = training_pb2.SaveCheckpointRequest(job_id=job_id, name="a", operation=operation("s"))
    first = await served.training.SaveCheckpoint(request)
    assert await served.training.SaveCheckpoint(request) == first
    again = training_pb2.SaveCheckpointRequest(job_id=job_id, name="a")
    assert (await failure(served.training.SaveCheckpoint(again))).code is StatusCode.ALREADY_EXISTS


async def test_a_checkpoint_without_a_name_gets_a_free_one(served: Served, job_id: int) -> None:
    request = training_pb2.SaveCheckpointRequest(job_id=job_id)
    names = [(await served.training.SaveCheckpoint(request)).checkpoint.name for _ in range(3)]
    assert names == [f"job-{job_id}-version-0", f"job-{job_id}-version-0.2", f"job-{job_id}-version-0.3"]


@pytest.mark.parametrize("name", ["../x", "/etc/x", ".x", "a/b"])
async def test_a_path_is_no_name(served: Served, job_id: int, name: str) -> None:
    failed = await failure(served.training.SaveCheckpoint(training_pb2.SaveCheckpointRequest(job_id=job_id, name=name)))
    assert failed.fields == ["name"]


async def test_a_deleted_checkpoint_is_gone_for_everyone_who_had_it(served: Served, job_id: int) -> None:
    delete = training_pb2.DeleteCheckpointRequest(name="a")
    missing = await served.training.DeleteCheckpoint(delete)
    assert (missing.deleted, missing.freed_bytes) == (False, 0)
    await served.training.SaveCheckpoint(training_pb2.SaveCheckpointRequest(job_id=job_id, name="a"))
    gone = await served.training.DeleteCheckpoint(delete)
    assert gone.deleted and gone.freed_bytes > 0
    load = training_pb2.LoadCheckpointRequest(job_id=job_id, name="a")
    assert (await failure(served.training.LoadCheckpoint(load))).code is StatusCode.NOT_FOUND
    failed = await failure(served.training.DeleteCheckpoint(training_pb2.DeleteCheckpointRequest(name="../a")))
    assert failed.fields == ["name"]


async def test_a_checkpoint_that_is_a_jobs_model_stays_until_the_job_ends(served: Served, job_id: int) -> None:
    await served.training.SaveCheckpoint(training_pb2.SaveCheckpointRequest(job_id=job_id, name="a"))
    request = job_pb2.CreateJobsRequest(training=job_pb2.TrainingJobConfig(model="checkpoint:a"))
    (user,) = await served.create(request)
    delete = training_pb2.DeleteCheckpointRequest(name="a")
    failed = await failure(served.training.DeleteCheckpoint(delete))
    assert (failed.code, failed.reason) == (StatusCode.FAILED_PRECONDITION, "CHECKPOINT_IN_USE")
    assert failed.text == f"the checkpoint a is the model of training_job/{user.job_id}; destroy that job first"
    await served.jobs.DestroyJob(job_pb2.DestroyJobRequest(job_id=user.job_id))
    assert (await served.training.DeleteCheckpoint(delete)).deleted


async def test_a_page_that_was_never_given_out_is_refused(served: Served) -> None:
    for token in ("x", "-1", "1.5", "²"):
        request = training_pb2.ListCheckpointsRequest(page_token=token)
        assert (await failure(served.training.ListCheckpoints(request))).fields == ["page_token"]


async def state_of(served: Served, job_id: int) -> Any:
    return (await served.jobs.GetJob(job_pb2.GetJobRequest(job_id=job_id))).job.state


async def test_sleep_and_wake_say_what_they_changed(served: Served, job_id: int) -> None:
    sleep = training_pb2.SleepTrainingRequest(job_id=job_id, mode=training_pb2.TRAINING_SLEEP_MODE_NON_LP)
    first = await served.training.SleepTraining(sleep)
    assert (first.changed, first.memory.before_bytes, first.memory.after_bytes) == (True, 2000, 1000)
    assert not (await served.training.SleepTraining(sleep)).changed
    assert await state_of(served, job_id) == job_pb2.JOB_STATE_SLEEPING
    sleep.ClearField("mode")  # all
    assert (await served.training.SleepTraining(sleep)).changed
    assert (await served.training.EmptyTrainingCache(training_pb2.EmptyTrainingCacheRequest(job_id=job_id))).memory
    wake = training_pb2.WakeTrainingRequest(job_id=job_id)
    assert (await served.training.WakeTraining(wake)).changed
    assert not (await served.training.WakeTraining(wake)).changed
    assert await state_of(served, job_id) == job_pb2.JOB_STATE_READY
    assert served.engines.trainers[0].applied == [
        "sleep non_lp", "sleep non_lp", "sleep all", "empty_cache", "wake", "wake",
    ]  # fmt: skip


async def test_an_unknown_sleep_mode_is_named(served: Served, job_id: int) -> None:
    unknown: Any = 9
    request = training_pb2.SleepTrainingRequest(job_id=job_id, mode=unknown)
    failed = await failure(served.training.SleepTraining(request))
    assert failed.code is StatusCode.INVALID_ARGUMENT and "mode" in failed.fields
    assert served.engines.trainers[0].applied == []


async def test_sleep_waits_for_the_running_operation_and_outlives_its_caller(served: Served, job_id: int) -> None:
    trainer = served.engines.trainers[0]
    trainer.gate = asyncio.Event()
    running = asyncio.create_task(_answer(served.training.FwdBwd(fwd_bwd(job_id))))
    await trainer.begun.wait()
    call = served.training.SleepTraining(training_pb2.SleepTrainingRequest(job_id=job_id))
    await asyncio.sleep(0.1)
    assert not call.done() and await state_of(served, job_id) == job_pb2.JOB_STATE_READY
    trainer.gate.set()
    await running
    await call
    assert trainer.applied == ["fwd_bwd", "sleep all"]

    trainer.gate, trainer.begun = asyncio.Event(), asyncio.Event()
    call = served.training.WakeTraining(training_pb2.WakeTrainingRequest(job_id=job_id))
    waiting = asyncio.create_task(_answer(call))
    await trainer.begun.wait()
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    trainer.gate.set()
    async with asyncio.timeout(5):
        while await state_of(served, job_id) != job_pb2.JOB_STATE_READY:  # noqa: ASYNC110
            await asyncio.sleep(0.01)


async def test_a_sleep_that_finds_no_room_leaves_the_job_ready(served: Served, job_id: int) -> None:
    served.engines.trainers[0].error = ResourceExhausted("SPILL_FAILED", "the disk is full")
    failed = await failure(served.training.SleepTraining(training_pb2.SleepTrainingRequest(job_id=job_id)))
    assert (failed.code, failed.reason) == (StatusCode.RESOURCE_EXHAUSTED, "SPILL_FAILED")
    assert await state_of(served, job_id) == job_pb2.JOB_STATE_READY


async def _answer(call: Awaitable[Any]) -> Any:
    return await call
