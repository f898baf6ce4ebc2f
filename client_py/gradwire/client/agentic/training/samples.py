"""One run of an agent as what training reads of it, whatever it was recorded as.

Knows: how a Trajectory and a StepTrajectory become rows of tokens. Does not know: advantages.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from gradwire.client._convert.tensors import as_float32, elements
from gradwire.client.agentic.outcomes import POLICY_OUTCOMES, Outcome
from gradwire.client.agentic.segments import Segment
from gradwire.client.agentic.training.result import DropReason
from gradwire.client.agentic.trajectory import StepTrajectory, Trajectory, check_trainable
from gradwire.client.types.shown import Brief


@dataclass(slots=True, eq=False, repr=False)
class SampleRow(Brief):
    """A row of T tokens as the model saw them: prompt, replies, and what tools answered between."""

    token_ids: npt.NDArray[np.int32]
    """int32 [T]."""
    trained: npt.NDArray[np.bool_]
    """bool [T]: the model sampled the token, and it is to be trained."""
    log_probs: npt.NDArray[np.float32] | None = None
    """float32 [T] under the policy that sampled; read where `trained`. None: not known."""
    versions: npt.NDArray[np.int64] | None = None
    """int64 [T], weight version that sampled; read where `trained`. None: not known."""
    steps: npt.NDArray[np.int64] | None = None
    """int64 [T], turn of the run that sampled, from 0; read where `trained`. None: turns are not told apart."""
    abandoned: bool = False
    """Nobody went on from it: the client had asked again, or had left."""


@dataclass(slots=True, eq=False, repr=False)
class Sample(Brief):
    """A run on a task."""

    idx: int
    """Its place in the order of the batch."""
    group: Hashable | None
    """Task; None where it is told by other means."""
    outcome: Outcome
    reward: float | None
    """None: nobody gave one."""
    rows: list[SampleRow] = field(default_factory=list)
    step_rewards: list[float] | None = None
    """One a turn. None: only the run has a reward."""
    step_returns: list[float] | None = None
    """As the engine computed them, one a turn."""
    name: str = ""
    """Of the rollout that it is of."""
    dropped: list[tuple[DropReason, str]] = field(default_factory=list)
    """What was sampled and is in no row: why, and in words."""

    @property
    def counts(self) -> bool:
        """The policy brought this end about, and there is a reward for it."""
        return self.outcome in POLICY_OUTCOMES and self.reward is not None


def sample_of(trajectory: Trajectory, outcome: Outcome | None = None) -> Sample:
    """A trajectory as one row; `outcome` in place of its own. ValueError when training cannot use it.

    Of one that did not end by the policy's doing nothing is read: its tensors may hold whatever the fault left.
    """
    outcome = outcome or Outcome(trajectory.outcome)
    if outcome not in POLICY_OUTCOMES:
        return Sample(trajectory.idx, trajectory.group, outcome, None)
    check_trainable(trajectory)
    row = _row(trajectory)
    rows = [row, *(_segment_row(segment) for segment in trajectory.segments)]
    sample = Sample(trajectory.idx, trajectory.group, outcome, float(trajectory.trajectory_reward), rows)
    if isinstance(trajectory, StepTrajectory):
        row.steps = _steps(trajectory, row.trained)
        sample.step_rewards = [float(step.reward) for step in trajectory.steps]
        sample.step_returns = [float(step.mc_return) for step in trajectory.steps]
    return sample


def _row(trajectory: Trajectory) -> SampleRow:
    prompt = elements(trajectory.prompt_tokens, "prompt_tokens").array
    response = elements(trajectory.response_tokens, "response_tokens").array
    largest = np.iinfo(np.int32).max
    if prompt.max() > largest or response.max() > largest:
        raise ValueError(f"trajectory of idx {trajectory.idx}: token ids lie between 0 and {largest}")
    row = SampleRow(
        np.concatenate([prompt, response]).astype(np.int32),
        _behind(prompt, as_float32(trajectory.response_masks, "response_masks") > 0),
    )
    if trajectory.response_log_probs is not None:
        row.log_probs = _behind(prompt, as_float32(trajectory.response_log_probs, "response_log_probs"))
    if trajectory.response_versions is not None:
        row.versions = _integers(trajectory, "response_versions", prompt)
    return row


def _segment_row(segment: Segment) -> SampleRow:
    def integers(values: Any, name: str) -> Any:
        return None if values is None else elements(values, name).array.astype(np.int64)

    return SampleRow(
        elements(segment.tokens, "tokens").array.astype(np.int32),
        as_float32(segment.masks, "masks") > 0,
        None if segment.log_probs is None else as_float32(segment.log_probs, "log_probs"),
        integers(segment.versions, "versions"),
        integers(segment.steps, "steps"),
    )


def _steps(trajectory: StepTrajectory, trained: npt.NDArray[np.bool_]) -> npt.NDArray[np.int64]:
    """The turn of each token, by `response_steps` or by the runs of ones in the mask."""
    count = len(trajectory.steps)
    if trajectory.response_steps is not None:
        steps = _integers(trajectory, "response_steps", trajectory.prompt_tokens, fill=-1)
        wrong = trained & ((steps < 0) | (steps >= count))
        if wrong.any():
            raise ValueError(
                f"trajectory of idx {trajectory.idx}: response_steps gives a trained token step {steps[wrong][0]}; "
                f"its steps are 0 to {count - 1}"
            )
        return steps
    begins = trained & ~np.concatenate([[False], trained[:-1]])
    if begins.sum() != count:
        raise ValueError(
            f"trajectory of idx {trajectory.idx}: response_masks has {begins.sum()} runs of ones for {count} steps; "
            "say with response_steps which step sampled each token"
        )
    return np.where(trained, begins.cumsum() - 1, -1)


def _integers(trajectory: Trajectory, name: str, prompt: Any, fill: int = 0) -> npt.NDArray[np.int64]:
    array = elements(getattr(trajectory, name), name).array
    if array.dtype.kind not in "iu":
        raise ValueError(f"trajectory of idx {trajectory.idx}: {name} holds {array.dtype}; it holds integers")
    return _behind(prompt, array.astype(np.int64), fill)


def _behind(prompt: Any, values: Any, fill: float = 0) -> Any:
    """`values` of the response with `fill` for each token of the prompt."""
    return np.concatenate([np.full(len(prompt), fill, values.dtype), values])
