"""Conversations in the database. One transaction a method: whoever looks sees a turn's step wholly or not at all."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from gradwire.server.domain.cursors import Cursor
from gradwire.server.domain.sessions import Message, Session, Shelf, TurnLease
from gradwire.server.storage.clock import now
from gradwire.server.storage.database import Database
from gradwire.server.storage.dialects import insert_into
from gradwire.server.storage.schema import messages, sessions


class DatabaseSessions:
    """A `SessionStore`."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def page(self, shelf: Shelf, size: int, after: Cursor | None) -> tuple[Sequence[Session], Cursor | None]:
        """The most recently updated first, and where the next page begins."""
        order = (sessions.c.updated_at, sessions.c.id)
        query = sessions.select().where(*_on(shelf)).order_by(*(column.desc() for column in order)).limit(size + 1)
        if after is not None:
            query = query.where(sa.tuple_(*order) < sa.tuple_(sa.literal(after.time), sa.literal(after.tie)))

        async def work(connection: AsyncConnection) -> Sequence[Any]:
            return (await connection.execute(query)).all()

        rows = await self._database.read(work)
        last = Cursor(rows[size - 1].updated_at, rows[size - 1].id) if len(rows) > size else None
        return [_session(row) for row in rows[:size]], last

    async def read(
        self, shelf: Shelf, session_id: str, size: int, max_bytes: int, start: int
    ) -> tuple[Session, Sequence[Message], int | None] | None:
        """A conversation and a page of its messages, from `start` on; None when it is not on this shelf."""

        async def work(connection: AsyncConnection) -> tuple[Session, Sequence[Message], int | None] | None:
            found = sessions.select().where(*_on(shelf), sessions.c.session_id == session_id)
            row = (await connection.execute(found)).first()
            if row is None:
                return None
            lengths = (
                sa.select(messages.c.position, sa.func.length(messages.c.content).label("bytes"))
                .where(messages.c.session == row.id, messages.c.position >= start)
                .order_by(messages.c.position)
                .limit(size + 1)
            )
            sizes = (await connection.execute(lengths)).all()
            count = min(size, _fitting([entry.bytes for entry in sizes], max_bytes))
            page = await _messages(connection, row.id, start, start + count)
            return _session(row), page, start + count if len(sizes) > count else None

        return await self._database.read(work)

    async def delete(self, shelf: Shelf, session_id: str) -> bool:
        """Delete a conversation; its messages go with it."""

        async def work(connection: AsyncConnection) -> bool:
            gone = sessions.delete().where(*_on(shelf), sessions.c.session_id == session_id)
            return (await connection.execute(gone)).rowcount > 0

        return await self._database.write(work)

    async def begin_turn(
        self, shelf: Shelf, session_id: str, turn_id: str, message: Message, lease_s: float, max_bytes: int
    ) -> tuple[TurnLease, Sequence[Message]] | None:
        """Take the conversation and add the message. None while another turn is under way."""

        async def work(connection: AsyncConnection) -> tuple[TurnLease, Sequence[Message]] | None:
            row = await _open(connection, shelf, session_id)
            time = await now(connection)
            if row is None or (row.turn_id is not None and row.turn_expires_at > time):
                return None
            await _add(connection, row.id, row.num_messages, message, time)
            lease = TurnLease(row.id, turn_id, row.num_messages + 1)
            await connection.execute(
                sessions.update()
                .where(sessions.c.id == row.id)
                .values(
                    updated_at=time,
                    num_messages=lease.position,
                    turn_id=turn_id,
                    turn_expires_at=time + int(lease_s * 1e6),
                )
            )
            first = await _first_of_tail(connection, row.id, max_bytes)
            return lease, await _messages(connection, row.id, first, lease.position)

        return await self._database.write(work)

    async def save_reply(self, lease: TurnLease, reply: Message, renew_s: float | None) -> bool:
        """Store the reply so far, and end the turn or renew its lease. False when the lease is lost."""

        async def work(connection: AsyncConnection) -> bool:
            time = await now(connection)
            kept: dict[str, Any] = {"num_messages": lease.position + 1}
            if renew_s is None:
                kept |= {"turn_id": None, "turn_expires_at": None, "updated_at": time}
            else:
                kept |= {"turn_expires_at": time + int(renew_s * 1e6)}
            mine = (sessions.c.id == lease.session, sessions.c.turn_id == lease.turn_id)
            if (await connection.execute(sessions.update().where(*mine).values(**kept))).rowcount == 0:
                return False
            await _add(connection, lease.session, lease.position, reply, time)
            return True

        return await self._database.write(work)

    async def withdraw(self, lease: TurnLease) -> None:
        """Take the turn's messages back, and a conversation that has no other."""
        first = lease.position - 1

        async def work(connection: AsyncConnection) -> None:
            mine = (sessions.c.id == lease.session, sessions.c.turn_id == lease.turn_id)
            if first == 0:
                await connection.execute(sessions.delete().where(*mine))
                return
            kept = {"num_messages": first, "turn_id": None, "turn_expires_at": None}
            if (await connection.execute(sessions.update().where(*mine).values(**kept))).rowcount:
                taken_back = (messages.c.session == lease.session, messages.c.position >= first)
                await connection.execute(messages.delete().where(*taken_back))

        await self._database.write(work)


def _on(shelf: Shelf) -> tuple[sa.ColumnElement[bool], ...]:
    return (
        sessions.c.deployment_id == shelf.deployment_id,
        sessions.c.tenant == shelf.tenant,
        sessions.c.user_name == shelf.user,
    )


async def _open(connection: AsyncConnection, shelf: Shelf, session_id: str) -> Any:
    """The conversation's row, locked for this transaction, made when there was none."""
    time = await now(connection)
    new = insert_into(connection, sessions).values(
        deployment_id=shelf.deployment_id,
        tenant=shelf.tenant,
        user_name=shelf.user,
        session_id=session_id,
        created_at=time,
        updated_at=time,
        num_messages=0,
    )
    await connection.execute(new.on_conflict_do_nothing())
    found = sessions.select().where(*_on(shelf), sessions.c.session_id == session_id).with_for_update()
    return (await connection.execute(found)).first()


async def _add(connection: AsyncConnection, session: int, position: int, message: Message, time: int) -> None:
    """Store a message at its place, or replace what stands there: a reply that has grown."""
    changing = {"content": message.content.encode(), "incomplete": message.incomplete}
    fixed = {"session": session, "position": position, "role": message.role, "created_at": time}
    new = insert_into(connection, messages).values(**fixed, **changing)
    await connection.execute(new.on_conflict_do_update(index_elements=["session", "position"], set_=changing))


async def _messages(connection: AsyncConnection, session: int, start: int, end: int) -> list[Message]:
    rows = await connection.execute(
        messages.select()
        .where(messages.c.session == session, messages.c.position >= start, messages.c.position < end)
        .order_by(messages.c.position)
    )
    return [Message(row.role, bytes(row.content).decode(), row.created_at, row.incomplete) for row in rows]


async def _first_of_tail(connection: AsyncConnection, session: int, max_bytes: int) -> int:
    """The position from which on the messages are at most `max_bytes`, the last one in any case."""
    lengths = (
        sa.select(messages.c.position, sa.func.length(messages.c.content).label("bytes"))
        .where(messages.c.session == session)
        .order_by(messages.c.position.desc())
    )
    rows = (await connection.execute(lengths)).all()
    position: int = rows[_fitting([row.bytes for row in rows], max_bytes) - 1].position
    return position


def _fitting(sizes: Sequence[int], limit: int) -> int:
    """How many, from the first on, are at most `limit` together; one in any case."""
    total = 0
    for count, size in enumerate(sizes):
        total += size
        if total > limit and count:
            return count
    return len(sizes)


def _session(row: Any) -> Session:
    return Session(row.session_id, row.created_at, row.updated_at, row.num_messages)
