"""Rows of training calls: sent with the call or uploaded before it, and what a loss asks of them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import numpy as np
from google.protobuf.message import DecodeError

from gradwire.server.codec.batch import DecodedBatch, decode_batch, fill_column, take_in
from gradwire.server.codec.shared import SharedMemoryPolicy, SharedReads
from gradwire.server.domain.caller import current_caller
from gradwire.server.domain.jobs import JobKind
from gradwire.server.domain.registry import JobRegistry
from gradwire.server.domain.uploads import StoredBatch, UploadStore
from gradwire.server.engines.training import LossSpec
from gradwire.server.errors import InvalidArgument
from gradwire.server.losses.family import PolicyLossConfig
from gradwire.server.losses.registry import resolve_loss
from gradwire.v1 import training_pb2

_NO_ADVANTAGE = (
    "advantages are 0 on every token that counts: their gradient is 0, so the rewards teach nothing; where advantages "
    "are group-normalised, each group had equal rewards"
)


class Batches:
    """Finds the rows of a call. `shared_memory`: who may pass them by segments."""

    def __init__(self, jobs: JobRegistry, uploads: UploadStore, shared_memory: SharedMemoryPolicy) -> None:
        self._jobs = jobs
        self._uploads = uploads
        self._shared_memory = shared_memory

    async def upload(self, messages: AsyncIterator[training_pb2.UploadBatchRequest]) -> StoredBatch:
        """Keep a batch that comes in chunks. Raises InvalidArgument, ResourceExhausted."""
        caller = current_caller()
        first = await anext(aiter(messages), None)
        if first is None or first.WhichOneof("part") != "header":
            raise InvalidArgument.at("header", "must come first, before any chunk")
        header = first.header
        self._jobs.of_kind(header.job_id, caller, JobKind.TRAINING, JobKind.LOG_PROB, field="header.job_id")
        incoming = self._uploads.begin(header.total_bytes, header.sha256)
        try:
            async for message in messages:
                if message.WhichOneof("part") != "chunk":
                    raise InvalidArgument.at("chunk", "must follow the header; there is one header only")
                incoming.add(message.chunk)
            data = await asyncio.to_thread(incoming.finish)
        except BaseException:
            self._uploads.release(header.total_bytes)
            raise
        return self._uploads.keep(data, header.sha256, header.job_id, caller)

    async def of(self, request: Any, *, vocab_size: int) -> tuple[DecodedBatch, bytes]:
        """The rows of a request, and the digest of those that were uploaded."""
        caller = current_caller()
        digest = b""
        match request.WhichOneof("rows"):
            case "batch":
                shared = self._shared_memory.reads(same_host=caller.same_host)
                # In a thread: copying megabytes would hold up every other call.
                decoded = await asyncio.to_thread(_decode, request.batch, shared)
            case "batch_id":
                stored = self._uploads.get(request.batch_id, request.job_id, caller)
                message, digest = await asyncio.to_thread(_parse, stored.data), stored.sha256
                decoded = await asyncio.to_thread(decode_batch, message, "batch")
            case _:
                raise InvalidArgument.at("batch", "is required: the rows, or the batch_id of an upload")
        _check_vocabulary(vocab_size, decoded)
        return decoded, digest


def with_defaults(decoded: DecodedBatch, spec: LossSpec) -> DecodedBatch:
    """The batch with natural values in columns that the loss needs and the caller left out, each with a warning.

    A loss with a ratio takes a batch without old log-probs as on-policy. That is said too: in a second epoch, or with
    weights of another version, it would train another objective in silence.
    """
    loss = resolve_loss(spec.name)
    if "advantages" in loss.columns and "advantages" not in decoded.batch.columns:
        decoded = fill_column(decoded, "advantages", 1.0, "no advantages: 1 everywhere")
    if issubclass(loss.config_type, PolicyLossConfig) and "old_log_probs" not in decoded.batch.columns:
        on_policy = "no old_log_probs_shifted: those of this pass, so every ratio is 1"
        if "prox_log_probs" in decoded.batch.columns:
            on_policy = "no old_log_probs_shifted: the behaviour weight exp(prox - old) is 1"
        decoded = replace(decoded, warnings=(*decoded.warnings, on_policy))
    if "advantages" in loss.columns and not _teaches(decoded):
        decoded = replace(decoded, warnings=(*decoded.warnings, _NO_ADVANTAGE))
    return decoded


def _teaches(decoded: DecodedBatch) -> bool:
    """Whether any token that counts has an advantage other than 0."""
    counts = True if decoded.batch.loss_mask is None else decoded.batch.loss_mask != 0
    return bool(((decoded.batch.columns["advantages"] != 0) & counts).any())


def _decode(message: training_pb2.TrainingBatch, shared: SharedReads | None) -> DecodedBatch:
    take_in(message, "batch", shared)
    return decode_batch(message, "batch")


def _parse(data: bytes) -> training_pb2.TrainingBatch:
    try:
        return training_pb2.TrainingBatch.FromString(data)
    except DecodeError:
        raise InvalidArgument.at("batch_id", "the uploaded bytes are no serialised TrainingBatch") from None


def _check_vocabulary(size: int, decoded: DecodedBatch) -> None:
    ids = decoded.batch.input_ids
    if int(ids.max()) >= size:
        row = int(np.searchsorted(decoded.batch.row_offsets, int(ids.argmax()), side="right")) - 1
        raise InvalidArgument.at(
            "batch.input_ids", f"row {row} holds token {int(ids.max())}; the model's tokens are 0 to {size - 1}"
        )
