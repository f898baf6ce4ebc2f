"""What a shelf of rollouts is asked: limits, collectors' wishes, who follows, and which requests came twice."""

from __future__ import annotations

import asyncio
import hashlib
from collections import OrderedDict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace

from gradwire.server.domain.rollouts.rollout import Rollout, Spec
from gradwire.server.errors import AlreadyExists, draining

_REMEMBERED = 4096  # request ids a tenant
_REMEMBERED_ROLLOUTS = 65_536  # that all their answers name


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
            raise draining()


class Requests:
    """What requests that may be repeated were answered with, of each its digest and the rollouts' names."""

    def __init__(self) -> None:
        self._known: OrderedDict[str, tuple[bytes, tuple[str, ...]]] = OrderedDict()
        self._num_rollouts = 0

    def find(self, request_id: str, content: bytes) -> tuple[str, ...] | None:
        """Rollouts of an earlier answer. AlreadyExists when the request was another."""
        if not request_id or request_id not in self._known:
            return None
        known, ids = self._known[request_id]
        if known != content:
            raise AlreadyExists("REQUEST_ID_REUSED", f"request id {request_id!r} was used for another request")
        return ids

    def keep(self, request_id: str, content: bytes, ids: Iterable[str]) -> None:
        """Remember an answer; the oldest is forgotten."""
        if not request_id:
            return
        self.forget(request_id)
        self._known[request_id] = (content, tuple(ids))
        self._num_rollouts += len(self._known[request_id][1])
        while len(self._known) > _REMEMBERED or (self._num_rollouts > _REMEMBERED_ROLLOUTS and len(self._known) > 1):
            self.forget(next(iter(self._known)))

    def forget(self, request_id: str) -> None:
        """The answer never arrived, or is too old."""
        _, ids = self._known.pop(request_id, (b"", ()))
        self._num_rollouts -= len(ids)


def content_of_open(job_id: int, specs: Iterable[Spec]) -> bytes:
    """Digest of a request to open. The order of labels means nothing: a map on the wire has none."""
    return _digest(job_id, [(replace(spec, labels={}), sorted(spec.labels.items())) for spec in specs])


def content_of_collect(wanted: Wanted) -> bytes:
    """Digest of a collector's wishes."""
    return _digest(replace(wanted, groups=frozenset()), sorted(wanted.groups))


def _digest(*parts: object) -> bytes:
    return hashlib.sha256(repr(parts).encode()).digest()
