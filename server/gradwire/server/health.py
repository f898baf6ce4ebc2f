"""What grpc.health.v1 says of each service, and whether the server serves."""

from __future__ import annotations

import logging

from grpc_health.v1 import health, health_pb2

from gradwire.server.domain.jobs import JobState
from gradwire.server.domain.registry import JobRegistry
from gradwire.server.services import SAMPLING, SERVICES

log = logging.getLogger(__name__)


class Health:
    """One per server. NOT_SERVING until `begin`, and from `end` on."""

    def __init__(self, jobs: JobRegistry) -> None:
        self._jobs = jobs
        self._serving = False
        self.servicer = health.aio.HealthServicer()

    async def begin(self) -> None:
        """The server serves."""
        for service in ("", *SERVICES):
            await self.servicer.set(service, health_pb2.HealthCheckResponse.SERVING)
        self._serving = True

    async def end(self) -> None:
        """The server drains; nothing says otherwise any more."""
        self._serving = False
        await self.servicer.enter_graceful_shutdown()

    async def follow_sampler(self) -> None:
        """The sampling service is as healthy as the sampler that the server was started with."""
        built_in = self._jobs.built_in
        if built_in is None:
            return
        lines = built_in.watch()
        while built_in.state is not JobState.FAILED:
            await lines.get()
        await self.servicer.set(SAMPLING, health_pb2.HealthCheckResponse.NOT_SERVING)
        log.error("the sampler died: %s. Other jobs go on; restart the server to sample again", built_in.error)

    def facts(self) -> tuple[bool, dict[str, str]]:
        """Whether the server serves, and the state of each job."""
        built_in = self._jobs.built_in
        failed = built_in is not None and built_in.state is JobState.FAILED
        return self._serving and not failed, {job.name: str(job.state) for job in self._jobs.all()}
