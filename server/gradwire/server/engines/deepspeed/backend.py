"""Starting DeepSpeed in a worker process: environment, process group, engine.

Must be imported before anything imports deepspeed, which reads its accelerator at import.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch

from gradwire.server.engines.deepspeed.collective import Ranks
from gradwire.server.engines.deepspeed.model import PolicyModel, load_policy
from gradwire.server.engines.deepspeed.optimizer import deepspeed_config, make_optimizer
from gradwire.server.engines.deepspeed.storages import own_memory
from gradwire.server.engines.training import TrainingConfig

COLLECTIVE_TIMEOUT = timedelta(minutes=30)
"""A rank may wait this long for its peers: longer than any single operation of a job in good health."""


@dataclass(frozen=True, slots=True)
class Started:
    """A job's model and engine on one rank."""

    engine: Any  # deepspeed.DeepSpeedEngine
    policy: PolicyModel
    optimizer: torch.optim.Optimizer
    ranks: Ranks


def start_backend(config: TrainingConfig, *, rank: int, world: int, master_port: int) -> Started:
    """Load the model and hand it to DeepSpeed; a collective. `config.model_path` is a local folder."""
    _prepare(config, rank=rank, world=world, master_port=master_port)
    # Ask for a local backend at all: reading the weights is the slow part, and needs no peers.
    policy = load_policy(
        Path(config.model_path),
        dtype=config.dtype,
        gradient_checkpointing=config.gradient_checkpointing,
        lora=config.lora,
        seed=config.seed,
    )
    own_memory(policy)  # or it could never sleep
    deepspeed, device = _connect()
    optimizer = make_optimizer(config.optimizer, policy.trained_parameters().values())
    engine, *_ = deepspeed.initialize(model=policy, optimizer=optimizer, config=deepspeed_config(config))
    # At stage 0 the reduction is ours, because clipping needs its result before the step.
    if engine.zero_optimization_stage() == 0:
        engine.enable_backward_allreduce = False
    return Started(engine, policy, optimizer, Ranks(rank, world, device))


def start_forward_only(config: TrainingConfig, *, rank: int, world: int, master_port: int) -> tuple[PolicyModel, Ranks]:
    """Load the model to score with it, on each rank a whole one without gradients; a collective."""
    _prepare(config, rank=rank, world=world, master_port=master_port)
    policy = load_policy(Path(config.model_path), dtype=config.dtype, gradient_checkpointing=False)
    own_memory(policy)  # or it could never sleep
    _, device = _connect()
    return policy.requires_grad_(False).to(device), Ranks(rank, world, device)


def _prepare(config: TrainingConfig, *, rank: int, world: int, master_port: int) -> None:
    """The environment that torch.distributed and DeepSpeed read, threads and seed."""
    cuda = torch.cuda.is_available()
    os.environ.update(
        RANK=str(rank),
        WORLD_SIZE=str(world),
        LOCAL_RANK="0" if cuda else str(rank),  # the launcher shows a CUDA worker its own device only
        MASTER_ADDR="127.0.0.1",
        MASTER_PORT=str(master_port),
    )
    if not cuda:
        os.environ["DS_ACCELERATOR"] = "cpu"
        if config.threads:
            torch.set_num_threads(config.threads)
    torch.manual_seed(config.seed)


def _connect() -> tuple[Any, torch.device]:
    """DeepSpeed with its process group, and this rank's device."""
    cuda = torch.cuda.is_available()
    deepspeed = _import_deepspeed()
    deepspeed.init_distributed("nccl" if cuda else "gloo", timeout=COLLECTIVE_TIMEOUT)
    return deepspeed, torch.device("cuda", torch.cuda.current_device()) if cuda else torch.device("cpu")


def _import_deepspeed() -> Any:
    import deepspeed
    import deepspeed.ops

    # Its shared-memory collective for CPUs is compiled at first use (half a minute), and serves tensor-parallel
    # inference only, which no job here does.
    deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False
    return deepspeed
