"""Jobs and their configurations. A field of a configuration that is None takes the server's default.

Knows: meaning and defaults. Does not know: protobuf. A mapping with the same keys serves wherever a
configuration does.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any

from gradwire.client.types.shown import Brief


class JobKind(StrEnum):
    """What a job does."""

    UNSPECIFIED = "unspecified"
    TRAINING = "training"
    SAMPLING = "sampling"
    LOG_PROB = "log_prob"


class JobState(StrEnum):
    """Where a job is in its life."""

    UNSPECIFIED = "unspecified"
    STARTING = "starting"
    """Its engine is starting."""
    READY = "ready"
    """It works."""
    SLEEPING = "sleeping"
    """Its memory is given back; it can be woken."""
    PAUSED = "paused"
    """Its lease has lapsed: it refuses work, and is destroyed unless a heartbeat comes."""
    FAILED = "failed"
    """Its engine died; `error` says why."""
    DESTROYED = "destroyed"
    """Gone."""


class LogProbEngine(StrEnum):
    """Engine of a log-prob job."""

    UNSPECIFIED = "unspecified"
    """vLLM."""
    VLLM = "vllm"
    DEEPSPEED = "deepspeed"
    """A forward-only training worker."""


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class OptimizerConfig(Brief):
    """An optimizer."""

    name: str | None = None
    """"adamw" or "sgd". Default "adamw"."""
    learning_rate: float | None = None
    """Default 1e-5."""
    beta1: float | None = None
    """Default 0.9. Ignored by sgd."""
    beta2: float | None = None
    """Default 0.999. Ignored by sgd."""
    eps: float | None = None
    """Default 1e-8. Ignored by sgd."""
    weight_decay: float | None = None
    """Default 0."""
    momentum: float | None = None
    """Default 0. Ignored by adamw."""


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class SchedulerConfig(Brief):
    """A learning-rate schedule, by optimizer step: a linear warm-up, then the named shape."""

    name: str | None = None
    """"constant", "linear" or "cosine". Default "constant"."""
    warmup_steps: int | None = None
    """Default 0."""
    total_steps: int | None = None
    """Steps until the lowest rate. Required by "linear" and "cosine"."""
    min_lr_ratio: float | None = None
    """The lowest rate, as a part of the learning rate. Default 0."""


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class LoraConfig(Brief):
    """A low-rank adapter (LoRA, arXiv 2106.09685)."""

    rank: int
    """1 to 1024."""
    alpha: float | None = None
    """Scale: the adapter's output is multiplied by alpha / rank. Default: rank."""
    target_modules: Sequence[str] | None = None
    """Modules that get an adapter, like "q_proj". Default: all linear layers but the head."""


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class TrainingJobConfig(Brief):
    """Configuration of a training job."""

    model: str | None = None
    """A name, a folder on the server, or "checkpoint:NAME". Default: the server's model."""
    dtype: str | None = None
    """"float32" or "bfloat16" in forward and backward. Default "float32"."""
    optimizer: OptimizerConfig | Mapping[str, Any] | None = None
    """Default: AdamW."""
    scheduler: SchedulerConfig | Mapping[str, Any] | None = None
    """Default: constant."""
    max_grad_norm: float | None = None
    """Clip gradients to this norm; 0 does not clip. Default 1."""
    zero_stage: int | None = None
    """ZeRO stage, 0 to 3. Default 0."""
    num_workers: int | None = None
    """Data-parallel workers. Default 1."""
    seed: int | None = None
    """Default 0."""
    max_tokens_per_micro_batch: int | None = None
    """Real tokens that one forward pass of a worker holds at most. Default 4096."""
    gradient_checkpointing: bool | None = None
    """Recompute activations in backward. Default false."""
    loss: str | None = None
    """Loss of calls that name none. Default "grpo"."""
    loss_config: Mapping[str, Any] | None = None
    """Its configuration."""
    lora: LoraConfig | Mapping[str, Any] | None = None
    """Train an adapter instead of all weights. Default: all weights."""
    threads: int | None = None
    """Threads of a worker on CPU. Default: all cores."""
    packing: bool | None = None
    """False: each row is padded instead of laid end to end with others. Never changes the result. Default true."""


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class SamplingJobConfig(Brief):
    """Configuration of a sampling job."""

    model: str | None = None
    """As in TrainingJobConfig. Default: the server's model."""
    dtype: str | None = None
    """"auto", "float32", "bfloat16" or "float16". Default "auto" (the model's own)."""
    max_model_len: int | None = None
    """Prompt and completion together, in tokens. Default: the model's limit."""
    max_num_seqs: int | None = None
    """Completions sampled at the same time. Default: the engine's."""
    max_num_batched_tokens: int | None = None
    """Tokens that one step of the engine handles. Default: the engine's."""
    kv_cache_bytes: int | None = None
    """Bytes of KV cache on CPU. Default 1 GiB."""
    gpu_memory_utilization: float | None = None
    """Part of a GPU's memory that the engine takes. Default 0.9."""
    tensor_parallel_size: int | None = None
    """GPUs that one replica is spread over. Default 1."""
    data_parallel_size: int | None = None
    """Replicas. Default 1."""
    max_log_probs: int | None = None
    """Alternatives that log-probs may ask for. Default 20."""
    enable_prefix_caching: bool | None = None
    """Default true."""
    enforce_eager: bool | None = None
    """Do not compile the model. Default: true on CPU, false on a GPU."""
    seed: int | None = None
    """Seeds requests that have no seed. Default 0."""
    max_loras: int | None = None
    """Adapters of LoRA jobs that it can hold at once, 0 to 256. Default 0."""
    max_lora_rank: int | None = None
    """Highest rank of an adapter, 1 to 512. Default 32."""


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class LogProbJobConfig(Brief):
    """Configuration of a log-prob job: frozen weights that score, until `weights.sync` resets them."""

    model: str | None = None
    """As in TrainingJobConfig. Default: the server's model."""
    engine: LogProbEngine | str | None = None
    """"vllm" (log-probs at temperature 1) or "deepspeed" (entropies and any temperature, too). Default "vllm"."""
    dtype: str | None = None
    """As in SamplingJobConfig, but no "float16" with DeepSpeed. Default "auto"."""
    num_workers: int | None = None
    """Workers that share the rows, each with a whole model. Default 1."""
    max_model_len: int | None = None
    """Tokens of the longest text; vLLM scores one less. Default: the model's limit."""
    max_log_probs: int | None = None
    """Alternatives that `log_probs(top_k=...)` may ask for. Default 20."""
    kv_cache_bytes: int | None = None
    """Bytes of KV cache on CPU. Default 1 GiB. vLLM's alone: an error with DeepSpeed."""
    gpu_memory_utilization: float | None = None
    """Part of a GPU's memory that the engine takes. Default 0.9. vLLM's alone."""
    tensor_parallel_size: int | None = None
    """GPUs that one replica is spread over. Default 1. vLLM's alone."""
    max_tokens_per_micro_batch: int | None = None
    """Real tokens that one forward pass of a worker holds at most. Default 4096. DeepSpeed's alone."""
    threads: int | None = None
    """Threads of a worker on CPU. Default: all cores. DeepSpeed's alone."""


JobConfig = TrainingJobConfig | SamplingJobConfig | LogProbJobConfig


@dataclass(frozen=True, slots=True, repr=False)
class ModelFacts(Brief):
    """What a caller needs to know of a model that samples or scores."""

    max_model_len: int
    """Prompt and completion together, in tokens."""
    vocab_size: int
    """Token ids are below this."""
    eos_token_ids: tuple[int, ...]
    """Tokens that end a completion."""
    has_chat_template: bool
    max_log_probs: int
    """Alternatives that log-probs may ask for."""
    dtype: str
    """Type of the weights."""
    architecture: str
    """As Hugging Face names it."""


@dataclass(frozen=True, slots=True, repr=False)
class Adapter(Brief):
    """An adapter that a sampling job serves."""

    name: str
    """It was synced under; "default": without one."""
    weight_version: int
    """That of the training job when it was synced."""
    training_job_id: int
    """Where it comes from."""
    rank: int
    since: datetime | None
    base_differs: bool = False
    """The job now serves other weights than those that it was trained on: calls that use it are
    FailedPreconditionError (ADAPTER_BASE_DIFFERS) until it is synced again."""


@dataclass(frozen=True, slots=True, repr=False)
class Job(Brief):
    """A job. Wherever a call takes a job, its id does as well."""

    job_id: int
    kind: JobKind
    state: JobState
    model: str
    weight_version: int
    created_at: datetime | None
    lease_expires_at: datetime | None
    """None for a job without a lease."""
    error: str
    """Why it failed; empty otherwise."""
    config: JobConfig | None
    """With defaults applied."""
    facts: ModelFacts | None
    """Only of sampling and log-prob jobs."""
    built_in: bool
    """It was made by the server at its start."""
    adapters: tuple[Adapter, ...] = ()
    """That it serves to the caller, by name. Only of sampling jobs."""


JobRef = Job | int
"""A job, or its id."""


@dataclass(frozen=True, slots=True, repr=False)
class JobProgress(Brief):
    """A line of progress."""

    job_id: int
    message: str


@dataclass(frozen=True, slots=True, repr=False)
class JobUpdate(Brief):
    """A job as it is now, and what has just happened (empty at first)."""

    job: Job
    message: str


@dataclass(frozen=True, slots=True, repr=False)
class Lease(Brief):
    """A lease and when it lapses: None for a job without one."""

    job_id: int
    expires_at: datetime | None


@dataclass(frozen=True, slots=True, repr=False)
class CreatedJobs(Brief):
    """The jobs of one create call. Asking for a kind that was not made is a LookupError."""

    jobs: tuple[Job, ...]

    def __iter__(self) -> Iterator[Job]:
        return iter(self.jobs)

    def __len__(self) -> int:
        return len(self.jobs)

    @property
    def training(self) -> Job:
        """The training job."""
        return self._of(JobKind.TRAINING)

    @property
    def sampling(self) -> Job:
        """The sampling job."""
        return self._of(JobKind.SAMPLING)

    @property
    def log_prob(self) -> Job:
        """The log-prob job."""
        return self._of(JobKind.LOG_PROB)

    def _of(self, kind: JobKind) -> Job:
        for job in self.jobs:
            if job.kind is kind:
                return job
        raise LookupError(f"no {kind.value} job was made; pass {kind.value}= to jobs.create")
