"""Checkpoints on disk: written whole or not at all, never changed, checked before they are used.

    DIR/checkpoint.json       steps, version, files with sizes and SHA-256; written last
    DIR/hf/                   config, tokenizer, model.safetensors: what from_pretrained and vLLM load
    DIR/adapter/              of a job that trains an adapter: what peft loads; hf/ is then the merged model, if wanted
    DIR/optimizer.safetensors master/NAME (bf16 jobs), exp_avg/NAME, exp_avg_sq/NAME or momentum_buffer/NAME
    DIR/random.safetensors    random states of rank 0

Only safetensors and JSON: nothing in a checkpoint can run code. Saving and loading are collectives; rank 0
writes, one tensor in memory at a time. A checkpoint does not depend on ZeRO stage or number of ranks.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open

from gradwire.server.engines.deepspeed.lora import peft_lora_config, targets_of
from gradwire.server.engines.deepspeed.optimizer import state_keys
from gradwire.server.engines.deepspeed.parameters import FullState, MergedWeights, Weights
from gradwire.server.engines.deepspeed.schedule import learning_rate
from gradwire.server.engines.deepspeed.tensorfile import DTYPE_NAMES, Entry, TensorFileWriter
from gradwire.server.engines.deepspeed.trainer import Trainer
from gradwire.server.engines.training import ADAPTER_FOLDER, EXPORT_FOLDER, CheckpointInfo, StepResult
from gradwire.server.errors import AlreadyExists, FailedPrecondition, GradwireError, NotFound, ResourceExhausted

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
    lora: dict[str, Any] | None = None  # rank, alpha, modules of an adapter


def save_checkpoint(trainer: Trainer, path: Path, name: str, *, merged: bool = False) -> CheckpointInfo:
    """Write a checkpoint to `path`, which must not exist. `merged`: an adapter's model, too.

    Raises AlreadyExists; ResourceExhausted when the disk is full; the job is unharmed either way.
    """
    trainer.ranks.attempt(lambda: _refuse_existing(path, trainer.ranks.rank))
    lora = trainer.config.lora is not None
    export = str(path / EXPORT_FOLDER) if merged or not lora else ""
    writer = _Writer(trainer, path, name, export=bool(export)) if trainer.ranks.rank == 0 else None
    try:
        _write_weights(FullState(trainer), writer, _weights_file(trainer))
        if lora and merged:
            _write_weights(MergedWeights(trainer), writer, MODEL)
        _write_optimizer(trainer, writer)
        manifest = trainer.ranks.attempt(lambda: writer.finish() if writer else None)
    finally:
        if writer is not None:
            writer.discard()
    if manifest is None:
        return CheckpointInfo(name, str(path), export, trainer.weight_version, trainer.steps, 0, 0.0)
    return CheckpointInfo(
        name=name,
        path=str(path),
        export_path=export,
        weight_version=manifest.weight_version,
        step=manifest.step,
        nbytes=manifest.nbytes,
        created_unix=manifest.created_unix,
    )


def load_checkpoint(trainer: Trainer, path: Path) -> StepResult:
    """Continue from a checkpoint; drops accumulated gradients. `lr` of the result is the next step's.

    The weights get a version of their own, above all that this job or the checkpoint had: a version that
    stood for other weights before is never used again.

    Everything is checked before anything is changed: raises NotFound, or FailedPrecondition naming
    the file or tensor that is damaged or does not fit.
    """
    manifest = trainer.ranks.attempt(lambda: _checked(trainer, path))
    state = FullState(trainer)
    keys = state_keys(trainer.config.optimizer)
    masters = "master/" if manifest.dtype == "bfloat16" else ""
    trainer.gradients.clear()
    trainer.accumulated = 0
    state.reset_optimizer(manifest.step, keys)
    with safe_open(path / _weights_file(trainer), "pt") as model, safe_open(path / OPTIMIZER, "pt") as moments:
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


class _Writer:
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
                self._note(relative, _sha256(file))
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
            lora=_lora_facts(self._trainer),
        )
        (self._partial / MANIFEST).write_text(json.dumps(asdict(manifest), indent=2) + "\n", encoding="utf-8")
        for durable in (self._partial / MANIFEST, *self._folders(), self._partial):
            _fsync(durable)
        _refuse_existing(self._path, 0)
        self._partial.rename(self._path)
        _fsync(self._path.parent)
        return manifest

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


def _weights_file(trainer: Trainer) -> str:
    return ADAPTER if trainer.config.lora is not None else MODEL


def _lora_facts(trainer: Trainer) -> dict[str, Any] | None:
    lora = trainer.config.lora
    if lora is None:
        return None
    modules = sorted({name.rpartition(".lora_")[0] for name in trainer.policy.trained_parameters()})
    return {"rank": lora.rank, "alpha": float(lora.alpha), "modules": modules}


def _write_weights(state: Weights, writer: _Writer | None, path: str) -> None:
    dtype = DTYPE_NAMES[next(iter(state.parameters.values())).dtype]
    file = writer.open(path, [Entry(name, dtype, state.shape(name)) for name in state.parameters]) if writer else None
    for name in state.parameters:
        with state.weight(name) as weight:
            if writer is not None and file is not None:
                writer.guard(lambda name=name, weight=weight: file.add(name, weight))  # type: ignore[misc]
    if writer is not None:
        writer.close(path, file)


def _write_optimizer(trainer: Trainer, writer: _Writer | None) -> None:
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


def _refuse_existing(path: Path, rank: int) -> None:
    if rank == 0 and path.exists():
        raise AlreadyExists("CHECKPOINT_EXISTS", f"{path} exists; checkpoints are never overwritten")


def _checked(trainer: Trainer, path: Path) -> Manifest:
    """The manifest, once the folder is known to be whole and to fit the job. Rank 0 also hashes the files."""
    file = path / MANIFEST
    if not file.is_file():
        raise NotFound("checkpoint", path.name, f"no checkpoint at {path}: it holds no {MANIFEST}")
    try:
        manifest = Manifest(**json.loads(file.read_text(encoding="utf-8")))
        files = {name: (int(entry["nbytes"]), str(entry["sha256"])) for name, entry in manifest.files.items()}
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise _damaged(path, f"{MANIFEST} cannot be read ({error})") from error
    if manifest.format != FORMAT:
        raise _damaged(path, f"it has format {manifest.format}, this server reads {FORMAT}")
    _check_alike(trainer, path, manifest)
    for needed in (_weights_file(trainer), OPTIMIZER, RANDOM):
        if needed not in files:
            raise _damaged(path, f"{MANIFEST} lists no {needed}")
    for name, (nbytes, sha256) in files.items():
        found = path / name
        if not found.is_file():
            raise _damaged(path, f"{name} is missing")
        if found.stat().st_size != nbytes:
            raise _damaged(path, f"{name} has {found.stat().st_size} bytes, {nbytes} were written")
        if trainer.ranks.rank == 0 and _sha256(found) != sha256:
            raise _damaged(path, f"{name} is not what was written: its SHA-256 differs")
    _check_fits(trainer, path, manifest)
    return manifest


def _whose(lora: dict[str, Any] | None) -> str:
    return "of a whole model" if lora is None else "of an adapter"


def _check_alike(trainer: Trainer, path: Path, manifest: Manifest) -> None:
    """Whether the job is of the checkpoint's kind."""
    theirs, ours = manifest.lora, _lora_facts(trainer)
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
    wanted = {_weights_file(trainer): [""], OPTIMIZER: kinds}
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


def _restore_random(trainer: Trainer, path: Path) -> None:
    if trainer.ranks.rank:
        return
    with safe_open(path / RANDOM, "pt") as states:
        torch.set_rng_state(states.get_tensor("torch_cpu"))
        if torch.cuda.is_available() and "torch_cuda" in states.keys():  # noqa: SIM118 (no mapping)
            torch.cuda.set_rng_state(states.get_tensor("torch_cuda"))


def _damaged(path: Path, what: str) -> FailedPrecondition:
    return FailedPrecondition("CHECKPOINT_DAMAGED", f"the checkpoint {path.name} is damaged: {what}")


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _fsync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
