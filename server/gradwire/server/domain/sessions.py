"""Conversations with deployed language models: who may see them, and turns that are never half-remembered.

Knows: owners, ids, the order of turns. Does not know: databases (`SessionStore` is one), models, doors.

A turn is a user's message and its reply. The message is stored, and the conversation taken, before sampling begins;
the reply is stored before it is acknowledged. Two turns of one conversation never overlap, not even on two servers:
the store holds a lease for the turn that runs. A server that dies loses its lease within `LEASE_S`.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from gradwire.server.domain.caller import Caller
from gradwire.server.domain.cursors import Cursor, decode_cursor, encode_cursor
from gradwire.server.errors import FailedPrecondition, InvalidArgument, NotFound

LEASE_S = 30.0
_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._~@:+=-]{0,199}")


class MemoryScope(StrEnum):
    """Who sees a deployment's conversations."""

    NONE = "none"  # nobody: nothing is stored
    USER = "user"  # the user who began it
    ORGANIZATION = "organization"  # all users of the tenant


@dataclass(frozen=True, slots=True)
class Shelf:
    """Where a caller's conversations with a deployment stand. Nothing that is on another shelf can be reached."""

    deployment_id: str
    tenant: str
    user: str
    """Empty: all users of the tenant share it."""


@dataclass(frozen=True, slots=True)
class Session:
    """A conversation. Times are Unix microseconds."""

    session_id: str
    created_at: int
    updated_at: int
    num_messages: int


@dataclass(frozen=True, slots=True)
class Message:
    """A message of a conversation. `role` is "system", "user", "assistant" or "tool"."""

    role: str
    content: str
    created_at: int = 0
    incomplete: bool = False
    """The reply broke off: what is here is what had been sampled."""


@dataclass(frozen=True, slots=True)
class TurnLease:
    """The right to write to a conversation, until it lapses or another one takes it after that."""

    session: int
    """The store's own number of the conversation: a deleted and reopened one has another."""
    turn_id: str
    position: int
    """Where the reply goes: so many messages stand before it."""


class SessionStore(Protocol):
    """Where conversations lie."""

    async def page(self, shelf: Shelf, size: int, after: Cursor | None) -> tuple[Sequence[Session], Cursor | None]:
        """The most recently updated first, and where the next page begins."""

    async def read(
        self, shelf: Shelf, session_id: str, size: int, max_bytes: int, start: int
    ) -> tuple[Session, Sequence[Message], int | None] | None:
        """A conversation, its messages from `start` on (at most `size`, and no more than `max_bytes` but for one
        message), and where the next page begins. None: there is no such conversation on this shelf."""

    async def delete(self, shelf: Shelf, session_id: str) -> bool:
        """Delete a conversation, also in the middle of a turn; whether there was one."""

    async def begin_turn(
        self, shelf: Shelf, session_id: str, turn_id: str, message: Message, lease_s: float, max_bytes: int
    ) -> tuple[TurnLease, Sequence[Message]] | None:
        """Take the conversation (a new one when there is none) and add the message, all or nothing.

        The lease, and the newest messages that `max_bytes` hold, this one last. None: another turn is under way."""

    async def save_reply(self, lease: TurnLease, reply: Message, renew_s: float | None) -> bool:
        """Store the reply so far; None ends the turn, seconds renew its lease. False: the lease is lost, nothing is
        stored."""

    async def withdraw(self, lease: TurnLease) -> None:
        """Undo `begin_turn`, with a conversation that it began. Does nothing when the lease is lost."""


@dataclass(frozen=True, slots=True)
class SessionPage:
    """Conversations, and the cursor of the next page (empty: that was the last)."""

    sessions: Sequence[Session]
    next_page_token: str


@dataclass(frozen=True, slots=True)
class MessagePage:
    """A conversation, messages of it, oldest first, and the cursor of the next page."""

    session: Session
    messages: Sequence[Message]
    next_page_token: str


def shelf_of(deployment_id: str, scope: MemoryScope, caller: Caller) -> Shelf:
    """Where the caller's conversations with a deployment stand. Raises FailedPrecondition when none are kept."""
    if scope is MemoryScope.NONE:
        raise FailedPrecondition(
            "NO_SESSIONS",
            f"deployment {deployment_id!r} keeps no conversations; deploy it with a memory scope",
            subject=f"deployment/{deployment_id}",
        )
    return Shelf(deployment_id, caller.tenant, caller.user if scope is MemoryScope.USER else "")


def check_session_id(session_id: str) -> str:
    """The id itself. Raises InvalidArgument: an id ends up in paths of HTTP, so it holds nothing that means something
    there."""
    if not _ID.fullmatch(session_id) or ".." in session_id:
        raise InvalidArgument.at(
            "session_id",
            "must be 1 to 200 letters, digits and . _ ~ @ : + = -, beginning with a letter or digit, without '..'",
        )
    return session_id


def new_session_id() -> str:
    """An id for a conversation that begins."""
    return uuid.uuid4().hex


class SessionReader:
    """What a caller can do with the conversations that are stored."""

    MAX_PAGE = 1000
    MAX_PAGE_BYTES = 8 << 20

    def __init__(self, store: SessionStore) -> None:
        self._store = store

    async def list(self, shelf: Shelf, size: int = 50, page_token: str = "") -> SessionPage:
        """The most recently updated first. One that is written to while pages are read moves to the front: it shows
        once or, when its page was still to come, on the next listing. All others show exactly once."""
        found, after = await self._store.page(shelf, size, decode_cursor(page_token, int))
        return SessionPage(found, encode_cursor(after))

    async def get(
        self, shelf: Shelf, session_id: str, size: int = MAX_PAGE, page_token: str = ""
    ) -> MessagePage:  # fmt: skip
        """A conversation and its messages. Raises NotFound, the same for another user's as for one that never was."""
        after = decode_cursor(page_token, int)
        start = 0 if after is None else int(after.tie)
        found = None
        if _ID.fullmatch(session_id):  # any other was never stored: not found, as a stranger's
            found = await self._store.read(shelf, session_id, size, self.MAX_PAGE_BYTES, start)
        if found is None:
            raise NotFound("session", session_id, f"session_id: you have no session {session_id!r} here")
        session, messages, following = found
        next_page = None if following is None else Cursor(0, following)
        return MessagePage(session, messages, encode_cursor(next_page))

    async def delete(self, shelf: Shelf, session_id: str) -> bool:
        """Delete a conversation; whether there was one of the caller's. A turn under way loses it."""
        return bool(_ID.fullmatch(session_id)) and await self._store.delete(shelf, session_id)
