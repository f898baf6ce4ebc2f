"""Values of moving weights from a trainer into a sampler. Names are Hugging Face's."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

SAFETENSORS_DTYPES = {"float32": "F32", "bfloat16": "BF16", "float16": "F16"}


class InFlightPolicy(StrEnum):
    """What becomes of requests that are being sampled when new weights arrive."""

    ABORT = "abort"  # end them now, finish reason abort
    WAIT = "wait"  # drain them first, on the old weights
    KEEP = "keep"  # pause them, and go on with the new weights


@dataclass(frozen=True, slots=True)
class TensorSpec:
    """One tensor in a segment: `offset` and `nbytes` locate its row-major little-endian bytes."""

    name: str
    dtype: str  # safetensors' names: "F32", "BF16", "F16"
    shape: tuple[int, ...]
    offset: int
    nbytes: int


@dataclass(frozen=True, slots=True)
class WeightManifest:
    """A whole model in one shared-memory segment.

    A tied tensor stands once, under the name of its first owner (`model.embed_tokens.weight`).
    """

    tensors: tuple[TensorSpec, ...]
    total_bytes: int


@dataclass(frozen=True, slots=True)
class AdapterSpec:
    """How the factors of a low-rank adapter work: alpha / rank * B A is added to a weight."""

    rank: int
    alpha: float


@dataclass(frozen=True, slots=True)
class TensorChecksum:
    """SHA-256 of a tensor's row-major little-endian bytes in `dtype`, under its Hugging Face name."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    sha256: str


def differing(left: Iterable[TensorChecksum], right: Iterable[TensorChecksum]) -> list[str]:
    """Names of tensors that are not the same on both sides, or are on one side only."""
    ours, theirs = {c.name: c for c in left}, {c.name: c for c in right}
    return sorted(name for name in ours.keys() | theirs.keys() if ours.get(name) != theirs.get(name))


@dataclass(frozen=True, slots=True)
class MemoryReport:
    """Bytes a set of processes holds (resident; device memory on a GPU) around an operation.

    `changed` is False when there was nothing to do: what should sleep slept, what should wake was awake.
    """

    before_bytes: int
    after_bytes: int
    changed: bool = True
