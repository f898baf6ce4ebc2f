"""One tenant's rollouts: opened, followed, collected, and forgotten in time."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections import Counter, OrderedDict
from collections.abc import AsyncGenerator, Callable, Iterable, Sequence

from gradwire.server.domain.registry import AnyJob, SamplingJob
from gradwire.server.domain.rollouts.following import (
    Limits,
    Requests,
    Wanted,
    Watch,
    content_of_collect,
    content_of_open,
)
from gradwire.server.domain.rollouts.rollout import Rollout, Spec
from gradwire.server.errors import NotFound, ResourceExhausted


class Shelf:
    """One tenant's rollouts."""

    def __init__(self, tenant: str, limits: Limits, ended: Callable[[str], None]) -> None:
        self._tenant = tenant
        self._limits = limits
        self._when_ended = ended
        self._rollouts: dict[str, Rollout] = {}
        self._expiries: dict[str, asyncio.TimerHandle] = {}
        self._ended: OrderedDict[str, Rollout] = OrderedDict()  # not collected yet, the first to end at the head
        self._collected: OrderedDict[str, Rollout] = OrderedDict()  # the first to be collected at the head
        self._opened: Counter[str] = Counter()  # rollouts that a group has had
        self._held: Counter[str] = Counter()  # and still has
        self._open: Counter[str] = Counter()  # and that have not ended
        self._watches: set[Watch] = set()
        self._opens, self._collects = Requests(), Requests()
        self._num_bytes = 0

    @property
    def num_bytes(self) -> int:
        """Bytes that are held."""
        return self._num_bytes

    def __len__(self) -> int:
        return len(self._rollouts)

    # Opening and finding

    def open(self, job: SamplingJob, specs: Sequence[Spec], request_id: str) -> list[Rollout]:
        """Open rollouts, all or none. ResourceExhausted when there is no room."""
        content = content_of_open(job.job_id, specs)
        known = self._opens.find(request_id, content)
        if known is not None:
            return [self.get(rollout_id) for rollout_id in known]
        self.require_room(len(specs))
        made = []
        for spec in specs:
            rollout = Rollout(f"ro-{secrets.token_hex(12)}", self._tenant, job, spec, self._changed)
            self._rollouts[rollout.rollout_id] = rollout
            rollout.hold(sum(len(text) for pair in spec.labels.items() for text in pair))
            for counter in (self._opened, self._held, self._open):
                counter[rollout.group] += 1
            made.append(rollout)
        self._opens.keep(request_id, content, (rollout.rollout_id for rollout in made))
        for rollout in made:
            self._tell(rollout)
        return made

    def get(self, rollout_id: str) -> Rollout:
        """NotFound for one that was never there, is gone, or is another tenant's."""
        rollout = self._rollouts.get(rollout_id)
        if rollout is None:
            raise NotFound("rollout", rollout_id, f"no rollout {rollout_id[:100]!r}: it never was, or is gone")
        return rollout

    def require_room(self, count: int = 0) -> None:
        """Room for more rollouts, or for what a call samples; collected ones give way, the oldest first."""
        limits = self._limits
        while self._collected and (self._too_many(count) or self._num_bytes >= limits.max_bytes):
            self._forget(next(iter(self._collected.values())))
        if self._too_many(count):
            raise ResourceExhausted(
                "TOO_MANY_ROLLOUTS",
                f"{len(self._rollouts)} rollouts are held and {count} more were asked for; at most "
                f"{limits.max_rollouts} are: finish, collect and discard some",
            )
        if self._num_bytes >= limits.max_bytes:
            raise ResourceExhausted(
                "ROLLOUT_STORE_FULL",
                f"rollouts hold {self._num_bytes} bytes; at most {limits.max_bytes} are kept: collect and discard some",
            )

    def _too_many(self, count: int) -> bool:
        return count > 0 and len(self._rollouts) + count > self._limits.max_rollouts

    # Following

    async def watch(self, rollout_ids: Sequence[str], group: str) -> AsyncGenerator[tuple[Rollout, bool]]:
        """Rollouts as they are, then each that changes, and whether it is gone."""
        named = {rollout_id: self.get(rollout_id) for rollout_id in rollout_ids}
        watch = Watch(lambda r: (not named or r.rollout_id in named) and (not group or r.group == group))
        left = {rollout_id for rollout_id, rollout in named.items() if not group or rollout.group == group}
        for rollout in list(self._rollouts.values()):
            watch.tell(rollout, False)
        self._watches.add(watch)
        try:
            while True:
                while watch.changed:
                    rollout_id, (rollout, gone) = watch.changed.popitem(last=False)
                    if gone or rollout.end is not None:
                        left.discard(rollout_id)
                    yield rollout, gone
                if named and not left:
                    return
                await watch.wait()
        finally:
            self._watches.discard(watch)

    def dismiss(self) -> None:
        """End what follows and waits: the server is about to go."""
        for watch in self._watches:
            watch.dismiss()
        for rollout in self._rollouts.values():
            rollout.answers.wait_no_more()

    def _changed(self, rollout: Rollout, size: int, news: bool) -> None:
        if rollout.rollout_id not in self._rollouts:
            return
        self._num_bytes += size
        if rollout.end is not None and rollout.rollout_id not in self._expiries:
            self._ended[rollout.rollout_id] = rollout
            self._open[rollout.group] -= 1
            self._when_ended(rollout.end.outcome)
            self._expire_later(rollout)
        if news:
            self._tell(rollout)

    def _tell(self, rollout: Rollout, gone: bool = False) -> None:
        for watch in self._watches:
            watch.tell(rollout, gone)

    # Collecting

    async def collect(self, wanted: Wanted) -> tuple[list[Rollout], list[Rollout]]:
        """Ended rollouts, and those of them that are claimed for this collector now: no other one gets these, unless
        it names them.
        """
        content = content_of_collect(wanted)
        known = self._collects.find(wanted.request_id, content)
        if known is not None:
            return [self._rollouts[rollout_id] for rollout_id in known if rollout_id in self._rollouts], []
        found = await self._awaited(wanted)
        claimed = [rollout for rollout in found if rollout.collected_at is None]
        for rollout in claimed:
            rollout.collected_at = time.time()
            self._collected[rollout.rollout_id] = self._ended.pop(rollout.rollout_id)
            self._expire_later(rollout)
            self._tell(rollout)
        self._collects.keep(wanted.request_id, content, (rollout.rollout_id for rollout in found))
        return found, claimed

    def give_back(self, wanted: Wanted, claimed: Iterable[Rollout]) -> None:
        """They never reached their collector."""
        self._collects.forget(wanted.request_id)
        for rollout in claimed:
            if rollout.rollout_id in self._rollouts:
                rollout.collected_at = None
                self._ended[rollout.rollout_id] = self._collected.pop(rollout.rollout_id)
                self._tell(rollout)

    async def _awaited(self, wanted: Wanted) -> list[Rollout]:
        watch = Watch(lambda rollout: rollout.end is not None)
        self._watches.add(watch)
        try:
            async with asyncio.timeout(wanted.wait_s):
                while True:
                    if wanted.rollout_ids or len(self._ended) >= wanted.enough:  # else there is nothing to look for
                        found, enough = self._found(wanted)
                        if enough:
                            return found
                    watch.changed.clear()
                    await watch.wait()
        except TimeoutError:
            return self._found(wanted)[0]
        finally:
            self._watches.discard(watch)

    def _found(self, wanted: Wanted) -> tuple[list[Rollout], bool]:
        """What there is, and whether waiting is over."""
        if wanted.rollout_ids:
            named = [self.get(rollout_id) for rollout_id in wanted.rollout_ids]
            found = [rollout for rollout in named if rollout.end is not None]
            return found[: wanted.at_most], len(found) == len(named)
        ready = [r for r in self._ended.values() if not wanted.groups or r.group in wanted.groups]
        found = self._whole(ready, wanted.at_most) if wanted.whole_groups else ready[: wanted.at_most]
        return found, len(found) >= wanted.enough

    def _whole(self, ready: list[Rollout], at_most: int) -> list[Rollout]:
        groups: dict[str, list[Rollout]] = {}
        for rollout in ready:
            size = rollout.spec.group_size
            if not self._open[rollout.group] and self._opened[rollout.group] >= size:
                groups.setdefault(rollout.group, []).append(rollout)
        found: list[Rollout] = []
        for members in groups.values():
            if len(found) < at_most:
                found += sorted(members, key=lambda rollout: rollout.spec.sample_index)
        return found

    # Ending

    def cancel(self, rollout_ids: Sequence[str], reason: str) -> list[Rollout]:
        """End rollouts as cancelled; none when one is unknown."""
        found = [self.get(rollout_id) for rollout_id in rollout_ids]
        for rollout in found:
            rollout.cancel(reason)
        return found

    def discard(self, rollout_ids: Sequence[str], *, collected: bool) -> int:
        """Forget rollouts; how many."""
        chosen = {rollout_id: self._rollouts[rollout_id] for rollout_id in rollout_ids if rollout_id in self._rollouts}
        if collected:
            chosen |= self._collected
        for rollout in chosen.values():
            self._forget(rollout)
        return len(chosen)

    def end_job(self, job: AnyJob) -> None:
        """Its sampling job is gone."""
        for rollout in list(self._rollouts.values()):
            if rollout.job is job:
                rollout.cancel(f"its sampling job {job.job_id} was destroyed")

    def close(self) -> None:
        """Forget all."""
        for rollout in list(self._rollouts.values()):
            self._forget(rollout)

    def _expire_later(self, rollout: Rollout) -> None:
        handle = self._expiries.pop(rollout.rollout_id, None)
        if handle is not None:
            handle.cancel()
        later = asyncio.get_running_loop().call_later(self._limits.retention_s, self._forget, rollout)
        self._expiries[rollout.rollout_id] = later

    def _forget(self, rollout: Rollout) -> None:
        if self._rollouts.get(rollout.rollout_id) is not rollout:
            return
        rollout.close()
        del self._rollouts[rollout.rollout_id]
        self._ended.pop(rollout.rollout_id, None)
        self._collected.pop(rollout.rollout_id, None)
        self._num_bytes -= rollout.num_bytes
        handle = self._expiries.pop(rollout.rollout_id, None)
        if handle is not None:
            handle.cancel()
        self._held[rollout.group] -= 1
        if not self._held[rollout.group]:
            for counter in (self._opened, self._held, self._open):
                del counter[rollout.group]
        self._tell(rollout, gone=True)
