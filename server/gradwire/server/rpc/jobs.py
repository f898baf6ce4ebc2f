"""JobService: makes, shows, keeps alive and ends jobs."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator
from contextlib import ExitStack, aclosing, contextmanager
from pathlib import Path
from typing import Any

from gradwire.server.codec.jobs import decode_log_prob, decode_sampling, decode_training, encode_job
from gradwire.server.codec.times import timestamp
from gradwire.server.domain.caller import current_caller
from gradwire.server.domain.checkpoints import CheckpointStore
from gradwire.server.domain.jobs import JobState
from gradwire.server.domain.operations import Operation, OperationLog
from gradwire.server.domain.registry import AnyConfig, AnyJob, JobRegistry
from gradwire.server.engines.training import TrainingConfig
from gradwire.server.errors import (
    FailedPrecondition,
    FieldViolation,
    InvalidArgument,
    NotFound,
    draining,
)
from gradwire.server.models.recipes import RecipeError
from gradwire.server.models.resolve import ModelNotFoundError
from gradwire.server.rpc.shares import StreamShares
from gradwire.server.rpc.watching import while_known
from gradwire.v1 import job_pb2, job_pb2_grpc

ModelResolver = Callable[[str], Path]
LossCheck = Callable[[TrainingConfig], None]
_CHECKPOINT = "checkpoint:"
_ENDED = (JobState.DESTROYED, JobState.FAILED)


class JobServicer(job_pb2_grpc.JobServiceServicer):
    """Adapter of the registry."""

    def __init__(
        self, jobs: JobRegistry, checkpoints: CheckpointStore, resolve_model: ModelResolver, check_loss: LossCheck,
        default_model: str, shares: StreamShares,
    ) -> None:  # fmt: skip
        self._jobs = jobs
        self._checkpoints = checkpoints
        self._resolve_model = resolve_model
        self._check_loss = check_loss
        self._default_model = default_model
        self._shares = shares
        self._creations: dict[str, OperationLog] = {}  # by tenant

    async def CreateJobs(self, request: job_pb2.CreateJobsRequest, context: Any) -> None:  # type: ignore[override]
        caller = current_caller()
        lines: asyncio.Queue[tuple[int, str] | None] = asyncio.Queue()
        loop = asyncio.get_running_loop()

        def progress(job_id: int, line: str) -> None:  # from any thread
            loop.call_soon_threadsafe(lines.put_nowait, (job_id, line))

        async def apply() -> job_pb2.CreatedJobs:
            with ExitStack() as held:  # until the jobs are there, which then hold their models themselves
                for name in _checkpoints_of(request):
                    held.enter_context(self._checkpoints.held(caller.tenant, name))
                return await create()

        async def create() -> job_pb2.CreatedJobs:
            configs = await asyncio.to_thread(self._configs, request, caller.tenant)
            lease = request.lease.ToTimedelta().total_seconds() if request.HasField("lease") else None
            jobs = await self._jobs.create(configs, tenant=caller.tenant, lease_s=lease, progress=progress)
            return job_pb2.CreatedJobs(jobs=[_encode(job) for job in jobs])

        task = asyncio.ensure_future(self._create(request, caller.tenant, apply))
        task.add_done_callback(lambda _: loop.call_soon(lines.put_nowait, None))
        try:
            while (entry := await lines.get()) is not None:
                message = job_pb2.JobProgress(job_id=entry[0], message=entry[1])
                await context.write(job_pb2.CreateJobsResponse(progress=message))
            await context.write(job_pb2.CreateJobsResponse(created=await task))
        finally:
            task.cancel()  # the caller went away: without a request id nobody could ask for the jobs

    async def _create(
        self, request: job_pb2.CreateJobsRequest, tenant: str, apply: Callable[[], Awaitable[job_pb2.CreatedJobs]]
    ) -> job_pb2.CreatedJobs:
        if not request.request_id:
            return await apply()
        log = self._creations.setdefault(tenant, OperationLog("job creation"))
        fingerprint = hashlib.sha256(request.SerializeToString(deterministic=True)).digest()
        return await log.run(Operation(request.request_id, fingerprint=fingerprint), apply)

    def _configs(self, request: job_pb2.CreateJobsRequest, tenant: str) -> list[AnyConfig]:
        """The configurations asked for. Blocks: a model may have to be built or fetched."""
        configs: list[AnyConfig] = []
        if request.HasField("sampling"):
            name, path = self._model(request.sampling.model, tenant, "sampling.model")
            configs.append(decode_sampling(request.sampling, model=name, model_path=path))
        if request.HasField("log_prob"):
            name, path = self._model(request.log_prob.model, tenant, "log_prob.model")
            configs.append(decode_log_prob(request.log_prob, model=name, model_path=path))
        if request.HasField("training"):
            name, path = self._model(request.training.model, tenant, "training.model")
            config = decode_training(request.training, model=name, model_path=path)
            self._check_loss(config)
            configs.append(config)
        return configs

    def _model(self, model: str, tenant: str, field: str) -> tuple[str, str]:
        name = model or self._default_model
        if not name:
            raise InvalidArgument.at(field, "is required: this server was started without a model")
        if name.startswith(_CHECKPOINT):
            with _at(field):
                return name, str(self._checkpoints.model(tenant, name.removeprefix(_CHECKPOINT)))
        try:
            return name, str(self._resolve_model(name))
        except ModelNotFoundError as error:
            raise InvalidArgument.at(field, str(error), reason="MODEL_NOT_FOUND") from error
        except RecipeError as error:
            raise FailedPrecondition("MODEL_UNAVAILABLE", f"{field}: {error}", subject=name) from error

    async def GetJob(self, request: job_pb2.GetJobRequest, context: Any) -> job_pb2.GetJobResponse:
        return job_pb2.GetJobResponse(job=_encode(self._jobs.get(request.job_id, current_caller())))

    async def ListJobs(self, request: job_pb2.ListJobsRequest, context: Any) -> job_pb2.ListJobsResponse:
        jobs = [_encode(job) for job in self._jobs.visible(current_caller())]
        return job_pb2.ListJobsResponse(jobs=[job for job in jobs if request.kind in (0, job.kind)])

    async def DestroyJob(self, request: job_pb2.DestroyJobRequest, context: Any) -> job_pb2.DestroyJobResponse:
        await self._jobs.destroy(request.job_id, current_caller())
        return job_pb2.DestroyJobResponse()

    async def Heartbeat(self, request: job_pb2.HeartbeatRequest, context: Any) -> job_pb2.HeartbeatResponse:
        leases = []
        for job in self._jobs.heartbeat(request.job_ids, current_caller()):
            lease = job_pb2.Lease(job_id=job.job_id)
            if job.lease is not None:
                lease.expires_at.CopyFrom(timestamp(job.lease.expires_at))
            leases.append(lease)
        return job_pb2.HeartbeatResponse(leases=leases)

    async def WatchJob(self, request: job_pb2.WatchJobRequest, context: Any) -> None:  # type: ignore[override]
        caller = current_caller()
        job = self._jobs.get(request.job_id, caller)
        with self._shares.one(caller.tenant):
            async with aclosing(while_known(_news(job))) as news:
                async for response in news:
                    await context.write(response)


def _checkpoints_of(request: job_pb2.CreateJobsRequest) -> list[str]:
    """Checkpoints that are to be models."""
    models = (request.sampling.model, request.log_prob.model, request.training.model)
    return [model.removeprefix(_CHECKPOINT) for model in models if model.startswith(_CHECKPOINT)]


async def _news(job: AnyJob) -> AsyncGenerator[job_pb2.WatchJobResponse]:
    """The job as it is, then with each line that it says, until it has ended. Raises when the server drains."""
    lines = job.watch()
    try:
        yield job_pb2.WatchJobResponse(job=_encode(job))
        while job.state not in _ENDED or not lines.empty():
            message = await lines.get()
            if message is None:
                raise draining()
            yield job_pb2.WatchJobResponse(job=_encode(job), message=message)
    finally:
        job.unwatch(lines)


@contextmanager
def _at(field: str) -> Iterator[None]:
    """What is wrong with a checkpoint's name is wrong with the field that names it."""
    try:
        yield
    except InvalidArgument as error:
        violations = [FieldViolation(field, violation.description) for violation in error.violations]
        raise InvalidArgument(violations, reason=error.reason) from error
    except NotFound as error:
        text = f"{field}: {error.message.removeprefix('name: ')}"
        raise NotFound(error.resource_type, error.resource_name, text) from error


def _encode(job: AnyJob) -> job_pb2.Job:
    return encode_job(job, current_caller().tenant)
