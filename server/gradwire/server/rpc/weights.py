"""WeightService: syncs, updates from outside, and proofs."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

from gradwire.server.codec.jobs import IN_FLIGHT
from gradwire.server.codec.tensor import dtype_name
from gradwire.server.codec.times import duration, timestamp
from gradwire.server.domain.adapters import DEFAULT, able, served, unload
from gradwire.server.domain.caller import Caller, current_caller
from gradwire.server.domain.jobs import JobKind
from gradwire.server.domain.registry import JobRegistry, TrainingJob
from gradwire.server.domain.training import guarded, operate
from gradwire.server.domain.updates import IncomingTensor, WeightUpdates
from gradwire.server.domain.weights import SyncReport, WeightSync, WeightTarget
from gradwire.server.engines.tasks import to_the_end
from gradwire.server.engines.weights import SAFETENSORS_DTYPES, InFlightPolicy, TensorChecksum
from gradwire.server.errors import FailedPrecondition, InvalidArgument
from gradwire.server.rpc.operation import operation_of, time_left
from gradwire.v1 import tensor_pb2, weight_pb2, weight_pb2_grpc

_DEFAULT_TIMEOUT_S = 60.0
_DTYPES = {
    "F32": tensor_pb2.DATA_TYPE_FLOAT32,
    "BF16": tensor_pb2.DATA_TYPE_BFLOAT16,
    "F16": tensor_pb2.DATA_TYPE_FLOAT16,
}


class WeightServicer(weight_pb2_grpc.WeightServiceServicer):
    """Adapter of weights on the move."""

    def __init__(self, jobs: JobRegistry, sync: WeightSync, updates: WeightUpdates) -> None:
        self._jobs = jobs
        self._sync = sync
        self._updates = updates

    def _target(self, request: Any, caller: Caller) -> WeightTarget:
        """The sampling or log-prob job that weights go to."""
        if not request.log_prob_job_id:
            return self._jobs.sampling(request.sampling_job_id, caller, field="sampling_job_id")
        if request.sampling_job_id:
            raise InvalidArgument.at("log_prob_job_id", "stands beside sampling_job_id; weights go to one job a call")
        return self._jobs.log_prob(request.log_prob_job_id, caller, field="log_prob_job_id")

    async def Sync(self, request: weight_pb2.SyncRequest, context: Any) -> weight_pb2.SyncResponse:
        caller = current_caller()
        source = self._jobs.training(request.training_job_id, caller, field="training_job_id")
        target = self._target(request, caller)
        _check_transport(request.transport)
        name = _adapter_name(request, source)
        merge = request.merge or target.kind is JobKind.LOG_PROB  # a reference is a whole model, whatever part trains

        async def apply() -> SyncReport:
            policy = IN_FLIGHT.get(request.in_flight, InFlightPolicy.KEEP)
            if not name:
                return await self._sync.sync(source, target, in_flight=policy, verify=request.verify, merge=merge)
            return await self._sync.sync_adapter(
                source, target, name, caller.tenant,
                in_flight=policy, verify=request.verify, lives=self._jobs.holds,
            )  # fmt: skip

        timed = await operate(source, await operation_of("Sync", request), apply, timeout=time_left(context))
        report = timed.value
        return weight_pb2.SyncResponse(
            weight_version=report.weight_version,
            size_bytes=report.num_bytes,
            num_tensors=report.num_tensors,
            transport=weight_pb2.WEIGHT_TRANSPORT_SHARED_MEMORY,
            export_time=duration(report.export_s),
            pause_time=duration(report.pause_s),
            total_time=duration(report.total_s),
            adapter=name,
        )

    async def UnloadAdapter(
        self, request: weight_pb2.UnloadAdapterRequest, context: Any
    ) -> weight_pb2.UnloadAdapterResponse:
        caller = current_caller()
        job = self._jobs.sampling(request.sampling_job_id, caller, field="sampling_job_id")

        async def apply() -> None:
            async with self._sync.lock(job):
                await unload(job, request.adapter, caller.tenant)

        await to_the_end(apply())
        return weight_pb2.UnloadAdapterResponse()

    async def BeginUpdate(self, request: weight_pb2.BeginUpdateRequest, context: Any) -> weight_pb2.BeginUpdateResponse:
        caller = current_caller()
        job = self._target(request, caller)
        tensors = [
            IncomingTensor(spec.name, dtype_name(spec.dtype), tuple(spec.shape), spec.sha256)
            for spec in request.manifest
        ]
        timeout = request.timeout.ToTimedelta().total_seconds() if request.HasField("timeout") else _DEFAULT_TIMEOUT_S
        update_id, total = await self._updates.begin(job, tensors, request.weight_version, timeout, caller)
        return weight_pb2.BeginUpdateResponse(update_id=update_id, total_bytes=total)

    async def TransferUpdate(
        self, request_iterator: AsyncIterator[weight_pb2.TransferUpdateRequest], context: Any
    ) -> weight_pb2.TransferUpdateResponse:
        caller = current_caller()
        update_id = ""
        async for piece in request_iterator:
            update_id = update_id or piece.update_id
            if not update_id:
                raise InvalidArgument.at("update_id", "is required in the first message")
            self._updates.receive(update_id, piece.name, piece.offset, piece.data, caller)
        if not update_id:
            raise InvalidArgument.at("update_id", "is required; the stream was empty")
        received, whole = self._updates.progress(update_id, caller)
        return weight_pb2.TransferUpdateResponse(received_bytes=received, complete_tensors=whole)

    async def CommitUpdate(
        self, request: weight_pb2.CommitUpdateRequest, context: Any
    ) -> weight_pb2.CommitUpdateResponse:
        policy = IN_FLIGHT.get(request.in_flight, InFlightPolicy.KEEP)
        version, pause_s = await to_the_end(self._updates.commit(request.update_id, policy, current_caller()))
        return weight_pb2.CommitUpdateResponse(weight_version=version, pause_time=duration(pause_s))

    async def AbortUpdate(self, request: weight_pb2.AbortUpdateRequest, context: Any) -> weight_pb2.AbortUpdateResponse:
        self._updates.abort(request.update_id, current_caller())
        return weight_pb2.AbortUpdateResponse()

    async def GetNorm(self, request: weight_pb2.GetNormRequest, context: Any) -> weight_pb2.GetNormResponse:
        job = self._jobs.get(request.job_id, current_caller())
        job.require_working()
        if job.kind is JobKind.TRAINING:
            norm = await guarded(job, job.engine.weight_norm)
            return weight_pb2.GetNormResponse(norm=norm, weight_version=job.weight_version)
        found = able(job, request.adapter, current_caller().tenant)
        norm = await guarded(job, lambda: job.engine.weight_norm(*found.which))
        return weight_pb2.GetNormResponse(norm=norm, weight_version=found.weight_version)

    async def GetChecksums(
        self, request: weight_pb2.GetChecksumsRequest, context: Any
    ) -> weight_pb2.GetChecksumsResponse:
        job = self._jobs.get(request.job_id, current_caller())
        job.require_working()
        if job.kind is JobKind.TRAINING:
            dtype = dtype_name(request.dtype) if request.dtype else job.config.dtype
            merged = request.merged and job.engine.config.lora is not None
            found = await guarded(job, lambda: job.engine.checksums(SAFETENSORS_DTYPES[dtype], merged=merged))
            version = job.weight_version
        else:
            by = able(job, request.adapter, current_caller().tenant)
            found = await guarded(job, lambda: job.engine.checksums(*by.which))
            version = by.weight_version
        return weight_pb2.GetChecksumsResponse(checksums=[_encode_checksum(c) for c in found], weight_version=version)

    async def GetVersion(self, request: weight_pb2.GetVersionRequest, context: Any) -> weight_pb2.GetVersionResponse:
        job = self._jobs.get(request.job_id, current_caller())
        if job.kind is JobKind.TRAINING:
            return weight_pb2.GetVersionResponse(weight_version=job.weight_version, since=timestamp(job.version_since))
        found = served(job, request.adapter, current_caller().tenant)
        return weight_pb2.GetVersionResponse(weight_version=found.weight_version, since=timestamp(found.since))


def _check_transport(transport: weight_pb2.WeightTransport) -> None:
    if transport not in (weight_pb2.WEIGHT_TRANSPORT_UNSPECIFIED, weight_pb2.WEIGHT_TRANSPORT_SHARED_MEMORY):
        name = weight_pb2.WeightTransport.Name(transport)
        raise FailedPrecondition(
            "TRANSPORT_UNAVAILABLE",
            f"transport: this server does not carry weights by {name}; it does by WEIGHT_TRANSPORT_SHARED_MEMORY",
        )


def _adapter_name(request: weight_pb2.SyncRequest, source: TrainingJob) -> str:
    """The name that an adapter alone goes under; empty for a whole model. Raises InvalidArgument."""
    if source.engine.config.lora is None:
        for field in ("adapter", "merge"):
            if getattr(request, field):
                raise InvalidArgument.at(field, f"{source.name} trains all weights; this is for jobs made with lora")
        return ""
    if request.merge and request.adapter:
        raise InvalidArgument.at("adapter", "goes without merge: a merged sync carries a whole model")
    if request.log_prob_job_id and request.adapter:
        raise InvalidArgument.at("adapter", "is for sampling jobs: a log-prob job takes the whole model, merged")
    return "" if request.merge or request.log_prob_job_id else request.adapter or DEFAULT


def _encode_checksum(checksum: TensorChecksum) -> weight_pb2.TensorChecksum:
    return weight_pb2.TensorChecksum(
        name=checksum.name,
        dtype=_DTYPES[checksum.dtype],
        shape=checksum.shape,
        sha256=bytes.fromhex(checksum.sha256),
    )
