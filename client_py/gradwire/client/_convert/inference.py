"""Deployed agents' values and results, and sessions, both ways."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gradwire.client._convert.enums import enum_from_proto
from gradwire.client._convert.sampling import completion_from_proto, usage_from_proto
from gradwire.client._convert.structs import struct_from_proto
from gradwire.client._convert.tensors import tensor_from_proto, tensor_to_proto
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


def value_to_proto(value: Any, where: str) -> pb.Value:
    """An array-like, or mappings (by key) and tuples (by position) of such, nested."""
    if isinstance(value, Mapping):
        entries = {str(key): value_to_proto(item, f"{where}[{key!r}]") for key, item in value.items()}
        return pb.Value(map=pb.ValueMap(entries=entries))
    if isinstance(value, tuple):
        items = [value_to_proto(item, f"{where}[{number}]") for number, item in enumerate(value)]
        return pb.Value(list=pb.ValueList(items=items))
    return pb.Value(tensor=tensor_to_proto(value, where))


def optional_value(value: Any, where: str) -> pb.Value | None:
    """As `value_to_proto`; None stays None."""
    return None if value is None else value_to_proto(value, where)


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
