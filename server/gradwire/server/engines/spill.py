"""Bytes put aside on disk while an engine sleeps.

A file without a name: it is gone with the process that holds it, however that one ends. Knows: files and folders.
Does not know: tensors, or who sleeps.
"""

from __future__ import annotations

import errno
import os
import tempfile
from pathlib import Path
from types import TracebackType

from gradwire.server.errors import ResourceExhausted

SPILL_FOLDER = "GRADWIRE_SPILL_DIR"
DEFAULT_FOLDER = "/var/tmp"  # kept on disk, unlike /tmp on many systems
MEMORY_FILESYSTEMS = frozenset({"tmpfs", "ramfs", "devtmpfs", "hugetlbfs"})


class SpillFile:
    """Room for `nbytes` bytes: written once from the start, then read once from the start.

    Raises ResourceExhausted, naming folder and cause, when they do not fit or the folder lies in memory.
    """

    def __init__(self, nbytes: int) -> None:
        self.folder = spill_folder()
        self.nbytes = nbytes
        self._at = 0
        if in_memory(self.folder):
            raise ResourceExhausted(
                "SPILL_FAILED",
                f"the folder {self.folder} lies in memory, so putting {nbytes} bytes aside there would free none; "
                f"set {SPILL_FOLDER} to a folder on a disk",
            )
        try:
            self._file = tempfile.TemporaryFile(dir=self.folder, buffering=0)  # noqa: SIM115  it lives as long as the sleep
        except OSError as error:
            raise self._failed(error) from error
        try:
            self._reserve()
        except BaseException:
            self._file.close()
            raise

    def write(self, data: memoryview) -> None:
        """Append bytes."""
        try:
            while data.nbytes:
                done = os.pwrite(self._file.fileno(), data, self._at)
                self._at, data = self._at + done, data[done:]
        except OSError as error:
            raise self._failed(error) from error

    def finish(self) -> None:
        """Everything is written: on to the disk with it, and out of the page cache as far as the kernel agrees."""
        try:
            os.fdatasync(self._file.fileno())
        except OSError as error:
            raise self._failed(error) from error
        os.posix_fadvise(self._file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        self._at = 0

    def read_into(self, data: memoryview) -> None:
        """Fill a buffer with the next bytes. Raises OSError when the disk does not give them."""
        while data.nbytes:
            done = os.preadv(self._file.fileno(), [data], self._at)
            if not done:
                raise OSError(errno.EIO, f"the file of {self.nbytes} bytes put aside in {self.folder} is too short")
            self._at, data = self._at + done, data[done:]

    def close(self) -> None:
        """Give the room back. Legal twice."""
        self._file.close()

    def __enter__(self) -> SpillFile:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _reserve(self) -> None:
        """A full disk is noticed now, before anything is copied."""
        if not self.nbytes:
            return
        try:
            os.posix_fallocate(self._file.fileno(), 0, self.nbytes)
        except OSError as error:
            if error.errno not in (errno.EOPNOTSUPP, errno.EINVAL):  # a file system without it
                raise self._failed(error) from error

    def _failed(self, error: OSError) -> ResourceExhausted:
        return ResourceExhausted(
            "SPILL_FAILED",
            f"cannot put {self.nbytes} bytes aside in the folder {self.folder}: {error.strerror}; "
            f"make room there, or set {SPILL_FOLDER} to another folder",
        )


def spill_folder() -> Path:
    """Where sleeping engines put their bytes: GRADWIRE_SPILL_DIR, or a folder that survives on disk."""
    chosen = os.environ.get(SPILL_FOLDER)
    if chosen:
        return Path(chosen)
    return Path(DEFAULT_FOLDER if os.path.isdir(DEFAULT_FOLDER) else tempfile.gettempdir())  # noqa: PTH112


def in_memory(folder: Path) -> bool:
    """Whether a folder's files are memory by another name. False where that cannot be known."""
    try:
        device = folder.stat().st_dev
        mounts = Path("/proc/self/mountinfo").read_text(encoding="utf-8")
    except OSError:
        return False
    number = f"{os.major(device)}:{os.minor(device)}"
    for line in mounts.splitlines():
        place, _, kind = line.partition(" - ")
        if place.split()[2] == number and kind.split()[0] in MEMORY_FILESYSTEMS:
            return True
    return False
