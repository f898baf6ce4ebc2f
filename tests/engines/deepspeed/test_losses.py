"""Losses on real workers: the same at any split, the same metrics, and faults that leave everything as it was."""

from __future__ import annotations

import math
import os
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import pytest_asyncio
import torch

from gradwire.server.engines.deepspeed import DeepSpeedTrainer
from gradwire.server.engines.training import LossSpec, OptimizerConfig, TrainingBatch
from gradwire.server.errors import FailedPrecondition, InvalidArgument
from gradwire.server.losses import registry
from tests.engines.deepspeed.support import TIMES, PlainTrainer, group_batch, random_batch, running, tiny_config
from tests.losses.plugin import SLIPS, install_plugin

pytestmark = [pytest.mark.slow, pytest.mark.asyncio(loop_scope="module")]

SGD = OptimizerConfig(name="sgd", lr=0.0)
FAMILY = ("grpo", "ppo", "dapo", "gspo", "cispo", "sapo", "importance_sampling")
SHARED = {"loss", "num_loss_tokens", "clip_fraction", "approx_kl", "ratio_mean", "ratio_max", "entropy", *TIMES}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def trainer() -> AsyncIterator[DeepSpeedTrainer]:
    async with running(tiny_config(optimizer=SGD)) as started:
        yield started


def full_batch(seed: int, policy: PlainTrainer | None = None) -> TrainingBatch:
    """Eight rows of two prompts with every column; the policies near the model's where it is given."""
    batch = group_batch(seed)
    rng = np.random.default_rng(seed)
    size = len(batch.input_ids)
    near = np.full(size, -5.0)
    if policy is not None:
        with torch.no_grad():
            near = policy.log_probs(batch)[0].numpy()
    columns = {
        name: (near + rng.normal(scale=0.2, size=size)).astype(np.float32)
        for name in ("old_log_probs", "prox_log_probs", "ref_log_probs")
    }
    columns["versions"] = rng.integers(0, 1, size).astype(np.float32)
    return replace(
        batch, columns={**batch.columns, **columns}, prompt_group_ids=np.array([4, 4, 9, 4, 9, 9, 4, 9], np.int64)
    )


SPLITS: list[dict[str, Any]] = [
    {"packing": False, "max_tokens_per_micro_batch": 70},
    {"max_tokens_per_micro_batch": 60, "num_workers": 2, "zero_stage": 1},
]


@pytest.mark.parametrize("split", SPLITS, ids=str)
async def test_losses_of_prompts_pairs_and_moments_are_those_of_the_whole_batch(split: dict[str, Any]) -> None:
    config = tiny_config(optimizer=SGD, **split)
    plain = PlainTrainer(Path(config.model_path), lambda parameters: torch.optim.SGD(parameters, lr=0.0))
    batch = full_batch(3, plain)
    losses: list[tuple[str, dict[str, Any]]] = [
        ("dpo", {"beta": 0.2}),
        ("grpo", {"loss_agg_mode": "prompt-mean", "m2_threshold": 0.05}),
        ("cross_entropy", {}),
    ]
    async with running(config) as started:
        for name, options in losses:
            found = await started.fwd_bwd(batch, LossSpec(name, options))
            expected = plain.loss(batch, name, options)
            expected.backward()
            assert found.micro_batches > 1
            assert found.loss == pytest.approx(float(expected.detach()), rel=1e-4, abs=1e-5)
            norm = plain.step()
            assert (await started.step()).grad_norm == pytest.approx(norm, rel=1e-4)
            if "m2_threshold" in options:
                assert found.metrics["m2_dropped_tokens"] > 0
                assert found.metrics["num_loss_tokens"] == found.num_loss_tokens


async def test_every_policy_loss_reports_the_same_names(trainer: DeepSpeedTrainer) -> None:
    batch = full_batch(1)
    for name in FAMILY:
        found = await trainer.fwd_bwd(batch, LossSpec(name))
        assert found.metrics.keys() == SHARED
        assert all(math.isfinite(value) for value in found.metrics.values())
        assert found.metrics["tokens_per_second"] > 0
        assert found.metrics["backward_seconds"] > 0
    await trainer.step()


async def test_the_jobs_own_version_is_the_current_one(trainer: DeepSpeedTrainer) -> None:
    batch = full_batch(2)
    columns = {name: column for name, column in batch.columns.items() if name != "prox_log_probs"}
    batch = replace(batch, columns=columns)
    named = {"prox_logp_method": "loglinear", "current_version": trainer.weight_version}
    own = await trainer.fwd_bwd(batch, LossSpec("grpo", {"prox_logp_method": "loglinear"}))
    assert own.loss == (await trainer.fwd_bwd(batch, LossSpec("grpo", named))).loss
    await trainer.step()
    columns["versions"] = columns["versions"] + trainer.weight_version + 1
    with pytest.raises(InvalidArgument, match=r"batch.versions: row 0, entry \d+ is \d+, a later version than the \d+"):
        await trainer.fwd_bwd(batch, LossSpec("grpo", {"prox_logp_method": "loglinear"}))


async def test_old_log_probs_are_of_the_losss_temperature(trainer: DeepSpeedTrainer) -> None:
    batch = random_batch(1, 4)
    half = LossSpec("grpo", {"temperature": 0.5})
    ratios = []
    for temperature in (0.5, 1.0):
        old = (await trainer.fwd_no_grad(batch, temperature=temperature)).log_probs
        given = replace(batch, columns={**batch.columns, "old_log_probs": old})
        ratios.append((await trainer.fwd_bwd(given, half)).metrics["ratio_mean"])
    assert ratios[0] == pytest.approx(1, abs=1e-5)
    assert abs(ratios[1] - 1) > 0.1
    await trainer.step()


async def test_dp_size_must_be_the_jobs(trainer: DeepSpeedTrainer) -> None:
    batch = random_batch(1, 3)
    plain = await trainer.fwd_bwd(batch, LossSpec("grpo"))
    assert (await trainer.fwd_bwd(batch, LossSpec("grpo", {"dp_size": 1}))).loss == plain.loss
    with pytest.raises(InvalidArgument, match=r"loss\.config\.dp_size: is 4, but the job has 1 workers"):
        await trainer.fwd_bwd(batch, LossSpec("grpo", {"dp_size": 4}))
    await trainer.step()


@pytest.mark.parametrize("column", ["old_log_probs", "advantages", "ref_log_probs", "prox_log_probs"])
async def test_nan_in_a_column_names_row_and_entry(trainer: DeepSpeedTrainer, column: str) -> None:
    batch = full_batch(4)
    assert batch.loss_mask is not None
    at = int(np.flatnonzero(batch.loss_mask)[-1])
    entry = at - int(batch.row_offsets[-2])
    values = batch.columns[column].copy()
    values[at] = math.nan
    with pytest.raises(InvalidArgument, match=f"batch.{column}: row 7, entry {entry} is nan"):
        await trainer.fwd_bwd(replace(batch, columns={**batch.columns, column: values}), LossSpec("grpo"))
    with pytest.raises(FailedPrecondition):
        await trainer.step()


async def test_an_overflow_in_a_row_that_the_clip_hides_is_named(trainer: DeepSpeedTrainer) -> None:
    """max() picks the finite branch of the clip, but the other one's gradient is 0 times infinity."""
    batch = full_batch(5)
    assert batch.loss_mask is not None
    old = batch.columns["old_log_probs"].copy()
    advantages = (np.abs(batch.columns["advantages"]) + 0.1).astype(np.float32)
    old[batch.row_offsets[5] : batch.row_offsets[6]] = -300
    columns = {"advantages": advantages, "old_log_probs": old}
    with pytest.raises(InvalidArgument, match="from row 5:") as caught:
        await trainer.fwd_bwd(replace(batch, columns=columns), LossSpec("grpo"))
    assert caught.value.reason == "LOSS_NOT_FINITE"


def files_of(folder: Path) -> dict[str, bytes]:
    """Weights, optimizer state and the rest of a checkpoint, without what tells its name and time."""
    return {str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*.safetensors"))}


async def test_faults_leave_weights_optimizer_and_earlier_gradients(tmp_path: Path) -> None:
    good, bad = random_batch(8, 6), full_batch(6)
    hopeless = LossSpec("cross_entropy", {"temperature": 1e-38})  # logits / temperature is beyond float32
    huge = {**good.columns, "advantages": np.full(len(good.input_ids), 3e38, np.float32)}
    async with running(tiny_config(optimizer=OptimizerConfig(lr=1e-3))) as trainer:
        await trainer.fwd_bwd(bad, LossSpec("grpo"))
        await trainer.step()
        await trainer.save_checkpoint(tmp_path / "before", name="before")
        await trainer.fwd_bwd(good, LossSpec("grpo"))
        expected = (await trainer.step(lr=0.0)).grad_norm
        await trainer.load_checkpoint(tmp_path / "before")

        await trainer.fwd_bwd(good, LossSpec("grpo"))
        with pytest.raises(InvalidArgument, match=r"row \d+: the policy's log-prob is (nan|-inf)") as caught:
            await trainer.fwd_bwd(bad, hopeless)
        assert caught.value.reason == "LOG_PROB_NOT_FINITE"
        await trainer.save_checkpoint(tmp_path / "after", name="after")
        assert files_of(tmp_path / "after") == files_of(tmp_path / "before")
        assert (await trainer.step(lr=0.0)).grad_norm == expected

        await trainer.load_checkpoint(tmp_path / "before")
        await trainer.fwd_bwd(replace(good, columns=huge), LossSpec("grpo"))
        with pytest.raises(FailedPrecondition, match="Run fwd_bwd again with smaller advantages"):
            await trainer.step()
        await trainer.save_checkpoint(tmp_path / "refused", name="refused")
        assert len(files_of(tmp_path / "refused")) > 1
        assert files_of(tmp_path / "refused") == files_of(tmp_path / "before")


async def test_a_mask_of_zeros_is_refused(trainer: DeepSpeedTrainer) -> None:
    batch = random_batch(1, 3)
    empty = replace(batch, loss_mask=np.zeros(len(batch.input_ids), np.float32))
    with pytest.raises(InvalidArgument, match=r"batch\.loss_mask: is zero everywhere"):
        await trainer.fwd_bwd(empty, LossSpec("grpo"))


async def test_an_installed_loss_trains_and_a_broken_one_does_not_end_the_job(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = str(install_plugin(tmp_path))
    monkeypatch.syspath_prepend(folder)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([folder, os.environ.get("PYTHONPATH", "")]))
    registry._registry.cache_clear()
    try:
        batch = random_batch(1, 4)
        assert batch.loss_mask is not None
        async with running(tiny_config(optimizer=SGD, num_workers=2)) as trainer:
            lp = (await trainer.fwd_no_grad(batch)).log_probs
            found = await trainer.fwd_bwd(batch, LossSpec("square", {"target": -2.0}))
            expected = (np.square(lp + 2.0) * batch.loss_mask).sum() / batch.loss_mask.sum()
            assert found.loss == pytest.approx(float(expected), rel=1e-5)
            with pytest.raises(InvalidArgument, match="'broken' failed on this batch: ZeroDivisionError") as caught:
                await trainer.fwd_bwd(batch, LossSpec("broken"))
            assert caught.value.reason == "LOSS_FAILED"
            for slip, said in SLIPS.items():
                with pytest.raises(InvalidArgument, match=said) as caught:
                    await trainer.fwd_bwd(batch, LossSpec("slip", {"slip": slip}))
                assert caught.value.reason == "LOSS_FAILED"
            norm = (await trainer.step()).grad_norm
            await trainer.fwd_bwd(batch, LossSpec("square", {"target": -2.0}))
            assert (await trainer.step()).grad_norm == norm > 0
            assert (await trainer.fwd_bwd(batch, LossSpec("slip"))).loss > 0  # no slip; it names no metric either
    finally:
        registry._registry.cache_clear()
