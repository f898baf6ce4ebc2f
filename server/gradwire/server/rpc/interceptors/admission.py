"""How many calls at once, and none while the server drains."""

from __future__ import annotations

import asyncio
from collections import Counter
from datetime import timedelta

from gradwire.server.errors import ResourceExhausted, Unavailable
from gradwire.server.rpc.interceptors.step import Call, Step

_RETRY = timedelta(seconds=1)


class Admission(Step):
    """Limits each service for itself, so that a flood of sampling leaves training and jobs reachable."""

    def __init__(self, max_calls_per_service: int) -> None:
        self._limit = max_calls_per_service
        self._active: Counter[str] = Counter()
        self._methods: Counter[str] = Counter()
        self._draining = False
        self._idle = asyncio.Event()
        self._idle.set()

    async def drain(self) -> None:
        """Refuse new calls from now on; returns when those under way have ended."""
        self._draining = True
        await self._idle.wait()

    @property
    def active(self) -> int:
        """Calls being served."""
        return self._active.total()

    @property
    def methods(self) -> Counter[str]:
        """Calls being served, by method."""
        return +self._methods

    async def enter(self, call: Call) -> None:
        if not _is_limited(call):
            return
        if self._draining:
            raise Unavailable("DRAINING", "the server is shutting down", retry_after=_RETRY)
        if self._active[call.service] >= self._limit:
            raise ResourceExhausted(
                "TOO_MANY_CALLS",
                f"{call.service} serves {self._limit} calls at once already",
                retry_after=_RETRY,
            )
        self._active[call.service] += 1
        self._methods[call.method] += 1
        self._idle.clear()

    def leave(self, call: Call, error: BaseException | None) -> None:
        if not _is_limited(call):
            return
        self._active[call.service] -= 1
        self._methods[call.method] -= 1
        if not self.active:
            self._idle.set()


def _is_limited(call: Call) -> bool:
    return call.method.startswith("/gradwire.")  # health must answer when the server is full
