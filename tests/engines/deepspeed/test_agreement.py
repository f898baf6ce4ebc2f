"""Real workers against plain torch: every ZeRO stage, one rank and two."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from gradwire.server.engines.training import LossSpec, OptimizerConfig
from tests.engines.deepspeed.support import (
    TIMES,
    PlainTrainer,
    group_batch,
    largest_difference,
    random_batch,
    running,
    select,
    tiny_config,
    typical_difference,
    weights_of,
)

pytestmark = pytest.mark.slow

LOSS = ("importance_sampling", {"entropy_coeff": 0.01})
OPTIMIZERS: dict[str, tuple[OptimizerConfig, Callable[[Any], torch.optim.Optimizer]]] = {
    # SGD shows a wrong scale of the gradients, AdamW hides it.
    "sgd": (
        OptimizerConfig(name="sgd", lr=1e-3, momentum=0.9),
        lambda parameters: torch.optim.SGD(parameters, lr=1e-3, momentum=0.9),
    ),
    "adamw": (
        OptimizerConfig(lr=1e-4, weight_decay=0.1, betas=(0.9, 0.95)),
        lambda parameters: torch.optim.AdamW(parameters, lr=1e-4, weight_decay=0.1, betas=(0.9, 0.95)),
    ),
}


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("stage", [0, 1, 2, 3])
async def test_two_steps_of_two_calls_each(stage: int, workers: int) -> None:
    name = "sgd" if stage % 2 else "adamw"
    config = tiny_config(zero_stage=stage, num_workers=workers, optimizer=OPTIMIZERS[name][0])
    plain = PlainTrainer(Path(config.model_path), OPTIMIZERS[name][1])
    # The last batch has one row: with two workers one of them has nothing to do but keep step.
    calls = [random_batch(1, 8), group_batch(2), random_batch(3, 5), random_batch(4, 1)]
    async with running(config) as trainer:
        for first, second in (calls[:2], calls[2:]):
            for batch in (first, second):
                found = await trainer.fwd_bwd(batch, LossSpec(*LOSS))
                expected = plain.loss(batch, *LOSS)
                expected.backward()
                assert found.loss == pytest.approx(float(expected.detach()), abs=2e-6)
            norm = plain.step()
            result = await trainer.step()
            assert result.grad_norm == pytest.approx(norm, rel=2e-6)
        assert result.step == result.weight_version == trainer.weight_version == 2
        weights = await weights_of(trainer)
    assert typical_difference(weights, plain.weights()) < 2e-7
    # AdamW divides by the gradient's own size, so where that is nearly nothing, float32 may take another step.
    assert largest_difference(weights, plain.weights()) < (1e-4 if name == "adamw" else 1e-5)


async def test_bf16_follows_float32() -> None:
    batch = random_batch(1, 8)
    norms = {}
    for dtype, stage in (("float32", 0), ("bfloat16", 0), ("bfloat16", 3)):
        async with running(tiny_config(dtype=dtype, zero_stage=stage)) as trainer:
            await trainer.fwd_bwd(batch, LossSpec(*LOSS))
            norms[dtype, stage] = (await trainer.step()).grad_norm
            await trainer.fwd_bwd(batch, LossSpec(*LOSS))
            assert (await trainer.step()).step == 2
    for norm in norms.values():
        assert norm == pytest.approx(norms["float32", 0], rel=1e-2)


@pytest.mark.parametrize("workers", [1, 2])
async def test_forward_results_come_back_in_the_callers_order(workers: int) -> None:
    config = tiny_config(num_workers=workers)
    plain = PlainTrainer(Path(config.model_path))
    batch = group_batch(7)
    assert batch.loss_mask is not None
    async with running(config) as trainer:
        for masked in (True, False):
            asked = batch if masked else select(batch, list(range(batch.num_rows)))
            mask = batch.loss_mask if masked else None
            asked = type(batch)(batch.input_ids, batch.row_offsets, batch.row_width, mask, {})
            found = await trainer.fwd_no_grad(asked, temperature=0.8, entropy=True)
            with torch.no_grad():
                log_probs, entropy = plain.log_probs(batch, 0.8)
            keep = torch.from_numpy(batch.loss_mask) if masked else 1
            assert found.entropy is not None
            # Float32 on a model whose log-probs reach -40.
            assert torch.allclose(torch.from_numpy(found.log_probs).double(), log_probs * keep, atol=5e-5)
            assert torch.allclose(torch.from_numpy(found.entropy).double(), entropy * keep, atol=5e-5)
            assert not found.log_probs[batch.row_offsets[1:] - 1].any()
        outputs = await trainer.fwd_bwd(batch, LossSpec("grpo", {"temperature": 0.8}), outputs=True)
        with_mask = await trainer.fwd_no_grad(batch, temperature=0.8)
        assert outputs.log_probs is not None
        assert abs(outputs.log_probs - with_mask.log_probs).max() < 1e-5


async def test_metrics_are_the_same_on_any_number_of_workers() -> None:
    batch = random_batch(11, 9)
    results = []
    for workers in (1, 2):
        async with running(tiny_config(num_workers=workers)) as trainer:
            old = (await trainer.fwd_no_grad(batch)).log_probs + 0.1
            columns = {**batch.columns, "old_log_probs": old, "ref_log_probs": old - 0.2}
            full = type(batch)(batch.input_ids, batch.row_offsets, batch.row_width, batch.loss_mask, columns)
            results.append(await trainer.fwd_bwd(full, LossSpec("grpo", {"use_kl_loss": True})))
    one, two = results
    assert one.metrics.keys() == two.metrics.keys()
    assert one.num_loss_tokens == two.num_loss_tokens == one.metrics["num_loss_tokens"]
    for name in one.metrics.keys() - TIMES:
        assert one.metrics[name] == pytest.approx(two.metrics[name], abs=1e-5)
