"""Waiting for what another thread or task does."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable


async def until(condition: Callable[[], object], seconds: float = 30.0) -> None:
    """Waits until `condition()` holds; fails the test when it does not in time."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not happen in time"
        await asyncio.sleep(0.01)


def until_sync(condition: Callable[[], object], seconds: float = 30.0) -> None:
    """The same, blocking."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(0.01)
