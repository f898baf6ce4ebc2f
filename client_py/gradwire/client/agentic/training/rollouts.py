"""Rollouts that the server recorded, as samples.

Knows: rows, turns and what became of calls. Does not know: how they travelled, or advantages.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from datetime import datetime

import numpy as np
import numpy.typing as npt

from gradwire.client.agentic.outcomes import Outcome
from gradwire.client.agentic.training.result import DropReason
from gradwire.client.agentic.training.samples import Sample, SampleRow
from gradwire.client.types.rollouts import CollectedRollout, DroppedCompletion, RolloutCallStatus, RolloutRow

_NEVER = datetime.min


def samples_of_rollouts(rollouts: Sequence[CollectedRollout], *, mask_constrained: bool = False) -> list[Sample]:
    """Samples in the order of group, sample_index and opening, numbered by it, whatever order they ended in.

    With `mask_constrained` what was sampled under a grammar is context.
    ValueError for a rollout that is there twice, open, or in no group, and for a group that is not whole.
    """
    counts = Counter(found.rollout.rollout_id for found in rollouts)
    for name, count in counts.items():
        if count > 1:
            raise ValueError(f"rollout {name} is there twice")
    _check_groups(rollouts)
    return [_sample(idx, found, mask_constrained) for idx, found in enumerate(sorted(rollouts, key=_place))]


def _place(found: CollectedRollout) -> tuple[str, int, datetime, str]:
    rollout = found.rollout
    opened = (rollout.opened_at or _NEVER).replace(tzinfo=None)
    return _group(found), rollout.spec.sample_index, opened, rollout.rollout_id


def _group(found: CollectedRollout) -> str:
    spec = found.rollout.spec
    group = spec.group_id or spec.task_id
    if not group:
        raise ValueError(f"rollout {found.rollout.rollout_id} was opened with neither a group_id nor a task_id")
    return group


def _check_groups(rollouts: Sequence[CollectedRollout]) -> None:
    there = Counter(_group(found) for found in rollouts)
    for found in rollouts:
        group, size = _group(found), found.rollout.spec.group_size
        if size and there[group] != size:
            raise ValueError(
                f"group {group!r} is of {size} rollouts, but {there[group]} are given; collect(whole_groups=True) "
                "gives groups only as a whole"
            )


def _sample(idx: int, found: CollectedRollout, mask_constrained: bool) -> Sample:
    rollout = found.rollout
    if not rollout.ended:
        raise ValueError(f"rollout {rollout.rollout_id} has not ended")
    rewards = None
    if rollout.step_rewards:
        rewards = [rollout.step_rewards.get(step, 0.0) for step in range(_num_steps(found))]
    return Sample(
        idx,
        _group(found),
        Outcome(rollout.outcome),
        rollout.reward,
        [row_of(row, mask_constrained=mask_constrained) for row in found.rows],
        step_rewards=rewards,
        name=rollout.rollout_id,
        dropped=[_dropped(completion) for completion in found.dropped],
    )


def _num_steps(found: CollectedRollout) -> int:
    """Calls that count, as far as their rows and rewards tell."""
    steps = [turn.step for row in found.rows for turn in row.turns if turn.step is not None]
    return max([*steps, *found.rollout.step_rewards], default=-1) + 1


def row_of(row: RolloutRow, *, mask_constrained: bool = False) -> SampleRow:
    """A recorded row as training reads it. What only calls sampled that do not count is context."""
    width = len(row.token_ids)
    free = np.ones(width, np.bool_)
    steps: npt.NDArray[np.int64] = np.full(width, -1, np.int64)
    versions: npt.NDArray[np.int64] = np.full(width, -1, np.int64)
    for turn in row.turns:
        if turn.step is None:
            continue  # of a call that was asked again, or whose caller had left
        steps[turn.start : turn.end] = turn.step
        free[turn.start : turn.end] = not (turn.constrained and mask_constrained)
        for span in turn.weight_spans:
            versions[turn.start + span.start : turn.start + span.end] = span.version
    counts = row.loss_mask & (steps >= 0)
    trained = counts & free
    known = bool((versions[trained] >= 0).any())
    return SampleRow(
        row.token_ids,
        trained,
        row.log_probs,
        versions if known else None,
        steps,
        abandoned=bool(row.loss_mask.any()) and not counts.any(),
    )


_REASONS = {
    RolloutCallStatus.DONE: DropReason.NOTHING_TRAINED,
    RolloutCallStatus.RETRIED: DropReason.RETRIED,
    RolloutCallStatus.FAILED: DropReason.FAILED,
}


def _dropped(completion: DroppedCompletion) -> tuple[DropReason, str]:
    reason = _REASONS.get(completion.status, DropReason.ABANDONED)
    return reason, f"call {completion.call_index} is {completion.status}; it had {completion.num_tokens} tokens"
