"""What `to_training_batch` gives: the batch, where its rows come from, and what is not in it and why."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from enum import StrEnum

from gradwire.client.types.shown import Brief
from gradwire.client.types.training import TrainingBatch


class DropReason(StrEnum):
    """Why a row is not in the batch."""

    TIMEOUT = "timeout"
    """The run's outcome; as the next three, it is left out of its group's statistics too."""
    ENV_ERROR = "env_error"
    INFRA_ERROR = "infra_error"
    CANCELLED = "cancelled"
    NO_REWARD = "no_reward"
    """The run has none. It is left out of the statistics too."""
    STALE = "stale"
    """Sampled, in part, by weights older than `min_weight_version`. It is left out of the statistics too."""
    TRUNCATED = "truncated"
    """`mask_truncated`."""
    UNIFORM_GROUP = "uniform_group"
    """`drop_uniform`, and no advantage in its group is other than 0."""
    NOTHING_TRAINED = "nothing_trained"
    """No token of it is to be trained."""
    ABANDONED = "abandoned"
    """Nobody went on from it: the client had left, or had asked again."""
    RETRIED = "retried"
    """The client had asked again, and went on from the later answer."""
    FAILED = "failed"
    """The call was answered with an error."""
    TOO_LONG = "too_long"
    """Longer than `max_row_tokens`."""


@dataclass(frozen=True, slots=True, repr=False)
class DroppedRow(Brief):
    """Something that was sampled and is not in the batch."""

    idx: int
    """Of the run."""
    row: int | None
    """Which of the run's rows; None: all of them, or what was sampled and is in no row."""
    reason: DropReason
    detail: str
    """In words."""
    rollout_id: str = ""
    """Of the rollout that the run was recorded as."""


@dataclass(frozen=True, slots=True, repr=False)
class RowOrigin(Brief):
    """Where a row of the batch comes from."""

    idx: int
    """Of the run."""
    row: int
    """Which of the run's rows."""
    group: Hashable
    """The task."""
    reward: float
    """Of the run."""
    num_trained: int
    """Tokens that the loss counts."""
    rollout_id: str = ""
    """Of the rollout that the run was recorded as."""


@dataclass(frozen=True, slots=True, repr=False)
class BatchStats(Brief):
    """Counts and means. Rewards are those of the runs that count in the statistics of groups."""

    num_samples: int
    """Runs that were given, or told of."""
    num_counted: int
    """Runs that the statistics of groups are made of."""
    outcomes: Mapping[str, int]
    """Runs by outcome."""
    num_groups: int
    """Groups with a run that counts."""
    num_single_groups: int
    """Those with only one such run: its advantage is 0, unless its turns are compared with each other."""
    num_uniform_groups: int
    """Those whose advantages are all 0."""
    num_rows: int
    """Rows in the batch."""
    num_dropped_rows: int
    num_tokens: int
    """Tokens in the batch."""
    num_trained_tokens: int
    """Those that the loss counts."""
    reward_mean: float | None
    """None when no run counts; so are the next three."""
    reward_std: float | None
    """Over n - 1; 0 for one run."""
    reward_min: float | None
    reward_max: float | None


@dataclass(frozen=True, slots=True, repr=False)
class AgentBatch(Brief):
    """A batch for `client.training.fwd_bwd`, and its account."""

    batch: TrainingBatch | None
    """Rows of differing lengths, ordered by idx. None when nothing is left to train on: `dropped` says why."""
    rows: tuple[RowOrigin, ...]
    """One for each row of the batch."""
    dropped: tuple[DroppedRow, ...]
    """Ordered by idx."""
    stats: BatchStats
