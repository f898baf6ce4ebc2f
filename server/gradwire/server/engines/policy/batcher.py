"""Joins requests to one network that arrive together into one run.

A request that comes alone runs at once, and on the event loop where that is fast. One that follows another closely
does not: with those that come in the same turn of the loop it makes a batch. While a run is on, others gather; and as
long as requests come in company, a run waits up to `max_wait_s` for as many as the last one had.
Knows: rows and futures. Does not know: what rows mean.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from concurrent.futures import Executor
from dataclasses import dataclass
from datetime import timedelta

import numpy as np

from gradwire.server.engines.policy.network import Arrays, OnnxNetwork, RunError
from gradwire.server.errors import FailedPrecondition, ResourceExhausted, Unavailable

_CLOSELY_S = 0.0002
"""Less than a caller takes to ask again: who follows another in less time is somebody else."""
_COMPANY_ROWS = 16
"""A request with so many rows is company enough for itself: where it runs in no time, waiting for more costs more."""


@dataclass(frozen=True, slots=True)
class BatchLimits:
    """How requests are joined."""

    max_batch_rows: int = 1024
    """Rows of one run. A request with more runs in pieces."""
    max_wait_s: float = 0.001
    """How long a run waits for company."""
    max_queued_rows: int = 2**18
    """Rows that may wait; a request beyond them is refused."""


@dataclass(slots=True)
class _Request:
    feeds: Arrays
    rows: int
    done: asyncio.Future[Arrays]


class Batcher:
    """Runs one network for many callers. Belongs to the event loop that first calls `run`."""

    def __init__(self, network: OnnxNetwork, executor: Executor, limits: BatchLimits, fast_rows: int = 0) -> None:
        """`fast_rows`: batches up to this size run on the event loop: that takes less than a switch of threads."""
        self._network = network
        self._executor = executor
        self._limits = limits
        self._fast_rows = fast_rows
        self._waiting: deque[_Request] = deque()
        self._queued_rows = 0
        self._arrived = asyncio.Event()
        self._company = 1
        self._last = 0.0  # arrival
        self._closed = False
        self._server: asyncio.Task[None] | None = None
        self.runs = 0

    async def run(self, feeds: Arrays, rows: int) -> Arrays:
        """Outputs of these rows. A caller that is cancelled leaves the batch and disturbs nobody."""
        alone = self._is_alone(rows) and rows <= min(self._fast_rows, self._limits.max_batch_rows)
        if self._closed:
            raise Unavailable(
                "POLICY_CLOSED", "the policy was removed or replaced; ask again", retry_after=timedelta(seconds=1)
            )
        if self._queued_rows and self._queued_rows + rows > self._limits.max_queued_rows:
            raise ResourceExhausted(
                "POLICY_BUSY",
                f"{self._queued_rows} rows wait for this policy already; at most {self._limits.max_queued_rows} may",
                retry_after=timedelta(seconds=0.1),
            )
        if alone:
            self.runs += 1
            return self._alone(feeds)
        request = _Request(feeds, rows, asyncio.get_running_loop().create_future())
        self._waiting.append(request)
        self._queued_rows += rows
        self._arrived.set()
        if self._server is None:
            self._server = asyncio.create_task(self._serve(), name=f"policy network {self._network.name}")
        return await request.done

    def _is_alone(self, rows: int) -> bool:
        """Nobody else came just now, nor is expected."""
        before, self._last = self._last, time.monotonic()  # the loop's clock may stand still within a turn
        if self._waiting:
            return False
        return rows >= _COMPANY_ROWS or (self._company <= 1 and self._last - before > _CLOSELY_S)

    def _alone(self, feeds: Arrays) -> Arrays:
        try:
            return self._network.run(feeds)
        except RunError as error:
            raise _visible(error) from error

    async def close(self) -> None:
        """Takes no more requests, and returns when those it has are answered."""
        self._closed = True
        self._arrived.set()
        if self._server is not None:
            await asyncio.shield(self._server)

    async def _serve(self) -> None:
        while True:
            await self._arrived.wait()
            if not self._waiting:
                if self._closed:
                    return
                self._arrived.clear()
                continue
            await self._await_company()
            batch = self._take()
            if batch:
                self._company = len(batch)
                await self._answer(batch)

    async def _await_company(self) -> None:
        await asyncio.sleep(0)  # those that are ready in this turn of the loop
        if self._company <= 1 or self._closed:
            return
        deadline = asyncio.get_running_loop().time() + self._limits.max_wait_s
        while len(self._waiting) < self._company and self._queued_rows < self._limits.max_batch_rows:
            self._arrived.clear()
            try:
                async with asyncio.timeout_at(deadline):
                    await self._arrived.wait()
            except TimeoutError:
                break
        self._arrived.set()

    def _take(self) -> list[_Request]:
        batch: list[_Request] = []
        rows = 0
        while self._waiting and (not rows or rows + self._waiting[0].rows <= self._limits.max_batch_rows):
            request = self._waiting.popleft()
            self._queued_rows -= request.rows
            if not request.done.cancelled():
                batch.append(request)
                rows += request.rows
        return batch

    async def _answer(self, batch: list[_Request]) -> None:
        try:
            results = await self._call(batch)
        except Exception as error:
            if len(batch) > 1 and isinstance(error, RunError):
                for request in batch:  # one request's input may have failed the others'
                    await self._answer([request])
                return
            for request in batch:
                if not request.done.done():
                    request.done.set_exception(_visible(error))
            return
        for request, result in zip(batch, results, strict=True):
            if not request.done.done():
                request.done.set_result(result)

    async def _call(self, batch: list[_Request]) -> list[Arrays]:
        self.runs += 1
        if sum(request.rows for request in batch) <= self._fast_rows:
            return self._compute(batch)
        return await asyncio.get_running_loop().run_in_executor(self._executor, self._compute, batch)

    def _compute(self, batch: list[_Request]) -> list[Arrays]:
        if len(batch) == 1:
            return [self._in_pieces(batch[0])]
        feeds = {name: np.concatenate([request.feeds[name] for request in batch]) for name in batch[0].feeds}
        outputs = self._network.run(feeds)
        results, start = [], 0
        for request in batch:
            results.append({name: array[start : start + request.rows] for name, array in outputs.items()})
            start += request.rows
        return results

    def _in_pieces(self, request: _Request) -> Arrays:
        size = self._limits.max_batch_rows
        if request.rows <= size:
            return self._network.run(request.feeds)
        pieces = [
            self._network.run({name: array[start : start + size] for name, array in request.feeds.items()})
            for start in range(0, request.rows, size)
        ]
        return {name: np.concatenate([piece[name] for piece in pieces]) for name in pieces[0]}


def _visible(error: Exception) -> Exception:
    return FailedPrecondition("POLICY_RUN_FAILED", str(error)) if isinstance(error, RunError) else error
