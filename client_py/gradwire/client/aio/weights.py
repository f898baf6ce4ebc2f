"""`client.weights`: move weights into a sampler, and prove that they arrived."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from gradwire.client._convert.enums import enum_to_proto
from gradwire.client._convert.jobs import job_id, training_job_id
from gradwire.client._convert.messages import put
from gradwire.client._convert.operation import operation
from gradwire.client._convert.times import duration, moment
from gradwire.client._convert.weights import (
    checksums_from_proto,
    commit_from_proto,
    manifest_to_proto,
    pieces,
    sync_from_proto,
)
from gradwire.client._core.arguments import check
from gradwire.client._core.connection import OFFLOAD_BYTES, Connection, offload
from gradwire.client._core.rpc import Rpc
from gradwire.client.types.jobs import JobRef
from gradwire.client.types.sampling import InFlightPolicy
from gradwire.client.types.weights import (
    CommitResult,
    DataType,
    SyncResult,
    TensorSpec,
    TransferProgress,
    UpdateBegun,
    WeightChecksums,
    WeightNorm,
    WeightTransport,
    WeightVersion,
)
from gradwire.v1 import sampling_pb2
from gradwire.v1 import weight_pb2 as pb

_SERVICE = "/gradwire.v1.WeightService/"
_SYNC = Rpc(_SERVICE + "Sync", pb.SyncRequest, pb.SyncResponse, repeatable=True)
# These three carry no request id: a second Begin would leave an update behind, a second Commit finds none.
_BEGIN = Rpc(_SERVICE + "BeginUpdate", pb.BeginUpdateRequest, pb.BeginUpdateResponse, repeatable=False, changes=True)
_TRANSFER = Rpc(
    _SERVICE + "TransferUpdate", pb.TransferUpdateRequest, pb.TransferUpdateResponse, repeatable=False, changes=True
)
_COMMIT = Rpc(
    _SERVICE + "CommitUpdate", pb.CommitUpdateRequest, pb.CommitUpdateResponse, repeatable=False, changes=True
)
_ABORT = Rpc(_SERVICE + "AbortUpdate", pb.AbortUpdateRequest, pb.AbortUpdateResponse, repeatable=True)
# A second one is told that there is no such adapter.
_UNLOAD = Rpc(
    _SERVICE + "UnloadAdapter", pb.UnloadAdapterRequest, pb.UnloadAdapterResponse, repeatable=False, changes=True
)
_NORM = Rpc(_SERVICE + "GetNorm", pb.GetNormRequest, pb.GetNormResponse, repeatable=True)
_CHECKSUMS = Rpc(_SERVICE + "GetChecksums", pb.GetChecksumsRequest, pb.GetChecksumsResponse, repeatable=True)
_VERSION = Rpc(_SERVICE + "GetVersion", pb.GetVersionRequest, pb.GetVersionResponse, repeatable=True)
_BY_NAME = "a dict of arrays by name"


class AsyncWeights:
    """Carries weights. An update is all or nothing: whenever it fails, the sampler serves its old weights."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    async def sync(
        self,
        training_job: JobRef,
        sampling_job: JobRef | None = None,
        *,
        log_prob_job: JobRef | None = None,
        in_flight: InFlightPolicy | str | None = None,
        transport: WeightTransport | str | None = None,
        low_memory: bool = False,
        verify: bool = False,
        adapter: str = "",
        merge: bool = False,
        request_id: str | None = None,
        sequence_number: int | None = None,
        timeout: float | None = None,
    ) -> SyncResult:
        """Carries a training job's weights into a sampling job (default: the server's own).

        With `log_prob_job` they go to that job instead: the reference is reset to the policy of now. Calls that
        it is answering end first, on the old weights, whatever `in_flight` says.

        `in_flight`: requests in the sampler go on with the new weights ("keep", the default), are awaited first
        ("wait") or ended ("abort"). `verify` compares checksums of both sides afterwards. `transport` is chosen by
        the server; one that it cannot is FailedPreconditionError (TRANSPORT_UNAVAILABLE), which names those it can.
        `low_memory` moves one tensor at a time, over CUDA IPC alone. Applied once, however often it is sent.

        Of a LoRA job only the adapter is carried, into one of the sampler's `max_loras` slots under the name
        `adapter` (default "default": what requests that name none then use); with `merge` the whole model with
        the adapter added, which any sampler takes. A sampler that serves other weights than the adapter was trained
        on is FailedPreconditionError (ADAPTER_BASE_DIFFERS); one of another model, InvalidArgumentError.
        """
        request = pb.SyncRequest(
            training_job_id=training_job_id(training_job, "training_job"),
            sampling_job_id=job_id(sampling_job, "sampling_job"),
            log_prob_job_id=job_id(log_prob_job, "log_prob_job"),
            operation=operation(request_id, sequence_number),
            in_flight=enum_to_proto(sampling_pb2.InFlightPolicy, in_flight, "in_flight"),
            transport=enum_to_proto(pb.WeightTransport, transport, "transport"),
        )
        put(request, low_memory=low_memory, verify=verify, adapter=adapter, merge=merge)
        return sync_from_proto(await self._connection.unary(_SYNC, request, timeout=timeout))

    async def update(
        self,
        tensors: Mapping[str, Any],
        weight_version: int,
        *,
        sampling_job: JobRef | None = None,
        log_prob_job: JobRef | None = None,
        in_flight: InFlightPolicy | str | None = None,
        timeout: float | None = None,
    ) -> CommitResult:
        """Puts `tensors` (arrays by Hugging Face name, all of the model's) into a sampler or a log-prob job.

        `weight_version` is above the job's, and `in_flight` as in `sync`. Begins, transfers and commits with
        checksums; whatever fails on the way aborts the update. `timeout` is each part's own.
        """
        check(tensors, "tensors", Mapping, _BY_NAME)
        enum_to_proto(sampling_pb2.InFlightPolicy, in_flight, "in_flight")  # a wrong one is told before all is sent
        begun = await self.begin_update(
            tensors, weight_version, sampling_job=sampling_job, log_prob_job=log_prob_job, timeout=timeout
        )
        try:
            await self.transfer_update(begun.update_id, tensors, timeout=timeout)
            return await self.commit_update(begun.update_id, in_flight=in_flight, timeout=timeout)
        except BaseException:
            await self.abort_update(begun.update_id, timeout=10)
            raise

    async def begin_update(
        self,
        manifest: Mapping[str, Any] | Sequence[TensorSpec],
        weight_version: int,
        *,
        sampling_job: JobRef | None = None,
        log_prob_job: JobRef | None = None,
        idle_timeout_s: float | None = None,
        timeout: float | None = None,
    ) -> UpdateBegun:
        """Begins an update from a trainer outside the server.

        `manifest` is all of the model's tensors by name (their checksums are computed here), or their specs.
        `weight_version` is above the job's. The server gives the update up when nothing arrives for
        `idle_timeout_s` seconds (default 60).
        """
        specs = await offload(lambda: manifest_to_proto(manifest), OFFLOAD_BYTES + 1)
        request = pb.BeginUpdateRequest(
            sampling_job_id=job_id(sampling_job, "sampling_job"),
            log_prob_job_id=job_id(log_prob_job, "log_prob_job"),
            manifest=specs,
            timeout=duration(idle_timeout_s, "idle_timeout_s"),
        )
        put(request, weight_version=weight_version)
        response = await self._connection.unary(_BEGIN, request, timeout=timeout)
        return UpdateBegun(response.update_id, response.total_bytes)

    async def transfer_update(
        self, update_id: str, tensors: Mapping[str, Any], *, timeout: float | None = None
    ) -> TransferProgress:
        """Sends tensors of an update, by name, in pieces of 1 MiB. May be called for some tensors at a time."""
        check(tensors, "tensors", Mapping, _BY_NAME)
        if not tensors:
            raise ValueError(f"tensors is empty; it takes {_BY_NAME}")
        first = put(pb.TransferUpdateRequest(), update_id=update_id)
        response = await self._connection.upload(_TRANSFER, lambda: pieces(first.update_id, tensors), timeout=timeout)
        return TransferProgress(response.received_bytes, response.complete_tensors)

    async def commit_update(
        self, update_id: str, *, in_flight: InFlightPolicy | str | None = None, timeout: float | None = None
    ) -> CommitResult:
        """Puts an update into effect, the reset of the prefix cache included. `in_flight` as in `sync`."""
        policy = enum_to_proto(sampling_pb2.InFlightPolicy, in_flight, "in_flight")
        request = put(pb.CommitUpdateRequest(in_flight=policy), update_id=update_id)
        return commit_from_proto(await self._connection.unary(_COMMIT, request, timeout=timeout))

    async def abort_update(self, update_id: str, *, timeout: float | None = None) -> None:
        """Gives an update up. Always allowed, any number of times."""
        await self._connection.unary(_ABORT, put(pb.AbortUpdateRequest(), update_id=update_id), timeout=timeout)

    async def unload_adapter(
        self, adapter: str = "default", *, sampling_job: JobRef | None = None, timeout: float | None = None
    ) -> None:
        """Takes an adapter out of a sampler. Its requests end with finish reason abort; its slot is free."""
        request = put(pb.UnloadAdapterRequest(sampling_job_id=job_id(sampling_job, "sampling_job")), adapter=adapter)
        await self._connection.unary(_UNLOAD, request, timeout=timeout)

    async def get_norm(
        self, job: JobRef | None = None, *, adapter: str = "", timeout: float | None = None
    ) -> WeightNorm:
        """L2 norm of a job's weights (default: the server's own sampling job's).

        Of a LoRA job, its adapter's. `adapter` is one of a sampling job, as in `sampling.generate`.
        """
        request = put(pb.GetNormRequest(job_id=job_id(job)), adapter=adapter)
        response = await self._connection.unary(_NORM, request, timeout=timeout)
        return WeightNorm(response.norm, response.weight_version)

    async def get_checksums(
        self,
        job: JobRef | None = None,
        *,
        dtype: DataType | str | None = None,
        adapter: str = "",
        merged: bool = False,
        timeout: float | None = None,
    ) -> WeightChecksums:
        """SHA-256 of each tensor; a training job's are converted to `dtype` first.

        Of a LoRA job, its adapter's, or `merged` the whole model's with the adapter added. `adapter` is one of a
        sampling job, as in `sampling.generate`.
        """
        request = put(pb.GetChecksumsRequest(job_id=job_id(job)), dtype=dtype, adapter=adapter, merged=merged)
        return checksums_from_proto(await self._connection.unary(_CHECKSUMS, request, timeout=timeout))

    async def get_version(
        self, job: JobRef | None = None, *, adapter: str = "", timeout: float | None = None
    ) -> WeightVersion:
        """Version of a job's weights: 0 as loaded, one more a step; a sampler has that of its last sync.

        `adapter` is one of a sampling job, as in `sampling.generate`.
        """
        request = put(pb.GetVersionRequest(job_id=job_id(job)), adapter=adapter)
        response = await self._connection.unary(_VERSION, request, timeout=timeout)
        return WeightVersion(response.weight_version, moment(response, "since"))
