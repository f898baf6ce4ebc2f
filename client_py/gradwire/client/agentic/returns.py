"""Returns of the steps of a run."""

from __future__ import annotations

from collections.abc import Sequence


def discounted(rewards: Sequence[float], gamma: float) -> list[float]:
    """G_t = r_t + gamma G_{t+1}, the Monte Carlo return of each step (Sutton and Barto, eq. 3.9)."""
    returns = [0.0] * len(rewards)
    after = 0.0
    for place in reversed(range(len(rewards))):
        after = returns[place] = rewards[place] + gamma * after
    return returns
