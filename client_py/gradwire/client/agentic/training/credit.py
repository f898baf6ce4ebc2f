"""Gives each turn of each run its advantage.

Knows: rewards of runs and of turns, groups, options. Does not know: tokens.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence

import numpy as np
import numpy.typing as npt

from gradwire.client.agentic.returns import discounted
from gradwire.client.agentic.training.advantages import Float64Array, group_advantages
from gradwire.client.agentic.training.options import Options
from gradwire.client.agentic.training.samples import Sample

# Beyond it differences, and their ratio to a spread, would leave float32.
LARGEST_REWARD = 1e30


def advantages_of(samples: Sequence[Sample], options: Options) -> list[Float64Array]:
    """For each sample that counts: one advantage (mode "token"), or one for each of its turns (mode "step")."""
    for sample in samples:
        _check_rewards(sample)
    if options.mode == "token":
        rewards = [sample.reward or 0.0 for sample in samples]
        found = group_advantages(
            rewards, [sample.group for sample in samples], baseline=options.baseline, scale=options.scale
        )
        return [found[place : place + 1] for place in range(len(samples))]
    returns = [_returns(sample, options.gamma) for sample in samples]
    keys: list[Hashable] = [
        (sample.group, turn) if options.step_baseline == "turn" else (sample.group,)
        for sample, own in zip(samples, returns, strict=True)
        for turn in range(len(own))
    ]
    flat = np.concatenate([np.zeros(0), *returns])
    found = group_advantages(flat, keys, baseline=options.baseline, scale=options.scale)
    return np.split(found, np.cumsum([len(own) for own in returns])[:-1]) if returns else []


def spread(advantages: Float64Array, steps: npt.NDArray[np.int64] | None, width: int) -> Float64Array:
    """float64 [width]: each token's advantage; a token of no turn has that of some turn, and no mask."""
    if steps is None or len(advantages) == 1:
        return np.full(width, advantages[0])
    return advantages[steps]


def _returns(sample: Sample, gamma: float | None) -> Float64Array:
    turns = _num_turns(sample)
    if gamma is None:
        if sample.step_returns is None:
            raise ValueError(f"idx {sample.idx}: its turns have no mc_return of their own; give a gamma")
        return np.asarray(sample.step_returns, np.float64)
    rewards = sample.step_rewards
    if rewards is None or (sample.reward and not any(rewards)):
        # Only the run was rewarded: for its end.
        rewards = [0.0] * turns
        rewards[-1:] = [sample.reward or 0.0] * bool(turns)
    return np.asarray(discounted(rewards, gamma), np.float64)


def _num_turns(sample: Sample) -> int:
    """As many as have rewards, or as have sampled tokens."""
    turns = len(sample.step_rewards or ())
    for row in sample.rows:
        if row.steps is None:
            raise ValueError(
                f'idx {sample.idx}: mode="step" needs to know which turn sampled a token, as StepTrajectory does'
            )
        own = row.steps[row.trained]
        if (own < 0).any():
            raise ValueError(f"idx {sample.idx}: a trained token is of no turn")
        turns = max(turns, int(own.max()) + 1 if len(own) else 0)
    if sample.step_rewards is not None and turns > len(sample.step_rewards):
        raise ValueError(f"idx {sample.idx}: {len(sample.step_rewards)} rewards of turns for {turns} turns")
    return turns


def _check_rewards(sample: Sample) -> None:
    for name in ("reward", "step_rewards", "step_returns"):
        values = np.asarray(getattr(sample, name) or 0.0, np.float64)
        if not (np.abs(values) <= LARGEST_REWARD).all():  # NaN is not, either
            raise ValueError(f"idx {sample.idx}: {name} must be finite, between -1e30 and 1e30")
