"""All losses once more, row by row in float64, straight from their formulas: what the product is compared with.

Written for reading and not for speed, with nothing of the product in it: Python loops over tokens, one row at a
time, and the whole batch in sight, so that no question of packs, micro-batches or ranks can arise.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

Options = dict[str, Any]

DEFAULTS: dict[str, Options] = {
    "grpo": {"eps_clip": 0.2},
    "ppo": {"eps_clip": 0.2},
    "dapo": {"eps_clip": 0.2, "eps_clip_higher": 0.28},
    "gspo": {
        "eps_clip": 3e-4,
        "eps_clip_higher": 4e-4,
        "importance_sampling_level": "sequence",
        "loss_agg_mode": "seq-mean-token-mean",
    },
    "cispo": {"eps_clip": 1.0, "eps_clip_higher": 0.28},
}


@dataclass
class Row:
    """One row; lists are over its entries on the shifted grid, `log_probs` and `entropy` with gradient."""

    log_probs: Tensor
    entropy: Tensor
    mask: Sequence[float]
    advantages: Sequence[float] | None = None
    old: Sequence[float] | None = None
    prox: Sequence[float] | None = None
    ref: Sequence[float] | None = None
    versions: Sequence[float] | None = None
    prompt: int = 0

    def scored(self) -> list[int]:
        return [i for i, weight in enumerate(self.mask) if weight]


class NoTokenLeft(Exception):
    """M2PO drops every token of the batch."""


def plain_loss(rows: Sequence[Row], name: str, given: Options, *, width: int, version: int = 0) -> Tensor:
    """The loss of the whole batch. `width` is S; `version` that of the weights, unless the options say."""
    options = {"loss_agg_mode": "token-mean", **DEFAULTS.get(name, {}), **given}
    if name == "dpo":
        return _dpo(rows, options)
    options.setdefault("current_version", version)
    rows = _second_moment(rows, options)
    per_token = {
        (r, i): _token(name, row, i, options) + _extras(row, i, options)
        for r, row in enumerate(rows)
        for i in row.scored()
    }
    return _aggregate(rows, per_token, options, width)


def _token(name: str, row: Row, i: int, o: Options) -> Tensor:
    lp = row.log_probs[i]
    if name == "cross_entropy":
        return -lp
    sapo = name == "sapo" or o.get("use_sapo_loss", False)
    cispo = name == "cispo" or o.get("use_cispo_loss", False)
    chosen = row.scored() if o.get("importance_sampling_level") == "sequence" else [i]
    assert row.advantages is not None
    advantage = sum(row.advantages[j] for j in chosen) / len(chosen)
    log_ratio = sum((row.log_probs[j] - _anchor(row, j, o, sapo=sapo) for j in chosen), torch.zeros(())) / len(chosen)
    ratio = log_ratio.exp()
    if sapo:
        tau = o.get("sapo_tau_pos", 1.0) if advantage > 0 else o.get("sapo_tau_neg", 1.05)
        return -4 / tau / (1 + (-tau * (ratio - 1)).exp()) * advantage
    low, high = 1 - o.get("eps_clip", 0.2), 1 + (o.get("eps_clip_higher") or o.get("eps_clip", 0.2))
    if cispo:
        if o.get("is_weight_clip_max"):
            low, high = 0.0, o["is_weight_clip_max"]
        weight = min(max(float(ratio.detach()), low), high)
        return -weight * advantage * lp * _behaviour(row, i, o)
    if name == "importance_sampling":
        return -advantage * ratio * _behaviour(row, i, o)
    # The clip in words: no credit above the bound for a good token, none below it for a bad one.
    value = float(ratio.detach())
    if (advantage > 0 and value > high) or (advantage < 0 and value < low):
        loss = torch.tensor(-advantage * (high if advantage > 0 else low), dtype=torch.float64)
    else:
        loss = -advantage * ratio
    ceiling = o.get("c_clip")
    if ceiling is not None and float(loss.detach()) > ceiling * abs(advantage):
        loss = torch.tensor(ceiling * abs(advantage), dtype=torch.float64)
    return loss * _behaviour(row, i, o)


def _anchor(row: Row, i: int, o: Options, *, sapo: bool) -> Tensor | float:
    """What the ratio is against."""
    prox = None if sapo else _prox(row, i, o)
    if prox is not None:
        return prox
    return row.old[i] if row.old is not None else row.log_probs[i].detach()


def _prox(row: Row, i: int, o: Options) -> float | None:
    if o.get("prox_logp_method") == "loglinear":
        assert row.versions is not None and row.old is not None
        now, then = o["current_version"], row.versions[i]
        part = 0.0 if now == then else min(max((now - 1 - then) / (now - then), 0.0), 1.0)
        return row.old[i] + part * (float(row.log_probs[i].detach()) - row.old[i])
    return None if row.prox is None else row.prox[i]


def _behaviour(row: Row, i: int, o: Options) -> float:
    prox = _prox(row, i, o)
    if prox is None or row.old is None:
        return 1.0
    weight = math.exp(prox - row.old[i])
    cap = o.get("behav_imp_weight_cap")
    return 0.0 if cap is not None and weight > cap else weight


def _extras(row: Row, i: int, o: Options) -> Tensor:
    total = torch.zeros((), dtype=torch.float64)
    if o.get("use_kl_loss"):
        assert row.ref is not None
        gap = row.log_probs[i] - row.ref[i]
        kinds = {"k1": gap, "abs": gap.abs(), "k2": gap**2 / 2, "k3": (-gap).exp() + gap - 1}
        total = total + o.get("kl_loss_coef", 1e-3) * kinds[o.get("kl_loss_type", "k3")]
    return total - o.get("entropy_coeff", 0.0) * row.entropy[i]


def _aggregate(rows: Sequence[Row], tokens: dict[tuple[int, int], Tensor], o: Options, width: int) -> Tensor:
    def total(members: Sequence[int]) -> Tensor:
        terms = [rows[r].mask[i] * loss for (r, i), loss in tokens.items() if r in members]
        return torch.stack(terms).sum()

    def weight(members: Sequence[int]) -> float:
        return sum(sum(rows[r].mask) for r in members)

    everything = list(range(len(rows)))
    active = [r for r in everything if rows[r].scored()]
    match o["loss_agg_mode"]:
        case "token-mean":
            return total(everything) / o.get("batch_num_tokens", weight(everything))
        case "seq-mean-token-sum":
            each = [total([r]) for r in active]
        case "seq-mean-token-mean":
            each = [total([r]) / weight([r]) for r in active]
        case "seq-mean-token-sum-norm":
            each = [total([r]) / width for r in active]
        case "prompt-mean":
            prompts = {rows[r].prompt: [s for s in active if rows[s].prompt == rows[r].prompt] for r in active}
            each = [total(members) / weight(members) for members in prompts.values()]
        case mode:
            raise AssertionError(mode)
    return torch.stack(each).sum() / o.get("global_batch_size", len(each))


def _second_moment(rows: Sequence[Row], o: Options) -> Sequence[Row]:
    """M2PO: drop the token with the largest (old - prox)^2 until the mean of the rest is below the threshold."""
    threshold = o.get("m2_threshold")
    if threshold is None:
        return rows
    left = {(r, i): (row.old[i] - row.prox[i]) ** 2 for r, row in enumerate(rows) for i in row.scored()}  # type: ignore[index]
    while sum(left.values()) / len(left) >= threshold:
        del left[max(left, key=lambda at: left[at])]
        if not left:
            raise NoTokenLeft
    return [
        Row(
            row.log_probs,
            row.entropy,
            [weight if (r, i) in left else 0 for i, weight in enumerate(row.mask)],
            row.advantages,
            row.old,
            row.prox,
            row.ref,
            row.versions,
            row.prompt,
        )
        for r, row in enumerate(rows)
    ]


def _dpo(rows: Sequence[Row], o: Options) -> Tensor:
    def reward(row: Row) -> Tensor:
        terms = [row.log_probs[i] - (0 if row.ref is None else row.ref[i]) for i in row.scored()]
        return torch.stack(terms).sum()

    beta, doubt = o.get("beta", 0.1), o.get("label_smoothing", 0.0)
    losses = []
    for better, worse in zip(rows[::2], rows[1::2], strict=True):
        margin = reward(better) - reward(worse)
        if o.get("loss_type") == "ipo":
            losses.append((margin - 1 / (2 * beta)) ** 2)
        else:
            sure = (1 + (-beta * margin).exp()).log()  # -log sigmoid
            losses.append((1 - doubt) * sure + doubt * (1 + (beta * margin).exp()).log())
    return torch.stack(losses).sum() / o.get("global_batch_size", len(losses))
