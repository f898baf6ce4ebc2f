"""worker.proto on a rank, which trains or only scores. Each call waits for its turn on the main thread."""

from __future__ import annotations

import logging
import os
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import grpc
import numpy as np

from gradwire.server.codec.status import DETAILS_KEY, to_status
from gradwire.server.engines.deepspeed import messages as m
from gradwire.server.engines.deepspeed.main_thread import MainThread
from gradwire.server.engines.training import SleepMode, TrainerPart
from gradwire.server.errors import FailedPrecondition, GradwireError
from gradwire.server.losses import LossNormalizer
from gradwire.worker.v1 import worker_pb2 as pb
from gradwire.worker.v1 import worker_pb2_grpc as rpc

if TYPE_CHECKING:
    from gradwire.server.engines.deepspeed.rank_loss import RankBatch
    from gradwire.server.engines.deepspeed.scorer import Scorer
    from gradwire.server.engines.deepspeed.trainer import Trainer

NEEDS = {
    "FwdBwd": frozenset(TrainerPart),
    "FwdNoGrad": frozenset({TrainerPart.MODEL}),
    "Step": frozenset(TrainerPart),
    "ZeroGrad": frozenset(TrainerPart),
    "SaveCheckpoint": frozenset(TrainerPart),
    "LoadCheckpoint": frozenset(TrainerPart),
    "ExportWeights": frozenset({TrainerPart.MODEL}),
    "LoadWeights": frozenset({TrainerPart.MODEL}),
    "GetNorm": frozenset({TrainerPart.MODEL}),
    "GetChecksums": frozenset({TrainerPart.MODEL}),
}
"""What must be awake for a call. All ranks sleep alike, so all refuse alike."""
CODES = {code.value[0]: code for code in grpc.StatusCode}

log = logging.getLogger("gradwire.worker")


class WorkerServicer(rpc.WorkerServiceServicer):
    """worker.proto on a Trainer. What each call means stands in the proto."""

    def __init__(self, main: MainThread, *, rank: int, world: int) -> None:
        self._main = main
        self._rank = rank
        self._world = world
        self._model: Trainer | Scorer | None = None

    def Health(self, request: pb.HealthRequest, context: grpc.ServicerContext) -> pb.HealthResponse:
        return pb.HealthResponse(pid=os.getpid(), busy_with=self._main.busy_with)

    def Init(self, request: pb.InitRequest, context: grpc.ServicerContext) -> pb.InitResponse:
        return self._call(context, "Init", lambda: self._init(request))

    def FwdBwd(self, request: pb.FwdBwdRequest, context: grpc.ServicerContext) -> pb.FwdBwdResponse:
        def action() -> pb.FwdBwdResponse:
            whole = LossNormalizer(request.mask_sum, request.active_rows, request.row_width, request.active_prompts)
            result = self.trainer.fwd_bwd(_rows(request.rows), request.loss, m.mapping(request.loss_config), whole)
            response = pb.FwdBwdResponse(metrics=m.metrics_to_proto(result.metrics), micro_batches=result.micro_batches)
            if request.return_outputs:
                response.log_probs, response.entropy = result.log_probs.tobytes(), result.entropy.tobytes()
            return response

        return self._call(context, "FwdBwd", action)

    def FwdNoGrad(self, request: pb.FwdNoGradRequest, context: grpc.ServicerContext) -> pb.FwdNoGradResponse:
        def action() -> pb.FwdNoGradResponse:
            version = self.model.weight_version
            if request.top_k:
                log_probs, (ids, values) = self.scorer.score(_rows(request.rows), request.top_k)
                return pb.FwdNoGradResponse(
                    log_probs=log_probs.tobytes(),
                    weight_version=version,
                    top_token_ids=m.to_bytes(ids, "<i4"),
                    top_log_probs=m.to_bytes(values, "<f4"),
                )
            log_probs, entropy = self.model.fwd_no_grad(_rows(request.rows), request.temperature)
            return pb.FwdNoGradResponse(
                log_probs=log_probs.tobytes(), entropy=entropy.tobytes(), weight_version=version
            )

        return self._call(context, "FwdNoGrad", action)

    def Step(self, request: pb.StepRequest, context: grpc.ServicerContext) -> pb.StepResponse:
        def action() -> pb.StepResponse:
            result = self.trainer.step(
                lr=request.lr if request.HasField("lr") else None,
                max_grad_norm=request.max_grad_norm if request.HasField("max_grad_norm") else None,
            )
            return pb.StepResponse(
                grad_norm=result.grad_norm, lr=result.lr, weight_version=result.weight_version, step=result.step
            )

        return self._call(context, "Step", action)

    def ZeroGrad(self, request: pb.ZeroGradRequest, context: grpc.ServicerContext) -> pb.ZeroGradResponse:
        return self._call(context, "ZeroGrad", lambda: pb.ZeroGradResponse(num_dropped=self.trainer.zero_grad()))

    def SaveCheckpoint(
        self, request: pb.SaveCheckpointRequest, context: grpc.ServicerContext
    ) -> pb.SaveCheckpointResponse:
        def action() -> pb.SaveCheckpointResponse:
            from gradwire.server.engines.deepspeed.checkpoint import save_checkpoint

            info = save_checkpoint(self.trainer, Path(request.path), request.name, merged=request.merged)
            return pb.SaveCheckpointResponse(
                export_path=info.export_path,
                weight_version=info.weight_version,
                step=info.step,
                nbytes=info.nbytes,
                created_unix=info.created_unix,
            )

        return self._call(context, "SaveCheckpoint", action)

    def LoadCheckpoint(
        self, request: pb.LoadCheckpointRequest, context: grpc.ServicerContext
    ) -> pb.LoadCheckpointResponse:
        def action() -> pb.LoadCheckpointResponse:
            from gradwire.server.engines.deepspeed.checkpoint import load_checkpoint

            result = load_checkpoint(self.trainer, Path(request.path))
            return pb.LoadCheckpointResponse(lr=result.lr, weight_version=result.weight_version, step=result.step)

        return self._call(context, "LoadCheckpoint", action)

    def GetManifest(self, request: pb.GetManifestRequest, context: grpc.ServicerContext) -> pb.GetManifestResponse:
        def action() -> pb.GetManifestResponse:
            from gradwire.server.engines.deepspeed.export import weight_manifest

            manifest = weight_manifest(self.model, request.dtype, merged=request.merged)
            return pb.GetManifestResponse(tensors=m.manifest_to_proto(manifest), total_bytes=manifest.total_bytes)

        return self._call(context, "GetManifest", action)

    def ExportWeights(
        self, request: pb.ExportWeightsRequest, context: grpc.ServicerContext
    ) -> pb.ExportWeightsResponse:
        def action() -> pb.ExportWeightsResponse:
            from gradwire.server.engines.deepspeed.export import export_weights

            manifest = m.manifest_from_proto(request.tensors, request.total_bytes)
            export_weights(self.trainer, request.segment, manifest, merged=request.merged)
            return pb.ExportWeightsResponse()

        return self._call(context, "ExportWeights", action)

    def LoadWeights(self, request: pb.LoadWeightsRequest, context: grpc.ServicerContext) -> pb.LoadWeightsResponse:
        def action() -> pb.LoadWeightsResponse:
            manifest = m.manifest_from_proto(request.tensors, request.total_bytes)
            self.scorer.load_weights(request.segment, manifest, request.weight_version)
            return pb.LoadWeightsResponse(weight_version=self.scorer.weight_version)

        return self._call(context, "LoadWeights", action)

    def GetNorm(self, request: pb.GetNormRequest, context: grpc.ServicerContext) -> pb.GetNormResponse:
        def action() -> pb.GetNormResponse:
            from gradwire.server.engines.deepspeed.export import weight_norm

            return pb.GetNormResponse(norm=weight_norm(self.model))

        return self._call(context, "GetNorm", action)

    def GetChecksums(self, request: pb.GetChecksumsRequest, context: grpc.ServicerContext) -> pb.GetChecksumsResponse:
        def action() -> pb.GetChecksumsResponse:
            from gradwire.server.engines.deepspeed.export import checksums

            found = checksums(self.model, request.dtype, merged=request.merged, base=request.base)
            return pb.GetChecksumsResponse(
                checksums=[pb.TensorChecksum(name=c.name, dtype=c.dtype, shape=c.shape, sha256=c.sha256) for c in found]
            )

        return self._call(context, "GetChecksums", action)

    def Sleep(self, request: pb.SleepRequest, context: grpc.ServicerContext) -> pb.SleepResponse:
        def sleep() -> bool:
            return self.model.residency.sleep(SleepMode(request.mode).parts)

        return self._call(context, "Sleep", lambda: pb.SleepResponse(memory=self._measured(sleep)))

    def Wake(self, request: pb.WakeRequest, context: grpc.ServicerContext) -> pb.WakeResponse:
        return self._call(
            context, "Wake", lambda: pb.WakeResponse(memory=self._measured(lambda: self.model.residency.wake()))
        )

    def EmptyCache(self, request: pb.EmptyCacheRequest, context: grpc.ServicerContext) -> pb.EmptyCacheResponse:
        def empty() -> bool:
            self.trainer.empty_cache()
            return True

        return self._call(context, "EmptyCache", lambda: pb.EmptyCacheResponse(memory=self._measured(empty)))

    def _measured(self, action: Callable[[], bool]) -> pb.Memory:
        """Do it; what this process held before and after, and whether it changed anything."""
        from gradwire.server.engines.deepspeed.residency import held_bytes

        before = held_bytes()
        changed = action()
        return pb.Memory(before_bytes=before, after_bytes=held_bytes(), changed=changed)

    def Shutdown(self, request: pb.ShutdownRequest, context: grpc.ServicerContext) -> pb.ShutdownResponse:
        self._main.stop()
        return pb.ShutdownResponse()

    @property
    def model(self) -> Trainer | Scorer:
        """The rank. Raises FailedPrecondition before Init."""
        if self._model is None:
            raise FailedPrecondition("WORKER_NOT_READY", "the worker has no model yet: call Init first")
        return self._model

    @property
    def trainer(self) -> Trainer:
        """The rank of a job that trains. Raises FailedPrecondition when it is none."""
        from gradwire.server.engines.deepspeed.trainer import Trainer

        if not isinstance(self.model, Trainer):
            raise FailedPrecondition("FORWARD_ONLY", "this job only scores: it has no gradients and no optimizer")
        return self.model

    @property
    def scorer(self) -> Scorer:
        """The rank of a forward-only job. Raises FailedPrecondition when it is none."""
        from gradwire.server.engines.deepspeed.scorer import Scorer

        if not isinstance(self.model, Scorer):
            raise FailedPrecondition("NOT_FORWARD_ONLY", "this job trains: its weights are its own to change")
        return self.model

    def _init(self, request: pb.InitRequest) -> pb.InitResponse:
        # Imported here: torch takes seconds, and Health answers meanwhile.
        from gradwire.server.engines.deepspeed.scorer import Scorer
        from gradwire.server.engines.deepspeed.trainer import Trainer

        config = m.config_from_proto(request.config)
        make = Scorer if request.forward_only else Trainer
        self._model = make(config, rank=self._rank, world=self._world, master_port=request.master_port)
        parameters = self._model.policy.trained_parameters().values()
        return pb.InitResponse(
            num_parameters=sum(getattr(p, "ds_numel", p.numel()) for p in parameters),
            vocab_size=self._model.policy.vocab_size,
            max_positions=self._model.policy.max_positions,
        )

    def _call(self, context: grpc.ServicerContext, name: str, action: Callable[[], Any]) -> Any:
        """Run an action on the main thread; errors become statuses with details."""

        def awake() -> Any:
            if parts := NEEDS.get(name):
                self.model.residency.require(name, parts)
            return action()

        try:
            return self._main.submit(name, awake).result()
        except GradwireError as error:
            _abort(context, error)
        except Exception as error:
            log.error("%s failed\n%s", name, "".join(traceback.format_exception(error)))
            text = f"rank {self._rank}: {name}: {type(error).__name__}: {error}"
            _abort(context, GradwireError("WORKER_FAILED", text[:500]))


def _abort(context: grpc.ServicerContext, error: GradwireError) -> None:
    status = to_status(error)
    context.set_trailing_metadata(((DETAILS_KEY, status.SerializeToString()),))
    context.abort(CODES[status.code], status.message)


def _rows(rows: pb.Rows) -> RankBatch:
    from gradwire.server.engines.deepspeed.rank_loss import RankBatch

    return RankBatch(
        input_ids=np.frombuffer(rows.input_ids, "<i4"),
        row_offsets=np.frombuffer(rows.row_offsets, "<i8"),
        row_ids=np.frombuffer(rows.row_ids, "<i8"),
        mask=m.floats(rows.mask),
        columns={name: m.floats(column) for name, column in rows.columns.items()},
    )
