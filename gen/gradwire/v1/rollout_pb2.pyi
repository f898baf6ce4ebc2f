from buf.validate import validate_pb2 as _validate_pb2
from google.protobuf import duration_pb2 as _duration_pb2
from google.protobuf import timestamp_pb2 as _timestamp_pb2
from gradwire.v1 import sampling_pb2 as _sampling_pb2
from gradwire.v1 import sampling_params_pb2 as _sampling_params_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class RolloutOutcome(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    ROLLOUT_OUTCOME_UNSPECIFIED: _ClassVar[RolloutOutcome]
    ROLLOUT_OUTCOME_OK: _ClassVar[RolloutOutcome]
    ROLLOUT_OUTCOME_TRUNCATED: _ClassVar[RolloutOutcome]
    ROLLOUT_OUTCOME_TIMEOUT: _ClassVar[RolloutOutcome]
    ROLLOUT_OUTCOME_ENV_ERROR: _ClassVar[RolloutOutcome]
    ROLLOUT_OUTCOME_INFRA_ERROR: _ClassVar[RolloutOutcome]
    ROLLOUT_OUTCOME_CANCELLED: _ClassVar[RolloutOutcome]

class RolloutCallStatus(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    ROLLOUT_CALL_STATUS_UNSPECIFIED: _ClassVar[RolloutCallStatus]
    ROLLOUT_CALL_STATUS_RUNNING: _ClassVar[RolloutCallStatus]
    ROLLOUT_CALL_STATUS_DONE: _ClassVar[RolloutCallStatus]
    ROLLOUT_CALL_STATUS_RETRIED: _ClassVar[RolloutCallStatus]
    ROLLOUT_CALL_STATUS_ABANDONED: _ClassVar[RolloutCallStatus]
    ROLLOUT_CALL_STATUS_FAILED: _ClassVar[RolloutCallStatus]

class RowStart(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    ROW_START_UNSPECIFIED: _ClassVar[RowStart]
    ROW_START_FIRST: _ClassVar[RowStart]
    ROW_START_BRANCH: _ClassVar[RowStart]
    ROW_START_ANSWER_CHANGED: _ClassVar[RowStart]
    ROW_START_CONTEXT_CHANGED: _ClassVar[RowStart]
ROLLOUT_OUTCOME_UNSPECIFIED: RolloutOutcome
ROLLOUT_OUTCOME_OK: RolloutOutcome
ROLLOUT_OUTCOME_TRUNCATED: RolloutOutcome
ROLLOUT_OUTCOME_TIMEOUT: RolloutOutcome
ROLLOUT_OUTCOME_ENV_ERROR: RolloutOutcome
ROLLOUT_OUTCOME_INFRA_ERROR: RolloutOutcome
ROLLOUT_OUTCOME_CANCELLED: RolloutOutcome
ROLLOUT_CALL_STATUS_UNSPECIFIED: RolloutCallStatus
ROLLOUT_CALL_STATUS_RUNNING: RolloutCallStatus
ROLLOUT_CALL_STATUS_DONE: RolloutCallStatus
ROLLOUT_CALL_STATUS_RETRIED: RolloutCallStatus
ROLLOUT_CALL_STATUS_ABANDONED: RolloutCallStatus
ROLLOUT_CALL_STATUS_FAILED: RolloutCallStatus
ROW_START_UNSPECIFIED: RowStart
ROW_START_FIRST: RowStart
ROW_START_BRANCH: RowStart
ROW_START_ANSWER_CHANGED: RowStart
ROW_START_CONTEXT_CHANGED: RowStart

class Rollout(_message.Message):
    __slots__ = ("rollout_id", "job_id", "spec", "base_path", "outcome", "reason", "reward", "step_rewards", "opened_at", "deadline", "ended_at", "collected_at", "num_calls", "num_running_calls", "num_sampled_tokens", "num_bytes", "limit_reached")
    ROLLOUT_ID_FIELD_NUMBER: _ClassVar[int]
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    SPEC_FIELD_NUMBER: _ClassVar[int]
    BASE_PATH_FIELD_NUMBER: _ClassVar[int]
    OUTCOME_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    REWARD_FIELD_NUMBER: _ClassVar[int]
    STEP_REWARDS_FIELD_NUMBER: _ClassVar[int]
    OPENED_AT_FIELD_NUMBER: _ClassVar[int]
    DEADLINE_FIELD_NUMBER: _ClassVar[int]
    ENDED_AT_FIELD_NUMBER: _ClassVar[int]
    COLLECTED_AT_FIELD_NUMBER: _ClassVar[int]
    NUM_CALLS_FIELD_NUMBER: _ClassVar[int]
    NUM_RUNNING_CALLS_FIELD_NUMBER: _ClassVar[int]
    NUM_SAMPLED_TOKENS_FIELD_NUMBER: _ClassVar[int]
    NUM_BYTES_FIELD_NUMBER: _ClassVar[int]
    LIMIT_REACHED_FIELD_NUMBER: _ClassVar[int]
    rollout_id: str
    job_id: int
    spec: RolloutSpec
    base_path: str
    outcome: RolloutOutcome
    reason: str
    reward: float
    step_rewards: _containers.RepeatedCompositeFieldContainer[StepReward]
    opened_at: _timestamp_pb2.Timestamp
    deadline: _timestamp_pb2.Timestamp
    ended_at: _timestamp_pb2.Timestamp
    collected_at: _timestamp_pb2.Timestamp
    num_calls: int
    num_running_calls: int
    num_sampled_tokens: int
    num_bytes: int
    limit_reached: bool
    def __init__(self, rollout_id: _Optional[str] = ..., job_id: _Optional[int] = ..., spec: _Optional[_Union[RolloutSpec, _Mapping]] = ..., base_path: _Optional[str] = ..., outcome: _Optional[_Union[RolloutOutcome, str]] = ..., reason: _Optional[str] = ..., reward: _Optional[float] = ..., step_rewards: _Optional[_Iterable[_Union[StepReward, _Mapping]]] = ..., opened_at: _Optional[_Union[_timestamp_pb2.Timestamp, _Mapping]] = ..., deadline: _Optional[_Union[_timestamp_pb2.Timestamp, _Mapping]] = ..., ended_at: _Optional[_Union[_timestamp_pb2.Timestamp, _Mapping]] = ..., collected_at: _Optional[_Union[_timestamp_pb2.Timestamp, _Mapping]] = ..., num_calls: _Optional[int] = ..., num_running_calls: _Optional[int] = ..., num_sampled_tokens: _Optional[int] = ..., num_bytes: _Optional[int] = ..., limit_reached: bool = ...) -> None: ...

class StepReward(_message.Message):
    __slots__ = ("step", "reward")
    STEP_FIELD_NUMBER: _ClassVar[int]
    REWARD_FIELD_NUMBER: _ClassVar[int]
    step: int
    reward: float
    def __init__(self, step: _Optional[int] = ..., reward: _Optional[float] = ...) -> None: ...

class RolloutSpec(_message.Message):
    __slots__ = ("task_id", "group_id", "sample_index", "group_size", "timeout", "max_calls", "max_sampled_tokens", "labels")
    class LabelsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    TASK_ID_FIELD_NUMBER: _ClassVar[int]
    GROUP_ID_FIELD_NUMBER: _ClassVar[int]
    SAMPLE_INDEX_FIELD_NUMBER: _ClassVar[int]
    GROUP_SIZE_FIELD_NUMBER: _ClassVar[int]
    TIMEOUT_FIELD_NUMBER: _ClassVar[int]
    MAX_CALLS_FIELD_NUMBER: _ClassVar[int]
    MAX_SAMPLED_TOKENS_FIELD_NUMBER: _ClassVar[int]
    LABELS_FIELD_NUMBER: _ClassVar[int]
    task_id: str
    group_id: str
    sample_index: int
    group_size: int
    timeout: _duration_pb2.Duration
    max_calls: int
    max_sampled_tokens: int
    labels: _containers.ScalarMap[str, str]
    def __init__(self, task_id: _Optional[str] = ..., group_id: _Optional[str] = ..., sample_index: _Optional[int] = ..., group_size: _Optional[int] = ..., timeout: _Optional[_Union[_duration_pb2.Duration, _Mapping]] = ..., max_calls: _Optional[int] = ..., max_sampled_tokens: _Optional[int] = ..., labels: _Optional[_Mapping[str, str]] = ...) -> None: ...

class OpenRolloutsRequest(_message.Message):
    __slots__ = ("job_id", "rollouts", "request_id")
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    ROLLOUTS_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    job_id: int
    rollouts: _containers.RepeatedCompositeFieldContainer[RolloutSpec]
    request_id: str
    def __init__(self, job_id: _Optional[int] = ..., rollouts: _Optional[_Iterable[_Union[RolloutSpec, _Mapping]]] = ..., request_id: _Optional[str] = ...) -> None: ...

class OpenRolloutsResponse(_message.Message):
    __slots__ = ("rollouts",)
    ROLLOUTS_FIELD_NUMBER: _ClassVar[int]
    rollouts: _containers.RepeatedCompositeFieldContainer[Rollout]
    def __init__(self, rollouts: _Optional[_Iterable[_Union[Rollout, _Mapping]]] = ...) -> None: ...

class GetRolloutRequest(_message.Message):
    __slots__ = ("rollout_id", "with_tokens")
    ROLLOUT_ID_FIELD_NUMBER: _ClassVar[int]
    WITH_TOKENS_FIELD_NUMBER: _ClassVar[int]
    rollout_id: str
    with_tokens: bool
    def __init__(self, rollout_id: _Optional[str] = ..., with_tokens: bool = ...) -> None: ...

class GetRolloutResponse(_message.Message):
    __slots__ = ("rollout", "calls")
    ROLLOUT_FIELD_NUMBER: _ClassVar[int]
    CALLS_FIELD_NUMBER: _ClassVar[int]
    rollout: Rollout
    calls: _containers.RepeatedCompositeFieldContainer[RolloutCall]
    def __init__(self, rollout: _Optional[_Union[Rollout, _Mapping]] = ..., calls: _Optional[_Iterable[_Union[RolloutCall, _Mapping]]] = ...) -> None: ...

class RolloutCall(_message.Message):
    __slots__ = ("call_index", "request_id", "endpoint", "status", "step", "streamed", "num_retries", "error", "begun_at", "ended_at", "prompts", "constrained", "sampling_params")
    CALL_INDEX_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    ENDPOINT_FIELD_NUMBER: _ClassVar[int]
    STATUS_FIELD_NUMBER: _ClassVar[int]
    STEP_FIELD_NUMBER: _ClassVar[int]
    STREAMED_FIELD_NUMBER: _ClassVar[int]
    NUM_RETRIES_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    BEGUN_AT_FIELD_NUMBER: _ClassVar[int]
    ENDED_AT_FIELD_NUMBER: _ClassVar[int]
    PROMPTS_FIELD_NUMBER: _ClassVar[int]
    CONSTRAINED_FIELD_NUMBER: _ClassVar[int]
    SAMPLING_PARAMS_FIELD_NUMBER: _ClassVar[int]
    call_index: int
    request_id: str
    endpoint: str
    status: RolloutCallStatus
    step: int
    streamed: bool
    num_retries: int
    error: str
    begun_at: _timestamp_pb2.Timestamp
    ended_at: _timestamp_pb2.Timestamp
    prompts: _containers.RepeatedCompositeFieldContainer[RolloutPrompt]
    constrained: bool
    sampling_params: _sampling_params_pb2.SamplingParams
    def __init__(self, call_index: _Optional[int] = ..., request_id: _Optional[str] = ..., endpoint: _Optional[str] = ..., status: _Optional[_Union[RolloutCallStatus, str]] = ..., step: _Optional[int] = ..., streamed: bool = ..., num_retries: _Optional[int] = ..., error: _Optional[str] = ..., begun_at: _Optional[_Union[_timestamp_pb2.Timestamp, _Mapping]] = ..., ended_at: _Optional[_Union[_timestamp_pb2.Timestamp, _Mapping]] = ..., prompts: _Optional[_Iterable[_Union[RolloutPrompt, _Mapping]]] = ..., constrained: bool = ..., sampling_params: _Optional[_Union[_sampling_params_pb2.SamplingParams, _Mapping]] = ...) -> None: ...

class RolloutPrompt(_message.Message):
    __slots__ = ("num_tokens", "token_ids", "completions")
    NUM_TOKENS_FIELD_NUMBER: _ClassVar[int]
    TOKEN_IDS_FIELD_NUMBER: _ClassVar[int]
    COMPLETIONS_FIELD_NUMBER: _ClassVar[int]
    num_tokens: int
    token_ids: bytes
    completions: _containers.RepeatedCompositeFieldContainer[RolloutCompletion]
    def __init__(self, num_tokens: _Optional[int] = ..., token_ids: _Optional[bytes] = ..., completions: _Optional[_Iterable[_Union[RolloutCompletion, _Mapping]]] = ...) -> None: ...

class RolloutCompletion(_message.Message):
    __slots__ = ("index", "num_tokens", "token_ids", "log_probs", "weight_spans", "finish_reason")
    INDEX_FIELD_NUMBER: _ClassVar[int]
    NUM_TOKENS_FIELD_NUMBER: _ClassVar[int]
    TOKEN_IDS_FIELD_NUMBER: _ClassVar[int]
    LOG_PROBS_FIELD_NUMBER: _ClassVar[int]
    WEIGHT_SPANS_FIELD_NUMBER: _ClassVar[int]
    FINISH_REASON_FIELD_NUMBER: _ClassVar[int]
    index: int
    num_tokens: int
    token_ids: bytes
    log_probs: bytes
    weight_spans: _containers.RepeatedCompositeFieldContainer[_sampling_pb2.WeightSpan]
    finish_reason: _sampling_pb2.FinishReason
    def __init__(self, index: _Optional[int] = ..., num_tokens: _Optional[int] = ..., token_ids: _Optional[bytes] = ..., log_probs: _Optional[bytes] = ..., weight_spans: _Optional[_Iterable[_Union[_sampling_pb2.WeightSpan, _Mapping]]] = ..., finish_reason: _Optional[_Union[_sampling_pb2.FinishReason, str]] = ...) -> None: ...

class WatchRolloutsRequest(_message.Message):
    __slots__ = ("rollout_ids", "group_id")
    ROLLOUT_IDS_FIELD_NUMBER: _ClassVar[int]
    GROUP_ID_FIELD_NUMBER: _ClassVar[int]
    rollout_ids: _containers.RepeatedScalarFieldContainer[str]
    group_id: str
    def __init__(self, rollout_ids: _Optional[_Iterable[str]] = ..., group_id: _Optional[str] = ...) -> None: ...

class WatchRolloutsResponse(_message.Message):
    __slots__ = ("rollout", "gone")
    ROLLOUT_FIELD_NUMBER: _ClassVar[int]
    GONE_FIELD_NUMBER: _ClassVar[int]
    rollout: Rollout
    gone: bool
    def __init__(self, rollout: _Optional[_Union[Rollout, _Mapping]] = ..., gone: bool = ...) -> None: ...

class FinishRolloutRequest(_message.Message):
    __slots__ = ("rollout_id", "outcome", "reward", "step_rewards", "reason")
    ROLLOUT_ID_FIELD_NUMBER: _ClassVar[int]
    OUTCOME_FIELD_NUMBER: _ClassVar[int]
    REWARD_FIELD_NUMBER: _ClassVar[int]
    STEP_REWARDS_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    rollout_id: str
    outcome: RolloutOutcome
    reward: float
    step_rewards: _containers.RepeatedCompositeFieldContainer[StepReward]
    reason: str
    def __init__(self, rollout_id: _Optional[str] = ..., outcome: _Optional[_Union[RolloutOutcome, str]] = ..., reward: _Optional[float] = ..., step_rewards: _Optional[_Iterable[_Union[StepReward, _Mapping]]] = ..., reason: _Optional[str] = ...) -> None: ...

class FinishRolloutResponse(_message.Message):
    __slots__ = ("rollout",)
    ROLLOUT_FIELD_NUMBER: _ClassVar[int]
    rollout: Rollout
    def __init__(self, rollout: _Optional[_Union[Rollout, _Mapping]] = ...) -> None: ...

class CollectRolloutsRequest(_message.Message):
    __slots__ = ("rollout_ids", "group_ids", "whole_groups", "max_rollouts", "min_rollouts", "wait", "include_retried", "include_abandoned", "request_id")
    ROLLOUT_IDS_FIELD_NUMBER: _ClassVar[int]
    GROUP_IDS_FIELD_NUMBER: _ClassVar[int]
    WHOLE_GROUPS_FIELD_NUMBER: _ClassVar[int]
    MAX_ROLLOUTS_FIELD_NUMBER: _ClassVar[int]
    MIN_ROLLOUTS_FIELD_NUMBER: _ClassVar[int]
    WAIT_FIELD_NUMBER: _ClassVar[int]
    INCLUDE_RETRIED_FIELD_NUMBER: _ClassVar[int]
    INCLUDE_ABANDONED_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    rollout_ids: _containers.RepeatedScalarFieldContainer[str]
    group_ids: _containers.RepeatedScalarFieldContainer[str]
    whole_groups: bool
    max_rollouts: int
    min_rollouts: int
    wait: _duration_pb2.Duration
    include_retried: bool
    include_abandoned: bool
    request_id: str
    def __init__(self, rollout_ids: _Optional[_Iterable[str]] = ..., group_ids: _Optional[_Iterable[str]] = ..., whole_groups: bool = ..., max_rollouts: _Optional[int] = ..., min_rollouts: _Optional[int] = ..., wait: _Optional[_Union[_duration_pb2.Duration, _Mapping]] = ..., include_retried: bool = ..., include_abandoned: bool = ..., request_id: _Optional[str] = ...) -> None: ...

class CollectRolloutsResponse(_message.Message):
    __slots__ = ("rollout", "rows", "dropped")
    ROLLOUT_FIELD_NUMBER: _ClassVar[int]
    ROWS_FIELD_NUMBER: _ClassVar[int]
    DROPPED_FIELD_NUMBER: _ClassVar[int]
    rollout: Rollout
    rows: _containers.RepeatedCompositeFieldContainer[RolloutRow]
    dropped: _containers.RepeatedCompositeFieldContainer[DroppedCompletion]
    def __init__(self, rollout: _Optional[_Union[Rollout, _Mapping]] = ..., rows: _Optional[_Iterable[_Union[RolloutRow, _Mapping]]] = ..., dropped: _Optional[_Iterable[_Union[DroppedCompletion, _Mapping]]] = ...) -> None: ...

class RolloutRow(_message.Message):
    __slots__ = ("token_ids", "loss_mask", "log_probs", "turns", "start", "parent", "num_shared_tokens")
    TOKEN_IDS_FIELD_NUMBER: _ClassVar[int]
    LOSS_MASK_FIELD_NUMBER: _ClassVar[int]
    LOG_PROBS_FIELD_NUMBER: _ClassVar[int]
    TURNS_FIELD_NUMBER: _ClassVar[int]
    START_FIELD_NUMBER: _ClassVar[int]
    PARENT_FIELD_NUMBER: _ClassVar[int]
    NUM_SHARED_TOKENS_FIELD_NUMBER: _ClassVar[int]
    token_ids: bytes
    loss_mask: bytes
    log_probs: bytes
    turns: _containers.RepeatedCompositeFieldContainer[RowTurn]
    start: RowStart
    parent: int
    num_shared_tokens: int
    def __init__(self, token_ids: _Optional[bytes] = ..., loss_mask: _Optional[bytes] = ..., log_probs: _Optional[bytes] = ..., turns: _Optional[_Iterable[_Union[RowTurn, _Mapping]]] = ..., start: _Optional[_Union[RowStart, str]] = ..., parent: _Optional[int] = ..., num_shared_tokens: _Optional[int] = ...) -> None: ...

class RowTurn(_message.Message):
    __slots__ = ("call_index", "prompt_index", "completion_index", "step", "start", "end", "weight_spans", "finish_reason", "constrained")
    CALL_INDEX_FIELD_NUMBER: _ClassVar[int]
    PROMPT_INDEX_FIELD_NUMBER: _ClassVar[int]
    COMPLETION_INDEX_FIELD_NUMBER: _ClassVar[int]
    STEP_FIELD_NUMBER: _ClassVar[int]
    START_FIELD_NUMBER: _ClassVar[int]
    END_FIELD_NUMBER: _ClassVar[int]
    WEIGHT_SPANS_FIELD_NUMBER: _ClassVar[int]
    FINISH_REASON_FIELD_NUMBER: _ClassVar[int]
    CONSTRAINED_FIELD_NUMBER: _ClassVar[int]
    call_index: int
    prompt_index: int
    completion_index: int
    step: int
    start: int
    end: int
    weight_spans: _containers.RepeatedCompositeFieldContainer[_sampling_pb2.WeightSpan]
    finish_reason: _sampling_pb2.FinishReason
    constrained: bool
    def __init__(self, call_index: _Optional[int] = ..., prompt_index: _Optional[int] = ..., completion_index: _Optional[int] = ..., step: _Optional[int] = ..., start: _Optional[int] = ..., end: _Optional[int] = ..., weight_spans: _Optional[_Iterable[_Union[_sampling_pb2.WeightSpan, _Mapping]]] = ..., finish_reason: _Optional[_Union[_sampling_pb2.FinishReason, str]] = ..., constrained: bool = ...) -> None: ...

class DroppedCompletion(_message.Message):
    __slots__ = ("call_index", "prompt_index", "completion_index", "status", "num_tokens")
    CALL_INDEX_FIELD_NUMBER: _ClassVar[int]
    PROMPT_INDEX_FIELD_NUMBER: _ClassVar[int]
    COMPLETION_INDEX_FIELD_NUMBER: _ClassVar[int]
    STATUS_FIELD_NUMBER: _ClassVar[int]
    NUM_TOKENS_FIELD_NUMBER: _ClassVar[int]
    call_index: int
    prompt_index: int
    completion_index: int
    status: RolloutCallStatus
    num_tokens: int
    def __init__(self, call_index: _Optional[int] = ..., prompt_index: _Optional[int] = ..., completion_index: _Optional[int] = ..., status: _Optional[_Union[RolloutCallStatus, str]] = ..., num_tokens: _Optional[int] = ...) -> None: ...

class CancelRolloutsRequest(_message.Message):
    __slots__ = ("rollout_ids", "reason")
    ROLLOUT_IDS_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    rollout_ids: _containers.RepeatedScalarFieldContainer[str]
    reason: str
    def __init__(self, rollout_ids: _Optional[_Iterable[str]] = ..., reason: _Optional[str] = ...) -> None: ...

class CancelRolloutsResponse(_message.Message):
    __slots__ = ("rollouts",)
    ROLLOUTS_FIELD_NUMBER: _ClassVar[int]
    rollouts: _containers.RepeatedCompositeFieldContainer[Rollout]
    def __init__(self, rollouts: _Optional[_Iterable[_Union[Rollout, _Mapping]]] = ...) -> None: ...

class DiscardRolloutsRequest(_message.Message):
    __slots__ = ("rollout_ids", "collected")
    ROLLOUT_IDS_FIELD_NUMBER: _ClassVar[int]
    COLLECTED_FIELD_NUMBER: _ClassVar[int]
    rollout_ids: _containers.RepeatedScalarFieldContainer[str]
    collected: bool
    def __init__(self, rollout_ids: _Optional[_Iterable[str]] = ..., collected: bool = ...) -> None: ...

class DiscardRolloutsResponse(_message.Message):
    __slots__ = ("num_discarded",)
    NUM_DISCARDED_FIELD_NUMBER: _ClassVar[int]
    num_discarded: int
    def __init__(self, num_discarded: _Optional[int] = ...) -> None: ...
