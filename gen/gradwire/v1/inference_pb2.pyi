from buf.validate import validate_pb2 as _validate_pb2
from google.protobuf import duration_pb2 as _duration_pb2
from google.protobuf import struct_pb2 as _struct_pb2
from gradwire.v1 import sampling_pb2 as _sampling_pb2
from gradwire.v1 import sampling_params_pb2 as _sampling_params_pb2
from gradwire.v1 import tensor_pb2 as _tensor_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class DeploymentKind(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    DEPLOYMENT_KIND_UNSPECIFIED: _ClassVar[DeploymentKind]
    DEPLOYMENT_KIND_LLM: _ClassVar[DeploymentKind]
    DEPLOYMENT_KIND_RL_POLICY: _ClassVar[DeploymentKind]
    DEPLOYMENT_KIND_SUPERVISED: _ClassVar[DeploymentKind]

class MemoryScope(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    MEMORY_SCOPE_UNSPECIFIED: _ClassVar[MemoryScope]
    MEMORY_SCOPE_USER: _ClassVar[MemoryScope]
    MEMORY_SCOPE_ORGANIZATION: _ClassVar[MemoryScope]
DEPLOYMENT_KIND_UNSPECIFIED: DeploymentKind
DEPLOYMENT_KIND_LLM: DeploymentKind
DEPLOYMENT_KIND_RL_POLICY: DeploymentKind
DEPLOYMENT_KIND_SUPERVISED: DeploymentKind
MEMORY_SCOPE_UNSPECIFIED: MemoryScope
MEMORY_SCOPE_USER: MemoryScope
MEMORY_SCOPE_ORGANIZATION: MemoryScope

class Value(_message.Message):
    __slots__ = ("tensor", "map", "list")
    TENSOR_FIELD_NUMBER: _ClassVar[int]
    MAP_FIELD_NUMBER: _ClassVar[int]
    LIST_FIELD_NUMBER: _ClassVar[int]
    tensor: _tensor_pb2.Tensor
    map: ValueMap
    list: ValueList
    def __init__(self, tensor: _Optional[_Union[_tensor_pb2.Tensor, _Mapping]] = ..., map: _Optional[_Union[ValueMap, _Mapping]] = ..., list: _Optional[_Union[ValueList, _Mapping]] = ...) -> None: ...

class ValueMap(_message.Message):
    __slots__ = ("entries",)
    class EntriesEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: Value
        def __init__(self, key: _Optional[str] = ..., value: _Optional[_Union[Value, _Mapping]] = ...) -> None: ...
    ENTRIES_FIELD_NUMBER: _ClassVar[int]
    entries: _containers.MessageMap[str, Value]
    def __init__(self, entries: _Optional[_Mapping[str, Value]] = ...) -> None: ...

class ValueList(_message.Message):
    __slots__ = ("items",)
    ITEMS_FIELD_NUMBER: _ClassVar[int]
    items: _containers.RepeatedCompositeFieldContainer[Value]
    def __init__(self, items: _Optional[_Iterable[_Union[Value, _Mapping]]] = ...) -> None: ...

class GetStatusRequest(_message.Message):
    __slots__ = ("deployment_id",)
    DEPLOYMENT_ID_FIELD_NUMBER: _ClassVar[int]
    deployment_id: str
    def __init__(self, deployment_id: _Optional[str] = ...) -> None: ...

class GetStatusResponse(_message.Message):
    __slots__ = ("deployment_id", "instance_id", "kind", "agent", "weight_version", "memory_scope", "training_job_id")
    DEPLOYMENT_ID_FIELD_NUMBER: _ClassVar[int]
    INSTANCE_ID_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    AGENT_FIELD_NUMBER: _ClassVar[int]
    WEIGHT_VERSION_FIELD_NUMBER: _ClassVar[int]
    MEMORY_SCOPE_FIELD_NUMBER: _ClassVar[int]
    TRAINING_JOB_ID_FIELD_NUMBER: _ClassVar[int]
    deployment_id: str
    instance_id: str
    kind: DeploymentKind
    agent: AgentInfo
    weight_version: int
    memory_scope: MemoryScope
    training_job_id: int
    def __init__(self, deployment_id: _Optional[str] = ..., instance_id: _Optional[str] = ..., kind: _Optional[_Union[DeploymentKind, str]] = ..., agent: _Optional[_Union[AgentInfo, _Mapping]] = ..., weight_version: _Optional[int] = ..., memory_scope: _Optional[_Union[MemoryScope, str]] = ..., training_job_id: _Optional[int] = ...) -> None: ...

class AgentInfo(_message.Message):
    __slots__ = ("name", "agent_ids", "observation_space", "action_space", "recurrent", "supports_action_mask")
    NAME_FIELD_NUMBER: _ClassVar[int]
    AGENT_IDS_FIELD_NUMBER: _ClassVar[int]
    OBSERVATION_SPACE_FIELD_NUMBER: _ClassVar[int]
    ACTION_SPACE_FIELD_NUMBER: _ClassVar[int]
    RECURRENT_FIELD_NUMBER: _ClassVar[int]
    SUPPORTS_ACTION_MASK_FIELD_NUMBER: _ClassVar[int]
    name: str
    agent_ids: _containers.RepeatedScalarFieldContainer[str]
    observation_space: _struct_pb2.Struct
    action_space: _struct_pb2.Struct
    recurrent: bool
    supports_action_mask: bool
    def __init__(self, name: _Optional[str] = ..., agent_ids: _Optional[_Iterable[str]] = ..., observation_space: _Optional[_Union[_struct_pb2.Struct, _Mapping]] = ..., action_space: _Optional[_Union[_struct_pb2.Struct, _Mapping]] = ..., recurrent: bool = ..., supports_action_mask: bool = ...) -> None: ...

class GetActionRequest(_message.Message):
    __slots__ = ("deployment_id", "observation", "batched", "hidden_state", "action_mask", "env_defined_actions", "deterministic", "seed", "session_id")
    DEPLOYMENT_ID_FIELD_NUMBER: _ClassVar[int]
    OBSERVATION_FIELD_NUMBER: _ClassVar[int]
    BATCHED_FIELD_NUMBER: _ClassVar[int]
    HIDDEN_STATE_FIELD_NUMBER: _ClassVar[int]
    ACTION_MASK_FIELD_NUMBER: _ClassVar[int]
    ENV_DEFINED_ACTIONS_FIELD_NUMBER: _ClassVar[int]
    DETERMINISTIC_FIELD_NUMBER: _ClassVar[int]
    SEED_FIELD_NUMBER: _ClassVar[int]
    SESSION_ID_FIELD_NUMBER: _ClassVar[int]
    deployment_id: str
    observation: Value
    batched: bool
    hidden_state: Value
    action_mask: Value
    env_defined_actions: Value
    deterministic: bool
    seed: int
    session_id: str
    def __init__(self, deployment_id: _Optional[str] = ..., observation: _Optional[_Union[Value, _Mapping]] = ..., batched: bool = ..., hidden_state: _Optional[_Union[Value, _Mapping]] = ..., action_mask: _Optional[_Union[Value, _Mapping]] = ..., env_defined_actions: _Optional[_Union[Value, _Mapping]] = ..., deterministic: bool = ..., seed: _Optional[int] = ..., session_id: _Optional[str] = ...) -> None: ...

class GetActionResponse(_message.Message):
    __slots__ = ("action", "hidden_state", "inference_time")
    ACTION_FIELD_NUMBER: _ClassVar[int]
    HIDDEN_STATE_FIELD_NUMBER: _ClassVar[int]
    INFERENCE_TIME_FIELD_NUMBER: _ClassVar[int]
    action: Value
    hidden_state: Value
    inference_time: _duration_pb2.Duration
    def __init__(self, action: _Optional[_Union[Value, _Mapping]] = ..., hidden_state: _Optional[_Union[Value, _Mapping]] = ..., inference_time: _Optional[_Union[_duration_pb2.Duration, _Mapping]] = ...) -> None: ...

class GetActionStreamRequest(_message.Message):
    __slots__ = ("request",)
    REQUEST_FIELD_NUMBER: _ClassVar[int]
    request: GetActionRequest
    def __init__(self, request: _Optional[_Union[GetActionRequest, _Mapping]] = ...) -> None: ...

class GetActionStreamResponse(_message.Message):
    __slots__ = ("response",)
    RESPONSE_FIELD_NUMBER: _ClassVar[int]
    response: GetActionResponse
    def __init__(self, response: _Optional[_Union[GetActionResponse, _Mapping]] = ...) -> None: ...

class PredictRequest(_message.Message):
    __slots__ = ("deployment_id", "inputs", "batched")
    DEPLOYMENT_ID_FIELD_NUMBER: _ClassVar[int]
    INPUTS_FIELD_NUMBER: _ClassVar[int]
    BATCHED_FIELD_NUMBER: _ClassVar[int]
    deployment_id: str
    inputs: Value
    batched: bool
    def __init__(self, deployment_id: _Optional[str] = ..., inputs: _Optional[_Union[Value, _Mapping]] = ..., batched: bool = ...) -> None: ...

class PredictResponse(_message.Message):
    __slots__ = ("outputs", "batch_size", "inference_time")
    OUTPUTS_FIELD_NUMBER: _ClassVar[int]
    BATCH_SIZE_FIELD_NUMBER: _ClassVar[int]
    INFERENCE_TIME_FIELD_NUMBER: _ClassVar[int]
    outputs: Value
    batch_size: int
    inference_time: _duration_pb2.Duration
    def __init__(self, outputs: _Optional[_Union[Value, _Mapping]] = ..., batch_size: _Optional[int] = ..., inference_time: _Optional[_Union[_duration_pb2.Duration, _Mapping]] = ...) -> None: ...

class GenerateReplyRequest(_message.Message):
    __slots__ = ("deployment_id", "prompts", "params", "session_id")
    DEPLOYMENT_ID_FIELD_NUMBER: _ClassVar[int]
    PROMPTS_FIELD_NUMBER: _ClassVar[int]
    PARAMS_FIELD_NUMBER: _ClassVar[int]
    SESSION_ID_FIELD_NUMBER: _ClassVar[int]
    deployment_id: str
    prompts: _containers.RepeatedScalarFieldContainer[str]
    params: _sampling_params_pb2.SamplingParams
    session_id: str
    def __init__(self, deployment_id: _Optional[str] = ..., prompts: _Optional[_Iterable[str]] = ..., params: _Optional[_Union[_sampling_params_pb2.SamplingParams, _Mapping]] = ..., session_id: _Optional[str] = ...) -> None: ...

class GenerateReplyResponse(_message.Message):
    __slots__ = ("replies", "usage", "inference_time")
    REPLIES_FIELD_NUMBER: _ClassVar[int]
    USAGE_FIELD_NUMBER: _ClassVar[int]
    INFERENCE_TIME_FIELD_NUMBER: _ClassVar[int]
    replies: _containers.RepeatedCompositeFieldContainer[Reply]
    usage: _sampling_pb2.Usage
    inference_time: _duration_pb2.Duration
    def __init__(self, replies: _Optional[_Iterable[_Union[Reply, _Mapping]]] = ..., usage: _Optional[_Union[_sampling_pb2.Usage, _Mapping]] = ..., inference_time: _Optional[_Union[_duration_pb2.Duration, _Mapping]] = ...) -> None: ...

class Reply(_message.Message):
    __slots__ = ("prompt", "completion", "session_id", "num_dropped_messages")
    PROMPT_FIELD_NUMBER: _ClassVar[int]
    COMPLETION_FIELD_NUMBER: _ClassVar[int]
    SESSION_ID_FIELD_NUMBER: _ClassVar[int]
    NUM_DROPPED_MESSAGES_FIELD_NUMBER: _ClassVar[int]
    prompt: str
    completion: _sampling_pb2.Completion
    session_id: str
    num_dropped_messages: int
    def __init__(self, prompt: _Optional[str] = ..., completion: _Optional[_Union[_sampling_pb2.Completion, _Mapping]] = ..., session_id: _Optional[str] = ..., num_dropped_messages: _Optional[int] = ...) -> None: ...

class GenerateReplyStreamRequest(_message.Message):
    __slots__ = ("deployment_id", "prompt", "params", "session_id")
    DEPLOYMENT_ID_FIELD_NUMBER: _ClassVar[int]
    PROMPT_FIELD_NUMBER: _ClassVar[int]
    PARAMS_FIELD_NUMBER: _ClassVar[int]
    SESSION_ID_FIELD_NUMBER: _ClassVar[int]
    deployment_id: str
    prompt: str
    params: _sampling_params_pb2.SamplingParams
    session_id: str
    def __init__(self, deployment_id: _Optional[str] = ..., prompt: _Optional[str] = ..., params: _Optional[_Union[_sampling_params_pb2.SamplingParams, _Mapping]] = ..., session_id: _Optional[str] = ...) -> None: ...

class GenerateReplyStreamResponse(_message.Message):
    __slots__ = ("start", "delta", "end")
    START_FIELD_NUMBER: _ClassVar[int]
    DELTA_FIELD_NUMBER: _ClassVar[int]
    END_FIELD_NUMBER: _ClassVar[int]
    start: ReplyStart
    delta: _sampling_pb2.StreamDelta
    end: _sampling_pb2.StreamEnd
    def __init__(self, start: _Optional[_Union[ReplyStart, _Mapping]] = ..., delta: _Optional[_Union[_sampling_pb2.StreamDelta, _Mapping]] = ..., end: _Optional[_Union[_sampling_pb2.StreamEnd, _Mapping]] = ...) -> None: ...

class ReplyStart(_message.Message):
    __slots__ = ("params", "session_id", "num_dropped_messages")
    PARAMS_FIELD_NUMBER: _ClassVar[int]
    SESSION_ID_FIELD_NUMBER: _ClassVar[int]
    NUM_DROPPED_MESSAGES_FIELD_NUMBER: _ClassVar[int]
    params: _sampling_params_pb2.SamplingParams
    session_id: str
    num_dropped_messages: int
    def __init__(self, params: _Optional[_Union[_sampling_params_pb2.SamplingParams, _Mapping]] = ..., session_id: _Optional[str] = ..., num_dropped_messages: _Optional[int] = ...) -> None: ...
