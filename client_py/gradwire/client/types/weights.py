"""What moving weights takes and returns. Durations are float seconds, sizes bytes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from gradwire.client.types.shown import Brief


class WeightTransport(StrEnum):
    """How weights travel."""

    UNSPECIFIED = "unspecified"
    """The best one for where the jobs are."""
    SHARED_MEMORY = "shared_memory"
    CUDA_IPC = "cuda_ipc"
    NCCL = "nccl"
    FILE = "file"


class DataType(StrEnum):
    """Type of one element."""

    UNSPECIFIED = "unspecified"
    BOOL = "bool"
    UINT8 = "uint8"
    INT32 = "int32"
    INT64 = "int64"
    FLOAT16 = "float16"
    BFLOAT16 = "bfloat16"
    FLOAT32 = "float32"
    FLOAT64 = "float64"


@dataclass(frozen=True, slots=True, repr=False)
class TensorSpec(Brief):
    """Name, type and shape of a tensor of an update."""

    name: str
    """Hugging Face name, like "model.layers.0.self_attn.q_proj.weight"."""
    dtype: DataType | str
    """float32, bfloat16 or float16."""
    shape: Sequence[int]
    sha256: bytes = b""
    """Of the bytes; empty: not checked."""


@dataclass(frozen=True, slots=True, repr=False)
class SyncResult(Brief):
    """The sampler samples from the new weights."""

    weight_version: int
    size_bytes: int
    num_tensors: int
    transport: WeightTransport
    export_s: float
    """Writing them out of the trainer, in seconds."""
    pause_s: float
    """Time in which the sampler stood still, in seconds."""
    total_s: float
    """All of it, in seconds."""
    adapter: str = ""
    """Name of the adapter that was carried; empty: a whole model was."""


@dataclass(frozen=True, slots=True, repr=False)
class UpdateBegun(Brief):
    """An update has begun."""

    update_id: str
    total_bytes: int
    """Bytes that have to arrive."""


@dataclass(frozen=True, slots=True, repr=False)
class TransferProgress(Brief):
    """What has arrived so far, of all transfers of the update."""

    received_bytes: int
    complete_tensors: int


@dataclass(frozen=True, slots=True, repr=False)
class CommitResult(Brief):
    """The sampler samples from the new weights."""

    weight_version: int
    pause_s: float
    """Time in which the sampler stood still, in seconds."""


@dataclass(frozen=True, slots=True, repr=False)
class WeightNorm(Brief):
    """L2 norm of all parameters, or of an adapter's, summed in float64, tied tensors once."""

    norm: float
    weight_version: int


@dataclass(frozen=True, slots=True, repr=False)
class TensorChecksum(Brief):
    """SHA-256 of a tensor's row-major little-endian bytes."""

    name: str
    dtype: DataType
    shape: tuple[int, ...]
    sha256: bytes


@dataclass(frozen=True, slots=True, repr=False)
class WeightChecksums(Brief):
    """Checksums by tensor name."""

    checksums: dict[str, TensorChecksum]
    weight_version: int


@dataclass(frozen=True, slots=True, repr=False)
class WeightVersion(Brief):
    """Version of a job's weights, and since when it has them."""

    weight_version: int
    since: datetime | None
