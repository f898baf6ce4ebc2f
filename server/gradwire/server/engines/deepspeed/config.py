"""Whether a training job's configuration can work, said before anything is started. No torch."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from gradwire.server.engines.cores import usable_cores
from gradwire.server.engines.deepspeed.launcher import visible_devices
from gradwire.server.engines.deepspeed.schedule import check_scheduler
from gradwire.server.engines.training import LoraConfig, OptimizerConfig, TrainingConfig
from gradwire.server.errors import FieldViolation, InvalidArgument
from gradwire.server.losses import resolve_loss
from gradwire.server.losses.names import did_you_mean

DTYPES = ("float32", "bfloat16")
OPTIMIZERS = ("adamw", "sgd")
MAX_LORA_RANK = 1024
FEW_WORKERS = 8  # on a CPU so many may share however few cores there are


def checked_config(config: TrainingConfig) -> TrainingConfig:
    """The configuration with `threads` resolved. Raises InvalidArgument naming every bad field."""
    bad = [*_job_problems(config), *_optimizer_problems(config.optimizer), *_lora_problems(config.lora)]
    if bad:
        raise InvalidArgument([FieldViolation(f"config.{field}", text) for field, text in bad])
    check_scheduler(config.scheduler)
    resolve_loss(config.loss, path="config.loss").parse(config.loss_config, path="config.loss_config")
    return config if config.threads else replace(config, threads=max(1, usable_cores() // config.num_workers))


def _job_problems(config: TrainingConfig) -> list[tuple[str, str]]:
    bad = []
    if not (Path(config.model_path) / "config.json").is_file():
        bad.append(("model_path", f"{config.model_path!r} is not a model folder: it holds no config.json"))
    if config.dtype not in DTYPES:
        bad.append(("dtype", f"{config.dtype!r} is none of {', '.join(DTYPES)}.{did_you_mean(config.dtype, DTYPES)}"))
    if config.zero_stage not in range(4):
        bad.append(("zero_stage", f"must be 0, 1, 2 or 3, is {config.zero_stage}"))
    if config.num_workers < 1:
        bad.append(("num_workers", f"must be at least 1, is {config.num_workers}"))
    most = len(visible_devices()) or max(usable_cores(), FEW_WORKERS)
    if config.num_workers > most:
        bad.append(("num_workers", f"{config.num_workers} are more than this machine can run; it takes {most}"))
    if config.max_tokens_per_micro_batch < 1:
        bad.append(("max_tokens_per_micro_batch", f"must be at least 1, is {config.max_tokens_per_micro_batch}"))
    if not 0 <= config.max_grad_norm < float("inf"):
        bad.append(("max_grad_norm", f"must be finite and >= 0, is {config.max_grad_norm}"))
    if config.threads < 0:
        bad.append(("threads", f"must be >= 0, is {config.threads}"))
    return bad


def _optimizer_problems(config: OptimizerConfig) -> list[tuple[str, str]]:
    bad = []
    if config.name not in OPTIMIZERS:
        bad.append(
            ("name", f"{config.name!r} is none of {', '.join(OPTIMIZERS)}.{did_you_mean(config.name, OPTIMIZERS)}")
        )
    if not 0 <= config.lr < float("inf"):
        bad.append(("lr", f"must be finite and >= 0, is {config.lr}"))
    if any(not 0 <= beta < 1 for beta in config.betas):
        bad.append(("betas", f"must be in [0, 1), are {config.betas}"))
    if not config.eps > 0:
        bad.append(("eps", f"must be > 0, is {config.eps}"))
    if not config.weight_decay >= 0:
        bad.append(("weight_decay", f"must be >= 0, is {config.weight_decay}"))
    if not 0 <= config.momentum < 1:
        bad.append(("momentum", f"must be in [0, 1), is {config.momentum}"))
    return [(f"optimizer.{key}", text) for key, text in bad]


def _lora_problems(config: LoraConfig | None) -> list[tuple[str, str]]:
    bad = []
    if config is not None and not 1 <= config.rank <= MAX_LORA_RANK:
        bad.append(("lora.rank", f"must be 1 to {MAX_LORA_RANK}, is {config.rank}"))
    if config is not None and not 0 < config.alpha < float("inf"):
        bad.append(("lora.alpha", f"must be finite and > 0, is {config.alpha}"))
    return bad
