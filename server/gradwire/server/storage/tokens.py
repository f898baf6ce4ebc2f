"""Tokens in the database."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from gradwire.server.domain.credentials import TokenKind, TokenRecord
from gradwire.server.domain.cursors import Cursor
from gradwire.server.storage.database import Database
from gradwire.server.storage.migrations import lock
from gradwire.server.storage.schema import tokens


class DatabaseTokens:
    """A `TokenStore`."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def add(self, record: TokenRecord) -> None:
        """Store a token."""

        async def work(connection: AsyncConnection) -> None:
            await connection.execute(tokens.insert().values(**_columns(record)))

        await self._database.write(work)

    async def add_first(self, record: TokenRecord) -> bool:
        """Store a token if there is none at all, revoked ones included; whether it did. One of two servers wins."""

        async def work(connection: AsyncConnection) -> bool:
            await lock(connection)
            if (await connection.execute(sa.select(tokens.c.token_id).limit(1))).first() is not None:
                return False
            await connection.execute(tokens.insert().values(**_columns(record)))
            return True

        return await self._database.write(work)

    async def find(self, token_id: str) -> TokenRecord | None:
        """The token of an id."""

        async def work(connection: AsyncConnection) -> TokenRecord | None:
            row = (await connection.execute(tokens.select().where(tokens.c.token_id == token_id))).first()
            return None if row is None else _record(row)

        return await self._database.read(work)

    async def page(self, tenant: str, size: int, after: Cursor | None) -> tuple[Sequence[TokenRecord], Cursor | None]:
        """The newest first, of one tenant or (empty) all, and where the next page begins."""
        order = (tokens.c.created_at, tokens.c.token_id)
        query = tokens.select().order_by(*(column.desc() for column in order)).limit(size + 1)
        if tenant:
            query = query.where(tokens.c.tenant == tenant)
        if after is not None:
            query = query.where(sa.tuple_(*order) < sa.tuple_(sa.literal(after.time), sa.literal(after.tie)))

        async def work(connection: AsyncConnection) -> list[TokenRecord]:
            return [_record(row) for row in await connection.execute(query)]

        found = await self._database.read(work)
        page = found[:size]
        last = Cursor(page[-1].created_at, page[-1].token_id) if len(found) > size else None
        return page, last

    async def revoke(self, token_id: str, at: int) -> bool:
        """Mark a token as revoked, once; whether there is such a token."""
        change = tokens.update().where(tokens.c.token_id == token_id)
        change = change.values(revoked_at=sa.func.coalesce(tokens.c.revoked_at, at))

        async def work(connection: AsyncConnection) -> bool:
            return (await connection.execute(change)).rowcount > 0

        return await self._database.write(work)


def _columns(record: TokenRecord) -> dict[str, Any]:
    return {
        "token_id": record.token_id,
        "digest": record.digest,
        "description": record.description,
        "kind": record.kind.value,
        "tenant": record.tenant,
        "user_name": record.user,
        "scopes": ",".join(sorted(record.scopes)),
        "created_at": record.created_at,
        "expires_at": record.expires_at,
        "revoked_at": record.revoked_at,
    }


def _record(row: Any) -> TokenRecord:
    return TokenRecord(
        token_id=row.token_id,
        digest=bytes(row.digest),
        description=row.description,
        kind=TokenKind(row.kind),
        tenant=row.tenant,
        user=row.user_name,
        scopes=frozenset(row.scopes.split(",")),
        created_at=row.created_at,
        expires_at=row.expires_at,
        revoked_at=row.revoked_at,
    )
