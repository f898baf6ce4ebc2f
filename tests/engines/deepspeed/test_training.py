"""What a caller of one worker sees: accumulation, rates, clipping, refusals, and failures that change nothing."""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import pytest_asyncio

from gradwire.server.engines.base import TrainingEngine
from gradwire.server.engines.deepspeed import DeepSpeedTrainer
from gradwire.server.engines.training import LossSpec, OptimizerConfig, SchedulerConfig, TrainingBatch
from gradwire.server.engines.weights import TensorChecksum
from gradwire.server.errors import FailedPrecondition, InvalidArgument
from tests.engines.deepspeed.support import random_batch, running, select, tiny_config

pytestmark = [pytest.mark.slow, pytest.mark.asyncio(loop_scope="module")]

GRPO = LossSpec("grpo")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def started(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[tuple[DeepSpeedTrainer, Path]]:
    # Rate 0: the steps of the tests change nothing, so each test finds the same weights.
    async with running(tiny_config(optimizer=OptimizerConfig(name="sgd", lr=0.0))) as trainer:
        path = tmp_path_factory.mktemp("checkpoints") / "start"
        await trainer.save_checkpoint(path, name="start")
        yield trainer, path


@pytest_asyncio.fixture(loop_scope="module")
async def trainer(started: tuple[DeepSpeedTrainer, Path]) -> DeepSpeedTrainer:
    """The module's trainer, as it was after its start: no gradients, no steps."""
    running_trainer, checkpoint = started
    await running_trainer.load_checkpoint(checkpoint)
    return running_trainer


def with_column(batch: TrainingBatch, name: str, rows: slice, value: float) -> TrainingBatch:
    """A copy of a batch with one column set in some rows."""
    columns = {key: column.copy() for key, column in batch.columns.items()}
    column = columns.setdefault(name, np.zeros(len(batch.input_ids), np.float32))
    column[batch.row_offsets[rows.start] : batch.row_offsets[rows.stop]] = value
    return replace(batch, columns=columns)


def poisoned(batch: TrainingBatch) -> TrainingBatch:
    """Its shortest row, which is planned last, makes the loss infinite: old log-probs of -200."""
    row = int(np.argmin(np.diff(batch.row_offsets)))
    assert batch.loss_mask is not None
    mask = batch.loss_mask.copy()
    mask[batch.row_offsets[row]] = 1
    return with_column(replace(batch, loss_mask=mask), "old_log_probs", slice(row, row + 1), -200.0)


async def norm_of(trainer: DeepSpeedTrainer, *batches: TrainingBatch, loss: LossSpec = GRPO) -> float:
    for batch in batches:
        await trainer.fwd_bwd(batch, loss)
    return (await trainer.step()).grad_norm


async def test_it_is_a_training_engine(trainer: DeepSpeedTrainer) -> None:
    assert isinstance(trainer, TrainingEngine)
    assert trainer.vocab_size == 260
    await trainer.check_health()


async def test_gradients_of_calls_add_up(trainer: DeepSpeedTrainer) -> None:
    batch = random_batch(1, 8)
    once = await norm_of(trainer, batch)
    assert await norm_of(trainer, batch, batch, batch) == pytest.approx(3 * once, rel=1e-5)


@pytest.mark.parametrize("mode", ["token-mean", "seq-mean-token-sum", "seq-mean-token-mean"])
async def test_four_calls_with_the_whole_batchs_counts_are_one_large_call(trainer: DeepSpeedTrainer, mode: str) -> None:
    batch = random_batch(2, 8)
    assert batch.loss_mask is not None
    active = [batch.loss_mask[s:e].any() for s, e in zip(batch.row_offsets, batch.row_offsets[1:], strict=False)]
    whole = LossSpec("grpo", {"loss_agg_mode": mode})
    counts = {"batch_num_tokens": int(batch.loss_mask.sum()), "global_batch_size": int(sum(active))}
    quarter = LossSpec("grpo", {"loss_agg_mode": mode, **counts})
    large = await trainer.fwd_bwd(batch, whole)
    expected = (await trainer.step()).grad_norm
    parts = [await trainer.fwd_bwd(select(batch, [2 * i, 2 * i + 1]), quarter) for i in range(4)]
    assert (await trainer.step()).grad_norm == pytest.approx(expected, rel=1e-5)
    assert sum(part.loss for part in parts) == pytest.approx(large.loss, abs=1e-6)


async def test_a_large_batch_is_split_and_the_loss_is_that_of_the_whole(trainer: DeepSpeedTrainer) -> None:
    batch = random_batch(3, 20)
    result = await trainer.fwd_bwd(batch, GRPO)
    assert result.micro_batches > 3
    scores = await trainer.fwd_no_grad(batch)
    assert batch.loss_mask is not None
    # On-policy the ratio is 1: the loss is minus the mean advantage.
    expected = -float((batch.columns["advantages"] * batch.loss_mask).sum() / batch.loss_mask.sum())
    assert result.loss == pytest.approx(expected, abs=1e-5)
    assert result.metrics["ratio_mean"] == 1.0
    assert scores.weight_version == trainer.weight_version
    await trainer.step()


async def test_step_without_gradients(trainer: DeepSpeedTrainer) -> None:
    version = trainer.weight_version
    with pytest.raises(FailedPrecondition, match="call fwd_bwd before step"):
        await trainer.step()
    await trainer.fwd_bwd(random_batch(1, 2), GRPO)
    await trainer.step()
    with pytest.raises(FailedPrecondition):
        await trainer.step()
    assert trainer.weight_version == version + 1


async def test_dropped_gradients_leave_no_trace(
    trainer: DeepSpeedTrainer, started: tuple[DeepSpeedTrainer, Path]
) -> None:
    async def stepped() -> tuple[float, list[TensorChecksum]]:
        await trainer.fwd_bwd(random_batch(1, 4), GRPO)
        return (await trainer.step(lr=0.5)).grad_norm, await trainer.checksums("F32")

    assert await trainer.zero_grad() == 0
    before, expected = await trainer.checksums("F32"), await stepped()
    assert before != expected[1]
    await trainer.load_checkpoint(started[1])
    version = trainer.weight_version
    for _ in range(2):
        await trainer.fwd_bwd(random_batch(2, 12), GRPO)
    assert await trainer.zero_grad() == 2
    with pytest.raises(FailedPrecondition) as none:
        await trainer.step()
    assert (none.value.reason, trainer.weight_version) == ("NO_GRADIENTS", version)
    assert await stepped() == expected


async def test_rate_and_clipping_of_one_step(trainer: DeepSpeedTrainer, started: tuple[DeepSpeedTrainer, Path]) -> None:
    before = await trainer.weight_norm()
    await trainer.fwd_bwd(random_batch(1, 4), GRPO)
    clipped = await trainer.step(lr=0.5, max_grad_norm=1e-3)
    assert clipped.lr == 0.5
    assert clipped.grad_norm > 1  # before clipping
    moved = abs(await trainer.weight_norm() - before)
    assert 0 < moved < 0.5 * 1e-3  # a step is at most rate times clipped norm long
    await trainer.load_checkpoint(started[1])
    await trainer.fwd_bwd(random_batch(1, 4), GRPO)
    assert (await trainer.step(max_grad_norm=0)).lr == 0.0


@pytest.mark.parametrize("options", [{"lr": -1.0}, {"lr": math.nan}, {"max_grad_norm": math.inf}])
async def test_step_options_out_of_range(trainer: DeepSpeedTrainer, options: dict[str, float]) -> None:
    with pytest.raises(InvalidArgument, match=next(iter(options))):
        await trainer.step(**options)


async def test_refusals_name_what_is_wrong(trainer: DeepSpeedTrainer) -> None:
    batch = random_batch(1, 4)
    ids = batch.input_ids.copy()
    ids[int(batch.row_offsets[2]) + 1] = 999
    for wrong, loss, text in (
        (batch, LossSpec("grppo"), "Did you mean 'grpo'"),
        (batch, LossSpec("grpo", {"epsclip": 1}), "Did you mean 'eps_clip'"),
        (replace(batch, columns={}), GRPO, "batch.advantages"),
        (with_column(batch, "old_log_probs", slice(1, 2), math.nan), GRPO, "old_log_probs: row 1"),
        (replace(batch, input_ids=ids), GRPO, r"input_ids: row 2, entry 1 is 999; ids are in \[0, 260\)"),
    ):
        with pytest.raises(InvalidArgument, match=text):
            await trainer.fwd_bwd(wrong, loss)
    with pytest.raises(FailedPrecondition):
        await trainer.step()  # none of them left a gradient


async def test_a_failure_in_a_late_micro_batch_leaves_no_gradient(trainer: DeepSpeedTrainer) -> None:
    batch = random_batch(4, 12)
    row = int(np.argmin(np.diff(batch.row_offsets)))
    with pytest.raises(InvalidArgument, match=f"'importance_sampling' or its gradient .* from row {row}:") as caught:
        await trainer.fwd_bwd(poisoned(batch), LossSpec("importance_sampling"))
    assert caught.value.reason == "LOSS_NOT_FINITE"
    with pytest.raises(FailedPrecondition):
        await trainer.step()
    clean = random_batch(1, 6)
    assert await norm_of(trainer, clean) == await norm_of(trainer, clean)


async def test_gradients_that_are_not_finite_are_cleared_and_change_nothing(trainer: DeepSpeedTrainer) -> None:
    before = await trainer.checksums("F32")
    batch = random_batch(5, 4)
    await trainer.fwd_bwd(with_column(batch, "advantages", slice(0, 4), 3e38), GRPO)
    with pytest.raises(FailedPrecondition, match="not finite") as caught:
        await trainer.step(lr=1.0)
    assert caught.value.reason == "GRADIENT_NOT_FINITE"
    assert await trainer.checksums("F32") == before
    with pytest.raises(FailedPrecondition, match="no accumulated gradients"):
        await trainer.step()


async def test_a_cancelled_call_runs_to_its_end(trainer: DeepSpeedTrainer) -> None:
    batch = random_batch(6, 30)
    expected = await norm_of(trainer, batch)
    call = asyncio.create_task(trainer.fwd_bwd(batch, GRPO))
    await asyncio.sleep(0.05)
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    assert (await trainer.step()).grad_norm == pytest.approx(expected, rel=1e-6)


async def test_a_cancelled_step_is_counted(trainer: DeepSpeedTrainer) -> None:
    version = trainer.weight_version
    await trainer.fwd_bwd(random_batch(6, 30), GRPO)
    call = asyncio.create_task(trainer.step())
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    await trainer.weight_norm()  # waits its turn
    assert trainer.weight_version == version + 1


async def test_calls_at_once_wait_for_each_other(trainer: DeepSpeedTrainer) -> None:
    batch = random_batch(7, 6)
    expected = await norm_of(trainer, batch, batch)
    await asyncio.gather(trainer.fwd_bwd(batch, GRPO), trainer.fwd_bwd(batch, GRPO), trainer.fwd_no_grad(batch))
    assert (await trainer.step()).grad_norm == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize(("stage", "workers"), [(0, 2), (1, 1), (2, 1), (3, 2)])
async def test_a_failed_call_takes_back_only_its_own_gradients(stage: int, workers: int) -> None:
    good = random_batch(8, 6)
    async with running(tiny_config(zero_stage=stage, num_workers=workers, optimizer=OptimizerConfig(lr=0.0))) as fresh:
        expected = await norm_of(fresh, good)
        for before in ([], [good]):
            for batch in before:
                await fresh.fwd_bwd(batch, GRPO)
                await fresh.fwd_no_grad(batch)  # a forward pass alone changes nothing either
            with pytest.raises(InvalidArgument, match="the loss"):
                await fresh.fwd_bwd(poisoned(random_batch(4, 12)), LossSpec("importance_sampling"))
            after = [] if before else [good]
            assert await norm_of(fresh, *after) == pytest.approx(expected, rel=1e-6)
        await fresh.fwd_bwd(with_column(good, "advantages", slice(0, 6), 3e38), GRPO)
        with pytest.raises(FailedPrecondition, match="not finite"):
            await fresh.step()
        assert await norm_of(fresh, good) == pytest.approx(expected, rel=1e-6)


async def test_the_schedule_is_followed_and_an_override_does_not_shift_it() -> None:
    scheduler = SchedulerConfig(name="linear", warmup_steps=2, total_steps=4)
    batch = random_batch(1, 2)
    rates = []
    async with running(tiny_config(scheduler=scheduler, optimizer=OptimizerConfig(lr=0.1))) as trainer:
        for lr in (None, None, 7e-3, None, None):
            await trainer.fwd_bwd(batch, GRPO)
            rates.append((await trainer.step(lr=lr)).lr)
    assert rates == pytest.approx([0.05, 0.1, 7e-3, 0.05, 0.0])
