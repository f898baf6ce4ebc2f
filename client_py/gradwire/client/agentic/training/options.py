"""The options of `to_training_batch`, and which of them contradict each other."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

from gradwire.client._convert.nearest import unknown_name
from gradwire.client.agentic.training.advantages import Baseline, Scale

Mode = Literal["token", "step"]
StepBaseline = Literal["turn", "task"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """As `to_training_batch` documents them."""

    mode: Mode
    baseline: Baseline
    scale: Scale
    gamma: float | None
    step_baseline: StepBaseline
    mask_truncated: bool
    drop_uniform: bool
    max_row_tokens: int | None
    min_weight_version: int | None

    def __post_init__(self) -> None:
        for name, choices in _CHOICES.items():
            value = getattr(self, name)
            if value not in choices:
                raise ValueError(unknown_name(name, str(value), choices))
        if self.gamma is not None and not 0 <= self.gamma <= 1:
            raise ValueError(f"gamma is {self.gamma}; a discount is from 0 to 1, or None for the steps' own mc_return")
        if self.mode == "step" and self.step_baseline == "task" and self.baseline == "leave_one_out":
            # What is left out would be one turn; the run's other turns, which depend on it, would stay in.
            raise ValueError('baseline="leave_one_out" compares runs: with mode="step" it needs step_baseline="turn"')
        for name, least in {"max_row_tokens": 2, "min_weight_version": 0}.items():
            value = getattr(self, name)
            if value is not None and (not isinstance(value, int) or isinstance(value, bool) or value < least):
                raise ValueError(f"{name} is {value!r}; it is an integer from {least}, or None")


_CHOICES: dict[str, tuple[str, ...]] = {
    "mode": get_args(Mode),
    "baseline": get_args(Baseline),
    "scale": get_args(Scale),
    "step_baseline": get_args(StepBaseline),
}
