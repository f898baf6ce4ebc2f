"""What is kept of a deployment's name, for the next start and for other servers of the same database."""

from __future__ import annotations

import reprlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from gradwire.server.domain.deployments import Deployment, DeploymentKind, LanguageModel, Source
from gradwire.server.domain.sessions import MemoryScope


@dataclass(frozen=True, slots=True)
class DeploymentRecord:
    """What is kept of a name, also after its deployment ended."""

    deployment_id: str
    version: int
    tenant: str
    memory_scope: MemoryScope | None
    """None: no language model was deployed under it yet."""
    kind: DeploymentKind
    source: Source | None
    """None: nothing comes back at the next start."""
    deployed_at: int
    """Unix microseconds."""

    @property
    def job(self) -> str:
        """The job that it is of, as "sampling job 3": one server's alone, with which it ends. Empty: it is of none."""
        if not isinstance(self.source, LanguageModel):
            return ""
        if self.source.job_id:
            return f"sampling job {self.source.job_id}"
        return f"training job {self.source.training_job_id}" if self.source.training_job_id else ""

    def is_news(self, mine: Deployment | None) -> bool:
        """Another server has changed the name since `mine` was made here, in a way that this server can follow."""
        if mine is None:
            return self.source is not None and not self.job
        if mine.configured:
            return False
        if self.source is None:
            return self.version == mine.version  # of a later version it is in another server's settings
        changed = (self.version, self.deployed_at) != (mine.version, mine.deployed_at)
        return changed and self.version >= mine.version and not self.job


class DeploymentStore(Protocol):
    """Where records lie."""

    async def all(self) -> Sequence[DeploymentRecord]:
        """Every name's, by name."""

    async def find(self, deployment_id: str) -> DeploymentRecord | None:
        """A name's."""

    async def put(self, record: DeploymentRecord) -> None:
        """Store a name's record, or replace it."""


def record_of(made: Deployment, scope: MemoryScope | None) -> DeploymentRecord:
    """The record of a deployment. One of the settings is not kept: they make it anew."""
    return DeploymentRecord(
        deployment_id=made.deployment_id,
        version=made.version,
        tenant=made.tenant,
        memory_scope=scope,
        kind=made.kind,
        source=None if made.configured else made.source,
        deployed_at=made.deployed_at,
    )


def failed(record: DeploymentRecord, source: Source, reason: str) -> Deployment:
    """A deployment that could not be made of its record."""
    return Deployment(
        record.deployment_id,
        record.memory_scope if record.memory_scope and isinstance(source, LanguageModel) else MemoryScope.NONE,
        kind=record.kind,
        source=source,
        version=record.version,
        tenant=record.tenant,
        deployed_at=record.deployed_at,
        error=reason,
    )


def change(made: Deployment, before: DeploymentRecord | None) -> str:
    """For the log: what answers now, and what it replaces. A system prompt is not for the log."""
    text = f"deployed {made.deployment_id}, version {made.version}: {_words(made.source)}"
    if before is None or before.source is None:
        return text
    text += f", in place of version {before.version}: {_words(before.source)}"
    if made.configured:
        text += " (kept no longer: this server's settings have the name)"
    return text


def _words(source: Source) -> str:
    if not isinstance(source, LanguageModel):
        chosen = {None: "", True: ", deterministic", False: ", not deterministic"}[source.deterministic]
        return f"bundle {source.bundle}{chosen}"
    parts = [
        f"of sampling job {source.job_id}" if source.job_id else "the server's own",
        f"follows training job {source.training_job_id}" if source.training_job_id else "",
        f"system prompt of {len(source.system_prompt)} characters" if source.system_prompt else "",
        *(f"{name}={reprlib.repr(value)}" for name, value in source.params.items()),
    ]
    return f"language model ({', '.join(filter(None, parts))})"
