"""Rank 0 writes a checkpoint's files: under a temporary name, synced, then renamed."""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

from gradwire.server.engines.deepspeed.checkpoint.format import (
    FORMAT,
    MANIFEST,
    RANDOM,
    TOKENIZER_PATTERNS,
    Manifest,
    lora_facts,
    refuse_existing,
    sha256_of,
)
from gradwire.server.engines.deepspeed.lora import peft_lora_config, targets_of
from gradwire.server.engines.deepspeed.tensorfile import Entry, TensorFileWriter
from gradwire.server.engines.deepspeed.trainer import Trainer
from gradwire.server.engines.training import ADAPTER_FOLDER, EXPORT_FOLDER
from gradwire.server.errors import GradwireError, ResourceExhausted


class CheckpointWriter:
    """Rank 0's side of a save. After an error it stays quiet, so that the collectives run to their end."""

    def __init__(self, trainer: Trainer, path: Path, name: str, *, export: bool) -> None:
        self.error: GradwireError | None = None
        self._trainer = trainer
        self._path = path
        self._name = name
        self._export = export
        self._partial = path.parent / f".{path.name}.partial-{os.getpid()}"
        self._files: dict[str, dict[str, Any]] = {}
        self.guard(self._begin)

    def guard(self, action: Callable[[], None]) -> None:
        """Do something that may meet a full disk; remember the first error, and do nothing after it."""
        if self.error is not None:
            return
        try:
            action()
        except OSError as error:
            self.error = ResourceExhausted(
                "CHECKPOINT_NOT_WRITTEN", f"cannot write the checkpoint {self._path}: {error}"
            )

    def open(self, file: str, entries: list[Entry]) -> TensorFileWriter | None:
        """A file of tensors; None after an error."""
        opened: list[TensorFileWriter] = []
        self.guard(lambda: opened.append(TensorFileWriter(self._partial / file, entries).__enter__()))
        return opened[0] if opened else None

    def close(self, file: str, writer: TensorFileWriter | None) -> None:
        """End a file of tensors and note its hash."""

        def end() -> None:
            assert writer is not None
            writer.__exit__(None, None, None)
            self._note(file, writer.sha256)

        self.guard(end)

    def finish(self) -> Manifest:
        """Everything else, and the rename that makes it a checkpoint."""
        made: list[Manifest] = []
        self.guard(lambda: made.append(self._finish()))
        if self.error is not None:
            raise self.error
        return made[0]

    def discard(self) -> None:
        """Remove what was not finished."""
        shutil.rmtree(self._partial, ignore_errors=True)

    def _begin(self) -> None:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        shutil.rmtree(self._partial, ignore_errors=True)
        for folder in self._folders():
            folder.mkdir(parents=True)

    def _folders(self) -> list[Path]:
        lora = self._trainer.config.lora is not None
        wanted = {ADAPTER_FOLDER: lora, EXPORT_FOLDER: self._export}
        return [self._partial / name for name, is_wanted in wanted.items() if is_wanted]

    def _finish(self) -> Manifest:
        if self._export:
            self._write_model_files(self._partial / EXPORT_FOLDER)
        if self._trainer.config.lora is not None:
            config = peft_lora_config(self._trainer.config.lora, self._adapted())
            config.base_model_name_or_path, config.inference_mode = self._trainer.config.model_path, True
            config.save_pretrained(self._partial / ADAPTER_FOLDER)
        self._write_random()
        for file in sorted(self._partial.rglob("*")):
            relative = str(file.relative_to(self._partial))
            if file.is_file() and relative not in self._files:
                self._note(relative, sha256_of(file))
                _fsync(file)
        manifest = Manifest(
            format=FORMAT,
            name=self._name,
            step=self._trainer.steps,
            weight_version=self._trainer.weight_version,
            dtype=self._trainer.config.dtype,
            optimizer=self._trainer.config.optimizer.name,
            created_unix=time.time(),
            nbytes=sum(file["nbytes"] for file in self._files.values()),
            files=self._files,
            lora=self._lora_facts(),
        )
        (self._partial / MANIFEST).write_text(json.dumps(asdict(manifest), indent=2) + "\n", encoding="utf-8")
        for durable in (self._partial / MANIFEST, *self._folders(), self._partial):
            _fsync(durable)
        refuse_existing(self._path, 0)
        self._partial.rename(self._path)
        _fsync(self._path.parent)
        return manifest

    def _lora_facts(self) -> dict[str, Any] | None:
        facts = lora_facts(self._trainer)
        base = {"model": self._trainer.config.model, "sha256": self._trainer.base_mark}
        return None if facts is None else {**facts, "base": base}

    def _adapted(self) -> list[str]:
        return targets_of(list(self._trainer.policy.trained_parameters()))

    def _write_model_files(self, hf: Path) -> None:
        """What makes a folder of weights a model: configuration and tokenizer."""
        self._trainer.policy.hf_config.save_pretrained(hf)
        if self._trainer.policy.hf_generation_config is not None:
            self._trainer.policy.hf_generation_config.save_pretrained(hf)
        for pattern in TOKENIZER_PATTERNS:
            for file in Path(self._trainer.config.model_path).glob(pattern):
                if file.is_file():
                    shutil.copyfile(file, hf / file.name)

    def _write_random(self) -> None:
        states = {"torch_cpu": torch.get_rng_state()}
        if torch.cuda.is_available():
            states["torch_cuda"] = torch.cuda.get_rng_state()
        entries = [Entry(name, "U8", tuple(state.shape)) for name, state in states.items()]
        with TensorFileWriter(self._partial / RANDOM, entries) as writer:
            for name, state in states.items():
                writer.add(name, state)
        self._note(RANDOM, writer.sha256)

    def _note(self, file: str, sha256: str) -> None:
        self._files[file] = {"nbytes": (self._partial / file).stat().st_size, "sha256": sha256}


def _fsync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
