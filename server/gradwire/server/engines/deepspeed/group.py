"""A training job seen from the front process: N workers as one TrainingEngine.

Sends every operation to all workers at once and folds their answers. Operations run one after the other;
one that has begun runs to its end even when its caller is cancelled, because half of a collective would
leave the ranks apart. A worker that dies, or alone fails in the middle, ends the job: what is pending and what
comes later gets Unavailable. Does not know: torch, deepspeed.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import grpc
import numpy as np
import numpy.typing as npt

from gradwire.server.codec.status import from_rpc_error
from gradwire.server.engines.base import Progress
from gradwire.server.engines.deepspeed import messages as m
from gradwire.server.engines.deepspeed.config import checked_config
from gradwire.server.engines.deepspeed.launcher import LocalLauncher, WorkerProcess, free_port
from gradwire.server.engines.deepspeed.packing import split_rows
from gradwire.server.engines.training import (
    CheckpointInfo,
    ForwardResult,
    FwdBwdResult,
    LossSpec,
    StepResult,
    TrainingBatch,
    TrainingConfig,
)
from gradwire.server.engines.weights import TensorChecksum, WeightManifest
from gradwire.server.errors import Aborted, FailedPrecondition, GradwireError, InvalidArgument, Unavailable
from gradwire.server.losses import LossNormalizer, resolve_loss
from gradwire.server.losses.checks import check_layout, check_loss_batch, check_token_ids, default_mask
from gradwire.server.losses.metrics import merge_metrics
from gradwire.worker.v1 import worker_pb2 as pb
from gradwire.worker.v1 import worker_pb2_grpc as rpc

T = TypeVar("T")

MESSAGE_LIMIT = 1 << 30
CHANNEL_OPTIONS = [
    ("grpc.max_receive_message_length", MESSAGE_LIMIT),
    ("grpc.max_send_message_length", MESSAGE_LIMIT),
    ("grpc.enable_retries", 0),  # a repeated operation would train twice
    ("grpc.enable_http_proxy", 0),
]
GRACE_SECONDS = 5.0
"""After one worker has failed in a way its peers do not know of, they may take this long to say so too."""


class DeepSpeedTrainer:
    """TrainingEngine (engines/base.py) on `config.num_workers` DeepSpeed ranks."""

    def __init__(self, config: TrainingConfig, *, launcher: LocalLauncher | None = None) -> None:
        """Raises InvalidArgument for a configuration that can never work. `model_path` is a local folder."""
        self._config = checked_config(config)
        self._launcher = launcher or LocalLauncher()
        self._workers: list[WorkerProcess] = []
        self._channels: list[grpc.aio.Channel] = []
        self._stubs: list[Any] = []
        self._watchers: list[asyncio.Task[None]] = []
        self._lock = asyncio.Lock()
        self._running: set[asyncio.Task[Any]] = set()
        self._death: asyncio.Future[GradwireError] | None = None
        self._closed = False
        self._weight_version = 0
        self._vocab_size = 0

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
        self._death = asyncio.get_running_loop().create_future()
        world = self._config.num_workers
        try:
            progress(f"starting {world} trainer worker{'s' if world > 1 else ''}")
            self._workers = await self._launcher.launch(world)
            for worker in self._workers:
                self._watchers.append(asyncio.create_task(self._watch(worker)))
                channel = grpc.aio.insecure_channel(worker.address, options=CHANNEL_OPTIONS)
                self._channels.append(channel)
                self._stubs.append(rpc.WorkerServiceStub(channel))
            progress(f"loading {self._config.model} into the trainer")
            request = pb.InitRequest(config=m.config_to_proto(self._config), master_port=free_port())
            (first, *_) = await self._operate("Init", [request] * world)
            self._vocab_size = first.vocab_size
            progress(f"trainer ready: {first.num_parameters:,} parameters, ZeRO stage {self._config.zero_stage}")
        except BaseException:
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
        self._raise_if_gone()
        mask = await asyncio.to_thread(check_loss_batch, batch, chosen, parsed)
        check_token_ids(batch, self._vocab_size)
        whole = LossNormalizer.of(mask, batch.row_offsets, batch.row_width)
        shares = await self._shares(batch, mask)

        def request(rows: npt.NDArray[np.int64]) -> pb.FwdBwdRequest:
            return pb.FwdBwdRequest(
                rows=m.rows_to_proto(batch, mask, rows),
                loss=chosen.name,
                loss_config=options,
                mask_sum=whole.mask_sum,
                active_rows=whole.active_rows,
                row_width=whole.row_width,
                return_outputs=outputs,
            )

        requests = await asyncio.to_thread(lambda: [request(rows) for rows in shares])
        answers = await self._operate("FwdBwd", requests)
        metrics = {
            name: metric.result
            for name, metric in sorted(merge_metrics(m.metrics_from_proto(a.metrics) for a in answers).items())
        }
        return FwdBwdResult(
            loss=metrics["loss"],
            num_loss_tokens=int(np.count_nonzero(mask)),
            metrics=metrics,
            micro_batches=max(answer.micro_batches for answer in answers),
            log_probs=_joined(batch, shares, [a.log_probs for a in answers]) if outputs else None,
            entropy=_joined(batch, shares, [a.entropy for a in answers]) if outputs else None,
        )

    async def fwd_no_grad(
        self, batch: TrainingBatch, *, temperature: float = 1.0, entropy: bool = False
    ) -> ForwardResult:
        """Log-probs of a batch's own tokens; where it has a loss mask, only there, and 0 elsewhere."""
        if not 0 < temperature < math.inf:
            raise InvalidArgument.at("temperature", f"must be finite and > 0, is {temperature}")
        self._raise_if_gone()
        check_layout(batch)
        check_token_ids(batch, self._vocab_size)
        mask = default_mask(batch).copy()
        mask[batch.row_offsets[1:] - 1] = 0  # no token follows that it could score
        shares = await self._shares(batch, mask)
        bare = replace(batch, columns={})
        requests = [
            pb.FwdNoGradRequest(rows=m.rows_to_proto(bare, mask, rows), temperature=temperature) for rows in shares
        ]
        version = self._weight_version
        answers = await self._operate("FwdNoGrad", requests)
        return ForwardResult(
            log_probs=_joined(batch, shares, [a.log_probs for a in answers]),
            entropy=_joined(batch, shares, [a.entropy for a in answers]) if entropy else None,
            weight_version=version,
        )

    async def step(self, *, lr: float | None = None, max_grad_norm: float | None = None) -> StepResult:
        """Apply the accumulated gradients and clear them. FailedPrecondition when there are none.

        Gradients that are not finite are cleared too, with FailedPrecondition; the weights stay.
        """
        for name, value in (("lr", lr), ("max_grad_norm", max_grad_norm)):
            if value is not None and not 0 <= value < math.inf:
                raise InvalidArgument.at(name, f"must be finite and >= 0, is {value}")

        def done(answers: Sequence[Any]) -> StepResult:
            first = answers[0]
            self._weight_version = first.weight_version
            return StepResult(first.grad_norm, first.lr, first.weight_version, first.step)

        return await self._operate("Step", self._alike(pb.StepRequest(lr=lr, max_grad_norm=max_grad_norm)), done)

    async def save_checkpoint(self, path: Path, *, name: str) -> CheckpointInfo:
        """Write a checkpoint to the folder `path`, atomically. AlreadyExists when there is one."""
        request = pb.SaveCheckpointRequest(path=str(path), name=name)
        (first, *_) = await self._operate("SaveCheckpoint", self._alike(request))
        return CheckpointInfo(
            name=name,
            path=str(path),
            export_path=first.export_path,
            weight_version=first.weight_version,
            step=first.step,
            nbytes=first.nbytes,
            created_unix=first.created_unix,
        )

    async def load_checkpoint(self, path: Path) -> StepResult:
        """Continue from a checkpoint; drops accumulated gradients, makes a new weight version.

        `grad_norm` of the result is 0, `lr` that of the next step.
        """

        def done(answers: Sequence[Any]) -> StepResult:
            self._weight_version = answers[0].weight_version
            return StepResult(0.0, answers[0].lr, answers[0].weight_version, answers[0].step)

        return await self._operate("LoadCheckpoint", self._alike(pb.LoadCheckpointRequest(path=str(path))), done)

    async def weight_manifest(self, dtype: str) -> WeightManifest:
        """Layout of `export_weights` in `dtype` ("F32", "BF16", "F16")."""
        (first, *_) = await self._operate("GetManifest", self._alike(pb.GetManifestRequest(dtype=dtype)))
        return m.manifest_from_proto(first.tensors, first.total_bytes)

    async def export_weights(self, segment: str, manifest: WeightManifest) -> None:
        """Write the weights into a shared-memory segment made by the caller."""
        request = pb.ExportWeightsRequest(
            segment=segment, tensors=m.manifest_to_proto(manifest), total_bytes=manifest.total_bytes
        )
        await self._operate("ExportWeights", self._alike(request))

    async def weight_norm(self) -> float:
        """L2 norm of all parameters, float64 accumulation, tied tensors once."""
        (first, *_) = await self._operate("GetNorm", self._alike(pb.GetNormRequest()))
        norm: float = first.norm
        return norm

    async def checksums(self, dtype: str) -> list[TensorChecksum]:
        """Checksums of the weights as `export_weights` would write them in `dtype`."""
        (first, *_) = await self._operate("GetChecksums", self._alike(pb.GetChecksumsRequest(dtype=dtype)))
        return [TensorChecksum(c.name, c.dtype, tuple(c.shape), c.sha256) for c in first.checksums]

    async def check_health(self) -> None:
        """Raises Unavailable when a worker is dead or does not answer. Does not wait for operations."""
        self._raise_if_gone()
        try:
            await asyncio.gather(*(stub.Health(pb.HealthRequest(), timeout=5) for stub in self._stubs))
        except grpc.aio.AioRpcError as error:
            self._raise_if_gone()
            raise Unavailable(
                "TRAINER_NOT_ANSWERING", f"a trainer worker does not answer: {error.details()}"
            ) from error

    async def shutdown(self) -> None:
        """Stop the workers; returns when they are gone. Waits for a running operation first."""
        if self._closed:
            return
        self._closed = True
        if self._running and not self._is_dead():
            await asyncio.wait(self._running)
        for stub, worker in zip(self._stubs, self._workers, strict=False):
            if worker.process.returncode is None:
                try:
                    await stub.Shutdown(pb.ShutdownRequest(), timeout=2)
                except grpc.aio.AioRpcError:
                    worker.kill()
        await asyncio.gather(*(worker.stop() for worker in self._workers))
        await asyncio.gather(*self._watchers, *(channel.close() for channel in self._channels))
        self._launcher.clean()

    def _alike(self, request: T) -> list[T]:
        return [request] * self._config.num_workers

    async def _shares(self, batch: TrainingBatch, mask: npt.NDArray[np.float32]) -> list[npt.NDArray[np.int64]]:
        """Rows of each rank."""
        world = self._config.num_workers
        if world == 1:
            return [np.arange(batch.num_rows)]
        return await asyncio.to_thread(split_rows, batch.input_ids, batch.row_offsets, mask, world)

    async def _operate(
        self, name: str, requests: Sequence[Any], done: Callable[[Sequence[Any]], T] | None = None
    ) -> Any:
        """One operation on all workers: the answers, or what `done` makes of them.

        `done` runs even when the caller is gone, so that this object's state follows the workers'.
        """
        self._raise_if_gone()
        task = asyncio.create_task(self._in_turn(name, requests, done))
        self._running.add(task)
        task.add_done_callback(self._forget)
        return await asyncio.shield(task)

    def _forget(self, task: asyncio.Task[Any]) -> None:
        self._running.discard(task)
        if not task.cancelled():
            task.exception()  # seen, also when its caller was cancelled and nobody else looks

    async def _in_turn(self, name: str, requests: Sequence[Any], done: Callable[[Sequence[Any]], T] | None) -> Any:
        async with self._lock:
            self._raise_if_gone()
            calls = [
                asyncio.ensure_future(getattr(stub, name)(request, wait_for_ready=True))
                for stub, request in zip(self._stubs, requests, strict=True)
            ]
            answers = await self._gather(name, calls)
            return answers if done is None else done(answers)

    async def _gather(self, name: str, calls: Sequence[asyncio.Future[Any]]) -> Sequence[Any]:
        """All answers; or one error, once every worker has come out of the operation."""
        assert self._death is not None
        death, pending, deadline = self._death, set(calls), None
        while pending:
            finished, pending = await asyncio.wait(
                {*pending, death}, timeout=deadline, return_when=asyncio.FIRST_COMPLETED
            )
            pending.discard(death)
            if death.done() or not finished:
                for call in calls:
                    call.cancel()
                if not death.done():
                    self._end(Unavailable("TRAINER_DIVERGED", f"one trainer worker failed in {name}, others did not"))
                await asyncio.gather(*calls, return_exceptions=True)
                raise death.result()
            if any(call.exception() is not None for call in finished if call is not death):
                deadline = GRACE_SECONDS
        errors = [_error_of(call) for call in calls if call.exception() is not None]
        if not errors:
            return [call.result() for call in calls]
        # A rank that only heard of a peer's failure says Aborted; the peer says what it was.
        error = next((e for e in errors if not isinstance(e, Aborted)), errors[0])
        if len(errors) < len(calls) or type(error) is GradwireError:
            self._end(Unavailable("TRAINER_FAILED", f"the trainer failed in {name}: {error.message}"))
        raise error

    async def _watch(self, worker: WorkerProcess) -> None:
        await worker.wait()
        if not self._closed:
            self._end(Unavailable("TRAINER_DIED", f"trainer worker {worker.rank} {worker.exit_text}"))

    def _end(self, error: GradwireError) -> None:
        """The job cannot go on: remember why, and stop what is left of it."""
        assert self._death is not None
        if not self._death.done():
            self._death.set_result(error)
        for worker in self._workers:
            worker.kill()

    def _is_dead(self) -> bool:
        return self._death is not None and self._death.done()

    def _raise_if_gone(self) -> None:
        if self._is_dead():
            assert self._death is not None
            raise self._death.result()
        if self._closed or self._death is None:
            raise FailedPrecondition(
                "TRAINER_NOT_RUNNING", "the trainer is not running: it was not started, or stopped"
            )


def _error_of(call: asyncio.Future[Any]) -> GradwireError:
    error = call.exception()
    if isinstance(error, grpc.aio.AioRpcError):
        return from_rpc_error(error)
    return GradwireError("WORKER_FAILED", f"{type(error).__name__}: {error}")


def _joined(
    batch: TrainingBatch, shares: Sequence[npt.NDArray[np.int64]], parts: Sequence[bytes]
) -> npt.NDArray[np.float32]:
    """The ranks' flat columns, in the batch's order."""
    whole = np.zeros(len(batch.input_ids), np.float32)
    for rows, part in zip(shares, parts, strict=True):
        whole[m.positions_of(batch.row_offsets, rows)] = m.floats(part)
    return whole
