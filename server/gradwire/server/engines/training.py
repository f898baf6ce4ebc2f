"""Values that cross the border of a training engine. No gRPC, no torch, no deepspeed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

ADAPTER_FOLDER, EXPORT_FOLDER = "adapter", "hf"  # in a checkpoint's


@dataclass(frozen=True, slots=True)
class OptimizerConfig:
    """AdamW (decoupled weight decay, arXiv 1711.05101) or SGD."""

    name: str = "adamw"  # "adamw" | "sgd"
    lr: float = 1e-5
    betas: tuple[float, float] = (0.9, 0.999)
    eps: float = 1e-8
    weight_decay: float = 0.0
    momentum: float = 0.0  # sgd only


@dataclass(frozen=True, slots=True)
class SchedulerConfig:
    """Learning rate by step: linear warm-up from 0, then `name` down to `min_lr_ratio` x lr."""

    name: str = "constant"  # "constant" | "linear" | "cosine"
    warmup_steps: int = 0
    total_steps: int = 0  # needed by linear and cosine
    min_lr_ratio: float = 0.0


@dataclass(frozen=True, slots=True)
class LoraConfig:
    """A low-rank adapter (arXiv 2106.09685): W x + alpha / rank * B A x, with only A and B trained."""

    rank: int
    alpha: float
    target_modules: tuple[str, ...] = ()  # names or ends of names, like "q_proj"; none: all linear layers but the head


@dataclass(frozen=True, slots=True)
class TrainingConfig:
    """Everything that makes a training job. Fields not given keep these defaults."""

    model: str  # name, Hugging Face folder or hub id, resolved to a folder by the caller
    model_path: str = ""
    dtype: str = "float32"  # of parameters in forward and backward: "float32" | "bfloat16"
    optimizer: OptimizerConfig = field(default_factory=OptimizerConfig)
    scheduler: SchedulerConfig = field(default_factory=SchedulerConfig)
    max_grad_norm: float = 1.0  # 0: no clipping
    zero_stage: int = 0
    num_workers: int = 1  # data-parallel ranks
    seed: int = 0
    max_tokens_per_micro_batch: int = 4096  # real tokens a micro-batch may hold; a longer row goes alone
    packing: bool = True  # False: each row is padded to the longest of its micro-batch, and shares nothing
    gradient_checkpointing: bool = False
    loss: str = "grpo"  # used when a call names none
    loss_config: Mapping[str, Any] = field(default_factory=dict)
    threads: int = 0  # intra-op threads of a worker; 0: chosen by the server
    lora: LoraConfig | None = None  # None: all weights train


@dataclass(frozen=True, slots=True)
class TrainingBatch:
    """Rows of tokens on the shifted grid, padding removed, rows laid end to end.

    `row_offsets` int64 [R+1]; row r is [row_offsets[r], row_offsets[r+1]) of every column.
    Entry i of a column scores token i+1 of its row, so each row's last entry is masked.
    """

    input_ids: npt.NDArray[np.int32]
    row_offsets: npt.NDArray[np.int64]
    row_width: int  # S of the caller's grid: `seq-mean-token-sum-norm` divides by it
    loss_mask: npt.NDArray[np.float32] | None = None
    # float32 columns: advantages, old_log_probs, prox_log_probs, ref_log_probs, versions (all shifted)
    columns: Mapping[str, npt.NDArray[np.float32]] = field(default_factory=dict)
    prompt_group_ids: npt.NDArray[np.int64] | None = None  # [R]: prompt that each row belongs to

    @property
    def num_rows(self) -> int:
        """R."""
        return len(self.row_offsets) - 1


@dataclass(frozen=True, slots=True)
class LossSpec:
    """A loss of the registry by name, with its configuration (checked strictly by the registry)."""

    name: str
    config: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class FwdBwdResult:
    """`metrics` has the same keys at any number of workers; `loss` is that of the whole batch.

    Times in `metrics` are of the slowest worker, in seconds; `tokens_per_second` counts the batch's real tokens.
    """

    loss: float
    num_loss_tokens: int
    metrics: Mapping[str, float]
    micro_batches: int
    log_probs: npt.NDArray[np.float32] | None = None  # flat, on the batch's grid, when asked for
    entropy: npt.NDArray[np.float32] | None = None


@dataclass(frozen=True, slots=True)
class ForwardResult:
    """Per-token values of a forward pass, flat on the batch's grid; each row's last entry is 0."""

    log_probs: npt.NDArray[np.float32]
    entropy: npt.NDArray[np.float32] | None
    weight_version: int


@dataclass(frozen=True, slots=True)
class StepResult:
    """One optimizer step."""

    grad_norm: float  # before clipping
    lr: float  # that was applied
    weight_version: int  # the new version
    step: int  # optimizer steps of this job so far


@dataclass(frozen=True, slots=True)
class CheckpointInfo:
    """A finished checkpoint in the folder `path`."""

    name: str
    path: str
    weight_version: int
    step: int
    nbytes: int
    created_unix: float
    exported: bool = True  # it holds the whole model; of a job that trains an adapter, only when that was asked for
    adapter: bool = False  # it holds an adapter

    @property
    def export_path(self) -> str:
        """Its Hugging Face folder; empty when it holds no whole model."""
        return str(Path(self.path) / EXPORT_FOLDER) if self.exported else ""

    @property
    def adapter_path(self) -> str:
        """The adapter in peft's format; empty when it holds none."""
        return str(Path(self.path) / ADAPTER_FOLDER) if self.adapter else ""


class TrainerPart(StrEnum):
    """What of a trainer can sleep by itself."""

    MODEL = "model"  # the parameters of forward and backward; what a sync reads
    TRAINING = "training"  # gradients, master weights and optimizer state


class SleepMode(StrEnum):
    """What a trainer is asked to put to sleep, beside what sleeps already."""

    ALL = "all"
    NON_LP = "non_lp"  # all but the low-precision parameters, which can still be synced
    LP_PARAMS = "lp_params"  # the low-precision parameters: those of forward and backward, in whatever dtype

    @property
    def parts(self) -> frozenset[TrainerPart]:
        """The parts that it names."""
        return _PARTS[self]


_PARTS = {
    SleepMode.ALL: frozenset(TrainerPart),
    SleepMode.NON_LP: frozenset({TrainerPart.TRAINING}),
    SleepMode.LP_PARAMS: frozenset({TrainerPart.MODEL}),
}
