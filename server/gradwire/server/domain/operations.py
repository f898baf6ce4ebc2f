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
KEPT_OPERATIONS = 1024
KEPT_RESULT_BYTES = 64 << 20
SMALL_RESULT_BYTES = 4096  # results up to this size are not counted: dropping them would free nothing


@dataclass(frozen=True, slots=True)
class Operation:
    """Identity of one call: "" and None when the caller gave none."""

    request_id: str = ""
    sequence_number: int | None = None
    fingerprint: bytes = b""  # digest of method and payload: tells a retry from another call


@dataclass(eq=False, slots=True)
class _Entry:
    """`task` is None once the result was dropped to save memory: that it was applied stays known."""

    fingerprint: bytes
    task: asyncio.Task[Any] | None = None
    begun: bool = False
    waiters: int = 0
    nbytes: int = 0  # of the result, when it is not small


def _weightless(result: object) -> int:
    return 0


class OperationLog:
    """One per job. Remembers the last operations, and of their results what fits in `max_result_bytes`."""

    def __init__(
        self, job_name: str, *, max_operations: int = KEPT_OPERATIONS, max_result_bytes: int = KEPT_RESULT_BYTES
    ) -> None:
        self._job_name = job_name
        self._max_operations = max_operations
        self._max_result_bytes = max_result_bytes
        self._lock = asyncio.Lock()
        self._entries: OrderedDict[str, _Entry] = OrderedDict()
        self._next = 1  # sequence number that is applied next
        self._advanced = asyncio.Condition()
        self._running: set[asyncio.Task[Any]] = set()
        self._closed = False

    @property
    def result_bytes(self) -> int:
        """Bytes of the results that are kept, small ones not counted."""
        return sum(entry.nbytes for entry in self._entries.values())

    async def run(
        self,
        operation: Operation,
        apply: Callable[[], Awaitable[T]],
        *,
        timeout: float | None = None,
        nbytes: Callable[[T], int] = _weightless,
    ) -> T:
        """Apply an operation, or return the result of the call that already did.

        `timeout` in seconds bounds the wait for earlier sequence numbers; `nbytes` is the size of a
        result. Raises AlreadyExists for a request id that was used for another payload,
        FailedPrecondition (SEQUENCE_GAP, SEQUENCE_REUSED, RESULT_DROPPED, JOB_DESTROYED), and whatever
        `apply` raises.
        """
        entry = self._entries.get(operation.request_id) if operation.request_id else None
        if entry is None:
            entry = self._begin(operation, apply, timeout, nbytes)
        elif entry.fingerprint != operation.fingerprint:
            raise AlreadyExists(
                "REQUEST_ID_REUSED",
                f"request id {operation.request_id!r} was used for another call of {self._job_name}; "
                "use a new id for a new operation",
            )
        task = entry.task
        if task is None:
            raise self._precondition(
                "RESULT_DROPPED",
                f"operation {operation.request_id!r} of {self._job_name} was applied, and is not applied again, but "
                "its result is too old and too large to be kept",
            )
        entry.waiters += 1
        try:
            result: T = await asyncio.shield(task)
            return result
        finally:
            entry.waiters -= 1
            if entry.waiters == 0 and not entry.begun:
                # Nobody waits for what has not begun. A retry that comes now begins anew.
                self._forget(operation.request_id, entry)
                task.cancel()

    def _begin(
        self,
        operation: Operation,
        apply: Callable[[], Awaitable[T]],
        timeout: float | None,
        nbytes: Callable[[T], int],
    ) -> _Entry:
        entry = _Entry(operation.fingerprint)
        task = asyncio.get_running_loop().create_task(self._apply(operation, entry, apply, timeout))
        entry.task = task
        self._running.add(task)
        task.add_done_callback(self._finished)
        if operation.request_id:
            self._entries[operation.request_id] = entry
            task.add_done_callback(lambda done: self._keep(operation.request_id, entry, done, nbytes))
        return entry

    async def _apply(
        self, operation: Operation, entry: _Entry, apply: Callable[[], Awaitable[T]], timeout: float | None
    ) -> T:
        number = operation.sequence_number
        if number is not None:
            await self._turn(number, timeout)
        async with self._lock:
            self._require_open()
            if number is not None and number < self._next:
                raise self._reused(number)
            entry.begun = True
            result = await apply()
            if number is not None:
                self._next = number + 1  # before the lock is free: nobody else may take this number
        async with self._advanced:
            self._advanced.notify_all()
        return result

    async def _turn(self, number: int, timeout: float | None) -> None:
        if number < self._next:
            raise self._reused(number)
        async with self._advanced:
            try:
                async with asyncio.timeout(timeout):
                    await self._advanced.wait_for(lambda: self._next >= number or self._closed)
            except TimeoutError:
                raise self._precondition(
                    "SEQUENCE_GAP",
                    f"operation {number} of {self._job_name} waited for operation {self._next}, which did not come "
                    "before the deadline; send the missing ones first",
                ) from None

    def _require_open(self) -> None:
        if self._closed:
            raise self._precondition("JOB_DESTROYED", f"{self._job_name} was destroyed before this operation began")

    def _reused(self, number: int) -> FailedPrecondition:
        return self._precondition(
            "SEQUENCE_REUSED",
            f"operation {number} of {self._job_name} was applied already; the next one is {self._next}",
        )

    def _precondition(self, reason: str, message: str) -> FailedPrecondition:
        return FailedPrecondition(
            reason, message, subject=self._job_name, metadata={"next_sequence_number": str(self._next)}
        )

    # Keeping results

    def _finished(self, task: asyncio.Task[Any]) -> None:
        self._running.discard(task)
        if not task.cancelled():
            task.exception()  # seen here when the caller is gone and nobody else looks

    def _keep(self, request_id: str, entry: _Entry, task: asyncio.Task[T], nbytes: Callable[[T], int]) -> None:
        if task.cancelled() or task.exception() is not None:
            self._forget(request_id, entry)
            return
        size = nbytes(task.result())
        entry.nbytes = size if size > SMALL_RESULT_BYTES else 0
        self._evict(entry)

    def _forget(self, request_id: str, entry: _Entry) -> None:
        if self._entries.get(request_id) is entry:
            del self._entries[request_id]

    def _evict(self, newest: _Entry) -> None:
        """Forget the oldest operations beyond the limit, and drop the oldest results that take too much room.

        The newest result is kept whatever its size: it is the one that a retry will most likely ask for.
        """
        excess = len(self._entries) - self._max_operations
        if excess > 0:
            done = [key for key, entry in self._entries.items() if entry.task is None or entry.task.done()]
            for key in done[:excess]:
                del self._entries[key]
        room = self.result_bytes
        for entry in self._entries.values():
            if room <= self._max_result_bytes:
                break
            if entry.nbytes and entry is not newest:
                room -= entry.nbytes
                entry.nbytes, entry.task = 0, None

    async def close(self) -> None:
        """Let the operation that has begun finish, refuse all others, and let go of the results."""
        self._closed = True
        async with self._advanced:
            self._advanced.notify_all()
        while self._running:
            await asyncio.wait(self._running)
        self._entries.clear()
