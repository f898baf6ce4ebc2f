"""Sampler, trainer and Hugging Face say the same, before and after trained weights are synced."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from gradwire.client import Client, Job
from gradwire.server.models.resolve import resolve_model
from tests.e2e import reference
from tests.e2e.conftest import TrainerFactory

PROMPTS = ["The quick brown fox", "A", "Zürich — 42 €, naïve café " * 4]
TOKENS = 40


def assert_greedy_equals(client: Client, folder: Path, job: Job | None) -> None:
    sampled = client.sampling.generate(PROMPTS, job=job, temperature=0, max_tokens=TOKENS, ignore_eos=True, log_probs=0)
    for result in sampled.results:
        completion = result.completions[0]
        assert list(completion.token_ids) == reference.greedy(folder, result.prompt.token_ids, TOKENS)
        row = np.concatenate([result.prompt.token_ids, completion.token_ids])
        expected = reference.log_probs(folder, row)[-TOKENS:]
        assert completion.log_probs is not None
        np.testing.assert_allclose(completion.log_probs, expected, atol=1e-3)


def train(client: Client, trainer: Job) -> None:
    rows = [np.frombuffer(text.encode(), dtype=np.uint8).astype(np.int32) for text in PROMPTS if len(text) > 1]
    for _ in range(3):
        client.training.fwd_bwd(trainer, {"input_ids": rows}, loss="cross_entropy")
        client.training.step(trainer)


@pytest.mark.parametrize("model", ["tiny", "tiny-untied"])
def test_greedy_equals_hugging_face_before_and_after_a_sync(
    client: Client, make_trainer: TrainerFactory, model: str
) -> None:
    sampler = client.jobs.create(sampling={"model": model, "kv_cache_bytes": 1 << 27}).sampling
    assert sampler is not None
    try:
        assert_greedy_equals(client, resolve_model(model), sampler)
        trainer = make_trainer(model=model)
        train(client, trainer)
        before = client.weights.get_norm(sampler).norm
        sync = client.weights.sync(trainer, sampler, verify=True)
        assert sync.weight_version == 3
        saved = client.training.save_checkpoint(trainer, name=f"after-sync-{model}")
        assert_greedy_equals(client, Path(saved.export_path), sampler)

        norms = client.weights.get_norm(sampler), client.weights.get_norm(trainer)
        assert norms[0].norm == pytest.approx(norms[1].norm, rel=1e-12)
        assert norms[0].norm != before
        ours, theirs = client.weights.get_checksums(sampler), client.weights.get_checksums(trainer)
        assert ours.checksums == theirs.checksums
    finally:
        client.jobs.destroy(sampler)


def test_log_probs_of_sampler_and_trainer_agree(client: Client, make_trainer: TrainerFactory) -> None:
    trainer = make_trainer()
    sampled = client.sampling.generate(PROMPTS, n=4, max_tokens=24, temperature=1.0, log_probs=0, seed=7)
    rows, expected = [], []
    for result in sampled.results:
        for completion in result.completions:
            rows.append(np.concatenate([result.prompt.token_ids, completion.token_ids]))
            assert completion.log_probs is not None
            expected.append(completion.log_probs)
    found = client.training.fwd_no_grad(trainer, {"input_ids": rows})
    for row, log_probs, sampler_log_probs in zip(rows, found.log_probs_shifted, expected, strict=True):
        count = len(sampler_log_probs)
        np.testing.assert_allclose(log_probs[len(row) - 1 - count : -1], sampler_log_probs, atol=1e-3)

    scores = client.sampling.log_probs(rows)
    for row, score, log_probs in zip(rows, scores, found.log_probs_shifted, strict=True):
        assert score.prompt.log_probs is not None
        assert np.isnan(score.prompt.log_probs[0])
        np.testing.assert_allclose(score.prompt.log_probs[1:], log_probs[: len(row) - 1], atol=1e-3)


def test_completions_are_scored_given_their_prompts(client: Client) -> None:
    (score,) = client.sampling.log_probs(["The capital"], [" of France"], top_k=2)
    whole = np.concatenate([score.prompt.token_ids, score.completion_token_ids])
    expected = reference.log_probs(resolve_model("tiny"), whole)
    np.testing.assert_allclose(score.completion_log_probs, expected[len(score.prompt.token_ids) - 1 :], atol=1e-3)
    assert score.completion_top_log_probs is not None
    assert score.completion_top_log_probs.token_ids.shape == (len(score.completion_token_ids), 2)
