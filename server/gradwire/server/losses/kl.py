"""Estimators of KL(policy || reference) from the sampled token alone.

After J. Schulman, "Approximating KL divergence": k1 is unbiased, k2 and k3 never negative.
"""

from __future__ import annotations

import torch
from torch import Tensor

from gradwire.server.losses.names import KL_TYPES


def kl_per_token(log_probs: Tensor, ref_log_probs: Tensor, kind: str) -> Tensor:
    """The estimate for each token [N]; `kind` is a key of KL_TYPES."""
    delta = log_probs - ref_log_probs
    match KL_TYPES[kind]:
        case "k1":
            return delta
        case "abs":
            return delta.abs()
        case "k2":
            return delta.square() / 2
        case _:
            return torch.expm1(-delta) + delta
