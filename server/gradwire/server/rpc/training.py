"""TrainingService: batches in, losses and steps out."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from gradwire.server.codec.batch import in_request_terms
from gradwire.server.codec.checkpoints import encode_checkpoint
from gradwire.server.codec.jobs import encode_memory, struct_to_dict
from gradwire.server.codec.times import duration, timestamp
from gradwire.server.domain import sampling as reference
from gradwire.server.domain.caller import current_caller
from gradwire.server.domain.checkpoints import CheckpointStore
from gradwire.server.domain.cursors import decode_cursor, encode_cursor
from gradwire.server.domain.jobs import JobKind
from gradwire.server.domain.registry import AnyJob, JobRegistry, TrainingJob
from gradwire.server.domain.training import empty_cache, guarded, operate, sleep, wake
from gradwire.server.engines.training import LossSpec, SleepMode
from gradwire.server.errors import InvalidArgument
from gradwire.server.observability.metrics import CallMetrics
from gradwire.server.rpc.batches import Batches, with_defaults
from gradwire.server.rpc.operation import operation_of, time_left, with_timing
from gradwire.v1 import sampling_pb2, training_pb2, training_pb2_grpc

_PAGE_SIZE = 100
SLEEP_MODES = {
    training_pb2.TRAINING_SLEEP_MODE_UNSPECIFIED: SleepMode.ALL,
    training_pb2.TRAINING_SLEEP_MODE_ALL: SleepMode.ALL,
    training_pb2.TRAINING_SLEEP_MODE_NON_LP: SleepMode.NON_LP,
    training_pb2.TRAINING_SLEEP_MODE_LP_PARAMS: SleepMode.LP_PARAMS,
}


class TrainingServicer(training_pb2_grpc.TrainingServiceServicer):
    """Adapter of the training jobs."""

    def __init__(self, jobs: JobRegistry, batches: Batches, checkpoints: CheckpointStore, metrics: CallMetrics) -> None:
        self._jobs = jobs
        self._batches = batches
        self._checkpoints = checkpoints
        self._metrics = metrics

    def _job(self, request: Any) -> TrainingJob:
        return self._jobs.training(request.job_id, current_caller())

    def _forward_job(self, request: Any) -> AnyJob:
        """A training job, or one that only scores."""
        return self._jobs.of_kind(request.job_id, current_caller(), JobKind.TRAINING, JobKind.LOG_PROB)

    async def UploadBatch(
        self, request_iterator: AsyncIterator[training_pb2.UploadBatchRequest], context: Any
    ) -> training_pb2.UploadBatchResponse:
        stored = await self._batches.upload(request_iterator)
        return training_pb2.UploadBatchResponse(batch_id=stored.batch_id, expires_at=timestamp(stored.expires))

    async def FwdBwd(self, request: training_pb2.FwdBwdRequest, context: Any) -> training_pb2.FwdBwdResponse:
        job = self._job(request)
        decoded, digest = await self._batches.of(request, vocab_size=job.engine.vocab_size)
        config = job.engine.config
        if request.loss.name:
            loss = LossSpec(request.loss.name, struct_to_dict(request.loss.config))
        else:
            # The job's loss; keys given here override those of the job.
            loss = LossSpec(config.loss, {**config.loss_config, **struct_to_dict(request.loss.config)})
        decoded = with_defaults(decoded, loss)

        async def apply() -> training_pb2.FwdBwdResponse:
            with in_request_terms():
                result = await job.engine.fwd_bwd(decoded.batch, loss, outputs=request.return_outputs)
            layout = decoded.layout
            self._metrics.trained_tokens.inc(len(decoded.batch.input_ids))
            return training_pb2.FwdBwdResponse(
                loss=result.loss,
                num_loss_tokens=result.num_loss_tokens,
                num_tokens=len(decoded.batch.input_ids),
                num_micro_batches=result.micro_batches,
                metrics=result.metrics,
                weight_version=job.engine.weight_version,
                log_probs_shifted=layout.encode(result.log_probs),
                entropy=layout.encode(result.entropy),
                warnings=decoded.warnings,
            )

        operation = await operation_of("FwdBwd", request, extra=digest)
        size = training_pb2.FwdBwdResponse.ByteSize
        timed = await operate(job, operation, apply, timeout=time_left(context), nbytes=size)
        return with_timing(timed)

    async def FwdNoGrad(self, request: training_pb2.FwdNoGradRequest, context: Any) -> training_pb2.FwdNoGradResponse:
        job = self._forward_job(request)
        vocab_size = job.engine.vocab_size if job.kind is JobKind.TRAINING else job.engine.info.vocab_size
        decoded, _ = await self._batches.of(request, vocab_size=vocab_size)
        temperature = request.temperature if request.HasField("temperature") else 1.0
        asked = time.monotonic()
        with in_request_terms():
            result = await guarded(
                job, lambda: job.engine.fwd_no_grad(decoded.batch, temperature=temperature, entropy=request.entropy)
            )
        return training_pb2.FwdNoGradResponse(
            log_probs_shifted=decoded.layout.encode(result.log_probs),
            entropy=decoded.layout.encode(result.entropy),
            weight_version=result.weight_version,
            timing=sampling_pb2.Timing(run=duration(time.monotonic() - asked)),
        )

    async def Step(self, request: training_pb2.StepRequest, context: Any) -> training_pb2.StepResponse:
        job = self._job(request)
        lr = request.learning_rate if request.HasField("learning_rate") else None
        clip = request.max_grad_norm if request.HasField("max_grad_norm") else None

        async def apply() -> training_pb2.StepResponse:
            with in_request_terms():
                result = await job.engine.step(lr=lr, max_grad_norm=clip)
            job.set_version(result.weight_version)
            self._metrics.optimizer_steps.inc()
            return training_pb2.StepResponse(
                grad_norm=result.grad_norm,
                learning_rate=result.lr,
                weight_version=result.weight_version,
                step=result.step,
            )

        timed = await operate(job, await operation_of("Step", request), apply, timeout=time_left(context))
        return with_timing(timed)

    async def ZeroGrad(self, request: training_pb2.ZeroGradRequest, context: Any) -> training_pb2.ZeroGradResponse:
        job = self._job(request)

        async def apply() -> training_pb2.ZeroGradResponse:
            return training_pb2.ZeroGradResponse(num_dropped=await job.engine.zero_grad())

        timed = await operate(job, await operation_of("ZeroGrad", request), apply, timeout=time_left(context))
        return with_timing(timed)

    async def SaveCheckpoint(
        self, request: training_pb2.SaveCheckpointRequest, context: Any
    ) -> training_pb2.SaveCheckpointResponse:
        job = self._job(request)
        tenant = current_caller().tenant
        if request.merge and job.engine.config.lora is None:
            raise InvalidArgument.at("merge", f"{job.name} trains all weights; this is for jobs made with lora")

        async def apply() -> training_pb2.SaveCheckpointResponse:
            wish = f"job-{job.job_id}-version-{job.engine.weight_version}"
            name = request.name or self._checkpoints.free_name(tenant, wish)
            async with self._checkpoints.new(tenant, name) as path:
                info = await job.engine.save_checkpoint(path, name=name, merged=request.merge)
                await asyncio.to_thread(self._checkpoints.note_job, path, job.job_id, info.weight_version)
            return training_pb2.SaveCheckpointResponse(checkpoint=encode_checkpoint(info, job.job_id))

        timed = await operate(job, await operation_of("SaveCheckpoint", request), apply, timeout=time_left(context))
        return with_timing(timed)

    async def LoadCheckpoint(
        self, request: training_pb2.LoadCheckpointRequest, context: Any
    ) -> training_pb2.LoadCheckpointResponse:
        job = self._job(request)
        tenant = current_caller().tenant
        checkpoint = encode_checkpoint(*await asyncio.to_thread(self._checkpoints.read, tenant, request.name))

        async def apply() -> training_pb2.LoadCheckpointResponse:
            with self._checkpoints.held(tenant, request.name):
                result = await job.engine.load_checkpoint(Path(checkpoint.path))
            job.set_version(result.weight_version)
            return training_pb2.LoadCheckpointResponse(
                checkpoint=checkpoint,
                weight_version=result.weight_version,
                step=result.step,
            )

        timed = await operate(job, await operation_of("LoadCheckpoint", request), apply, timeout=time_left(context))
        return with_timing(timed)

    async def ListCheckpoints(
        self, request: training_pb2.ListCheckpointsRequest, context: Any
    ) -> training_pb2.ListCheckpointsResponse:
        tenant = current_caller().tenant
        size = request.page_size if request.HasField("page_size") else _PAGE_SIZE
        after = decode_cursor(request.page_token, str)
        page, after = await asyncio.to_thread(self._checkpoints.page, tenant, request.job_id, size, after)
        return training_pb2.ListCheckpointsResponse(
            checkpoints=[encode_checkpoint(info, job_id) for info, job_id in page], next_page_token=encode_cursor(after)
        )

    async def DeleteCheckpoint(
        self, request: training_pb2.DeleteCheckpointRequest, context: Any
    ) -> training_pb2.DeleteCheckpointResponse:
        freed = await self._checkpoints.delete(current_caller().tenant, request.name, self._jobs.all())
        return training_pb2.DeleteCheckpointResponse(deleted=freed is not None, freed_bytes=freed or 0)

    async def SleepTraining(
        self, request: training_pb2.SleepTrainingRequest, context: Any
    ) -> training_pb2.SleepTrainingResponse:
        job, mode, asleep = self._forward_job(request), SLEEP_MODES[request.mode], self._jobs.fell_asleep
        if job.kind is JobKind.TRAINING:
            memory = await sleep(job, mode, weights_asleep=asleep, timeout=time_left(context))
        elif mode is SleepMode.ALL:
            memory = await reference.sleep(job, 1, asleep)
        else:
            raise InvalidArgument.at("mode", f"is {mode}; {job.name} has weights only, which sleep with all")
        return training_pb2.SleepTrainingResponse(memory=encode_memory(memory), changed=memory.changed)

    async def WakeTraining(
        self, request: training_pb2.WakeTrainingRequest, context: Any
    ) -> training_pb2.WakeTrainingResponse:
        job = self._forward_job(request)
        if job.kind is JobKind.TRAINING:
            memory = await wake(job, timeout=time_left(context))
        else:
            memory = await reference.wake(job, None)
        return training_pb2.WakeTrainingResponse(memory=encode_memory(memory), changed=memory.changed)

    async def EmptyTrainingCache(
        self, request: training_pb2.EmptyTrainingCacheRequest, context: Any
    ) -> training_pb2.EmptyTrainingCacheResponse:
        memory = await empty_cache(self._job(request), timeout=time_left(context))
        return training_pb2.EmptyTrainingCacheResponse(memory=encode_memory(memory))
