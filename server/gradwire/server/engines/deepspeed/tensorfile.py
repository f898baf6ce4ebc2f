"""safetensors files written one tensor at a time, hashed on the way.

The safetensors package wants all tensors in memory at once; a whole model with its optimizer state is
three times what a rank of a partitioned job can hold. The format is a length, a JSON header and raw bytes
(the "Format" page of the safetensors documentation). Reading is the package's.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import IO

import torch
from torch import Tensor

from gradwire.server.engines.host_memory import bytes_of

DTYPE_NAMES = {torch.float32: "F32", torch.bfloat16: "BF16", torch.float16: "F16", torch.uint8: "U8"}
DTYPES = {name: dtype for dtype, name in DTYPE_NAMES.items()}


@dataclass(frozen=True, slots=True)
class Entry:
    """One tensor of a file to be."""

    name: str
    dtype: str  # safetensors' name
    shape: tuple[int, ...]

    @property
    def nbytes(self) -> int:
        """Bytes of its data."""
        return torch.Size(self.shape).numel() * DTYPES[self.dtype].itemsize


class TensorFileWriter:
    """Write the tensors of `entries`, in their order, with `add`; `sha256` is valid after the block."""

    def __init__(self, path: Path, entries: Iterable[Entry]) -> None:
        self._path = path
        self._entries = list(entries)
        self._hash = hashlib.sha256()
        self._file: IO[bytes] | None = None
        self._next = 0

    @property
    def sha256(self) -> str:
        """Of the whole file so far, hexadecimal."""
        return self._hash.hexdigest()

    def add(self, name: str, tensor: Tensor) -> None:
        """Append the next tensor's bytes in its entry's dtype."""
        entry = self._entries[self._next]
        if entry.name != name or entry.shape != tuple(tensor.shape):
            raise ValueError(f"{name} {tuple(tensor.shape)} is not the next entry, {entry}")
        self._write(tensor_bytes(tensor, entry.dtype))
        self._next += 1

    def __enter__(self) -> TensorFileWriter:
        self._file = self._path.open("xb")
        header: dict[str, object] = {"__metadata__": {"format": "pt"}}
        offset = 0
        for entry in self._entries:
            header[entry.name] = {
                "dtype": entry.dtype,
                "shape": list(entry.shape),
                "data_offsets": [offset, offset + entry.nbytes],
            }
            offset += entry.nbytes
        text = json.dumps(header, separators=(",", ":")).encode()
        text += b" " * (-len(text) % 8)
        self._write(len(text).to_bytes(8, "little") + text)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._file is not None
        with self._file as file:
            if error is None:
                if self._next != len(self._entries):
                    raise ValueError(f"{self._next} of {len(self._entries)} tensors were written to {self._path}")
                file.flush()
                os.fsync(file.fileno())

    def _write(self, data: bytes | memoryview) -> None:
        assert self._file is not None
        self._file.write(data)
        self._hash.update(data)


def tensor_bytes(tensor: Tensor, dtype: str) -> memoryview:
    """Row-major little-endian bytes of a tensor in `dtype`, rounded to nearest even."""
    dense = tensor.detach().to(device="cpu", dtype=DTYPES[dtype]).contiguous()
    return bytes_of(dense)
