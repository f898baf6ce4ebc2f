"""The process's life: what is composed at its beginning, in which order it starts, and how it ends."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from grpc import aio
from prometheus_client import CollectorRegistry

from gradwire.server.config import Settings
from gradwire.server.configured import deploy_configured, sampler_settings
from gradwire.server.domain.caller import LOCAL_TENANT
from gradwire.server.domain.credentials import SCOPES, new_token
from gradwire.server.domain.expiring import expire_forever
from gradwire.server.domain.monitor import JobMonitor
from gradwire.server.domain.registry import EngineFactory
from gradwire.server.doors import known_doors
from gradwire.server.draining import cut_off, drain
from gradwire.server.engines import sharedmem
from gradwire.server.engines.sampling import SamplerConfig
from gradwire.server.folders import make_folders
from gradwire.server.health import Health
from gradwire.server.http.connect.door import ConnectDoor
from gradwire.server.http.connect.methods import MethodTable
from gradwire.server.http.operator import OperatorPages
from gradwire.server.http.server import HttpServer
from gradwire.server.listening import listen, message_cap, server_options
from gradwire.server.models.resolve import resolve_model
from gradwire.server.observability.metrics import CallMetrics
from gradwire.server.observability.samplers import SamplerMetrics
from gradwire.server.rooms import furnish
from gradwire.server.rpc.interceptors.admission import Admission
from gradwire.server.rpc.interceptors.around import ChainedMethods
from gradwire.server.rpc.interceptors.auth import Auth
from gradwire.server.rpc.interceptors.step import Chain
from gradwire.server.rpc.interceptors.telemetry import Telemetry
from gradwire.server.rpc.interceptors.validation import Validation
from gradwire.server.services import add_reflection, servicers
from gradwire.server.storage.database import Database, database_url

_LAST_WORDS_S = 0.5


class App:
    """One server. `start`, then wait, then `stop`."""

    def __init__(self, settings: Settings, engines: EngineFactory, progress: Callable[[str], None]) -> None:
        self.settings = settings
        self.grpc_address = ""
        self.http_address = ""
        self._progress = progress
        self._registry = CollectorRegistry()
        self._metrics = CallMetrics(self._registry)
        self._tasks: list[asyncio.Task[None]] = []
        self._hurried = asyncio.Event()
        self._database = Database(database_url(settings.database.get_secret_value(), settings.data_dir))
        rooms = self._rooms = furnish(settings, engines, self._database, self._metrics)
        self.jobs, self.rollouts, self.tokens = rooms.jobs, rooms.rollouts, rooms.tokens
        self.deployments, self.deployer, self.turns = rooms.deployments, rooms.deployer, rooms.turns
        self._dismiss = [self.jobs.dismiss_watchers, self.rollouts.dismiss]  # streams that only wait for something
        self.monitor = JobMonitor(self.jobs)
        self._health = Health(self.jobs)
        self._samplers = SamplerMetrics(self.jobs.samplers)
        self._admission = Admission(settings.limits.max_calls_per_service)
        auth = Auth(rooms.authenticator)
        # All doors run the same steps around the same servicers.
        chain = Chain([Telemetry(self._metrics), self._admission, auth, Validation()])
        self._server = aio.server(options=server_options(settings))
        self._rpc_methods = ChainedMethods(chain)
        self._server.add_generic_rpc_handlers((self._rpc_methods,))
        self._http_methods = MethodTable()
        self._http = HttpServer(
            ConnectDoor(
                self._http_methods,
                chain,
                max_message_bytes=message_cap(settings),
                patience_s=settings.limits.http_read_seconds,
                guarded=settings.wants_tokens,
            ),
            OperatorPages(self._registry, self._samplers, self._health.facts, auth).routes,
            settings.tls,
            known_doors(settings, rooms, chain, self._metrics.sampled_tokens.inc),
        )

    async def start(self) -> None:
        """Start the engines, then serve. Engine processes come first: gRPC and fork do not mix."""
        sharedmem.sweep()  # of servers that were killed
        await self._database.open()
        make_folders(self.settings)
        self._add_services()
        self.grpc_address = listen(self._server, self.settings)
        if self.settings.model:
            await self._start_sampler()
        await self.deployer.restore(without=self.settings.deployments)
        for name, deployment in self.settings.deployments.items():
            await deploy_configured(self.deployer, name, deployment)
        await self._first_token()  # only now: one that is shown by a start that fails is not shown again
        await self._server.start()
        await self._health.begin()
        if self.settings.http is not None:
            self.http_address = await self._http.start(self.settings.http)
        for work in (
            self.monitor.watch_forever(),
            self._health.follow_sampler(),
            self.deployer.refresh_forever(),
            expire_forever(self._rooms.updates.expire, self._rooms.uploads.expire),
        ):
            self._tasks.append(asyncio.create_task(work))

    async def _first_token(self) -> None:
        """Where tokens are asked for and none was ever made, the first one's secret is shown, here and never again."""
        if not self.settings.wants_tokens or self.settings.tokens:
            return
        new = new_token(tenant=LOCAL_TENANT, user="admin", scopes=frozenset(SCOPES), description="the first token")
        if await self.tokens.add_first(new.record):
            self._progress(f"the first token, for everything, shown only this once: {new.secret}")

    async def _start_sampler(self) -> None:
        settings = self.settings
        path = await asyncio.to_thread(resolve_model, settings.model, progress=self._progress)
        config = SamplerConfig(model=settings.model, model_path=str(path), **settings.sampler.model_dump())
        with sampler_settings():
            await self.jobs.start_built_in(config, lambda _, line: self._progress(line))

    def _add_services(self) -> None:
        made = servicers(self.settings, self._rooms, self._metrics, self._health.servicer, self._http_url)
        self._dismiss.append(made.inference.dismiss)
        made.add_to(self._rpc_methods)
        made.add_to(self._http_methods)
        if self.settings.reflection:
            add_reflection(self._rpc_methods)

    def hurry(self) -> None:
        """End the calls that `stop` is waiting for."""
        self._hurried.set()

    async def stop(self) -> None:
        """Drain: refuse new calls, let those under way finish, end the engines.

        The server listens while it drains, so that new calls get an error with details and health checks an answer.
        """
        await self._health.end()
        for dismiss in self._dismiss:
            dismiss()
        drained = await drain(self._admission, self._hurried, self.settings.limits.drain_seconds, self._progress)
        if not drained:
            await cut_off(self._admission, self._rpc_methods.cut)
        # Last answers are still on their way; whoever only watches health would stay for ever.
        await self._server.stop(_LAST_WORDS_S)
        for task in self._tasks:
            task.cancel()
        await self._http.stop()
        self.rollouts.close()
        await self.jobs.shutdown()
        await self.turns.settle()
        await self.deployer.close()
        await self._database.close()

    def _http_url(self) -> str:
        scheme = "http" if self.settings.tls is None else "https"
        return f"{scheme}://{self.http_address}" if self.http_address else ""
