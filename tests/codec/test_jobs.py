"""Configurations of jobs in, jobs out: what was given, and the defaults for the rest."""

from __future__ import annotations

import math

import pytest
from google.protobuf import struct_pb2

from gradwire.server.codec.jobs import decode_sampling, decode_training, encode_job, struct_to_dict
from gradwire.server.domain.jobs import Job, JobKind, JobState
from gradwire.server.domain.leases import JobLease
from gradwire.server.engines.base import SamplerEngine, TrainingEngine
from gradwire.server.engines.sampling import SamplerConfig
from gradwire.server.engines.training import OptimizerConfig, SchedulerConfig, TrainingConfig
from gradwire.server.errors import InvalidArgument
from gradwire.v1 import job_pb2
from tests.fake_engines import FakeSampler, FakeTrainer


def training_job(config: TrainingConfig) -> Job[TrainingEngine]:
    return Job(3, JobKind.TRAINING, "alice", config, FakeTrainer(config))


def sampling_job(config: SamplerConfig) -> Job[SamplerEngine]:
    return Job(1, JobKind.SAMPLING, None, config, FakeSampler(config))


def test_an_empty_configuration_is_that_of_the_defaults() -> None:
    config = decode_training(job_pb2.TrainingJobConfig(), model="tiny", model_path="/models/tiny")
    assert config == TrainingConfig("tiny", "/models/tiny")
    assert decode_sampling(job_pb2.SamplingJobConfig(), model="tiny", model_path="/m") == SamplerConfig("tiny", "/m")


def test_what_is_given_arrives_zeros_too() -> None:
    message = job_pb2.TrainingJobConfig(
        dtype="bfloat16", max_grad_norm=0.0, zero_stage=2, num_workers=2, seed=0, max_tokens_per_micro_batch=64,
        gradient_checkpointing=True, loss="gspo", threads=3, packing=False,
        optimizer=job_pb2.OptimizerConfig(name="sgd", learning_rate=0.0, beta1=0.0, eps=1e-6, momentum=0.5),
        scheduler=job_pb2.SchedulerConfig(name="linear", warmup_steps=2, total_steps=10, min_lr_ratio=0.1),
    )  # fmt: skip
    message.loss_config.update({"clip_ratio_low": 0.2, "batch_num_tokens": 64})
    config = decode_training(message, model="tiny", model_path="")
    assert config.optimizer == OptimizerConfig("sgd", 0.0, (0.0, 0.999), 1e-6, 0.0, 0.5)
    assert config.scheduler == SchedulerConfig("linear", 2, 10, 0.1)
    assert (config.max_grad_norm, config.zero_stage, config.loss) == (0.0, 2, "gspo")
    assert config.packing is False
    assert config.loss_config == {"clip_ratio_low": 0.2, "batch_num_tokens": 64}
    assert isinstance(config.loss_config["batch_num_tokens"], int)


@pytest.mark.parametrize("name", ["linear", "cosine"])
def test_a_schedule_that_falls_needs_an_end(name: str) -> None:
    message = job_pb2.TrainingJobConfig(scheduler=job_pb2.SchedulerConfig(name=name, warmup_steps=5, total_steps=5))
    with pytest.raises(InvalidArgument) as caught:
        decode_training(message, model="tiny", model_path="")
    assert caught.value.violations[0].field == "training.scheduler.total_steps"


def test_a_training_job_shows_its_configuration_and_reads_the_same_again() -> None:
    config = TrainingConfig("tiny", optimizer=OptimizerConfig(lr=3e-4), loss_config={"nested": {"a": [1, 2.5, None]}})
    message = encode_job(training_job(config), "local")
    assert (message.job_id, message.kind, message.built_in) == (3, job_pb2.JOB_KIND_TRAINING, False)
    assert not message.HasField("lease_expires_at")
    assert decode_training(message.training, model="tiny", model_path="") == config


def test_a_sampling_job_shows_its_facts_once_it_has_started() -> None:
    job = sampling_job(SamplerConfig("tiny", max_model_len=64))
    assert not encode_job(job, "local").HasField("facts")
    job.started = True
    job.fail("died")
    message = encode_job(job, "local")
    assert message.facts.vocab_size == 256
    assert (message.state, message.error, message.built_in) == (job_pb2.JOB_STATE_FAILED, "died", True)
    assert message.sampling.max_model_len == 64
    assert not message.sampling.HasField("kv_cache_bytes")  # the engine's to decide


@pytest.mark.parametrize("state", list(JobState))
def test_each_state_has_a_name_on_the_wire(state: JobState) -> None:
    job = training_job(TrainingConfig("tiny"))
    job.state = state
    assert job_pb2.JobState.Name(encode_job(job, "local").state) == f"JOB_STATE_{state.name}"


def test_a_lease_shows_when_it_lapses() -> None:
    job = training_job(TrainingConfig("tiny"))
    job.lease = JobLease(100.0)
    expires = encode_job(job, "local").lease_expires_at
    assert expires.seconds == pytest.approx(job.created + 100, abs=60)


def test_numbers_of_a_struct_are_whole_where_they_were_and_odd_ones_do_not_break_it() -> None:
    struct = struct_pb2.Struct()
    struct.update({"i": 3, "f": 0.5, "b": True, "s": "x", "n": None, "l": [1, {"k": 2}], "d": {"e": 4}})
    plain = struct_to_dict(struct)
    assert plain == {"i": 3, "f": 0.5, "b": True, "s": "x", "n": None, "l": [1, {"k": 2}], "d": {"e": 4}}
    assert all(isinstance(number, int) for number in (plain["i"], plain["l"][1]["k"], plain["d"]["e"]))
    struct.fields["nan"].number_value = math.nan
    struct.fields["inf"].number_value = math.inf
    struct.fields["unset"].SetInParent()
    plain = struct_to_dict(struct)
    assert math.isnan(plain["nan"]) and plain["inf"] == math.inf and plain["unset"] is None
