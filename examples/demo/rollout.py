"""Rollouts: groups of completions with rewards and advantages, and the training batch made of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from demo.task import Problem, Score, Task
from gradwire.client import Client
from gradwire.client.types.sampling import Completion, GenerateResult
from gradwire.client.types.training import TrainingBatch

Floats = npt.NDArray[np.float32]
# Added to a group's spread: where only the format differs a little, it should count a little.
STD_FLOOR = 0.1


@dataclass(frozen=True, slots=True)
class Rollouts:
    """Completions of some problems, a group each, and what they earned."""

    result: GenerateResult
    scores: list[list[Score]]

    @property
    def reward(self) -> float:
        """Mean reward."""
        return float(np.mean([score.reward for group in self.scores for score in group]))

    @property
    def accuracy(self) -> float:
        """Share of right answers."""
        return float(np.mean([score.correct for group in self.scores for score in group]))

    @property
    def tokens(self) -> int:
        """Tokens that were sampled."""
        return self.result.usage.completion_tokens


def roll_out(
    client: Client,
    task: Task,
    problems: Sequence[Problem],
    *,
    samples: int,
    max_tokens: int,
    seed: int,
    temperature: float = 1.0,
) -> Rollouts:
    """Samples completions with their log-probs, and scores them."""
    result = client.sampling.generate(
        [problem.prompt for problem in problems],
        n=samples,
        temperature=temperature,
        max_tokens=max_tokens,
        log_probs=0,
        seed=seed,
        timeout=600,
    )
    scores = [
        [task.score(problem, completion.text) for completion in found.completions]
        for problem, found in zip(problems, result, strict=True)
    ]
    return Rollouts(result, scores)


def training_batch(rollouts: Rollouts) -> TrainingBatch | None:
    """Rows with advantages relative to their group. None when no group has anything to compare."""
    rows: list[npt.NDArray[np.int32]] = []
    masks, advantages, old_log_probs = list[Floats](), list[Floats](), list[Floats]()
    for found, group in zip(rollouts.result, rollouts.scores, strict=True):
        rewards = np.array([score.reward for score in group])
        if rewards.std() < 1e-6:
            continue  # all equally good: every advantage would be 0
        relative = (rewards - rewards.mean()) / (rewards.std() + STD_FLOOR)
        prompt = found.prompt.token_ids
        for completion, advantage in zip(found.completions, relative, strict=True):
            rows.append(np.concatenate([prompt, completion.token_ids]))
            masks.append(_shifted(prompt, completion, np.ones(len(completion.token_ids), np.float32)))
            advantages.append(masks[-1] * np.float32(advantage))
            old_log_probs.append(_shifted(prompt, completion, _log_probs(completion)))
    if not rows:
        return None
    return TrainingBatch(input_ids=rows, loss_mask=masks, advantages=advantages, old_log_probs_shifted=old_log_probs)


def _shifted(prompt: npt.NDArray[np.int32], completion: Completion, values: Floats) -> Floats:
    """The completion's values in a row of the shifted grid: entry i belongs to token i + 1, the last to none."""
    row = np.zeros(len(prompt) + len(completion.token_ids), np.float32)
    row[len(prompt) - 1 : -1] = values
    return row


def _log_probs(completion: Completion) -> Floats:
    assert completion.log_probs is not None  # they were asked for
    return completion.log_probs
