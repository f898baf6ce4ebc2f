"""Any rows, masks, budget and loss: loss and parameter gradients are those of rows alone, in float64."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from transformers import AutoModelForCausalLM, LlamaConfig

from gradwire.server.engines.deepspeed.model import PolicyModel, load_policy, tensors_of
from gradwire.server.engines.deepspeed.packing import plan, split_rows
from gradwire.server.engines.deepspeed.trainer import RankBatch, loss_inputs
from gradwire.server.engines.training import TrainingBatch
from gradwire.server.losses import LossNormalizer, resolve_loss
from tests.engines.deepspeed.support import PlainTrainer, group_batch, largest_difference, random_batch, select
from tests.engines.deepspeed.test_forward import SMALL

LOSSES: list[tuple[str, dict[str, Any]]] = [
    ("grpo", {"entropy_coeff": 0.01}),
    ("grpo", {"loss_agg_mode": "seq-mean-token-sum", "c_clip": 3.0, "temperature": 0.8}),
    ("grpo", {"loss_agg_mode": "seq-mean-token-sum-norm", "use_kl_loss": True, "kl_loss_coef": 0.1}),
    ("gspo", {"eps_clip": 0.1, "eps_clip_higher": 0.1}),
    ("cispo", {}),
    ("sapo", {"loss_agg_mode": "seq-mean-token-mean"}),
    ("importance_sampling", {"behav_imp_weight_cap": 1.2}),
    ("cross_entropy", {"loss_agg_mode": "seq-mean-token-mean"}),
]


SEEDS = st.integers(0, 9999)


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> tuple[PolicyModel, PlainTrainer]:
    torch.manual_seed(2)
    folder: Path = tmp_path_factory.mktemp("llama")
    AutoModelForCausalLM.from_config(LlamaConfig(**SMALL)).save_pretrained(folder)
    return load_policy(folder, dtype="float32", gradient_checkpointing=False).double(), PlainTrainer(folder)


def with_policies(batch: TrainingBatch, plain: PlainTrainer, seed: int) -> TrainingBatch:
    """Old, proximal and reference policies near the one that is trained."""
    rng = np.random.default_rng(seed)
    with torch.no_grad():
        log_probs = plain.log_probs(batch)[0].numpy()
    near = {
        name: (log_probs + rng.normal(scale=0.3, size=len(log_probs))).astype(np.float32)
        for name in ("old_log_probs", "prox_log_probs", "ref_log_probs")
    }
    columns = {**batch.columns, **near}
    return TrainingBatch(batch.input_ids, batch.row_offsets, batch.row_width, batch.loss_mask, columns)


def packed_gradients(
    policy: PolicyModel, batch: TrainingBatch, name: str, options: dict[str, Any], budget: int, ranks: int
) -> tuple[float, dict[str, torch.Tensor]]:
    """What the ranks of a job do, one after the other."""
    assert batch.loss_mask is not None
    loss = resolve_loss(name)
    config, function = loss.parse(options), loss.load()
    whole = LossNormalizer.of(batch.loss_mask, batch.row_offsets, batch.row_width)
    policy.zero_grad()
    total = 0.0
    for rows in split_rows(batch.input_ids, batch.row_offsets, batch.loss_mask, ranks):
        if not len(rows):
            continue
        part = select(batch, rows.tolist())
        assert part.loss_mask is not None
        mine = RankBatch(part.input_ids, part.row_offsets, rows, part.loss_mask, part.columns)
        for micro in plan(part.input_ids, part.row_offsets, part.loss_mask, budget=budget):
            log_probs, entropy = policy(*tensors_of(micro, torch.device("cpu")), config.temperature)
            output = function(loss_inputs(micro, mine, log_probs, entropy), config, whole)
            output.loss.backward()
            total += float(output.loss.detach())
    return total, {n: p.grad.clone() for n, p in policy.hf_parameters().items() if p.grad is not None}


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    batch=st.builds(random_batch, SEEDS, st.integers(1, 7), longest=st.just(20), vocabulary=st.just(97))
    | st.builds(group_batch, SEEDS, vocabulary=st.just(97)),
    budget=st.integers(10, 200),
    ranks=st.integers(1, 3),
    loss=st.sampled_from(LOSSES),
    seed=SEEDS,
)
def test_gradients_do_not_depend_on_how_the_batch_is_cut(
    models: tuple[PolicyModel, PlainTrainer],
    batch: TrainingBatch,
    budget: int,
    ranks: int,
    loss: tuple[str, dict[str, Any]],
    seed: int,
) -> None:
    policy, plain = models
    batch = with_policies(batch, plain, seed)
    plain.model.zero_grad()
    expected = plain.loss(batch, *loss)
    expected.backward()
    found, gradients = packed_gradients(policy, batch, *loss, budget, ranks)
    # Not 1e-12: transformers rounds to float32 inside its norms, also in a float64 model.
    wanted = {name: p.grad for name, p in plain.model.named_parameters() if p.grad is not None}
    scale = max(1.0, *(float(gradient.norm()) for gradient in wanted.values()))
    assert found == pytest.approx(float(expected.detach()), abs=1e-6)
    assert largest_difference(gradients, wanted) < 1e-6 * scale
