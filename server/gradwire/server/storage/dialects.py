"""Statements that SQLite and PostgreSQL both have, and SQLAlchemy only by dialect."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.ext.asyncio import AsyncConnection

_INSERT: dict[str, Any] = {"sqlite": sqlite.insert, "postgresql": postgresql.insert}


def insert_into(connection: AsyncConnection, table: sa.Table) -> Any:
    """An INSERT that can say what happens on conflict."""
    return _INSERT[connection.dialect.name](table)
