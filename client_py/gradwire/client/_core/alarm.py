"""A deadline for what cannot be given one, such as reading from a blocking stream.

Setting it again and again costs next to nothing: its thread wakes up at the earliest deadline that it has seen, and
looks whether that is still the one.
"""

from __future__ import annotations

import threading
import time
import weakref
from collections.abc import Callable

_QUIET_S = 10.0
"""Without a deadline for so long, the thread ends; the next deadline starts another."""


class Alarm:
    """Calls `ring`, in a thread of its own, when a deadline passes that has not been cleared."""

    def __init__(self, ring: Callable[[], None]) -> None:
        """`ring` is a bound method; the alarm does not keep its object alive."""
        self._ring = weakref.WeakMethod(ring)
        self._changed = threading.Condition()
        self._due: float | None = None
        self._wakes: float | None = None  # None: there is no thread

    def set(self, seconds: float) -> None:
        """Ring in so many seconds, and not when it was to ring before."""
        with self._changed:
            self._due = time.monotonic() + seconds
            if self._wakes is None:
                threading.Thread(target=self._watch, name="gradwire deadline", daemon=True).start()
                self._wakes = self._due  # only now: there may be no thread to be had
            elif self._due < self._wakes:
                self._changed.notify()

    def clear(self) -> None:
        """Do not ring. When this returns, it has rung or it will not."""
        with self._changed:
            self._due = None

    def _watch(self) -> None:
        with self._changed:
            while True:
                now = time.monotonic()
                if self._due is not None and self._due <= now:
                    self._due = None
                    ring = self._ring()
                    if ring is not None:
                        ring()
                wait = _QUIET_S if self._due is None else self._due - now
                self._wakes = now + wait
                if not self._changed.wait(wait) and self._due is None:
                    self._wakes = None
                    return
