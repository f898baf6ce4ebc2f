"""What a batch of tasks gives, and how those failed that gave nothing."""

from __future__ import annotations

import asyncio
import concurrent.futures
from dataclasses import dataclass, field
from typing import Any

from gradwire.client.agentic.engine.completions import CompletionError
from gradwire.client.agentic.outcomes import Outcome
from gradwire.client.agentic.trajectory import Trajectory
from gradwire.client.errors import GradwireError
from gradwire.client.types.shown import Brief

_OF_THE_NETWORK = {"aiohttp", "grpc", "httpx", "httpx2", "openai"}
_OF_THE_REQUEST = {400, 413, 422}  # statuses of what no server could answer


@dataclass(frozen=True, slots=True, repr=False)
class TaskFailure(Brief):
    """A task without a trajectory: its position, its `id`, and why."""

    idx: int
    task_id: Any
    outcome: Outcome
    reason: str
    error: BaseException | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True, repr=False)
class EngineBatch(Brief):
    """Trajectories by `idx`, and the tasks that have none, by `idx`."""

    trajectories: list[Trajectory]
    failures: list[TaskFailure]

    @property
    def outcomes(self) -> dict[int, Outcome]:
        """How each failure ended, by `idx`: `to_training_batch` leaves it out of its group's statistics."""
        return {failure.idx: failure.outcome for failure in self.failures}


def outcome_of_error(error: BaseException) -> Outcome:
    """What an exception of a task says of it: where it is not of time, the server or the network, its environment (or
    the agent's program) failed."""
    if isinstance(error, TimeoutError) or type(error).__name__ == "APITimeoutError":
        return Outcome.TIMEOUT
    if isinstance(error, (asyncio.CancelledError, concurrent.futures.CancelledError)):
        return Outcome.CANCELLED
    if isinstance(error, ValueError) or getattr(error, "status_code", None) in _OF_THE_REQUEST:
        return Outcome.ENV_ERROR  # whoever asked is at fault, and not who was asked
    packages = {kind.__module__.partition(".")[0] for kind in type(error).__mro__}
    if isinstance(error, (CompletionError, GradwireError, ConnectionError)) or packages & _OF_THE_NETWORK:
        return Outcome.INFRA_ERROR
    return Outcome.ENV_ERROR


def failure_of(idx: int, task: dict[str, Any], error: BaseException) -> TaskFailure:
    """The failure that an exception is."""
    reason = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    return TaskFailure(idx, task.get("id"), outcome_of_error(error), reason, error)
