"""Tokens straight in the database, called as `client.admin` is. A running server sees a change within seconds."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from datetime import UTC, datetime
from pathlib import Path

from gradwire.client import CreatedToken, Scope, Token
from gradwire.client import TokenKind as ClientTokenKind
from gradwire.client.errors import BY_CODE
from gradwire.server.domain import credentials
from gradwire.server.domain.credentials import TokenKind, TokenRecord, TokenStore
from gradwire.server.domain.cursors import Cursor
from gradwire.server.errors import GradwireError
from gradwire.server.storage.database import DATABASE_LOG, Database, cause_of, database_url
from gradwire.server.storage.tokens import DatabaseTokens

_PAGE = 1000


class OfflineTokens:
    """Tokens of a store."""

    def __init__(self, store: TokenStore) -> None:
        self._store = store

    async def create_token(
        self,
        tenant: str,
        scopes: Sequence[str],
        *,
        description: str = "",
        kind: str | None = None,
        lifetime_s: float | None = None,
        user: str = "",
    ) -> CreatedToken:
        """A token and its secret. Raises InvalidArgument."""
        new = credentials.new_token(
            tenant=tenant,
            scopes=frozenset(scope.upper() for scope in scopes),
            kind=TokenKind(kind or "profile"),
            user=user,
            description=description,
            lifetime_s=lifetime_s,
        )
        await self._store.add(new.record)
        return CreatedToken(_token(new.record), new.secret)

    async def list_tokens(self, tenant: str = "") -> tuple[Token, ...]:
        """All tokens, or a tenant's; the newest first."""
        found: list[Token] = []
        after: Cursor | None = None
        while True:
            page, after = await self._store.page(tenant, _PAGE, after)
            found += map(_token, page)
            if after is None:
                return tuple(found)

    async def revoke_token(self, token: str) -> None:
        """End it; ending it again is fine. Raises NotFound."""
        await credentials.revoke(self._store, token)


@asynccontextmanager
async def open_offline(where: str, *, create: bool) -> AsyncIterator[OfflineTokens]:
    """The tokens of a database: a URL, a file, or a server's data folder. OSError when there is none, unless
    `create`. What it refuses is the client's error, as if a server had said so."""
    database = Database(database_url(_setting(where, create=create), Path()))
    with _only_one_line():
        try:
            await database.open()
            yield OfflineTokens(DatabaseTokens(database))
        except GradwireError as error:
            raise BY_CODE[error.code](_told(error), reason=error.reason) from error
        finally:
            await database.close()


@contextmanager
def _only_one_line() -> Iterator[None]:
    """The database logs why it fails, for whoever runs a server. Here the error itself tells it."""
    log, nowhere = logging.getLogger(DATABASE_LOG), logging.NullHandler()
    log.addHandler(nowhere)
    try:
        yield
    finally:
        log.removeHandler(nowhere)


def _told(error: GradwireError) -> str:
    """With the cause, which a server would keep from its callers."""
    cause = cause_of(error)
    return error.message if cause in error.message else f"{error.message}: {cause}"


def _setting(where: str, *, create: bool) -> str:
    if "://" in where:
        return where
    path = Path(where).expanduser().absolute()
    if path.is_dir():
        path /= "gradwire.db"
    if not create and not path.is_file():
        raise FileNotFoundError(f"there is no database {path}; name the data folder of a server, or its file")
    return f"sqlite:///{path}"


def _token(record: TokenRecord) -> Token:
    return Token(
        token_id=record.token_id,
        description=record.description,
        kind=ClientTokenKind(record.kind.value),
        tenant=record.tenant,
        scopes=tuple(Scope(name.lower()) for name in sorted(record.scopes)),
        created_at=_moment(record.created_at),
        expires_at=_moment(record.expires_at),
        revoked_at=_moment(record.revoked_at),
        user=record.user,
    )


def _moment(unix_us: int | None) -> datetime | None:
    return None if unix_us is None else datetime.fromtimestamp(unix_us / 1e6, UTC)
