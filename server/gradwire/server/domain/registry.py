"""All jobs of the server: makes them, finds them for their owners, watches over them, ends them."""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeAlias

from gradwire.server.domain.caller import Caller
from gradwire.server.domain.jobs import Job, JobKind, JobState
from gradwire.server.domain.leases import JobLease
from gradwire.server.engines.base import SamplerEngine, TrainingEngine
from gradwire.server.engines.sampling import SamplerConfig
from gradwire.server.engines.training import TrainingConfig
from gradwire.server.errors import (
    GradwireError,
    InvalidArgument,
    NotFound,
    PermissionDenied,
    ResourceExhausted,
)

log = logging.getLogger(__name__)

SamplingJob: TypeAlias = Job[SamplerEngine]
TrainingJob: TypeAlias = Job[TrainingEngine]
AnyJob: TypeAlias = Job[Any]
JobProgress = Callable[[int, str], None]
"""Called from any thread with a job id and a line for people."""

HEALTH_INTERVAL_S = 1.0
HEALTH_TIMEOUT_S = 30.0


class EngineFactory(Protocol):
    """Makes engines that have not started."""

    def sampler(self, config: SamplerConfig) -> SamplerEngine:
        """A sampler of this configuration."""

    def trainer(self, config: TrainingConfig) -> TrainingEngine:
        """A trainer of this configuration."""


class JobRegistry:
    """One per server."""

    def __init__(self, factory: EngineFactory, *, max_jobs: int) -> None:
        self._factory = factory
        self._max_jobs = max_jobs
        self._jobs: dict[int, AnyJob] = {}
        self._ids = itertools.count(1)
        self._built_in: SamplingJob | None = None
        self._monitor: asyncio.Task[None] | None = None
        self.on_destroy: list[Callable[[AnyJob], None]] = []

    @property
    def built_in(self) -> SamplingJob | None:
        """The sampling job that the server was started with."""
        return self._built_in

    # Making

    async def start_built_in(self, config: SamplerConfig, progress: JobProgress) -> SamplingJob:
        """The sampling job that the server is started with."""
        (job,) = await self.create([config], tenant=None, lease_s=None, progress=progress)
        self._built_in = job
        return job

    async def create(
        self,
        configs: Sequence[SamplerConfig | TrainingConfig],
        *,
        tenant: str | None,
        lease_s: float | None,
        progress: JobProgress,
    ) -> list[AnyJob]:
        """Make and start jobs: all, or none is left."""
        if not configs:
            raise InvalidArgument.at("", "no job was asked for; give training, sampling or log_prob")
        if len(self._jobs) + len(configs) > self._max_jobs:
            raise ResourceExhausted(
                "TOO_MANY_JOBS", f"the server holds {len(self._jobs)} of at most {self._max_jobs} jobs; destroy some"
            )
        jobs = [self._new(config, tenant, lease_s) for config in configs]
        try:
            for job in jobs:  # one after the other: starting engines fight for cores and memory
                progress(job.job_id, f"starting {job.name} ({job.config.model})")
                await job.engine.start(lambda line, job=job: progress(job.job_id, line))
                job.set_state(JobState.READY, "ready")
                progress(job.job_id, f"{job.name} is ready")
        except BaseException:
            await asyncio.shield(asyncio.gather(*(self._end(job) for job in jobs)))
            raise
        return jobs

    def _new(self, config: SamplerConfig | TrainingConfig, tenant: str | None, lease_s: float | None) -> AnyJob:
        lease = JobLease(lease_s) if lease_s is not None else None
        number = next(self._ids)
        job: AnyJob
        if isinstance(config, SamplerConfig):
            job = Job(number, JobKind.SAMPLING, tenant, config, self._factory.sampler(config), lease)
        else:
            job = Job(number, JobKind.TRAINING, tenant, config, self._factory.trainer(config), lease)
        self._jobs[number] = job
        return job

    # Finding

    def get(self, job_id: int, caller: Caller, *, field: str = "job_id") -> AnyJob:
        """A job of the caller's, or the built-in one (also by id 0). NotFound otherwise."""
        if job_id == 0:
            if self._built_in is None:
                raise InvalidArgument.at(
                    field, "is required: this server was started without a model, so there is no default sampling job"
                )
            return self._built_in
        job = self._jobs.get(job_id)
        if job is None or job.tenant not in (None, caller.tenant):
            known = ", ".join(str(j.job_id) for j in self.visible(caller)) or "none"
            raise NotFound("job", str(job_id), f"{field}: no job {job_id}; your jobs are: {known}")
        return job

    def sampling(self, job_id: int, caller: Caller, *, field: str = "job_id") -> SamplingJob:
        """A sampling job that takes work."""
        return self._of_kind(JobKind.SAMPLING, job_id, caller, field)

    def training(self, job_id: int, caller: Caller, *, field: str = "job_id") -> TrainingJob:
        """A training job that takes work."""
        return self._of_kind(JobKind.TRAINING, job_id, caller, field)

    def _of_kind(self, kind: JobKind, job_id: int, caller: Caller, field: str) -> AnyJob:
        job = self.get(job_id, caller, field=field)
        if job.kind is not kind:
            raise InvalidArgument.at(field, f"job {job.job_id} is a {job.kind} job; this call takes a {kind} job")
        job.require_working()
        return job

    def visible(self, caller: Caller) -> list[AnyJob]:
        """The caller's jobs and the built-in one, by id."""
        return [job for job in self._jobs.values() if job.tenant in (None, caller.tenant)]

    def all(self) -> list[AnyJob]:
        """Every job, of whomever."""
        return list(self._jobs.values())

    # Leases

    def heartbeat(self, job_ids: Sequence[int], caller: Caller) -> list[AnyJob]:
        """Renew leases: all, or none when one job is unknown."""
        jobs = [self.get(job_id, caller, field="job_ids") for job_id in job_ids]
        for job in jobs:
            if job.lease is not None:
                job.lease.renew()
                if job.state is JobState.PAUSED:
                    job.set_state(JobState.READY, "the lease was renewed")
        return jobs

    # Ending

    async def destroy(self, job_id: int, caller: Caller) -> None:
        """End a job after the operations that have begun."""
        job = self.get(job_id, caller)
        if job.tenant is None:
            raise PermissionDenied(
                "BUILT_IN_JOB", f"{job.name} was made by the server and ends with it; it cannot be destroyed"
            )
        await asyncio.shield(self._end(job))

    async def _end(self, job: AnyJob) -> None:
        self._jobs.pop(job.job_id, None)
        await job.operations.drain()
        for hook in self.on_destroy:
            hook(job)
        job.set_state(JobState.DESTROYED, "destroyed")
        await job.engine.shutdown()

    async def shutdown(self) -> None:
        """End all jobs."""
        if self._monitor is not None:
            self._monitor.cancel()
        await asyncio.gather(*(self._end(job) for job in list(self._jobs.values())), return_exceptions=False)

    # Watching over

    def start_monitor(self) -> None:
        """Notice dead engines and lapsed leases from now on."""
        self._monitor = asyncio.get_running_loop().create_task(self._watch_over())

    async def _watch_over(self) -> None:
        while True:
            await asyncio.sleep(HEALTH_INTERVAL_S)
            # Side by side: one engine that does not answer must not hide the others.
            await asyncio.gather(*(self._look_after_safely(job) for job in list(self._jobs.values())))

    async def _look_after_safely(self, job: AnyJob) -> None:
        try:
            await self._look_after(job)
        except Exception:
            log.exception("looking after %s", job.name)

    async def _look_after(self, job: AnyJob) -> None:
        if job.state in (JobState.READY, JobState.SLEEPING, JobState.PAUSED):
            try:
                async with asyncio.timeout(HEALTH_TIMEOUT_S):
                    await job.engine.check_health()
            except (GradwireError, TimeoutError) as error:
                reason = error.message if isinstance(error, GradwireError) else "its engine does not answer"
                log.error("%s failed: %s", job.name, reason)
                job.fail(reason)
        if job.lease is not None and job.lease.dead():
            log.warning("%s: no heartbeat for twice its lease, destroying it", job.name)
            await self._end(job)
        elif job.lease is not None and job.lease.lapsed() and job.state in (JobState.READY, JobState.SLEEPING):
            log.warning("%s: its lease lapsed", job.name)
            job.set_state(JobState.PAUSED, "the lease lapsed")
