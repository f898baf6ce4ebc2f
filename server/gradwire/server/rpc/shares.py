"""What each tenant may hold of a service's places with streams that last as long as their client likes.

Such a stream holds its place also while nothing happens on it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta

from gradwire.server.errors import ResourceExhausted

_PART = 4
_RETRY = timedelta(seconds=1)


class StreamShares:
    """A quarter of the places for each tenant: users cannot be told apart where a partner's token names them."""

    def __init__(self, max_calls_per_service: int, instead: str) -> None:
        """`instead` is what to call without such a stream, for whoever is refused one."""
        self._limit = max(1, max_calls_per_service // _PART)
        self._instead = instead
        self._open: Counter[str] = Counter()

    @contextmanager
    def one(self, tenant: str) -> Iterator[None]:
        """For the length of a stream. Raises ResourceExhausted when the tenant has its share open already."""
        if self._open[tenant] >= self._limit:
            raise ResourceExhausted(
                "TOO_MANY_STREAMS",
                f"tenant {tenant!r} has {self._limit} streams of this kind open already, a quarter of "
                f"limits.max_calls_per_service; close those that are not in use, or call {self._instead}",
                retry_after=_RETRY,
            )
        self._open[tenant] += 1
        try:
            yield
        finally:
            self._open[tenant] -= 1
            if not self._open[tenant]:
                del self._open[tenant]
