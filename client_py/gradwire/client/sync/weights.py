"""`client.weights`: move weights into a sampler, and prove that they arrived.

Generated from `gradwire.client.aio.weights` by scripts/gen_sync_client.py; edit that instead.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from gradwire.client.aio.weights import AsyncWeights
from gradwire.client.sync.portal import Portal
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


class Weights:
    """Carries weights. An update is all or nothing: whenever it fails, the sampler serves its old weights."""

    def __init__(self, client: AsyncWeights, loop: Portal) -> None:
        self._async = client
        self._loop = loop

    def sync(
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
        return self._loop.run(
            self._async.sync(
                training_job,
                sampling_job,
                log_prob_job=log_prob_job,
                in_flight=in_flight,
                transport=transport,
                low_memory=low_memory,
                verify=verify,
                adapter=adapter,
                merge=merge,
                request_id=request_id,
                sequence_number=sequence_number,
                timeout=timeout,
            )
        )

    def update(
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
        return self._loop.run(
            self._async.update(
                tensors,
                weight_version,
                sampling_job=sampling_job,
                log_prob_job=log_prob_job,
                in_flight=in_flight,
                timeout=timeout,
            )
        )

    def begin_update(
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
        return self._loop.run(
            self._async.begin_update(
                manifest,
                weight_version,
                sampling_job=sampling_job,
                log_prob_job=log_prob_job,
                idle_timeout_s=idle_timeout_s,
                timeout=timeout,
            )
        )

    def transfer_update(
        self, update_id: str, tensors: Mapping[str, Any], *, timeout: float | None = None
    ) -> TransferProgress:
        """Sends tensors of an update, by name, in pieces of 1 MiB. May be called for some tensors at a time."""
        return self._loop.run(self._async.transfer_update(update_id, tensors, timeout=timeout))

    def commit_update(
        self, update_id: str, *, in_flight: InFlightPolicy | str | None = None, timeout: float | None = None
    ) -> CommitResult:
        """Puts an update into effect, the reset of the prefix cache included. `in_flight` as in `sync`."""
        return self._loop.run(self._async.commit_update(update_id, in_flight=in_flight, timeout=timeout))

    def abort_update(self, update_id: str, *, timeout: float | None = None) -> None:
        """Gives an update up. Always allowed, any number of times."""
        self._loop.run(self._async.abort_update(update_id, timeout=timeout))

    def unload_adapter(
        self, adapter: str = "default", *, sampling_job: JobRef | None = None, timeout: float | None = None
    ) -> None:
        """Takes an adapter out of a sampler. Its requests end with finish reason abort; its slot is free."""
        self._loop.run(self._async.unload_adapter(adapter, sampling_job=sampling_job, timeout=timeout))

    def get_norm(self, job: JobRef | None = None, *, adapter: str = "", timeout: float | None = None) -> WeightNorm:
        """L2 norm of a job's weights (default: the server's own sampling job's).

        Of a LoRA job, its adapter's. `adapter` is one of a sampling job, as in `sampling.generate`.
        """
        return self._loop.run(self._async.get_norm(job, adapter=adapter, timeout=timeout))

    def get_checksums(
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
        return self._loop.run(
            self._async.get_checksums(job, dtype=dtype, adapter=adapter, merged=merged, timeout=timeout)
        )

    def get_version(
        self, job: JobRef | None = None, *, adapter: str = "", timeout: float | None = None
    ) -> WeightVersion:
        """Version of a job's weights: 0 as loaded, one more a step; a sampler has that of its last sync.

        `adapter` is one of a sampling job, as in `sampling.generate`.
        """
        return self._loop.run(self._async.get_version(job, adapter=adapter, timeout=timeout))
