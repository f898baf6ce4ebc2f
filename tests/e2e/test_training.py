"""Training through gRPC: accumulation, losses, checkpoints, operations that happen once."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from gradwire.client import (
    AlreadyExistsError,
    Client,
    DeadlineExceededError,
    FailedPreconditionError,
    InvalidArgumentError,
    Job,
)
from tests.e2e.conftest import TrainerFactory


def rows_of(seed: int, count: int) -> list[npt.NDArray[np.int32]]:
    rng = np.random.default_rng(seed)
    return [rng.integers(0, 256, size=int(rng.integers(4, 40))).astype(np.int32) for _ in range(count)]


def checksums(client: Client, job: Job) -> dict[str, bytes]:
    return {name: c.sha256 for name, c in client.weights.get_checksums(job).checksums.items()}


def grpo_batch(client: Client, trainer: Job, seed: int) -> dict[str, Any]:
    rows = rows_of(seed, 6)
    rng = np.random.default_rng(seed)
    old = client.training.fwd_no_grad(trainer, {"input_ids": rows}).log_probs_shifted
    noisy = [row + rng.normal(0, 0.1, size=len(row)).astype(np.float32) for row in old]
    return {"input_ids": rows, "advantages": list(rng.normal(size=6)), "old_log_probs_shifted": noisy}


def test_four_fwd_bwd_equal_one_of_the_whole_batch(client: Client, make_trainer: TrainerFactory) -> None:
    whole, parts = make_trainer(), make_trainer()
    rows = rows_of(1, 16)
    total = sum(len(row) - 1 for row in rows)
    one = client.training.fwd_bwd(whole, {"input_ids": rows}, loss="cross_entropy")
    four = [
        client.training.fwd_bwd(
            parts, {"input_ids": rows[i : i + 4]}, loss="cross_entropy", loss_config={"batch_num_tokens": total}
        )
        for i in range(0, 16, 4)
    ]
    assert sum(part.loss for part in four) == pytest.approx(one.loss, rel=1e-5)
    assert client.training.step(parts).grad_norm == pytest.approx(client.training.step(whole).grad_norm, rel=1e-5)
    assert client.weights.get_norm(parts).norm == pytest.approx(client.weights.get_norm(whole).norm, rel=1e-9)


def test_micro_batches_do_not_change_the_result(client: Client, make_trainer: TrainerFactory) -> None:
    large, small = make_trainer(), make_trainer(max_tokens_per_micro_batch=50)
    batch = grpo_batch(client, large, 2)
    a = client.training.fwd_bwd(large, batch, loss="grpo", return_outputs=True)
    b = client.training.fwd_bwd(small, batch, loss="grpo", return_outputs=True)
    assert b.num_micro_batches > a.num_micro_batches == 1
    assert b.loss == pytest.approx(a.loss, rel=1e-4)
    assert b.metrics.keys() == a.metrics.keys()
    timeless = [name for name in a.metrics if not name.endswith("_seconds") and name != "tokens_per_second"]
    for name in timeless:
        assert b.metrics[name] == pytest.approx(a.metrics[name], rel=1e-4, abs=1e-6)
    assert a.log_probs_shifted is not None and b.log_probs_shifted is not None
    for left, right in zip(a.log_probs_shifted, b.log_probs_shifted, strict=True):
        np.testing.assert_allclose(left, right, atol=1e-4)
    assert client.training.step(small).grad_norm == pytest.approx(client.training.step(large).grad_norm, rel=1e-4)


def test_versions_prompts_and_pairs_arrive_and_packing_changes_nothing(
    client: Client, make_trainer: TrainerFactory
) -> None:
    packed, padded = make_trainer(max_tokens_per_micro_batch=60), make_trainer(packing=False)
    assert client.jobs.get(padded).config.packing is False  # type: ignore[union-attr]
    batch = grpo_batch(client, packed, 10)
    versions = [np.arange(len(row)) % 3 for row in batch["input_ids"]]
    batch |= {"versions": versions, "prompt_group_ids": [3, 3, 1, 1, 1, 3]}
    prompts = {"loss_agg_mode": "prompt-mean", "prox_logp_method": "loglinear", "current_version": 3}
    tokens = {**prompts, "loss_agg_mode": "token-mean"}
    pairs = {"input_ids": batch["input_ids"], "ref_log_probs_shifted": batch["old_log_probs_shifted"]}
    found = {}
    for job in (packed, padded):
        results = [
            client.training.fwd_bwd(job, batch, loss="grpo", loss_config=prompts),
            client.training.fwd_bwd(job, batch, loss="grpo", loss_config=tokens),
            client.training.fwd_bwd(job, pairs, loss="dpo", loss_config={"beta": 0.5}),
        ]
        found[job.job_id] = [*(result.loss for result in results), client.training.step(job).grad_norm]
    assert found[padded.job_id] == pytest.approx(found[packed.job_id], rel=1e-4)
    by_prompt, by_token, *_ = found[packed.job_id]
    assert by_prompt != pytest.approx(by_token, rel=1e-3)
    with pytest.raises(InvalidArgumentError, match="prompt_group_ids"):
        client.training.fwd_bwd(packed, {"input_ids": batch["input_ids"]}, loss_config={"loss_agg_mode": "prompt-mean"})


def test_padded_rows_equal_ragged_ones(client: Client, make_trainer: TrainerFactory) -> None:
    trainer = make_trainer()
    rows = rows_of(3, 5)
    width = max(map(len, rows)) + 3
    left, right = np.full((5, width), 256), np.full((5, width), 256)
    left_mask, right_mask = np.zeros((5, width), np.int64), np.zeros((5, width), np.int64)
    for i, row in enumerate(rows):
        left[i, width - len(row) :], left_mask[i, width - len(row) :] = row, 1
        right[i, : len(row)], right_mask[i, : len(row)] = row, 1
    ragged = client.training.fwd_no_grad(trainer, {"input_ids": rows}, entropy=True)
    on_left = client.training.fwd_no_grad(trainer, {"input_ids": left, "attention_mask": left_mask}, entropy=True)
    on_right = client.training.fwd_no_grad(trainer, {"input_ids": right, "attention_mask": right_mask})
    assert on_left.entropy is not None and ragged.entropy is not None
    for i, row in enumerate(rows):
        expected = ragged.log_probs_shifted[i]
        np.testing.assert_allclose(on_left.log_probs_shifted[i][width - len(row) :], expected, atol=1e-5)
        np.testing.assert_allclose(on_right.log_probs_shifted[i][: len(row)], expected, atol=1e-5)
        np.testing.assert_allclose(on_left.entropy[i][width - len(row) :], ragged.entropy[i], atol=1e-5)
        assert not on_right.log_probs_shifted[i][len(row) :].any()


def test_save_load_continue_equals_uninterrupted_training(client: Client, make_trainer: TrainerFactory) -> None:
    adamw = {"optimizer": {"name": "adamw", "learning_rate": 1e-3, "weight_decay": 0.1}, "max_grad_norm": 1.0}
    schedule = {"scheduler": {"name": "cosine", "warmup_steps": 2, "total_steps": 20}}
    straight = make_trainer(**adamw, **schedule)

    def train(job: Job, steps: range) -> None:
        for step in steps:
            client.training.fwd_bwd(job, {"input_ids": rows_of(step, 4)}, loss="cross_entropy")
            client.training.step(job)

    train(straight, range(3))
    saved = client.training.save_checkpoint(straight, name="halfway")
    train(straight, range(3, 6))
    resumed = make_trainer(**adamw, **schedule)
    loaded = client.training.load_checkpoint(resumed, "halfway")
    assert loaded.step == saved.step == 3
    train(resumed, range(3, 6))
    assert checksums(client, resumed) == checksums(client, straight)
    with pytest.raises(AlreadyExistsError, match="halfway"):
        client.training.save_checkpoint(resumed, name="halfway")


def test_a_repeated_call_is_applied_once(client: Client, make_trainer: TrainerFactory) -> None:
    trainer, reference = make_trainer(), make_trainer()
    batch = {"input_ids": rows_of(4, 4)}
    for _ in range(3):
        first = client.training.fwd_bwd(trainer, batch, loss="cross_entropy", request_id="a")
    client.training.fwd_bwd(reference, batch, loss="cross_entropy")
    steps = [client.training.step(trainer, request_id="b") for _ in range(3)]
    assert len({(s.weight_version, s.grad_norm) for s in steps}) == 1
    client.training.step(reference)
    assert checksums(client, trainer) == checksums(client, reference)
    assert first.weight_version == 0
    with pytest.raises(AlreadyExistsError, match="'a'"):
        client.training.fwd_bwd(trainer, {"input_ids": rows_of(5, 4)}, loss="cross_entropy", request_id="a")
    _repeated_after_its_deadline(client, trainer)


def _repeated_after_its_deadline(client: Client, trainer: Job) -> None:
    """What is repeated with the id that the error names counts once, whether or not the first had begun."""
    batch = {"input_ids": rows_of(7, 300)}
    expected = client.training.fwd_bwd(trainer, batch, loss="cross_entropy")
    norm = client.training.step(trainer, learning_rate=0.0).grad_norm
    with pytest.raises(DeadlineExceededError, match="repeat it with request_id=") as late:
        client.training.fwd_bwd(trainer, batch, loss="cross_entropy", timeout=0.05)
    repeated = client.training.fwd_bwd(trainer, batch, loss="cross_entropy", request_id=late.value.request_id)
    assert repeated.loss == expected.loss
    assert client.training.step(trainer, learning_rate=0.0).grad_norm == norm


def test_step_overrides_and_a_step_without_gradients(client: Client, make_trainer: TrainerFactory) -> None:
    trainer = make_trainer()
    before = checksums(client, trainer)
    with pytest.raises(FailedPreconditionError, match="fwd_bwd"):
        client.training.step(trainer)
    client.training.fwd_bwd(trainer, {"input_ids": rows_of(6, 2)}, loss="cross_entropy")
    frozen = client.training.step(trainer, learning_rate=0.0)
    assert (frozen.learning_rate, frozen.weight_version) == (0.0, 1)
    assert checksums(client, trainer) == before
    with pytest.raises(FailedPreconditionError):
        client.training.step(trainer)


def test_two_workers_train_as_one(client: Client, make_trainer: TrainerFactory) -> None:
    one, two = make_trainer(), make_trainer(num_workers=2, zero_stage=2)
    batch = grpo_batch(client, one, 8)
    a, b = (client.training.fwd_bwd(job, batch, loss="grpo") for job in (one, two))
    assert b.loss == pytest.approx(a.loss, rel=1e-4)
    assert b.metrics.keys() == a.metrics.keys()
    assert client.training.step(two).grad_norm == pytest.approx(client.training.step(one).grad_norm, rel=1e-4)
    assert client.weights.get_norm(two).norm == pytest.approx(client.weights.get_norm(one).norm, rel=1e-8)


def test_a_large_batch_goes_in_chunks(client: Client, make_trainer: TrainerFactory) -> None:
    trainer = make_trainer()
    rows = rows_of(9, 4)
    uploaded = client.training.upload_batch(trainer, {"input_ids": rows})
    by_id = client.training.fwd_no_grad(trainer, uploaded)
    direct = client.training.fwd_no_grad(trainer, {"input_ids": rows})
    for left, right in zip(by_id.log_probs_shifted, direct.log_probs_shifted, strict=True):
        np.testing.assert_array_equal(left, right)
