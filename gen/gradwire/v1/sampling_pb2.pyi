from buf.validate import validate_pb2 as _validate_pb2
from google.protobuf import duration_pb2 as _duration_pb2
from gradwire.v1 import sampling_params_pb2 as _sampling_params_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class FinishReason(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    FINISH_REASON_UNSPECIFIED: _ClassVar[FinishReason]
    FINISH_REASON_STOP: _ClassVar[FinishReason]
    FINISH_REASON_LENGTH: _ClassVar[FinishReason]
    FINISH_REASON_ABORT: _ClassVar[FinishReason]
    FINISH_REASON_ERROR: _ClassVar[FinishReason]

class InFlightPolicy(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    IN_FLIGHT_POLICY_UNSPECIFIED: _ClassVar[InFlightPolicy]
    IN_FLIGHT_POLICY_ABORT: _ClassVar[InFlightPolicy]
    IN_FLIGHT_POLICY_WAIT: _ClassVar[InFlightPolicy]
    IN_FLIGHT_POLICY_KEEP: _ClassVar[InFlightPolicy]

class WakePart(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    WAKE_PART_UNSPECIFIED: _ClassVar[WakePart]
    WAKE_PART_WEIGHTS: _ClassVar[WakePart]
    WAKE_PART_KV_CACHE: _ClassVar[WakePart]
FINISH_REASON_UNSPECIFIED: FinishReason
FINISH_REASON_STOP: FinishReason
FINISH_REASON_LENGTH: FinishReason
FINISH_REASON_ABORT: FinishReason
FINISH_REASON_ERROR: FinishReason
IN_FLIGHT_POLICY_UNSPECIFIED: InFlightPolicy
IN_FLIGHT_POLICY_ABORT: InFlightPolicy
IN_FLIGHT_POLICY_WAIT: InFlightPolicy
IN_FLIGHT_POLICY_KEEP: InFlightPolicy
WAKE_PART_UNSPECIFIED: WakePart
WAKE_PART_WEIGHTS: WakePart
WAKE_PART_KV_CACHE: WakePart

class GenerateRequest(_message.Message):
    __slots__ = ("job_id", "prompts", "params", "min_weight_version", "cache_salt", "priority", "adapter", "rollout_id")
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    PROMPTS_FIELD_NUMBER: _ClassVar[int]
    PARAMS_FIELD_NUMBER: _ClassVar[int]
    MIN_WEIGHT_VERSION_FIELD_NUMBER: _ClassVar[int]
    CACHE_SALT_FIELD_NUMBER: _ClassVar[int]
    PRIORITY_FIELD_NUMBER: _ClassVar[int]
    ADAPTER_FIELD_NUMBER: _ClassVar[int]
    ROLLOUT_ID_FIELD_NUMBER: _ClassVar[int]
    job_id: int
    prompts: _containers.RepeatedCompositeFieldContainer[_sampling_params_pb2.Prompt]
    params: _sampling_params_pb2.SamplingParams
    min_weight_version: int
    cache_salt: str
    priority: int
    adapter: str
    rollout_id: str
    def __init__(self, job_id: _Optional[int] = ..., prompts: _Optional[_Iterable[_Union[_sampling_params_pb2.Prompt, _Mapping]]] = ..., params: _Optional[_Union[_sampling_params_pb2.SamplingParams, _Mapping]] = ..., min_weight_version: _Optional[int] = ..., cache_salt: _Optional[str] = ..., priority: _Optional[int] = ..., adapter: _Optional[str] = ..., rollout_id: _Optional[str] = ...) -> None: ...

class GenerateResponse(_message.Message):
    __slots__ = ("results", "params", "usage")
    RESULTS_FIELD_NUMBER: _ClassVar[int]
    PARAMS_FIELD_NUMBER: _ClassVar[int]
    USAGE_FIELD_NUMBER: _ClassVar[int]
    results: _containers.RepeatedCompositeFieldContainer[PromptResult]
    params: _sampling_params_pb2.SamplingParams
    usage: Usage
    def __init__(self, results: _Optional[_Iterable[_Union[PromptResult, _Mapping]]] = ..., params: _Optional[_Union[_sampling_params_pb2.SamplingParams, _Mapping]] = ..., usage: _Optional[_Union[Usage, _Mapping]] = ...) -> None: ...

class PromptResult(_message.Message):
    __slots__ = ("prompt", "completions")
    PROMPT_FIELD_NUMBER: _ClassVar[int]
    COMPLETIONS_FIELD_NUMBER: _ClassVar[int]
    prompt: PromptInfo
    completions: _containers.RepeatedCompositeFieldContainer[Completion]
    def __init__(self, prompt: _Optional[_Union[PromptInfo, _Mapping]] = ..., completions: _Optional[_Iterable[_Union[Completion, _Mapping]]] = ...) -> None: ...

class PromptInfo(_message.Message):
    __slots__ = ("token_ids", "num_cached_tokens", "log_probs")
    TOKEN_IDS_FIELD_NUMBER: _ClassVar[int]
    NUM_CACHED_TOKENS_FIELD_NUMBER: _ClassVar[int]
    LOG_PROBS_FIELD_NUMBER: _ClassVar[int]
    token_ids: bytes
    num_cached_tokens: int
    log_probs: TokenLogProbs
    def __init__(self, token_ids: _Optional[bytes] = ..., num_cached_tokens: _Optional[int] = ..., log_probs: _Optional[_Union[TokenLogProbs, _Mapping]] = ...) -> None: ...

class TokenLogProbs(_message.Message):
    __slots__ = ("values", "top_k", "top_token_ids", "top_values")
    VALUES_FIELD_NUMBER: _ClassVar[int]
    TOP_K_FIELD_NUMBER: _ClassVar[int]
    TOP_TOKEN_IDS_FIELD_NUMBER: _ClassVar[int]
    TOP_VALUES_FIELD_NUMBER: _ClassVar[int]
    values: bytes
    top_k: int
    top_token_ids: bytes
    top_values: bytes
    def __init__(self, values: _Optional[bytes] = ..., top_k: _Optional[int] = ..., top_token_ids: _Optional[bytes] = ..., top_values: _Optional[bytes] = ...) -> None: ...

class WeightSpan(_message.Message):
    __slots__ = ("version", "start", "end")
    VERSION_FIELD_NUMBER: _ClassVar[int]
    START_FIELD_NUMBER: _ClassVar[int]
    END_FIELD_NUMBER: _ClassVar[int]
    version: int
    start: int
    end: int
    def __init__(self, version: _Optional[int] = ..., start: _Optional[int] = ..., end: _Optional[int] = ...) -> None: ...

class Completion(_message.Message):
    __slots__ = ("index", "text", "token_ids", "log_probs", "weight_spans", "finish_reason", "stop_reason")
    INDEX_FIELD_NUMBER: _ClassVar[int]
    TEXT_FIELD_NUMBER: _ClassVar[int]
    TOKEN_IDS_FIELD_NUMBER: _ClassVar[int]
    LOG_PROBS_FIELD_NUMBER: _ClassVar[int]
    WEIGHT_SPANS_FIELD_NUMBER: _ClassVar[int]
    FINISH_REASON_FIELD_NUMBER: _ClassVar[int]
    STOP_REASON_FIELD_NUMBER: _ClassVar[int]
    index: int
    text: str
    token_ids: bytes
    log_probs: TokenLogProbs
    weight_spans: _containers.RepeatedCompositeFieldContainer[WeightSpan]
    finish_reason: FinishReason
    stop_reason: StopReason
    def __init__(self, index: _Optional[int] = ..., text: _Optional[str] = ..., token_ids: _Optional[bytes] = ..., log_probs: _Optional[_Union[TokenLogProbs, _Mapping]] = ..., weight_spans: _Optional[_Iterable[_Union[WeightSpan, _Mapping]]] = ..., finish_reason: _Optional[_Union[FinishReason, str]] = ..., stop_reason: _Optional[_Union[StopReason, _Mapping]] = ...) -> None: ...

class StopReason(_message.Message):
    __slots__ = ("stop", "token_id")
    STOP_FIELD_NUMBER: _ClassVar[int]
    TOKEN_ID_FIELD_NUMBER: _ClassVar[int]
    stop: str
    token_id: int
    def __init__(self, stop: _Optional[str] = ..., token_id: _Optional[int] = ...) -> None: ...

class Usage(_message.Message):
    __slots__ = ("prompt_tokens", "completion_tokens", "cached_tokens")
    PROMPT_TOKENS_FIELD_NUMBER: _ClassVar[int]
    COMPLETION_TOKENS_FIELD_NUMBER: _ClassVar[int]
    CACHED_TOKENS_FIELD_NUMBER: _ClassVar[int]
    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int
    def __init__(self, prompt_tokens: _Optional[int] = ..., completion_tokens: _Optional[int] = ..., cached_tokens: _Optional[int] = ...) -> None: ...

class GenerateStreamRequest(_message.Message):
    __slots__ = ("job_id", "prompt", "params", "min_weight_version", "cache_salt", "priority", "adapter", "rollout_id")
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    PROMPT_FIELD_NUMBER: _ClassVar[int]
    PARAMS_FIELD_NUMBER: _ClassVar[int]
    MIN_WEIGHT_VERSION_FIELD_NUMBER: _ClassVar[int]
    CACHE_SALT_FIELD_NUMBER: _ClassVar[int]
    PRIORITY_FIELD_NUMBER: _ClassVar[int]
    ADAPTER_FIELD_NUMBER: _ClassVar[int]
    ROLLOUT_ID_FIELD_NUMBER: _ClassVar[int]
    job_id: int
    prompt: _sampling_params_pb2.Prompt
    params: _sampling_params_pb2.SamplingParams
    min_weight_version: int
    cache_salt: str
    priority: int
    adapter: str
    rollout_id: str
    def __init__(self, job_id: _Optional[int] = ..., prompt: _Optional[_Union[_sampling_params_pb2.Prompt, _Mapping]] = ..., params: _Optional[_Union[_sampling_params_pb2.SamplingParams, _Mapping]] = ..., min_weight_version: _Optional[int] = ..., cache_salt: _Optional[str] = ..., priority: _Optional[int] = ..., adapter: _Optional[str] = ..., rollout_id: _Optional[str] = ...) -> None: ...

class GenerateStreamResponse(_message.Message):
    __slots__ = ("start", "delta", "end")
    START_FIELD_NUMBER: _ClassVar[int]
    DELTA_FIELD_NUMBER: _ClassVar[int]
    END_FIELD_NUMBER: _ClassVar[int]
    start: StreamStart
    delta: StreamDelta
    end: StreamEnd
    def __init__(self, start: _Optional[_Union[StreamStart, _Mapping]] = ..., delta: _Optional[_Union[StreamDelta, _Mapping]] = ..., end: _Optional[_Union[StreamEnd, _Mapping]] = ...) -> None: ...

class StreamStart(_message.Message):
    __slots__ = ("params", "prompt")
    PARAMS_FIELD_NUMBER: _ClassVar[int]
    PROMPT_FIELD_NUMBER: _ClassVar[int]
    params: _sampling_params_pb2.SamplingParams
    prompt: PromptInfo
    def __init__(self, params: _Optional[_Union[_sampling_params_pb2.SamplingParams, _Mapping]] = ..., prompt: _Optional[_Union[PromptInfo, _Mapping]] = ...) -> None: ...

class StreamDelta(_message.Message):
    __slots__ = ("completions",)
    COMPLETIONS_FIELD_NUMBER: _ClassVar[int]
    completions: _containers.RepeatedCompositeFieldContainer[CompletionDelta]
    def __init__(self, completions: _Optional[_Iterable[_Union[CompletionDelta, _Mapping]]] = ...) -> None: ...

class CompletionDelta(_message.Message):
    __slots__ = ("index", "first_token_index", "text", "token_ids", "log_probs", "weight_spans")
    INDEX_FIELD_NUMBER: _ClassVar[int]
    FIRST_TOKEN_INDEX_FIELD_NUMBER: _ClassVar[int]
    TEXT_FIELD_NUMBER: _ClassVar[int]
    TOKEN_IDS_FIELD_NUMBER: _ClassVar[int]
    LOG_PROBS_FIELD_NUMBER: _ClassVar[int]
    WEIGHT_SPANS_FIELD_NUMBER: _ClassVar[int]
    index: int
    first_token_index: int
    text: str
    token_ids: bytes
    log_probs: TokenLogProbs
    weight_spans: _containers.RepeatedCompositeFieldContainer[WeightSpan]
    def __init__(self, index: _Optional[int] = ..., first_token_index: _Optional[int] = ..., text: _Optional[str] = ..., token_ids: _Optional[bytes] = ..., log_probs: _Optional[_Union[TokenLogProbs, _Mapping]] = ..., weight_spans: _Optional[_Iterable[_Union[WeightSpan, _Mapping]]] = ...) -> None: ...

class StreamEnd(_message.Message):
    __slots__ = ("completions", "usage", "prompt_log_probs")
    COMPLETIONS_FIELD_NUMBER: _ClassVar[int]
    USAGE_FIELD_NUMBER: _ClassVar[int]
    PROMPT_LOG_PROBS_FIELD_NUMBER: _ClassVar[int]
    completions: _containers.RepeatedCompositeFieldContainer[CompletionEnd]
    usage: Usage
    prompt_log_probs: TokenLogProbs
    def __init__(self, completions: _Optional[_Iterable[_Union[CompletionEnd, _Mapping]]] = ..., usage: _Optional[_Union[Usage, _Mapping]] = ..., prompt_log_probs: _Optional[_Union[TokenLogProbs, _Mapping]] = ...) -> None: ...

class CompletionEnd(_message.Message):
    __slots__ = ("index", "finish_reason", "stop_reason", "num_tokens")
    INDEX_FIELD_NUMBER: _ClassVar[int]
    FINISH_REASON_FIELD_NUMBER: _ClassVar[int]
    STOP_REASON_FIELD_NUMBER: _ClassVar[int]
    NUM_TOKENS_FIELD_NUMBER: _ClassVar[int]
    index: int
    finish_reason: FinishReason
    stop_reason: StopReason
    num_tokens: int
    def __init__(self, index: _Optional[int] = ..., finish_reason: _Optional[_Union[FinishReason, str]] = ..., stop_reason: _Optional[_Union[StopReason, _Mapping]] = ..., num_tokens: _Optional[int] = ...) -> None: ...

class LogProbsRequest(_message.Message):
    __slots__ = ("job_id", "items", "top_k", "min_weight_version", "adapter")
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    ITEMS_FIELD_NUMBER: _ClassVar[int]
    TOP_K_FIELD_NUMBER: _ClassVar[int]
    MIN_WEIGHT_VERSION_FIELD_NUMBER: _ClassVar[int]
    ADAPTER_FIELD_NUMBER: _ClassVar[int]
    job_id: int
    items: _containers.RepeatedCompositeFieldContainer[ScoreItem]
    top_k: int
    min_weight_version: int
    adapter: str
    def __init__(self, job_id: _Optional[int] = ..., items: _Optional[_Iterable[_Union[ScoreItem, _Mapping]]] = ..., top_k: _Optional[int] = ..., min_weight_version: _Optional[int] = ..., adapter: _Optional[str] = ...) -> None: ...

class ScoreItem(_message.Message):
    __slots__ = ("prompt", "text", "token_ids")
    PROMPT_FIELD_NUMBER: _ClassVar[int]
    TEXT_FIELD_NUMBER: _ClassVar[int]
    TOKEN_IDS_FIELD_NUMBER: _ClassVar[int]
    prompt: _sampling_params_pb2.Prompt
    text: str
    token_ids: bytes
    def __init__(self, prompt: _Optional[_Union[_sampling_params_pb2.Prompt, _Mapping]] = ..., text: _Optional[str] = ..., token_ids: _Optional[bytes] = ...) -> None: ...

class LogProbsResponse(_message.Message):
    __slots__ = ("scores",)
    SCORES_FIELD_NUMBER: _ClassVar[int]
    scores: _containers.RepeatedCompositeFieldContainer[Score]
    def __init__(self, scores: _Optional[_Iterable[_Union[Score, _Mapping]]] = ...) -> None: ...

class Score(_message.Message):
    __slots__ = ("prompt", "completion_token_ids", "completion_log_probs", "weight_version")
    PROMPT_FIELD_NUMBER: _ClassVar[int]
    COMPLETION_TOKEN_IDS_FIELD_NUMBER: _ClassVar[int]
    COMPLETION_LOG_PROBS_FIELD_NUMBER: _ClassVar[int]
    WEIGHT_VERSION_FIELD_NUMBER: _ClassVar[int]
    prompt: PromptInfo
    completion_token_ids: bytes
    completion_log_probs: TokenLogProbs
    weight_version: int
    def __init__(self, prompt: _Optional[_Union[PromptInfo, _Mapping]] = ..., completion_token_ids: _Optional[bytes] = ..., completion_log_probs: _Optional[_Union[TokenLogProbs, _Mapping]] = ..., weight_version: _Optional[int] = ...) -> None: ...

class SleepRequest(_message.Message):
    __slots__ = ("job_id", "level")
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    LEVEL_FIELD_NUMBER: _ClassVar[int]
    job_id: int
    level: int
    def __init__(self, job_id: _Optional[int] = ..., level: _Optional[int] = ...) -> None: ...

class SleepResponse(_message.Message):
    __slots__ = ("memory", "changed")
    MEMORY_FIELD_NUMBER: _ClassVar[int]
    CHANGED_FIELD_NUMBER: _ClassVar[int]
    memory: MemoryChange
    changed: bool
    def __init__(self, memory: _Optional[_Union[MemoryChange, _Mapping]] = ..., changed: bool = ...) -> None: ...

class MemoryChange(_message.Message):
    __slots__ = ("before_bytes", "after_bytes")
    BEFORE_BYTES_FIELD_NUMBER: _ClassVar[int]
    AFTER_BYTES_FIELD_NUMBER: _ClassVar[int]
    before_bytes: int
    after_bytes: int
    def __init__(self, before_bytes: _Optional[int] = ..., after_bytes: _Optional[int] = ...) -> None: ...

class WakeRequest(_message.Message):
    __slots__ = ("job_id", "part")
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    PART_FIELD_NUMBER: _ClassVar[int]
    job_id: int
    part: WakePart
    def __init__(self, job_id: _Optional[int] = ..., part: _Optional[_Union[WakePart, str]] = ...) -> None: ...

class WakeResponse(_message.Message):
    __slots__ = ("memory", "changed")
    MEMORY_FIELD_NUMBER: _ClassVar[int]
    CHANGED_FIELD_NUMBER: _ClassVar[int]
    memory: MemoryChange
    changed: bool
    def __init__(self, memory: _Optional[_Union[MemoryChange, _Mapping]] = ..., changed: bool = ...) -> None: ...

class ResetPrefixCacheRequest(_message.Message):
    __slots__ = ("job_id",)
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    job_id: int
    def __init__(self, job_id: _Optional[int] = ...) -> None: ...

class ResetPrefixCacheResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class PauseRequest(_message.Message):
    __slots__ = ("job_id", "in_flight")
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    IN_FLIGHT_FIELD_NUMBER: _ClassVar[int]
    job_id: int
    in_flight: InFlightPolicy
    def __init__(self, job_id: _Optional[int] = ..., in_flight: _Optional[_Union[InFlightPolicy, str]] = ...) -> None: ...

class PauseResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ResumeRequest(_message.Message):
    __slots__ = ("job_id",)
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    job_id: int
    def __init__(self, job_id: _Optional[int] = ...) -> None: ...

class ResumeResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class Timing(_message.Message):
    __slots__ = ("queued", "run")
    QUEUED_FIELD_NUMBER: _ClassVar[int]
    RUN_FIELD_NUMBER: _ClassVar[int]
    queued: _duration_pb2.Duration
    run: _duration_pb2.Duration
    def __init__(self, queued: _Optional[_Union[_duration_pb2.Duration, _Mapping]] = ..., run: _Optional[_Union[_duration_pb2.Duration, _Mapping]] = ...) -> None: ...
