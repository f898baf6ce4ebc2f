"""POSIX shared-memory segments: made by one process, mapped by others, removed by name.

`multiprocessing.shared_memory` registers what it merely attaches with a resource tracker, which
then removes a segment that others still use; and it makes sparse segments, which kill the writer
with SIGBUS when /dev/shm is full. So this is a small layer of its own over the same system calls.
It knows nothing of tensors, only bytes.
"""

from __future__ import annotations

import _posixshmem
import errno
import fcntl
import mmap
import os
import re
import secrets
import stat
from pathlib import Path
from types import TracebackType

import numpy as np
import numpy.typing as npt

from gradwire.server.errors import FailedPrecondition, InvalidArgument, ResourceExhausted

PREFIX = "gradwire-"
_NAME = re.compile(r"gradwire-[A-Za-z0-9_.-]{1,200}")
_SHM_FOLDER = Path("/dev/shm")  # where Linux shows the segments


class SharedSegment:
    """One mapped segment. `create` or `attach` make it; it is a context manager that closes.

    Whoever creates a segment unlinks it. While any process has it open, a lock on it says so,
    which lets `sweep` tell the leftovers of a killed process from segments in use.
    """

    def __init__(self, name: str, fd: int, size: int, *, writable: bool) -> None:
        self.name = name
        self.size = size
        self.writable = writable
        self._fd = fd
        access = mmap.ACCESS_WRITE if writable else mmap.ACCESS_READ
        self._map: mmap.mmap | None = mmap.mmap(fd, size, access=access)

    @classmethod
    def create(cls, size: int, *, label: str = "") -> SharedSegment:
        """A new writable segment of `size` > 0 bytes, readable by this user only.

        Its pages are reserved now. Raises ResourceExhausted when they do not fit.
        """
        if size <= 0:
            raise ValueError(f"a segment needs at least 1 byte, not {size}")
        while True:
            name = f"{PREFIX}{label + '-' if label else ''}{secrets.token_hex(8)}"
            fd = _posixshmem.shm_open("/" + _checked(name), os.O_CREAT | os.O_EXCL | os.O_RDWR, mode=0o600)
            try:
                fcntl.flock(fd, fcntl.LOCK_SH)
                if os.fstat(fd).st_nlink == 0:  # swept between the two lines above
                    os.close(fd)
                    continue
                os.posix_fallocate(fd, 0, size)
                return cls(name, fd, size, writable=True)
            except BaseException as error:
                os.close(fd)
                unlink(name)
                if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.ENOMEM):
                    raise ResourceExhausted(
                        "SHARED_MEMORY_FULL",
                        f"no room for {size} bytes of shared memory; make /dev/shm larger or free some",
                    ) from error
                raise

    @classmethod
    def attach(cls, name: str, *, writable: bool = False) -> SharedSegment:
        """Map an existing segment. Raises InvalidArgument for a bad name or one that is gone."""
        try:
            fd = _posixshmem.shm_open("/" + _checked(name), os.O_RDWR if writable else os.O_RDONLY, mode=0o600)
        except FileNotFoundError as error:
            raise InvalidArgument.at("segment", f"no shared-memory segment {name!r} on this host") from error
        try:
            fcntl.flock(fd, fcntl.LOCK_SH)
            return cls(name, fd, os.fstat(fd).st_size, writable=writable)
        except BaseException:
            os.close(fd)
            raise

    @property
    def buffer(self) -> memoryview:
        """The segment's bytes. Views of it keep the mapping alive after `close`."""
        if self._map is None:
            raise ValueError(f"segment {self.name} is closed")
        return memoryview(self._map)

    def array(self, offset: int = 0, nbytes: int | None = None) -> npt.NDArray[np.uint8]:
        """uint8 [nbytes] view at `offset`; to the segment's end when `nbytes` is None."""
        end = self.size if nbytes is None else offset + nbytes
        if not 0 <= offset <= end <= self.size:
            raise InvalidArgument.at("segment", f"bytes [{offset}, {end}) are outside its {self.size} bytes")
        return np.frombuffer(self.buffer[offset:end], dtype=np.uint8)

    def close(self) -> None:
        """Unmap. Legal twice. With views still alive, the mapping goes when the last one does."""
        if self._map is None:
            return
        mapped, self._map = self._map, None
        os.close(self._fd)
        try:
            mapped.close()
        except BufferError:
            pass  # a view holds it; the interpreter unmaps after the view

    def unlink(self) -> None:
        """Remove the name; those who have it mapped keep their memory. Legal twice."""
        unlink(self.name)

    def __enter__(self) -> SharedSegment:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def read_segment(name: str, offset: int, into: npt.NDArray[np.uint8]) -> None:
    """Fill `into`, uint8 [n], with a caller's bytes [offset, offset + n).

    They are read, not mapped: who shortens a segment while another reads its mapping ends that process (SIGBUS); a
    read just ends. Nor does this wait for a lock or for a writer, which a caller could hold up for ever.

    Raises FailedPrecondition SHARED_MEMORY_UNAVAILABLE when there is no such segment here that this user owns and
    may read, and InvalidArgument for a bad name or for bytes that it does not have.
    """
    try:
        fd = _posixshmem.shm_open("/" + _checked(name), os.O_RDONLY | os.O_NONBLOCK, mode=0o600)
    except OSError as error:
        raise _unavailable(f"cannot open segment {name!r}: {error.strerror}") from error
    try:
        found = os.fstat(fd)
        if not stat.S_ISREG(found.st_mode):
            raise _unavailable(f"{name!r} is no segment")
        # A server that runs as root could read what the caller itself must not.
        if found.st_uid != os.geteuid():
            raise _unavailable(f"segment {name!r} belongs to another user than the server's")
        end = offset + into.nbytes
        if not 0 <= offset <= end <= found.st_size:
            raise InvalidArgument.at("segment", f"bytes [{offset}, {end}) are outside its {found.st_size} bytes")
        view, done = into.data, 0
        while done < into.nbytes:
            count = os.preadv(fd, [view[done:]], offset + done)
            if count == 0:
                raise InvalidArgument.at("segment", f"{name!r} was shortened while it was read")
            done += count
    finally:
        os.close(fd)


def _unavailable(text: str) -> FailedPrecondition:
    return FailedPrecondition("SHARED_MEMORY_UNAVAILABLE", f"{text}; send the bytes in `data`")


def unlink(name: str) -> None:
    """Remove a segment's name. Legal when it is already gone."""
    try:
        _posixshmem.shm_unlink("/" + _checked(name))
    except FileNotFoundError:
        pass


def sweep() -> list[str]:
    """Remove the segments that no process has open (left by one that was killed); their names.

    Every user may put what he likes into the folder. What is no segment of ours, or not ours to remove, stays.
    """
    removed = []
    for path in _SHM_FOLDER.glob(PREFIX + "*"):
        if not _NAME.fullmatch(path.name):
            continue
        try:
            # A link may lead to a device, which is changed by being opened, or has one wait.
            fd = os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK)
        except OSError:
            continue  # another user's, or just gone
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            unlink(path.name)
            removed.append(path.name)
        except OSError:
            pass  # in use; or only its owner may remove it
        finally:
            os.close(fd)
    return removed


def _checked(name: str) -> str:
    """The name itself, when it cannot reach beyond our own segments."""
    if not _NAME.fullmatch(name):
        raise InvalidArgument.at("segment", f"{name!r} is not a segment's name ({PREFIX}...)")
    return name
