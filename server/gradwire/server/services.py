"""Composition of the gRPC services: which there are, and the same servicers behind each door that carries them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from grpc_health.v1 import health, health_pb2_grpc
from grpc_reflection.v1alpha import reflection, reflection_pb2_grpc

from gradwire.server.capabilities import capabilities
from gradwire.server.codec.shared import SharedMemoryPolicy
from gradwire.server.config import Settings
from gradwire.server.engines.training import TrainingConfig
from gradwire.server.losses.registry import resolve_loss
from gradwire.server.models.resolve import resolve_model
from gradwire.server.observability.metrics import CallMetrics
from gradwire.server.rooms import Rooms
from gradwire.server.rpc.admin import AdminServicer
from gradwire.server.rpc.batches import Batches
from gradwire.server.rpc.deployments import DeploymentServicer
from gradwire.server.rpc.inference import InferenceServicer
from gradwire.server.rpc.jobs import JobServicer
from gradwire.server.rpc.rollouts import RolloutServicer
from gradwire.server.rpc.sampling import SamplingServicer
from gradwire.server.rpc.sessions import SessionServicer
from gradwire.server.rpc.shares import StreamShares
from gradwire.server.rpc.training import TrainingServicer
from gradwire.server.rpc.weights import WeightServicer
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

SAMPLING = "gradwire.v1.SamplingService"
SERVICES = (
    SAMPLING,
    *(
        f"gradwire.v1.{name}"
        for name in (
            "TrainingService",
            "WeightService",
            "JobService",
            "DeploymentService",
            "InferenceService",
            "SessionService",
            "RolloutService",
            "AdminService",
        )
    ),
)


@dataclass(frozen=True, slots=True)
class Servicers:
    """One of each."""

    sampling: SamplingServicer
    training: TrainingServicer
    weights: WeightServicer
    jobs: JobServicer
    deployments: DeploymentServicer
    inference: InferenceServicer
    sessions: SessionServicer
    rollouts: RolloutServicer
    admin: AdminServicer
    health: health.aio.HealthServicer

    def add_to(self, door: Any) -> None:
        """Put them behind a door, which takes what a gRPC server takes."""
        sampling_pb2_grpc.add_SamplingServiceServicer_to_server(self.sampling, door)
        training_pb2_grpc.add_TrainingServiceServicer_to_server(self.training, door)
        weight_pb2_grpc.add_WeightServiceServicer_to_server(self.weights, door)
        job_pb2_grpc.add_JobServiceServicer_to_server(self.jobs, door)
        deployment_pb2_grpc.add_DeploymentServiceServicer_to_server(self.deployments, door)
        inference_pb2_grpc.add_InferenceServiceServicer_to_server(self.inference, door)
        session_pb2_grpc.add_SessionServiceServicer_to_server(self.sessions, door)
        rollout_pb2_grpc.add_RolloutServiceServicer_to_server(self.rollouts, door)
        admin_pb2_grpc.add_AdminServiceServicer_to_server(self.admin, door)
        health_pb2_grpc.add_HealthServicer_to_server(self.health, door)


def servicers(
    settings: Settings,
    rooms: Rooms,
    metrics: CallMetrics,
    health_servicer: health.aio.HealthServicer,
    http_url: Callable[[], str],
) -> Servicers:
    """All of them. `http_url` is asked at each call: the HTTP door opens last."""
    limits = settings.limits
    batches = Batches(rooms.jobs, rooms.uploads, SharedMemoryPolicy(settings.shared_memory, limits.max_upload_bytes))
    arrays = SharedMemoryPolicy(settings.shared_memory, limits.max_message_bytes)

    def shares(instead: str, kinds: int = 1) -> StreamShares:
        return StreamShares(limits.max_calls_per_service, instead, kinds=kinds)

    return Servicers(
        sampling=SamplingServicer(rooms.jobs, metrics, rooms.rollouts),
        training=TrainingServicer(rooms.jobs, batches, rooms.checkpoints, metrics),
        weights=WeightServicer(rooms.jobs, rooms.sync, rooms.updates),
        jobs=JobServicer(rooms.jobs, rooms.checkpoints, resolve_model, _check_loss, settings.model, shares("GetJob")),
        deployments=DeploymentServicer(rooms.deployments, rooms.deployer),
        inference=InferenceServicer(rooms.inference, metrics, arrays, shares("GetAction")),
        sessions=SessionServicer(rooms.deployments, rooms.sessions),
        rollouts=RolloutServicer(
            rooms.jobs,
            rooms.rollouts,
            metrics,
            limits.max_message_bytes,
            shares("GetRollout", 2),
            shares("CollectRollouts without wait", 2),
        ),
        admin=AdminServicer(capabilities(settings, SERVICES, http_url), rooms.tokens, rooms.authenticator),
        health=health_servicer,
    )


def add_reflection(door: Any) -> None:
    """Let clients ask which services there are."""
    names = [*SERVICES, health.SERVICE_NAME, reflection.SERVICE_NAME]
    reflection_pb2_grpc.add_ServerReflectionServicer_to_server(reflection.aio.ReflectionServicer(names), door)


def _check_loss(config: TrainingConfig) -> None:
    resolve_loss(config.loss, path="training.loss").parse(config.loss_config, path="training.loss_config")
