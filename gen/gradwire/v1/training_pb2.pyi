from buf.validate import validate_pb2 as _validate_pb2
from google.protobuf import struct_pb2 as _struct_pb2
from google.protobuf import timestamp_pb2 as _timestamp_pb2
from gradwire.v1 import operation_pb2 as _operation_pb2
from gradwire.v1 import sampling_pb2 as _sampling_pb2
from gradwire.v1 import tensor_pb2 as _tensor_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class TrainingSleepMode(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    TRAINING_SLEEP_MODE_UNSPECIFIED: _ClassVar[TrainingSleepMode]
    TRAINING_SLEEP_MODE_ALL: _ClassVar[TrainingSleepMode]
    TRAINING_SLEEP_MODE_NON_LP: _ClassVar[TrainingSleepMode]
    TRAINING_SLEEP_MODE_LP_PARAMS: _ClassVar[TrainingSleepMode]
TRAINING_SLEEP_MODE_UNSPECIFIED: TrainingSleepMode
TRAINING_SLEEP_MODE_ALL: TrainingSleepMode
TRAINING_SLEEP_MODE_NON_LP: TrainingSleepMode
TRAINING_SLEEP_MODE_LP_PARAMS: TrainingSleepMode

class TrainingBatch(_message.Message):
    __slots__ = ("input_ids", "attention_mask", "loss_mask", "advantages", "old_log_probs_shifted", "prox_logp_shifted", "ref_log_probs_shifted", "versions", "prompt_group_ids")
    INPUT_IDS_FIELD_NUMBER: _ClassVar[int]
    ATTENTION_MASK_FIELD_NUMBER: _ClassVar[int]
    LOSS_MASK_FIELD_NUMBER: _ClassVar[int]
    ADVANTAGES_FIELD_NUMBER: _ClassVar[int]
    OLD_LOG_PROBS_SHIFTED_FIELD_NUMBER: _ClassVar[int]
    PROX_LOGP_SHIFTED_FIELD_NUMBER: _ClassVar[int]
    REF_LOG_PROBS_SHIFTED_FIELD_NUMBER: _ClassVar[int]
    VERSIONS_FIELD_NUMBER: _ClassVar[int]
    PROMPT_GROUP_IDS_FIELD_NUMBER: _ClassVar[int]
    input_ids: _tensor_pb2.BatchTensor
    attention_mask: _tensor_pb2.Tensor
    loss_mask: _tensor_pb2.BatchTensor
    advantages: _tensor_pb2.BatchTensor
    old_log_probs_shifted: _tensor_pb2.BatchTensor
    prox_logp_shifted: _tensor_pb2.BatchTensor
    ref_log_probs_shifted: _tensor_pb2.BatchTensor
    versions: _tensor_pb2.BatchTensor
    prompt_group_ids: _tensor_pb2.Tensor
    def __init__(self, input_ids: _Optional[_Union[_tensor_pb2.BatchTensor, _Mapping]] = ..., attention_mask: _Optional[_Union[_tensor_pb2.Tensor, _Mapping]] = ..., loss_mask: _Optional[_Union[_tensor_pb2.BatchTensor, _Mapping]] = ..., advantages: _Optional[_Union[_tensor_pb2.BatchTensor, _Mapping]] = ..., old_log_probs_shifted: _Optional[_Union[_tensor_pb2.BatchTensor, _Mapping]] = ..., prox_logp_shifted: _Optional[_Union[_tensor_pb2.BatchTensor, _Mapping]] = ..., ref_log_probs_shifted: _Optional[_Union[_tensor_pb2.BatchTensor, _Mapping]] = ..., versions: _Optional[_Union[_tensor_pb2.BatchTensor, _Mapping]] = ..., prompt_group_ids: _Optional[_Union[_tensor_pb2.Tensor, _Mapping]] = ...) -> None: ...

class LossSpec(_message.Message):
    __slots__ = ("name", "config")
    NAME_FIELD_NUMBER: _ClassVar[int]
    CONFIG_FIELD_NUMBER: _ClassVar[int]
    name: str
    config: _struct_pb2.Struct
    def __init__(self, name: _Optional[str] = ..., config: _Optional[_Union[_struct_pb2.Struct, _Mapping]] = ...) -> None: ...

class UploadBatchRequest(_message.Message):
    __slots__ = ("header", "chunk")
    HEADER_FIELD_NUMBER: _ClassVar[int]
    CHUNK_FIELD_NUMBER: _ClassVar[int]
    header: UploadHeader
    chunk: bytes
    def __init__(self, header: _Optional[_Union[UploadHeader, _Mapping]] = ..., chunk: _Optional[bytes] = ...) -> None: ...

class UploadHeader(_message.Message):
    __slots__ = ("job_id", "total_bytes", "sha256")
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    TOTAL_BYTES_FIELD_NUMBER: _ClassVar[int]
    SHA256_FIELD_NUMBER: _ClassVar[int]
    job_id: int
    total_bytes: int
    sha256: bytes
    def __init__(self, job_id: _Optional[int] = ..., total_bytes: _Optional[int] = ..., sha256: _Optional[bytes] = ...) -> None: ...

class UploadBatchResponse(_message.Message):
    __slots__ = ("batch_id", "expires_at")
    BATCH_ID_FIELD_NUMBER: _ClassVar[int]
    EXPIRES_AT_FIELD_NUMBER: _ClassVar[int]
    batch_id: str
    expires_at: _timestamp_pb2.Timestamp
    def __init__(self, batch_id: _Optional[str] = ..., expires_at: _Optional[_Union[_timestamp_pb2.Timestamp, _Mapping]] = ...) -> None: ...

class FwdBwdRequest(_message.Message):
    __slots__ = ("job_id", "operation", "batch", "batch_id", "loss", "return_outputs")
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    OPERATION_FIELD_NUMBER: _ClassVar[int]
    BATCH_FIELD_NUMBER: _ClassVar[int]
    BATCH_ID_FIELD_NUMBER: _ClassVar[int]
    LOSS_FIELD_NUMBER: _ClassVar[int]
    RETURN_OUTPUTS_FIELD_NUMBER: _ClassVar[int]
    job_id: int
    operation: _operation_pb2.OperationId
    batch: TrainingBatch
    batch_id: str
    loss: LossSpec
    return_outputs: bool
    def __init__(self, job_id: _Optional[int] = ..., operation: _Optional[_Union[_operation_pb2.OperationId, _Mapping]] = ..., batch: _Optional[_Union[TrainingBatch, _Mapping]] = ..., batch_id: _Optional[str] = ..., loss: _Optional[_Union[LossSpec, _Mapping]] = ..., return_outputs: bool = ...) -> None: ...

class FwdBwdResponse(_message.Message):
    __slots__ = ("loss", "num_loss_tokens", "num_tokens", "num_micro_batches", "metrics", "weight_version", "log_probs_shifted", "entropy", "warnings", "timing")
    class MetricsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: float
        def __init__(self, key: _Optional[str] = ..., value: _Optional[float] = ...) -> None: ...
    LOSS_FIELD_NUMBER: _ClassVar[int]
    NUM_LOSS_TOKENS_FIELD_NUMBER: _ClassVar[int]
    NUM_TOKENS_FIELD_NUMBER: _ClassVar[int]
    NUM_MICRO_BATCHES_FIELD_NUMBER: _ClassVar[int]
    METRICS_FIELD_NUMBER: _ClassVar[int]
    WEIGHT_VERSION_FIELD_NUMBER: _ClassVar[int]
    LOG_PROBS_SHIFTED_FIELD_NUMBER: _ClassVar[int]
    ENTROPY_FIELD_NUMBER: _ClassVar[int]
    WARNINGS_FIELD_NUMBER: _ClassVar[int]
    TIMING_FIELD_NUMBER: _ClassVar[int]
    loss: float
    num_loss_tokens: int
    num_tokens: int
    num_micro_batches: int
    metrics: _containers.ScalarMap[str, float]
    weight_version: int
    log_probs_shifted: _tensor_pb2.BatchTensor
    entropy: _tensor_pb2.BatchTensor
    warnings: _containers.RepeatedScalarFieldContainer[str]
    timing: _sampling_pb2.Timing
    def __init__(self, loss: _Optional[float] = ..., num_loss_tokens: _Optional[int] = ..., num_tokens: _Optional[int] = ..., num_micro_batches: _Optional[int] = ..., metrics: _Optional[_Mapping[str, float]] = ..., weight_version: _Optional[int] = ..., log_probs_shifted: _Optional[_Union[_tensor_pb2.BatchTensor, _Mapping]] = ..., entropy: _Optional[_Union[_tensor_pb2.BatchTensor, _Mapping]] = ..., warnings: _Optional[_Iterable[str]] = ..., timing: _Optional[_Union[_sampling_pb2.Timing, _Mapping]] = ...) -> None: ...

class FwdNoGradRequest(_message.Message):
    __slots__ = ("job_id", "batch", "batch_id", "temperature", "entropy")
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    BATCH_FIELD_NUMBER: _ClassVar[int]
    BATCH_ID_FIELD_NUMBER: _ClassVar[int]
    TEMPERATURE_FIELD_NUMBER: _ClassVar[int]
    ENTROPY_FIELD_NUMBER: _ClassVar[int]
    job_id: int
    batch: TrainingBatch
    batch_id: str
    temperature: float
    entropy: bool
    def __init__(self, job_id: _Optional[int] = ..., batch: _Optional[_Union[TrainingBatch, _Mapping]] = ..., batch_id: _Optional[str] = ..., temperature: _Optional[float] = ..., entropy: bool = ...) -> None: ...

class FwdNoGradResponse(_message.Message):
    __slots__ = ("log_probs_shifted", "entropy", "weight_version", "timing")
    LOG_PROBS_SHIFTED_FIELD_NUMBER: _ClassVar[int]
    ENTROPY_FIELD_NUMBER: _ClassVar[int]
    WEIGHT_VERSION_FIELD_NUMBER: _ClassVar[int]
    TIMING_FIELD_NUMBER: _ClassVar[int]
    log_probs_shifted: _tensor_pb2.BatchTensor
    entropy: _tensor_pb2.BatchTensor
    weight_version: int
    timing: _sampling_pb2.Timing
    def __init__(self, log_probs_shifted: _Optional[_Union[_tensor_pb2.BatchTensor, _Mapping]] = ..., entropy: _Optional[_Union[_tensor_pb2.BatchTensor, _Mapping]] = ..., weight_version: _Optional[int] = ..., timing: _Optional[_Union[_sampling_pb2.Timing, _Mapping]] = ...) -> None: ...

class StepRequest(_message.Message):
    __slots__ = ("job_id", "operation", "learning_rate", "max_grad_norm")
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    OPERATION_FIELD_NUMBER: _ClassVar[int]
    LEARNING_RATE_FIELD_NUMBER: _ClassVar[int]
    MAX_GRAD_NORM_FIELD_NUMBER: _ClassVar[int]
    job_id: int
    operation: _operation_pb2.OperationId
    learning_rate: float
    max_grad_norm: float
    def __init__(self, job_id: _Optional[int] = ..., operation: _Optional[_Union[_operation_pb2.OperationId, _Mapping]] = ..., learning_rate: _Optional[float] = ..., max_grad_norm: _Optional[float] = ...) -> None: ...

class StepResponse(_message.Message):
    __slots__ = ("grad_norm", "learning_rate", "weight_version", "step", "timing")
    GRAD_NORM_FIELD_NUMBER: _ClassVar[int]
    LEARNING_RATE_FIELD_NUMBER: _ClassVar[int]
    WEIGHT_VERSION_FIELD_NUMBER: _ClassVar[int]
    STEP_FIELD_NUMBER: _ClassVar[int]
    TIMING_FIELD_NUMBER: _ClassVar[int]
    grad_norm: float
    learning_rate: float
    weight_version: int
    step: int
    timing: _sampling_pb2.Timing
    def __init__(self, grad_norm: _Optional[float] = ..., learning_rate: _Optional[float] = ..., weight_version: _Optional[int] = ..., step: _Optional[int] = ..., timing: _Optional[_Union[_sampling_pb2.Timing, _Mapping]] = ...) -> None: ...

class ZeroGradRequest(_message.Message):
    __slots__ = ("job_id", "operation")
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    OPERATION_FIELD_NUMBER: _ClassVar[int]
    job_id: int
    operation: _operation_pb2.OperationId
    def __init__(self, job_id: _Optional[int] = ..., operation: _Optional[_Union[_operation_pb2.OperationId, _Mapping]] = ...) -> None: ...

class ZeroGradResponse(_message.Message):
    __slots__ = ("num_dropped", "timing")
    NUM_DROPPED_FIELD_NUMBER: _ClassVar[int]
    TIMING_FIELD_NUMBER: _ClassVar[int]
    num_dropped: int
    timing: _sampling_pb2.Timing
    def __init__(self, num_dropped: _Optional[int] = ..., timing: _Optional[_Union[_sampling_pb2.Timing, _Mapping]] = ...) -> None: ...

class Checkpoint(_message.Message):
    __slots__ = ("name", "path", "export_path", "weight_version", "step", "size_bytes", "created_at", "job_id", "adapter_path")
    NAME_FIELD_NUMBER: _ClassVar[int]
    PATH_FIELD_NUMBER: _ClassVar[int]
    EXPORT_PATH_FIELD_NUMBER: _ClassVar[int]
    WEIGHT_VERSION_FIELD_NUMBER: _ClassVar[int]
    STEP_FIELD_NUMBER: _ClassVar[int]
    SIZE_BYTES_FIELD_NUMBER: _ClassVar[int]
    CREATED_AT_FIELD_NUMBER: _ClassVar[int]
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    ADAPTER_PATH_FIELD_NUMBER: _ClassVar[int]
    name: str
    path: str
    export_path: str
    weight_version: int
    step: int
    size_bytes: int
    created_at: _timestamp_pb2.Timestamp
    job_id: int
    adapter_path: str
    def __init__(self, name: _Optional[str] = ..., path: _Optional[str] = ..., export_path: _Optional[str] = ..., weight_version: _Optional[int] = ..., step: _Optional[int] = ..., size_bytes: _Optional[int] = ..., created_at: _Optional[_Union[_timestamp_pb2.Timestamp, _Mapping]] = ..., job_id: _Optional[int] = ..., adapter_path: _Optional[str] = ...) -> None: ...

class SaveCheckpointRequest(_message.Message):
    __slots__ = ("job_id", "operation", "name", "merge")
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    OPERATION_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    MERGE_FIELD_NUMBER: _ClassVar[int]
    job_id: int
    operation: _operation_pb2.OperationId
    name: str
    merge: bool
    def __init__(self, job_id: _Optional[int] = ..., operation: _Optional[_Union[_operation_pb2.OperationId, _Mapping]] = ..., name: _Optional[str] = ..., merge: bool = ...) -> None: ...

class SaveCheckpointResponse(_message.Message):
    __slots__ = ("checkpoint", "timing")
    CHECKPOINT_FIELD_NUMBER: _ClassVar[int]
    TIMING_FIELD_NUMBER: _ClassVar[int]
    checkpoint: Checkpoint
    timing: _sampling_pb2.Timing
    def __init__(self, checkpoint: _Optional[_Union[Checkpoint, _Mapping]] = ..., timing: _Optional[_Union[_sampling_pb2.Timing, _Mapping]] = ...) -> None: ...

class LoadCheckpointRequest(_message.Message):
    __slots__ = ("job_id", "operation", "name")
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    OPERATION_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    job_id: int
    operation: _operation_pb2.OperationId
    name: str
    def __init__(self, job_id: _Optional[int] = ..., operation: _Optional[_Union[_operation_pb2.OperationId, _Mapping]] = ..., name: _Optional[str] = ...) -> None: ...

class LoadCheckpointResponse(_message.Message):
    __slots__ = ("checkpoint", "weight_version", "step", "timing")
    CHECKPOINT_FIELD_NUMBER: _ClassVar[int]
    WEIGHT_VERSION_FIELD_NUMBER: _ClassVar[int]
    STEP_FIELD_NUMBER: _ClassVar[int]
    TIMING_FIELD_NUMBER: _ClassVar[int]
    checkpoint: Checkpoint
    weight_version: int
    step: int
    timing: _sampling_pb2.Timing
    def __init__(self, checkpoint: _Optional[_Union[Checkpoint, _Mapping]] = ..., weight_version: _Optional[int] = ..., step: _Optional[int] = ..., timing: _Optional[_Union[_sampling_pb2.Timing, _Mapping]] = ...) -> None: ...

class ListCheckpointsRequest(_message.Message):
    __slots__ = ("job_id", "page_size", "page_token")
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    job_id: int
    page_size: int
    page_token: str
    def __init__(self, job_id: _Optional[int] = ..., page_size: _Optional[int] = ..., page_token: _Optional[str] = ...) -> None: ...

class ListCheckpointsResponse(_message.Message):
    __slots__ = ("checkpoints", "next_page_token")
    CHECKPOINTS_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    checkpoints: _containers.RepeatedCompositeFieldContainer[Checkpoint]
    next_page_token: str
    def __init__(self, checkpoints: _Optional[_Iterable[_Union[Checkpoint, _Mapping]]] = ..., next_page_token: _Optional[str] = ...) -> None: ...

class DeleteCheckpointRequest(_message.Message):
    __slots__ = ("name",)
    NAME_FIELD_NUMBER: _ClassVar[int]
    name: str
    def __init__(self, name: _Optional[str] = ...) -> None: ...

class DeleteCheckpointResponse(_message.Message):
    __slots__ = ("deleted", "freed_bytes")
    DELETED_FIELD_NUMBER: _ClassVar[int]
    FREED_BYTES_FIELD_NUMBER: _ClassVar[int]
    deleted: bool
    freed_bytes: int
    def __init__(self, deleted: bool = ..., freed_bytes: _Optional[int] = ...) -> None: ...

class SleepTrainingRequest(_message.Message):
    __slots__ = ("job_id", "mode")
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    MODE_FIELD_NUMBER: _ClassVar[int]
    job_id: int
    mode: TrainingSleepMode
    def __init__(self, job_id: _Optional[int] = ..., mode: _Optional[_Union[TrainingSleepMode, str]] = ...) -> None: ...

class SleepTrainingResponse(_message.Message):
    __slots__ = ("memory", "changed")
    MEMORY_FIELD_NUMBER: _ClassVar[int]
    CHANGED_FIELD_NUMBER: _ClassVar[int]
    memory: _sampling_pb2.MemoryChange
    changed: bool
    def __init__(self, memory: _Optional[_Union[_sampling_pb2.MemoryChange, _Mapping]] = ..., changed: bool = ...) -> None: ...

class WakeTrainingRequest(_message.Message):
    __slots__ = ("job_id",)
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    job_id: int
    def __init__(self, job_id: _Optional[int] = ...) -> None: ...

class WakeTrainingResponse(_message.Message):
    __slots__ = ("memory", "changed")
    MEMORY_FIELD_NUMBER: _ClassVar[int]
    CHANGED_FIELD_NUMBER: _ClassVar[int]
    memory: _sampling_pb2.MemoryChange
    changed: bool
    def __init__(self, memory: _Optional[_Union[_sampling_pb2.MemoryChange, _Mapping]] = ..., changed: bool = ...) -> None: ...

class EmptyTrainingCacheRequest(_message.Message):
    __slots__ = ("job_id",)
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    job_id: int
    def __init__(self, job_id: _Optional[int] = ...) -> None: ...

class EmptyTrainingCacheResponse(_message.Message):
    __slots__ = ("memory",)
    MEMORY_FIELD_NUMBER: _ClassVar[int]
    memory: _sampling_pb2.MemoryChange
    def __init__(self, memory: _Optional[_Union[_sampling_pb2.MemoryChange, _Mapping]] = ...) -> None: ...
