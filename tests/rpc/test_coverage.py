"""Every RPC of every service that is served has an implementation, and every service a scope."""

from __future__ import annotations

import pytest
from google.protobuf.descriptor import MethodDescriptor

from gradwire.server.http.arena.paths import Route, method_name
from gradwire.server.rpc.admin import AdminServicer
from gradwire.server.rpc.deployments import DeploymentServicer
from gradwire.server.rpc.inference import InferenceServicer
from gradwire.server.rpc.interceptors import auth
from gradwire.server.rpc.jobs import JobServicer
from gradwire.server.rpc.rollouts import RolloutServicer
from gradwire.server.rpc.sampling import SamplingServicer
from gradwire.server.rpc.sessions import SessionServicer
from gradwire.server.rpc.training import TrainingServicer
from gradwire.server.rpc.weights import WeightServicer
from gradwire.server.services import SERVICES
from gradwire.v1 import (
    admin_pb2,
    deployment_pb2,
    inference_pb2,
    job_pb2,
    rollout_pb2,
    sampling_pb2,
    session_pb2,
    training_pb2,
    weight_pb2,
)

SERVED = {
    sampling_pb2.DESCRIPTOR: SamplingServicer,
    training_pb2.DESCRIPTOR: TrainingServicer,
    weight_pb2.DESCRIPTOR: WeightServicer,
    job_pb2.DESCRIPTOR: JobServicer,
    deployment_pb2.DESCRIPTOR: DeploymentServicer,
    inference_pb2.DESCRIPTOR: InferenceServicer,
    session_pb2.DESCRIPTOR: SessionServicer,
    rollout_pb2.DESCRIPTOR: RolloutServicer,
    admin_pb2.DESCRIPTOR: AdminServicer,
}
METHODS = [
    (servicer, method)
    for file, servicer in SERVED.items()
    for service in file.services_by_name.values()
    for method in service.methods
]


@pytest.mark.parametrize(("servicer", "method"), METHODS, ids=lambda value: getattr(value, "name", ""))
def test_each_method_is_implemented(servicer: type, method: MethodDescriptor) -> None:
    assert method.name in vars(servicer), f"{servicer.__name__} inherits {method.full_name}"


def test_the_list_of_services_is_that_of_the_protos() -> None:
    assert set(SERVICES) == {s.full_name for file in SERVED for s in file.services_by_name.values()}


def test_each_service_of_the_contract_has_a_scope() -> None:
    of_other_doors = {"gradwire.openai.v1", "gradwire.arena.v1"}
    services = {s.full_name for file in SERVED for s in file.services_by_name.values()}
    assert set(auth._SCOPES) == services | of_other_doors


def test_methods_with_rules_of_their_own_are_there() -> None:
    methods = {f"/{method.containing_service.full_name}/{method.name}" for _, method in METHODS}
    ruled = {*auth._OPEN_METHODS, *auth._PUBLIC, *auth._METHOD_SCOPES, *auth._ALSO}
    assert ruled - methods == {method_name(Route.STATUS)}  # a misspelt name would open or close nothing
