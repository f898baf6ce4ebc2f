"""Composition of the process: engines, domain, services, doors, and the order of their beginning and end."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

from grpc import aio
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection, reflection_pb2_grpc
from prometheus_client import CollectorRegistry

from gradwire.server.capabilities import capabilities
from gradwire.server.config import Settings, is_loopback, split_address
from gradwire.server.configured import deploy_configured
from gradwire.server.domain.authentication import Authenticator, ConfiguredToken
from gradwire.server.domain.caller import LOCAL_TENANT, Caller
from gradwire.server.domain.checkpoints import CheckpointStore
from gradwire.server.domain.credentials import SCOPES, new_token
from gradwire.server.domain.deploying import Deployer
from gradwire.server.domain.deployments import Deployments
from gradwire.server.domain.hidden_states import HiddenStates
from gradwire.server.domain.inference import Inference
from gradwire.server.domain.jobs import JobState
from gradwire.server.domain.registry import EngineFactory, JobRegistry
from gradwire.server.domain.rollouts.following import Limits
from gradwire.server.domain.rollouts.store import RolloutStore
from gradwire.server.domain.sessions import SessionReader
from gradwire.server.domain.turns import Turns
from gradwire.server.domain.updates import WeightUpdates
from gradwire.server.domain.uploads import UploadStore
from gradwire.server.domain.weights import WeightSync
from gradwire.server.doors import Rooms, known_doors
from gradwire.server.engines import sharedmem
from gradwire.server.engines.policy import load_policy
from gradwire.server.engines.sampling import SamplerConfig
from gradwire.server.engines.training import TrainingConfig
from gradwire.server.http.connect.body import BodyLimits
from gradwire.server.http.connect.door import ConnectDoor
from gradwire.server.http.connect.methods import MethodTable
from gradwire.server.http.openai.recording import Recorder
from gradwire.server.http.operator import OperatorPages
from gradwire.server.http.server import Door, HttpServer
from gradwire.server.listening import message_cap, server_options, tls_credentials
from gradwire.server.losses.registry import resolve_loss
from gradwire.server.models.resolve import resolve_model
from gradwire.server.observability.metrics import CallMetrics
from gradwire.server.rpc.admin import AdminServicer
from gradwire.server.rpc.deployments import DeploymentServicer
from gradwire.server.rpc.inference import InferenceServicer
from gradwire.server.rpc.interceptors.admission import Admission
from gradwire.server.rpc.interceptors.around import ChainedMethods
from gradwire.server.rpc.interceptors.auth import Auth
from gradwire.server.rpc.interceptors.step import Chain
from gradwire.server.rpc.interceptors.telemetry import Telemetry
from gradwire.server.rpc.interceptors.validation import Validation
from gradwire.server.rpc.jobs import JobServicer
from gradwire.server.rpc.rollouts import RolloutServicer
from gradwire.server.rpc.sampling import SamplingServicer
from gradwire.server.rpc.sessions import SessionServicer
from gradwire.server.rpc.training import TrainingServicer
from gradwire.server.rpc.weights import WeightServicer
from gradwire.server.storage.database import Database, database_url
from gradwire.server.storage.deployments import DatabaseDeployments
from gradwire.server.storage.sessions import DatabaseSessions
from gradwire.server.storage.tokens import DatabaseTokens
from gradwire.v1 import (
    admin_pb2_grpc,
    deployment_pb2_grpc,
    inference_pb2_grpc,
    job_pb2_grpc,
    rollout_pb2_grpc,
    sampling_pb2_grpc,
    session_pb2_grpc,
    training_pb2_grpc,
    weight_pb2_grpc,
)

log = logging.getLogger(__name__)

SERVICES = tuple(
    f"gradwire.v1.{name}"
    for name in (
        "SamplingService",
        "TrainingService",
        "WeightService",
        "JobService",
        "DeploymentService",
        "InferenceService",
        "SessionService",
        "RolloutService",
        "AdminService",
    )
)
_SAMPLING = "gradwire.v1.SamplingService"
_LAST_WORDS_S = 0.5


class App:
    """One server. `start`, then `wait` or `run`, then `stop`."""

    def __init__(self, settings: Settings, engines: EngineFactory, progress: Callable[[str], None]) -> None:
        self.settings = settings
        self.grpc_address = ""
        self.http_address = ""
        self._progress = progress
        self._registry = CollectorRegistry()
        self._metrics = CallMetrics(self._registry)
        self._admission = Admission(settings.limits.max_calls_per_service)
        self._health = health.aio.HealthServicer()
        self._tasks: list[asyncio.Task[None]] = []
        self.jobs = JobRegistry(engines, max_jobs=settings.limits.max_jobs)
        self._sync = WeightSync()
        self._updates = WeightUpdates(self._sync)
        self._serving = False
        self._hurried = asyncio.Event()
        self.rollouts = RolloutStore(
            Limits(
                settings.limits.max_rollouts,
                settings.limits.max_rollout_bytes,
                settings.limits.rollout_retention_seconds,
            ),
            self._metrics.rollout_ended,
        )
        self._metrics.rollouts.set_function(self.rollouts.__len__)
        self._metrics.rollout_bytes.set_function(lambda: self.rollouts.num_bytes)
        self.jobs.on_destroy += [self._updates.forget, self._sync.forget, self.rollouts.end_job]
        self.jobs.on_sleep += [self._sync.release]
        self._database = Database(database_url(settings.database.get_secret_value(), settings.data_dir))
        self.tokens = DatabaseTokens(self._database)
        self.deployments = Deployments()
        self.turns = Turns(DatabaseSessions(self._database))
        states = HiddenStates()
        self.inference = Inference(self.deployments, self.turns, states)
        self.deployer = Deployer(
            self.deployments, self.jobs, DatabaseDeployments(self._database), load_policy, settings.bundles
        )
        self.deployer.on_end.append(states.forget)
        self._authenticator = Authenticator(
            _tokens(settings),
            self.tokens if settings.wants_tokens else None,
            lambda reason: self._metrics.auth_failures.labels(reason).inc(),
        )
        auth = Auth(self._authenticator)
        # Both doors run the same steps around the same servicers.
        chain = Chain([Telemetry(self._metrics), self._admission, auth, Validation()])
        self._server = aio.server(options=server_options(settings))
        self._rpc_methods = ChainedMethods(chain)
        self._server.add_generic_rpc_handlers((self._rpc_methods,))
        self._methods = MethodTable()
        self._http = HttpServer(
            ConnectDoor(
                self._methods,
                chain,
                max_message_bytes=message_cap(settings),
                patience_s=settings.limits.http_read_seconds,
                guarded=settings.wants_tokens,
            ),
            OperatorPages(self._registry, self._facts, auth).routes,
            settings.tls,
            self._known_doors(chain),
        )

    def _known_doors(self, chain: Chain) -> list[Door]:
        sessions = SessionReader(DatabaseSessions(self._database))
        rooms = Rooms(Recorder(self.jobs, self.rollouts), self.deployments, self.deployer, self.inference, sessions)
        limits = BodyLimits(message_cap(self.settings), self.settings.limits.http_read_seconds)
        return known_doors(self.settings, rooms, chain, self._metrics.sampled_tokens.inc, limits)

    async def start(self) -> None:
        """Start the engines, then serve. Engine processes come first: gRPC and fork do not mix."""
        sharedmem.sweep()  # of servers that were killed
        await self._database.open()
        await self._first_token()
        self._add_services()
        self.grpc_address = self._bind()
        if self.settings.model:
            await self._start_sampler()
        await self.deployer.restore()
        for name, deployment in self.settings.deployments.items():
            await deploy_configured(self.deployer, name, deployment)
        self.jobs.start_monitor()
        await self._server.start()
        await self._set_health(health_pb2.HealthCheckResponse.SERVING)
        self._serving = True
        if self.settings.http is not None:
            self.http_address = await self._http.start(self.settings.http)
        self._tasks.append(asyncio.create_task(self._follow_sampler()))

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
        await self.jobs.start_built_in(config, lambda _, line: self._progress(line))

    def _add_services(self) -> None:
        settings = self.settings
        uploads = UploadStore(
            max_upload_bytes=settings.limits.max_upload_bytes, capacity=settings.limits.max_stored_upload_bytes
        )
        checkpoints = CheckpointStore(settings.data_dir / "checkpoints")
        weights = WeightServicer(self.jobs, self._sync, self._updates)
        training = TrainingServicer(
            self.jobs, uploads, checkpoints, self._metrics, shared_memory=settings.shared_memory
        )
        jobs = JobServicer(self.jobs, checkpoints, _resolve, _check_loss, settings.model)
        sampling = SamplingServicer(self.jobs, self._metrics, self.rollouts)
        admin = AdminServicer(capabilities(settings, SERVICES, self._http_url), self.tokens, self._authenticator)
        deployments = DeploymentServicer(self.deployments, self.deployer)
        inference = InferenceServicer(self.inference, self._metrics)
        rollouts = RolloutServicer(self.jobs, self.rollouts, self._metrics, settings.limits.max_message_bytes)
        sessions = SessionServicer(self.deployments, SessionReader(DatabaseSessions(self._database)))
        for door in (self._rpc_methods, self._methods):
            target: Any = door  # they take what a server takes
            sampling_pb2_grpc.add_SamplingServiceServicer_to_server(sampling, target)
            training_pb2_grpc.add_TrainingServiceServicer_to_server(training, target)
            weight_pb2_grpc.add_WeightServiceServicer_to_server(weights, target)
            job_pb2_grpc.add_JobServiceServicer_to_server(jobs, target)
            deployment_pb2_grpc.add_DeploymentServiceServicer_to_server(deployments, target)
            inference_pb2_grpc.add_InferenceServiceServicer_to_server(inference, target)
            session_pb2_grpc.add_SessionServiceServicer_to_server(sessions, target)
            rollout_pb2_grpc.add_RolloutServiceServicer_to_server(rollouts, target)
            admin_pb2_grpc.add_AdminServiceServicer_to_server(admin, target)
            health_pb2_grpc.add_HealthServicer_to_server(self._health, target)
        if settings.reflection:
            names = [*SERVICES, health.SERVICE_NAME, reflection.SERVICE_NAME]
            reflection_pb2_grpc.add_ServerReflectionServicer_to_server(
                reflection.aio.ReflectionServicer(names), self._rpc_methods
            )
        self._tasks.append(asyncio.get_running_loop().create_task(weights.expire_forever()))

    def _bind(self) -> str:
        settings = self.settings
        host, _ = split_address(settings.grpc)
        try:
            if settings.tls is None:
                assert is_loopback(host)  # Settings has refused everything else
                port = self._server.add_insecure_port(settings.grpc)
            else:
                port = self._server.add_secure_port(settings.grpc, tls_credentials(settings))
        except RuntimeError as error:
            reason = "the port is taken, or not allowed; give another with --grpc HOST:PORT (port 0: a free one)"
            raise OSError(f"cannot listen on {settings.grpc}: {reason}") from error
        return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"

    async def _set_health(self, status: health_pb2.HealthCheckResponse.ServingStatus) -> None:
        for service in ("", *SERVICES):
            await self._health.set(service, status)

    async def _follow_sampler(self) -> None:
        """The sampling service is as healthy as the sampler that the server was started with."""
        built_in = self.jobs.built_in
        if built_in is None:
            return
        lines = built_in.watch()
        while built_in.state is not JobState.FAILED:
            await lines.get()
        await self._health.set(_SAMPLING, health_pb2.HealthCheckResponse.NOT_SERVING)
        log.error("the sampler died: %s. Other jobs go on; restart the server to sample again", built_in.error)

    def hurry(self) -> None:
        """End the calls that `stop` is waiting for."""
        self._hurried.set()

    async def stop(self) -> None:
        """Drain: refuse new calls, let those under way finish, end the engines.

        The server listens while it drains, so that new calls get an error with details and health checks an answer.
        """
        self._serving = False
        await self._health.enter_graceful_shutdown()
        self.jobs.dismiss_watchers()
        self.rollouts.dismiss()
        drained = asyncio.ensure_future(self._admission.drain())
        hurried = asyncio.ensure_future(self._hurried.wait())
        await asyncio.wait(
            {drained, hurried}, timeout=self.settings.limits.drain_seconds, return_when=asyncio.FIRST_COMPLETED
        )
        # Last answers are still on their way; whoever only watches health would stay for ever.
        await self._server.stop(_LAST_WORDS_S if drained.done() else None)
        drained.cancel()
        hurried.cancel()
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

    def _facts(self) -> tuple[bool, dict[str, str]]:
        jobs = {job.name: str(job.state) for job in self.jobs.all()}
        built_in = self.jobs.built_in
        failed = built_in is not None and built_in.state is JobState.FAILED
        return self._serving and not failed, jobs


def _tokens(settings: Settings) -> list[ConfiguredToken]:
    return [
        ConfiguredToken(token.sha256, Caller(token.tenant, token.name, token.scopes, user=f"user:{token.name}"))
        for token in settings.tokens
    ]


def _resolve(name: str) -> Path:
    return resolve_model(name)


def _check_loss(config: TrainingConfig) -> None:
    resolve_loss(config.loss, path="training.loss").parse(config.loss_config, path="training.loss_config")
