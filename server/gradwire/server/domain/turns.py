"""A turn of a conversation, from the user's message to the stored reply.

Knows: waiting for one's turn, the lease, saving on the way. Does not know: how replies are sampled.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
import uuid
from collections.abc import AsyncIterator, Coroutine, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, TypeVar

from gradwire.server.domain.sessions import (
    LEASE_S,
    Message,
    SessionStore,
    Shelf,
    TurnLease,
    check_session_id,
    new_session_id,
)
from gradwire.server.engines.tasks import to_the_end
from gradwire.server.errors import Aborted, Unavailable

log = logging.getLogger(__name__)
T = TypeVar("T")

SAVE_EVERY_S = 1.0
"""A server that is killed loses at most this much of a reply that was streamed and not yet acknowledged."""
MAX_HISTORY_BYTES = 32 << 20
"""So much of a conversation's end is read for a prompt."""
_POLL_S = (0.01, 0.25)  # of a turn on another server: the first wait and the longest


class Turn:
    """One turn. `extend` it while the reply comes; `complete` it before the reply is acknowledged."""

    def __init__(
        self, store: SessionStore, session_id: str, lease: TurnLease, history: Sequence[Message], lease_s: float
    ) -> None:
        self._store = store
        self._lease = lease
        self._lease_s = lease_s
        self._parts: list[str] = []
        self._saved_parts = 0
        self._saving = asyncio.Lock()
        self._lost = False
        self._ended = False
        self.session_id = session_id
        self.history = tuple(history)
        """Messages of the conversation, the oldest first, the new one of the user last."""
        self.num_older = lease.position - len(self.history)
        """Messages before those in `history`: more than any context holds (MAX_HISTORY_BYTES), so not read."""

    @property
    def text(self) -> str:
        """The reply so far."""
        return "".join(self._parts)

    def extend(self, text: str) -> None:
        """More of the reply. It is saved within SAVE_EVERY_S."""
        self._parts.append(text)

    async def complete(self) -> None:
        """Store the whole reply and end the turn. Only then may the reply be acknowledged.

        Raises Aborted when the conversation was deleted meanwhile or the lease was lost, and Unavailable.
        """
        await self._save(incomplete=False, renew_s=None)

    async def break_off(self) -> None:
        """Store what there is, marked as incomplete, and end the turn. After `complete` it does nothing."""
        if not self._lost:
            await self._save(incomplete=True, renew_s=None)

    async def withdraw(self) -> None:
        """Take the user's message back and end the turn: it was refused before anything was sampled.

        Raises Unavailable; the turn then breaks off with an empty reply.
        """
        await to_the_end(self._withdraw_in_order())

    async def keep(self) -> None:
        """Save what is new and renew the lease, until cancelled."""
        renewed = time.monotonic()
        while not self._lost:
            await asyncio.sleep(min(SAVE_EVERY_S, self._lease_s / 4))
            if len(self._parts) == self._saved_parts and time.monotonic() - renewed < self._lease_s / 3:
                continue
            try:
                await self._save(incomplete=True, renew_s=self._lease_s)
                renewed = time.monotonic()
            except Aborted:
                return  # `complete` will say so
            except Unavailable:
                log.warning("a reply could not be saved on its way; trying again")

    async def _withdraw_in_order(self) -> None:
        async with self._saving:
            if not self._ended and not self._lost:
                await self._store.withdraw(self._lease)
                self._ended = True

    async def _save(self, *, incomplete: bool, renew_s: float | None) -> None:
        # A call that is cancelled here must not leave unknown what is stored.
        await to_the_end(self._save_in_order(incomplete, renew_s))

    async def _save_in_order(self, incomplete: bool, renew_s: float | None) -> None:
        async with self._saving:
            if self._ended:
                return  # nothing reopens what is complete
            count = len(self._parts)
            reply = Message("assistant", "".join(self._parts), incomplete=incomplete)
            self._lost = self._lost or not await self._store.save_reply(self._lease, reply, renew_s)
            if self._lost:
                raise Aborted(
                    "SESSION_LOST",
                    f"session {self.session_id!r} was deleted, or taken over, while the reply was sampled; it is not "
                    "stored",
                )
            self._saved_parts = count
            self._ended = renew_s is None


@dataclass(slots=True)
class _Queue:
    """Turns of one conversation on this server, in the order in which they came."""

    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    waiting: int = 0


class Turns:
    """Begins turns, one at a time for each conversation."""

    def __init__(self, store: SessionStore, *, lease_s: float = LEASE_S) -> None:
        self._store = store
        self._lease_s = lease_s
        self._queues: dict[tuple[Shelf, str], _Queue] = {}
        self._tasks: set[asyncio.Task[Any]] = set()  # asyncio itself does not hold on to them

    @asynccontextmanager
    async def turn(
        self, shelf: Shelf, session_id: str | None, content: str, *, wait_s: float = 60.0
    ) -> AsyncIterator[Turn]:
        """A turn that begins with the user's `content`, already stored; None begins a new conversation.

        It waits up to `wait_s` for turns under way. Left without `complete`, by an error or a cancelled call, it keeps
        what was sampled and marks it. Raises InvalidArgument, Unavailable (SESSION_BUSY after `wait_s`).
        """
        chosen = new_session_id() if session_id is None else check_session_id(session_id)
        end = time.monotonic() + wait_s
        async with self._in_order(shelf, chosen, end):
            turn = await self._begin(shelf, chosen, content, end)
            keeping = asyncio.create_task(turn.keep())
            try:
                yield turn
            finally:
                keeping.cancel()
                await asyncio.shield(self._background(_break_off(turn)))  # cancelled again, it goes on by itself

    async def settle(self) -> None:
        """Wait for what calls that ended left to store."""
        while self._tasks:
            await asyncio.wait(set(self._tasks))

    async def _begin(self, shelf: Shelf, session_id: str, content: str, end: float) -> Turn:
        wait_s, longest = _POLL_S
        while True:
            trying = self._background(self._try_to_begin(shelf, session_id, content))
            try:
                turn = await asyncio.shield(trying)
            except asyncio.CancelledError:
                self._background(_abandon(trying))
                raise
            if turn is not None:
                return turn
            if time.monotonic() + wait_s > end:
                raise _busy(session_id)
            await asyncio.sleep(wait_s * random.uniform(0.5, 1.0))
            wait_s = min(2 * wait_s, longest)

    async def _try_to_begin(self, shelf: Shelf, session_id: str, content: str) -> Turn | None:
        begun = await self._store.begin_turn(
            shelf, session_id, uuid.uuid4().hex, Message("user", content), self._lease_s, MAX_HISTORY_BYTES
        )
        return None if begun is None else Turn(self._store, session_id, *begun, self._lease_s)

    def _background(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    @asynccontextmanager
    async def _in_order(self, shelf: Shelf, session_id: str, end: float) -> AsyncIterator[None]:
        key = shelf, session_id
        queue = self._queues.setdefault(key, _Queue())
        queue.waiting += 1
        try:
            try:
                async with asyncio.timeout(max(0.0, end - time.monotonic())):
                    await queue.lock.acquire()
            except TimeoutError:
                raise _busy(session_id) from None
            try:
                yield
            finally:
                queue.lock.release()
        finally:
            queue.waiting -= 1
            if not queue.waiting:
                del self._queues[key]


async def _abandon(trying: asyncio.Task[Turn | None]) -> None:
    """The call was cancelled while its turn began: if it did begin, nobody else will end it."""
    try:
        turn = await trying
    except Unavailable:
        return  # nothing was written
    if turn is not None:
        await _break_off(turn)


async def _break_off(turn: Turn) -> None:
    try:
        await turn.break_off()
    except (Aborted, Unavailable) as error:
        log.warning("the end of a reply that broke off was not stored: %s", error)


def _busy(session_id: str) -> Unavailable:
    return Unavailable(
        "SESSION_BUSY",
        f"session {session_id!r}: another turn is still under way",
        retry_after=timedelta(seconds=1),
    )
