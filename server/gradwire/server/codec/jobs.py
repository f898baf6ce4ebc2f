"""Job messages <-> domain values: configurations in, jobs out."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from google.protobuf import struct_pb2

from gradwire.server.codec.times import timestamp
from gradwire.server.domain.adapters import of_tenant, served
from gradwire.server.domain.jobs import Adapter, JobKind, JobState
from gradwire.server.domain.registry import AnyJob
from gradwire.server.engines.sampling import ModelInfo, SamplerConfig
from gradwire.server.engines.scoring import DEEPSPEED, VLLM, LogProbConfig
from gradwire.server.engines.training import LoraConfig, OptimizerConfig, SchedulerConfig, TrainingConfig
from gradwire.server.engines.weights import InFlightPolicy, MemoryReport
from gradwire.server.errors import InvalidArgument
from gradwire.v1 import job_pb2, sampling_pb2

IN_FLIGHT = {
    sampling_pb2.IN_FLIGHT_POLICY_ABORT: InFlightPolicy.ABORT,
    sampling_pb2.IN_FLIGHT_POLICY_WAIT: InFlightPolicy.WAIT,
    sampling_pb2.IN_FLIGHT_POLICY_KEEP: InFlightPolicy.KEEP,
}
_KINDS = {
    JobKind.TRAINING: job_pb2.JOB_KIND_TRAINING,
    JobKind.SAMPLING: job_pb2.JOB_KIND_SAMPLING,
    JobKind.LOG_PROB: job_pb2.JOB_KIND_LOG_PROB,
}
_STATES = {state: job_pb2.JobState.Value(f"JOB_STATE_{state.name}") for state in JobState}


def encode_memory(memory: MemoryReport) -> sampling_pb2.MemoryChange:
    """Memory around an operation."""
    return sampling_pb2.MemoryChange(before_bytes=memory.before_bytes, after_bytes=memory.after_bytes)


def struct_to_dict(struct: struct_pb2.Struct) -> dict[str, Any]:
    """A Struct as a dict; whole numbers as int, since JSON and Struct only have one kind of number."""
    return {key: _plain(value) for key, value in struct.fields.items()}


def _plain(value: struct_pb2.Value) -> Any:
    match value.WhichOneof("kind"):
        case "number_value":
            number = value.number_value
            return int(number) if number.is_integer() else number
        case "struct_value":
            return struct_to_dict(value.struct_value)
        case "list_value":
            return [_plain(item) for item in value.list_value.values]
        case "null_value" | None:
            return None
        case kind:
            return getattr(value, kind)


def _given(message: Any, names: Mapping[str, str]) -> dict[str, Any]:
    """Fields that are present, under the names of a dataclass."""
    return {ours: getattr(message, theirs) for theirs, ours in names.items() if message.HasField(theirs)}


_TRAINING = {
    n: n
    for n in (
        "dtype", "max_grad_norm", "zero_stage", "num_workers", "seed", "max_tokens_per_micro_batch",
        "gradient_checkpointing", "threads", "packing",
    )
}  # fmt: skip
_OPTIMIZER = {n: n for n in ("name", "eps", "weight_decay", "momentum")} | {"learning_rate": "lr"}
_SCHEDULER = {n: n for n in ("name", "warmup_steps", "total_steps", "min_lr_ratio")}
_SAMPLING = {
    n: n
    for n in (
        "dtype", "max_model_len", "max_num_seqs", "max_num_batched_tokens", "kv_cache_bytes",
        "gpu_memory_utilization", "tensor_parallel_size", "data_parallel_size", "max_log_probs",
        "enable_prefix_caching", "enforce_eager", "seed", "max_loras", "max_lora_rank",
    )
}  # fmt: skip
_LOG_PROB = {
    n: n
    for n in (
        "dtype", "num_workers", "max_model_len", "max_log_probs", "kv_cache_bytes", "gpu_memory_utilization",
        "tensor_parallel_size", "max_tokens_per_micro_batch", "threads",
    )
}  # fmt: skip
_ENGINES = {VLLM: job_pb2.LOG_PROB_ENGINE_VLLM, DEEPSPEED: job_pb2.LOG_PROB_ENGINE_DEEPSPEED}


def decode_training(message: job_pb2.TrainingJobConfig, *, model: str, model_path: str) -> TrainingConfig:
    """A training configuration with defaults applied."""
    betas = (
        message.optimizer.beta1 if message.optimizer.HasField("beta1") else 0.9,
        message.optimizer.beta2 if message.optimizer.HasField("beta2") else 0.999,
    )
    optimizer = OptimizerConfig(betas=betas, **_given(message.optimizer, _OPTIMIZER))
    scheduler = SchedulerConfig(**_given(message.scheduler, _SCHEDULER))
    if scheduler.name != "constant" and scheduler.total_steps <= scheduler.warmup_steps:
        raise InvalidArgument.at(
            "training.scheduler.total_steps",
            f"is {scheduler.total_steps}; {scheduler.name!r} takes more than warmup_steps ({scheduler.warmup_steps})",
        )
    return TrainingConfig(
        model=model,
        model_path=model_path,
        optimizer=optimizer,
        scheduler=scheduler,
        loss=message.loss or "grpo",
        loss_config=struct_to_dict(message.loss_config),
        lora=_decode_lora(message.lora) if message.HasField("lora") else None,
        **_given(message, _TRAINING),
    )


def _decode_lora(message: job_pb2.LoraConfig) -> LoraConfig:
    alpha = message.alpha if message.HasField("alpha") else float(message.rank)
    return LoraConfig(message.rank, alpha, tuple(message.target_modules))


def decode_sampling(message: job_pb2.SamplingJobConfig, *, model: str, model_path: str) -> SamplerConfig:
    """A sampling configuration; what is absent is the engine's to decide."""
    return SamplerConfig(model=model, model_path=model_path, **_given(message, _SAMPLING))


def decode_log_prob(message: job_pb2.LogProbJobConfig, *, model: str, model_path: str) -> LogProbConfig:
    """A log-prob configuration; what is absent is the engine's to decide."""
    engine = DEEPSPEED if message.engine == job_pb2.LOG_PROB_ENGINE_DEEPSPEED else VLLM
    return LogProbConfig(model=model, model_path=model_path, engine=engine, **_given(message, _LOG_PROB))


def _encode_training(config: TrainingConfig) -> job_pb2.TrainingJobConfig:
    message = job_pb2.TrainingJobConfig(
        model=config.model, loss=config.loss, **{theirs: getattr(config, ours) for theirs, ours in _TRAINING.items()}
    )
    message.loss_config.update(dict(config.loss_config))
    message.optimizer.MergeFrom(
        job_pb2.OptimizerConfig(
            beta1=config.optimizer.betas[0],
            beta2=config.optimizer.betas[1],
            **{theirs: getattr(config.optimizer, ours) for theirs, ours in _OPTIMIZER.items()},
        )
    )
    message.scheduler.MergeFrom(
        job_pb2.SchedulerConfig(**{theirs: getattr(config.scheduler, ours) for theirs, ours in _SCHEDULER.items()})
    )
    if config.lora is not None:
        message.lora.rank, message.lora.alpha = config.lora.rank, config.lora.alpha
        message.lora.target_modules.extend(config.lora.target_modules)
    return message


def _encode_sampling(config: SamplerConfig) -> job_pb2.SamplingJobConfig:
    known = {theirs: getattr(config, ours) for theirs, ours in _SAMPLING.items()}
    # 0 and None mean that the engine decided: absent on the wire.
    given = {k: v for k, v in known.items() if v or isinstance(v, bool) or k == "seed"}
    if not config.max_loras:
        del given["max_lora_rank"]
    return job_pb2.SamplingJobConfig(model=config.model, **given)


def _encode_log_prob(config: LogProbConfig) -> job_pb2.LogProbJobConfig:
    known = {theirs: getattr(config, ours) for theirs, ours in _LOG_PROB.items()}
    given = {k: v for k, v in known.items() if v or k == "max_log_probs"}
    return job_pb2.LogProbJobConfig(model=config.model, engine=_ENGINES[config.engine], **given)


def encode_facts(info: ModelInfo) -> job_pb2.ModelFacts:
    """What a caller needs to know of a model that samples or scores."""
    return job_pb2.ModelFacts(
        max_model_len=info.max_model_len,
        vocab_size=info.vocab_size,
        eos_token_ids=info.eos_token_ids,
        has_chat_template=info.has_chat_template,
        max_log_probs=info.max_log_probs,
        dtype=info.dtype,
        architecture=info.architecture,
    )


def encode_job(job: AnyJob, tenant: str) -> job_pb2.Job:
    """A job as a tenant sees it."""
    sampling = job.kind is JobKind.SAMPLING
    message = job_pb2.Job(
        job_id=job.job_id,
        kind=_KINDS[job.kind],
        state=_STATES[job.state],  # type: ignore[arg-type]
        model=job.config.model,
        weight_version=served(job, "", tenant).weight_version if sampling else job.weight_version,
        created_at=timestamp(job.created),
        error=job.error,
        built_in=job.tenant is None,
    )
    if job.lease is not None:
        message.lease_expires_at.CopyFrom(timestamp(job.lease.expires_at))
    if isinstance(job.config, TrainingConfig):
        message.training.CopyFrom(_encode_training(job.config))
        return message
    if isinstance(job.config, LogProbConfig):
        message.log_prob.CopyFrom(_encode_log_prob(job.config))
    else:
        message.sampling.CopyFrom(_encode_sampling(job.config))
        message.adapters.extend(_encode_adapter(adapter) for adapter in of_tenant(job, tenant))
    if job.started:
        message.facts.CopyFrom(encode_facts(job.engine.info))
    return message


def _encode_adapter(adapter: Adapter) -> job_pb2.Adapter:
    return job_pb2.Adapter(
        name=adapter.name,
        weight_version=adapter.weight_version,
        training_job_id=adapter.training_job_id,
        rank=adapter.rank,
        since=timestamp(adapter.since),
        base_differs=bool(adapter.trained_on),
    )
