"""The time that is left: set once around a batch or a task, and read by every call and tool within it."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

_end: ContextVar[float | None] = ContextVar("gradwire_agentic_deadline", default=None)


@contextmanager
def deadline_in(seconds: float | None) -> Iterator[None]:
    """Within the block at most `seconds` are left, and never more than outside of it. None adds no limit."""
    outer, own = _end.get(), None if seconds is None else time.monotonic() + seconds
    ends = [end for end in (outer, own) if end is not None]
    token = _end.set(min(ends, default=None))
    try:
        yield
    finally:
        _end.reset(token)


def remaining_s(most: float | None = None) -> float | None:
    """Seconds left, at least 0 and at most `most`; None when there is no limit."""
    end = _end.get()
    left = None if end is None else max(0.0, end - time.monotonic())
    return min((limit for limit in (left, most) if limit is not None), default=None)
