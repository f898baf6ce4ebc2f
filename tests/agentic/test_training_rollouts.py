"""`to_training_batch` on rollouts that a server recorded: rows, branches, calls that do not count, groups."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from gradwire.client._convert.training import batch_to_proto
from gradwire.client.agentic import to_training_batch
from gradwire.client.types.rollouts import (
    CollectedRollout,
    DroppedCompletion,
    Rollout,
    RolloutCallStatus,
    RolloutOutcome,
    RolloutRow,
    RolloutSpec,
    RowStart,
    RowTurn,
)
from gradwire.client.types.sampling import FinishReason, WeightSpan


def turn(step: int | None, start: int, end: int, version: int = 3, constrained: bool = False) -> RowTurn:
    spans = (WeightSpan(version, 0, end - start),)
    return RowTurn(0, 0, 0, step, start, end, spans, FinishReason.STOP, constrained)


def row(tokens: list[int], *turns: RowTurn, parent: int | None = None, shared: int = 0) -> RolloutRow:
    mask = np.zeros(len(tokens), np.bool_)
    for own in turns:
        mask[own.start : own.end] = True
    return RolloutRow(
        np.array(tokens, np.int32),
        mask,
        np.where(mask, -np.array(tokens), 0).astype(np.float32),
        turns,
        RowStart.FIRST if parent is None else RowStart.CONTEXT_CHANGED,
        parent,
        shared,
    )


def rollout(
    name: str,
    sample_index: int,
    reward: float | None,
    *rows: RolloutRow,
    group: str = "task",
    size: int = 0,
    outcome: RolloutOutcome = RolloutOutcome.OK,
    step_rewards: Mapping[int, float] | None = None,
    dropped: tuple[DroppedCompletion, ...] = (),
) -> CollectedRollout:
    spec = RolloutSpec(task_id=group, group_id=group, sample_index=sample_index, group_size=size)
    whole = Rollout(
        rollout_id=name,
        job_id=1,
        spec=spec,
        base_path=f"/rollouts/{name}/v1",
        outcome=outcome,
        reason="",
        reward=reward,
        step_rewards=step_rewards or {},
        opened_at=None,
        deadline=None,
        ended_at=None,
        collected_at=None,
        num_calls=len(rows),
        num_running_calls=0,
        num_sampled_tokens=0,
        num_bytes=0,
        limit_reached=False,
    )
    return CollectedRollout(whole, rows, dropped)


def columns(found: Any, name: str) -> list[list[float]]:
    return [np.asarray(own).tolist() for own in getattr(found.batch, name)]


TWO_TURNS = row([1, 2, 3, 4, 5, 6], turn(0, 2, 3), turn(1, 4, 6, version=4))


def test_rows_are_ordered_by_group_and_sample_and_shifted() -> None:
    found = to_training_batch(
        [
            rollout("c", 1, 0.0, TWO_TURNS, group="b", size=2),
            rollout("d", 0, 1.0, row([7, 8], turn(0, 1, 2)), group="a"),
            rollout("e", 0, 1.0, TWO_TURNS, group="b", size=2),
        ],
        scale="none",
    )
    assert [(own.rollout_id, own.group, own.reward) for own in found.rows] == [
        ("d", "a", 1.0), ("e", "b", 1.0), ("c", "b", 0.0)
    ]  # fmt: skip
    assert columns(found, "input_ids")[1] == [1, 2, 3, 4, 5, 6]
    assert columns(found, "loss_mask")[1] == [0, 1, 0, 1, 1, 0]
    assert columns(found, "old_log_probs_shifted")[1] == [0, -3, 0, -5, -6, 0]
    assert columns(found, "versions")[1] == [0, 3, 0, 4, 4, 0]
    assert columns(found, "advantages") == [[0, 0], [0, 0.5, 0, 0.5, 0.5, 0], [0, -0.5, 0, -0.5, -0.5, 0]]
    assert found.batch is not None
    batch_to_proto(found.batch)


def test_turns_in_several_rows_have_their_own_advantages() -> None:
    # The second turn's prompt was rewritten: another row, whose head is context.
    parted = (row([1, 2, 3], turn(0, 2, 3)), row([1, 9, 5, 6], turn(1, 2, 4), parent=0, shared=1))
    runs = [
        rollout("x", 0, 5.0, *parted, step_rewards={1: 1.0}),
        rollout("y", 1, 0.0, TWO_TURNS, step_rewards={0: 0.5}),
    ]
    found = to_training_batch(runs, mode="step", scale="none", gamma=0.5)
    # Returns by step rewards alone: [0.5, 1] and [0.5, 0].
    assert columns(found, "advantages") == [[0, 0, 0], [0, 0.5, 0.5, 0], [0, 0, 0, -0.5, -0.5, 0]]
    assert [(own.rollout_id, own.row) for own in found.rows] == [("x", 0), ("x", 1), ("y", 0)]
    whole = to_training_batch([rollout("x", 0, 1.0, *parted), rollout("y", 1, 0.0, TWO_TURNS)], mode="step", gamma=0.5)
    assert columns(whole, "advantages")[0][1] > 0  # without rewards of steps the last has the rollout's


def test_calls_that_do_not_count_are_not_trained_and_are_told() -> None:
    mixed = row([1, 2, 3, 4, 5], turn(None, 1, 2), turn(0, 3, 5))
    lost = DroppedCompletion(2, 0, 0, RolloutCallStatus.RETRIED, 7)
    runs = [
        rollout("x", 0, 1.0, mixed, row([1, 2, 9], turn(None, 2, 3)), dropped=(lost,)),
        rollout("y", 1, 0.0, mixed),
        rollout("z", 2, 0.0),
    ]
    found = to_training_batch(runs)
    assert columns(found, "loss_mask") == [[0, 0, 1, 1, 0]] * 2
    assert [(own.rollout_id, own.row, str(own.reason)) for own in found.dropped] == [
        ("x", None, "retried"), ("x", 1, "abandoned"), ("z", None, "nothing_trained")
    ]  # fmt: skip
    assert "call 2" in found.dropped[0].detail and "7 tokens" in found.dropped[0].detail
    assert found.stats.num_counted == 3 and found.stats.num_trained_tokens == 4


def test_what_a_grammar_bound_may_be_left_out() -> None:
    bound = row([1, 2, 3, 4], turn(0, 1, 2), turn(1, 3, 4, constrained=True))
    runs = [rollout("x", 0, 1.0, bound, row([5, 6], turn(2, 1, 2, constrained=True))), rollout("y", 1, 0.0, bound)]
    assert columns(to_training_batch(runs), "loss_mask") == [[1, 0, 1, 0], [1, 0], [1, 0, 1, 0]]
    found = to_training_batch(runs, mask_constrained=True)
    assert columns(found, "loss_mask") == [[1, 0, 0, 0]] * 2
    assert [(own.rollout_id, own.row, str(own.reason)) for own in found.dropped] == [("x", 1, "nothing_trained")]


def test_only_what_the_policy_brought_about_counts() -> None:
    runs = [
        rollout("w", 0, 0.0, TWO_TURNS, outcome=RolloutOutcome.TRUNCATED),
        rollout("x", 1, 1.0, TWO_TURNS),
        rollout("y", 2, 0.0, TWO_TURNS, outcome=RolloutOutcome.TIMEOUT),
        rollout("z", 3, None, TWO_TURNS),
    ]
    found = to_training_batch(runs, scale="none")
    assert [(own.rollout_id, str(own.reason)) for own in found.dropped] == [("y", "timeout"), ("z", "no_reward")]
    assert [own[1] for own in columns(found, "advantages")] == [-0.5, 0.5]


@pytest.mark.parametrize(
    ("runs", "options", "text"),
    [
        ([rollout("x", 0, 1.0), rollout("x", 0, 1.0)], {}, "rollout x is there twice"),
        ([rollout("x", 0, 1.0, size=2)], {}, "group 'task' is of 2 rollouts, but 1 are given"),
        ([rollout("x", 0, 1.0, group="")], {}, "x was opened with neither"),
        ([rollout("x", 0, 1.0, outcome=RolloutOutcome.UNSPECIFIED)], {}, "x has not ended"),
        ([rollout("x", 0, 1.0)], {"group_size": 1}, "of their own"),
        ([rollout("x", 0, 1.0)], {"outcomes": {0: "ok"}}, "of their own"),
    ],
)
def test_bad_input_is_named(runs: list[CollectedRollout], options: dict[str, Any], text: str) -> None:
    with pytest.raises(ValueError, match=text):
        to_training_batch(runs, **options)
