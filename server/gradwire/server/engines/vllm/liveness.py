"""Noticing an engine that hangs without dying.

A small question is put to the engine core now and then; its loop answers between two steps. One that does not
answer in time and does not compute either is stuck. A long step on few cores answers late, but computes meanwhile;
putting weights to sleep may wait for a disk. Does not know: what is done with a stuck engine.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable

import psutil  # type: ignore[import-untyped]

from gradwire.server.engines.vllm.processes import Processes

PERIOD_S = 10.0  # between an answer and the next question
ANSWER_S = 30.0  # for an engine that does nothing else
BUSY_ANSWER_S = 600.0  # for one that computes, or sleeps or wakes
BUSY_CPU_S = 1.0  # of all its processes within ANSWER_S: what it takes to count as computing


class Watchdog:
    """Asks one engine; call `look` about once a second."""

    def __init__(self, ask: Callable[[], Awaitable[object]], processes: Callable[[], Processes]) -> None:
        self._ask = ask
        self._processes = processes
        self._question: asyncio.Future[object] | None = None
        self._asked = self._answered = self._window = time.monotonic()
        self._cpu = 0.0
        self._looking = False

    async def look(self, *, patient: bool) -> str:
        """Why the engine counts as stuck; empty while it does not. `patient`: its work may wait for a disk."""
        if self._looking:
            return ""
        self._looking = True
        try:
            return await self._look(patient, time.monotonic())
        finally:
            self._looking = False

    async def _look(self, patient: bool, now: float) -> str:
        if self._question is None:
            if now - self._answered >= PERIOD_S:
                await self._begin(now)
            return ""
        if self._question.done():
            self._question.cancelled() or self._question.exception()  # a dead engine is noticed elsewhere
            self._question, self._answered = None, now
            return ""
        if now - self._asked > BUSY_ANSWER_S:
            return f"it has not answered for {BUSY_ANSWER_S:.0f} s"
        if now - self._window > ANSWER_S:
            used, self._cpu = self._cpu, await self._cpu_seconds()
            if not patient and self._cpu - used < BUSY_CPU_S:
                return f"it has not answered for {now - self._asked:.0f} s, and does not compute"
            self._window = now
        return ""

    def stop(self) -> None:
        """Ask no more."""
        if self._question is not None:
            self._question.cancel()

    async def _begin(self, now: float) -> None:
        self._cpu = await self._cpu_seconds()
        self._asked = self._window = now
        self._question = asyncio.ensure_future(self._ask())

    async def _cpu_seconds(self) -> float:
        return await asyncio.to_thread(lambda: sum(map(_cpu_seconds, self._processes())))


def _cpu_seconds(process: psutil.Process) -> float:
    with contextlib.suppress(psutil.NoSuchProcess):
        times = process.cpu_times()
        return float(times.user + times.system)
    return 0.0
