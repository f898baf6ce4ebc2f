"""Where checkpoints lie and what they are called: one folder a tenant, immutable names.

The trainer writes them; this module only knows names, paths and the `checkpoint.json` in each.
"""

from __future__ import annotations

import asyncio
import hashlib
import itertools
import json
import logging
import os
import re
import shutil
from collections import Counter
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

from gradwire.server.domain.cursors import Cursor
from gradwire.server.domain.deleting import clear_deleted, remove, set_aside
from gradwire.server.domain.jobs import Job, JobState
from gradwire.server.engines.training import EXPORT_FOLDER, CheckpointInfo
from gradwire.server.errors import AlreadyExists, FailedPrecondition, InvalidArgument, NotFound, ResourceExhausted

log = logging.getLogger(__name__)

_UNREADABLE = (OSError, ValueError, KeyError, TypeError)
_NAME = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9_.-]{0,99}")
METADATA_FILE = "checkpoint.json"
JOB_FILE = "job_id"
UNFINISHED = ".partial-"  # what a trainer writes is called .NAME.partial-PID until it is whole
_MAX = 2**62  # of the numbers in it: room to count on from there
_MAX_UNIX = 2**37  # seconds; the calendar of a timestamp ends in the year 9999


class CheckpointStore:
    """One per server."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._being_written: set[Path] = set()
        self._held: Counter[tuple[str, str]] = Counter()  # by tenant and name: what must not be deleted now
        self._written: dict[str, tuple[int, int]] = {}  # job and weight version of model folders of this server's run

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

    @asynccontextmanager
    async def new(self, tenant: str, name: str) -> AsyncIterator[Path]:
        """Folder for a new checkpoint, to be written inside. Raises AlreadyExists for a taken name."""
        path = self.path(tenant, name)
        if self._taken(path):
            raise AlreadyExists(
                "CHECKPOINT_EXISTS", f"there is a checkpoint {name!r}; names are never reused, take another"
            )
        self._being_written.add(path)
        try:
            await asyncio.to_thread(_make_parent, path)
            await asyncio.to_thread(clear_deleted, path.parent)  # a crash may have left some: make room
            yield path
        finally:
            await asyncio.to_thread(_remove_unfinished, path)
            self._being_written.discard(path)

    @contextmanager
    def held(self, tenant: str, name: str) -> Iterator[None]:
        """While it is read, a checkpoint (there or not) is not deleted."""
        self._held[tenant, name] += 1
        try:
            yield
        finally:
            self._held[tenant, name] -= 1
            if not self._held[tenant, name]:
                del self._held[tenant, name]

    async def delete(self, tenant: str, name: str, jobs: Iterable[Job[Any]]) -> int | None:
        """Delete a checkpoint, damaged or not; bytes freed, None where there was none.

        Raises FailedPrecondition while it is loaded or saved, or one of `jobs` has it as its model: a sampler reads
        that folder again when it wakes, a trainer copies its tokenizer into what it saves.
        """
        try:
            # Here and not in a thread: a load that begins meanwhile must find all of it or nothing.
            aside = self._set_aside(tenant, name, jobs)
            return None if aside is None else await asyncio.to_thread(remove, aside)
        except OSError as error:
            why = f"cannot delete the checkpoint {name}: {error}"
            raise ResourceExhausted("CHECKPOINT_NOT_DELETED", why) from error

    def _set_aside(self, tenant: str, name: str, jobs: Iterable[Job[Any]]) -> Path | None:
        path = self.path(tenant, name)
        if path in self._being_written:
            raise _in_use(name, "being saved; delete it when the save has ended")
        if self._held[tenant, name] > 0:
            raise _in_use(name, "being loaded; delete it when that has ended")
        if not os.path.lexists(path):
            return None
        real = path.resolve()
        for job in jobs:
            if job.state is not JobState.FAILED and Path(job.config.model_path).resolve().is_relative_to(real):
                whose = job.name if job.tenant in (None, tenant) else "another tenant's job"
                raise _in_use(name, f"the model of {whose}; destroy that job first")
        return set_aside(path)

    def existing(self, tenant: str, name: str) -> Path:
        """Folder of a finished checkpoint."""
        path = self.path(tenant, name)
        if not (path / METADATA_FILE).is_file():
            names = ", ".join(info.name for info, _ in self.list(tenant)[:20]) or "none"
            raise NotFound("checkpoint", name, f"name: no checkpoint {name!r}; yours are: {names}")
        return path

    def read(self, tenant: str, name: str) -> tuple[CheckpointInfo, int]:
        """A finished checkpoint, and the job that wrote it. Raises NotFound, or FailedPrecondition when damaged."""
        path = self.existing(tenant, name)
        try:
            return _info(path, _metadata(path)), _job_of(path)
        except _UNREADABLE as error:
            raise _damaged(name, f"{METADATA_FILE} cannot be read ({error})") from error

    def model(self, tenant: str, name: str) -> Path:
        """Folder of a checkpoint's model, whose files are those that were written. Blocks: it reads them all."""
        path = self.existing(tenant, name)
        try:
            facts = _metadata(path)
            exported = _is_exported(facts)
            files = {str(file): str(entry["sha256"]) for file, entry in facts["files"].items()}
        except (*_UNREADABLE, AttributeError) as error:
            raise _damaged(name, f"{METADATA_FILE} cannot be read ({error})") from error
        if not exported:
            raise FailedPrecondition(
                "CHECKPOINT_IS_AN_ADAPTER",
                f"the checkpoint {name} holds an adapter and no model: save it with merge to use it as one, or load it "
                "into a training job with the same lora",
            )
        for file, sha256 in files.items():
            if file.startswith(f"{EXPORT_FOLDER}/") and _sha256(path / file) != sha256:
                raise _damaged(name, f"{file} is not what was written")
        return path / EXPORT_FOLDER

    def origin(self, folder: str) -> tuple[int, int] | None:
        """The job that wrote a checkpoint's model folder, and its weight version; None of another server's, too, for
        job numbers begin anew with each."""
        return self._written.get(folder)

    def note_job(self, path: Path, job_id: int, version: int) -> None:
        """Remember which job wrote a checkpoint: beside it, since the trainer does not know."""
        self._written[str(path / EXPORT_FOLDER)] = job_id, version
        try:
            (path / JOB_FILE).write_text(str(job_id))
        except OSError as error:  # the checkpoint is whole without
            log.warning("%s: which job wrote it could not be noted: %s", path, error)

    def list(self, tenant: str) -> list[tuple[CheckpointInfo, int]]:
        """Finished checkpoints with the job that wrote each, newest first."""
        folder = self._folder(tenant)
        found = []
        for metadata in folder.glob(f"*/{METADATA_FILE}"):
            if not _NAME.fullmatch(metadata.parent.name):
                continue  # being written
            try:
                info = _info(metadata.parent, _metadata(metadata.parent))
            except _UNREADABLE as error:
                log.warning("checkpoint %s is left out, its metadata cannot be read: %s", metadata.parent, error)
                continue
            found.append((info, _job_of(metadata.parent)))
        return sorted(found, key=lambda entry: _place(entry[0]), reverse=True)

    def page(
        self, tenant: str, job_id: int, size: int, after: Cursor | None
    ) -> tuple[Sequence[tuple[CheckpointInfo, int]], Cursor | None]:
        """A page of those of a job (0: of all), and where the next one begins. Blocks: it reads each one's facts."""
        wanted = [entry for entry in self.list(tenant) if job_id in (0, entry[1])]
        if after is not None:
            wanted = [entry for entry in wanted if _place(entry[0]) < (after.time, str(after.tie))]
        page = wanted[:size]
        return page, Cursor(*_place(page[-1][0])) if len(wanted) > size else None


def _make_parent(path: Path) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ResourceExhausted("CHECKPOINT_NOT_WRITTEN", f"cannot write the checkpoint {path}: {error}") from error


def _remove_unfinished(path: Path) -> None:
    """What a trainer that was killed left: gigabytes, whose removal takes its time."""
    for unfinished in path.parent.glob(f".{path.name}{UNFINISHED}*"):
        shutil.rmtree(unfinished, ignore_errors=True)


def _place(info: CheckpointInfo) -> tuple[int, str]:
    """In the order of a listing: Unix microseconds, then the name."""
    return int(info.created_unix * 1e6), info.name


def _job_of(path: Path) -> int:
    """The job that wrote a checkpoint, 0 when nobody noted it."""
    try:
        return _number((path / JOB_FILE).read_text())
    except (OSError, ValueError):
        return 0


def _info(path: Path, facts: dict[str, Any]) -> CheckpointInfo:
    return CheckpointInfo(
        name=path.name,
        path=str(path),
        weight_version=_number(facts["weight_version"]),
        step=_number(facts["step"]),
        nbytes=_number(facts["nbytes"]),
        created_unix=_time(facts["created_unix"]),
        exported=_is_exported(facts),
        adapter=_is_adapter(facts),
    )


def _is_adapter(facts: dict[str, Any]) -> bool:
    return facts.get("lora") is not None


def _is_exported(facts: dict[str, Any]) -> bool:
    return not _is_adapter(facts) or any(str(file).startswith(f"{EXPORT_FOLDER}/") for file in facts["files"])


def _metadata(path: Path) -> dict[str, Any]:
    facts = json.loads((path / METADATA_FILE).read_text())
    if not isinstance(facts, dict):
        raise ValueError("it holds no object")
    return facts


def _number(value: object) -> int:
    number = int(str(value))
    if not 0 <= number <= _MAX:
        raise ValueError(f"{number} is out of range")
    return number


def _time(value: object) -> float:
    seconds = float(str(value))
    if not 0 <= seconds <= _MAX_UNIX:
        raise ValueError(f"{seconds} is out of range")
    return seconds


def _sha256(path: Path) -> str:
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError:
        return ""


def _in_use(name: str, how: str) -> FailedPrecondition:
    return FailedPrecondition("CHECKPOINT_IN_USE", f"the checkpoint {name} is {how}")


def _damaged(name: str, what: str) -> FailedPrecondition:
    return FailedPrecondition("CHECKPOINT_DAMAGED", f"the checkpoint {name} is damaged: {what}")
