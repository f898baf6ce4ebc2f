"""From a collected rollout to a trajectory: tokens as the model read and sampled them, never text encoded anew."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from gradwire.client._core.extras import extra
from gradwire.client.agentic.segments import Segment
from gradwire.client.agentic.training.rollouts import row_of
from gradwire.client.agentic.trajectory import METRIC_KEYS, Step, StepTrajectory
from gradwire.client.types.rollouts import CollectedRollout, RolloutRow

_THOUGHT = re.compile(r"<think>(.*?)</think>", re.DOTALL)
_NONE = -1


def trajectory_of(
    collected: CollectedRollout,
    idx: int = 0,
    *,
    messages: Sequence[Mapping[str, str]] = (),
    task: Any = None,
    metrics: Mapping[str, Any] | None = None,
    mask_constrained: bool = False,
) -> StepTrajectory:
    """A rollout as one trajectory, with a `Step` for each of its calls that count.

    Its tokens are those of the row in which the last call's reply is; where the rollout has other rows, they are
    `segments`. Log-probs, weight versions and steps of the sampled tokens come along, and so do the rollout's outcome,
    rewards and group. Without a reward it has 0.

    Args:
        collected: from `client.rollouts.collect`.
        idx: position of the task.
        messages: the conversation, for people; tokens are not taken from it. Where it has one reply a call, the steps
            have their texts.
        task: what was asked.
        metrics: of those of a trajectory any; `steps` is counted here.
        mask_constrained: what was sampled under a grammar, a forced tool call for example, is context and not trained.

    ValueError when no call of the rollout counts: there is nothing to train on.
    """
    rollout = collected.rollout
    count = 1 + max((turn.step for row in collected.rows for turn in row.turns if turn.step is not None), default=_NONE)
    if not count:
        raise ValueError(f"rollout {rollout.rollout_id} has no answered call: there is nothing to train on")
    main = max(range(len(collected.rows)), key=lambda place: _last_step(collected.rows[place]))
    row = collected.rows[main]
    begin = row.turns[0].start
    segments = [_segment(other, mask_constrained) for place, other in enumerate(collected.rows) if place != main]
    rewards = [float(rollout.step_rewards.get(step, 0.0)) for step in range(count)]
    whole = _segment(row, mask_constrained)
    assert whole.log_probs is not None and whole.steps is not None
    return StepTrajectory(
        prompt_tokens=whole.tokens[:begin],
        response_tokens=whole.tokens[begin:],
        response_masks=whole.masks[begin:],
        idx=idx,
        trajectory_reward=0.0 if rollout.reward is None else rollout.reward,
        chat_completions=[dict(message) for message in messages],
        task=task,
        steps=_steps(messages, rewards),
        response_log_probs=whole.log_probs[begin:],
        response_versions=None if whole.versions is None else whole.versions[begin:],
        response_steps=whole.steps[begin:],
        outcome=str(rollout.outcome),
        group=rollout.spec.group_id or rollout.spec.task_id or None,
        segments=segments,
        metrics={**dict.fromkeys(METRIC_KEYS, 0.0), **(metrics or {}), "steps": count},
    )


def _last_step(row: RolloutRow) -> int:
    return max((turn.step for turn in row.turns if turn.step is not None), default=_NONE)


def _segment(row: RolloutRow, mask_constrained: bool) -> Segment:
    with extra("agentic", "Trajectory"):
        import torch  # here: whoever makes trajectories has it

    read = row_of(row, mask_constrained=mask_constrained)
    assert read.log_probs is not None and read.steps is not None
    return Segment(
        torch.from_numpy(read.token_ids.astype(np.int64)),
        torch.from_numpy(read.trained.astype(np.int64)),
        torch.from_numpy(read.log_probs.copy()),
        None if read.versions is None else torch.from_numpy(read.versions),
        torch.from_numpy(read.steps),
    )


def _steps(messages: Sequence[Mapping[str, str]], rewards: list[float]) -> list[Step]:
    """One a call; with the texts of the conversation's replies where there are as many."""
    steps = [Step(reward=reward, done=step == len(rewards) - 1) for step, reward in enumerate(rewards)]
    replies = [place for place, message in enumerate(messages) if message.get("role") == "assistant"]
    if len(replies) != len(steps):
        return steps
    for step, place in zip(steps, replies, strict=True):
        text = messages[place].get("content", "")
        step.chat_completions = [dict(message) for message in messages[: place + 1]]
        step.model_response = text
        step.thought = "".join(_THOUGHT.findall(text)).strip()
        step.action = messages[place].get("tool_calls")
        step.observation = messages[place - 1].get("content") if place else None
    return steps
