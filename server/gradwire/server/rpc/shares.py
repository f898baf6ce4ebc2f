"""What each tenant may hold of a service's places with streams that last as long as their client likes.

Such a stream holds its place also while nothing happens on it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta

from gradwire.server.errors import ResourceExhausted

_PARTS = 4
_RETRY = timedelta(seconds=1)


class StreamShares:
    """A quarter of the places for each tenant: users cannot be told apart where a partner's token names them.

    And three quarters for all together: the rest is for calls, with which whoever is refused a stream goes on.
    """

    def __init__(self, max_calls_per_service: int, instead: str, *, kinds: int = 1) -> None:
        """`instead` is what to call without such a stream, for whoever is refused one.

        Where the service has several `kinds` of them, each has its part of the three quarters.
        """
        self._each = max(1, max_calls_per_service // _PARTS)
        self._all = max(1, (max_calls_per_service - self._each) // kinds)
        self._instead = instead
        self._open: Counter[str] = Counter()

    @contextmanager
    def one(self, tenant: str) -> Iterator[None]:
        """For the length of a stream. Raises ResourceExhausted when the tenant, or all, have their share open."""
        if self._open[tenant] >= self._each:
            raise self._too_many(f"tenant {tenant!r} has {self._each} streams of this kind open already, a quarter")
        if self._open.total() >= self._all:
            raise self._too_many(f"all tenants have {self._all} streams of this kind open already, their part")
        self._open[tenant] += 1
        try:
            yield
        finally:
            self._open[tenant] -= 1
            if not self._open[tenant]:
                del self._open[tenant]

    def _too_many(self, found: str) -> ResourceExhausted:
        return ResourceExhausted(
            "TOO_MANY_STREAMS",
            f"{found} of limits.max_calls_per_service; close those that are not in use, or call {self._instead}",
            retry_after=_RETRY,
        )
