"""What lies where in a checkpoint."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gradwire.server.engines.deepspeed.trainer import Trainer
from gradwire.server.engines.training import ADAPTER_FOLDER, EXPORT_FOLDER
from gradwire.server.errors import AlreadyExists

FORMAT = 1
MANIFEST = "checkpoint.json"
MODEL, OPTIMIZER, RANDOM = f"{EXPORT_FOLDER}/model.safetensors", "optimizer.safetensors", "random.safetensors"
ADAPTER = f"{ADAPTER_FOLDER}/adapter_model.safetensors"
TOKENIZER_PATTERNS = ("tokenizer*", "special_tokens_map.json", "vocab.*", "merges.txt", "chat_template*", "*.model")


@dataclass(frozen=True, slots=True)
class Manifest:
    """checkpoint.json."""

    format: int
    name: str
    step: int
    weight_version: int
    dtype: str
    optimizer: str
    created_unix: float
    nbytes: int  # of all files listed
    files: dict[str, dict[str, Any]]  # by path in the folder: nbytes, sha256
    lora: dict[str, Any] | None = None  # rank, alpha, modules of an adapter; base: its model's name and sha256 mark


def weights_file(trainer: Trainer) -> str:
    """The file that holds what the job trains."""
    return ADAPTER if trainer.config.lora is not None else MODEL


def lora_facts(trainer: Trainer) -> dict[str, Any] | None:
    """Rank, alpha and modules of the adapter that the job trains; None where it trains the whole model."""
    lora = trainer.config.lora
    if lora is None:
        return None
    modules = sorted({name.rpartition(".lora_")[0] for name in trainer.policy.trained_parameters()})
    return {"rank": lora.rank, "alpha": float(lora.alpha), "modules": modules}


def refuse_existing(path: Path, rank: int) -> None:
    """Checkpoints are never overwritten: raises AlreadyExists on rank 0."""
    if rank == 0 and path.exists():
        raise AlreadyExists("CHECKPOINT_EXISTS", f"{path} exists; checkpoints are never overwritten")


def sha256_of(path: Path) -> str:
    """Hex digest of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
