"""Where checkpoints lie and what they are called: one folder a tenant, immutable names.

The trainer writes them; this module only knows names, paths and the `checkpoint.json` in each.
"""

from __future__ import annotations

import itertools
import json
import logging
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from gradwire.server.engines.training import CheckpointInfo
from gradwire.server.errors import AlreadyExists, InvalidArgument, NotFound

log = logging.getLogger(__name__)

_NAME = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9_.-]{0,99}")
METADATA_FILE = "checkpoint.json"
JOB_FILE = "job_id"
EXPORT_FOLDER = "hf"


class CheckpointStore:
    """One per server."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._being_written: set[Path] = set()

    def _folder(self, tenant: str) -> Path:
        # By bytes, so that no two tenants get one folder, and none gets ".".
        return self.root / re.sub(rb"[^A-Za-z0-9_-]", lambda m: b"%%%02x" % ord(m.group()), tenant.encode()).decode()

    def path(self, tenant: str, name: str) -> Path:
        """Folder of a checkpoint, there or not. Raises InvalidArgument for what is no plain name."""
        if not _NAME.fullmatch(name):
            raise InvalidArgument.at(
                "name", f"{name!r} is no name: letters, digits, '_', '-' and '.', not beginning with '.', at most 100"
            )
        return self._folder(tenant) / name

    def free_name(self, tenant: str, wish: str) -> str:
        """`wish`, or with a number behind it when that is taken: job numbers begin anew with each server."""
        names = itertools.chain([wish], (f"{wish}.{number}" for number in itertools.count(2)))
        return next(name for name in names if not self._taken(self.path(tenant, name)))

    def _taken(self, path: Path) -> bool:
        return path in self._being_written or path.exists()

    @contextmanager
    def new(self, tenant: str, name: str) -> Iterator[Path]:
        """Folder for a new checkpoint, to be written inside. Raises AlreadyExists for a taken name."""
        path = self.path(tenant, name)
        if self._taken(path):
            raise AlreadyExists(
                "CHECKPOINT_EXISTS", f"there is a checkpoint {name!r}; names are never reused, take another"
            )
        path.parent.mkdir(parents=True, exist_ok=True)
        self._being_written.add(path)
        try:
            yield path
        finally:
            self._being_written.discard(path)

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
            try:
                info = _info(metadata.parent, json.loads(metadata.read_text()))
            except (OSError, ValueError, KeyError, TypeError) as error:
                log.warning("checkpoint %s is left out, its metadata cannot be read: %s", metadata.parent, error)
                continue
            found.append((info, _job_of(metadata.parent)))
        return sorted(found, key=lambda entry: (entry[0].created_unix, entry[0].name), reverse=True)


def _job_of(path: Path) -> int:
    """The job that wrote a checkpoint, 0 when nobody noted it."""
    try:
        return int((path / JOB_FILE).read_text())
    except (OSError, ValueError):
        return 0


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
