"""Rollouts: what they are opened with, what is recorded of them, and the rows that they train on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum

import numpy as np
import numpy.typing as npt

from gradwire.client.types.sampling import FinishReason, SamplingParams, WeightSpan
from gradwire.client.types.shown import Brief


class RolloutOutcome(StrEnum):
    """How a rollout ended."""

    UNSPECIFIED = "unspecified"
    """It has not ended."""
    OK = "ok"
    """The agent ended it."""
    TRUNCATED = "truncated"
    """A limit of the agent's or of the rollout's ended it; set by the server where an error followed a refused call."""
    TIMEOUT = "timeout"
    """Its deadline passed; set by the server."""
    ENV_ERROR = "env_error"
    """The environment or the agent's program failed."""
    INFRA_ERROR = "infra_error"
    """The server or its engine failed; set by the server."""
    CANCELLED = "cancelled"
    """Somebody ended it early."""


class RolloutCallStatus(StrEnum):
    """What became of a model call."""

    UNSPECIFIED = "unspecified"
    RUNNING = "running"
    DONE = "done"
    RETRIED = "retried"
    """Answered, and asked again later with the same prompt: the later answer counts."""
    ABANDONED = "abandoned"
    """The caller left before its answer went out, or the rollout ended before that was whole."""
    FAILED = "failed"


class RowStart(StrEnum):
    """Why a row begins."""

    UNSPECIFIED = "unspecified"
    FIRST = "first"
    """No row was there before."""
    BRANCH = "branch"
    """Its prompt goes on from inside another row: n > 1, parallel calls, a tree search."""
    ANSWER_CHANGED = "answer_changed"
    """The prompt has other tokens where the model had sampled: thinking stripped, or text that encodes otherwise."""
    CONTEXT_CHANGED = "context_changed"
    """The prompt has other context: history summarised, a sub-agent."""


@dataclass(frozen=True, slots=True, repr=False)
class RolloutSpec(Brief):
    """What a rollout is opened with."""

    task_id: str = ""
    group_id: str = ""
    """Rollouts that are compared with one another. Default: task_id."""
    sample_index: int = 0
    """Which one of its group."""
    group_size: int = 0
    """Rollouts of the group, when they are opened in several calls. 0: those that there are."""
    timeout_s: float | None = None
    """Until the deadline, 1 to 604,800 seconds. None: an hour."""
    max_calls: int = 0
    """0: 10,000."""
    max_sampled_tokens: int = 0
    """0: no limit. Looked at when a call begins."""
    labels: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, repr=False)
class Rollout(Brief):
    """What is known of a rollout. Wherever a call takes a rollout, its id does as well."""

    rollout_id: str
    job_id: int
    spec: RolloutSpec
    base_path: str
    """Of its OpenAI API on the server's HTTP door."""
    outcome: RolloutOutcome
    reason: str
    reward: float | None
    step_rewards: Mapping[int, float]
    """By step: calls that count, from 0."""
    opened_at: datetime | None
    deadline: datetime | None
    ended_at: datetime | None
    collected_at: datetime | None
    num_calls: int
    num_running_calls: int
    num_sampled_tokens: int
    num_bytes: int
    """Held on the server."""
    limit_reached: bool
    """A call was refused because of max_calls or max_sampled_tokens."""

    @property
    def ended(self) -> bool:
        """It has an outcome."""
        return self.outcome is not RolloutOutcome.UNSPECIFIED


RolloutRef = Rollout | str
"""A rollout, or its id."""


@dataclass(frozen=True, slots=True, repr=False)
class RolloutUpdate(Brief):
    """A rollout as it is now. `gone`: it was discarded or has expired."""

    rollout: Rollout
    gone: bool


@dataclass(frozen=True, slots=True, repr=False)
class RolloutCompletion(Brief):
    """What was sampled. Without tokens the arrays are empty."""

    index: int
    num_tokens: int
    token_ids: npt.NDArray[np.int32]
    """[num_tokens]"""
    log_probs: npt.NDArray[np.float32]
    """[num_tokens], the model's own, before temperature and filters."""
    weight_spans: tuple[WeightSpan, ...]
    finish_reason: FinishReason


@dataclass(frozen=True, slots=True, repr=False)
class RolloutPrompt(Brief):
    """A prompt as the model read it, and what was sampled for it."""

    num_tokens: int
    token_ids: npt.NDArray[np.int32]
    """[num_tokens]; empty without tokens."""
    completions: tuple[RolloutCompletion, ...]


@dataclass(frozen=True, slots=True, repr=False)
class RolloutCall(Brief):
    """A model call made in a rollout."""

    call_index: int
    request_id: str
    endpoint: str
    status: RolloutCallStatus
    step: int | None
    """Its place among the calls that count; None for the others."""
    streamed: bool
    num_retries: int
    """Attempts that the client says it made before."""
    error: str
    begun_at: datetime | None
    ended_at: datetime | None
    prompts: tuple[RolloutPrompt, ...]
    constrained: bool
    """A grammar bound what was sampled; log-probs are of the tokens that it allowed."""
    sampling_params: SamplingParams | None = None
    """How it sampled, as the engine applied it: temperature, top_p, top_k, min_p, penalties, logit_bias, seed, n and
    the limits of its length; its other fields are not recorded. None where nothing was sampled."""


@dataclass(frozen=True, slots=True, repr=False)
class RolloutDetails(Brief):
    """A rollout and its calls, in the order in which they began."""

    rollout: Rollout
    calls: tuple[RolloutCall, ...]


@dataclass(frozen=True, slots=True, repr=False)
class RowTurn(Brief):
    """Tokens [start, end) of a row are one completion."""

    call_index: int
    prompt_index: int
    completion_index: int
    step: int | None
    """None for a call that does not count."""
    start: int
    end: int
    weight_spans: tuple[WeightSpan, ...]
    """Indexes are in the completion."""
    finish_reason: FinishReason
    constrained: bool = False
    """A grammar bound it: its log-probs are not those that the model alone gives."""


@dataclass(frozen=True, slots=True, repr=False)
class RolloutRow(Brief):
    """One training sequence of T tokens, exactly as the model read and sampled them. Not shifted."""

    token_ids: npt.NDArray[np.int32]
    """[T]"""
    loss_mask: npt.NDArray[np.bool_]
    """[T]: the model sampled this token."""
    log_probs: npt.NDArray[np.float32]
    """[T]: of each sampled token when it was sampled; 0 elsewhere."""
    turns: tuple[RowTurn, ...]
    start: RowStart
    parent: int | None
    """Row that it comes from."""
    num_shared_tokens: int
    """At its head: those of the parent."""

    @property
    def num_sampled_tokens(self) -> int:
        """Tokens to train on."""
        return int(self.loss_mask.sum())


@dataclass(frozen=True, slots=True, repr=False)
class DroppedCompletion(Brief):
    """Sampled tokens that are in no row. `status` is their call's; DONE: there was no token."""

    call_index: int
    prompt_index: int
    completion_index: int
    status: RolloutCallStatus
    num_tokens: int


@dataclass(frozen=True, slots=True, repr=False)
class CollectedRollout(Brief):
    """An ended rollout and what it trains on."""

    rollout: Rollout
    rows: tuple[RolloutRow, ...]
    dropped: tuple[DroppedCompletion, ...]
