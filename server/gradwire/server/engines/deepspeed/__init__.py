"""Training with DeepSpeed: worker processes, and the group of them as one engine.

The front process imports `DeepSpeedTrainer` and nothing that imports torch.
"""

from gradwire.server.engines.deepspeed.group import DeepSpeedTrainer

__all__ = ["DeepSpeedTrainer"]
