"""Training losses by name: a registry, strict configurations, and pure torch functions.

Knows: formulas, denominators, metrics. Does not know: deepspeed, gRPC, models or how rows were packed.
Importing this package imports no torch: the front process checks names and configurations without it.
"""

from gradwire.server.losses.config import LossConfig
from gradwire.server.losses.normalizer import LossNormalizer
from gradwire.server.losses.registry import Loss, loss_names, resolve_loss

__all__ = ["Loss", "LossConfig", "LossNormalizer", "loss_names", "resolve_loss"]
