"""Values that cross the border of an engine of policies and supervised models. No gRPC, no ONNX Runtime."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
Value: TypeAlias = "Array | Mapping[str, Value] | tuple[Value, ...] | list[Value] | None"
"""An array, or arrays by key or by position, nested. None: nothing."""


def num_bytes(value: Value) -> int:
    """Bytes of all arrays in it."""
    if isinstance(value, np.ndarray):
        return value.nbytes
    if isinstance(value, Mapping):
        return sum(map(num_bytes, value.values()))
    if isinstance(value, tuple | list):
        return sum(map(num_bytes, value))
    return 0 if value is None else int(np.asarray(value).nbytes)


@dataclass(slots=True)  # frozen ones take three times as long to make
class Actions:
    """Actions, or one an agent."""

    action: Value
    """(*action_space.shape), batched (rows, ...), in the space's dtype (int64 for discrete ones, int8 for bits)."""
    hidden_state: Value
    """By name, batch dimension first where batched; by agent where there are several. None unless the policy is
    recurrent."""
    seconds: float
    """From the call to the answer; the wait for a batch is in it."""


@dataclass(frozen=True, slots=True)
class Predictions:
    """Outputs of a supervised model."""

    outputs: Value
    """The output, or a map when the model has several."""
    batch_size: int
    seconds: float


@dataclass(frozen=True, slots=True)
class PolicyInfo:
    """What a bundle holds."""

    kind: str  # "rl_policy" or "supervised"
    name: str  # the algorithm, where the bundle says it
    agent_ids: tuple[str, ...]  # of a multi-agent policy; empty for a single one
    observation_space: Mapping[str, Any]  # of observations or inputs; a Dict by agent for several
    action_space: Mapping[str, Any] | None  # None of a supervised model
    recurrent: bool
    supports_action_mask: bool


class ActingEngine(Protocol):
    """A policy or a supervised model that is loaded."""

    @property
    def info(self) -> PolicyInfo:
        """What it is."""

    async def act(
        self,
        observation: Value,
        *,
        batched: bool = False,
        hidden_state: Value = None,
        action_mask: Value = None,
        env_defined_actions: Value = None,
        deterministic: bool | None = None,
        seed: int | None = None,
    ) -> Actions:
        """Actions of a policy. Raises InvalidArgument with the field."""

    async def predict(self, inputs: Value, *, batched: bool = False) -> Predictions:
        """Outputs of a supervised model. Raises InvalidArgument with the field."""

    async def close(self) -> None:
        """Answers what has begun, then frees what it holds."""
