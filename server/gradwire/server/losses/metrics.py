"""Metrics that reduce exactly: over micro-batches, over ranks, in any order.

A mean travels as (sum, weight), so that the mean over parts is the mean over the whole and not a mean
of means. No torch.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum

TIMES = ("forward_seconds", "loss_seconds", "backward_seconds", "tokens_per_second")
"""Names of what the trainer measures itself."""


class Reduction(StrEnum):
    """How two values of one metric become one."""

    SUM = "sum"
    MEAN = "mean"
    MAX = "max"


@dataclass(frozen=True, slots=True)
class Metric:
    """One number of a loss. MEAN: `value` is the weighted sum and `weight` its weight; else weight is unused."""

    reduction: Reduction
    value: float
    weight: float = 1.0

    def merged(self, other: Metric) -> Metric:
        """This and another part of the same batch."""
        if self.reduction is Reduction.MAX:
            return Metric(Reduction.MAX, max(self.value, other.value))
        return Metric(self.reduction, self.value + other.value, self.weight + other.weight)

    @property
    def result(self) -> float:
        """The metric of everything merged so far; NaN for a mean over nothing."""
        if self.reduction is Reduction.MEAN:
            return self.value / self.weight if self.weight else math.nan
        return self.value


def merge_metrics(parts: Iterable[Mapping[str, Metric]]) -> dict[str, Metric]:
    """One mapping from those of all micro-batches or ranks."""
    merged: dict[str, Metric] = {}
    for part in parts:
        for name, metric in part.items():
            merged[name] = merged[name].merged(metric) if name in merged else metric
    return merged
