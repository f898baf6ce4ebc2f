"""DPO: a loss on pairs of rows. Row 2k of the caller's batch is preferred to row 2k + 1."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

from gradwire.server.losses.inputs import LossInputs, LossOutput
from gradwire.server.losses.metrics import Metric, Reduction
from gradwire.server.losses.normalizer import LossNormalizer
from gradwire.server.losses.preference_config import DpoConfig


def dpo(inputs: LossInputs, config: DpoConfig, whole: LossNormalizer) -> LossOutput:
    """Mean over pairs of -(1 - e) log sigmoid(beta h) - e log sigmoid(-beta h) (arXiv 2305.18290).

    h is the preferred row's sum of (lp - ref) minus the other's, e the label smoothing. "ipo":
    (h - 1 / (2 beta))^2 (arXiv 2310.12036, equation 17).
    """
    ref = inputs.ref_log_probs
    ratios = inputs.row_sum(inputs.mask * (inputs.log_probs if ref is None else inputs.log_probs - ref))
    preferred, other = pairs_of(inputs)
    margin = ratios[preferred] - ratios[other]
    if config.loss_type == "ipo":
        losses = (margin - 1 / (2 * config.beta)).square()
    else:
        e = config.label_smoothing
        losses = -(1 - e) * logsigmoid(config.beta * margin) - e * logsigmoid(-config.beta * margin)
    loss = losses.sum() / (config.global_batch_size or whole.active_rows / 2)
    pairs, rewards = float(len(margin)), config.beta * ratios.detach()

    def mean(values: Tensor) -> Metric:
        return Metric(Reduction.MEAN, float(values.sum()), pairs)

    entropy = float((inputs.mask * inputs.entropy.detach()).sum())
    return LossOutput(
        loss,
        {
            "loss": Metric(Reduction.SUM, float(loss.detach())),
            "num_loss_tokens": Metric(Reduction.SUM, float(inputs.mask.numel())),
            "num_pairs": Metric(Reduction.SUM, pairs),
            "reward_chosen": mean(rewards[preferred]),
            "reward_rejected": mean(rewards[other]),
            "reward_margin": mean(config.beta * margin.detach()),
            "reward_accuracy": mean((margin.detach() > 0).to(ratios.dtype)),
            "entropy": Metric(Reduction.MEAN, entropy, float(inputs.mask.sum())),
        },
    )


def pairs_of(inputs: LossInputs) -> tuple[Tensor, Tensor]:
    """Indices [P] of the preferred rows and of their partners, which are never in another micro-batch."""
    assert inputs.row_ids is not None and not inputs.num_rows % 2  # the planner keeps rows_together whole
    order = torch.argsort(inputs.row_ids)
    return order[0::2], order[1::2]
