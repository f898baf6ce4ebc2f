"""Jobs and their configurations, both ways."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gradwire.client._convert.enums import enum_from_proto
from gradwire.client._convert.messages import fill, put, read
from gradwire.client._convert.times import duration, moment
from gradwire.client._core.arguments import given, whole
from gradwire.client.types.jobs import (
    Adapter,
    CreatedJobs,
    Job,
    JobConfig,
    JobKind,
    JobRef,
    JobState,
    LogProbEngine,
    LogProbJobConfig,
    LoraConfig,
    ModelFacts,
    OptimizerConfig,
    SamplingJobConfig,
    SchedulerConfig,
    TrainingJobConfig,
)
from gradwire.v1 import job_pb2 as pb


def job_id(job: JobRef | None, where: str = "job") -> int:
    """Id of a job or of the server's own (0) for None. TypeError for what is no job. `where` names it in errors."""
    if job is None:
        return 0
    if isinstance(job, Job):
        return job.job_id
    if isinstance(job, CreatedJobs):
        kinds = " or ".join(f".{one.kind.value}" for one in job)
        raise TypeError(f"{where} is all that jobs.create made; it takes one job of them: {kinds}")
    number = whole(job, where, "a Job or its integer id, such as 2")
    if not 1 <= number < 2**64:
        raise ValueError(f"{where} is {given(job)}; ids begin with 1: leave it out for the server's own sampling job")
    return number


def training_job_id(job: JobRef, where: str = "job") -> int:
    """As `job_id`, of a call that has no job by default: TypeError for None too."""
    return _chosen(job, where, "training")


def forward_job_id(job: JobRef) -> int:
    """As `training_job_id`, of a call that takes a log-prob job as well."""
    return _chosen(job, "job", "training or log-prob")


def _chosen(job: JobRef, where: str, kinds: str) -> int:
    if job is None:  # what a type checker would have refused
        raise TypeError(f"{where} is None; it takes a {kinds} job: the Job that jobs.create made, or its integer id")
    return job_id(job, where)


def create_to_proto(
    training: object | None,
    sampling: object | None,
    log_prob: object | None,
    lease_s: float | None,
    request_id: str,
) -> pb.CreateJobsRequest:
    """A CreateJobsRequest. TypeError names the key nearest to an unknown one."""
    request = put(pb.CreateJobsRequest(lease=duration(lease_s, "lease_s")), request_id=request_id)
    configs: Mapping[str, object | None] = {"training": training, "sampling": sampling, "log_prob": log_prob}
    for name, config in configs.items():
        if config is not None:
            message = getattr(request, name)
            message.SetInParent()
            fill(message, config, name)
    return request


def job_from_proto(message: pb.Job) -> Job:
    """A job."""
    return Job(
        job_id=message.job_id,
        kind=enum_from_proto(JobKind, pb.JobKind, message.kind),
        state=enum_from_proto(JobState, pb.JobState, message.state),
        model=message.model,
        weight_version=message.weight_version,
        created_at=moment(message, "created_at"),
        lease_expires_at=moment(message, "lease_expires_at"),
        error=message.error,
        config=_config(message),
        facts=_facts(message.facts) if message.HasField("facts") else None,
        built_in=message.built_in,
        adapters=tuple(_adapter(adapter) for adapter in message.adapters),
    )


def _adapter(message: pb.Adapter) -> Adapter:
    return Adapter(
        message.name, message.weight_version, message.training_job_id, message.rank, moment(message, "since"),
        message.base_differs,
    )  # fmt: skip


def _config(message: pb.Job) -> JobConfig | None:
    match message.WhichOneof("config"):
        case "training":
            return read(TrainingJobConfig, message.training, _TRAINING_PARTS)
        case "sampling":
            return read(SamplingJobConfig, message.sampling)
        case "log_prob":
            return read(LogProbJobConfig, message.log_prob, {"engine": _engine})
        case _:
            return None


def _engine(number: int) -> LogProbEngine:
    return enum_from_proto(LogProbEngine, pb.LogProbEngine, number)


_TRAINING_PARTS: Mapping[str, Any] = {
    "optimizer": lambda message: read(OptimizerConfig, message),
    "scheduler": lambda message: read(SchedulerConfig, message),
    "lora": lambda message: read(LoraConfig, message),
}


def _facts(message: pb.ModelFacts) -> ModelFacts:
    return ModelFacts(
        max_model_len=message.max_model_len,
        vocab_size=message.vocab_size,
        eos_token_ids=tuple(message.eos_token_ids),
        has_chat_template=message.has_chat_template,
        max_log_probs=message.max_log_probs,
        dtype=message.dtype,
        architecture=message.architecture,
    )
