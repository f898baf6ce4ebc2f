"""Trajectories refuse what no training could use, in words that name the field."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from gradwire.client.agentic import Step, StepTrajectory, Trajectory, check_trainable, discounted_returns

METRICS = {
    "steps": 1,
    "reward_time": 2.0,
    "env_time": 3.0,
    "llm_time": 4.0,
    "total_time": 9.0,
    "toolcall_reward": 0.5,
    "res_reward": -1,
}


def trajectory(**changes: Any) -> Trajectory:
    values: dict[str, Any] = {
        "prompt_tokens": torch.tensor([7, 8, 9]),
        "response_tokens": torch.tensor([10, 11, 12]),
        "response_masks": torch.tensor([1, 1, 0]),
    }
    return Trajectory(**{**values, **changes})


def test_defaults_are_the_documented_ones_and_not_shared() -> None:
    first, second = trajectory(), trajectory()
    assert (first.idx, first.trajectory_reward, first.chat_completions) == (0, 0.0, [])
    assert first.metrics == {
        "steps": 0,
        "toolcall_reward": 0.0,
        "res_reward": 0.0,
        "reward_time": 0.0,
        "env_time": 0.0,
        "llm_time": 0.0,
        "total_time": 0.0,
    }
    assert first.metrics is not second.metrics
    assert first.chat_completions is not second.chat_completions


def test_the_metrics_that_the_documentation_prints_are_filled_up() -> None:
    short = {key: METRICS[key] for key in ("steps", "reward_time", "env_time", "llm_time", "total_time")}
    made = trajectory(metrics=short)
    assert made.metrics == {**short, "toolcall_reward": 0.0, "res_reward": 0.0}
    assert "res_reward" not in short


def test_times_of_each_step_and_times_not_taken_are_fine() -> None:
    metrics = {**METRICS, "env_time": [1.0, 2.0], "llm_time": [], "total_time": None, "reward_time": None}
    assert trajectory(metrics=metrics).metrics == metrics


@pytest.mark.parametrize(
    ("changes", "error", "text"),
    [
        ({"prompt_tokens": None}, ValueError, "Trajectory's prompt_tokens is not set"),
        ({"response_tokens": [1, 2]}, TypeError, "response_tokens must be torch.Tensor, got list"),
        ({"response_masks": torch.tensor([1.0, float("nan")])}, ValueError, "response_masks contains NaN values"),
        ({"prompt_tokens": torch.tensor([float("inf")])}, ValueError, "prompt_tokens contains Inf values"),
        ({"response_tokens": torch.zeros(3, dtype=torch.complex64)}, TypeError, "response_tokens must be a dense"),
        ({"response_masks": torch.ones(3).to_sparse()}, TypeError, "response_masks must be a dense tensor"),
        ({"prompt_tokens": torch.zeros(3, device="meta")}, TypeError, "prompt_tokens must be a dense tensor"),
        ({"metrics": []}, TypeError, "metrics must be a dict, got list"),
        ({"metrics": {1: 2}}, TypeError, "all keys in metrics must be strings"),
        ({"metrics": {"steps": 1}}, ValueError, "metrics must contain exactly these keys: ['env_time', 'llm_time'"),
        ({"metrics": {**METRICS, "more": 1}}, ValueError, "metrics must contain exactly these keys"),
        ({"metrics": {**METRICS, "steps": 1.5}}, TypeError, "metric steps must be an integer, got float"),
        ({"metrics": {**METRICS, "steps": True}}, TypeError, "metric steps must be an integer, got bool"),
        ({"metrics": {**METRICS, "steps": -1}}, ValueError, "metric steps must be non-negative"),
        ({"metrics": {**METRICS, "res_reward": "1"}}, TypeError, "metric res_reward must be a number, got str"),
        ({"metrics": {**METRICS, "total_time": -1}}, ValueError, "metric total_time must be non-negative if not None"),
        ({"trajectory_reward": None}, TypeError, "trajectory_reward must be a number, got NoneType"),
        ({"trajectory_reward": True}, TypeError, "trajectory_reward must be a number, got bool"),
        ({"idx": 1.0}, TypeError, "Trajectory's idx must be an integer, got float"),
        ({"idx": -1}, ValueError, "Trajectory's idx must be non-negative"),
        ({"chat_completions": {}}, TypeError, "chat_completions must be a list of dict, got dict"),
        (
            {"chat_completions": [{"role": "user", "content": None}]},
            TypeError,
            "all keys and values in chat_completions dicts must be strings",
        ),
    ],
)
def test_what_is_wrong_is_named(changes: dict[str, Any], error: type[Exception], text: str) -> None:
    with pytest.raises(error) as caught:
        trajectory(**changes)
    assert text in str(caught.value)


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"thought": 1}, "thought must be a string, got int"),
        ({"model_response": None}, "model_response must be a string, got NoneType"),
        ({"info": []}, "info must be a dict, got list"),
        ({"reward": "1"}, "reward must be a number, got str"),
        ({"done": 1}, "done must be a boolean, got int"),
        ({"mc_return": None}, "mc_return must be a number, got NoneType"),
        ({"chat_completions": "hi"}, "chat_completions must be a list of dict, got str"),
    ],
)
def test_a_step_is_checked_too(changes: dict[str, Any], text: str) -> None:
    with pytest.raises(TypeError) as caught:
        Step(**changes)
    assert text in str(caught.value)


@pytest.mark.parametrize("steps", [[], None, [1], (Step(),)])
def test_a_step_trajectory_has_steps(steps: Any) -> None:
    plain = trajectory()
    with pytest.raises(ValueError, match="steps must be a non empty list of Step instances"):
        StepTrajectory(plain.prompt_tokens, plain.response_tokens, plain.response_masks, steps=steps)


def test_returns_are_discounted_from_the_end() -> None:
    steps = [Step(reward=1.0), Step(reward=0.0), Step(reward=4.0)]
    assert discounted_returns(steps, 0.5) == [2.0, 2.0, 4.0]
    assert [step.mc_return for step in steps] == [2.0, 2.0, 4.0]
    with pytest.raises(ValueError, match="gamma"):
        discounted_returns(steps, 1.5)


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"response_masks": torch.tensor([1, 1])}, "2 entries for 3 response_tokens"),
        ({"response_masks": torch.tensor([1, 2, 0])}, "must be 0 or 1"),
        ({"prompt_tokens": torch.tensor([[1, 2]])}, "one dimension"),
        ({"prompt_tokens": torch.tensor([], dtype=torch.int64)}, "prompt_tokens is empty"),
        ({"response_tokens": torch.tensor([1.5, 2.0, 3.0])}, "token ids"),
        ({"prompt_tokens": torch.tensor([-1])}, "token ids"),
        ({"trajectory_reward": float("nan")}, "finite"),
    ],
)
def test_what_no_batch_can_hold_is_told_before_training(changes: dict[str, Any], text: str) -> None:
    made = trajectory(idx=3, **changes)
    with pytest.raises(ValueError, match="idx 3") as caught:
        check_trainable(made)
    assert text in str(caught.value)
    check_trainable(trajectory())
