"""The one clock that all servers of a database share: the database's. Unix microseconds."""

from __future__ import annotations

import time

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection


async def now(connection: AsyncConnection) -> int:
    """Of PostgreSQL's machine; with SQLite all servers are on this one."""
    if connection.dialect.name == "postgresql":
        seconds = sa.func.extract("epoch", sa.func.clock_timestamp())
        return int((await connection.execute(sa.select(seconds * 1_000_000))).scalar_one())
    return time.time_ns() // 1000
