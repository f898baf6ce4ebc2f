"""Writes options.json: worked cases computed by plain.py, with nothing of the product.

Run by hand after adding a configuration: python -m tests.losses.make_options
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import torch

from tests.losses.grid import plain_rows, split_config
from tests.losses.plain import plain_loss

B, S, V = 4, 6, 5
LENGTHS = (6, 3, 5, 4)

CONFIGS: list[dict[str, Any]] = [
    {"loss": "grpo", "loss_agg_mode": "prompt-mean"},
    {"loss": "grpo", "loss_agg_mode": "prompt-mean", "global_batch_size": 5},
    {"loss": "cross_entropy", "loss_agg_mode": "prompt-mean"},
    {"loss": "grpo", "m2_threshold": 0.04},
    {"loss": "grpo", "m2_threshold": 0.02, "loss_agg_mode": "seq-mean-token-mean", "c_clip": 3.0},
    {"loss": "grpo", "prox_logp_method": "loglinear", "current_version": 3, "behav_imp_weight_cap": 1.3},
    {"loss": "gspo", "prox_logp_method": "loglinear", "current_version": 3, "eps_clip": 0.1, "eps_clip_higher": 0.1},
    {"loss": "grpo", "prox_logp_method": "metrics", "current_version": 3},
    {"loss": "grpo", "use_sapo_loss": True, "sapo_tau_neg": 1.2},
    {"loss": "grpo", "use_cispo_loss": True, "use_decoupled_loss": True},
    {"loss": "grpo", "use_cispo_loss": True, "is_weight_clip_max": 1.1},
    {"loss": "grpo", "use_kl_loss": True, "kl_loss_coef": 0.1, "kl_loss_type": "k1"},
    {"loss": "grpo", "use_kl_loss": True, "kl_loss_coef": 0.1, "kl_loss_type": "abs"},
    {"loss": "dpo"},
    {"loss": "dpo", "beta": 0.5, "label_smoothing": 0.1, "temperature": 0.8},
    {"loss": "dpo", "loss_type": "ipo", "beta": 0.2},
    {"loss": "dpo", "reference_free": True, "global_batch_size": 8},
]


def case_of(config: dict[str, Any], seed: int) -> dict[str, Any]:
    """Random inputs for a configuration, and what comes out."""
    rng = np.random.default_rng(seed)
    logits = rng.normal(scale=1.3, size=(B, S, V)).round(6)
    near = np.log(np.full((B, S), 0.25))

    def policy() -> list[list[float]]:
        return (near + rng.normal(scale=0.4, size=(B, S))).round(6).tolist()

    def near_to(log_probs: list[list[float]]) -> list[list[float]]:
        return (np.array(log_probs) + rng.normal(scale=0.25, size=(B, S))).round(6).tolist()

    mask = np.zeros((B, S))
    for row, length in enumerate(LENGTHS):
        mask[row, rng.integers(0, 2) : length - 1] = 1
    name, options = split_config({"config": config})
    proximal = options.get("prox_logp_method") != "loglinear" and name in ("grpo", "gspo")
    if name == "cross_entropy":
        mask *= rng.choice([0.25, 0.5, 1.0], size=(B, S))
    old = policy()
    case: dict[str, Any] = {
        "config": config,
        "input_ids": rng.integers(0, V, (B, S)).tolist(),
        "attention_mask": [[int(i < length) for i in range(S)] for length in LENGTHS],
        "loss_mask": mask.tolist() if name == "cross_entropy" else mask.astype(int).tolist(),
        "advantages": rng.normal(size=(B, 1)).round(6).repeat(S, 1).tolist(),
        "logits": logits.tolist(),
        "old_log_probs_shifted": old,
        "prox_logp_shifted": (np.array(old) + rng.normal(scale=0.25, size=(B, S))).round(6).tolist()
        if proximal
        else None,
        "ref_log_probs_shifted": None if options.get("reference_free") else policy(),
        "versions": rng.integers(0, 4, (B, S)).tolist(),
        "prompt_group_ids": [7, 7, -2, 7] if options.get("loss_agg_mode") == "prompt-mean" else None,
    }
    at = torch.tensor(logits, dtype=torch.float64, requires_grad=True)
    loss = plain_loss(plain_rows(case, at), name, options, width=S)
    (gradient,) = torch.autograd.grad(loss, at)
    return {**case, "loss": float(loss.detach()), "grad_logits": gradient.numpy().round(13).tolist()}


if __name__ == "__main__":
    cases = [case_of(config, seed) for seed, config in enumerate(CONFIGS)]
    lines = ",\n".join(json.dumps(case) for case in cases)
    (Path(__file__).parent / "options.json").write_text(f'{{"dtype": "float64", "cases": [\n{lines}\n]}}\n')
