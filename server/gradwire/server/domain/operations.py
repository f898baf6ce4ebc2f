"""The operation log of a job: every mutating call is applied once, in order, one at a time.

An operation that has begun runs to its end even when its caller goes away, and its result waits
for the caller's retry. Failures are not kept: an operation that failed changed nothing, so a retry
applies it afresh.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from gradwire.server.errors import AlreadyExists, FailedPrecondition

T = TypeVar("T")
KEPT_RESULTS = 1024


@dataclass(frozen=True, slots=True)
class Operation:
    """Identity of one call: "" and None when the caller gave none."""

    request_id: str = ""
    sequence_number: int | None = None
    fingerprint: bytes = b""  # digest of method and payload: tells a retry from another call


@dataclass(slots=True)
class _Entry:
    fingerprint: bytes
    task: asyncio.Task[Any] = None  # type: ignore[assignment]  # set at once by run
    begun: bool = False
    waiters: int = 0


class OperationLog:
    """One per job."""

    def __init__(self, job_name: str) -> None:
        self._job_name = job_name
        self._lock = asyncio.Lock()
        self._entries: OrderedDict[str, _Entry] = OrderedDict()
        self._next = 1  # sequence number that is applied next
        self._advanced = asyncio.Condition()
        self._running: set[asyncio.Task[Any]] = set()

    async def run(self, operation: Operation, apply: Callable[[], Awaitable[T]], *, timeout: float | None = None) -> T:
        """Apply an operation, or return the result of the call that already did.

        `timeout` in seconds bounds the wait for earlier sequence numbers. Raises AlreadyExists for a
        request id that was used for another payload, FailedPrecondition (SEQUENCE_GAP,
        SEQUENCE_REUSED), and whatever `apply` raises.
        """
        entry = self._entries.get(operation.request_id) if operation.request_id else None
        if entry is None:
            entry = self._begin(operation, apply, timeout)
        elif entry.fingerprint != operation.fingerprint:
            raise AlreadyExists(
                "REQUEST_ID_REUSED",
                f"request id {operation.request_id!r} was used for another call of {self._job_name}; "
                "use a new id for a new operation",
            )
        entry.waiters += 1
        try:
            result: T = await asyncio.shield(entry.task)
            return result
        finally:
            entry.waiters -= 1
            if entry.waiters == 0 and not entry.begun:
                entry.task.cancel()  # nobody waits for what has not begun

    def _begin(self, operation: Operation, apply: Callable[[], Awaitable[T]], timeout: float | None) -> _Entry:
        entry = _Entry(operation.fingerprint)
        task = asyncio.get_running_loop().create_task(self._apply(operation, entry, apply, timeout))
        entry.task = task
        self._running.add(task)
        task.add_done_callback(self._finished)
        if operation.request_id:
            self._entries[operation.request_id] = entry
            task.add_done_callback(lambda done: self._keep(operation.request_id, done))
        return entry

    async def _apply(
        self, operation: Operation, entry: _Entry, apply: Callable[[], Awaitable[T]], timeout: float | None
    ) -> T:
        number = operation.sequence_number
        if number is not None:
            await self._turn(number, timeout)
        async with self._lock:
            if number is not None and number < self._next:
                raise self._reused(number)
            entry.begun = True
            result = await apply()
        if number is not None:
            async with self._advanced:
                self._next = number + 1
                self._advanced.notify_all()
        return result

    async def _turn(self, number: int, timeout: float | None) -> None:
        if number < self._next:
            raise self._reused(number)
        async with self._advanced:
            try:
                async with asyncio.timeout(timeout):
                    await self._advanced.wait_for(lambda: self._next >= number)
            except TimeoutError:
                raise FailedPrecondition(
                    "SEQUENCE_GAP",
                    f"operation {number} of {self._job_name} waited for operation {self._next}, which did not come "
                    "before the deadline; send the missing ones first",
                    subject=self._job_name,
                    metadata={"next_sequence_number": str(self._next)},
                ) from None

    def _reused(self, number: int) -> FailedPrecondition:
        return FailedPrecondition(
            "SEQUENCE_REUSED",
            f"operation {number} of {self._job_name} was applied already; the next one is {self._next}",
            subject=self._job_name,
            metadata={"next_sequence_number": str(self._next)},
        )

    def _finished(self, task: asyncio.Task[Any]) -> None:
        self._running.discard(task)
        if not task.cancelled():
            task.exception()  # seen here when the caller is gone and nobody else looks

    def _keep(self, request_id: str, task: asyncio.Task[Any]) -> None:
        if task.cancelled() or task.exception() is not None:
            self._entries.pop(request_id, None)
            return
        while len(self._entries) > KEPT_RESULTS:
            oldest = next(iter(self._entries))
            if not self._entries[oldest].task.done():
                break
            del self._entries[oldest]

    async def drain(self) -> None:
        """Wait for the operations that have begun."""
        if self._running:
            await asyncio.wait(self._running)
