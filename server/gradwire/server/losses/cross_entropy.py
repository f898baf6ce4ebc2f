"""Supervised loss: -log p of the row's own tokens, weighted by the mask."""

from __future__ import annotations

from gradwire.server.losses.aggregate import token_weights
from gradwire.server.losses.inputs import LossInputs, LossOutput
from gradwire.server.losses.metrics import Metric, Reduction
from gradwire.server.losses.normalizer import LossNormalizer
from gradwire.server.losses.preference_config import CrossEntropyConfig


def cross_entropy(inputs: LossInputs, config: CrossEntropyConfig, whole: LossNormalizer) -> LossOutput:
    """L = -lp. The mask may hold any weights >= 0."""
    loss = -(token_weights(inputs, config, whole) * inputs.log_probs).sum()
    mask = inputs.mask
    weight = float(mask.sum())
    return LossOutput(
        loss,
        {
            "loss": Metric(Reduction.SUM, float(loss.detach())),
            "num_loss_tokens": Metric(Reduction.SUM, float(mask.numel())),
            "nll": Metric(Reduction.MEAN, float(-(mask * inputs.log_probs.detach()).sum()), weight),
            "entropy": Metric(Reduction.MEAN, float((mask * inputs.entropy.detach()).sum()), weight),
        },
    )
