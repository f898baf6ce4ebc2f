"""Agents behind names."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from gradwire.client.types.inference import DeploymentKind, MemoryScope
from gradwire.client.types.sampling import SamplingParams
from gradwire.client.types.shown import Brief


class DeploymentState(StrEnum):
    """Whether a deployment serves."""

    UNSPECIFIED = "unspecified"
    READY = "ready"
    FAILED = "failed"


@dataclass(frozen=True, slots=True, repr=False)
class LanguageModel(Brief):
    """A language model of a sampling job."""

    job_id: int
    """0: the sampling job that the server was started with."""
    training_job_id: int
    """Training job that it follows; 0: none."""
    system_prompt: str
    params: SamplingParams
    """What requests leave out."""


@dataclass(frozen=True, slots=True, repr=False)
class PolicyBundle(Brief):
    """A policy or a supervised model."""

    bundle: str
    """Path below the server's bundle_root."""
    deterministic: bool | None
    """What a request gets that does not say; None: as the bundle says."""


@dataclass(frozen=True, slots=True, repr=False)
class Deployment(Brief):
    """An agent behind a name."""

    deployment_id: str
    version: int
    """Counts what was deployed under the name, from 1."""
    instance_id: str
    """Of this version; changes when it is redeployed, and when the server is started again."""
    kind: DeploymentKind
    state: DeploymentState
    error: str
    """Why it does not serve; empty while it does."""
    memory_scope: MemoryScope
    deployed_at: datetime | None
    weight_version: int
    """Version of the weights that answer now."""
    weights_training_job_id: int
    """Training job that they are of; 0: the model's own, or a bundle's."""
    source: LanguageModel | PolicyBundle
