"""A training job seen from the front process: N workers as one TrainingEngine.

Checks what it is given, deals rows to the workers, folds their answers. Does not know: torch, deepspeed, or
what becomes of a worker that fails (operations.py).
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from gradwire.server.engines.base import Progress
from gradwire.server.engines.deepspeed import messages as m
from gradwire.server.engines.deepspeed.config import checked_config
from gradwire.server.engines.deepspeed.dealing import check_temperature, deal, fwd_no_grad, joined
from gradwire.server.engines.deepspeed.launcher import LocalLauncher, free_port
from gradwire.server.engines.deepspeed.operations import WorkerGroup
from gradwire.server.engines.progress import still
from gradwire.server.engines.training import (
    CheckpointInfo,
    ForwardResult,
    FwdBwdResult,
    LossSpec,
    SleepMode,
    StepResult,
    TrainingBatch,
    TrainingConfig,
)
from gradwire.server.engines.weights import MemoryReport, TensorChecksum, WeightManifest
from gradwire.server.errors import InvalidArgument
from gradwire.server.losses import LossConfig, resolve_loss
from gradwire.server.losses.checks import check_layout, check_row_lengths, check_token_ids
from gradwire.server.losses.family import GrpoConfig
from gradwire.server.losses.metrics import merge_metrics
from gradwire.server.losses.prepare import prepare_batch
from gradwire.worker.v1 import worker_pb2 as pb


class DeepSpeedTrainer:
    """TrainingEngine (engines/base.py) on `config.num_workers` DeepSpeed ranks."""

    def __init__(self, config: TrainingConfig, *, launcher: LocalLauncher | None = None) -> None:
        """Raises InvalidArgument for a configuration that can never work. `model_path` is a local folder."""
        self._config = checked_config(config)
        self._group = WorkerGroup(launcher or LocalLauncher())
        self._weight_version = 0
        self._vocab_size = self._max_positions = 0

    @property
    def config(self) -> TrainingConfig:
        """The configuration with its defaults."""
        return self._config

    @property
    def weight_version(self) -> int:
        """Version of the weights as they are."""
        return self._weight_version

    @property
    def vocab_size(self) -> int:
        """Token ids are below this. Valid after `start`."""
        return self._vocab_size

    async def start(self, progress: Progress) -> None:
        """Start the workers and load the model; on an error nothing is left running."""
        world = self._config.num_workers
        try:
            progress(f"starting {world} trainer worker{'s' if world > 1 else ''}")
            await self._group.start(world)
            loading = f"loading {self._config.model} into the trainer"
            progress(loading)
            request = pb.InitRequest(config=m.config_to_proto(self._config), master_port=free_port())
            async with still(progress, loading):
                (first, *_) = await self._group.operate("Init", [request] * world)
            self._vocab_size, self._max_positions = first.vocab_size, first.max_positions
            progress(f"trainer ready: {first.num_parameters:,} parameters, ZeRO stage {self._config.zero_stage}")
        except BaseException:
            self._group.give_up()  # not wait for a model to be loaded that nobody wants any more
            await self.shutdown()
            raise

    async def fwd_bwd(self, batch: TrainingBatch, loss: LossSpec, *, outputs: bool = False) -> FwdBwdResult:
        """Add the gradients of a batch's loss to those accumulated. All or nothing on an error.

        Gradients of several calls add up. To make k calls equal one large batch, give each the large batch's
        counts in the loss's configuration: `batch_num_tokens`, and `global_batch_size` for seq-mean modes.
        """
        chosen = resolve_loss(loss.name)
        parsed = chosen.parse(loss.config)
        try:
            options = m.struct(loss.config)
        except ValueError as error:
            raise InvalidArgument.at("loss.config", f"holds a value that is no JSON: {error}") from error
        self._group.raise_if_gone()
        _check_workers(parsed, self._config.num_workers)
        prepared = await asyncio.to_thread(prepare_batch, batch, chosen, parsed)
        check_token_ids(batch, self._vocab_size)
        check_row_lengths(batch, self._max_positions)
        batch, mask, whole = prepared.batch, prepared.mask, prepared.whole
        shares = await deal(batch, mask, self._config.num_workers, together=chosen.rows_together)

        def request(rows: npt.NDArray[np.int64]) -> pb.FwdBwdRequest:
            return pb.FwdBwdRequest(
                rows=m.rows_to_proto(batch, mask, rows),
                loss=chosen.name,
                loss_config=options,
                mask_sum=whole.mask_sum,
                active_rows=whole.active_rows,
                row_width=whole.row_width,
                active_prompts=whole.active_prompts,
                return_outputs=outputs,
            )

        requests = await asyncio.to_thread(lambda: [request(rows) for rows in shares])
        answers = await self._group.operate("FwdBwd", requests)
        merged = merge_metrics(m.metrics_from_proto(a.metrics) for a in answers)
        metrics = {name: metric.result for name, metric in sorted(merged.items())}
        seconds = metrics["forward_seconds"] + metrics["loss_seconds"] + metrics["backward_seconds"]
        metrics["tokens_per_second"] = len(batch.input_ids) / seconds
        if isinstance(parsed, GrpoConfig) and parsed.m2_threshold is not None:
            metrics["m2_dropped_tokens"] = float(prepared.dropped)
        return FwdBwdResult(
            loss=metrics["loss"],
            num_loss_tokens=int(np.count_nonzero(mask)),
            metrics=metrics,
            micro_batches=max(answer.micro_batches for answer in answers),
            log_probs=joined(batch, shares, [a.log_probs for a in answers])[:, 0] if outputs else None,
            entropy=joined(batch, shares, [a.entropy for a in answers])[:, 0] if outputs else None,
        )

    async def fwd_no_grad(
        self, batch: TrainingBatch, *, temperature: float = 1.0, entropy: bool = False
    ) -> ForwardResult:
        """Log-probs of a batch's own tokens; where it has a loss mask, only there, and 0 elsewhere."""
        check_temperature(temperature)
        self._group.raise_if_gone()
        check_layout(batch)
        check_token_ids(batch, self._vocab_size)
        check_row_lengths(batch, self._max_positions)
        world = self._config.num_workers
        return await fwd_no_grad(self._group, batch, world, temperature=temperature, entropy=entropy)

    async def step(self, *, lr: float | None = None, max_grad_norm: float | None = None) -> StepResult:
        """Apply the accumulated gradients and clear them. FailedPrecondition when there are none.

        Gradients that are not finite are cleared too, with FailedPrecondition; the weights stay.
        """
        for name, value in (("lr", lr), ("max_grad_norm", max_grad_norm)):
            if value is not None and not 0 <= value < math.inf:
                raise InvalidArgument.at(name, f"must be finite and >= 0, is {value}")

        request = pb.StepRequest(lr=lr, max_grad_norm=max_grad_norm)
        (first, *_) = await self._group.operate("Step", self._alike(request), self._take_version)
        return StepResult(first.grad_norm, first.lr, first.weight_version, first.step)

    async def zero_grad(self) -> int:
        """Drop the accumulated gradients; of how many `fwd_bwd` calls. Weights, optimizer and version stay."""
        (first, *_) = await self._group.operate("ZeroGrad", self._alike(pb.ZeroGradRequest()))
        return int(first.num_dropped)

    async def save_checkpoint(self, path: Path, *, name: str, merged: bool = False) -> CheckpointInfo:
        """Write a checkpoint to the folder `path`, atomically. AlreadyExists when there is one."""
        request = pb.SaveCheckpointRequest(path=str(path), name=name, merged=merged)
        (first, *_) = await self._group.operate("SaveCheckpoint", self._alike(request))
        return CheckpointInfo(
            name=name,
            path=str(path),
            weight_version=first.weight_version,
            step=first.step,
            nbytes=first.nbytes,
            created_unix=first.created_unix,
            exported=bool(first.export_path),
            adapter=self._config.lora is not None,
        )

    async def load_checkpoint(self, path: Path) -> StepResult:
        """Continue from a checkpoint; drops accumulated gradients, makes a new weight version.

        `grad_norm` of the result is 0, `lr` that of the next step.
        """

        request = pb.LoadCheckpointRequest(path=str(path))
        (first, *_) = await self._group.operate("LoadCheckpoint", self._alike(request), self._take_version)
        return StepResult(0.0, first.lr, first.weight_version, first.step)

    async def weight_manifest(self, dtype: str, *, merged: bool = False) -> WeightManifest:
        """Layout of `export_weights` in `dtype` ("F32", "BF16", "F16")."""
        request = pb.GetManifestRequest(dtype=dtype, merged=merged)
        (first, *_) = await self._group.operate("GetManifest", self._alike(request))
        return m.manifest_from_proto(first.tensors, first.total_bytes)

    async def export_weights(self, segment: str, manifest: WeightManifest, *, merged: bool = False) -> None:
        """Write the weights into a shared-memory segment made by the caller."""
        request = pb.ExportWeightsRequest(
            segment=segment, tensors=m.manifest_to_proto(manifest), total_bytes=manifest.total_bytes, merged=merged
        )
        await self._group.operate("ExportWeights", self._alike(request))

    async def weight_norm(self) -> float:
        """L2 norm of what trains, float64 accumulation, tied tensors once."""
        (first, *_) = await self._group.operate("GetNorm", self._alike(pb.GetNormRequest()))
        norm: float = first.norm
        return norm

    async def checksums(self, dtype: str, *, merged: bool = False, base: bool = False) -> list[TensorChecksum]:
        """Checksums of the weights as `export_weights` would write them in `dtype`; `base`: of an adapter's model."""
        request = pb.GetChecksumsRequest(dtype=dtype, merged=merged, base=base)
        (first, *_) = await self._group.operate("GetChecksums", self._alike(request))
        return [TensorChecksum(c.name, c.dtype, tuple(c.shape), c.sha256) for c in first.checksums]

    async def sleep(self, mode: SleepMode) -> MemoryReport:
        """Give memory back: what `mode` names sleeps, beside what sleeps already.

        Waits for the running operation. On an error all stays as it was: ResourceExhausted (SPILL_FAILED) where
        there is no room for what sleeps.
        """
        return m.memory_from_proto(await self._group.operate("Sleep", self._alike(pb.SleepRequest(mode=mode.value))))

    async def wake(self) -> MemoryReport:
        """Undo `sleep`, all of it. ResourceExhausted (NO_MEMORY_TO_WAKE) leaves it asleep and whole."""
        return m.memory_from_proto(await self._group.operate("Wake", self._alike(pb.WakeRequest())))

    async def empty_cache(self) -> MemoryReport:
        """Give back memory that is held without need. Changes no number."""
        return m.memory_from_proto(await self._group.operate("EmptyCache", self._alike(pb.EmptyCacheRequest())))

    async def check_health(self) -> None:
        """Raises Unavailable when a worker is dead or does not answer. Does not wait for operations."""
        await self._group.check_health()

    async def shutdown(self) -> None:
        """Stop the workers; returns when they are gone. Waits for a running operation first."""
        await self._group.shutdown()

    def _take_version(self, answers: Sequence[Any]) -> None:
        self._weight_version = answers[0].weight_version

    def _alike(self, request: Any) -> list[Any]:
        return [request] * self._config.num_workers


def _check_workers(config: LossConfig, num_workers: int) -> None:
    """`dp_size` scales a loss where each worker averages by itself. Here it is checked and changes nothing."""
    if isinstance(config, GrpoConfig) and config.dp_size not in (None, num_workers):
        raise InvalidArgument.at(
            "loss.config.dp_size",
            f"is {config.dp_size}, but the job has {num_workers} workers; the loss is the whole batch's at any "
            "number of workers: leave it out",
            reason="LOSS_CONFIG_INVALID",
        )
