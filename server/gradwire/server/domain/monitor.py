"""Watches over the jobs of a server: engines that died, leases that lapsed."""

from __future__ import annotations

import asyncio
import logging
from functools import partial

from gradwire.server.domain.jobs import JobState
from gradwire.server.domain.registry import AnyJob, JobRegistry

log = logging.getLogger(__name__)

INTERVAL_S = 1.0


class JobMonitor:
    """One per server."""

    def __init__(self, jobs: JobRegistry) -> None:
        self._jobs = jobs
        self._looks: dict[int, asyncio.Task[None]] = {}

    async def watch_forever(self) -> None:
        """Look after all jobs now and then, until cancelled."""
        while True:
            await asyncio.sleep(INTERVAL_S)
            self.look_after_all()

    def look_after_all(self) -> list[asyncio.Task[None]]:
        """Begin a look at each job that is not being looked at: one that does not answer must not hide the others."""
        for job in self._jobs.all():
            if job.job_id not in self._looks:
                look = asyncio.get_running_loop().create_task(self._look_after_safely(job))
                self._looks[job.job_id] = look
                look.add_done_callback(partial(self._looked, job.job_id))
        return list(self._looks.values())

    def _looked(self, job_id: int, look: asyncio.Task[None]) -> None:
        self._looks.pop(job_id, None)

    async def _look_after_safely(self, job: AnyJob) -> None:
        try:
            await self._look_after(job)
        except Exception:  # a bug met with one job must not leave the others unwatched
            log.exception("looking after %s", job.name)

    async def _look_after(self, job: AnyJob) -> None:
        if job.state in (JobState.READY, JobState.SLEEPING, JobState.PAUSED):
            await job.fail_if_dead()
        if job.lease is None:
            return
        if job.lease.dead():
            log.warning("%s: no heartbeat for twice its lease, destroying it", job.name)
            self._jobs.end(job)
        elif job.lease.lapsed() and job.state in (JobState.READY, JobState.SLEEPING):
            log.warning("%s: its lease lapsed", job.name)
            job.pause()
