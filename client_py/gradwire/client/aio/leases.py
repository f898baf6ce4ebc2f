"""Keeps leased jobs alive in the background until they are destroyed or the client is closed."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

from gradwire.client.errors import GradwireError, NotFoundError

_log = logging.getLogger(__name__)


class LeaseKeeper:
    """One task a leased job. `beat(job_id, timeout)` sends a heartbeat."""

    def __init__(self, beat: Callable[[int, float], Awaitable[object]]) -> None:
        self._beat = beat
        self._tasks: dict[int, asyncio.Task[None]] = {}

    def keep(self, job_id: int, lease_s: float) -> None:
        """Sends heartbeats at a third of the lease: two may be lost before it lapses."""
        self.drop(job_id)
        self._tasks[job_id] = asyncio.create_task(self._run(job_id, lease_s / 3), name=f"gradwire-lease-{job_id}")

    def drop(self, job_id: int) -> None:
        """Sends no more for this job."""
        task = self._tasks.pop(job_id, None)
        if task is not None:
            task.cancel()

    async def close(self) -> None:
        """Sends no more at all."""
        tasks = list(self._tasks.values())
        self._tasks.clear()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _run(self, job_id: int, interval_s: float) -> None:
        while True:
            await asyncio.sleep(interval_s)
            try:
                await self._beat(job_id, interval_s)
            except NotFoundError:
                _log.warning("job %d is gone; no more heartbeats for it", job_id)
                self._tasks.pop(job_id, None)
                return
            except GradwireError as error:
                _log.warning("heartbeat of job %d failed, and is tried again: %s", job_id, error)
