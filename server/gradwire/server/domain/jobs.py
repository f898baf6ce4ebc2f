"""A job: an engine that somebody made, its state, its operations, its lease and its watchers."""

from __future__ import annotations

import asyncio
import logging
import time
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Generic, TypeVar

from gradwire.server.domain.bases import Base, loaded
from gradwire.server.domain.leases import JobLease
from gradwire.server.domain.operations import OperationLog
from gradwire.server.engines.base import LogProbEngine, SamplerEngine, TrainingEngine
from gradwire.server.engines.sampling import SamplerConfig
from gradwire.server.engines.scoring import LogProbConfig
from gradwire.server.engines.training import TrainingConfig
from gradwire.server.errors import FailedPrecondition, GradwireError, Unavailable

log = logging.getLogger(__name__)

HEALTH_TIMEOUT_S = 30.0  # an engine that says nothing for so long counts as dead


class JobKind(StrEnum):
    """What a job does."""

    TRAINING = "training"
    SAMPLING = "sampling"
    LOG_PROB = "log_prob"

    @property
    def words(self) -> str:
        """For people: "log-prob"."""
        return self.value.replace("_", "-")


class JobState(StrEnum):
    """Where a job is in its life."""

    STARTING = "starting"
    READY = "ready"
    SLEEPING = "sleeping"
    PAUSED = "paused"  # its lease lapsed
    FAILED = "failed"
    DESTROYED = "destroyed"


@dataclass(frozen=True, slots=True)
class Adapter:
    """An adapter that a sampling job serves."""

    name: str
    engine_name: str
    weight_version: int
    training_job_id: int
    rank: int
    since: float  # Unix seconds
    trained_on: str = ""  # for people, once the job serves another model: then none can use it until it is synced again


Engine = TypeVar("Engine", SamplerEngine, TrainingEngine, LogProbEngine)


@dataclass(eq=False, slots=True)
class Job(Generic[Engine]):
    """`tenant` None: made by the server, everyone's to use and no one's to destroy.

    `held` is set while a caller has paused the sampler: weight updates then leave it paused.
    """

    job_id: int
    kind: JobKind
    tenant: str | None
    config: TrainingConfig | SamplerConfig | LogProbConfig
    engine: Engine
    lease: JobLease | None = None
    state: JobState = JobState.STARTING
    started: bool = False  # the engine has started once, so its facts are known
    held: bool = False
    error: str = ""
    created: float = field(default_factory=time.time)  # Unix seconds
    version_since: float = field(default_factory=time.time)  # Unix seconds
    weight_version: int = 0
    weights_of: int = 0  # the training job whose weights these are; 0: the model's own, or an external trainer's
    adapters: dict[tuple[str, str], Adapter] = field(default_factory=dict)  # by tenant and name
    base: Base = field(init=False)  # of a sampling job: what its own weights, under all adapters, are
    operations: OperationLog = field(init=False)
    _state_before_pause: JobState = JobState.READY
    _watchers: set[asyncio.Queue[str | None]] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.operations = OperationLog(self.name)
        self.base = loaded(self.config)

    @property
    def name(self) -> str:
        """ "training_job/3"."""
        return f"{self.kind}_job/{self.job_id}"

    def set_state(self, state: JobState, message: str) -> None:
        """Change state and tell the watchers. A failed job can only be destroyed, a destroyed one stays so."""
        if state is self.state or self.state is JobState.DESTROYED:
            return
        if self.state is JobState.FAILED and state is not JobState.DESTROYED:
            return
        if self.state is JobState.PAUSED and state in (JobState.READY, JobState.SLEEPING):
            self._state_before_pause = state  # the engine slept or woke while the lease lapsed
            return
        if state is JobState.DESTROYED:
            log.info("%s (%s) is destroyed%s", self.name, self.config.model, "" if self.started else ", not started")
        elif self.state is JobState.STARTING and self.tenant is not None:  # the server's start tells of its own
            log.info("%s (%s) is %s", self.name, self.config.model, state)
        self.state = state
        self.tell(message)

    def pause(self) -> None:
        """The lease lapsed."""
        self._state_before_pause = self.state
        self.set_state(JobState.PAUSED, "the lease lapsed")

    def unpause(self) -> None:
        """The lease was renewed."""
        if self.state is JobState.PAUSED:
            self.state = self._state_before_pause
            self.tell("the lease was renewed")

    def fail(self, reason: str) -> None:
        """The engine died."""
        if self.state not in (JobState.FAILED, JobState.DESTROYED):
            log.error("%s (%s) failed: %s", self.name, self.config.model, reason)
            self.error = reason
            self.set_state(JobState.FAILED, reason)

    def failed(self) -> FailedPrecondition:
        """Why the job takes no more work, and what to do."""
        if self.tenant is None:
            advice = "Restart the server, whose own job it is"
        elif self.kind is JobKind.TRAINING:
            advice = "Destroy it, create another and load its last checkpoint"
        else:
            advice = "Destroy it and create another"
        return FailedPrecondition("JOB_FAILED", f"{self.name} failed: {self.error}. {advice}", subject=self.name)

    async def fail_if_dead(self) -> str:
        """Look whether the engine lives; why it does not, and then the job has failed. Empty when it does."""
        try:
            async with asyncio.timeout(HEALTH_TIMEOUT_S):
                await self.engine.check_health()
        except (GradwireError, TimeoutError) as error:
            reason = error.message if isinstance(error, GradwireError) else "its engine does not answer"
            self.fail(reason)
            return reason
        return ""

    def set_version(self, version: int, training_job_id: int = 0) -> None:
        """The weights changed, to those of a training job where one is named."""
        self.weight_version = version
        self.weights_of = training_job_id
        self.version_since = time.time()
        self.tell(f"weight version {version}")

    def tell(self, message: str) -> None:
        """Put a line before every watcher."""
        for queue in self._watchers:
            queue.put_nowait(message)

    def watch(self) -> asyncio.Queue[str | None]:
        """Follow the job, until None; give the queue back with `unwatch`."""
        queue: asyncio.Queue[str | None] = asyncio.Queue()
        self._watchers.add(queue)
        return queue

    def dismiss(self) -> None:
        """Send the watchers away: the server ends."""
        for queue in self._watchers:
            queue.put_nowait(None)

    def unwatch(self, queue: asyncio.Queue[str | None]) -> None:
        """Stop following."""
        self._watchers.discard(queue)

    def require_working(self) -> None:
        """Raises unless the job takes work. Sleep is the engine's to judge: some calls wake it."""
        match self.state:
            case JobState.FAILED:
                raise self.failed()
            case JobState.PAUSED:
                raise FailedPrecondition(
                    "LEASE_LAPSED", f"the lease of {self.name} lapsed; send a heartbeat to go on", subject=self.name
                )
            case JobState.STARTING:
                raise Unavailable("JOB_STARTING", f"{self.name} is starting")
            case JobState.DESTROYED:
                raise FailedPrecondition("JOB_DESTROYED", f"{self.name} was destroyed", subject=self.name)
            case _:
                return
