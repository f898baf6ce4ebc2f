"""`to_training_batch` against a reference in plain loops, on random runs."""

from __future__ import annotations

import math
import random
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from gradwire.client._convert.training import batch_to_proto
from gradwire.client.agentic import Step, StepTrajectory, to_training_batch

OUTCOMES = ("ok", "ok", "ok", "truncated", "timeout", "env_error", "infra_error", "cancelled")
REWARDS = st.sampled_from([0.0, 1.0, -1.0, 0.1, 0.3]) | st.floats(-1e3, 1e3)


@dataclass
class Turn:
    tokens: list[int]
    log_probs: list[float]
    version: int
    answer: list[int]
    """What a tool said to it."""
    reward: float


@dataclass
class Run:
    prompt: list[int]
    turns: list[Turn]
    reward: float
    outcome: str

    def trajectory(self, idx: int) -> StepTrajectory:
        flat = [
            (token, sampled, log_prob, turn.version if sampled else 0)
            for turn in self.turns
            for token, sampled, log_prob in (
                *((token, 1, log_prob) for token, log_prob in zip(turn.tokens, turn.log_probs, strict=True)),
                *((token, 0, 0.0) for token in turn.answer),
            )
        ]
        tokens, masks, log_probs, versions = (torch.tensor(column) for column in zip(*flat, strict=True))
        return StepTrajectory(
            torch.tensor(self.prompt),
            tokens,
            masks,
            idx,
            self.reward,
            steps=[Step(reward=turn.reward) for turn in self.turns],
            response_log_probs=log_probs.float(),
            response_versions=versions,
            outcome=self.outcome,
        )


TOKENS = st.lists(st.integers(0, 50_000), min_size=1, max_size=4)


@st.composite
def turns(draw: st.DrawFn) -> Turn:
    tokens = draw(TOKENS)
    log_probs = draw(st.lists(st.floats(-20, 0, width=32), min_size=len(tokens), max_size=len(tokens)))
    return Turn(tokens, log_probs, draw(st.integers(0, 9)), draw(TOKENS), draw(REWARDS))


RUNS = st.builds(Run, TOKENS, st.lists(turns(), min_size=1, max_size=4), REWARDS, st.sampled_from(OUTCOMES))


@st.composite
def batches(draw: st.DrawFn) -> tuple[int, list[Run]]:
    """A group's size, and the runs of some groups."""
    size, number = draw(st.integers(1, 4)), draw(st.integers(0, 3))
    return size, draw(st.lists(RUNS, min_size=size * number, max_size=size * number))


def reference(values: list[float], baseline: str, scale: str) -> list[float]:
    """Advantages of one group, by the formulas as they are printed."""
    if all(value == values[0] for value in values):
        return [0.0 for _ in values]
    found = []
    mean = math.fsum(values) / len(values)
    for place, value in enumerate(values):
        if baseline == "mean":
            compared = mean
        else:
            others = values[:place] + values[place + 1 :]
            compared = math.fsum(others) / len(others)
        advantage = value - compared
        if scale == "std":
            variance = math.fsum((other - mean) ** 2 for other in values) / (len(values) - 1)
            advantage /= math.sqrt(variance) + 1e-6
        found.append(advantage)
    return found


def returns(run: Run, gamma: float) -> list[float]:
    rewards = [turn.reward for turn in run.turns]
    if run.reward and not any(rewards):
        rewards[-1] = run.reward
    return [sum(gamma**ahead * reward for ahead, reward in enumerate(rewards[turn:])) for turn in range(len(rewards))]


def expected_advantages(runs: list[Run], size: int, mode: str, per: str, gamma: float, *how: str) -> dict[Any, float]:
    """(idx, turn) -> advantage, for all turns of runs that count."""
    groups: dict[Any, list[tuple[Any, float]]] = {}
    for idx, run in enumerate(runs):
        if run.outcome not in ("ok", "truncated"):
            continue
        if mode == "token":
            groups.setdefault(idx // size, []).append(((idx, None), run.reward))
            continue
        for turn, value in enumerate(returns(run, gamma)):
            key = (idx // size, turn) if per == "turn" else idx // size
            groups.setdefault(key, []).append(((idx, turn), value))
    found: dict[Any, float] = {}
    for members in groups.values():
        advantages = reference([value for _, value in members], *how)
        found.update({place: own for (place, _), own in zip(members, advantages, strict=True)})
    return found


@given(
    batch=batches(),
    mode=st.sampled_from(["token", "step"]),
    per=st.sampled_from(["turn", "task"]),
    baseline=st.sampled_from(["mean", "leave_one_out"]),
    scale=st.sampled_from(["std", "none"]),
    gamma=st.sampled_from([0.0, 0.5, 1.0]),
    shuffle=st.randoms(use_true_random=False),
)
def test_it_is_what_plain_loops_say(
    batch: tuple[int, list[Run]], mode: Any, per: Any, baseline: Any, scale: Any, gamma: float, shuffle: random.Random
) -> None:
    size, runs = batch
    if mode == "step" and per == "task":
        baseline = "mean"
    given_runs = [run.trajectory(idx) for idx, run in enumerate(runs)]
    shuffle.shuffle(given_runs)
    found = to_training_batch(
        given_runs, mode=mode, step_baseline=per, baseline=baseline, scale=scale, gamma=gamma, group_size=size
    )
    counted = [idx for idx, run in enumerate(runs) if run.outcome in ("ok", "truncated")]
    assert [row.idx for row in found.rows] == counted
    assert [(row.idx, str(row.reason)) for row in found.dropped] == [
        (idx, run.outcome) for idx, run in enumerate(runs) if idx not in counted
    ]
    if not counted:
        assert found.batch is None
        return
    advantages = expected_advantages(runs, size, mode, per, gamma, baseline, scale)
    assert found.batch is not None
    columns = found.batch
    tolerance = 1e-5 * max(1.0, *(abs(value) for value in advantages.values()))
    for place, idx in enumerate(counted):
        run = runs[idx]
        ids, entries = list(run.prompt), {}  # entry of the shifted grid -> (advantage, log-prob, version)
        for turn, own in enumerate(run.turns):
            for token, log_prob in zip(own.tokens, own.log_probs, strict=True):
                advantage = advantages[idx, turn if mode == "step" else None]
                entries[len(ids) - 1] = (advantage, log_prob, own.version)
                ids.append(token)
            ids += own.answer
        assert columns.input_ids[place].tolist() == ids
        for entry in range(len(ids)):
            advantage, log_prob, version = entries.get(entry, (0.0, 0.0, 0))
            assert columns.loss_mask[place][entry] == (entry in entries)
            assert columns.advantages[place][entry] == pytest.approx(advantage, rel=1e-5, abs=tolerance)
            assert columns.old_log_probs_shifted[place][entry] == np.float32(log_prob)
            assert columns.versions[place][entry] == version
    assert found.stats.num_trained_tokens == sum(int(mask.sum()) for mask in columns.loss_mask)
    assert found.stats.reward_mean == pytest.approx(sum(runs[idx].reward for idx in counted) / len(counted), abs=1e-9)
    batch_to_proto(columns)
