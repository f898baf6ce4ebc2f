"""Deployments, both ways."""

from __future__ import annotations

from gradwire.client._convert.enums import enum_from_proto
from gradwire.client._convert.sampling import params_from_proto
from gradwire.client._convert.times import moment
from gradwire.client.types.deployments import Deployment, DeploymentState, LanguageModel, PolicyBundle
from gradwire.client.types.inference import DeploymentKind, MemoryScope
from gradwire.v1 import deployment_pb2 as pb
from gradwire.v1 import inference_pb2


def deployment_from_proto(message: pb.Deployment) -> Deployment:
    """A deployment as it is now."""
    return Deployment(
        deployment_id=message.deployment_id,
        version=message.version,
        instance_id=message.instance_id,
        kind=enum_from_proto(DeploymentKind, inference_pb2.DeploymentKind, message.kind),
        state=enum_from_proto(DeploymentState, pb.DeploymentState, message.state),
        error=message.error,
        memory_scope=enum_from_proto(MemoryScope, inference_pb2.MemoryScope, message.memory_scope),
        deployed_at=moment(message, "deployed_at"),
        weight_version=message.weight_version,
        weights_training_job_id=message.weights_training_job_id,
        source=_source(message),
    )


def _source(message: pb.Deployment) -> LanguageModel | PolicyBundle:
    if message.WhichOneof("source") == "policy":
        policy = message.policy
        return PolicyBundle(policy.bundle, policy.deterministic if policy.HasField("deterministic") else None)
    model = message.language_model
    return LanguageModel(model.job_id, model.training_job_id, model.system_prompt, params_from_proto(model.params))
