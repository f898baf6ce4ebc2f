"""What an agent run leaves behind: `Trajectory`, and `StepTrajectory` with one `Step` a turn.

The constructors check types, as training on a malformed trajectory fails far from its cause. What only matters
to training (lengths that agree, masks of 0 and 1, finite rewards) is `check_trainable`'s.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field
from numbers import Integral, Real
from typing import TYPE_CHECKING, Any

import numpy as np

from gradwire.client._core.extras import extra
from gradwire.client.agentic.outcomes import outcome_of
from gradwire.client.agentic.returns import discounted
from gradwire.client.agentic.segments import Segment
from gradwire.client.types.shown import Brief

if TYPE_CHECKING:
    import torch

_TIMES = ("reward_time", "total_time")
_REWARDS = ("toolcall_reward", "res_reward")


def _new_metrics() -> dict[str, Any]:
    return {
        "steps": 0,
        "toolcall_reward": 0.0,
        "res_reward": 0.0,
        "reward_time": 0.0,
        "env_time": 0.0,
        "llm_time": 0.0,
        "total_time": 0.0,
    }


METRIC_KEYS = frozenset(_new_metrics())


@dataclass(repr=False)
class Trajectory(Brief):
    """One run of an agent on one task, as tokens.

    Args:
        prompt_tokens: int tensor [P], the prompt.
        response_tokens: int tensor [R], everything after it, in order: what the model sampled and what its
            tools answered.
        response_masks: tensor [R], 1 where the model sampled the token and it is to be trained, else 0.
        idx: position of the task in the list that was asked for, 0 and up.
        trajectory_reward: the reward.
        chat_completions: the conversation, messages of strings.
        metrics: exactly the keys of `METRIC_KEYS`. `steps` is a count, rewards are numbers and times are
            seconds. The two rewards may be left out; they are 0 then.

    By keyword only, beyond the document, for `to_training_batch`:

        response_log_probs: float tensor [R], log-probs under the policy that sampled; only those of trained
            tokens are read. Default: not known.
        response_versions: int tensor [R], the weight version that sampled each token. Default: not known.
        outcome: how the run ended, of `Outcome`. Default "ok".
        group: the task, for whoever compares the rewards of several runs on it. Default: told to
            `to_training_batch`.
        segments: further rows of tokens of the run, see `Segment`. Default: none.

    Raises:
        ValueError: something is missing, NaN, infinite or out of range.
        TypeError: something is of another type.
    """

    prompt_tokens: torch.Tensor
    response_tokens: torch.Tensor
    response_masks: torch.Tensor
    idx: int = 0
    trajectory_reward: float | int = 0.0
    chat_completions: list[dict[str, str]] = field(default_factory=list)
    metrics: dict[str, Any] = field(default_factory=_new_metrics)
    response_log_probs: torch.Tensor | None = field(default=None, kw_only=True)
    response_versions: torch.Tensor | None = field(default=None, kw_only=True)
    outcome: str = field(default="ok", kw_only=True)
    group: Hashable | None = field(default=None, kw_only=True)
    segments: list[Segment] = field(default_factory=list, kw_only=True)

    def __post_init__(self) -> None:
        for name in ("prompt_tokens", "response_tokens", "response_masks"):
            _check_tensor(name, getattr(self, name))
        self.metrics = _checked_metrics(self.metrics)
        if not _is_number(self.trajectory_reward):
            raise TypeError(f"trajectory_reward must be a number, got {_kind(self.trajectory_reward)}")
        if not _is_integer(self.idx):
            raise TypeError(f"Trajectory's idx must be an integer, got {_kind(self.idx)}")
        if self.idx < 0:
            raise ValueError("Trajectory's idx must be non-negative")
        _check_chat(self.chat_completions)
        for name in ("response_log_probs", "response_versions"):
            if getattr(self, name) is not None:
                _check_tensor(name, getattr(self, name))
        self.outcome = outcome_of(self.outcome)


@dataclass(repr=False)
class Step(Brief):
    """One turn of an agent.

    `chat_completions` is the whole conversation up to this turn with the model's reply last; `thought` what it
    thought, `action` what it chose to do, `observation` what it had seen before, `model_response` its reply,
    `reward` the turn's own reward, `done` whether the run ended here, `mc_return` the discounted sum of rewards
    from here on (`discounted_returns` fills it in).
    """

    chat_completions: list[dict[str, str]] = field(default_factory=list)
    thought: str = ""
    action: Any = None
    observation: Any = None
    model_response: str = ""
    info: dict[str, Any] = field(default_factory=dict)
    reward: float = 0.0
    done: bool = False
    mc_return: float = 0.0

    def __post_init__(self) -> None:
        _check_chat(self.chat_completions)
        for name in ("thought", "model_response"):
            if not isinstance(getattr(self, name), str):
                raise TypeError(f"{name} must be a string, got {_kind(getattr(self, name))}")
        if not isinstance(self.info, dict):
            raise TypeError(f"info must be a dict, got {_kind(self.info)}")
        for name in ("reward", "mc_return"):
            if not _is_number(getattr(self, name)):
                raise TypeError(f"{name} must be a number, got {_kind(getattr(self, name))}")
        if not isinstance(self.done, bool):
            raise TypeError(f"done must be a boolean, got {_kind(self.done)}")


@dataclass(repr=False)
class StepTrajectory(Trajectory):
    """A trajectory that is trained turn by turn. `task` is what was asked; `steps` must have at least one.

    `response_steps`, by keyword only and beyond the document: int tensor [R], the step that sampled each token,
    -1 for none. Default: the runs of ones in `response_masks` are the steps, in order.
    """

    task: Any = None
    steps: list[Step] = field(default_factory=list)
    response_steps: torch.Tensor | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        whole = isinstance(self.steps, list) and self.steps and all(isinstance(step, Step) for step in self.steps)
        if not whole:
            raise ValueError("steps must be a non empty list of Step instances")
        if self.response_steps is not None:
            _check_tensor("response_steps", self.response_steps)


def discounted_returns(steps: list[Step], gamma: float = 1.0) -> list[float]:
    """Sets each step's `mc_return` to reward + gamma * the next one's, and returns them, first step first.

    ValueError unless 0 <= gamma <= 1.
    """
    if not 0 <= gamma <= 1:
        raise ValueError(f"gamma is {gamma}; a discount is from 0 to 1")
    returns = discounted([float(step.reward) for step in steps], gamma)
    for step, value in zip(steps, returns, strict=True):
        step.mc_return = value
    return returns


def check_trainable(trajectory: Trajectory) -> None:
    """Raises ValueError, with the index of the task, for a trajectory that no training batch can hold."""

    def refuse(text: str) -> None:
        raise ValueError(f"trajectory of idx {trajectory.idx}: {text}")

    for name in ("prompt_tokens", "response_tokens", "response_masks"):
        tensor = getattr(trajectory, name)
        if tensor.dim() != 1:
            refuse(f"{name} has shape {tuple(tensor.shape)}; it must have one dimension")
        if name != "response_masks" and not len(tensor):
            refuse(f"{name} is empty")
        if name != "response_masks" and (tensor.is_floating_point() or bool((tensor < 0).any())):
            refuse(f"{name} must hold token ids: integers from 0")
    masks, responses = trajectory.response_masks, trajectory.response_tokens
    for name in ("response_masks", "response_log_probs", "response_versions", "response_steps"):
        tensor = getattr(trajectory, name, None)
        if tensor is not None and tensor.shape != responses.shape:
            refuse(f"{name} has {tensor.numel()} entries for {len(responses)} response_tokens")
    if not bool(((masks == 0) | (masks == 1)).all()):
        refuse("response_masks must be 0 or 1")
    if not np.isfinite(float(trajectory.trajectory_reward)):
        refuse(f"trajectory_reward is {trajectory.trajectory_reward}; it must be finite")
    for number, segment in enumerate(trajectory.segments):
        if problem := segment.problem():
            refuse(f"segments[{number}]: {problem}")


def _check_tensor(name: str, value: Any) -> None:
    with extra("agentic", "Trajectory"):
        import torch  # here: whoever has a tensor has paid for it already

    if value is None:
        raise ValueError(f"Trajectory's {name} is not set")
    if not isinstance(value, torch.Tensor):
        raise TypeError(f"{name} must be torch.Tensor, got {_kind(value)}")
    if value.is_meta or value.is_complex() or value.layout is not torch.strided:
        raise TypeError(f"{name} must be a dense tensor of real numbers, with its data")
    if bool(torch.isnan(value).any()):
        raise ValueError(f"{name} contains NaN values")
    if bool(torch.isinf(value).any()):
        raise ValueError(f"{name} contains Inf values")


def _checked_metrics(metrics: Any) -> dict[str, Any]:
    if not isinstance(metrics, dict):
        raise TypeError(f"metrics must be a dict, got {_kind(metrics)}")
    if not all(isinstance(key, str) for key in metrics):
        raise TypeError("all keys in metrics must be strings")
    # Without the two rewards it is the form that older engines write, and that the documentation prints.
    if set(metrics) == METRIC_KEYS - set(_REWARDS):
        metrics = {**metrics, **dict.fromkeys(_REWARDS, 0.0)}
    if set(metrics) != METRIC_KEYS:
        raise ValueError(f"metrics must contain exactly these keys: {sorted(METRIC_KEYS)}")
    if not _is_integer(metrics["steps"]):
        raise TypeError(f"metric steps must be an integer, got {_kind(metrics['steps'])}")
    if metrics["steps"] < 0:
        raise ValueError("metric steps must be non-negative")
    for name in _REWARDS:
        if not _is_number(metrics[name]):
            raise TypeError(f"metric {name} must be a number, got {_kind(metrics[name])}")
    for name in _TIMES:  # the other two may be lists, one time a step
        value = metrics[name]
        if value is None:
            continue
        if not _is_number(value):
            raise TypeError(f"metric {name} must be a number, got {_kind(value)}")
        if value < 0:
            raise ValueError(f"metric {name} must be non-negative if not None")
    return metrics


def _check_chat(value: Any) -> None:
    if not isinstance(value, list) or not all(isinstance(message, dict) for message in value):
        raise TypeError(f"chat_completions must be a list of dict, got {_kind(value)}")
    for message in value:
        if not all(isinstance(part, str) for pair in message.items() for part in pair):
            raise TypeError("all keys and values in chat_completions dicts must be strings")


def _is_number(value: Any) -> bool:
    return isinstance(value, (Real, np.number)) and not isinstance(value, (bool, np.bool_))


def _is_integer(value: Any) -> bool:
    return isinstance(value, Integral) and not isinstance(value, bool)


def _kind(value: Any) -> str:
    return type(value).__name__
