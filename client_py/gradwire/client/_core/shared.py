"""Shared-memory segments that carry a call's large tensors to a server on the same host.

Knows: segments, who has one, how many there are and when they go. Does not know: messages, nor what a server says.

A segment is a file of Linux's /dev/shm, which this user alone may read. Who has one open holds a lock on it: what a
killed process left has none, and is removed by the next server that starts or the next client that makes a segment.
"""

from __future__ import annotations

import os
import secrets
import sys
import threading
import weakref
from collections.abc import Callable
from pathlib import Path

FOLDER = Path("/dev/shm")
PREFIX = "gradwire-client-"
_STEP = 1 << 20  # capacities are multiples of it, so that calls of nearly one size share segments
_MOST_BYTES = 512 << 20
_MOST_SEGMENTS = 64
_IDLE_BYTES = 128 << 20
_IDLE_SEGMENTS = 8


class Segment:
    """`capacity` bytes. They are written and read as a file's: nothing maps them."""

    def __init__(self, name: str, fd: int, capacity: int) -> None:
        self.name = name
        self.capacity = capacity
        self._fd = fd
        # Encoding runs in a thread that outlives a cancelled call; a closed descriptor's number is soon another file's.
        self._using = threading.Lock()

    def write(self, data: memoryview) -> None:
        """Puts `data`, of single bytes, at the beginning. OSError when it is closed."""
        done = 0
        with self._using:
            while done < len(data):
                done += os.pwrite(self._fd, data[done:], done)

    def read(self, size: int) -> bytes:
        """The first `size` bytes. OSError when there are fewer, or it is closed."""
        found = bytearray(size)
        view = memoryview(found)
        done = 0
        with self._using:
            while done < size:
                count = os.preadv(self._fd, [view[done:]], done)
                if count == 0:
                    raise OSError(f"segment {self.name} was shortened by another process")
                done += count
        return bytes(found)

    def unlink(self) -> None:
        """Removes the name. Fine when it is gone."""
        try:
            (FOLDER / self.name).unlink()
        except OSError:
            pass  # by another's sweep; or the folder itself is gone

    def close(self) -> None:
        """Gives this process's hold of it back."""
        with self._using:
            self.abandon()

    def abandon(self) -> None:
        """As `close`, in a forked child: the thread that uses it is not here."""
        fd, self._fd = self._fd, -1
        os.close(fd)


class SegmentPool:
    """The segments of one client. Several threads may use it; each segment belongs to one call at a time."""

    def __init__(self, enabled: bool) -> None:
        self._off = not (enabled and sys.platform == "linux" and FOLDER.is_dir())
        self._lock = threading.Lock()
        self._idle: list[Segment] = []  # the least recently used first; the last is the warmest
        self._all: dict[str, Segment] = {}
        self._used = 0  # bytes of all, those that are being made included
        self._count = 0
        # On garbage collection nobody has borrowed any; when the interpreter ends, names are what matters.
        weakref.finalize(self, _remove, self._all, self._idle, os.getpid())
        _pools.add(self)

    @property
    def off(self) -> bool:
        """There is no shared memory to be had: not wanted, not possible, refused by the server, or closed."""
        return self._off

    def borrow(self, size: int) -> Segment | None:
        """A segment of at least `size` bytes, to `give_back` or `drop`. None: there is none, send the bytes."""
        capacity = -(-size // _STEP) * _STEP
        with self._lock:
            if self._off:
                return None
            fits = [segment for segment in self._idle if size <= segment.capacity <= 4 * capacity]
            if fits:
                best = min(reversed(fits), key=lambda segment: segment.capacity)
                self._idle.remove(best)
                return best
            while self._idle and not self._has_room(capacity):
                self._remove(self._idle.pop(0))
            if not self._has_room(capacity):
                return None
            self._used += capacity
            self._count += 1
        return self._make(capacity)  # takes its time; the room for it is kept

    def give_back(self, segment: Segment) -> None:
        """For the next call: this one is over, and the server has read what it wanted."""
        with self._lock:
            if self._off:
                self._remove(segment)
                return
            self._idle.append(segment)
            while len(self._idle) > _IDLE_SEGMENTS or sum(each.capacity for each in self._idle) > _IDLE_BYTES:
                self._remove(self._idle.pop(0))

    def drop(self, segment: Segment) -> None:
        """Never to be written again: a server may still read it."""
        with self._lock:
            self._remove(segment)

    def close(self) -> None:
        """Lends no more, and removes what is idle now and the others when they come back. Closing again is fine."""
        with self._lock:
            self._off = True
            while self._idle:
                self._remove(self._idle.pop())

    def _make(self, capacity: int) -> Segment | None:
        made = None
        try:
            made = _create(capacity)
        finally:
            with self._lock:
                if made is None:
                    self._used -= capacity
                    self._count -= 1
                else:
                    self._all[made.name] = made
                    if self._off:
                        self._remove(made)
                        made = None
        return made

    def _has_room(self, capacity: int) -> bool:
        return self._count < _MOST_SEGMENTS and self._used + capacity <= _MOST_BYTES

    def _remove(self, segment: Segment) -> None:
        if self._all.pop(segment.name, None) is not None:
            self._used -= segment.capacity
            self._count -= 1
            segment.unlink()
            segment.close()

    def _forget(self) -> None:
        """In a forked child: the segments are the parent's, whose lock must not outlive it here."""
        self._lock = threading.Lock()  # a thread that is not here may have held it
        self._off = True
        self._idle.clear()
        for segment in self._all.values():
            segment.abandon()
        self._all.clear()


def _create(capacity: int) -> Segment | None:
    """A new segment, whose memory is there already. None when it cannot be had, or little would be left."""
    import fcntl  # not everywhere; whoever comes here is on Linux

    _sweep_once()
    try:
        free = os.statvfs(FOLDER)
        if free.f_bavail * free.f_frsize < 2 * capacity:
            return None
        while True:
            name = f"{PREFIX}{secrets.token_hex(16)}"
            fd = os.open(FOLDER / name, os.O_CREAT | os.O_EXCL | os.O_RDWR | os.O_NOFOLLOW, 0o600)
            made = Segment(name, fd, capacity)
            try:
                fcntl.flock(fd, fcntl.LOCK_SH)
                if os.fstat(fd).st_nlink:  # else swept between the two lines above
                    os.posix_fallocate(fd, 0, capacity)
                    return made
                made.close()
            except BaseException:
                made.unlink()
                made.close()
                raise
    except OSError:
        return None


def _sweep() -> None:
    """Removes the segments of clients that were killed."""
    import fcntl

    try:
        with os.scandir(FOLDER) as entries:
            names = [entry.name for entry in entries if entry.name.startswith(PREFIX)]
    except OSError:
        return
    for name in names:
        try:
            fd = os.open(FOLDER / name, os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK)
        except OSError:
            continue  # another user's, or just gone
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            (FOLDER / name).unlink()
        except OSError:
            pass  # in use, or just gone
        finally:
            os.close(fd)


def _once(work: Callable[[], None]) -> Callable[[], None]:
    done: list[None] = []

    def first() -> None:
        if not done:
            done.append(None)
            work()

    return first


_sweep_once = _once(_sweep)
_pools: weakref.WeakSet[SegmentPool] = weakref.WeakSet()


def _remove(segments: dict[str, Segment], idle: list[Segment], owner: int) -> None:
    if os.getpid() != owner:
        return
    for segment in list(segments.values()):
        segment.unlink()
    while idle:
        idle.pop().close()


def _after_fork() -> None:
    for pool in _pools:
        pool._forget()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
