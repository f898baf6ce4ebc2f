"""Advantages, on plain arrays of float64.

Knows: the formulas. Does not know: trajectories, tokens or rows.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Literal

import numpy as np
import numpy.typing as npt

Float64Array = npt.NDArray[np.float64]
Baseline = Literal["mean", "leave_one_out"]
Scale = Literal["std", "none"]
STD_FLOOR = 1e-6


def group_advantages(
    values: Sequence[float] | Float64Array,
    groups: Sequence[Hashable],
    *,
    baseline: Baseline = "mean",
    scale: Scale = "std",
) -> Float64Array:
    """How much better each value is than those of its group, float64 [N].

    With m the mean of the n values of a group and s their standard deviation (over n - 1):

    | baseline | scale | advantage of v | source |
    |---|---|---|---|
    | mean | std | (v - m) / (s + 1e-6) | GRPO, arXiv 2402.03300, section 4.1.2 |
    | mean | none | v - m | Dr. GRPO, arXiv 2503.20783 |
    | leave_one_out | none | v - mean of the others = (v - m) n / (n - 1) | RLOO, arXiv 2402.14740 |
    | leave_one_out | std | that, divided by s + 1e-6 | |

    Exactly 0 throughout a group of one and a group whose values are all equal: nothing there is better than
    anything else.
    """
    values = np.asarray(values, np.float64)
    members: dict[Hashable, list[int]] = {}
    for place, group in enumerate(groups):
        members.setdefault(group, []).append(place)
    advantages = np.zeros(len(values))
    for places in members.values():
        own = values[places]
        # By comparison, as the mean of equal numbers may differ from them in the last bit.
        if own.min() == own.max():
            continue
        relative = own - own.mean()
        if baseline == "leave_one_out":
            relative *= len(own) / (len(own) - 1)
        if scale == "std":
            relative /= own.std(ddof=1) + STD_FLOOR
        advantages[places] = relative
    return advantages
