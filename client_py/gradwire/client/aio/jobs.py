"""`client.jobs`: make, follow, keep and destroy jobs."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from gradwire.client._convert.enums import enum_to_proto
from gradwire.client._convert.jobs import create_to_proto, job_from_proto, job_id
from gradwire.client._convert.operation import fresh
from gradwire.client._convert.times import moment
from gradwire.client._core.arguments import given, items
from gradwire.client._core.connection import Connection
from gradwire.client._core.rpc import Rpc
from gradwire.client.aio.leases import LeaseKeeper
from gradwire.client.aio.streams import AsyncJobWatch
from gradwire.client.errors import DataLossError, NotFoundError
from gradwire.client.types.jobs import (
    CreatedJobs,
    Job,
    JobKind,
    JobProgress,
    JobRef,
    Lease,
    LogProbJobConfig,
    SamplingJobConfig,
    TrainingJobConfig,
)
from gradwire.v1 import job_pb2 as pb

_SERVICE = "/gradwire.v1.JobService/"
# Not left to the channel to repeat: it stops at the first progress message, and the request id allows more.
_CREATE = Rpc(_SERVICE + "CreateJobs", pb.CreateJobsRequest, pb.CreateJobsResponse, repeatable=False, streaming=True)
_GET = Rpc(_SERVICE + "GetJob", pb.GetJobRequest, pb.GetJobResponse, repeatable=True)
_LIST = Rpc(_SERVICE + "ListJobs", pb.ListJobsRequest, pb.ListJobsResponse, repeatable=True)
_DESTROY = Rpc(_SERVICE + "DestroyJob", pb.DestroyJobRequest, pb.DestroyJobResponse, repeatable=True)
_HEARTBEAT = Rpc(_SERVICE + "Heartbeat", pb.HeartbeatRequest, pb.HeartbeatResponse, repeatable=True)
_WATCH = Rpc(_SERVICE + "WatchJob", pb.WatchJobRequest, pb.WatchJobResponse, repeatable=True, streaming=True)


class AsyncJobs:
    """Makes and ends jobs: the engines that callers use."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._leases = LeaseKeeper(lambda job, timeout: self.heartbeat([job], timeout=timeout))

    async def create(
        self,
        *,
        training: TrainingJobConfig | Mapping[str, Any] | None = None,
        sampling: SamplingJobConfig | Mapping[str, Any] | None = None,
        log_prob: LogProbJobConfig | Mapping[str, Any] | None = None,
        lease_s: float | None = None,
        on_progress: Callable[[JobProgress], object] | None = None,
        request_id: str | None = None,
        timeout: float | None = None,
    ) -> CreatedJobs:
        """Makes one job for each configuration given, all or none, and returns when they are ready.

        A configuration is the dataclass or a dict; {} takes all defaults. `on_progress` gets each line of
        progress. With `lease_s` (5 to 86,400 seconds) the client sends heartbeats until the job is destroyed
        or the client closed; without one, jobs live until destroyed. Applied once, however often it is sent.
        """
        if training is None and sampling is None and log_prob is None:
            raise ValueError("there is nothing to create; give training=, sampling= or log_prob= ({} for defaults)")
        if not (on_progress is None or callable(on_progress)):
            raise TypeError(f"on_progress is {given(on_progress)}; it takes a function of a JobProgress")
        request = create_to_proto(training, sampling, log_prob, lease_s, fresh(request_id))

        async def attempt(remaining: float | None) -> CreatedJobs:
            return await self._created(request, math.inf if remaining is None else remaining, on_progress)

        created = await self._connection.repeat(attempt, _CREATE, request, timeout, safe=True)
        if lease_s is not None:
            for job in created:
                self._leases.keep(job.job_id, lease_s)
        return created

    async def _created(
        self, request: pb.CreateJobsRequest, timeout: float, on_progress: Callable[[JobProgress], object] | None
    ) -> CreatedJobs:
        wire = self._connection.stream(_CREATE, request, timeout=timeout)
        created: CreatedJobs | None = None
        while (message := await wire.read()) is not None:
            event = message.WhichOneof("event")
            if event == "created":
                created = CreatedJobs(tuple(map(job_from_proto, message.created.jobs)))
            elif event == "progress" and on_progress is not None:
                on_progress(JobProgress(message.progress.job_id, message.progress.message))
        if created is None:
            raise DataLossError("the server ended the call without saying which jobs it made")
        return created

    async def get(self, job: JobRef | None = None, *, timeout: float | None = None) -> Job:
        """A job as it is now (default: the server's own sampling job)."""
        request = pb.GetJobRequest(job_id=job_id(job))
        return job_from_proto((await self._connection.unary(_GET, request, timeout=timeout)).job)

    async def list(self, kind: JobKind | str | None = None, *, timeout: float | None = None) -> tuple[Job, ...]:
        """The caller's jobs, by id; only those of `kind` where given."""
        request = pb.ListJobsRequest(kind=enum_to_proto(pb.JobKind, kind, "kind"))
        return tuple(map(job_from_proto, (await self._connection.unary(_LIST, request, timeout=timeout)).jobs))

    async def destroy(self, job: JobRef, *, timeout: float | None = None) -> None:
        """Ends a job and frees what it holds; checkpoints stay. A job that is gone is NotFoundError."""
        number = job_id(job)
        self._leases.drop(number)
        try:
            await self._connection.unary(_DESTROY, pb.DestroyJobRequest(job_id=number), timeout=timeout)
        except NotFoundError as error:
            # An earlier attempt of this very call may have destroyed it, and its answer been lost.
            if error.attempts == 1:
                raise

    async def heartbeat(self, jobs: JobRef | Sequence[JobRef], *, timeout: float | None = None) -> tuple[Lease, ...]:
        """Renews the leases of jobs by hand; `create(lease_s=...)` does it by itself."""
        several = items(jobs, "jobs", "a Job or its id, or a list of such") if isinstance(jobs, Iterable) else [jobs]
        ids = [job_id(job, "jobs") for job in several]
        response = await self._connection.unary(_HEARTBEAT, pb.HeartbeatRequest(job_ids=ids), timeout=timeout)
        return tuple(Lease(lease.job_id, moment(lease, "expires_at")) for lease in response.leases)

    def watch(self, job: JobRef | None = None, *, timeout: float | None = None) -> AsyncJobWatch:
        """A job's state now, then each change, until it ends. Without a `timeout` it follows without end.

        ResourceExhaustedError (TOO_MANY_STREAMS) when the caller's tenant has a quarter of the service's places.
        """
        request = pb.WatchJobRequest(job_id=job_id(job))
        limit = math.inf if timeout is None else timeout
        return AsyncJobWatch(self._connection.stream(_WATCH, request, timeout=limit))

    async def _close(self) -> None:
        await self._leases.close()
