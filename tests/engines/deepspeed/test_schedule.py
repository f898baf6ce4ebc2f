"""Rates over the steps."""

from __future__ import annotations

import pytest

from gradwire.server.engines.deepspeed.schedule import learning_rate
from gradwire.server.engines.training import OptimizerConfig, SchedulerConfig

OPTIMIZER = OptimizerConfig(lr=1.0)


def rates(scheduler: SchedulerConfig, steps: int) -> list[float]:
    return [learning_rate(OPTIMIZER, scheduler, step) for step in range(steps)]


def test_constant() -> None:
    assert rates(SchedulerConfig(), 3) == [1.0, 1.0, 1.0]


def test_warm_up_reaches_the_rate_with_its_last_step() -> None:
    assert rates(SchedulerConfig(warmup_steps=4), 6) == [0.25, 0.5, 0.75, 1.0, 1.0, 1.0]


def test_linear_falls_to_the_floor_and_stays() -> None:
    scheduler = SchedulerConfig(name="linear", warmup_steps=1, total_steps=5, min_lr_ratio=0.2)
    assert rates(scheduler, 7) == pytest.approx([1.0, 1.0, 0.8, 0.6, 0.4, 0.2, 0.2])


def test_cosine_is_half_way_down_in_the_middle() -> None:
    scheduler = SchedulerConfig(name="cosine", total_steps=8, min_lr_ratio=0.1)
    found = rates(scheduler, 10)
    assert found[0] == 1.0
    assert found[4] == pytest.approx(0.55)
    assert found[8:] == pytest.approx([0.1, 0.1])
    assert found == sorted(found, reverse=True)
