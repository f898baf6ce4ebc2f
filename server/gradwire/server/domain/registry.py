"""All jobs of the server: makes them, finds them for their owners, ends them. `monitor` watches over them."""

from __future__ import annotations

import asyncio
import itertools
import logging
import re
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Protocol, TypeAlias

from gradwire.server.domain.caller import Caller
from gradwire.server.domain.jobs import Job, JobKind, JobState
from gradwire.server.domain.leases import JobLease
from gradwire.server.engines.base import LogProbEngine, SamplerEngine, TrainingEngine
from gradwire.server.engines.sampling import SamplerConfig
from gradwire.server.engines.scoring import LogProbConfig
from gradwire.server.engines.training import TrainingConfig
from gradwire.server.errors import (
    Aborted,
    FieldViolation,
    GradwireError,
    InvalidArgument,
    NotFound,
    PermissionDenied,
    ResourceExhausted,
)

log = logging.getLogger(__name__)

SamplingJob: TypeAlias = Job[SamplerEngine]
TrainingJob: TypeAlias = Job[TrainingEngine]
LogProbJob: TypeAlias = Job[LogProbEngine]
AnyJob: TypeAlias = Job[Any]
AnyConfig: TypeAlias = SamplerConfig | TrainingConfig | LogProbConfig
JobProgress = Callable[[int, str], None]
"""Called from any thread with a job id and a line for people."""

PATIENCE_S = 30.0  # with a weight update of a sampler that ends


class EngineFactory(Protocol):
    """Makes engines that have not started."""

    def sampler(self, config: SamplerConfig) -> SamplerEngine:
        """A sampler of this configuration."""

    def trainer(self, config: TrainingConfig) -> TrainingEngine:
        """A trainer of this configuration."""

    def log_prob(self, config: LogProbConfig) -> LogProbEngine:
        """A scoring engine of this configuration."""


class JobRegistry:
    """One per server."""

    def __init__(self, factory: EngineFactory, *, max_jobs: int) -> None:
        self._factory = factory
        self._max_jobs = max_jobs
        self._jobs: dict[int, AnyJob] = {}
        self._ids = itertools.count(1)
        self._built_in: SamplingJob | None = None
        self._starts: dict[int, asyncio.Task[None]] = {}
        self._ends: dict[int, asyncio.Task[None]] = {}
        self.on_destroy: list[Callable[[AnyJob], Awaitable[None]]] = []
        self.on_sleep: list[Callable[[AnyJob], Awaitable[None]]] = []  # its weights are out of reach now

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
        configs: Sequence[AnyConfig],
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
        jobs: list[AnyJob] = []
        try:
            for config in configs:
                jobs.append(self._new(config, tenant))
            for job in jobs:  # one after the other: starting engines fight for cores and memory
                await self._start(job, progress)
            if lease_s is not None:
                for job in jobs:  # from now on: nobody can send heartbeats for what is still starting
                    job.lease = JobLease(lease_s)
        except BaseException:
            await asyncio.shield(asyncio.gather(*(self.end(job) for job in jobs)))
            raise
        return jobs

    def _new(self, config: AnyConfig, tenant: str | None) -> AnyJob:
        number = next(self._ids)
        job: AnyJob
        match config:
            case SamplerConfig():
                with _fields_of(JobKind.SAMPLING):
                    job = Job(number, JobKind.SAMPLING, tenant, config, self._factory.sampler(config))
            case TrainingConfig():
                with _fields_of(JobKind.TRAINING):
                    job = Job(number, JobKind.TRAINING, tenant, config, self._factory.trainer(config))
            case LogProbConfig():
                with _fields_of(JobKind.LOG_PROB):
                    job = Job(number, JobKind.LOG_PROB, tenant, config, self._factory.log_prob(config))
        self._jobs[number] = job
        return job

    async def _start(self, job: AnyJob, progress: JobProgress) -> None:
        if job.job_id not in self._jobs:
            raise _ended_while_starting(job)
        progress(job.job_id, f"starting {job.name} ({job.config.model})")
        start = asyncio.ensure_future(job.engine.start(lambda line: progress(job.job_id, line)))
        self._starts[job.job_id] = start
        try:
            with _fields_of(job.kind):
                await start
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                raise  # our caller went away
            raise _ended_while_starting(job) from None
        except GradwireError as error:
            # The text of an InvalidArgument may hold what was asked for.
            why = error.reason if isinstance(error, InvalidArgument) else f"{error.reason}: {error.message}"
            log.info("%s (%s) did not start: %s", job.name, job.config.model, why)
            raise
        finally:
            del self._starts[job.job_id]
        job.started = True
        job.set_state(JobState.READY, "ready")
        progress(job.job_id, f"{job.name} is ready")

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
        return self.of_kind(job_id, caller, JobKind.SAMPLING, field=field)

    def training(self, job_id: int, caller: Caller, *, field: str = "job_id") -> TrainingJob:
        """A training job that takes work."""
        return self.of_kind(job_id, caller, JobKind.TRAINING, field=field)

    def log_prob(self, job_id: int, caller: Caller, *, field: str = "job_id") -> LogProbJob:
        """A log-prob job that takes work."""
        return self.of_kind(job_id, caller, JobKind.LOG_PROB, field=field)

    def of_kind(self, job_id: int, caller: Caller, *kinds: JobKind, field: str = "job_id") -> AnyJob:
        """A job of one of these kinds that takes work."""
        job = self.get(job_id, caller, field=field)
        if job.kind not in kinds:
            wanted = " or ".join(kind.words for kind in kinds)
            raise InvalidArgument.at(
                field, f"job {job.job_id} is a {job.kind.words} job; this call takes a {wanted} job"
            )
        job.require_working()
        return job

    def holds(self, job_id: int) -> bool:
        """Whether there is a job of this id, whosever it is."""
        return job_id in self._jobs

    def visible(self, caller: Caller) -> list[AnyJob]:
        """The caller's jobs and the built-in one, by id."""
        return [job for job in self._jobs.values() if job.tenant in (None, caller.tenant)]

    def all(self) -> list[AnyJob]:
        """Every job, of whomever."""
        return list(self._jobs.values())

    def samplers(self) -> Iterator[tuple[int, str, SamplerEngine]]:
        """The id, the model and the engine of each sampling job that has started."""
        for job in self._jobs.values():
            if job.kind is JobKind.SAMPLING and job.started:
                yield job.job_id, job.config.model, job.engine

    async def fell_asleep(self, job: AnyJob) -> None:
        """Its weights sleep: let go of what was kept for moving them."""
        for hook in self.on_sleep:
            await hook(job)

    # Leases

    def heartbeat(self, job_ids: Sequence[int], caller: Caller) -> list[AnyJob]:
        """Renew leases: all, or none when one job is unknown."""
        jobs = [self.get(job_id, caller, field="job_ids") for job_id in job_ids]
        for job in jobs:
            if job.lease is not None:
                job.lease.renew()
                job.unpause()
        return jobs

    # Ending

    async def destroy(self, job_id: int, caller: Caller) -> None:
        """End a job after the operation that has begun. One that is starting fails its creation."""
        job = self.get(job_id, caller)
        if job.tenant is None:
            raise PermissionDenied(
                "BUILT_IN_JOB", f"{job.name} was made by the server and ends with it; it cannot be destroyed"
            )
        await asyncio.shield(self.end(job))

    def end(self, job: AnyJob) -> asyncio.Task[None]:
        """The task that ends a job, one however many ask. It never fails: what went wrong is in the log."""
        self._jobs.pop(job.job_id, None)
        if job.job_id not in self._ends:
            task = asyncio.get_running_loop().create_task(self._end_once(job))
            self._ends[job.job_id] = task
            task.add_done_callback(lambda _: self._ends.pop(job.job_id, None))
        return self._ends[job.job_id]

    async def _end_once(self, job: AnyJob) -> None:
        if job.state is JobState.DESTROYED:
            return
        start = self._starts.get(job.job_id)
        if start is not None:
            start.cancel()
            await asyncio.wait([start])
        await job.operations.close()
        job.set_state(JobState.DESTROYED, "destroyed")
        leaving = asyncio.get_running_loop().create_task(self._let_go(job))
        # What has begun with the engine may end first; an engine that is stuck must not keep the job.
        await asyncio.wait({leaving}, timeout=PATIENCE_S)
        try:
            await job.engine.shutdown()
        except Exception:
            log.exception("ending %s", job.name)
        await leaving

    async def _let_go(self, job: AnyJob) -> None:
        for hook in self.on_destroy:  # each, whatever became of the others
            try:
                await hook(job)
            except Exception:
                log.exception("ending %s", job.name)

    async def shutdown(self) -> None:
        """End all jobs."""
        for job in self.all():
            self.end(job)
        await asyncio.gather(*self._ends.values())

    def dismiss_watchers(self) -> None:
        """End what follows jobs: the server is about to go."""
        for job in self.all():
            job.dismiss()


@contextmanager
def _fields_of(kind: JobKind) -> Iterator[None]:
    """`config.zero_stage` of an engine is `training.zero_stage` to the caller."""
    try:
        yield
    except InvalidArgument as error:
        raise InvalidArgument(
            [
                FieldViolation(re.sub(r"^config\b", kind.value, violation.field), violation.description)
                for violation in error.violations
            ],
            reason=error.reason,
        ) from error


def _ended_while_starting(job: AnyJob) -> Aborted:
    return Aborted("JOB_DESTROYED", f"{job.name} was destroyed while it was starting")
