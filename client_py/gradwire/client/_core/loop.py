"""The one background event loop that all sync clients of a process share.

Knows: running a coroutine there and waiting for it, from any thread, inside Jupyter too, and stopping it on
Ctrl-C. Does not know: what runs. It is one because grpc.aio works on one loop of a process at a time.
"""

from __future__ import annotations

import asyncio
import os
import queue
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import CancelledError, Future
from typing import Any, TypeVar

from gradwire.client.errors import CallCancelledError

T = TypeVar("T")
A = TypeVar("A")


class LoopThread:
    """An event loop in a daemon thread of its own."""

    def __init__(self) -> None:
        self._pid = os.getpid()
        self._loop = asyncio.new_event_loop()
        started = threading.Event()
        self._loop.call_soon(started.set)
        self._thread = threading.Thread(target=self._loop.run_forever, name="gradwire-client", daemon=True)
        self._thread.start()
        started.wait()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Runs `work` on the loop and waits. Whatever interrupts the wait (Ctrl-C) cancels it."""
        try:
            self._check()
        except RuntimeError:
            work.close()
            raise
        return self._wait(asyncio.run_coroutine_threadsafe(work, self._loop))

    def submit(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        """Begins `work` on the loop, from any thread or loop; cancelling the future cancels it."""
        try:
            self._check_process()
        except RuntimeError:
            work.close()
            raise
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    def call(self, work: Callable[[], T]) -> T:
        """Runs a plain function on the loop and waits: for what must begin there."""

        async def calling() -> T:
            return work()

        return self.run(calling())

    def relay(
        self, work: Callable[[Callable[[A], None]], Coroutine[Any, Any, T]], callback: Callable[[A], object]
    ) -> T:
        """Runs `work(report)` on the loop; what it reports reaches `callback` in the thread that waits here.

        So a callback may take its time, and may itself call a sync client.
        """
        self._check()
        events: queue.SimpleQueue[tuple[A] | None] = queue.SimpleQueue()
        future = asyncio.run_coroutine_threadsafe(work(lambda item: events.put((item,))), self._loop)
        future.add_done_callback(lambda _: events.put(None))
        try:
            while (event := events.get()) is not None:
                callback(*event)
        except BaseException:
            future.cancel()
            raise
        return self._wait(future)

    def spawn(self, work: Coroutine[Any, Any, object]) -> None:
        """Runs `work` on the loop and does not wait: for finalizers, which may run in any thread."""
        if os.getpid() == self._pid and not self._loop.is_closed():
            asyncio.run_coroutine_threadsafe(work, self._loop)
        else:
            work.close()

    @staticmethod
    def _wait(future: Future[T]) -> T:
        try:
            return future.result()
        except CancelledError:
            raise CallCancelledError("the client was closed, or the call cancelled, while it was under way") from None
        except BaseException:
            future.cancel()
            raise

    def _check_process(self) -> None:
        if os.getpid() != self._pid:
            raise RuntimeError(
                "this process was forked from one that used a gradwire client, and gRPC does not survive a fork; "
                "start processes with the spawn method (multiprocessing.get_context('spawn'))"
            )

    def _check(self) -> None:
        self._check_process()
        if threading.current_thread() is self._thread:
            raise RuntimeError(
                "a sync client was called on the client's own event loop, which would wait for itself; "
                "use AsyncClient in coroutines and callbacks"
            )


_lock = threading.Lock()
_shared: LoopThread | None = None


def shared_loop() -> LoopThread:
    """The process's loop thread, started by the first caller."""
    global _shared
    with _lock:
        if _shared is None:
            _shared = LoopThread()
        return _shared
