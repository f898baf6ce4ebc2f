"""Loading: every rank reads what it holds."""

from __future__ import annotations

from pathlib import Path

import torch
from safetensors import safe_open

from gradwire.server.engines.deepspeed.checkpoint.checking import checked
from gradwire.server.engines.deepspeed.checkpoint.format import (
    OPTIMIZER,
    RANDOM,
    weights_file,
)
from gradwire.server.engines.deepspeed.optimizer import state_keys
from gradwire.server.engines.deepspeed.parameters import FullState
from gradwire.server.engines.deepspeed.schedule import learning_rate
from gradwire.server.engines.deepspeed.trainer import Trainer
from gradwire.server.engines.training import StepResult


def load_checkpoint(trainer: Trainer, path: Path) -> StepResult:
    """Continue from a checkpoint; drops accumulated gradients. `lr` of the result is the next step's.

    The weights get a version of their own, above all that this job or the checkpoint had: a version that
    stood for other weights before is never used again.

    Everything is checked before anything is changed: raises NotFound, or FailedPrecondition naming
    the file or tensor that is damaged or does not fit.
    """
    manifest = trainer.ranks.attempt(lambda: checked(trainer, path))
    state = FullState(trainer)
    keys = state_keys(trainer.config.optimizer)
    masters = "master/" if manifest.dtype == "bfloat16" else ""
    trainer.gradients.clear()
    trainer.accumulated = 0
    state.reset_optimizer(manifest.step, keys)
    with safe_open(path / weights_file(trainer), "pt") as model, safe_open(path / OPTIMIZER, "pt") as moments:
        for parameter in state.parameters:
            weights = moments.get_tensor(masters + parameter) if masters else model.get_tensor(parameter)
            state.set_master(parameter, weights)
            for key in keys if manifest.step else ():
                state.set_moment(parameter, key, moments.get_tensor(f"{key}/{parameter}"))
    state.publish()
    _restore_random(trainer, path)
    trainer.steps = manifest.step
    trainer.weight_version = max(trainer.weight_version, manifest.weight_version) + 1
    rate = learning_rate(trainer.config.optimizer, trainer.config.scheduler, trainer.steps)
    return StepResult(grad_norm=0.0, lr=rate, weight_version=trainer.weight_version, step=trainer.steps)


def _restore_random(trainer: Trainer, path: Path) -> None:
    if trainer.ranks.rank:
        return
    with safe_open(path / RANDOM, "pt") as states:
        torch.set_rng_state(states.get_tensor("torch_cpu"))
        if torch.cuda.is_available() and "torch_cuda" in states.keys():  # noqa: SIM118 (no mapping)
            torch.cuda.set_rng_state(states.get_tensor("torch_cuda"))
