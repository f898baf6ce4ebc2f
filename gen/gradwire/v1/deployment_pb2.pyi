from buf.validate import validate_pb2 as _validate_pb2
from google.protobuf import timestamp_pb2 as _timestamp_pb2
from gradwire.v1 import inference_pb2 as _inference_pb2
from gradwire.v1 import sampling_params_pb2 as _sampling_params_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class DeploymentState(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    DEPLOYMENT_STATE_UNSPECIFIED: _ClassVar[DeploymentState]
    DEPLOYMENT_STATE_READY: _ClassVar[DeploymentState]
    DEPLOYMENT_STATE_FAILED: _ClassVar[DeploymentState]
DEPLOYMENT_STATE_UNSPECIFIED: DeploymentState
DEPLOYMENT_STATE_READY: DeploymentState
DEPLOYMENT_STATE_FAILED: DeploymentState

class LanguageModel(_message.Message):
    __slots__ = ("job_id", "training_job_id", "system_prompt", "params")
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    TRAINING_JOB_ID_FIELD_NUMBER: _ClassVar[int]
    SYSTEM_PROMPT_FIELD_NUMBER: _ClassVar[int]
    PARAMS_FIELD_NUMBER: _ClassVar[int]
    job_id: int
    training_job_id: int
    system_prompt: str
    params: _sampling_params_pb2.SamplingParams
    def __init__(self, job_id: _Optional[int] = ..., training_job_id: _Optional[int] = ..., system_prompt: _Optional[str] = ..., params: _Optional[_Union[_sampling_params_pb2.SamplingParams, _Mapping]] = ...) -> None: ...

class PolicyBundle(_message.Message):
    __slots__ = ("bundle", "deterministic")
    BUNDLE_FIELD_NUMBER: _ClassVar[int]
    DETERMINISTIC_FIELD_NUMBER: _ClassVar[int]
    bundle: str
    deterministic: bool
    def __init__(self, bundle: _Optional[str] = ..., deterministic: bool = ...) -> None: ...

class Deployment(_message.Message):
    __slots__ = ("deployment_id", "version", "instance_id", "kind", "state", "error", "memory_scope", "deployed_at", "weight_version", "weights_training_job_id", "language_model", "policy")
    DEPLOYMENT_ID_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    INSTANCE_ID_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    MEMORY_SCOPE_FIELD_NUMBER: _ClassVar[int]
    DEPLOYED_AT_FIELD_NUMBER: _ClassVar[int]
    WEIGHT_VERSION_FIELD_NUMBER: _ClassVar[int]
    WEIGHTS_TRAINING_JOB_ID_FIELD_NUMBER: _ClassVar[int]
    LANGUAGE_MODEL_FIELD_NUMBER: _ClassVar[int]
    POLICY_FIELD_NUMBER: _ClassVar[int]
    deployment_id: str
    version: int
    instance_id: str
    kind: _inference_pb2.DeploymentKind
    state: DeploymentState
    error: str
    memory_scope: _inference_pb2.MemoryScope
    deployed_at: _timestamp_pb2.Timestamp
    weight_version: int
    weights_training_job_id: int
    language_model: LanguageModel
    policy: PolicyBundle
    def __init__(self, deployment_id: _Optional[str] = ..., version: _Optional[int] = ..., instance_id: _Optional[str] = ..., kind: _Optional[_Union[_inference_pb2.DeploymentKind, str]] = ..., state: _Optional[_Union[DeploymentState, str]] = ..., error: _Optional[str] = ..., memory_scope: _Optional[_Union[_inference_pb2.MemoryScope, str]] = ..., deployed_at: _Optional[_Union[_timestamp_pb2.Timestamp, _Mapping]] = ..., weight_version: _Optional[int] = ..., weights_training_job_id: _Optional[int] = ..., language_model: _Optional[_Union[LanguageModel, _Mapping]] = ..., policy: _Optional[_Union[PolicyBundle, _Mapping]] = ...) -> None: ...

class DeployRequest(_message.Message):
    __slots__ = ("deployment_id", "language_model", "policy", "memory_scope", "replace")
    DEPLOYMENT_ID_FIELD_NUMBER: _ClassVar[int]
    LANGUAGE_MODEL_FIELD_NUMBER: _ClassVar[int]
    POLICY_FIELD_NUMBER: _ClassVar[int]
    MEMORY_SCOPE_FIELD_NUMBER: _ClassVar[int]
    REPLACE_FIELD_NUMBER: _ClassVar[int]
    deployment_id: str
    language_model: LanguageModel
    policy: PolicyBundle
    memory_scope: _inference_pb2.MemoryScope
    replace: bool
    def __init__(self, deployment_id: _Optional[str] = ..., language_model: _Optional[_Union[LanguageModel, _Mapping]] = ..., policy: _Optional[_Union[PolicyBundle, _Mapping]] = ..., memory_scope: _Optional[_Union[_inference_pb2.MemoryScope, str]] = ..., replace: bool = ...) -> None: ...

class DeployResponse(_message.Message):
    __slots__ = ("deployment",)
    DEPLOYMENT_FIELD_NUMBER: _ClassVar[int]
    deployment: Deployment
    def __init__(self, deployment: _Optional[_Union[Deployment, _Mapping]] = ...) -> None: ...

class GetDeploymentRequest(_message.Message):
    __slots__ = ("deployment_id",)
    DEPLOYMENT_ID_FIELD_NUMBER: _ClassVar[int]
    deployment_id: str
    def __init__(self, deployment_id: _Optional[str] = ...) -> None: ...

class GetDeploymentResponse(_message.Message):
    __slots__ = ("deployment",)
    DEPLOYMENT_FIELD_NUMBER: _ClassVar[int]
    deployment: Deployment
    def __init__(self, deployment: _Optional[_Union[Deployment, _Mapping]] = ...) -> None: ...

class ListDeploymentsRequest(_message.Message):
    __slots__ = ("page_size", "page_token")
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    page_size: int
    page_token: str
    def __init__(self, page_size: _Optional[int] = ..., page_token: _Optional[str] = ...) -> None: ...

class ListDeploymentsResponse(_message.Message):
    __slots__ = ("deployments", "next_page_token")
    DEPLOYMENTS_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    deployments: _containers.RepeatedCompositeFieldContainer[Deployment]
    next_page_token: str
    def __init__(self, deployments: _Optional[_Iterable[_Union[Deployment, _Mapping]]] = ..., next_page_token: _Optional[str] = ...) -> None: ...

class UndeployRequest(_message.Message):
    __slots__ = ("deployment_id",)
    DEPLOYMENT_ID_FIELD_NUMBER: _ClassVar[int]
    deployment_id: str
    def __init__(self, deployment_id: _Optional[str] = ...) -> None: ...

class UndeployResponse(_message.Message):
    __slots__ = ("undeployed",)
    UNDEPLOYED_FIELD_NUMBER: _ClassVar[int]
    undeployed: bool
    def __init__(self, undeployed: bool = ...) -> None: ...
