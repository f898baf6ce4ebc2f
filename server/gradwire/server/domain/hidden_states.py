"""Hidden states of recurrent policies that the server keeps between a caller's calls.

Bounded and short-lived: whoever needs more keeps the state itself. A state belongs to one user and one version of a
deployment. Calls of one session run one after the other, each on what the one before left.
"""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TypeAlias

from gradwire.server.engines.acting import Value, num_bytes

Key: TypeAlias = tuple[str, str, str, str]
"""Instance of the deployment, tenant, user, session."""
LIFETIME_S = 3600.0
MAX_BYTES = 256 << 20
MAX_STATES = 65_536


@dataclass(slots=True)
class Kept:
    """A session's state; None: the initial one. Set `value` to what the next call begins with."""

    value: Value = None
    used_at: float = 0.0
    nbytes: int = 0
    callers: int = 0
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)


class HiddenStates:
    """All that are kept; the least recently used goes first."""

    def __init__(
        self,
        *,
        lifetime_s: float = LIFETIME_S,
        max_bytes: int = MAX_BYTES,
        max_states: int = MAX_STATES,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._lifetime_s = lifetime_s
        self._max_bytes = max_bytes
        self._max_states = max_states
        self._clock = clock
        self._kept: OrderedDict[Key, Kept] = OrderedDict()
        self._nbytes = 0

    def __len__(self) -> int:
        return len(self._kept)

    @asynccontextmanager
    async def state(self, key: Key) -> AsyncIterator[Kept]:
        """The state of a session, nobody else's until the end; left by an error it stays as it was."""
        self._expire()
        kept = self._kept.setdefault(key, Kept())
        kept.callers += 1
        try:
            async with kept.lock:
                yield kept
        finally:
            kept.callers -= 1
            self._settle(key, kept)

    def forget(self, instance_id: str) -> None:
        """A version of a deployment is gone."""
        for key in [key for key in self._kept if key[0] == instance_id]:
            self._drop(key)

    def _settle(self, key: Key, kept: Kept) -> None:
        if self._kept.get(key) is not kept:
            return  # dropped meanwhile
        if kept.value is None and not kept.callers:
            self._drop(key)  # nothing to keep: the call failed, or the policy has no state
            return
        size = num_bytes(kept.value)
        self._nbytes += size - kept.nbytes
        kept.nbytes, kept.used_at = size, self._clock()
        self._kept.move_to_end(key)
        while len(self._kept) > self._max_states or self._nbytes > self._max_bytes:
            self._drop(next(iter(self._kept)))

    def _expire(self) -> None:
        oldest = self._clock() - self._lifetime_s
        while self._kept:
            key, kept = next(iter(self._kept.items()))
            if kept.callers or kept.used_at > oldest:
                return
            self._drop(key)

    def _drop(self, key: Key) -> None:
        self._nbytes -= self._kept.pop(key).nbytes
