"""`run_tool`: a tool's call that ends in time, whatever the tool does."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable
from typing import Any

from gradwire.client.agentic.engine.deadline import deadline_in, remaining_s
from gradwire.client.agentic.engine.tasks import in_thread


async def run_tool(tool: Callable[..., Any], *arguments: Any, timeout_s: float | None = None, **named: Any) -> Any:
    """What `tool` gives for the arguments; a function runs in a thread, a coroutine function here.

    TimeoutError after `timeout_s`, or when the time of the task is over; a function's thread is left behind then.
    What the tool raises is raised.
    """
    limit = remaining_s(timeout_s)
    try:
        with deadline_in(timeout_s):
            async with asyncio.timeout(limit) as timer:
                if inspect.iscoroutinefunction(tool):
                    return await tool(*arguments, **named)
                return await asyncio.wrap_future(in_thread(lambda: tool(*arguments, **named)))
    except TimeoutError:
        if timer.expired():
            name = getattr(tool, "__name__", type(tool).__name__)
            raise TimeoutError(f"{name} gave nothing within {limit:.3g} s") from None
        raise
