"""Which agents are deployed, by name, and what each is.

Knows: kinds, versions, who uses a deployment just now. Does not know: how deployments come and go (`deploying`), or
how they answer (`inference`).
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, TypeAlias

from gradwire.server.domain.adapters import served
from gradwire.server.domain.caller import LOCAL_TENANT, Caller
from gradwire.server.domain.jobs import Adapter, JobState
from gradwire.server.domain.registry import SamplingJob
from gradwire.server.domain.sessions import MemoryScope, Shelf, shelf_of
from gradwire.server.engines.acting import ActingEngine
from gradwire.server.errors import AlreadyExists, FailedPrecondition, InvalidArgument, NotFound


class DeploymentKind(StrEnum):
    """What a deployment serves."""

    LLM = "llm"
    RL_POLICY = "rl_policy"
    SUPERVISED = "supervised"

    @property
    def words(self) -> str:
        """For people: "a language model"."""
        return _WORDS[self]


_WORDS = {
    DeploymentKind.LLM: "a language model",
    DeploymentKind.RL_POLICY: "a policy",
    DeploymentKind.SUPERVISED: "a supervised model",
}


@dataclass(frozen=True, slots=True)
class LanguageModel:
    """A language model of a sampling job."""

    job_id: int = 0
    """0: the one that the server was started with."""
    training_job_id: int = 0
    """Job whose weights, or adapter, it follows. 0: none."""
    system_prompt: str = ""
    params: Mapping[str, Any] = field(default_factory=dict)
    """What requests leave out, by the names of SamplingParams' fields."""


@dataclass(frozen=True, slots=True)
class PolicyBundle:
    """A policy or a supervised model."""

    bundle: str
    """Folder or zip file, relative to the root of bundles."""
    deterministic: bool | None = None
    """What a request gets that does not say. None: what the bundle says."""


Source: TypeAlias = LanguageModel | PolicyBundle


@dataclass(frozen=True, slots=True)
class Weights:
    """What answers now."""

    version: int
    training_job_id: int = 0
    """0: the model's own, or a bundle's."""
    adapter: str = ""
    """The sampling engine's name of it. Empty: the model itself."""
    trouble: str = field(default="", compare=False)
    """Why it cannot answer."""


def _followed(job: SamplingJob, training_job_id: int, adapters: Sequence[Adapter], tenant: str) -> Weights:
    """The latest that a training job synced: its adapter, or the whole model."""
    of_job = [adapter for adapter in adapters if adapter.training_job_id == training_job_id]
    newest = max(of_job, key=lambda adapter: adapter.since, default=None)
    if newest is None or (job.weights_of == training_job_id and job.version_since > newest.since):
        return Weights(job.weight_version, job.weights_of)
    trouble = served(job, newest.name, tenant).trouble
    return Weights(newest.weight_version, training_job_id, newest.engine_name, trouble)


@dataclass(eq=False, slots=True)
class Deployment:
    """A version of an agent under a name. `engine` is a bundle's, `job` a language model's."""

    deployment_id: str
    memory_scope: MemoryScope = MemoryScope.USER
    kind: DeploymentKind = DeploymentKind.LLM
    source: Source = field(default_factory=LanguageModel)
    version: int = 1
    tenant: str = LOCAL_TENANT
    """Whose jobs and adapters it uses."""
    deployed_at: int = 0
    """Unix microseconds."""
    engine: ActingEngine | None = None
    job: SamplingJob | None = None
    configured: bool = False
    """It is of this server's settings: not kept, and nobody else's to change."""
    error: str = ""
    """Why it could not be made."""
    instance_id: str = field(default_factory=lambda: uuid.uuid4().hex[:16])
    _uses: int = 0
    _idle: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def trouble(self) -> str:
        """Why it cannot answer. Empty when it can."""
        if self.error or self.job is None:
            return self.error
        if self.job.state is JobState.FAILED:
            return f"{self.job.name} failed: {self.job.error}"
        return f"{self.job.name} was destroyed" if self.job.state is JobState.DESTROYED else self.weights.trouble

    @property
    def weights(self) -> Weights:
        """What answers now: of a language model the job's, or the adapter of the training job that it follows."""
        job, source = self.job, self.source
        if job is None or not isinstance(source, LanguageModel):
            return Weights(self.version if self.engine is not None else 0)
        mine = [a for (tenant, _), a in job.adapters.items() if tenant == self.tenant]
        if source.training_job_id:
            return _followed(job, source.training_job_id, mine, self.tenant)
        found = served(job, "", self.tenant)
        trained_by = [a.training_job_id for a in mine if a.engine_name == found.engine_name]
        trainer = trained_by[0] if trained_by else job.weights_of
        return Weights(found.weight_version, trainer, found.engine_name, found.trouble)

    def require(self, *kinds: DeploymentKind) -> None:
        """Raises InvalidArgument when it is none of these, FailedPrecondition when it cannot answer."""
        if self.kind not in kinds:
            wanted = " or ".join(kind.words for kind in kinds)
            raise InvalidArgument.at(
                "deployment_id",
                f"{self.deployment_id!r} is {self.kind.words}; this call is for {wanted}",
                reason="WRONG_DEPLOYMENT_KIND",
            )
        if self.trouble:
            raise FailedPrecondition(
                "DEPLOYMENT_FAILED",
                f"deployment {self.deployment_id!r} cannot answer: {self.trouble}",
                subject=f"deployment/{self.deployment_id}",
            )

    @contextmanager
    def in_use(self) -> Iterator[None]:
        """It is kept until the call that is under way has its answer."""
        self._uses += 1
        self._idle.clear()
        try:
            yield
        finally:
            self._uses -= 1
            if not self._uses:
                self._idle.set()

    async def until_idle(self) -> None:
        """Returns when nobody uses it."""
        if self._uses:
            await self._idle.wait()


class Deployments:
    """The deployments of this server."""

    def __init__(self) -> None:
        self._by_id: dict[str, Deployment] = {}

    def require_free(self, deployment_id: str) -> None:
        """Raises AlreadyExists when the name is taken."""
        if deployment_id in self._by_id:
            raise taken(deployment_id)

    def get(self, deployment_id: str) -> Deployment | None:
        """The one of that id."""
        return self._by_id.get(deployment_id)

    def put(self, deployment: Deployment) -> Deployment | None:
        """Answers new requests from now on; what did before."""
        before = self._by_id.get(deployment.deployment_id)
        self._by_id[deployment.deployment_id] = deployment
        return before

    def remove(self, deployment_id: str) -> Deployment | None:
        """What was there. Its conversations stay stored."""
        return self._by_id.pop(deployment_id, None)

    def all(self, *, after: str = "") -> list[Deployment]:
        """By name; those behind the name `after`."""
        return [self._by_id[name] for name in sorted(self._by_id) if name > after]

    def find(self, deployment_id: str, *, naming_others: bool = True) -> Deployment:
        """The one of that id; of an empty id the only one. Raises NotFound, and InvalidArgument when it is not clear
        which one is meant; both name those there are, unless `naming_others` is False."""
        if deployment_id:
            found = self._by_id.get(deployment_id)
            if found is None:
                raise self._missing(deployment_id, naming_others)
            return found
        if not self._by_id:
            raise self._missing("", naming_others)
        if len(self._by_id) > 1:
            raise InvalidArgument.at("deployment_id", f"is needed: {self._others(naming_others)}")
        return next(iter(self._by_id.values()))

    def shelf(self, deployment_id: str, caller: Caller) -> Shelf:
        """Where the caller's conversations with a deployment stand. They can be read whatever its engine does."""
        deployment = self.find(deployment_id)
        if deployment.kind is not DeploymentKind.LLM:
            deployment.require(DeploymentKind.LLM)
        return shelf_of(deployment.deployment_id, deployment.memory_scope, caller)

    def _missing(self, deployment_id: str, naming_others: bool) -> NotFound:
        text = f"no deployment {deployment_id!r}; " if deployment_id or not naming_others else ""
        return NotFound("deployment", deployment_id, f"deployment_id: {text}{self._others(naming_others)}")

    def _others(self, named: bool) -> str:
        if not named:
            return "whoever has a token for deployments is told which there are"
        if not self._by_id:
            return "nothing is deployed here. `gradwire deploy NAME --llm` deploys the server's language model"
        return f"there are {', '.join(sorted(self._by_id))}"


def taken(deployment_id: str) -> AlreadyExists:
    """The name is another deployment's."""
    return AlreadyExists(
        "DEPLOYMENT_EXISTS", f"deployment {deployment_id!r} is there already; replace it, or undeploy it first"
    )
