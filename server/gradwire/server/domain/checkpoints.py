"""Where checkpoints lie and what they are called: one folder a tenant, immutable names.

The trainer writes them; this module only knows names, paths and the `checkpoint.json` in each.
"""

from __future__ import annotations

import json
import re
from pathlib import Path

from gradwire.server.engines.training import CheckpointInfo
from gradwire.server.errors import AlreadyExists, InvalidArgument, NotFound

_NAME = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9_.-]{0,99}")
METADATA_FILE = "checkpoint.json"
JOB_FILE = "job_id"
EXPORT_FOLDER = "hf"


class CheckpointStore:
    """One per server."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def _folder(self, tenant: str) -> Path:
        return self.root / re.sub(r"[^A-Za-z0-9_-]", lambda m: f"%{ord(m.group()):02x}", tenant)

    def path(self, tenant: str, name: str) -> Path:
        """Folder of a checkpoint, there or not. Raises InvalidArgument for what is no plain name."""
        if not _NAME.fullmatch(name):
            raise InvalidArgument.at(
                "name", f"{name!r} is no name: letters, digits, '_', '-' and '.', not beginning with '.', at most 100"
            )
        return self._folder(tenant) / name

    def new(self, tenant: str, name: str) -> Path:
        """Folder for a new checkpoint. Raises AlreadyExists for a taken name."""
        path = self.path(tenant, name)
        if path.exists():
            raise AlreadyExists(
                "CHECKPOINT_EXISTS", f"there is a checkpoint {name!r}; names are never reused, take another"
            )
        path.parent.mkdir(parents=True, exist_ok=True)
        return path

    def existing(self, tenant: str, name: str) -> Path:
        """Folder of a finished checkpoint."""
        path = self.path(tenant, name)
        if not (path / METADATA_FILE).is_file():
            names = ", ".join(info.name for info, _ in self.list(tenant)[:20]) or "none"
            raise NotFound("checkpoint", name, f"name: no checkpoint {name!r}; yours are: {names}")
        return path

    def note_job(self, path: Path, job_id: int) -> None:
        """Remember which job wrote a checkpoint: beside it, since the trainer does not know."""
        (path / JOB_FILE).write_text(str(job_id))

    def list(self, tenant: str) -> list[tuple[CheckpointInfo, int]]:
        """Finished checkpoints with the job that wrote each, newest first."""
        folder = self._folder(tenant)
        found = []
        for metadata in folder.glob(f"*/{METADATA_FILE}"):
            if not _NAME.fullmatch(metadata.parent.name):
                continue  # being written
            facts = json.loads(metadata.read_text())
            note = metadata.parent / JOB_FILE
            found.append((_info(metadata.parent, facts), int(note.read_text()) if note.is_file() else 0))
        return sorted(found, key=lambda entry: entry[0].created_unix, reverse=True)


def _info(path: Path, facts: dict[str, object]) -> CheckpointInfo:
    return CheckpointInfo(
        name=path.name,
        path=str(path),
        export_path=str(path / EXPORT_FOLDER),
        weight_version=int(str(facts["weight_version"])),
        step=int(str(facts["step"])),
        nbytes=int(str(facts["nbytes"])),
        created_unix=float(str(facts["created_unix"])),
    )
