"""Tokens: how they are made, stored and recognised. Knows no door and no database.

A secret is `gradwire_pat_ID_RANDOM` (of one person) or `gradwire_org_ID_RANDOM` (of an organisation), RANDOM being 256
random bits. Only its SHA-256 is stored: there is nothing to guess that a slow hash would make harder. ID finds the row,
and the digests are compared in constant time.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Protocol

from gradwire.server.domain.cursors import Cursor
from gradwire.server.errors import InvalidArgument, NotFound

SCOPES = ("INFERENCE", "TRAINING", "ADMIN")
_SECRET = re.compile(r"gradwire_(pat|org)_([0-9a-f]{16})_[A-Za-z0-9_-]{43}")
_MAX_NAME = 200
_MAX_LIFETIME_S = 100 * 365 * 86400.0


class TokenKind(StrEnum):
    """Whose a token is."""

    PROFILE = "profile"  # one person's
    ORGANIZATION = "organization"  # an organisation's, that acts for users of its own


_WORDS = {TokenKind.PROFILE: "pat", TokenKind.ORGANIZATION: "org"}


@dataclass(frozen=True, slots=True)
class TokenRecord:
    """A token as it is stored. Times are Unix microseconds."""

    token_id: str
    digest: bytes = field(repr=False)
    description: str
    kind: TokenKind
    tenant: str
    user: str
    """The person, of a PROFILE token. Empty: the token itself is the user."""
    scopes: frozenset[str]
    created_at: int
    expires_at: int | None = None
    revoked_at: int | None = None


class TokenStore(Protocol):
    """Where tokens lie."""

    async def add(self, record: TokenRecord) -> None:
        """Store a token."""

    async def add_first(self, record: TokenRecord) -> bool:
        """Store a token if there is none at all, revoked ones included; whether it did."""

    async def find(self, token_id: str) -> TokenRecord | None:
        """The token of an id."""

    async def page(self, tenant: str, size: int, after: Cursor | None) -> tuple[Sequence[TokenRecord], Cursor | None]:
        """The newest first, of one tenant or (empty) all, and where the next page begins."""

    async def revoke(self, token_id: str, at: int) -> bool:
        """Mark a token as revoked, once; whether there is such a token."""


@dataclass(frozen=True, slots=True)
class NewToken:
    """A token and its secret, which nobody can show again."""

    record: TokenRecord
    secret: str = field(repr=False)


def digest_of(secret: str) -> bytes:
    """What is stored of a secret."""
    return hashlib.sha256(secret.encode()).digest()


def token_id_of(secret: str) -> str | None:
    """The id within a secret; None when it is no secret of ours."""
    match = _SECRET.fullmatch(secret)
    return match[2] if match else None


def matches(record: TokenRecord, secret: str) -> bool:
    """Whether a secret is this token's, in a time that does not depend on how far it is right."""
    return hmac.compare_digest(record.digest, digest_of(secret))


def new_token(
    *,
    tenant: str,
    scopes: frozenset[str],
    kind: TokenKind = TokenKind.PROFILE,
    user: str = "",
    description: str = "",
    lifetime_s: float | None = None,
) -> NewToken:
    """A token of `tenant` that lives `lifetime_s` seconds, for ever by default. Raises InvalidArgument."""
    _check_text("tenant", tenant)
    _check_text("user", user)
    _check_text("description", description)
    if not tenant:
        raise InvalidArgument.at("tenant", "is empty; name the organisation or person that the token acts for")
    if not scopes or scopes - set(SCOPES):
        raise InvalidArgument.at("scopes", f"are {sorted(scopes)}; give at least one of {list(SCOPES)}")
    if user and kind is TokenKind.ORGANIZATION:
        raise InvalidArgument.at("user", "an organisation's token has none: each call names its user")
    if lifetime_s is not None and not 0 < lifetime_s <= _MAX_LIFETIME_S:
        raise InvalidArgument.at("lifetime", "must be above 0 and at most 100 years; leave it out for no end")
    token_id = secrets.token_hex(8)
    secret = f"gradwire_{_WORDS[kind]}_{token_id}_{secrets.token_urlsafe(32)}"
    created = now()
    expires = None if lifetime_s is None else created + int(lifetime_s * 1e6)
    record = TokenRecord(token_id, digest_of(secret), description, kind, tenant, user, scopes, created, expires)
    return NewToken(record, secret)


async def revoke(store: TokenStore, token_id: str) -> None:
    """End a token; ending it again is fine. Raises NotFound."""
    if not await store.revoke(token_id, now()):
        raise NotFound(
            "token", token_id, f"token_id: no token {token_id!r}; `gradwire token list` shows them (a token of the "
            "settings file ends when it is taken out there)",
        )  # fmt: skip


def now() -> int:
    """Unix microseconds."""
    return time.time_ns() // 1000


def _check_text(name: str, text: str) -> None:
    if len(text) > _MAX_NAME or not all(character.isprintable() for character in text):
        raise InvalidArgument.at(name, f"must be at most {_MAX_NAME} printable characters")
