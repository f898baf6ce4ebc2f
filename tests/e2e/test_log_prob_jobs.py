"""Log-prob jobs on both engines: they agree with the trainer, stay frozen, are reset, and die alone."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from gradwire.client import (
    Client,
    FailedPreconditionError,
    InvalidArgumentError,
    Job,
    JobKind,
    JobState,
    LogProbEngine,
    NotFoundError,
)
from tests.e2e.conftest import TrainerFactory
from tests.serving import ServerProcess, descendants

ENGINES = ("vllm", "deepspeed")
ROWS = [list(b"The quick brown fox"), [7], list("Zürich — 42 €".encode()), list(range(200, 230))]
BATCH: dict[str, Any] = {"input_ids": ROWS}


@pytest.fixture(scope="module")
def references(client: Client) -> Iterator[dict[str, Job]]:
    """One job of each engine, for the whole module."""
    made: dict[str, Job] = {}
    for engine, own in (("vllm", {"kv_cache_bytes": 1 << 27}), ("deepspeed", {"num_workers": 2, "threads": 1})):
        config = {"model": "tiny", "engine": engine, "dtype": "float32", **own}
        made[engine] = client.jobs.create(log_prob=config).log_prob
    yield made
    for job in made.values():
        client.jobs.destroy(job)


def shifted(client: Client, job: Job, batch: dict[str, Any] = BATCH) -> list[np.ndarray]:
    return list(client.training.fwd_no_grad(job, batch).log_probs_shifted)


def assert_close(left: list[np.ndarray], right: list[np.ndarray]) -> None:
    for one, other in zip(left, right, strict=True):
        np.testing.assert_allclose(one, other, atol=1e-3)


def move(client: Client, trainer: Job) -> None:
    client.training.fwd_bwd(trainer, BATCH, loss="cross_entropy")
    client.training.step(trainer)


def test_engines_and_trainer_agree_and_a_reference_stays_until_it_is_reset(
    client: Client, references: dict[str, Job], make_trainer: TrainerFactory
) -> None:
    trainer = make_trainer()
    before = shifted(client, trainer)
    assert max(float(np.abs(row).max()) for row in before) > 1
    for engine, job in references.items():
        found = client.training.fwd_no_grad(job, BATCH)
        assert_close(list(found.log_probs_shifted), before)
        assert all(row[-1] == 0 for row in found.log_probs_shifted), engine

    for _ in range(3):
        move(client, trainer)
    after = shifted(client, trainer)
    assert max(float(np.abs(a - b).max()) for a, b in zip(after, before, strict=True)) > 0.05
    for job in references.values():
        assert_close(shifted(client, job), before)
        with pytest.raises(FailedPreconditionError, match="min_weight_version"):
            client.sampling.log_probs(ROWS[0], job=job, min_weight_version=1)

        report = client.weights.sync(trainer, log_prob_job=job, verify=True)
        assert (report.weight_version, client.jobs.get(job).weight_version) == (3, 3)
        assert_close(shifted(client, job), after)
        (score,) = client.sampling.log_probs(ROWS[0], job=job, min_weight_version=3)
        assert score.weight_version == 3
        assert client.weights.get_norm(job).norm == pytest.approx(client.weights.get_norm(trainer).norm, rel=1e-12)
        assert client.weights.get_checksums(job).checksums == client.weights.get_checksums(trainer).checksums


def test_a_dense_batch_comes_back_in_its_grid(client: Client, references: dict[str, Job]) -> None:
    ids = np.array([[0, 0, 5, 6, 7], [8, 9, 10, 11, 12]])
    grid = {"input_ids": ids, "attention_mask": ids > 0}
    vllm, deepspeed = (client.training.fwd_no_grad(references[engine], grid).log_probs_shifted for engine in ENGINES)
    assert np.shape(vllm) == np.shape(deepspeed) == (2, 5)
    np.testing.assert_allclose(vllm, deepspeed, atol=1e-3)
    assert not np.any(np.asarray(vllm)[0, [0, 1, 4]]) and np.all(np.asarray(vllm)[0, [2, 3]] < 0)


def test_prompts_completions_and_alternatives(client: Client, references: dict[str, Job]) -> None:
    prompts: Any = ["The capital", "Zürich — €", "alone", [5, 6]]
    completions: Any = [" of France", "", "ß", [7, 8, 9]]
    found = {e: client.sampling.log_probs(prompts, completions, top_k=3, job=j) for e, j in references.items()}
    for ours, theirs in zip(found["vllm"], found["deepspeed"], strict=True):
        assert ours.prompt.token_ids.tolist() == theirs.prompt.token_ids.tolist()
        assert ours.completion_token_ids.tolist() == theirs.completion_token_ids.tolist()
        assert ours.prompt.log_probs is not None and theirs.prompt.log_probs is not None
        assert np.isnan(ours.prompt.log_probs[0]) and np.isnan(theirs.prompt.log_probs[0])
        np.testing.assert_allclose(ours.prompt.log_probs, theirs.prompt.log_probs, atol=1e-3)
        np.testing.assert_allclose(ours.completion_log_probs, theirs.completion_log_probs, atol=1e-3)
        for one, other in (
            (ours.prompt.top_log_probs, theirs.prompt.top_log_probs),
            (ours.completion_top_log_probs, theirs.completion_top_log_probs),
        ):
            if one is None or other is None:
                assert one is other and len(ours.completion_token_ids) == 0
                continue
            assert one.token_ids.shape == other.token_ids.shape == (len(one.token_ids), 3)
            np.testing.assert_allclose(one.log_probs, other.log_probs, atol=1e-3)
            assert np.mean(one.token_ids == other.token_ids) > 0.9  # two of the same log-prob may change places
    assert [len(score.completion_token_ids) for score in found["vllm"]] == [10, 0, 2, 3]
    (bare,) = client.sampling.log_probs("only a prompt", job=references["deepspeed"])
    assert bare.prompt.top_log_probs is None and len(bare.completion_log_probs) == 0


def test_deepspeed_alone_has_entropies_and_temperatures(
    client: Client, references: dict[str, Job], make_trainer: TrainerFactory
) -> None:
    trainer = make_trainer()
    client.weights.sync(trainer, log_prob_job=references["deepspeed"])
    ours, theirs = (
        client.training.fwd_no_grad(job, BATCH, temperature=0.5, entropy=True)
        for job in (references["deepspeed"], trainer)
    )
    assert_close(list(ours.log_probs_shifted), list(theirs.log_probs_shifted))
    assert ours.entropy is not None and theirs.entropy is not None
    assert_close(list(ours.entropy), list(theirs.entropy))
    wishes: list[dict[str, Any]] = [{"temperature": 0.5}, {"entropy": True}]
    for wish in wishes:
        with pytest.raises(InvalidArgumentError, match=r"(?i)deepspeed") as refused:
            client.training.fwd_no_grad(references["vllm"], BATCH, **wish)
        assert refused.value.field_violations[0][0] == next(iter(wish))


@pytest.mark.parametrize("engine", ENGINES)
def test_a_sleeping_reference_wakes_as_it_was(client: Client, references: dict[str, Job], engine: str) -> None:
    job = references[engine]
    before, version = shifted(client, job), client.jobs.get(job).weight_version
    slept = client.sampling.sleep(job=job) if engine == "vllm" else client.training.sleep(job)
    assert slept.changed and slept.after_bytes < slept.before_bytes
    assert client.jobs.get(job).state is JobState.SLEEPING
    assert not client.sampling.sleep(job=job).changed
    for call in (lambda: client.sampling.log_probs("x", job=job), lambda: shifted(client, job)):
        with pytest.raises(FailedPreconditionError, match=r"(?i)wake") as caught:
            call()
        assert caught.value.reason == "SAMPLER_ASLEEP"
    assert (client.training.wake(job) if engine == "deepspeed" else client.sampling.wake(job=job)).changed
    assert not client.training.wake(job).changed
    assert (client.jobs.get(job).state, client.jobs.get(job).weight_version) == (JobState.READY, version)
    for one, other in zip(shifted(client, job), before, strict=True):
        np.testing.assert_array_equal(one, other)
    refused: list[Callable[[], object]] = [lambda: client.training.sleep(job, "non_lp")]
    if engine == "deepspeed":
        refused += [lambda: client.sampling.sleep(2, job=job), lambda: client.sampling.wake("weights", job=job)]
    for wrong in refused:
        with pytest.raises(InvalidArgumentError, match=r"mode|level|part"):
            wrong()


@pytest.mark.parametrize("engine", ENGINES)
def test_bad_input(client: Client, references: dict[str, Job], make_trainer: TrainerFactory, engine: str) -> None:
    job = references[engine]
    facts = client.jobs.get(job).facts
    assert facts is not None
    longest = facts.max_model_len - (engine == "vllm")
    too_long = [1] * (longest + 1)

    def refused(call: Callable[[], object], field: str, match: str) -> None:
        with pytest.raises(InvalidArgumentError, match=match) as error:
            call()
        assert [violation[0] for violation in error.value.field_violations] == [field]

    for call, field, match in (
        (lambda: client.sampling.log_probs("x", top_k=21, job=job), "top_k", "at most 20"),
        (lambda: client.sampling.log_probs([[1], [999]], job=job), "items[1]", "999"),
        (lambda: client.sampling.log_probs(too_long, job=job), "items[0]", f"at most {longest}"),
        (
            lambda: client.training.fwd_no_grad(job, {"input_ids": [[1], too_long]}),
            "batch.input_ids",
            "row 1",
        ),
        (lambda: client.sampling.generate("x", job=job), "job_id", "is a log-prob job; this call takes a sampling job"),
        (lambda: client.training.step(job), "job_id", "is a log-prob job; this call takes a training job"),
        (lambda: client.weights.sync(job), "training_job_id", "is a log-prob job"),
        (lambda: client.weights.sync(make_trainer(), 1, log_prob_job=job), "log_prob_job_id", "one job a call"),
    ):
        refused(call, field, match)
    assert len(client.sampling.log_probs([1] * longest, job=job)) == 1
    with pytest.raises(
        InvalidArgumentError, match=r"log_prob_job_id: .* trains tiny-untied, .* scores with tiny, whose"
    ):
        client.weights.sync(make_trainer(model="tiny-untied"), log_prob_job=job)
    client.sampling.log_probs("still there", job=job)


def test_configurations_that_cannot_work(client: Client) -> None:
    for config, field in (
        ({"engine": "deepspeed", "kv_cache_bytes": 1 << 27}, "log_prob.kv_cache_bytes"),
        ({"engine": "deepspeed", "dtype": "float16"}, "log_prob.dtype"),
        ({"engine": "deepspeed", "num_workers": 1000}, "log_prob.num_workers"),
        ({"engine": "vllm", "threads": 2}, "log_prob.threads"),
        ({"engine": "vllm", "kv_cache_bytes": 10**14}, "log_prob.kv_cache_bytes"),
        ({"model": "no-such-model"}, "log_prob.model"),
        ({"model": "checkpoint:../up"}, "log_prob.model"),
    ):
        began = time.monotonic()
        with pytest.raises(InvalidArgumentError) as refused:
            client.jobs.create(log_prob=config)
        assert [violation[0] for violation in refused.value.field_violations] == [field], config
        assert time.monotonic() - began < 10
    with pytest.raises(NotFoundError, match=r"log_prob\.model: no checkpoint 'nope'"):
        client.jobs.create(log_prob={"model": "checkpoint:nope"})
    assert all(job.state is JobState.READY for job in client.jobs.list(JobKind.LOG_PROB))


@pytest.mark.parametrize("engine", ENGINES)
def test_a_killed_engine_fails_its_job_and_nothing_else(
    client: Client, server: ServerProcess, references: dict[str, Job], engine: str
) -> None:
    before = set(descendants(server.pid))
    own = {"kv_cache_bytes": 1 << 27} if engine == "vllm" else {"threads": 1}
    job = client.jobs.create(log_prob={"engine": engine, **own}).log_prob
    assert job.kind is JobKind.LOG_PROB and job.config is not None
    assert job.config.engine is LogProbEngine(engine)  # type: ignore[union-attr]
    changes = iter(client.jobs.watch(job))
    assert next(changes).job.state is JobState.READY
    for pid in set(descendants(server.pid)) - before:
        os.kill(pid, signal.SIGKILL)
    update = next(changes)
    assert update.job.state is JobState.FAILED and update.job.error
    with pytest.raises(FailedPreconditionError, match="failed"):
        client.sampling.log_probs("x", job=job)
    with pytest.raises(FailedPreconditionError, match="failed"):
        client.training.fwd_no_grad(job, BATCH)
    client.jobs.destroy(job)
    client.sampling.log_probs("x", job=references[engine])
    client.sampling.generate("x", max_tokens=1)
