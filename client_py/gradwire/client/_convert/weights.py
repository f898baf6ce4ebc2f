"""Weights' messages, both ways, and tensors cut into pieces."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from gradwire.client._convert.enums import enum_from_proto
from gradwire.client._convert.messages import as_mapping, fill, put_field
from gradwire.client._convert.tensors import elements
from gradwire.client._convert.times import seconds
from gradwire.client._core.arguments import items
from gradwire.client.types.weights import (
    CommitResult,
    DataType,
    SyncResult,
    TensorChecksum,
    TensorSpec,
    WeightChecksums,
    WeightTransport,
)
from gradwire.v1 import tensor_pb2
from gradwire.v1 import weight_pb2 as pb

CHUNK_BYTES = 1024 * 1024
"""The fastest size of a piece of an upload, measured from 64 KiB to 16 MiB."""


def manifest_to_proto(manifest: Mapping[str, Any] | Sequence[TensorSpec]) -> list[pb.TensorSpec]:
    """Specs of tensors by name (their checksums are computed), or the specs that are given."""
    if isinstance(manifest, Mapping):
        return [_spec_of(name, value) for name, value in manifest.items()]
    specs = items(manifest, "manifest", "a dict of tensors by name, or a list of TensorSpec")
    return [_spec(spec, f"manifest[{number}]") for number, spec in enumerate(specs)]


def _spec(spec: TensorSpec, where: str) -> pb.TensorSpec:
    message = pb.TensorSpec()
    fill(message, as_mapping(spec, where, "TensorSpec"), where)
    return message


def _spec_of(name: str, value: Any) -> pb.TensorSpec:
    array, dtype = elements(value, f"tensor {name!r}")
    digest = hashlib.sha256(array.reshape(-1).view("u1").data).digest()
    message = pb.TensorSpec(dtype=f"DATA_TYPE_{dtype.upper()}", shape=array.shape, sha256=digest)
    put_field(message, "name", name, "a tensor's name")
    return message


def pieces(update_id: str, tensors: Mapping[str, Any]) -> Iterator[pb.TransferUpdateRequest]:
    """All tensors in pieces of CHUNK_BYTES; the first message names the update."""
    first = update_id
    for name, value in tensors.items():
        data = elements(value, f"tensor {name!r}").array.reshape(-1).view("u1").data
        # An empty tensor still sends one (empty) piece, so that it counts as arrived.
        for offset in range(0, max(len(data), 1), CHUNK_BYTES):
            chunk = bytes(data[offset : offset + CHUNK_BYTES])
            message = pb.TransferUpdateRequest(update_id=first, offset=offset, data=chunk)
            put_field(message, "name", name, "a tensor's name")
            yield message
            first = ""


def sync_from_proto(response: pb.SyncResponse) -> SyncResult:
    """Result of a sync."""
    return SyncResult(
        weight_version=response.weight_version,
        size_bytes=response.size_bytes,
        num_tensors=response.num_tensors,
        transport=transport_from_proto(response.transport),
        export_s=seconds(response.export_time),
        pause_s=seconds(response.pause_time),
        total_s=seconds(response.total_time),
        adapter=response.adapter,
    )


def transport_from_proto(number: int) -> WeightTransport:
    """How weights travel."""
    return enum_from_proto(WeightTransport, pb.WeightTransport, number)


def commit_from_proto(response: pb.CommitUpdateResponse) -> CommitResult:
    """Result of a commit."""
    return CommitResult(response.weight_version, seconds(response.pause_time))


def checksums_from_proto(response: pb.GetChecksumsResponse) -> WeightChecksums:
    """Checksums by name."""
    return WeightChecksums({c.name: c for c in _checksums(response.checksums)}, response.weight_version)


def _checksums(messages: Iterable[pb.TensorChecksum]) -> Iterator[TensorChecksum]:
    for message in messages:
        dtype = enum_from_proto(DataType, tensor_pb2.DataType, message.dtype)
        yield TensorChecksum(message.name, dtype, tuple(message.shape), message.sha256)
