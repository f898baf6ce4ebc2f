"""Deployed agents' values and results, and sessions, both ways."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gradwire.client._convert.enums import enum_from_proto
from gradwire.client._convert.sampling import completion_from_proto, usage_from_proto
from gradwire.client._convert.structs import struct_from_proto
from gradwire.client._convert.tensors import Placer, put_tensor, tensor_from_proto
from gradwire.client._convert.times import moment, seconds
from gradwire.client.types.inference import (
    ActionResult,
    AgentInfo,
    DeploymentKind,
    DeploymentStatus,
    MemoryScope,
    Prediction,
    Replies,
    Reply,
    Session,
    SessionMessage,
    Value,
)
from gradwire.v1 import inference_pb2 as pb
from gradwire.v1 import session_pb2


def put_value(message: pb.Value, value: Any, where: str, placer: Placer | None = None) -> None:
    """Writes an array-like, or mappings (by key) and tuples (by position) of such, nested."""
    if isinstance(value, Mapping):
        message.map.SetInParent()
        for key, item in value.items():
            put_value(message.map.entries[str(key)], item, f"{where}[{key!r}]", placer)
    elif isinstance(value, tuple):
        message.list.SetInParent()
        for number, item in enumerate(value):
            put_value(message.list.items.add(), item, f"{where}[{number}]", placer)
    else:
        put_tensor(message.tensor, value, where, placer)


def put_optional(message: pb.Value, value: Any, where: str, placer: Placer | None = None) -> None:
    """As `put_value`; None leaves the field absent."""
    if value is not None:
        put_value(message, value, where, placer)


def value_from_proto(message: pb.Value) -> Value:
    """An array, a dict or a tuple. ValueError when the server sent none."""
    match message.WhichOneof("form"):
        case "tensor":
            return tensor_from_proto(message.tensor)
        case "map":
            return {key: value_from_proto(item) for key, item in message.map.entries.items()}
        case "list":
            return tuple(value_from_proto(item) for item in message.list.items)
        case _:
            raise ValueError("the server sent a value in a form that this client does not know")


def status_from_proto(response: pb.GetStatusResponse) -> DeploymentStatus:
    """What a deployment is."""
    agent = response.agent
    return DeploymentStatus(
        deployment_id=response.deployment_id,
        instance_id=response.instance_id,
        kind=enum_from_proto(DeploymentKind, pb.DeploymentKind, response.kind),
        agent=AgentInfo(
            name=agent.name,
            agent_ids=tuple(agent.agent_ids),
            observation_space=struct_from_proto(agent.observation_space),
            action_space=struct_from_proto(agent.action_space),
            recurrent=agent.recurrent,
            supports_action_mask=agent.supports_action_mask,
        ),
        weight_version=response.weight_version,
        memory_scope=enum_from_proto(MemoryScope, pb.MemoryScope, response.memory_scope),
        training_job_id=response.training_job_id,
    )


def action_from_proto(response: pb.GetActionResponse) -> ActionResult:
    """Actions of a policy."""
    hidden = value_from_proto(response.hidden_state) if response.HasField("hidden_state") else None
    return ActionResult(value_from_proto(response.action), hidden, seconds(response.inference_time))


def prediction_from_proto(response: pb.PredictResponse) -> Prediction:
    """Predictions of a supervised model."""
    return Prediction(value_from_proto(response.outputs), response.batch_size, seconds(response.inference_time))


def replies_from_proto(response: pb.GenerateReplyResponse) -> Replies:
    """Replies, in the order of the prompts."""
    replies = tuple(
        Reply(reply.prompt, completion_from_proto(reply.completion), reply.session_id, reply.num_dropped_messages)
        for reply in response.replies
    )
    return Replies(replies, usage_from_proto(response.usage), seconds(response.inference_time))


def session_from_proto(message: session_pb2.Session) -> Session:
    """A stored conversation."""
    created, updated = moment(message, "created_at"), moment(message, "updated_at")
    return Session(message.session_id, created, updated, message.num_messages)


def session_message_from_proto(message: session_pb2.SessionMessage) -> SessionMessage:
    """A message of a session."""
    return SessionMessage(message.role, message.content, moment(message, "created_at"), message.incomplete)
