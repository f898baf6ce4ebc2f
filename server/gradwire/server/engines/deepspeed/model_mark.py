"""Which model an adapter was trained on: a mark of its tensors, the same wherever its folder lies."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import BinaryIO

SAMPLE = 1024  # bytes


def model_mark(folder: Path) -> str:
    """SHA-256 of each tensor's name, type, shape, and first, middle and last KiB, by name.

    Training changes all of a tensor, so samples tell two models apart; all bytes would take minutes of a large one.
    However many files the tensors lie in, the mark is the same.
    """
    found: dict[str, bytes] = {}
    for file in sorted(folder.glob("*.safetensors")):
        with file.open("rb") as stream:
            size = int.from_bytes(stream.read(8), "little")
            header = json.loads(stream.read(size))
            header.pop("__metadata__", None)
            for name, entry in header.items():
                begin, end = entry["data_offsets"]
                facts = json.dumps([name, entry["dtype"], entry["shape"]]).encode()
                found[name] = facts + _samples(stream, 8 + size + begin, 8 + size + end)
    digest = hashlib.sha256()
    for name in sorted(found):
        digest.update(found[name])
    return digest.hexdigest()


def _samples(stream: BinaryIO, begin: int, end: int) -> bytes:
    parts = []
    for place in (begin, (begin + end) // 2, end - SAMPLE):
        stream.seek(max(place, begin))
        parts.append(stream.read(min(SAMPLE, end - stream.tell())))
    return b"".join(parts)
