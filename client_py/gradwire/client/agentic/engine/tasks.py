"""`run_tasks`: many tasks side by side, each with its own end.

A task that raises, hangs or returns garbage costs its own trajectory and no other. Where `run_engine` is around it,
what has been played is handed over as it comes, and so outlives an engine that fails later.
"""

from __future__ import annotations

import asyncio
import contextvars
import inspect
import logging
import threading
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import Future
from contextvars import ContextVar
from typing import Any, TypeVar

from gradwire.client.agentic.engine.deadline import deadline_in, remaining_s
from gradwire.client.agentic.engine.failures import TaskFailure, failure_of
from gradwire.client.agentic.outcomes import POLICY_OUTCOMES
from gradwire.client.agentic.trajectory import Trajectory, check_trainable

log = logging.getLogger(__name__)
T = TypeVar("T")
Task = dict[str, Any]
RunOne = Callable[[int, Task], Trajectory | Awaitable[Trajectory]]


class Ledger:
    """What has come of tasks so far. Written by any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._done: dict[int, Trajectory] = {}
        self._failed: dict[int, TaskFailure] = {}

    def done(self, trajectory: Trajectory) -> None:
        """A task has its trajectory."""
        with self._lock:
            self._done[trajectory.idx] = trajectory

    def failed(self, failure: TaskFailure) -> None:
        """A task has failed."""
        with self._lock:
            self._failed[failure.idx] = failure

    def read(self) -> tuple[dict[int, Trajectory], dict[int, TaskFailure]]:
        """Both by position, as they are now."""
        with self._lock:
            return dict(self._done), dict(self._failed)


current_ledger: ContextVar[Ledger | None] = ContextVar("gradwire_agentic_ledger", default=None)


def run_tasks(
    tasks: Sequence[Task], run_one: RunOne, *, n_parallel: int = 8, deadline_s: float | None = None
) -> list[Trajectory]:
    """Plays `tasks` with `run_one(position, task)`, a function or a coroutine function that gives a Trajectory.

    Args:
        tasks: as an engine gets them.
        run_one: plays one. Functions run in threads, coroutines in one event loop of their own.
        n_parallel: at most so many at a time.
        deadline_s: seconds for each task, from its beginning; a deadline around the call shortens it. A coroutine is
            cancelled then; a function's thread cannot be, and is left behind.

    Returns:
        The trajectories of the tasks that succeeded, in the order of tasks, with `idx` set. Failures are logged, and
        are in `run_engine`'s result.
    """
    if n_parallel < 1:
        raise ValueError(f"n_parallel is {n_parallel}; it must be at least 1")
    own = Ledger()
    play = _Play(run_one, [own, *filter(None, [current_ledger.get()])], asyncio.Semaphore(n_parallel), deadline_s)
    finished: Future[None] = Future()

    async def all_of_them() -> None:
        try:
            await asyncio.gather(*(play.task(position, task) for position, task in enumerate(tasks)))
        except BaseException as error:
            finished.set_exception(error)
        else:
            finished.set_result(None)

    # In a thread of its own, as the caller may be in an event loop already. Its end is not waited for: an event loop
    # waits for threads that tasks began and that may hang.
    in_thread(lambda: asyncio.run(all_of_them()))
    finished.result()
    done, _ = own.read()
    return [done[position] for position in sorted(done)]


class _Play:
    def __init__(
        self, run_one: RunOne, ledgers: list[Ledger], room: asyncio.Semaphore, deadline_s: float | None
    ) -> None:
        self._run_one = run_one
        self._ledgers = ledgers
        self._room = room
        self._deadline_s = deadline_s

    async def task(self, position: int, task: Task) -> None:
        """Plays one task and writes down what came of it."""
        async with self._room:
            with deadline_in(self._deadline_s):
                try:
                    trajectory = _checked(position, await self._in_time(position, task))
                except (Exception, SystemExit, asyncio.CancelledError) as error:
                    mine = asyncio.current_task()
                    if isinstance(error, asyncio.CancelledError) and mine is not None and mine.cancelling():
                        raise  # the whole batch ends, and not what this task waited for
                    failure = failure_of(position, task, error)
                    log.warning("task %d (id %r) failed: %s", position, failure.task_id, failure.reason)
                    for ledger in self._ledgers:
                        ledger.failed(failure)
                else:
                    for ledger in self._ledgers:
                        ledger.done(trajectory)

    async def _in_time(self, position: int, task: Task) -> Any:
        limit = remaining_s()
        if limit == 0:
            raise TimeoutError("the batch's time was over before it began")
        try:
            async with asyncio.timeout(limit) as timer:
                return await self._trajectory(position, task)
        except TimeoutError:
            if timer.expired():
                raise TimeoutError(f"it was not done within {limit:.3g} s") from None
            raise  # of its own

    async def _trajectory(self, position: int, task: Task) -> Any:
        if inspect.iscoroutinefunction(self._run_one):
            return await self._run_one(position, task)
        result = await asyncio.wrap_future(in_thread(lambda: self._run_one(position, task)))
        return await result if inspect.isawaitable(result) else result


def _checked(position: int, result: Any) -> Trajectory:
    if not isinstance(result, Trajectory):
        raise TypeError(f"the task gave {type(result).__name__} where it must give a Trajectory")
    result.idx = position
    if result.outcome in POLICY_OUTCOMES:  # of others nothing is read
        check_trainable(result)
    return result


def in_thread(work: Callable[[], T]) -> Future[T]:
    """Runs `work` in a thread that no exit of the process waits for, with the caller's context variables."""
    future: Future[T] = Future()
    context = contextvars.copy_context()

    def run() -> None:
        if not future.set_running_or_notify_cancel():
            return
        try:
            future.set_result(context.run(work))
        except BaseException as error:
            future.set_exception(error)

    threading.Thread(target=run, name="gradwire-agent", daemon=True).start()
    return future
