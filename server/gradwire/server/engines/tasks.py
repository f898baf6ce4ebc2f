"""Work in tasks of its own: several at once, of which one failure ends all; or one that its caller cannot end."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine, Iterable
from typing import Any, TypeVar

log = logging.getLogger(__name__)
T = TypeVar("T")
_going_on: set[asyncio.Task[Any]] = set()  # asyncio itself does not hold on to them


async def together(works: Iterable[Coroutine[Any, Any, T]]) -> list[T]:
    """Results in order. The first failure cancels the others, and is raised as it is, not in a group."""
    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(work) for work in works]
    except BaseExceptionGroup as failed:
        raise failed.exceptions[0] from None
    return [task.result() for task in tasks]


async def to_the_end(work: Coroutine[Any, Any, T]) -> T:
    """The result of work that goes on when its caller is cancelled: half of it would be worse than all of it."""
    task = asyncio.get_running_loop().create_task(work)
    _going_on.add(task)
    task.add_done_callback(_going_on.discard)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        task.add_done_callback(_log_failure)  # nobody else will see it
        raise


def _log_failure(task: asyncio.Task[Any]) -> None:
    if not task.cancelled() and (error := task.exception()) is not None:
        log.warning("what a caller left behind failed: %s: %s", type(error).__name__, error)
