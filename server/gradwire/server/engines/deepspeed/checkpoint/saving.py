"""Saving: all ranks gather, rank 0 writes."""

from __future__ import annotations

from pathlib import Path

from gradwire.server.engines.deepspeed.checkpoint.format import (
    MODEL,
    OPTIMIZER,
    refuse_existing,
    weights_file,
)
from gradwire.server.engines.deepspeed.checkpoint.writer import CheckpointWriter
from gradwire.server.engines.deepspeed.optimizer import state_keys
from gradwire.server.engines.deepspeed.parameters import FullState, MergedWeights, Weights
from gradwire.server.engines.deepspeed.tensorfile import DTYPE_NAMES, Entry
from gradwire.server.engines.deepspeed.trainer import Trainer
from gradwire.server.engines.training import CheckpointInfo


def save_checkpoint(trainer: Trainer, path: Path, name: str, *, merged: bool = False) -> CheckpointInfo:
    """Write a checkpoint to `path`, which must not exist. `merged`: an adapter's model, too.

    Raises AlreadyExists; ResourceExhausted when the disk is full; the job is unharmed either way.
    """
    trainer.ranks.attempt(lambda: refuse_existing(path, trainer.ranks.rank))
    lora = trainer.config.lora is not None
    exported = merged or not lora
    writer = CheckpointWriter(trainer, path, name, export=exported) if trainer.ranks.rank == 0 else None
    try:
        _write_weights(FullState(trainer), writer, weights_file(trainer))
        if lora and merged:
            _write_weights(MergedWeights(trainer), writer, MODEL)
        _write_optimizer(trainer, writer)
        manifest = trainer.ranks.attempt(lambda: writer.finish() if writer else None)
    finally:
        if writer is not None:
            writer.discard()
    if manifest is None:
        return CheckpointInfo(name, str(path), trainer.weight_version, trainer.steps, 0, 0.0, exported, lora)
    return CheckpointInfo(
        name=name,
        path=str(path),
        weight_version=manifest.weight_version,
        step=manifest.step,
        nbytes=manifest.nbytes,
        created_unix=manifest.created_unix,
        exported=exported,
        adapter=lora,
    )


def _write_weights(state: Weights, writer: CheckpointWriter | None, path: str) -> None:
    dtype = DTYPE_NAMES[next(iter(state.parameters.values())).dtype]
    file = writer.open(path, [Entry(name, dtype, state.shape(name)) for name in state.parameters]) if writer else None
    for name in state.parameters:
        with state.weight(name) as weight:
            if writer is not None and file is not None:
                writer.guard(lambda name=name, weight=weight: file.add(name, weight))  # type: ignore[misc]
    if writer is not None:
        writer.close(path, file)


def _write_optimizer(trainer: Trainer, writer: CheckpointWriter | None) -> None:
    state = FullState(trainer)
    kinds = ["master"] if trainer.config.dtype == "bfloat16" else []
    kinds += state_keys(trainer.config.optimizer) if trainer.steps else ()
    entries = [Entry(f"{kind}/{name}", "F32", state.shape(name)) for kind in kinds for name in state.parameters]
    file = writer.open(OPTIMIZER, entries) if writer else None
    for kind in kinds:
        for name in state.parameters:
            tensor = state.master(name) if kind == "master" else state.moment(name, kind)
            if writer is not None and file is not None:
                key = f"{kind}/{name}"
                writer.guard(lambda key=key, tensor=tensor: file.add(key, tensor))  # type: ignore[misc]
    if writer is not None:
        writer.close(OPTIMIZER, file)
