"""Several works at once, of which one failure ends all."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterable
from typing import Any, TypeVar

T = TypeVar("T")


async def together(works: Iterable[Coroutine[Any, Any, T]]) -> list[T]:
    """Results in order. The first failure cancels the others, and is raised as it is, not in a group."""
    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(work) for work in works]
    except BaseExceptionGroup as failed:
        raise failed.exceptions[0] from None
    return [task.result() for task in tasks]
