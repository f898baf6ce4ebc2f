from google.protobuf import struct_pb2 as _struct_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class HealthRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class HealthResponse(_message.Message):
    __slots__ = ("pid", "busy_with")
    PID_FIELD_NUMBER: _ClassVar[int]
    BUSY_WITH_FIELD_NUMBER: _ClassVar[int]
    pid: int
    busy_with: str
    def __init__(self, pid: _Optional[int] = ..., busy_with: _Optional[str] = ...) -> None: ...

class TrainingConfig(_message.Message):
    __slots__ = ("model", "model_path", "dtype", "optimizer", "scheduler", "max_grad_norm", "zero_stage", "num_workers", "seed", "max_tokens_per_micro_batch", "gradient_checkpointing", "threads", "lora", "packing")
    MODEL_FIELD_NUMBER: _ClassVar[int]
    MODEL_PATH_FIELD_NUMBER: _ClassVar[int]
    DTYPE_FIELD_NUMBER: _ClassVar[int]
    OPTIMIZER_FIELD_NUMBER: _ClassVar[int]
    SCHEDULER_FIELD_NUMBER: _ClassVar[int]
    MAX_GRAD_NORM_FIELD_NUMBER: _ClassVar[int]
    ZERO_STAGE_FIELD_NUMBER: _ClassVar[int]
    NUM_WORKERS_FIELD_NUMBER: _ClassVar[int]
    SEED_FIELD_NUMBER: _ClassVar[int]
    MAX_TOKENS_PER_MICRO_BATCH_FIELD_NUMBER: _ClassVar[int]
    GRADIENT_CHECKPOINTING_FIELD_NUMBER: _ClassVar[int]
    THREADS_FIELD_NUMBER: _ClassVar[int]
    LORA_FIELD_NUMBER: _ClassVar[int]
    PACKING_FIELD_NUMBER: _ClassVar[int]
    model: str
    model_path: str
    dtype: str
    optimizer: OptimizerConfig
    scheduler: SchedulerConfig
    max_grad_norm: float
    zero_stage: int
    num_workers: int
    seed: int
    max_tokens_per_micro_batch: int
    gradient_checkpointing: bool
    threads: int
    lora: LoraConfig
    packing: bool
    def __init__(self, model: _Optional[str] = ..., model_path: _Optional[str] = ..., dtype: _Optional[str] = ..., optimizer: _Optional[_Union[OptimizerConfig, _Mapping]] = ..., scheduler: _Optional[_Union[SchedulerConfig, _Mapping]] = ..., max_grad_norm: _Optional[float] = ..., zero_stage: _Optional[int] = ..., num_workers: _Optional[int] = ..., seed: _Optional[int] = ..., max_tokens_per_micro_batch: _Optional[int] = ..., gradient_checkpointing: bool = ..., threads: _Optional[int] = ..., lora: _Optional[_Union[LoraConfig, _Mapping]] = ..., packing: bool = ...) -> None: ...

class LoraConfig(_message.Message):
    __slots__ = ("rank", "alpha", "target_modules")
    RANK_FIELD_NUMBER: _ClassVar[int]
    ALPHA_FIELD_NUMBER: _ClassVar[int]
    TARGET_MODULES_FIELD_NUMBER: _ClassVar[int]
    rank: int
    alpha: float
    target_modules: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, rank: _Optional[int] = ..., alpha: _Optional[float] = ..., target_modules: _Optional[_Iterable[str]] = ...) -> None: ...

class OptimizerConfig(_message.Message):
    __slots__ = ("name", "lr", "beta1", "beta2", "eps", "weight_decay", "momentum")
    NAME_FIELD_NUMBER: _ClassVar[int]
    LR_FIELD_NUMBER: _ClassVar[int]
    BETA1_FIELD_NUMBER: _ClassVar[int]
    BETA2_FIELD_NUMBER: _ClassVar[int]
    EPS_FIELD_NUMBER: _ClassVar[int]
    WEIGHT_DECAY_FIELD_NUMBER: _ClassVar[int]
    MOMENTUM_FIELD_NUMBER: _ClassVar[int]
    name: str
    lr: float
    beta1: float
    beta2: float
    eps: float
    weight_decay: float
    momentum: float
    def __init__(self, name: _Optional[str] = ..., lr: _Optional[float] = ..., beta1: _Optional[float] = ..., beta2: _Optional[float] = ..., eps: _Optional[float] = ..., weight_decay: _Optional[float] = ..., momentum: _Optional[float] = ...) -> None: ...

class SchedulerConfig(_message.Message):
    __slots__ = ("name", "warmup_steps", "total_steps", "min_lr_ratio")
    NAME_FIELD_NUMBER: _ClassVar[int]
    WARMUP_STEPS_FIELD_NUMBER: _ClassVar[int]
    TOTAL_STEPS_FIELD_NUMBER: _ClassVar[int]
    MIN_LR_RATIO_FIELD_NUMBER: _ClassVar[int]
    name: str
    warmup_steps: int
    total_steps: int
    min_lr_ratio: float
    def __init__(self, name: _Optional[str] = ..., warmup_steps: _Optional[int] = ..., total_steps: _Optional[int] = ..., min_lr_ratio: _Optional[float] = ...) -> None: ...

class InitRequest(_message.Message):
    __slots__ = ("config", "master_port", "forward_only")
    CONFIG_FIELD_NUMBER: _ClassVar[int]
    MASTER_PORT_FIELD_NUMBER: _ClassVar[int]
    FORWARD_ONLY_FIELD_NUMBER: _ClassVar[int]
    config: TrainingConfig
    master_port: int
    forward_only: bool
    def __init__(self, config: _Optional[_Union[TrainingConfig, _Mapping]] = ..., master_port: _Optional[int] = ..., forward_only: bool = ...) -> None: ...

class InitResponse(_message.Message):
    __slots__ = ("num_parameters", "vocab_size", "max_positions")
    NUM_PARAMETERS_FIELD_NUMBER: _ClassVar[int]
    VOCAB_SIZE_FIELD_NUMBER: _ClassVar[int]
    MAX_POSITIONS_FIELD_NUMBER: _ClassVar[int]
    num_parameters: int
    vocab_size: int
    max_positions: int
    def __init__(self, num_parameters: _Optional[int] = ..., vocab_size: _Optional[int] = ..., max_positions: _Optional[int] = ...) -> None: ...

class Rows(_message.Message):
    __slots__ = ("input_ids", "row_offsets", "row_ids", "mask", "columns")
    class ColumnsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: bytes
        def __init__(self, key: _Optional[str] = ..., value: _Optional[bytes] = ...) -> None: ...
    INPUT_IDS_FIELD_NUMBER: _ClassVar[int]
    ROW_OFFSETS_FIELD_NUMBER: _ClassVar[int]
    ROW_IDS_FIELD_NUMBER: _ClassVar[int]
    MASK_FIELD_NUMBER: _ClassVar[int]
    COLUMNS_FIELD_NUMBER: _ClassVar[int]
    input_ids: bytes
    row_offsets: bytes
    row_ids: bytes
    mask: bytes
    columns: _containers.ScalarMap[str, bytes]
    def __init__(self, input_ids: _Optional[bytes] = ..., row_offsets: _Optional[bytes] = ..., row_ids: _Optional[bytes] = ..., mask: _Optional[bytes] = ..., columns: _Optional[_Mapping[str, bytes]] = ...) -> None: ...

class FwdBwdRequest(_message.Message):
    __slots__ = ("rows", "loss", "loss_config", "mask_sum", "active_rows", "row_width", "return_outputs", "active_prompts")
    ROWS_FIELD_NUMBER: _ClassVar[int]
    LOSS_FIELD_NUMBER: _ClassVar[int]
    LOSS_CONFIG_FIELD_NUMBER: _ClassVar[int]
    MASK_SUM_FIELD_NUMBER: _ClassVar[int]
    ACTIVE_ROWS_FIELD_NUMBER: _ClassVar[int]
    ROW_WIDTH_FIELD_NUMBER: _ClassVar[int]
    RETURN_OUTPUTS_FIELD_NUMBER: _ClassVar[int]
    ACTIVE_PROMPTS_FIELD_NUMBER: _ClassVar[int]
    rows: Rows
    loss: str
    loss_config: _struct_pb2.Struct
    mask_sum: float
    active_rows: int
    row_width: int
    return_outputs: bool
    active_prompts: int
    def __init__(self, rows: _Optional[_Union[Rows, _Mapping]] = ..., loss: _Optional[str] = ..., loss_config: _Optional[_Union[_struct_pb2.Struct, _Mapping]] = ..., mask_sum: _Optional[float] = ..., active_rows: _Optional[int] = ..., row_width: _Optional[int] = ..., return_outputs: bool = ..., active_prompts: _Optional[int] = ...) -> None: ...

class Metric(_message.Message):
    __slots__ = ("name", "reduction", "value", "weight")
    class Reduction(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        REDUCTION_UNSPECIFIED: _ClassVar[Metric.Reduction]
        REDUCTION_SUM: _ClassVar[Metric.Reduction]
        REDUCTION_MEAN: _ClassVar[Metric.Reduction]
        REDUCTION_MAX: _ClassVar[Metric.Reduction]
    REDUCTION_UNSPECIFIED: Metric.Reduction
    REDUCTION_SUM: Metric.Reduction
    REDUCTION_MEAN: Metric.Reduction
    REDUCTION_MAX: Metric.Reduction
    NAME_FIELD_NUMBER: _ClassVar[int]
    REDUCTION_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    WEIGHT_FIELD_NUMBER: _ClassVar[int]
    name: str
    reduction: Metric.Reduction
    value: float
    weight: float
    def __init__(self, name: _Optional[str] = ..., reduction: _Optional[_Union[Metric.Reduction, str]] = ..., value: _Optional[float] = ..., weight: _Optional[float] = ...) -> None: ...

class FwdBwdResponse(_message.Message):
    __slots__ = ("metrics", "micro_batches", "log_probs", "entropy")
    METRICS_FIELD_NUMBER: _ClassVar[int]
    MICRO_BATCHES_FIELD_NUMBER: _ClassVar[int]
    LOG_PROBS_FIELD_NUMBER: _ClassVar[int]
    ENTROPY_FIELD_NUMBER: _ClassVar[int]
    metrics: _containers.RepeatedCompositeFieldContainer[Metric]
    micro_batches: int
    log_probs: bytes
    entropy: bytes
    def __init__(self, metrics: _Optional[_Iterable[_Union[Metric, _Mapping]]] = ..., micro_batches: _Optional[int] = ..., log_probs: _Optional[bytes] = ..., entropy: _Optional[bytes] = ...) -> None: ...

class FwdNoGradRequest(_message.Message):
    __slots__ = ("rows", "temperature", "top_k")
    ROWS_FIELD_NUMBER: _ClassVar[int]
    TEMPERATURE_FIELD_NUMBER: _ClassVar[int]
    TOP_K_FIELD_NUMBER: _ClassVar[int]
    rows: Rows
    temperature: float
    top_k: int
    def __init__(self, rows: _Optional[_Union[Rows, _Mapping]] = ..., temperature: _Optional[float] = ..., top_k: _Optional[int] = ...) -> None: ...

class FwdNoGradResponse(_message.Message):
    __slots__ = ("log_probs", "entropy", "weight_version", "top_token_ids", "top_log_probs")
    LOG_PROBS_FIELD_NUMBER: _ClassVar[int]
    ENTROPY_FIELD_NUMBER: _ClassVar[int]
    WEIGHT_VERSION_FIELD_NUMBER: _ClassVar[int]
    TOP_TOKEN_IDS_FIELD_NUMBER: _ClassVar[int]
    TOP_LOG_PROBS_FIELD_NUMBER: _ClassVar[int]
    log_probs: bytes
    entropy: bytes
    weight_version: int
    top_token_ids: bytes
    top_log_probs: bytes
    def __init__(self, log_probs: _Optional[bytes] = ..., entropy: _Optional[bytes] = ..., weight_version: _Optional[int] = ..., top_token_ids: _Optional[bytes] = ..., top_log_probs: _Optional[bytes] = ...) -> None: ...

class StepRequest(_message.Message):
    __slots__ = ("lr", "max_grad_norm")
    LR_FIELD_NUMBER: _ClassVar[int]
    MAX_GRAD_NORM_FIELD_NUMBER: _ClassVar[int]
    lr: float
    max_grad_norm: float
    def __init__(self, lr: _Optional[float] = ..., max_grad_norm: _Optional[float] = ...) -> None: ...

class StepResponse(_message.Message):
    __slots__ = ("grad_norm", "lr", "weight_version", "step")
    GRAD_NORM_FIELD_NUMBER: _ClassVar[int]
    LR_FIELD_NUMBER: _ClassVar[int]
    WEIGHT_VERSION_FIELD_NUMBER: _ClassVar[int]
    STEP_FIELD_NUMBER: _ClassVar[int]
    grad_norm: float
    lr: float
    weight_version: int
    step: int
    def __init__(self, grad_norm: _Optional[float] = ..., lr: _Optional[float] = ..., weight_version: _Optional[int] = ..., step: _Optional[int] = ...) -> None: ...

class ZeroGradRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ZeroGradResponse(_message.Message):
    __slots__ = ("num_dropped",)
    NUM_DROPPED_FIELD_NUMBER: _ClassVar[int]
    num_dropped: int
    def __init__(self, num_dropped: _Optional[int] = ...) -> None: ...

class SaveCheckpointRequest(_message.Message):
    __slots__ = ("path", "name", "merged")
    PATH_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    MERGED_FIELD_NUMBER: _ClassVar[int]
    path: str
    name: str
    merged: bool
    def __init__(self, path: _Optional[str] = ..., name: _Optional[str] = ..., merged: bool = ...) -> None: ...

class SaveCheckpointResponse(_message.Message):
    __slots__ = ("export_path", "weight_version", "step", "nbytes", "created_unix")
    EXPORT_PATH_FIELD_NUMBER: _ClassVar[int]
    WEIGHT_VERSION_FIELD_NUMBER: _ClassVar[int]
    STEP_FIELD_NUMBER: _ClassVar[int]
    NBYTES_FIELD_NUMBER: _ClassVar[int]
    CREATED_UNIX_FIELD_NUMBER: _ClassVar[int]
    export_path: str
    weight_version: int
    step: int
    nbytes: int
    created_unix: float
    def __init__(self, export_path: _Optional[str] = ..., weight_version: _Optional[int] = ..., step: _Optional[int] = ..., nbytes: _Optional[int] = ..., created_unix: _Optional[float] = ...) -> None: ...

class LoadCheckpointRequest(_message.Message):
    __slots__ = ("path",)
    PATH_FIELD_NUMBER: _ClassVar[int]
    path: str
    def __init__(self, path: _Optional[str] = ...) -> None: ...

class LoadCheckpointResponse(_message.Message):
    __slots__ = ("lr", "weight_version", "step")
    LR_FIELD_NUMBER: _ClassVar[int]
    WEIGHT_VERSION_FIELD_NUMBER: _ClassVar[int]
    STEP_FIELD_NUMBER: _ClassVar[int]
    lr: float
    weight_version: int
    step: int
    def __init__(self, lr: _Optional[float] = ..., weight_version: _Optional[int] = ..., step: _Optional[int] = ...) -> None: ...

class GetManifestRequest(_message.Message):
    __slots__ = ("dtype", "merged")
    DTYPE_FIELD_NUMBER: _ClassVar[int]
    MERGED_FIELD_NUMBER: _ClassVar[int]
    dtype: str
    merged: bool
    def __init__(self, dtype: _Optional[str] = ..., merged: bool = ...) -> None: ...

class TensorSpec(_message.Message):
    __slots__ = ("name", "dtype", "shape", "offset", "nbytes")
    NAME_FIELD_NUMBER: _ClassVar[int]
    DTYPE_FIELD_NUMBER: _ClassVar[int]
    SHAPE_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    NBYTES_FIELD_NUMBER: _ClassVar[int]
    name: str
    dtype: str
    shape: _containers.RepeatedScalarFieldContainer[int]
    offset: int
    nbytes: int
    def __init__(self, name: _Optional[str] = ..., dtype: _Optional[str] = ..., shape: _Optional[_Iterable[int]] = ..., offset: _Optional[int] = ..., nbytes: _Optional[int] = ...) -> None: ...

class GetManifestResponse(_message.Message):
    __slots__ = ("tensors", "total_bytes")
    TENSORS_FIELD_NUMBER: _ClassVar[int]
    TOTAL_BYTES_FIELD_NUMBER: _ClassVar[int]
    tensors: _containers.RepeatedCompositeFieldContainer[TensorSpec]
    total_bytes: int
    def __init__(self, tensors: _Optional[_Iterable[_Union[TensorSpec, _Mapping]]] = ..., total_bytes: _Optional[int] = ...) -> None: ...

class ExportWeightsRequest(_message.Message):
    __slots__ = ("segment", "tensors", "total_bytes", "merged")
    SEGMENT_FIELD_NUMBER: _ClassVar[int]
    TENSORS_FIELD_NUMBER: _ClassVar[int]
    TOTAL_BYTES_FIELD_NUMBER: _ClassVar[int]
    MERGED_FIELD_NUMBER: _ClassVar[int]
    segment: str
    tensors: _containers.RepeatedCompositeFieldContainer[TensorSpec]
    total_bytes: int
    merged: bool
    def __init__(self, segment: _Optional[str] = ..., tensors: _Optional[_Iterable[_Union[TensorSpec, _Mapping]]] = ..., total_bytes: _Optional[int] = ..., merged: bool = ...) -> None: ...

class ExportWeightsResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class LoadWeightsRequest(_message.Message):
    __slots__ = ("segment", "tensors", "total_bytes", "weight_version")
    SEGMENT_FIELD_NUMBER: _ClassVar[int]
    TENSORS_FIELD_NUMBER: _ClassVar[int]
    TOTAL_BYTES_FIELD_NUMBER: _ClassVar[int]
    WEIGHT_VERSION_FIELD_NUMBER: _ClassVar[int]
    segment: str
    tensors: _containers.RepeatedCompositeFieldContainer[TensorSpec]
    total_bytes: int
    weight_version: int
    def __init__(self, segment: _Optional[str] = ..., tensors: _Optional[_Iterable[_Union[TensorSpec, _Mapping]]] = ..., total_bytes: _Optional[int] = ..., weight_version: _Optional[int] = ...) -> None: ...

class LoadWeightsResponse(_message.Message):
    __slots__ = ("weight_version",)
    WEIGHT_VERSION_FIELD_NUMBER: _ClassVar[int]
    weight_version: int
    def __init__(self, weight_version: _Optional[int] = ...) -> None: ...

class GetNormRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class GetNormResponse(_message.Message):
    __slots__ = ("norm",)
    NORM_FIELD_NUMBER: _ClassVar[int]
    norm: float
    def __init__(self, norm: _Optional[float] = ...) -> None: ...

class GetChecksumsRequest(_message.Message):
    __slots__ = ("dtype", "merged", "base")
    DTYPE_FIELD_NUMBER: _ClassVar[int]
    MERGED_FIELD_NUMBER: _ClassVar[int]
    BASE_FIELD_NUMBER: _ClassVar[int]
    dtype: str
    merged: bool
    base: bool
    def __init__(self, dtype: _Optional[str] = ..., merged: bool = ..., base: bool = ...) -> None: ...

class TensorChecksum(_message.Message):
    __slots__ = ("name", "dtype", "shape", "sha256")
    NAME_FIELD_NUMBER: _ClassVar[int]
    DTYPE_FIELD_NUMBER: _ClassVar[int]
    SHAPE_FIELD_NUMBER: _ClassVar[int]
    SHA256_FIELD_NUMBER: _ClassVar[int]
    name: str
    dtype: str
    shape: _containers.RepeatedScalarFieldContainer[int]
    sha256: str
    def __init__(self, name: _Optional[str] = ..., dtype: _Optional[str] = ..., shape: _Optional[_Iterable[int]] = ..., sha256: _Optional[str] = ...) -> None: ...

class GetChecksumsResponse(_message.Message):
    __slots__ = ("checksums",)
    CHECKSUMS_FIELD_NUMBER: _ClassVar[int]
    checksums: _containers.RepeatedCompositeFieldContainer[TensorChecksum]
    def __init__(self, checksums: _Optional[_Iterable[_Union[TensorChecksum, _Mapping]]] = ...) -> None: ...

class Memory(_message.Message):
    __slots__ = ("before_bytes", "after_bytes", "changed")
    BEFORE_BYTES_FIELD_NUMBER: _ClassVar[int]
    AFTER_BYTES_FIELD_NUMBER: _ClassVar[int]
    CHANGED_FIELD_NUMBER: _ClassVar[int]
    before_bytes: int
    after_bytes: int
    changed: bool
    def __init__(self, before_bytes: _Optional[int] = ..., after_bytes: _Optional[int] = ..., changed: bool = ...) -> None: ...

class SleepRequest(_message.Message):
    __slots__ = ("mode",)
    MODE_FIELD_NUMBER: _ClassVar[int]
    mode: str
    def __init__(self, mode: _Optional[str] = ...) -> None: ...

class SleepResponse(_message.Message):
    __slots__ = ("memory",)
    MEMORY_FIELD_NUMBER: _ClassVar[int]
    memory: Memory
    def __init__(self, memory: _Optional[_Union[Memory, _Mapping]] = ...) -> None: ...

class WakeRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class WakeResponse(_message.Message):
    __slots__ = ("memory",)
    MEMORY_FIELD_NUMBER: _ClassVar[int]
    memory: Memory
    def __init__(self, memory: _Optional[_Union[Memory, _Mapping]] = ...) -> None: ...

class EmptyCacheRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class EmptyCacheResponse(_message.Message):
    __slots__ = ("memory",)
    MEMORY_FIELD_NUMBER: _ClassVar[int]
    memory: Memory
    def __init__(self, memory: _Optional[_Union[Memory, _Mapping]] = ...) -> None: ...

class ShutdownRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ShutdownResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...
