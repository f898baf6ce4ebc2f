"""`client.training`: forward and backward, optimizer steps, checkpoints.

Generated from `gradwire.client.aio.training` by scripts/gen_sync_client.py; edit that instead.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gradwire.client.aio.training import AsyncTraining
from gradwire.client.sync.portal import Portal
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


class Training:
    """Trains the model of a training job. Accumulation is the caller's: any number of fwd_bwd, then one step."""

    def __init__(self, client: AsyncTraining, loop: Portal) -> None:
        self._async = client
        self._loop = loop

    def fwd_bwd(
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
        return self._loop.run(
            self._async.fwd_bwd(
                job,
                batch,
                loss=loss,
                loss_config=loss_config,
                return_outputs=return_outputs,
                request_id=request_id,
                sequence_number=sequence_number,
                timeout=timeout,
            )
        )

    def fwd_no_grad(
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
        return self._loop.run(
            self._async.fwd_no_grad(job, batch, temperature=temperature, entropy=entropy, timeout=timeout)
        )

    def step(
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
        return self._loop.run(
            self._async.step(
                job,
                learning_rate=learning_rate,
                max_grad_norm=max_grad_norm,
                request_id=request_id,
                sequence_number=sequence_number,
                timeout=timeout,
            )
        )

    def zero_grad(
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
        return self._loop.run(
            self._async.zero_grad(job, request_id=request_id, sequence_number=sequence_number, timeout=timeout)
        )

    def save_checkpoint(
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
        return self._loop.run(
            self._async.save_checkpoint(
                job, name, merge=merge, request_id=request_id, sequence_number=sequence_number, timeout=timeout
            )
        )

    def load_checkpoint(
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
        return self._loop.run(
            self._async.load_checkpoint(
                job, checkpoint, request_id=request_id, sequence_number=sequence_number, timeout=timeout
            )
        )

    def list_checkpoints(self, job: JobRef | None = None, *, timeout: float | None = None) -> tuple[Checkpoint, ...]:
        """All checkpoints that `job` wrote, or all of the caller's; newest first."""
        return self._loop.run(self._async.list_checkpoints(job, timeout=timeout))

    def delete_checkpoint(self, checkpoint: Checkpoint | str, *, timeout: float | None = None) -> DeletedCheckpoint:
        """Deletes a checkpoint (or that of a name) for good and frees its space; its name is free again.

        Deleting again is fine: `deleted` is False where there was none. Raises FailedPreconditionError
        (CHECKPOINT_IN_USE) while a job has it as its model, or is loading or saving it. A job that loaded it earlier
        does not need it any more.
        """
        return self._loop.run(self._async.delete_checkpoint(checkpoint, timeout=timeout))

    def upload_batch(self, job: JobRef, batch: TrainingBatchLike, *, timeout: float | None = None) -> UploadedBatch:
        """Sends a batch ahead, in chunks with a checksum, for one or more calls to name."""
        return self._loop.run(self._async.upload_batch(job, batch, timeout=timeout))

    def sleep(
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
        return self._loop.run(self._async.sleep(job, mode, timeout=timeout))

    def wake(self, job: JobRef, *, timeout: float | None = None) -> MemoryChange:
        """Undoes `sleep`, all of it: training goes on as if there had been none, bit for bit.

        Raises ResourceExhaustedError (NO_MEMORY_TO_WAKE) when the memory is not there; it sleeps on then.
        """
        return self._loop.run(self._async.wake(job, timeout=timeout))

    def empty_cache(self, job: JobRef, *, timeout: float | None = None) -> MemoryChange:
        """Gives back memory that the trainer's allocators hold without using it; changes no number. Legal asleep."""
        return self._loop.run(self._async.empty_cache(job, timeout=timeout))
