"""Mutating a training job: through its operation log, with dead engines noticed at once."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

from gradwire.server.domain.jobs import JobState
from gradwire.server.domain.operations import Operation
from gradwire.server.domain.registry import AnyJob, TrainingJob
from gradwire.server.engines.training import SleepMode, TrainerPart
from gradwire.server.engines.weights import MemoryReport
from gradwire.server.errors import Unavailable

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Timed(Generic[T]):
    """A result with the seconds it waited and ran."""

    value: T
    queued_s: float
    run_s: float


def _weightless(result: object) -> int:
    return 0


async def operate(
    job: TrainingJob,
    operation: Operation,
    apply: Callable[[], Awaitable[T]],
    *,
    timeout: float | None,
    nbytes: Callable[[T], int] = _weightless,
) -> Timed[T]:
    """Run `apply` as one operation of the job. A repeated call gets the first one's result, timing included.

    `nbytes` is the size of a result: what is kept for repeated calls is bounded.
    """
    asked = time.monotonic()

    async def timed() -> Timed[T]:
        began = time.monotonic()
        value = await guarded(job, apply)
        return Timed(value, began - asked, time.monotonic() - began)

    return await job.operations.run(operation, timed, timeout=timeout, nbytes=lambda result: nbytes(result.value))


async def guarded(job: AnyJob, apply: Callable[[], Awaitable[T]]) -> T:
    """Run `apply`; when the engine turns out to be dead, the job fails and says so."""
    job.require_working()
    try:
        return await apply()
    except Unavailable as error:
        if not await job.fail_if_dead():
            raise
        # Not UNAVAILABLE: a client would retry what can only fail again.
        raise job.failed() from error


async def sleep(
    job: TrainingJob,
    mode: SleepMode,
    *,
    weights_asleep: Callable[[TrainingJob], Awaitable[None]],
    timeout: float | None,
) -> MemoryReport:
    """Put parts of the trainer to sleep, after the operations that came before. Asking twice is fine."""

    async def apply() -> MemoryReport:
        memory = await job.engine.sleep(mode)
        job.set_state(JobState.SLEEPING, f"asleep ({mode})")
        if TrainerPart.MODEL in mode.parts:
            await weights_asleep(job)
        return memory

    return (await operate(job, Operation(), apply, timeout=timeout)).value


async def wake(job: TrainingJob, *, timeout: float | None) -> MemoryReport:
    """Wake all of the trainer. One that cannot, for want of memory, sleeps on."""

    async def apply() -> MemoryReport:
        memory = await job.engine.wake()
        job.set_state(JobState.READY, "awake")
        return memory

    return (await operate(job, Operation(), apply, timeout=timeout)).value


async def empty_cache(job: TrainingJob, *, timeout: float | None) -> MemoryReport:
    """Give back what the trainer holds without need, between two operations. Legal while it sleeps."""
    return (await operate(job, Operation(), job.engine.empty_cache, timeout=timeout)).value
