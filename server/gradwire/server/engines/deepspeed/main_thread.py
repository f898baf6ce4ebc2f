"""The one thread that runs a worker's operations: CUDA and DeepSpeed want one thread."""

from __future__ import annotations

import queue
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any


class MainThread:
    """Runs what other threads submit, one after the other, on the thread that calls `run`."""

    def __init__(self) -> None:
        self._queue: queue.Queue[tuple[str, Callable[[], Any], Future[Any]] | None] = queue.Queue()
        self.busy_with = ""

    def submit(self, name: str, action: Callable[[], Any]) -> Future[Any]:
        """The action's future; the action runs even if nobody waits for it."""
        future: Future[Any] = Future()
        self._queue.put((name, action, future))
        return future

    def stop(self) -> None:
        """Make `run` return after what was submitted before."""
        self._queue.put(None)

    def run(self) -> None:
        """Until `stop`."""
        while (entry := self._queue.get()) is not None:
            self.busy_with, action, future = entry
            try:
                future.set_result(action())
            except BaseException as error:
                future.set_exception(error)
            self.busy_with = ""
