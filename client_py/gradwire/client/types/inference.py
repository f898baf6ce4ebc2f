"""Deployed agents and their stored conversations."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from gradwire.client.types.sampling import Completion, Usage
from gradwire.client.types.shown import Brief

ValueLike = Any
"""An array-like; or a mapping (dict space, agents) or a tuple (tuple space) of such, nested."""
Value: TypeAlias = "npt.NDArray[np.generic] | dict[str, Value] | tuple[Value, ...]"
"""An array; or arrays by key or by position, nested."""


class DeploymentKind(StrEnum):
    """What a deployment serves."""

    UNSPECIFIED = "unspecified"
    LLM = "llm"
    RL_POLICY = "rl_policy"
    SUPERVISED = "supervised"


class MemoryScope(StrEnum):
    """Who sees a session."""

    UNSPECIFIED = "unspecified"
    """Nobody: nothing is stored."""
    USER = "user"
    ORGANIZATION = "organization"


@dataclass(frozen=True, slots=True, repr=False)
class AgentInfo(Brief):
    """Shape of an agent."""

    name: str
    agent_ids: tuple[str, ...]
    """Agents of a multi-agent policy; empty for a single one."""
    observation_space: Mapping[str, Any]
    """As gymnasium describes it."""
    action_space: Mapping[str, Any]
    recurrent: bool
    """It takes and returns a hidden state."""
    supports_action_mask: bool


@dataclass(frozen=True, slots=True, repr=False)
class DeploymentStatus(Brief):
    """What a deployment is."""

    deployment_id: str
    instance_id: str
    """This run of it; changes when it is redeployed."""
    kind: DeploymentKind
    """UNSPECIFIED where it is not told, as without a token."""
    agent: AgentInfo
    """Without a token its name alone, if that."""
    weight_version: int
    memory_scope: MemoryScope
    training_job_id: int = 0
    """Training job that the weights are of; 0: the model's own, or a bundle's."""


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class ActionResult(Brief):
    """Actions of a policy."""

    action: Value
    """Action, or one an agent."""
    hidden_state: Value | None
    """Pass it to the next call. None for a policy without one."""
    inference_s: float
    """Time in the policy, in seconds."""


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Prediction(Brief):
    """Predictions of a supervised model."""

    outputs: Value
    batch_size: int
    """Rows predicted."""
    inference_s: float
    """Time in the model, in seconds."""


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Reply(Brief):
    """A reply of a deployed language model."""

    prompt: str
    completion: Completion
    session_id: str
    """Conversation that both were stored in. Empty when nothing is stored."""
    num_dropped_messages: int
    """Oldest messages left out of the prompt because the context was full."""

    @property
    def text(self) -> str:
        """What was answered."""
        return self.completion.text


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Replies(Brief):
    """Replies, in the order of the prompts."""

    replies: Sequence[Reply]
    usage: Usage
    inference_s: float
    """Time in the model, in seconds."""


@dataclass(frozen=True, slots=True, repr=False)
class Session(Brief):
    """A stored conversation."""

    session_id: str
    created_at: datetime | None
    updated_at: datetime | None
    num_messages: int


@dataclass(frozen=True, slots=True, repr=False)
class SessionMessage(Brief):
    """A message of a conversation."""

    role: str
    content: str
    created_at: datetime | None
    incomplete: bool
    """The reply broke off: what is here is what had been sampled."""


@dataclass(frozen=True, slots=True, repr=False)
class Conversation(Brief):
    """A session and its messages, oldest first."""

    session: Session
    messages: tuple[SessionMessage, ...]
