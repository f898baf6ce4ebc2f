"""A rollout as a trajectory: each sampled token once, with its step, its weights and its log-prob."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from gradwire.client.agentic import Segment, check_trainable, to_training_batch, trajectory_of
from gradwire.client.types.rollouts import (
    CollectedRollout,
    Rollout,
    RolloutOutcome,
    RolloutRow,
    RolloutSpec,
    RowStart,
    RowTurn,
)
from gradwire.client.types.sampling import FinishReason, WeightSpan
from tests.agentic.engines import trajectory


def turn(step: int | None, start: int, end: int, *versions: int, constrained: bool = False) -> RowTurn:
    cuts = np.linspace(0, end - start, len(versions) + 1).astype(int).tolist()
    spans = tuple(WeightSpan(*span) for span in zip(versions, cuts, cuts[1:], strict=False))
    return RowTurn(step or 0, 0, 0, step, start, end, spans, FinishReason.STOP, constrained=constrained)


def row(count: int, *turns: RowTurn, sampled: str, first: int = 0) -> RolloutRow:
    """`sampled` has a 1 for each token that the model sampled."""
    mask = np.array([letter == "1" for letter in sampled])
    log_probs = np.where(mask, -np.arange(first, first + count) / 100, 0).astype(np.float32)
    ids = np.arange(first, first + count, dtype=np.int32)
    return RolloutRow(ids, mask, log_probs, turns, RowStart.FIRST, None, 0)


def collected(*rows: RolloutRow, **changes: Any) -> CollectedRollout:
    values: dict[str, Any] = dict.fromkeys(Rollout.__slots__) | {
        "rollout_id": "r", "spec": RolloutSpec("task"), "outcome": RolloutOutcome.OK, "reward": 2.0, "step_rewards": {},
    }  # fmt: skip
    return CollectedRollout(Rollout(**{**values, **changes}), rows, ())


# Two turns in one row, then the history is written anew: the third call has a row of its own, whose head repeats a
# token that the model had sampled.
FIRST = row(8, turn(0, 2, 4, 5), turn(1, 6, 8, 5, 6), sampled="00110011")
ANEW = row(6, turn(2, 4, 6, 6), sampled="001011", first=20)


def test_every_sampled_token_is_trained_once_as_it_was_sampled() -> None:
    messages = [
        {"role": "user", "content": "?"},
        {"role": "assistant", "content": "<think>hm</think>a"},
        {"role": "tool", "content": "b"},
        {"role": "assistant", "content": "c"},
        {"role": "user", "content": "summary"},
        {"role": "assistant", "content": "d"},
    ]
    made = trajectory_of(
        collected(FIRST, ANEW, step_rewards={1: 0.5}, outcome=RolloutOutcome.TRUNCATED), 3, messages=messages
    )
    assert (made.idx, made.trajectory_reward, made.outcome, made.group) == (3, 2.0, "truncated", "task")
    # The row of the last call is the trajectory's own.
    assert made.prompt_tokens.tolist() == [20, 21, 22, 23] and made.response_tokens.tolist() == [24, 25]
    assert made.response_masks.tolist() == [1, 1]
    (segment,) = made.segments
    assert segment.tokens.tolist() == list(range(8))
    assert segment.masks.tolist() == [0, 0, 1, 1, 0, 0, 1, 1]
    assert segment.steps is not None and segment.steps.tolist() == [-1, -1, 0, 0, -1, -1, 1, 1]
    assert segment.versions is not None and segment.versions[segment.masks == 1].tolist() == [5, 5, 5, 6]
    assert [(step.reward, step.done, step.thought, step.model_response) for step in made.steps] == [
        (0.0, False, "hm", "<think>hm</think>a"), (0.5, False, "", "c"), (0.0, True, "", "d"),
    ]  # fmt: skip
    assert [step.observation for step in made.steps] == ["?", "b", "summary"]
    assert made.steps[1].chat_completions == messages[:4]

    batch = to_training_batch([made])
    assert batch.batch is not None
    assert (batch.stats.num_rows, batch.stats.num_trained_tokens) == (2, 6)
    ids, old = list(batch.batch.input_ids), batch.batch.old_log_probs_shifted
    assert old is not None
    assert sorted(len(own) for own in ids) == [6, 8]
    found = sorted(round(float(value), 2) for own in old for value in own if value)
    assert found == [-0.25, -0.24, -0.07, -0.06, -0.03, -0.02]


def test_one_row_is_a_trajectory_without_segments() -> None:
    made = trajectory_of(collected(FIRST, reward=None), messages=[{"role": "assistant", "content": "one of two"}])
    assert (made.segments, made.trajectory_reward, made.metrics["steps"]) == ([], 0.0, 2)
    assert made.prompt_tokens.tolist() == [0, 1] and made.response_masks.tolist() == [1, 1, 0, 0, 1, 1]
    assert made.response_versions is not None and made.response_versions[made.response_masks == 1].tolist() == [
        5,
        5,
        5,
        6,
    ]
    assert [step.model_response for step in made.steps] == ["", ""]
    check_trainable(made)


def test_what_a_grammar_forced_may_be_context() -> None:
    forced = row(8, turn(0, 2, 4, 5, constrained=True), turn(1, 6, 8, 5), sampled="00110011")
    assert trajectory_of(collected(forced)).response_masks.tolist() == [1, 1, 0, 0, 1, 1]
    assert trajectory_of(collected(forced), mask_constrained=True).response_masks.tolist() == [0, 0, 0, 0, 1, 1]


@pytest.mark.parametrize("rows", [(), (row(4, turn(None, 2, 4, 1), sampled="0011"),)])
def test_without_an_answered_call_there_is_no_trajectory(rows: tuple[RolloutRow, ...]) -> None:
    with pytest.raises(ValueError, match="rollout r has no answered call"):
        trajectory_of(collected(*rows))


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"tokens": torch.tensor([])}, "its tokens have shape (0,)"),
        ({"tokens": torch.tensor([1.0, 2.0])}, "token ids"),
        ({"tokens": torch.tensor([1, -1])}, "token ids"),
        ({"masks": torch.tensor([1])}, "its masks have shape (1,)"),
        ({"masks": torch.tensor([1, 2])}, "0 or 1"),
        ({"log_probs": torch.tensor([1.0])}, "its log_probs have shape"),
    ],
)
def test_a_segment_that_no_batch_can_hold_is_told(changes: dict[str, Any], text: str) -> None:
    right = {"tokens": torch.tensor([1, 2]), "masks": torch.tensor([0, 1])}
    check_trainable(trajectory(segments=[Segment(**right)]))
    with pytest.raises(ValueError, match=r"idx 0: segments\[0\]: ") as caught:
        check_trainable(trajectory(segments=[Segment(**{**right, **changes})]))
    assert text in str(caught.value)
