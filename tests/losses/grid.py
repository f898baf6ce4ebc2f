"""From the reference cases' [B, S] grids to the flat tensors that a loss takes, by the plainest torch."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from gradwire.server.losses import LossNormalizer, resolve_loss
from gradwire.server.losses.inputs import LossInputs, LossOutput

CASES: list[dict[str, Any]] = json.loads((Path(__file__).parent / "reference.json").read_text())["cases"]

COLUMNS = {
    "advantages": "advantages",
    "old_log_probs_shifted": "old_log_probs",
    "prox_logp_shifted": "prox_log_probs",
    "ref_log_probs_shifted": "ref_log_probs",
}


def case_name(case: dict[str, Any]) -> str:
    """A readable test id."""
    extra = "+prox" if case["prox_logp_shifted"] is not None else ""
    return "-".join(f"{key}={value}" if key != "loss" else str(value) for key, value in case["config"].items()) + extra


def split_config(case: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    """Loss name and its options."""
    options = dict(case["config"])
    return options.pop("loss"), options


def whole_batch(case: dict[str, Any]) -> LossNormalizer:
    """Denominators of all rows of a case."""
    mask = torch.tensor(case["loss_mask"])
    return LossNormalizer(float(mask.sum()), int((mask.sum(1) > 0).sum()), mask.shape[1])


def log_probs_and_entropy(logits: Tensor, input_ids: Tensor, temperature: float) -> tuple[Tensor, Tensor]:
    """Shifted log-probs [B, S] of a row's own tokens, and the true entropy."""
    log_softmax = torch.log_softmax(logits / temperature, -1)
    labels = torch.roll(input_ids, -1, dims=-1)
    entropy = -(log_softmax.exp() * log_softmax).sum(-1)
    return log_softmax.gather(-1, labels.unsqueeze(-1)).squeeze(-1), entropy


def loss_of_rows(case: dict[str, Any], logits: Tensor, rows: Sequence[int], whole: LossNormalizer) -> LossOutput:
    """The loss of some rows of a case, as one micro-batch would see them."""
    name, options = split_config(case)
    loss = resolve_loss(name)
    config = loss.parse(options)
    index = torch.tensor(rows)
    input_ids = torch.tensor(case["input_ids"])[index]
    mask = torch.tensor(case["loss_mask"])[index]
    lp, entropy = log_probs_and_entropy(logits[index], input_ids, config.temperature)
    scored = mask.nonzero(as_tuple=True)
    columns = {
        target: torch.tensor(case[source], dtype=logits.dtype)[index][scored]
        for source, target in COLUMNS.items()
        if case[source] is not None
    }
    inputs = LossInputs(lp[scored], entropy[scored], mask[scored].to(logits.dtype), scored[0], len(rows), **columns)
    return loss.load()(inputs, config, whole)
