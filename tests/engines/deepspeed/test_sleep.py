"""Sleep gives memory back to the system, and what wakes goes on as if nothing had been, bit for bit."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path
from typing import Any

import pytest
from transformers import LlamaConfig, LlamaForCausalLM

from gradwire.server.engines.deepspeed import DeepSpeedTrainer
from gradwire.server.engines.spill import SPILL_FOLDER
from gradwire.server.engines.training import LossSpec, OptimizerConfig, SleepMode, StepResult, TrainingConfig
from gradwire.server.engines.weights import MemoryReport, TensorChecksum
from gradwire.server.errors import FailedPrecondition, ResourceExhausted, Unavailable
from tests.engines.deepspeed.support import random_batch, running, tiny_config
from tests.serving import descendants

pytestmark = pytest.mark.slow

LOSS = LossSpec("grpo")
VOCABULARY = 2048


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, int]:
    """A random Llama large enough to be seen among a process's own memory; its folder, and its parameters."""
    folder = tmp_path_factory.mktemp("llama")
    config = LlamaConfig(
        vocab_size=VOCABULARY, hidden_size=512, intermediate_size=2048, num_hidden_layers=8,
        num_attention_heads=8, num_key_value_heads=8, max_position_embeddings=256,
    )  # fmt: skip
    made = LlamaForCausalLM(config)
    made.save_pretrained(folder)
    return folder, made.num_parameters()


# Bytes a parameter over all ranks: weights, then master weights, gradients and the two moments.
SHAPES = [
    pytest.param({"zero_stage": 0}, (4, 12), id="stage0-float32"),
    pytest.param({"zero_stage": 1, "dtype": "bfloat16", "num_workers": 2}, (2 * 2, 4 + 2 * 4 + 8), id="stage1-bf16-x2"),
    pytest.param({"zero_stage": 2, "num_workers": 2}, (2 * 4, 4 + 4 + 8), id="stage2-float32-x2"),
    pytest.param({"zero_stage": 3, "dtype": "bfloat16", "num_workers": 2}, (2, 4 + 4 + 8), id="stage3-bf16-x2"),
]


@pytest.mark.parametrize(("changes", "sizes"), SHAPES)
async def test_memory_is_given_back_and_every_bit_returns(
    model: tuple[Path, int], tmp_path: Path, changes: dict[str, Any], sizes: tuple[int, int]
) -> None:
    folder, parameters = model
    async with running(_config(folder, **changes)) as trainer:
        await trainer.fwd_bwd(random_batch(1, 4, vocabulary=VOCABULARY), LOSS)
        await trainer.step()
        await trainer.save_checkpoint(tmp_path / "a", name="a")
        expected = await _accumulate_and_step(trainer)

        await trainer.load_checkpoint(tmp_path / "a")
        lp, non_lp = (size * parameters for size in sizes)
        result = await _accumulate_and_step(trainer, sleeping=lambda: _sleep_in_steps(trainer, lp, non_lp))
        assert result == expected
        await trainer.sleep(SleepMode.ALL)
        with pytest.raises(FailedPrecondition, match="WakeTraining"):
            await trainer.step()


async def _accumulate_and_step(trainer: DeepSpeedTrainer, sleeping: Any = None) -> tuple[float, list[TensorChecksum]]:
    """Two calls and a step, with a sleep in the middle: the gradients' norm and the new weights."""
    await trainer.fwd_bwd(random_batch(2, 4, vocabulary=VOCABULARY), LOSS)
    if sleeping is not None:
        await sleeping()
    await trainer.fwd_bwd(random_batch(3, 4, vocabulary=VOCABULARY), LOSS)
    step: StepResult = await trainer.step()
    return step.grad_norm, await trainer.checksums("F32")


async def _sleep_in_steps(trainer: DeepSpeedTrainer, lp: int, non_lp: int) -> None:
    """The order of a training loop: non_lp, sync, lp_params; then all at once."""
    batch = random_batch(4, 2, vocabulary=VOCABULARY)
    scores = (await trainer.fwd_no_grad(batch)).log_probs
    sums = await trainer.checksums("F32")
    await trainer.empty_cache()  # so that what follows is no garbage but state
    report = await trainer.sleep(SleepMode.NON_LP)
    assert report.changed and _freed(report) > 0.8 * non_lp, (report, non_lp)
    assert await trainer.checksums("F32") == sums  # what a sync would carry
    assert ((await trainer.fwd_no_grad(batch)).log_probs == scores).all()
    await trainer.empty_cache()
    report = await trainer.sleep(SleepMode.LP_PARAMS)
    assert report.changed and _freed(report) > 0.8 * lp, (report, lp)
    report = await trainer.sleep(SleepMode.ALL)
    assert not report.changed and abs(_freed(report)) < 0.05 * (lp + non_lp)
    assert (await trainer.wake()).changed
    assert not (await trainer.wake()).changed
    await trainer.empty_cache()
    report = await trainer.sleep(SleepMode.ALL)
    assert report.changed and _freed(report) > 0.8 * (lp + non_lp), (report, lp + non_lp)
    await trainer.empty_cache()
    report = await trainer.wake()
    assert report.changed and _freed(report) < -0.8 * (lp + non_lp)


def _freed(report: MemoryReport) -> int:
    return report.before_bytes - report.after_bytes


def _config(folder: Path, **changes: Any) -> TrainingConfig:
    return tiny_config(
        model="llama", model_path=str(folder), optimizer=OptimizerConfig(lr=1e-3, weight_decay=0.01), **changes
    )
