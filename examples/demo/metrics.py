"""The measurements of a run, in a file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any


class Metrics:
    """Records of a run, each appended to metrics.jsonl at once: an interrupted run keeps what it has."""

    def __init__(self, path: Path) -> None:
        self.records: list[dict[str, Any]] = []
        self._path = path
        path.write_text("", encoding="utf-8")

    def add(self, kind: str, **values: Any) -> None:
        """One line."""
        record = {"kind": kind, **values}
        self.records.append(record)
        with self._path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(record) + "\n")
