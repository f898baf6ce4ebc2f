"""Any rows, masks, padding, budget, packing and loss: loss and parameter gradients are those of rows alone, in float64.

The path is the whole one but for processes: the message is decoded, the batch checked and prepared, its rows dealt to
ranks and micro-batches. The other side is the plain reference: one row at a time, the formulas in Python loops.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from transformers import AutoModelForCausalLM, LlamaConfig

from gradwire.server.codec.batch import decode_batch
from gradwire.server.codec.tensor import array_to_ragged, array_to_tensor
from gradwire.server.engines.deepspeed.model import PolicyModel, load_policy, tensors_of
from gradwire.server.engines.deepspeed.packing import plan, split_rows
from gradwire.server.engines.deepspeed.rank_loss import LossCall, RankBatch, loss_gradient, with_version
from gradwire.server.engines.training import TrainingBatch
from gradwire.server.errors import InvalidArgument
from gradwire.server.losses import resolve_loss
from gradwire.server.losses.metrics import merge_metrics
from gradwire.server.losses.prepare import prepare_batch
from gradwire.v1 import tensor_pb2, training_pb2
from tests.engines.deepspeed.support import PlainTrainer, group_batch, largest_difference, random_batch, select
from tests.engines.deepspeed.test_forward import SMALL
from tests.losses.plain import NoTokenLeft

LOSSES: list[tuple[str, dict[str, Any]]] = [
    ("grpo", {"entropy_coeff": 0.01}),
    ("grpo", {"loss_agg_mode": "seq-mean-token-sum", "c_clip": 3.0, "temperature": 0.8}),
    ("grpo", {"loss_agg_mode": "seq-mean-token-sum-norm", "use_kl_loss": True, "kl_loss_coef": 0.1}),
    ("grpo", {"loss_agg_mode": "prompt-mean", "use_kl_loss": True, "kl_loss_coef": 0.1, "kl_loss_type": "k2"}),
    ("grpo", {"m2_threshold": 0.15, "loss_agg_mode": "seq-mean-token-mean"}),
    ("grpo", {"prox_logp_method": "loglinear", "behav_imp_weight_cap": 1.5}),
    ("grpo", {"use_sapo_loss": True}),
    ("grpo", {"use_cispo_loss": True, "is_weight_clip_max": 1.2, "prox_logp_method": "metrics"}),
    ("dapo", {"loss_agg_mode": "prompt-mean"}),
    ("gspo", {"eps_clip": 0.1, "eps_clip_higher": 0.1}),
    ("cispo", {}),
    ("sapo", {"loss_agg_mode": "seq-mean-token-mean"}),
    ("importance_sampling", {"behav_imp_weight_cap": 1.2}),
    ("cross_entropy", {"loss_agg_mode": "seq-mean-token-mean"}),
    ("dpo", {"beta": 0.3, "label_smoothing": 0.1}),
    ("dpo", {"loss_type": "ipo", "reference_free": True}),
]
PROTO = {
    "old_log_probs": "old_log_probs_shifted",
    "prox_log_probs": "prox_logp_shifted",
    "ref_log_probs": "ref_log_probs_shifted",
}
VERSION = 3  # of the weights

SEEDS = st.integers(0, 9999)


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> tuple[PolicyModel, PlainTrainer]:
    torch.manual_seed(2)
    folder: Path = tmp_path_factory.mktemp("llama")
    AutoModelForCausalLM.from_config(LlamaConfig(**SMALL)).save_pretrained(folder)
    return load_policy(folder, dtype="float32", gradient_checkpointing=False).double(), PlainTrainer(folder)


def completed(
    batch: TrainingBatch, plain: PlainTrainer, name: str, options: dict[str, Any], seed: int
) -> TrainingBatch:
    """The columns that a loss takes: policies near the one that is trained, versions, prompts, weights, pairs."""
    rng = np.random.default_rng(seed)
    if name == "dpo":
        batch = select(batch, [0, 0] if batch.num_rows == 1 else list(range(batch.num_rows // 2 * 2)))
    assert batch.loss_mask is not None
    if name == "dpo":
        batch.loss_mask[batch.row_offsets[:-1]] = 1
    elif name == "cross_entropy":
        weights = rng.choice([0.5, 1, 2], len(batch.loss_mask)).astype(np.float32)
        batch = replace(batch, loss_mask=batch.loss_mask * weights)
    with torch.no_grad():
        log_probs = plain.log_probs(batch)[0].numpy()
    columns = dict(batch.columns)
    for column in PROTO:
        columns[column] = (log_probs + rng.normal(scale=0.3, size=len(log_probs))).astype(np.float32)
    columns["versions"] = rng.integers(0, VERSION + 1, len(log_probs)).astype(np.float32)
    if options.get("prox_logp_method") == "loglinear":
        del columns["prox_log_probs"]
    if options.get("reference_free"):
        del columns["ref_log_probs"]
    return replace(batch, columns=columns, prompt_group_ids=rng.integers(0, 3, batch.num_rows))


def message_of(batch: TrainingBatch, layout: str) -> training_pb2.TrainingBatch:
    """The batch as a client sends it: "ragged", or padded on the "left" or the "right" with junk."""
    message = training_pb2.TrainingBatch()
    assert batch.loss_mask is not None
    columns: dict[str, npt.NDArray[Any]] = {PROTO.get(name, name): values for name, values in batch.columns.items()}
    columns["versions"] = columns["versions"].astype(np.int32)
    columns |= {"input_ids": batch.input_ids, "loss_mask": batch.loss_mask}
    lengths = np.diff(batch.row_offsets)
    column = np.arange(batch.row_width)
    real = column < lengths[:, None] if layout == "right" else column >= batch.row_width - lengths[:, None]
    for name, values in columns.items():
        if layout == "ragged":
            tensor = tensor_pb2.BatchTensor(ragged=array_to_ragged(values, batch.row_offsets))
        else:
            grid = np.full(real.shape, 0 if name == "loss_mask" else 5, values.dtype)
            grid[real] = values
            tensor = tensor_pb2.BatchTensor(dense=array_to_tensor(grid))
        getattr(message, name).CopyFrom(tensor)
    if layout != "ragged":
        message.attention_mask.CopyFrom(array_to_tensor(real.astype(np.int32)))
    assert batch.prompt_group_ids is not None
    message.prompt_group_ids.CopyFrom(array_to_tensor(batch.prompt_group_ids))
    return message


def product_gradients(
    policy: PolicyModel,
    message: training_pb2.TrainingBatch,
    name: str,
    options: dict[str, Any],
    *,
    budget: int,
    ranks: int,
    packing: bool,
) -> tuple[float, dict[str, torch.Tensor]]:
    """What the ranks of a job do, one after the other."""
    loss = resolve_loss(name)
    prepared = prepare_batch(decode_batch(message).batch, loss, loss.parse(options))
    batch, mask, together = prepared.batch, prepared.mask, loss.rows_together
    policy.zero_grad()
    found = []
    for rows in split_rows(batch.input_ids, batch.row_offsets, mask, ranks, together=together):
        if not len(rows):
            continue
        part = select(replace(batch, loss_mask=mask), rows.tolist())
        assert part.loss_mask is not None
        mine = RankBatch(part.input_ids, part.row_offsets, rows, part.loss_mask, part.columns)
        config = with_version(loss.parse(options), mine, VERSION)
        call = LossCall(loss, config, loss.load(), prepared.whole)
        for micro in plan(
            part.input_ids, part.row_offsets, part.loss_mask, budget=budget, packing=packing, together=together
        ):
            scored = policy(*tensors_of(micro, torch.device("cpu")), config.temperature)
            gradient, metrics = loss_gradient(micro, mine, scored, call)
            scored.backward(gradient)
            found.append(metrics)
    gradients = {n: p.grad.clone() for n, p in policy.hf_parameters().items() if p.grad is not None}
    return merge_metrics(found)["loss"].result, gradients


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    batch=st.builds(random_batch, SEEDS, st.integers(1, 7), longest=st.just(20), vocabulary=st.just(97))
    | st.builds(group_batch, SEEDS, vocabulary=st.just(97)),
    layout=st.sampled_from(["ragged", "left", "right"]),
    budget=st.integers(10, 200),
    ranks=st.integers(1, 3),
    packing=st.booleans(),
    loss=st.sampled_from(LOSSES),
    seed=SEEDS,
)
def test_gradients_do_not_depend_on_how_the_batch_is_cut(
    models: tuple[PolicyModel, PlainTrainer],
    batch: TrainingBatch,
    layout: str,
    budget: int,
    ranks: int,
    packing: bool,
    loss: tuple[str, dict[str, Any]],
    seed: int,
) -> None:
    policy, plain = models
    batch = completed(batch, plain, *loss, seed)
    width = batch.row_width if layout != "ragged" else int(np.diff(batch.row_offsets).max())
    plain.model.zero_grad()
    message = message_of(batch, layout)
    try:
        expected = plain.loss(replace(batch, row_width=width), *loss, version=VERSION)
    except NoTokenLeft:
        with pytest.raises(InvalidArgument, match="m2_threshold"):
            product_gradients(policy, message, *loss, budget=budget, ranks=ranks, packing=packing)
        return
    expected.backward()
    found, gradients = product_gradients(policy, message, *loss, budget=budget, ranks=ranks, packing=packing)
    # Not 1e-12: transformers rounds to float32 inside its norms, also in a float64 model.
    wanted = {name: p.grad for name, p in plain.model.named_parameters() if p.grad is not None}
    scale = max(1.0, *(float(gradient.norm()) for gradient in wanted.values()))
    assert found == pytest.approx(float(expected.detach()), abs=1e-6 * scale)
    assert largest_difference(gradients, wanted) < 1e-6 * scale


@given(
    batch=st.builds(random_batch, SEEDS, st.integers(2, 9)) | st.builds(group_batch, SEEDS),
    budget=st.integers(1, 120),
    parts=st.integers(1, 3),
    packing=st.booleans(),
)
def test_pairs_are_never_parted(batch: TrainingBatch, budget: int, parts: int, packing: bool) -> None:
    assert batch.loss_mask is not None
    scored = set(np.flatnonzero(np.add.reduceat(batch.loss_mask, batch.row_offsets[:-1])).tolist())
    seen: list[int] = []
    for rows in split_rows(batch.input_ids, batch.row_offsets, batch.loss_mask, parts, together=2):
        if not len(rows):
            continue
        # A rank's rows are numbered anew. Where none is left out, pairs are so still; dpo sees to that.
        assert all(row ^ 1 in rows or row ^ 1 not in scored for row in rows.tolist())
    for micro in plan(batch.input_ids, batch.row_offsets, batch.loss_mask, budget=budget, packing=packing, together=2):
        together = micro.row_ids.tolist()
        assert all(row ^ 1 in together or row ^ 1 not in scored for row in together)
        seen += together
    assert sorted(seen) == sorted(scored)
