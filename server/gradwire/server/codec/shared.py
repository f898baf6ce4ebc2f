"""Tensors of a request that lie in the caller's shared memory.

Decoding gives their arrays at once and notes what is to be read into them; `read` reads it all, in a thread where
that takes long. Nothing may look at the arrays before.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from gradwire.server.engines.sharedmem import read_segment
from gradwire.server.errors import FailedPrecondition, InvalidArgument, ResourceExhausted
from gradwire.v1 import tensor_pb2

INLINE_BYTES = 1 << 21  # read on the event loop: 100 us, about what the way to a thread and back costs
REFUSED = "SHARED_MEMORY_UNAVAILABLE"


class SharedReads:
    """What one request names. `limit`: bytes that all its tensors take together, at most."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._left = limit
        self._todo: list[Callable[[], None]] = []

    def take(self, memory: tensor_pb2.SharedMemory, path: str) -> npt.NDArray[np.uint8]:
        """uint8 [memory.length], filled by `read`. Raises ResourceExhausted above the limit, before it allocates."""
        if memory.length > self._left:
            raise ResourceExhausted(
                "SHARED_MEMORY_TOO_LARGE",
                f"{path}: the tensors of one call take {self._limit} bytes of shared memory at most",
            )
        self._left -= memory.length
        raw = np.empty(memory.length, np.uint8)
        name, offset = memory.name, memory.offset
        self._todo.append(lambda: _fill(raw, name, offset, path))
        return raw

    def then(self, work: Callable[[], None]) -> None:
        """Does `work` when what was taken so far has been read."""
        self._todo.append(work)

    @property
    def pending(self) -> bool:
        """There is something to read."""
        return bool(self._todo)

    async def read(self) -> None:
        """Reads everything."""
        if self._limit - self._left > INLINE_BYTES:
            await asyncio.to_thread(self.read_now)
        else:
            self.read_now()

    def read_now(self) -> None:
        """Reads everything, and holds up whoever calls."""
        todo, self._todo = self._todo, []
        for work in todo:
            work()


class SharedMemoryPolicy:
    """Who may name shared memory, and how much of it."""

    def __init__(self, enabled: bool, limit: int) -> None:
        self._enabled = enabled
        self._limit = limit

    def reads(self, *, same_host: bool) -> SharedReads | None:
        """For a request of a caller that is on this host, or is not; None when it may name none."""
        return SharedReads(self._limit) if self._enabled and same_host else None


def refuse(path: str) -> FailedPrecondition:
    """The error for a caller that may name none."""
    return FailedPrecondition(
        REFUSED, f"{path}: this server takes no tensors in shared memory from this caller; send the bytes in `data`"
    )


def _fill(raw: npt.NDArray[np.uint8], name: str, offset: int, path: str) -> None:
    try:
        read_segment(name, offset, raw)
    except InvalidArgument as error:
        raise InvalidArgument.at(path, error.violations[0].description) from error
    except FailedPrecondition as error:
        raise FailedPrecondition(error.reason, f"{path}: {error.message}") from error
