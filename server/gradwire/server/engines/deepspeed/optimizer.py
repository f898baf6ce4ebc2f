"""Torch optimizers by name, and what DeepSpeed is told about a job.

Knows: which of torch's implementations is fast on which device. Does not know: rates over time
(schedule.py), or how states are saved (checkpoint/).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch import nn

from gradwire.server.engines.training import OptimizerConfig, TrainingConfig

STATE_KEYS = {"adamw": ("exp_avg", "exp_avg_sq"), "sgd": ("momentum_buffer",)}
"""Tensors that an optimizer keeps for each parameter, in its shape."""


def make_optimizer(config: OptimizerConfig, parameters: Iterable[nn.Parameter]) -> torch.optim.Optimizer:
    """AdamW with decoupled decay (arXiv 1711.05101) or SGD, over the given parameters in one group.

    Torch's own fused kernels: DeepSpeed's would be compiled at the first start.
    """
    if config.name == "sgd":
        return torch.optim.SGD(
            parameters, lr=config.lr, momentum=config.momentum, weight_decay=config.weight_decay, fused=True
        )
    return torch.optim.AdamW(
        parameters, lr=config.lr, betas=config.betas, eps=config.eps, weight_decay=config.weight_decay, fused=True
    )


def state_keys(config: OptimizerConfig) -> tuple[str, ...]:
    """The keys of STATE_KEYS that this configuration really fills."""
    return () if config.name == "sgd" and config.momentum == 0 else STATE_KEYS[config.name]


def effective_stage(config: TrainingConfig) -> int:
    """The ZeRO stage that DeepSpeed runs.

    DeepSpeed keeps fp32 master weights and fp32 gradients for bf16 parameters from stage 1 on only, so a
    bf16 job at stage 0 runs as stage 1: the same numbers, with the optimizer's state split over the ranks.
    """
    return max(config.zero_stage, 1) if config.dtype == "bfloat16" else config.zero_stage


def deepspeed_config(config: TrainingConfig) -> dict[str, Any]:
    """DeepSpeed's configuration of a job. Clipping and rates are ours, set anew at each step."""
    low = config.dtype == "bfloat16"
    return {
        "train_micro_batch_size_per_gpu": 1,  # required, and without effect: the batch is never DeepSpeed's to split
        "gradient_accumulation_steps": 1,
        # Any number of backward passes, then one step: the older switch, set_gradient_accumulation_boundary,
        # leaves the ranks of stage 0 unreduced without a word.
        "managed_gradient_accumulation": False,
        "zero_optimization": {"stage": effective_stage(config), "overlap_comm": False},
        "zero_allow_untested_optimizer": True,
        "bf16": {"enabled": low},
        "data_types": {"grad_accum_dtype": "fp32"},
        # Left out it is 1.0, and stage 0 would clip once more after us.
        "gradient_clipping": 0.0,
        "steps_per_print": 1 << 60,
    }
