"""The learning rate of a step. A pure function, so that a resumed run and an override are exact."""

from __future__ import annotations

import math

from gradwire.server.engines.training import OptimizerConfig, SchedulerConfig
from gradwire.server.errors import FieldViolation, InvalidArgument
from gradwire.server.losses.names import did_you_mean

SCHEDULERS = ("constant", "linear", "cosine")


def learning_rate(optimizer: OptimizerConfig, scheduler: SchedulerConfig, step: int) -> float:
    """Rate of step `step`, counted from 0.

    Warm-up rises as (step + 1) / warmup_steps, so that no step is wasted at rate 0 and the first step after it
    has the full rate. From there to `total_steps` it falls to `min_lr_ratio` x lr, and stays.
    """
    if step < scheduler.warmup_steps:
        return optimizer.lr * (step + 1) / scheduler.warmup_steps
    if scheduler.name == "constant":
        return optimizer.lr
    span = max(1, scheduler.total_steps - scheduler.warmup_steps)
    progress = min(1.0, (step - scheduler.warmup_steps) / span)
    left = 1.0 - progress if scheduler.name == "linear" else (1.0 + math.cos(math.pi * progress)) / 2
    return optimizer.lr * (scheduler.min_lr_ratio + (1.0 - scheduler.min_lr_ratio) * left)


def check_scheduler(config: SchedulerConfig) -> None:
    """Raises InvalidArgument for an unknown name or steps that do not fit together."""
    bad = []
    if config.name not in SCHEDULERS:
        hint = did_you_mean(config.name, SCHEDULERS)
        bad.append(
            FieldViolation("config.scheduler.name", f"{config.name!r} is none of {', '.join(SCHEDULERS)}.{hint}")
        )
    elif config.name != "constant" and config.total_steps <= config.warmup_steps:
        bad.append(
            FieldViolation(
                "config.scheduler.total_steps",
                f"{config.name} needs more total steps than the {config.warmup_steps} of its warm-up",
            )
        )
    if config.warmup_steps < 0:
        bad.append(FieldViolation("config.scheduler.warmup_steps", f"must be >= 0, is {config.warmup_steps}"))
    if not 0 <= config.min_lr_ratio <= 1:
        bad.append(FieldViolation("config.scheduler.min_lr_ratio", f"must be in [0, 1], is {config.min_lr_ratio}"))
    if bad:
        raise InvalidArgument(bad)
