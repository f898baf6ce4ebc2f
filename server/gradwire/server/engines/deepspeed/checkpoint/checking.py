"""Whether a checkpoint is whole and fits the job; looked at before anything is changed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open

from gradwire.server.engines.deepspeed.checkpoint.format import (
    FORMAT,
    MANIFEST,
    OPTIMIZER,
    RANDOM,
    Manifest,
    lora_facts,
    sha256_of,
    weights_file,
)
from gradwire.server.engines.deepspeed.optimizer import state_keys
from gradwire.server.engines.deepspeed.parameters import FullState
from gradwire.server.engines.deepspeed.trainer import Trainer
from gradwire.server.errors import FailedPrecondition, NotFound


def checked(trainer: Trainer, path: Path) -> Manifest:
    """The manifest, once the folder is known to be whole and to fit the job. Rank 0 also hashes the files."""
    file = path / MANIFEST
    if not file.is_file():
        raise NotFound("checkpoint", path.name, f"no checkpoint at {path}: it holds no {MANIFEST}")
    try:
        manifest = Manifest(**json.loads(file.read_text(encoding="utf-8")))
        files = {name: (int(entry["nbytes"]), str(entry["sha256"])) for name, entry in manifest.files.items()}
        base = _noted_base(manifest)
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise _damaged(path, f"{MANIFEST} cannot be read ({error})") from error
    if manifest.format != FORMAT:
        raise _damaged(path, f"it has format {manifest.format}, this server reads {FORMAT}")
    _check_alike(trainer, path, manifest)
    if base is not None and trainer.ranks.rank == 0 and base[1] != trainer.base_mark:
        raise FailedPrecondition(
            "ADAPTER_BASE_DIFFERS",
            f"the checkpoint {path.name} holds an adapter that was trained on {base[0]}, the job trains one on "
            f"{trainer.config.model}, whose weights are others: load it into a job on the same model",
        )
    for needed in (weights_file(trainer), OPTIMIZER, RANDOM):
        if needed not in files:
            raise _damaged(path, f"{MANIFEST} lists no {needed}")
    for name, (nbytes, sha256) in files.items():
        found = path / name
        if not found.is_file():
            raise _damaged(path, f"{name} is missing")
        if found.stat().st_size != nbytes:
            raise _damaged(path, f"{name} has {found.stat().st_size} bytes, {nbytes} were written")
        if trainer.ranks.rank == 0 and sha256_of(found) != sha256:
            raise _damaged(path, f"{name} is not what was written: its SHA-256 differs")
    _check_fits(trainer, path, manifest)
    return manifest


def _noted_base(manifest: Manifest) -> tuple[str, str] | None:
    """Name and mark of the model under an adapter. None: a whole model, or saved before this was noted."""
    base = (manifest.lora or {}).get("base")
    return None if base is None else (str(base["model"]), str(base["sha256"]))


def _whose(lora: dict[str, Any] | None) -> str:
    return "of a whole model" if lora is None else "of an adapter"


def _check_alike(trainer: Trainer, path: Path, manifest: Manifest) -> None:
    """Whether the job is of the checkpoint's kind."""
    theirs, ours = manifest.lora, lora_facts(trainer)
    facts: list[tuple[str, Any, Any]] = [
        ("dtype", manifest.dtype, trainer.config.dtype),
        ("optimizer", manifest.optimizer, trainer.config.optimizer.name),
        ("weights", _whose(theirs), _whose(ours)),
    ]
    if theirs is not None and ours is not None:
        facts = facts[:2] + [(f"an adapter whose {key} is", theirs.get(key), ours[key]) for key in ours]
    for what, saved, own in facts:
        if saved != own:
            raise FailedPrecondition(
                "CHECKPOINT_DOES_NOT_FIT", f"the checkpoint {path.name} has {what} {saved}, the job has {own}"
            )


def _check_fits(trainer: Trainer, path: Path, manifest: Manifest) -> None:
    state = FullState(trainer)
    kinds = ["master/"] if manifest.dtype == "bfloat16" else []
    kinds += [f"{key}/" for key in state_keys(trainer.config.optimizer)] if manifest.step else []
    wanted = {weights_file(trainer): [""], OPTIMIZER: kinds}
    for file, prefixes in wanted.items():
        try:
            with safe_open(path / file, "pt") as tensors:
                there = set(tensors.keys())
                for name in (prefix + name for prefix in prefixes for name in state.parameters):
                    shape = tuple(tensors.get_slice(name).get_shape()) if name in there else None
                    if shape != state.shape(name.removeprefix(name[: name.find("/") + 1])):
                        raise FailedPrecondition(
                            "CHECKPOINT_DOES_NOT_FIT",
                            f"the checkpoint {path.name} has {name} of shape {shape}, which is not this model's",
                        )
        except SafetensorError as error:
            raise _damaged(path, f"{file} cannot be read ({error})") from error


def _damaged(path: Path, what: str) -> FailedPrecondition:
    return FailedPrecondition("CHECKPOINT_DAMAGED", f"the checkpoint {path.name} is damaged: {what}")
