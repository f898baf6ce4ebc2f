"""One sync client's door onto the background loop: what its sub-clients and streams hold.

Knows: that the connection lives as long as anything that may still use it, and no longer. A client that is
dropped unclosed must not keep its connection, and its jobs' leases, for ever.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from typing import Any, TypeVar

from gradwire.client._core.loop import LoopThread, shared_loop
from gradwire.client.aio.client import AsyncClient

T = TypeVar("T")
A = TypeVar("A")


class Portal:
    """Runs calls of `client` on the shared loop, and closes it when the last holder is gone."""

    def __init__(self, client: AsyncClient) -> None:
        self._thread = shared_loop()
        self._client = client
        self._finalizer = weakref.finalize(self, _close_soon, client, self._thread)
        self._finalizer.atexit = False

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """As `LoopThread.run`."""
        return self._thread.run(work)

    def submit(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        """As `LoopThread.submit`."""
        return self._thread.submit(work)

    def call(self, work: Callable[[], T]) -> T:
        """As `LoopThread.call`."""
        return self._thread.call(work)

    def relay(
        self, work: Callable[[Callable[[A], None]], Coroutine[Any, Any, T]], callback: Callable[[A], object]
    ) -> T:
        """As `LoopThread.relay`."""
        return self._thread.relay(work, callback)

    def close(self) -> None:
        """Closes the client. Closing again is fine."""
        if self._finalizer.detach():
            self._thread.run(self._client.close())


def _close_soon(client: AsyncClient, thread: LoopThread) -> None:
    thread.spawn(client.close())
