"""What a shelf of rollouts is asked: limits, collectors' wishes, who follows, and which requests came twice."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from gradwire.server.domain.rollouts.rollout import Rollout
from gradwire.server.errors import AlreadyExists, Unavailable

_REMEMBERED = 4096  # request ids a tenant


@dataclass(frozen=True, slots=True)
class Limits:
    """Of one tenant's rollouts. Ended ones are forgotten `retention_s` after they ended or were last collected."""

    max_rollouts: int = 16_384
    max_bytes: int = 1 << 30
    retention_s: float = 3600.0


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a collector takes. See CollectRolloutsRequest in rollout.proto."""

    rollout_ids: tuple[str, ...] = ()
    groups: frozenset[str] = frozenset()
    whole_groups: bool = False
    at_most: int = 256
    at_least: int = 1
    wait_s: float = 0.0
    request_id: str = ""

    @property
    def enough(self) -> int:
        """Rollouts that end the wait, where none are named."""
        return min(self.at_least, self.at_most)


@dataclass(slots=True, eq=False)
class Watch:
    """One who follows rollouts; changes that are not read yet are merged."""

    wants: Callable[[Rollout], bool]
    changed: OrderedDict[str, tuple[Rollout, bool]] = field(default_factory=OrderedDict)  # and whether it is gone
    _news: asyncio.Event = field(default_factory=asyncio.Event)
    _dismissed: bool = False

    def tell(self, rollout: Rollout, gone: bool) -> None:
        """A rollout has changed, or is gone."""
        if self.wants(rollout):
            self.changed[rollout.rollout_id] = (rollout, gone)
            self._news.set()

    def dismiss(self) -> None:
        """The server is about to go."""
        self._dismissed = True
        self._news.set()

    async def wait(self) -> None:
        """For the next change. Unavailable when the server stops."""
        await self._news.wait()
        self._news.clear()
        if self._dismissed:
            raise Unavailable("DRAINING", "the server is shutting down")


class Requests:
    """What requests that may be repeated were answered with."""

    def __init__(self) -> None:
        self._known: OrderedDict[str, tuple[object, tuple[str, ...]]] = OrderedDict()

    def find(self, request_id: str, content: object) -> tuple[str, ...] | None:
        """Rollouts of an earlier answer. AlreadyExists when the request was another."""
        if not request_id or request_id not in self._known:
            return None
        known, ids = self._known[request_id]
        if known != content:
            raise AlreadyExists("REQUEST_ID_REUSED", f"request id {request_id!r} was used for another request")
        return ids

    def keep(self, request_id: str, content: object, ids: Iterable[str]) -> None:
        """Remember an answer; the oldest is forgotten."""
        if request_id:
            self._known[request_id] = (content, tuple(ids))
            while len(self._known) > _REMEMBERED:
                self._known.popitem(last=False)

    def forget(self, request_id: str) -> None:
        """The answer never arrived."""
        self._known.pop(request_id, None)
