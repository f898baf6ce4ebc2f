"""`client.jobs`: make, follow, keep and destroy jobs.

Generated from `gradwire.client.aio.jobs` by scripts/gen_sync_client.py; edit that instead.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from gradwire.client.aio.jobs import AsyncJobs
from gradwire.client.sync.portal import Portal
from gradwire.client.sync.streams import JobWatch
from gradwire.client.types.jobs import (
    CreatedJobs,
    Job,
    JobKind,
    JobProgress,
    JobRef,
    Lease,
    LogProbJobConfig,
    SamplingJobConfig,
    TrainingJobConfig,
)


class Jobs:
    """Makes and ends jobs: the engines that callers use."""

    def __init__(self, client: AsyncJobs, loop: Portal) -> None:
        self._async = client
        self._loop = loop

    def create(
        self,
        *,
        training: TrainingJobConfig | Mapping[str, Any] | None = None,
        sampling: SamplingJobConfig | Mapping[str, Any] | None = None,
        log_prob: LogProbJobConfig | Mapping[str, Any] | None = None,
        lease_s: float | None = None,
        on_progress: Callable[[JobProgress], object] | None = None,
        request_id: str | None = None,
        timeout: float | None = None,
    ) -> CreatedJobs:
        """Makes one job for each configuration given, all or none, and returns when they are ready.

        A configuration is the dataclass or a dict; {} takes all defaults. `on_progress` gets each line of
        progress. With `lease_s` (5 to 86,400 seconds) the client sends heartbeats until the job is destroyed
        or the client closed; without one, jobs live until destroyed. Applied once, however often it is sent.
        """
        if on_progress is not None:
            return self._loop.relay(
                lambda report: self._async.create(
                    training=training,
                    sampling=sampling,
                    log_prob=log_prob,
                    lease_s=lease_s,
                    on_progress=report,
                    request_id=request_id,
                    timeout=timeout,
                ),
                on_progress,
            )
        return self._loop.run(
            self._async.create(
                training=training,
                sampling=sampling,
                log_prob=log_prob,
                lease_s=lease_s,
                on_progress=on_progress,
                request_id=request_id,
                timeout=timeout,
            )
        )

    def get(self, job: JobRef | None = None, *, timeout: float | None = None) -> Job:
        """A job as it is now (default: the server's own sampling job)."""
        return self._loop.run(self._async.get(job, timeout=timeout))

    def list(self, kind: JobKind | str | None = None, *, timeout: float | None = None) -> tuple[Job, ...]:
        """The caller's jobs, by id; only those of `kind` where given."""
        return self._loop.run(self._async.list(kind, timeout=timeout))

    def destroy(self, job: JobRef, *, timeout: float | None = None) -> None:
        """Ends a job and frees what it holds; checkpoints stay. A job that is gone is NotFoundError."""
        self._loop.run(self._async.destroy(job, timeout=timeout))

    def heartbeat(self, jobs: JobRef | Sequence[JobRef], *, timeout: float | None = None) -> tuple[Lease, ...]:
        """Renews the leases of jobs by hand; `create(lease_s=...)` does it by itself."""
        return self._loop.run(self._async.heartbeat(jobs, timeout=timeout))

    def watch(self, job: JobRef | None = None, *, timeout: float | None = None) -> JobWatch:
        """A job's state now, then each change, until it ends. Without a `timeout` it follows without end.

        ResourceExhaustedError (TOO_MANY_STREAMS) when the caller's tenant has a quarter of the service's places.
        """
        return JobWatch(self._loop.call(lambda: self._async.watch(job, timeout=timeout)), self._loop)
