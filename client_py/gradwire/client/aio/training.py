"""`client.training`: forward and backward, optimizer steps, checkpoints."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gradwire.client._convert.enums import enum_to_proto
from gradwire.client._convert.jobs import forward_job_id, job_id, training_job_id
from gradwire.client._convert.messages import put, put_field
from gradwire.client._convert.operation import operation
from gradwire.client._convert.sampling import memory_from_proto
from gradwire.client._convert.training import (
    checkpoint_from_proto,
    deleted_from_proto,
    fwd_bwd_from_proto,
    fwd_no_grad_from_proto,
    load_from_proto,
    loss_to_proto,
    step_from_proto,
    zero_grad_from_proto,
)
from gradwire.client._core.connection import Connection, offload
from gradwire.client._core.countdown import Countdown
from gradwire.client._core.rpc import Rpc
from gradwire.client.aio.admin import AsyncAdmin
from gradwire.client.aio.batches import BatchSender
from gradwire.client.types.jobs import JobRef
from gradwire.client.types.sampling import MemoryChange
from gradwire.client.types.training import (
    Checkpoint,
    DeletedCheckpoint,
    FwdBwdResult,
    FwdNoGradResult,
    LoadResult,
    StepResult,
    TrainingBatchLike,
    TrainingSleepMode,
    UploadedBatch,
    ZeroGradResult,
)
from gradwire.v1 import training_pb2 as pb

_SERVICE = "/gradwire.v1.TrainingService/"
# Mutating calls carry a request id: the server applies them once however often they come.
_FWD_BWD = Rpc(_SERVICE + "FwdBwd", pb.FwdBwdRequest, pb.FwdBwdResponse, repeatable=True)
_FWD_NO_GRAD = Rpc(_SERVICE + "FwdNoGrad", pb.FwdNoGradRequest, pb.FwdNoGradResponse, repeatable=True)
_STEP = Rpc(_SERVICE + "Step", pb.StepRequest, pb.StepResponse, repeatable=True)
_ZERO_GRAD = Rpc(_SERVICE + "ZeroGrad", pb.ZeroGradRequest, pb.ZeroGradResponse, repeatable=True)
_SAVE = Rpc(_SERVICE + "SaveCheckpoint", pb.SaveCheckpointRequest, pb.SaveCheckpointResponse, repeatable=True)
_LOAD = Rpc(_SERVICE + "LoadCheckpoint", pb.LoadCheckpointRequest, pb.LoadCheckpointResponse, repeatable=True)
_LIST = Rpc(_SERVICE + "ListCheckpoints", pb.ListCheckpointsRequest, pb.ListCheckpointsResponse, repeatable=True)
_DELETE = Rpc(_SERVICE + "DeleteCheckpoint", pb.DeleteCheckpointRequest, pb.DeleteCheckpointResponse, repeatable=True)
_SLEEP = Rpc(_SERVICE + "SleepTraining", pb.SleepTrainingRequest, pb.SleepTrainingResponse, repeatable=True)
_WAKE = Rpc(_SERVICE + "WakeTraining", pb.WakeTrainingRequest, pb.WakeTrainingResponse, repeatable=True)
_EMPTY_CACHE = Rpc(
    _SERVICE + "EmptyTrainingCache",
    pb.EmptyTrainingCacheRequest,
    pb.EmptyTrainingCacheResponse,
    repeatable=True,
)


class AsyncTraining:
    """Trains the model of a training job. Accumulation is the caller's: any number of fwd_bwd, then one step."""

    def __init__(self, connection: Connection, admin: AsyncAdmin) -> None:
        self._connection = connection
        self._batches = BatchSender(connection, admin)

    async def fwd_bwd(
        self,
        job: JobRef,
        batch: TrainingBatchLike | UploadedBatch | str,
        *,
        loss: str | None = None,
        loss_config: Mapping[str, Any] | None = None,
        return_outputs: bool = False,
        request_id: str | None = None,
        sequence_number: int | None = None,
        timeout: float | None = None,
    ) -> FwdBwdResult:
        """Runs a batch forward and backward, and adds its gradients to those accumulated.

        `batch` is a TrainingBatch, a dict of its columns, or a batch that was uploaded (or its id); a large
        one goes by shared memory or is uploaded by itself. `loss` is a name of the server's registry, the
        job's own by default, and `loss_config` its options (docs/losses.md), over those of the job where no loss is
        named. `return_outputs` brings log-probs and entropies along, in the batch's layout. The call is applied once
        however often it is sent: under `request_id`, or a fresh one. Calls with a `sequence_number` (from 1) are
        applied in that order.

        InvalidArgumentError names the column or option, with row and entry for a number that is not finite; what
        was accumulated before stays. FailedPreconditionError for a trainer that sleeps (TRAINER_ASLEEP) or failed.
        """
        countdown = Countdown(self._connection.deadline(timeout))
        request = pb.FwdBwdRequest(
            job_id=training_job_id(job),
            operation=operation(request_id, sequence_number),
            loss=loss_to_proto(loss, loss_config),
        )
        put(request, return_outputs=return_outputs)
        response = await self._batches.unary(_FWD_BWD, request, batch, countdown)
        return await offload(lambda: fwd_bwd_from_proto(response), response.ByteSize())

    async def fwd_no_grad(
        self,
        job: JobRef,
        batch: TrainingBatchLike | UploadedBatch | str,
        *,
        temperature: float | None = None,
        entropy: bool = False,
        timeout: float | None = None,
    ) -> FwdNoGradResult:
        """Runs a batch forward: log-probs of its own tokens in its layout, and entropies if asked for.

        `job` is a training or log-prob job. Only input_ids and attention_mask are used. `temperature`
        divides the logits (default 1). A log-prob job on vLLM has neither entropies nor another temperature:
        InvalidArgumentError.
        """
        countdown = Countdown(self._connection.deadline(timeout))
        request = put(pb.FwdNoGradRequest(job_id=forward_job_id(job)), temperature=temperature, entropy=entropy)
        response = await self._batches.unary(_FWD_NO_GRAD, request, batch, countdown)
        return await offload(lambda: fwd_no_grad_from_proto(response), response.ByteSize())

    async def step(
        self,
        job: JobRef,
        *,
        learning_rate: float | None = None,
        max_grad_norm: float | None = None,
        request_id: str | None = None,
        sequence_number: int | None = None,
        timeout: float | None = None,
    ) -> StepResult:
        """Clips and applies the accumulated gradients, and clears them. Makes a new weight version.

        `learning_rate` and `max_grad_norm` (0 does not clip) override the job's in this step. Applied once,
        as `fwd_bwd` is.
        """
        request = pb.StepRequest(job_id=training_job_id(job), operation=operation(request_id, sequence_number))
        put(request, learning_rate=learning_rate, max_grad_norm=max_grad_norm)
        return step_from_proto(await self._connection.unary(_STEP, request, timeout=timeout))

    async def zero_grad(
        self,
        job: JobRef,
        *,
        request_id: str | None = None,
        sequence_number: int | None = None,
        timeout: float | None = None,
    ) -> ZeroGradResult:
        """Drops the accumulated gradients, so that the next `fwd_bwd` begins a step anew.

        Weights, optimizer, schedule and version stay as they are; fine when there are none. The way out where it is not
        known which `fwd_bwd` calls were applied. Applied once, as `fwd_bwd` is; asleep, FailedPreconditionError
        (TRAINER_ASLEEP).
        """
        request = pb.ZeroGradRequest(job_id=training_job_id(job), operation=operation(request_id, sequence_number))
        return zero_grad_from_proto(await self._connection.unary(_ZERO_GRAD, request, timeout=timeout))

    async def save_checkpoint(
        self,
        job: JobRef,
        name: str = "",
        *,
        merge: bool = False,
        request_id: str | None = None,
        sequence_number: int | None = None,
        timeout: float | None = None,
    ) -> Checkpoint:
        """Writes a checkpoint under `name`, or one of the server's choosing; a taken name is AlreadyExistsError.

        Of a LoRA job it holds the adapter, in peft's format; `merge` also writes the whole model with the adapter
        added, which "checkpoint:NAME" then names. Applied once, as `fwd_bwd` is.
        """
        request = pb.SaveCheckpointRequest(
            job_id=training_job_id(job), operation=operation(request_id, sequence_number)
        )
        put(request, name=name, merge=merge)
        response = await self._connection.unary(_SAVE, request, timeout=timeout)
        return checkpoint_from_proto(response.checkpoint)

    async def load_checkpoint(
        self,
        job: JobRef,
        checkpoint: Checkpoint | str,
        *,
        request_id: str | None = None,
        sequence_number: int | None = None,
        timeout: float | None = None,
    ) -> LoadResult:
        """Goes on from a checkpoint (or its name). Accumulated gradients are dropped. Applied once.

        The rate and schedule stay the job's own, from the checkpoint's number of steps on. One that does not fit the
        job is FailedPreconditionError: CHECKPOINT_DOES_NOT_FIT, or ADAPTER_BASE_DIFFERS where its adapter was trained
        on another model.
        """
        request = pb.LoadCheckpointRequest(
            job_id=training_job_id(job), operation=operation(request_id, sequence_number)
        )
        put_field(request, "name", checkpoint.name if isinstance(checkpoint, Checkpoint) else checkpoint, "checkpoint")
        return load_from_proto(await self._connection.unary(_LOAD, request, timeout=timeout))

    async def list_checkpoints(
        self, job: JobRef | None = None, *, timeout: float | None = None
    ) -> tuple[Checkpoint, ...]:
        """All checkpoints that `job` wrote, or all of the caller's; newest first."""
        found: list[Checkpoint] = []
        request = pb.ListCheckpointsRequest(job_id=job_id(job))
        while True:
            page = await self._connection.unary(_LIST, request, timeout=timeout)
            found += map(checkpoint_from_proto, page.checkpoints)
            if not page.next_page_token:
                return tuple(found)
            request.page_token = page.next_page_token

    async def delete_checkpoint(
        self, checkpoint: Checkpoint | str, *, timeout: float | None = None
    ) -> DeletedCheckpoint:
        """Deletes a checkpoint (or that of a name) for good and frees its space; its name is free again.

        Deleting again is fine: `deleted` is False where there was none. Raises FailedPreconditionError
        (CHECKPOINT_IN_USE) while a job has it as its model, or is loading or saving it. A job that loaded it earlier
        does not need it any more.
        """
        request = pb.DeleteCheckpointRequest()
        put_field(request, "name", checkpoint.name if isinstance(checkpoint, Checkpoint) else checkpoint, "checkpoint")
        return deleted_from_proto(await self._connection.unary(_DELETE, request, timeout=timeout))

    async def upload_batch(
        self, job: JobRef, batch: TrainingBatchLike, *, timeout: float | None = None
    ) -> UploadedBatch:
        """Sends a batch ahead, in chunks with a checksum, for one or more calls to name."""
        return await self._batches.upload(training_job_id(job), batch, Countdown(self._connection.deadline(timeout)))

    async def sleep(
        self, job: JobRef, mode: TrainingSleepMode | str | None = None, *, timeout: float | None = None
    ) -> MemoryChange:
        """Gives the trainer's memory back until `wake`, beside what sleeps already; accumulated gradients survive.

        `mode`: "all" (default); "non_lp", all but the weights of forward and backward, so that `weights.sync` and
        `fwd_no_grad` still work; "lp_params", those weights alone. On a CPU what sleeps lies in a file without a
        name, on a GPU in host memory. Waits for the job's running operation. Asking twice is fine:
        `changed` is False then. The result has the bytes that the job's workers held before and after.

        Nothing wakes by itself: a call that needs what sleeps raises FailedPreconditionError (TRAINER_ASLEEP).
        Raises ResourceExhaustedError (SPILL_FAILED) when there is no room for what should sleep; the trainer is
        then awake as before. ValueError for another mode.
        """
        request = pb.SleepTrainingRequest(
            job_id=forward_job_id(job), mode=enum_to_proto(pb.TrainingSleepMode, mode, "mode")
        )
        response = await self._connection.unary(_SLEEP, request, timeout=timeout)
        return memory_from_proto(response.memory, response.changed)

    async def wake(self, job: JobRef, *, timeout: float | None = None) -> MemoryChange:
        """Undoes `sleep`, all of it: training goes on as if there had been none, bit for bit.

        Raises ResourceExhaustedError (NO_MEMORY_TO_WAKE) when the memory is not there; it sleeps on then.
        """
        request = pb.WakeTrainingRequest(job_id=forward_job_id(job))
        response = await self._connection.unary(_WAKE, request, timeout=timeout)
        return memory_from_proto(response.memory, response.changed)

    async def empty_cache(self, job: JobRef, *, timeout: float | None = None) -> MemoryChange:
        """Gives back memory that the trainer's allocators hold without using it; changes no number. Legal asleep."""
        request = pb.EmptyTrainingCacheRequest(job_id=training_job_id(job))
        response = await self._connection.unary(_EMPTY_CACHE, request, timeout=timeout)
        return memory_from_proto(response.memory, changed=True)
