from buf.validate import validate_pb2 as _validate_pb2
from google.protobuf import duration_pb2 as _duration_pb2
from google.protobuf import struct_pb2 as _struct_pb2
from google.protobuf import timestamp_pb2 as _timestamp_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class JobKind(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    JOB_KIND_UNSPECIFIED: _ClassVar[JobKind]
    JOB_KIND_TRAINING: _ClassVar[JobKind]
    JOB_KIND_SAMPLING: _ClassVar[JobKind]
    JOB_KIND_LOG_PROB: _ClassVar[JobKind]

class JobState(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    JOB_STATE_UNSPECIFIED: _ClassVar[JobState]
    JOB_STATE_STARTING: _ClassVar[JobState]
    JOB_STATE_READY: _ClassVar[JobState]
    JOB_STATE_SLEEPING: _ClassVar[JobState]
    JOB_STATE_PAUSED: _ClassVar[JobState]
    JOB_STATE_FAILED: _ClassVar[JobState]
    JOB_STATE_DESTROYED: _ClassVar[JobState]

class LogProbEngine(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    LOG_PROB_ENGINE_UNSPECIFIED: _ClassVar[LogProbEngine]
    LOG_PROB_ENGINE_VLLM: _ClassVar[LogProbEngine]
    LOG_PROB_ENGINE_DEEPSPEED: _ClassVar[LogProbEngine]
JOB_KIND_UNSPECIFIED: JobKind
JOB_KIND_TRAINING: JobKind
JOB_KIND_SAMPLING: JobKind
JOB_KIND_LOG_PROB: JobKind
JOB_STATE_UNSPECIFIED: JobState
JOB_STATE_STARTING: JobState
JOB_STATE_READY: JobState
JOB_STATE_SLEEPING: JobState
JOB_STATE_PAUSED: JobState
JOB_STATE_FAILED: JobState
JOB_STATE_DESTROYED: JobState
LOG_PROB_ENGINE_UNSPECIFIED: LogProbEngine
LOG_PROB_ENGINE_VLLM: LogProbEngine
LOG_PROB_ENGINE_DEEPSPEED: LogProbEngine

class Job(_message.Message):
    __slots__ = ("job_id", "kind", "state", "model", "weight_version", "created_at", "lease_expires_at", "error", "training", "sampling", "log_prob", "facts", "built_in", "adapters")
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    WEIGHT_VERSION_FIELD_NUMBER: _ClassVar[int]
    CREATED_AT_FIELD_NUMBER: _ClassVar[int]
    LEASE_EXPIRES_AT_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    TRAINING_FIELD_NUMBER: _ClassVar[int]
    SAMPLING_FIELD_NUMBER: _ClassVar[int]
    LOG_PROB_FIELD_NUMBER: _ClassVar[int]
    FACTS_FIELD_NUMBER: _ClassVar[int]
    BUILT_IN_FIELD_NUMBER: _ClassVar[int]
    ADAPTERS_FIELD_NUMBER: _ClassVar[int]
    job_id: int
    kind: JobKind
    state: JobState
    model: str
    weight_version: int
    created_at: _timestamp_pb2.Timestamp
    lease_expires_at: _timestamp_pb2.Timestamp
    error: str
    training: TrainingJobConfig
    sampling: SamplingJobConfig
    log_prob: LogProbJobConfig
    facts: ModelFacts
    built_in: bool
    adapters: _containers.RepeatedCompositeFieldContainer[Adapter]
    def __init__(self, job_id: _Optional[int] = ..., kind: _Optional[_Union[JobKind, str]] = ..., state: _Optional[_Union[JobState, str]] = ..., model: _Optional[str] = ..., weight_version: _Optional[int] = ..., created_at: _Optional[_Union[_timestamp_pb2.Timestamp, _Mapping]] = ..., lease_expires_at: _Optional[_Union[_timestamp_pb2.Timestamp, _Mapping]] = ..., error: _Optional[str] = ..., training: _Optional[_Union[TrainingJobConfig, _Mapping]] = ..., sampling: _Optional[_Union[SamplingJobConfig, _Mapping]] = ..., log_prob: _Optional[_Union[LogProbJobConfig, _Mapping]] = ..., facts: _Optional[_Union[ModelFacts, _Mapping]] = ..., built_in: bool = ..., adapters: _Optional[_Iterable[_Union[Adapter, _Mapping]]] = ...) -> None: ...

class Adapter(_message.Message):
    __slots__ = ("name", "weight_version", "training_job_id", "rank", "since", "base_differs")
    NAME_FIELD_NUMBER: _ClassVar[int]
    WEIGHT_VERSION_FIELD_NUMBER: _ClassVar[int]
    TRAINING_JOB_ID_FIELD_NUMBER: _ClassVar[int]
    RANK_FIELD_NUMBER: _ClassVar[int]
    SINCE_FIELD_NUMBER: _ClassVar[int]
    BASE_DIFFERS_FIELD_NUMBER: _ClassVar[int]
    name: str
    weight_version: int
    training_job_id: int
    rank: int
    since: _timestamp_pb2.Timestamp
    base_differs: bool
    def __init__(self, name: _Optional[str] = ..., weight_version: _Optional[int] = ..., training_job_id: _Optional[int] = ..., rank: _Optional[int] = ..., since: _Optional[_Union[_timestamp_pb2.Timestamp, _Mapping]] = ..., base_differs: bool = ...) -> None: ...

class ModelFacts(_message.Message):
    __slots__ = ("max_model_len", "vocab_size", "eos_token_ids", "has_chat_template", "max_log_probs", "dtype", "architecture")
    MAX_MODEL_LEN_FIELD_NUMBER: _ClassVar[int]
    VOCAB_SIZE_FIELD_NUMBER: _ClassVar[int]
    EOS_TOKEN_IDS_FIELD_NUMBER: _ClassVar[int]
    HAS_CHAT_TEMPLATE_FIELD_NUMBER: _ClassVar[int]
    MAX_LOG_PROBS_FIELD_NUMBER: _ClassVar[int]
    DTYPE_FIELD_NUMBER: _ClassVar[int]
    ARCHITECTURE_FIELD_NUMBER: _ClassVar[int]
    max_model_len: int
    vocab_size: int
    eos_token_ids: _containers.RepeatedScalarFieldContainer[int]
    has_chat_template: bool
    max_log_probs: int
    dtype: str
    architecture: str
    def __init__(self, max_model_len: _Optional[int] = ..., vocab_size: _Optional[int] = ..., eos_token_ids: _Optional[_Iterable[int]] = ..., has_chat_template: bool = ..., max_log_probs: _Optional[int] = ..., dtype: _Optional[str] = ..., architecture: _Optional[str] = ...) -> None: ...

class CreateJobsRequest(_message.Message):
    __slots__ = ("training", "sampling", "log_prob", "lease", "request_id")
    TRAINING_FIELD_NUMBER: _ClassVar[int]
    SAMPLING_FIELD_NUMBER: _ClassVar[int]
    LOG_PROB_FIELD_NUMBER: _ClassVar[int]
    LEASE_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    training: TrainingJobConfig
    sampling: SamplingJobConfig
    log_prob: LogProbJobConfig
    lease: _duration_pb2.Duration
    request_id: str
    def __init__(self, training: _Optional[_Union[TrainingJobConfig, _Mapping]] = ..., sampling: _Optional[_Union[SamplingJobConfig, _Mapping]] = ..., log_prob: _Optional[_Union[LogProbJobConfig, _Mapping]] = ..., lease: _Optional[_Union[_duration_pb2.Duration, _Mapping]] = ..., request_id: _Optional[str] = ...) -> None: ...

class CreateJobsResponse(_message.Message):
    __slots__ = ("progress", "created")
    PROGRESS_FIELD_NUMBER: _ClassVar[int]
    CREATED_FIELD_NUMBER: _ClassVar[int]
    progress: JobProgress
    created: CreatedJobs
    def __init__(self, progress: _Optional[_Union[JobProgress, _Mapping]] = ..., created: _Optional[_Union[CreatedJobs, _Mapping]] = ...) -> None: ...

class JobProgress(_message.Message):
    __slots__ = ("job_id", "message")
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    job_id: int
    message: str
    def __init__(self, job_id: _Optional[int] = ..., message: _Optional[str] = ...) -> None: ...

class CreatedJobs(_message.Message):
    __slots__ = ("jobs",)
    JOBS_FIELD_NUMBER: _ClassVar[int]
    jobs: _containers.RepeatedCompositeFieldContainer[Job]
    def __init__(self, jobs: _Optional[_Iterable[_Union[Job, _Mapping]]] = ...) -> None: ...

class TrainingJobConfig(_message.Message):
    __slots__ = ("model", "dtype", "optimizer", "scheduler", "max_grad_norm", "zero_stage", "num_workers", "seed", "max_tokens_per_micro_batch", "gradient_checkpointing", "loss", "loss_config", "lora", "threads", "packing")
    MODEL_FIELD_NUMBER: _ClassVar[int]
    DTYPE_FIELD_NUMBER: _ClassVar[int]
    OPTIMIZER_FIELD_NUMBER: _ClassVar[int]
    SCHEDULER_FIELD_NUMBER: _ClassVar[int]
    MAX_GRAD_NORM_FIELD_NUMBER: _ClassVar[int]
    ZERO_STAGE_FIELD_NUMBER: _ClassVar[int]
    NUM_WORKERS_FIELD_NUMBER: _ClassVar[int]
    SEED_FIELD_NUMBER: _ClassVar[int]
    MAX_TOKENS_PER_MICRO_BATCH_FIELD_NUMBER: _ClassVar[int]
    GRADIENT_CHECKPOINTING_FIELD_NUMBER: _ClassVar[int]
    LOSS_FIELD_NUMBER: _ClassVar[int]
    LOSS_CONFIG_FIELD_NUMBER: _ClassVar[int]
    LORA_FIELD_NUMBER: _ClassVar[int]
    THREADS_FIELD_NUMBER: _ClassVar[int]
    PACKING_FIELD_NUMBER: _ClassVar[int]
    model: str
    dtype: str
    optimizer: OptimizerConfig
    scheduler: SchedulerConfig
    max_grad_norm: float
    zero_stage: int
    num_workers: int
    seed: int
    max_tokens_per_micro_batch: int
    gradient_checkpointing: bool
    loss: str
    loss_config: _struct_pb2.Struct
    lora: LoraConfig
    threads: int
    packing: bool
    def __init__(self, model: _Optional[str] = ..., dtype: _Optional[str] = ..., optimizer: _Optional[_Union[OptimizerConfig, _Mapping]] = ..., scheduler: _Optional[_Union[SchedulerConfig, _Mapping]] = ..., max_grad_norm: _Optional[float] = ..., zero_stage: _Optional[int] = ..., num_workers: _Optional[int] = ..., seed: _Optional[int] = ..., max_tokens_per_micro_batch: _Optional[int] = ..., gradient_checkpointing: bool = ..., loss: _Optional[str] = ..., loss_config: _Optional[_Union[_struct_pb2.Struct, _Mapping]] = ..., lora: _Optional[_Union[LoraConfig, _Mapping]] = ..., threads: _Optional[int] = ..., packing: bool = ...) -> None: ...

class OptimizerConfig(_message.Message):
    __slots__ = ("name", "learning_rate", "beta1", "beta2", "eps", "weight_decay", "momentum")
    NAME_FIELD_NUMBER: _ClassVar[int]
    LEARNING_RATE_FIELD_NUMBER: _ClassVar[int]
    BETA1_FIELD_NUMBER: _ClassVar[int]
    BETA2_FIELD_NUMBER: _ClassVar[int]
    EPS_FIELD_NUMBER: _ClassVar[int]
    WEIGHT_DECAY_FIELD_NUMBER: _ClassVar[int]
    MOMENTUM_FIELD_NUMBER: _ClassVar[int]
    name: str
    learning_rate: float
    beta1: float
    beta2: float
    eps: float
    weight_decay: float
    momentum: float
    def __init__(self, name: _Optional[str] = ..., learning_rate: _Optional[float] = ..., beta1: _Optional[float] = ..., beta2: _Optional[float] = ..., eps: _Optional[float] = ..., weight_decay: _Optional[float] = ..., momentum: _Optional[float] = ...) -> None: ...

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

class LoraConfig(_message.Message):
    __slots__ = ("rank", "alpha", "target_modules")
    RANK_FIELD_NUMBER: _ClassVar[int]
    ALPHA_FIELD_NUMBER: _ClassVar[int]
    TARGET_MODULES_FIELD_NUMBER: _ClassVar[int]
    rank: int
    alpha: float
    target_modules: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, rank: _Optional[int] = ..., alpha: _Optional[float] = ..., target_modules: _Optional[_Iterable[str]] = ...) -> None: ...

class SamplingJobConfig(_message.Message):
    __slots__ = ("model", "dtype", "max_model_len", "max_num_seqs", "max_num_batched_tokens", "kv_cache_bytes", "gpu_memory_utilization", "tensor_parallel_size", "data_parallel_size", "max_log_probs", "enable_prefix_caching", "enforce_eager", "seed", "max_loras", "max_lora_rank")
    MODEL_FIELD_NUMBER: _ClassVar[int]
    DTYPE_FIELD_NUMBER: _ClassVar[int]
    MAX_MODEL_LEN_FIELD_NUMBER: _ClassVar[int]
    MAX_NUM_SEQS_FIELD_NUMBER: _ClassVar[int]
    MAX_NUM_BATCHED_TOKENS_FIELD_NUMBER: _ClassVar[int]
    KV_CACHE_BYTES_FIELD_NUMBER: _ClassVar[int]
    GPU_MEMORY_UTILIZATION_FIELD_NUMBER: _ClassVar[int]
    TENSOR_PARALLEL_SIZE_FIELD_NUMBER: _ClassVar[int]
    DATA_PARALLEL_SIZE_FIELD_NUMBER: _ClassVar[int]
    MAX_LOG_PROBS_FIELD_NUMBER: _ClassVar[int]
    ENABLE_PREFIX_CACHING_FIELD_NUMBER: _ClassVar[int]
    ENFORCE_EAGER_FIELD_NUMBER: _ClassVar[int]
    SEED_FIELD_NUMBER: _ClassVar[int]
    MAX_LORAS_FIELD_NUMBER: _ClassVar[int]
    MAX_LORA_RANK_FIELD_NUMBER: _ClassVar[int]
    model: str
    dtype: str
    max_model_len: int
    max_num_seqs: int
    max_num_batched_tokens: int
    kv_cache_bytes: int
    gpu_memory_utilization: float
    tensor_parallel_size: int
    data_parallel_size: int
    max_log_probs: int
    enable_prefix_caching: bool
    enforce_eager: bool
    seed: int
    max_loras: int
    max_lora_rank: int
    def __init__(self, model: _Optional[str] = ..., dtype: _Optional[str] = ..., max_model_len: _Optional[int] = ..., max_num_seqs: _Optional[int] = ..., max_num_batched_tokens: _Optional[int] = ..., kv_cache_bytes: _Optional[int] = ..., gpu_memory_utilization: _Optional[float] = ..., tensor_parallel_size: _Optional[int] = ..., data_parallel_size: _Optional[int] = ..., max_log_probs: _Optional[int] = ..., enable_prefix_caching: bool = ..., enforce_eager: bool = ..., seed: _Optional[int] = ..., max_loras: _Optional[int] = ..., max_lora_rank: _Optional[int] = ...) -> None: ...

class LogProbJobConfig(_message.Message):
    __slots__ = ("model", "engine", "dtype", "num_workers", "max_model_len", "max_log_probs", "kv_cache_bytes", "gpu_memory_utilization", "tensor_parallel_size", "max_tokens_per_micro_batch", "threads")
    MODEL_FIELD_NUMBER: _ClassVar[int]
    ENGINE_FIELD_NUMBER: _ClassVar[int]
    DTYPE_FIELD_NUMBER: _ClassVar[int]
    NUM_WORKERS_FIELD_NUMBER: _ClassVar[int]
    MAX_MODEL_LEN_FIELD_NUMBER: _ClassVar[int]
    MAX_LOG_PROBS_FIELD_NUMBER: _ClassVar[int]
    KV_CACHE_BYTES_FIELD_NUMBER: _ClassVar[int]
    GPU_MEMORY_UTILIZATION_FIELD_NUMBER: _ClassVar[int]
    TENSOR_PARALLEL_SIZE_FIELD_NUMBER: _ClassVar[int]
    MAX_TOKENS_PER_MICRO_BATCH_FIELD_NUMBER: _ClassVar[int]
    THREADS_FIELD_NUMBER: _ClassVar[int]
    model: str
    engine: LogProbEngine
    dtype: str
    num_workers: int
    max_model_len: int
    max_log_probs: int
    kv_cache_bytes: int
    gpu_memory_utilization: float
    tensor_parallel_size: int
    max_tokens_per_micro_batch: int
    threads: int
    def __init__(self, model: _Optional[str] = ..., engine: _Optional[_Union[LogProbEngine, str]] = ..., dtype: _Optional[str] = ..., num_workers: _Optional[int] = ..., max_model_len: _Optional[int] = ..., max_log_probs: _Optional[int] = ..., kv_cache_bytes: _Optional[int] = ..., gpu_memory_utilization: _Optional[float] = ..., tensor_parallel_size: _Optional[int] = ..., max_tokens_per_micro_batch: _Optional[int] = ..., threads: _Optional[int] = ...) -> None: ...

class GetJobRequest(_message.Message):
    __slots__ = ("job_id",)
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    job_id: int
    def __init__(self, job_id: _Optional[int] = ...) -> None: ...

class GetJobResponse(_message.Message):
    __slots__ = ("job",)
    JOB_FIELD_NUMBER: _ClassVar[int]
    job: Job
    def __init__(self, job: _Optional[_Union[Job, _Mapping]] = ...) -> None: ...

class ListJobsRequest(_message.Message):
    __slots__ = ("kind",)
    KIND_FIELD_NUMBER: _ClassVar[int]
    kind: JobKind
    def __init__(self, kind: _Optional[_Union[JobKind, str]] = ...) -> None: ...

class ListJobsResponse(_message.Message):
    __slots__ = ("jobs",)
    JOBS_FIELD_NUMBER: _ClassVar[int]
    jobs: _containers.RepeatedCompositeFieldContainer[Job]
    def __init__(self, jobs: _Optional[_Iterable[_Union[Job, _Mapping]]] = ...) -> None: ...

class DestroyJobRequest(_message.Message):
    __slots__ = ("job_id",)
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    job_id: int
    def __init__(self, job_id: _Optional[int] = ...) -> None: ...

class DestroyJobResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class HeartbeatRequest(_message.Message):
    __slots__ = ("job_ids",)
    JOB_IDS_FIELD_NUMBER: _ClassVar[int]
    job_ids: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, job_ids: _Optional[_Iterable[int]] = ...) -> None: ...

class HeartbeatResponse(_message.Message):
    __slots__ = ("leases",)
    LEASES_FIELD_NUMBER: _ClassVar[int]
    leases: _containers.RepeatedCompositeFieldContainer[Lease]
    def __init__(self, leases: _Optional[_Iterable[_Union[Lease, _Mapping]]] = ...) -> None: ...

class Lease(_message.Message):
    __slots__ = ("job_id", "expires_at")
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    EXPIRES_AT_FIELD_NUMBER: _ClassVar[int]
    job_id: int
    expires_at: _timestamp_pb2.Timestamp
    def __init__(self, job_id: _Optional[int] = ..., expires_at: _Optional[_Union[_timestamp_pb2.Timestamp, _Mapping]] = ...) -> None: ...

class WatchJobRequest(_message.Message):
    __slots__ = ("job_id",)
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    job_id: int
    def __init__(self, job_id: _Optional[int] = ...) -> None: ...

class WatchJobResponse(_message.Message):
    __slots__ = ("job", "message")
    JOB_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    job: Job
    message: str
    def __init__(self, job: _Optional[_Union[Job, _Mapping]] = ..., message: _Optional[str] = ...) -> None: ...
