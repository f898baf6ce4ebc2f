"""A job's configuration on its way to the workers: nothing of it is lost."""

from __future__ import annotations

import dataclasses
from typing import Any

from gradwire.server.engines.deepspeed.messages import config_from_proto, config_to_proto
from gradwire.server.engines.training import LoraConfig, OptimizerConfig, SchedulerConfig, TrainingConfig

STAYS_IN_FRONT = {"loss": "grpo", "loss_config": {}}  # workers are told the loss of each call


def other(value: Any) -> Any:
    """Of the same type, and not the default."""
    match value:
        case bool():
            return not value
        case int() | float():
            return value + 0.5 if isinstance(value, float) else value + 3
        case str():
            return f"{value}-other"
        case tuple():
            return tuple(other(item) for item in value)
        case _:
            changes = {field.name: other(getattr(value, field.name)) for field in dataclasses.fields(value)}
            return dataclasses.replace(value, **changes)


def test_each_field_of_a_configuration_reaches_the_workers() -> None:
    names = {field.name for field in dataclasses.fields(TrainingConfig)} - STAYS_IN_FRONT.keys() - {"lora"}
    plain = TrainingConfig("m", optimizer=OptimizerConfig(), scheduler=SchedulerConfig())
    sent = dataclasses.replace(plain, **{name: other(getattr(plain, name)) for name in names})
    assert all(getattr(sent, name) != getattr(plain, name) for name in names)
    for config in (sent, dataclasses.replace(sent, lora=LoraConfig(3, 7.5, ("q_proj", "layers.0")))):
        assert config_from_proto(config_to_proto(config)) == config
