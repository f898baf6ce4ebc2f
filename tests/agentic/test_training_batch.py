"""`to_training_batch`: order, groups, faults, and the layout of each column, on hand-made trajectories."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
import torch

from gradwire.client._convert.training import batch_to_proto
from gradwire.client.agentic import AgentBatch, Outcome, Segment, Step, StepTrajectory, Trajectory, to_training_batch
from gradwire.client.agentic.training.advantages import Baseline, Scale
from gradwire.client.types.training import TrainingBatch


def run(idx: int = 0, reward: float = 0.0, mask: tuple[int, ...] = (1, 0, 1), **changes: Any) -> Trajectory:
    return Trajectory(
        torch.tensor([7, 8]), torch.arange(10, 10 + len(mask)), torch.tensor(mask), idx, reward, **changes
    )


def steps(idx: int, *rewards: float, total: float | None = None, **changes: Any) -> StepTrajectory:
    """A run of one token a turn, with a tool's token behind each."""
    count = len(rewards)
    changes = {"mc_returns": [0.0] * count, **changes}
    returns = changes.pop("mc_returns")
    return StepTrajectory(
        torch.tensor([7]),
        torch.arange(10, 10 + 2 * count),
        torch.tensor([1, 0] * count),
        idx,
        sum(rewards) if total is None else total,
        steps=[Step(reward=reward, mc_return=value) for reward, value in zip(rewards, returns, strict=True)],
        **changes,
    )


def rows(found: AgentBatch, column: str) -> list[list[float]]:
    assert found.batch is not None
    return [np.asarray(row).tolist() for row in getattr(found.batch, column)]


def group_ids(found: AgentBatch) -> list[int]:
    assert found.batch is not None and found.batch.prompt_group_ids is not None
    return [int(group) for group in found.batch.prompt_group_ids]


def test_columns_are_on_the_shifted_grid() -> None:
    log_probs = torch.tensor([-1.0, -9.0, -3.0])
    versions = torch.tensor([4, 0, 5])
    found = to_training_batch(
        [
            run(idx, reward, response_log_probs=log_probs, response_versions=versions)
            for idx, reward in ((1, 0.0), (0, 1.0))
        ],
        group_size=2,
    )
    # Tokens 10 and 12 are sampled, at places 2 and 4; their predictions are at 1 and 3.
    assert rows(found, "input_ids") == [[7, 8, 10, 11, 12]] * 2
    assert rows(found, "loss_mask") == [[0, 1, 0, 1, 0]] * 2
    assert rows(found, "old_log_probs_shifted") == [[0, -1, 0, -3, 0]] * 2
    assert rows(found, "versions") == [[0, 4, 0, 5, 0]] * 2
    # (1 - 0.5) / (std over n - 1)
    a = 0.5 / (0.5**0.5 + 1e-6)
    np.testing.assert_allclose(rows(found, "advantages"), [[0, a, 0, a, 0], [0, -a, 0, -a, 0]], rtol=1e-6)
    assert group_ids(found) == [0, 0]
    assert [row.idx for row in found.rows] == [0, 1]
    assert found.batch is not None
    batch_to_proto(found.batch)  # fwd_bwd takes it


@pytest.mark.parametrize("outcome", ["timeout", "env_error", "infra_error", "cancelled"])
def test_what_the_policy_did_not_bring_about_changes_nothing(outcome: str) -> None:
    good = [run(0, 1.0), run(2, 0.0), run(3, 0.5, outcome="truncated")]
    alone = to_training_batch(good, groups=["a"] * 4, outcomes={1: outcome})
    # The tensors of a run that crashed are not even looked at.
    crashed = run(1, float("nan"), outcome=outcome, mask=())
    with_it = to_training_batch([crashed, *good], group_size=4)
    for found in (alone, with_it):
        (dropped,) = found.dropped
        assert (dropped.idx, dropped.row, str(dropped.reason)) == (1, None, outcome)
        assert (found.stats.num_samples, found.stats.num_counted, found.stats.outcomes[outcome]) == (4, 3, 1)
        assert found.stats.reward_mean == 0.5
        np.testing.assert_allclose([row[1] for row in rows(found, "advantages")], [1, -1, 0], atol=1e-5)


def test_a_group_of_one_and_a_group_of_equals_have_no_advantage() -> None:
    runs = [run(0, 0.7), run(1, 0.1), run(2, 0.1), run(3, 0.1, outcome="cancelled"), run(4, 1.0), run(5, 0.0)]
    tasks = ["one", "equal", "equal", "equal", "two", "two"]
    baselines: tuple[Baseline, ...] = ("mean", "leave_one_out")
    scales: tuple[Scale, ...] = ("std", "none")
    for baseline in baselines:
        for scale in scales:
            found = to_training_batch(runs, groups=tasks, baseline=baseline, scale=scale)
            assert [row[1] == 0 for row in rows(found, "advantages")] == [True, True, True, False, False]
            assert np.isfinite(np.concatenate(rows(found, "advantages"))).all()
            assert (found.stats.num_groups, found.stats.num_single_groups, found.stats.num_uniform_groups) == (3, 1, 2)
    slim = to_training_batch(runs, groups=tasks, drop_uniform=True)
    assert [row.idx for row in slim.rows] == [4, 5]
    assert [(d.idx, str(d.reason)) for d in slim.dropped] == [
        (0, "uniform_group"), (1, "uniform_group"), (2, "uniform_group"), (3, "cancelled")
    ]  # fmt: skip


def test_nothing_left_is_no_batch_and_an_account() -> None:
    found = to_training_batch([run(0, 1.0)], group_size=1, drop_uniform=True)
    assert found.batch is None and not found.rows and len(found.dropped) == 1
    empty = to_training_batch([], outcomes={0: "env_error", 1: Outcome.TIMEOUT}, group_size=2)
    assert empty.batch is None and empty.stats.reward_mean is None and empty.stats.num_samples == 2
    assert to_training_batch([], group_size=4).stats.num_samples == 0


def test_rows_that_cannot_or_shall_not_be_trained_still_count() -> None:
    runs = [run(0, 1.0), run(1, 0.0, mask=(0, 0)), run(2, 0.0, outcome="truncated"), run(3, 1.0, mask=(1,) * 9)]
    found = to_training_batch(runs, group_size=4, mask_truncated=True, max_row_tokens=10)
    assert [(d.idx, str(d.reason)) for d in found.dropped] == [
        (1, "nothing_trained"), (2, "truncated"), (3, "too_long")
    ]  # fmt: skip
    assert found.stats.reward_mean == 0.5 and found.stats.num_counted == 4
    np.testing.assert_allclose(rows(found, "advantages")[0][1], 0.5 / (1 / 3) ** 0.5, rtol=1e-5)


def test_what_older_weights_sampled_is_left_out() -> None:
    # Version 1 stands at a token that is not trained: it does not matter.
    runs = [
        run(i, float(i), response_versions=torch.tensor(v)) for i, v in enumerate([[3, 1, 4], [4, 4, 2], [3, 3, 3]])
    ]
    found = to_training_batch(runs, group_size=3, min_weight_version=3)
    assert [(d.idx, str(d.reason)) for d in found.dropped] == [(1, "stale")]
    assert found.stats.num_counted == 2
    with pytest.raises(ValueError, match="idx 0 does not say which weights"):
        to_training_batch([run(0)], group_size=1, min_weight_version=3)


def test_a_turn_is_compared_with_the_same_turn_of_the_others() -> None:
    runs = [steps(0, 0.0, 1.0), steps(1, 0.0, 0.0), steps(2, 0.5, 0.0, 9.0)]
    found = to_training_batch(runs, mode="step", group_size=3, gamma=0.5, scale="none")
    # Returns: [.5, 1], [0, 0], [2.75, 4.5, 9]. Means by turn: 3.25 / 3, 5.5 / 3; the third turn stands alone.
    expected = [
        [0.5 - 3.25 / 3, 0, 1 - 5.5 / 3, 0, 0],
        [-3.25 / 3, 0, -5.5 / 3, 0, 0],
        [2.75 - 3.25 / 3, 0, 4.5 - 5.5 / 3, 0, 0, 0, 0],
    ]
    for row, want in zip(rows(found, "advantages"), expected, strict=True):
        np.testing.assert_allclose(row, want, rtol=1e-6)
    task = to_training_batch(runs, mode="step", group_size=3, gamma=0.5, scale="none", step_baseline="task")
    mean = (0.5 + 1 + 2.75 + 4.5 + 9) / 7
    np.testing.assert_allclose(rows(task, "advantages")[2], [2.75 - mean, 0, 4.5 - mean, 0, 9 - mean, 0, 0], rtol=1e-6)
    assert [step.mc_return for step in runs[2].steps] == [0, 0, 0]  # what the caller has stays as it is


def test_returns_of_the_engine_and_rewards_of_the_run_alone() -> None:
    own = [steps(0, 0, 0, mc_returns=[4.0, 2.0]), steps(1, 0, 0, mc_returns=[0.0, 0.0])]
    found = to_training_batch(own, mode="step", group_size=2, gamma=None, scale="none")
    assert rows(found, "advantages") == [[2, 0, 1, 0, 0], [-2, 0, -1, 0, 0]]
    outcome_only = [steps(0, 0, 0, total=1.0), steps(1, 0, 0, total=0.0)]
    found = to_training_batch(
        outcome_only, mode="step", group_size=2, gamma=0.5, scale="none", baseline="leave_one_out"
    )
    assert rows(found, "advantages") == [[0.5, 0, 1, 0, 0], [-0.5, 0, -1, 0, 0]]


def test_turns_that_follow_one_another_are_told_apart_by_response_steps() -> None:
    made = steps(0, 1.0, 0.0)
    made.response_masks = torch.tensor([1, 1, 1, 0])
    with pytest.raises(ValueError, match="idx 0: response_masks has 1 runs of ones for 2 steps; say with response_st"):
        to_training_batch([made], mode="step", group_size=1)
    made.response_steps = torch.tensor([0, 1, 1, -1])
    found = to_training_batch([made, steps(1, 0.0, 0.0)], mode="step", group_size=2, scale="none", gamma=0.0)
    assert rows(found, "advantages")[0] == [0.5, 0, 0, 0, 0]
    made.response_steps = torch.tensor([0, 2, 1, -1])
    with pytest.raises(ValueError, match="a trained token step 2; its steps are 0 to 1"):
        to_training_batch([made], mode="step", group_size=1)


def test_segments_are_rows_of_the_same_run() -> None:
    later = Segment(torch.tensor([7, 3, 4]), torch.tensor([0, 0, 1]), steps=torch.tensor([-1, -1, 1]))
    made = steps(0, 0.0, 1.0, segments=[later], response_steps=torch.tensor([0, -1, -1, -1]))
    made.response_masks = torch.tensor([1, 0, 0, 0])
    options: dict[str, Any] = {"group_size": 2, "scale": "none", "gamma": 0.5}
    found = to_training_batch([made, steps(1, 0.0, 0.0)], mode="step", **options)
    assert [(row.idx, row.row) for row in found.rows] == [(0, 0), (0, 1), (1, 0)]
    assert rows(found, "advantages")[:2] == [[0.25, 0, 0, 0, 0], [0, 0.5, 0]]
    later.steps = torch.tensor([-1, -1, -1])
    with pytest.raises(ValueError, match="idx 0: a trained token is of no turn"):
        to_training_batch([made, steps(1, 0.0, 0.0)], mode="step", **options)
    whole = to_training_batch([made, steps(1, 0.0, 0.0)], **options)
    assert rows(whole, "advantages")[:2] == [[0.5, 0, 0, 0, 0], [0, 0.5, 0]]


def test_trajectories_may_name_their_own_task() -> None:
    found = to_training_batch([run(9, 1.0, group="b"), run(4, 0.0, group="a"), run(5, 3.0, group="b")])
    assert [(row.idx, row.group) for row in found.rows] == [(4, "a"), (5, "b"), (9, "b")]
    assert group_ids(found) == [0, 1, 1]


@pytest.mark.parametrize(
    ("runs", "options", "text"),
    [
        ([run(0), run(0)], {"group_size": 2}, "idx 0 is there twice"),
        ([run(0), run(3)], {"group_size": 2}, "2 of 4 runs are missing: idx 1, 2"),
        ([run(0), run(1), run(2)], {"group_size": 2}, "1 of 4 runs are missing: idx 3"),
        ([run(0)], {"group_size": 10**12}, "999999999999 of 1000000000000 runs are missing: idx 1, 2, 3, 4, 5, "),
        ([run(0), run(2**40)], {"group_size": 2}, "1099511627776 of 1099511627778 runs are missing: idx 1, 2"),
        ([run(0), run(2)], {"groups": ["a", "b"]}, "idx 2 is out of range: there are 2 tasks"),
        ([run(0)], {"groups": ["a", "b"]}, 'outcomes={1: "env_error"}'),
        ([run(0)], {"groups": ["a"], "group_size": 1}, "give one"),
        ([run(0)], {}, "idx 0 has no group"),
        ([run(0)], {"group_size": 0}, "group_size is 0"),
        ([run(0)], {"group_size": 2, "outcomes": {1: "ok"}}, "there is no trajectory of idx 1"),
        ([run(0)], {"group_size": 1, "outcomes": {0: "crash"}}, "outcome is 'crash'; it is one of ok, truncated"),
        ([run(0)], {"group_size": 1, "mode": "steps"}, "did you mean 'step'"),
        ([run(0)], {"group_size": 1, "gamma": 1.1}, "gamma is 1.1"),
        ([run(0)], {"group_size": 1, "mode": "step"}, "idx 0: mode=\"step\" needs to know"),
        ([run(0)], {"group_size": 1, "mode": "step", "step_baseline": "task", "baseline": "leave_one_out"}, "turn"),
        ([run(0)], {"group_size": 1, "max_row_tokens": True}, "max_row_tokens is True"),
        ([run(0, float("nan"))], {"group_size": 1}, "trajectory_reward is nan"),
        ([run(0, 1e31), run(1)], {"group_size": 2}, "idx 0: reward must be finite, between"),
        ([steps(0, 1.0, float("inf"), total=0.0)], {"group_size": 1, "mode": "step"}, "idx 0: step_rewards must be"),
        ([run(0, mask=(1, 1, 1, 2))], {"group_size": 1}, "response_masks must be 0 or 1"),
        ([run(0, response_log_probs=torch.zeros(2))], {"group_size": 1}, "log_probs has 2 entries for 3"),
        ([run(0, response_log_probs=torch.zeros(3)), run(1)], {"group_size": 2}, "idx 1 has no log_probs, but others"),
        ([run(0, response_versions=torch.tensor([-1, 0, 0]))], {"group_size": 1}, "versions of a trained token"),
        ([run(0, response_versions=torch.zeros(3))], {"group_size": 1}, "response_versions holds float32"),
    ],
)  # fmt: skip
def test_bad_input_is_named(runs: list[Trajectory], options: dict[str, Any], text: str) -> None:
    with pytest.raises(ValueError, match=re.escape(text)):
        to_training_batch(runs, **options)


def test_only_trajectories_are_taken() -> None:
    with pytest.raises(TypeError, match="takes trajectories or rollouts, got TrainingBatch"):
        to_training_batch([TrainingBatch(input_ids=[[1]])])  # type: ignore[list-item]
    with pytest.raises(ValueError, match="response_log_probs contains NaN"):
        run(response_log_probs=torch.full((3,), float("nan")))
    with pytest.raises(ValueError, match="outcome is None"):
        run(outcome=None)
