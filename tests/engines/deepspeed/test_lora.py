"""Jobs that train an adapter: against peft and plain torch at every ZeRO stage, one rank and two."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import numpy as np
import peft
import pytest
import torch
from safetensors import safe_open
from torch import Tensor

from gradwire.server.engines.training import LoraConfig, LossSpec, OptimizerConfig, TrainingConfig
from gradwire.server.errors import InvalidArgument
from gradwire.server.losses.checks import default_mask
from tests.engines.deepspeed.support import (
    PlainTrainer,
    group_batch,
    largest_difference,
    random_batch,
    running,
    tiny_config,
    weights_of,
)

pytestmark = pytest.mark.slow

LORA = LoraConfig(rank=4, alpha=8)
LOSS = ("importance_sampling", {"entropy_coeff": 0.01})
SGD = OptimizerConfig(name="sgd", lr=0.5, momentum=0.9)


class PlainPeft(PlainTrainer):
    """peft's own model in float64 beside the trainer's, from the same factors."""

    def __init__(self, config: TrainingConfig, factors: dict[str, Tensor]) -> None:
        super().__init__(Path(config.model_path))
        assert config.lora is not None
        lora = peft.LoraConfig(
            r=config.lora.rank,
            lora_alpha=int(config.lora.alpha),
            target_modules=list(config.lora.target_modules) or "all-linear",
            task_type="CAUSAL_LM",
        )
        self.model: Any = peft.get_peft_model(self.model, lora)
        self.model.to(torch.float64)
        outcome = peft.set_peft_model_state_dict(self.model, {name: value.double() for name, value in factors.items()})
        assert not outcome.unexpected_keys
        self.optimizer = torch.optim.SGD(
            [p for p in self.model.parameters() if p.requires_grad], lr=SGD.lr, momentum=SGD.momentum
        )

    def weights(self) -> dict[str, Tensor]:
        """The factors, by the names of peft's files."""
        return dict(peft.get_peft_model_state_dict(self.model))


def ready(factors: dict[str, Tensor]) -> bool:
    """Whether all of B is still zero."""
    return all(bool((value == 0).all()) for name, value in factors.items() if ".lora_B." in name)


@pytest.mark.parametrize(("stage", "workers"), [(0, 1), (1, 2), (2, 2), (3, 2)])
async def test_three_steps_equal_pefts_own(stage: int, workers: int) -> None:
    config = tiny_config(zero_stage=stage, num_workers=workers, optimizer=SGD, lora=LORA, max_grad_norm=0.05)
    async with running(config) as trainer:
        fresh = await weights_of(trainer)
        assert ready(fresh)
        plain = PlainPeft(config, fresh)
        assert fresh.keys() == plain.weights().keys()
        with torch.no_grad():
            batch = random_batch(7, 6)
            expected = PlainTrainer(Path(config.model_path)).log_probs(batch)[0].numpy()
        found = await trainer.fwd_no_grad(batch)
        scored = np.flatnonzero(default_mask(batch))
        assert found.log_probs[scored] == pytest.approx(expected[scored], abs=1e-5)
        for seed in range(3):
            for batch in (random_batch(seed, 8), group_batch(seed)):
                result = await trainer.fwd_bwd(batch, LossSpec(*LOSS))
                loss = plain.loss(batch, *LOSS)
                loss.backward()
                assert result.loss == pytest.approx(float(loss.detach()), abs=1e-5)
            norm = plain.step(config.max_grad_norm)
            assert norm > config.max_grad_norm  # the clipping counts
            assert (await trainer.step()).grad_norm == pytest.approx(norm, rel=1e-5)
        after = await weights_of(trainer)
        assert not ready(after)
        assert largest_difference(after, plain.weights()) < 2e-6
        norm = sum(float(value.double().square().sum()) for value in after.values()) ** 0.5
        assert await trainer.weight_norm() == pytest.approx(norm, rel=1e-6)


@pytest.mark.parametrize(("stage", "workers"), [(0, 1), (3, 2)])
async def test_bfloat16_moves_and_the_base_stays(stage: int, workers: int) -> None:
    config = tiny_config(
        dtype="bfloat16", zero_stage=stage, num_workers=workers, lora=LORA, optimizer=OptimizerConfig(lr=1e-2)
    )
    async with running(config) as trainer:
        base = await trainer.checksums("BF16", base=True)
        with safe_open(f"{config.model_path}/model.safetensors", "pt") as file:
            for found in base:
                data = file.get_tensor(found.name).bfloat16().view(torch.int16).numpy().tobytes()
                assert found.sha256 == hashlib.sha256(data).hexdigest()
        await trainer.fwd_bwd(group_batch(2), LossSpec("cross_entropy", {}))
        assert await trainer.zero_grad() == 1
        losses = [await step_on(trainer, group_batch(1)) for _ in range(6)]
        assert losses[-1] < losses[0] - 0.05
        assert not ready(await weights_of(trainer))
        assert await trainer.checksums("BF16", base=True) == base
        assert await trainer.checksums("BF16", merged=True) != base


async def step_on(trainer: Any, batch: Any) -> float:
    """One step of cross-entropy; the loss before it."""
    loss = (await trainer.fwd_bwd(batch, LossSpec("cross_entropy", {}))).loss
    await trainer.step()
    return float(loss)


async def test_modules_are_chosen_and_unknown_ones_named() -> None:
    config = tiny_config(lora=LoraConfig(2, 2.0, ("q_proj", "layers.1.mlp.down_proj")))
    async with running(config) as trainer:
        names = {name.removesuffix(".weight").rpartition(".")[0] for name in await weights_of(trainer)}
        layers = "base_model.model.model.layers"
        assert names >= {f"{layers}.0.self_attn.q_proj", f"{layers}.1.self_attn.q_proj", f"{layers}.1.mlp.down_proj"}
        assert {name.rpartition(".")[2] for name in names} == {"q_proj", "down_proj"}
        assert f"{layers}.0.mlp.down_proj" not in names
    for wrong in ("q_prj", "lm_head", "embed_tokens"):
        with pytest.raises(InvalidArgument, match=r"there are down_proj, .*q_proj") as caught:
            async with running(tiny_config(lora=LoraConfig(2, 2.0, ("q_proj", wrong)))):
                pass
        assert [violation.field for violation in caught.value.violations] == ["config.lora.target_modules[1]"]


@pytest.mark.parametrize("lora", [LoraConfig(0, 1.0), LoraConfig(2, 0.0), LoraConfig(2, float("nan"))])
def test_numbers_that_cannot_work(lora: LoraConfig) -> None:
    from gradwire.server.engines.deepspeed import DeepSpeedTrainer

    with pytest.raises(InvalidArgument) as caught:
        DeepSpeedTrainer(tiny_config(lora=lora))
    assert caught.value.violations[0].field in ("config.lora.rank", "config.lora.alpha")
