"""Versions of the schema. A step that was released is never edited: a change is a new step at the end, and `schema`
shows the sum of all. A database of a newer gradwire is refused, not guessed at.

All steps run in one transaction, under a lock that two servers of one PostgreSQL share; SQLite's writers are alone.
"""

from __future__ import annotations

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from gradwire.server.errors import FailedPrecondition

_LOCK = 0x6772_6164_7769_7265  # "gradwire": PostgreSQL's advisory locks are numbers
# Where the dialects differ. SQLite counts INTEGER PRIMARY KEY alone, and AUTOINCREMENT never gives a number again.
_TYPES = {
    "sqlite": {"$id": "INTEGER PRIMARY KEY AUTOINCREMENT", "$bytes": "BLOB"},
    "postgresql": {"$id": "BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY", "$bytes": "BYTEA"},
}

_TOKENS_AND_SESSIONS = (
    """
    CREATE TABLE tokens (
        token_id VARCHAR(32) NOT NULL PRIMARY KEY,
        digest $bytes NOT NULL,
        description VARCHAR(200) NOT NULL,
        kind VARCHAR(16) NOT NULL,
        tenant VARCHAR(200) NOT NULL,
        user_name VARCHAR(200) NOT NULL,
        scopes VARCHAR(200) NOT NULL,
        created_at BIGINT NOT NULL,
        expires_at BIGINT,
        revoked_at BIGINT
    )
    """,
    "CREATE INDEX tokens_newest_first ON tokens (created_at, token_id)",
    """
    CREATE TABLE chat_sessions (
        id $id,
        deployment_id VARCHAR(200) NOT NULL,
        tenant VARCHAR(200) NOT NULL,
        user_name VARCHAR(250) NOT NULL,
        session_id VARCHAR(200) NOT NULL,
        created_at BIGINT NOT NULL,
        updated_at BIGINT NOT NULL,
        num_messages INTEGER NOT NULL,
        turn_id VARCHAR(32),
        turn_expires_at BIGINT,
        CONSTRAINT chat_sessions_name UNIQUE (deployment_id, tenant, user_name, session_id)
    )
    """,
    "CREATE INDEX chat_sessions_newest_first ON chat_sessions (deployment_id, tenant, user_name, updated_at, id)",
    """
    CREATE TABLE chat_messages (
        session BIGINT NOT NULL REFERENCES chat_sessions (id) ON DELETE CASCADE,
        position INTEGER NOT NULL,
        role VARCHAR(16) NOT NULL,
        content $bytes NOT NULL,
        created_at BIGINT NOT NULL,
        incomplete BOOLEAN NOT NULL,
        PRIMARY KEY (session, position)
    )
    """,
)

_DEPLOYMENTS = (
    """
    CREATE TABLE deployments (
        deployment_id VARCHAR(200) NOT NULL PRIMARY KEY,
        version BIGINT NOT NULL,
        tenant VARCHAR(200) NOT NULL,
        memory_scope VARCHAR(16),
        kind VARCHAR(16) NOT NULL,
        source $bytes,
        deployed_at BIGINT NOT NULL
    )
    """,
)

MIGRATIONS: tuple[tuple[str, ...], ...] = (_TOKENS_AND_SESSIONS, _DEPLOYMENTS)
"""Step i makes version i + 1 of version i."""


async def lock(connection: AsyncConnection) -> None:
    """No other server passes here until this transaction ends. SQLite's writers need nothing: they are alone."""
    if connection.dialect.name == "postgresql":
        await connection.execute(sa.select(sa.func.pg_advisory_xact_lock(_LOCK)))


async def migrate(connection: AsyncConnection) -> None:
    """Bring the schema to the newest version. Raises FailedPrecondition when it is newer than this gradwire."""
    dialect = connection.dialect.name
    await lock(connection)
    await connection.exec_driver_sql("CREATE TABLE IF NOT EXISTS gradwire_schema (version INTEGER PRIMARY KEY)")
    found = (await connection.execute(sa.text("SELECT max(version) FROM gradwire_schema"))).scalar() or 0
    if found > len(MIGRATIONS):
        raise FailedPrecondition(
            "DATABASE_TOO_NEW",
            f"the database is of a newer gradwire: its schema is version {found}, this one knows up to "
            f"{len(MIGRATIONS)}; install that gradwire, or name another database",
        )
    for number in range(found, len(MIGRATIONS)):
        for statement in MIGRATIONS[number]:
            for placeholder, written in _TYPES[dialect].items():
                statement = statement.replace(placeholder, written)
            await connection.exec_driver_sql(statement)
        await connection.execute(sa.text("INSERT INTO gradwire_schema VALUES (:version)"), {"version": number + 1})
