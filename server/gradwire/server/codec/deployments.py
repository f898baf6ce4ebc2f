"""Deployments and their status <-> messages."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import PurePath
from typing import Any

from google.protobuf.json_format import ParseDict
from google.protobuf.struct_pb2 import Struct

from gradwire.server.codec.sampling import encode_given, given_params
from gradwire.server.codec.times import timestamp_us
from gradwire.server.domain.caller import Caller
from gradwire.server.domain.deployments import (
    Deployment,
    DeploymentKind,
    LanguageModel,
    PolicyBundle,
    Source,
)
from gradwire.server.domain.inference import Status
from gradwire.server.domain.sessions import MemoryScope
from gradwire.v1 import deployment_pb2 as pb
from gradwire.v1 import inference_pb2

_KINDS = {
    DeploymentKind.LLM: inference_pb2.DEPLOYMENT_KIND_LLM,
    DeploymentKind.RL_POLICY: inference_pb2.DEPLOYMENT_KIND_RL_POLICY,
    DeploymentKind.SUPERVISED: inference_pb2.DEPLOYMENT_KIND_SUPERVISED,
}
_SCOPES = {
    MemoryScope.NONE: inference_pb2.MEMORY_SCOPE_UNSPECIFIED,
    MemoryScope.USER: inference_pb2.MEMORY_SCOPE_USER,
    MemoryScope.ORGANIZATION: inference_pb2.MEMORY_SCOPE_ORGANIZATION,
}
_SCOPE_OF = {number: scope for scope, number in _SCOPES.items()}


def decode_source(request: pb.DeployRequest) -> Source:
    """What is to be deployed; the rules in the protos hold already."""
    if request.WhichOneof("source") == "policy":
        policy = request.policy
        return PolicyBundle(policy.bundle, policy.deterministic if policy.HasField("deterministic") else None)
    model = request.language_model
    return LanguageModel(
        job_id=model.job_id,
        training_job_id=model.training_job_id,
        system_prompt=model.system_prompt,
        params=given_params(model.params),
    )


def decode_scope(request: pb.DeployRequest) -> MemoryScope | None:
    """The memory scope that is asked for; None: none is."""
    return _SCOPE_OF[request.memory_scope] if request.HasField("memory_scope") else None


def encode_deployment(deployment: Deployment, caller: Caller) -> pb.Deployment:
    """A deployment as it is now. Only who may deploy sees its instructions, and where a bundle lies."""
    weights, source, trouble = deployment.weights, deployment.source, deployment.trouble
    message = pb.Deployment(
        deployment_id=deployment.deployment_id,
        version=deployment.version,
        instance_id=deployment.instance_id,
        kind=_KINDS[deployment.kind],
        state=pb.DEPLOYMENT_STATE_FAILED if trouble else pb.DEPLOYMENT_STATE_READY,
        error=trouble,
        memory_scope=_SCOPES[deployment.memory_scope],
        deployed_at=timestamp_us(deployment.deployed_at),
        weight_version=weights.version,
        weights_training_job_id=weights.training_job_id,
    )
    if isinstance(source, PolicyBundle):
        message.policy.bundle = source.bundle if "ADMIN" in caller.scopes else PurePath(source.bundle).name
        if source.deterministic is not None:
            message.policy.deterministic = source.deterministic
        return message
    model = message.language_model
    model.job_id = source.job_id
    model.training_job_id = source.training_job_id
    if "ADMIN" in caller.scopes:
        model.system_prompt = source.system_prompt
    if source.params:
        model.params.CopyFrom(encode_given(source.params))
    return message


def encode_status(status: Status, caller: Caller) -> inference_pb2.GetStatusResponse:
    """What a deployment is; to whoever may not use it, no more than the Arena's public status says."""
    if not caller.may_see_deployments:
        return _public_status(status)
    agent = inference_pb2.AgentInfo(name=status.name)
    policy = status.policy
    if policy is not None:
        agent.agent_ids.extend(policy.agent_ids)
        agent.observation_space.CopyFrom(_struct(policy.observation_space))
        if policy.action_space is not None:
            agent.action_space.CopyFrom(_struct(policy.action_space))
        agent.recurrent = policy.recurrent
        agent.supports_action_mask = policy.supports_action_mask
    return inference_pb2.GetStatusResponse(
        deployment_id=status.deployment_id,
        instance_id=status.instance_id,
        kind=_KINDS[status.kind],
        agent=agent,
        weight_version=status.weights.version,
        memory_scope=_SCOPES[status.memory_scope],
        training_job_id=status.weights.training_job_id,
    )


def _public_status(status: Status) -> inference_pb2.GetStatusResponse:
    message = inference_pb2.GetStatusResponse(deployment_id=status.deployment_id, instance_id=status.instance_id)
    policy = status.policy
    if policy is None or not policy.agent_ids:  # several agents are told from one by their names, which are not public
        message.kind = _KINDS[status.kind]
        message.agent.name = status.short_name
        message.agent.recurrent = policy is not None and policy.recurrent
    return message


def _struct(space: Mapping[str, Any]) -> Struct:
    return ParseDict(dict(space), Struct())
