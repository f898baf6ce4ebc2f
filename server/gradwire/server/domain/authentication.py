"""From what a caller sends to who it is. One for all doors: gRPC's metadata and HTTP's headers say the same.

Knows: tokens of the settings and of the store, external users. Does not know: services and their scopes.
"""

from __future__ import annotations

import hashlib
import hmac
import logging
import re
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from gradwire.server.domain.caller import LOCAL_CALLER, Caller
from gradwire.server.domain.credentials import TokenKind, TokenRecord, TokenStore, matches, now, token_id_of
from gradwire.server.domain.token_advice import any_token
from gradwire.server.errors import Unauthenticated

log = logging.getLogger(__name__)

EXTERNAL_USER_HEADER = "x-external-user-id"
CACHE_S = 2.0
"""For so long another server, or a change straight in the database, can go unnoticed."""
_MAX_CACHED = 4096
_EXTERNAL_USER = re.compile(r"[\x21-\x7e]{1,200}")


@dataclass(frozen=True, slots=True)
class ConfiguredToken:
    """A token of the settings, by the SHA-256 of its secret in hex."""

    sha256: str = field(repr=False)
    caller: Caller


class Authenticator:
    """Who is calling. Without a store and tokens, every caller is the local one."""

    def __init__(
        self,
        configured: Sequence[ConfiguredToken] = (),
        store: TokenStore | None = None,
        on_failure: Callable[[str], None] = lambda reason: None,
    ) -> None:
        """`on_failure` counts refusals by their reason."""
        self._configured = tuple(configured)
        self._store = store
        self._on_failure = on_failure
        self._cache: dict[str, tuple[float, TokenRecord]] = {}
        self.changes = 0
        """Counts what `forget` is told: while it stands still, no token was ended on this server."""

    @property
    def is_open(self) -> bool:
        """Nobody needs a token."""
        return self._store is None and not self._configured

    async def identify(self, authorization: str | None, external_user_id: str | None = None) -> Caller:
        """The caller, of the values of the two headers (None: not sent).

        Raises Unauthenticated, and Unavailable when the store cannot be reached.
        """
        try:
            if self.is_open:
                return _local(external_user_id)
            return await self._identify(_secret(authorization), external_user_id)
        except Unauthenticated as error:
            self._on_failure(error.reason)
            raise

    def forget(self, token_id: str) -> None:
        """A token has changed: look at the store again."""
        self.changes += 1  # a look at the store that is under way may be of before
        self._cache.pop(token_id, None)

    async def _identify(self, secret: str, external_user_id: str | None) -> Caller:
        caller = self._of_settings(secret)
        if caller is not None:
            if external_user_id is not None:
                raise _no_external_user()
            return caller
        token_id = token_id_of(secret)
        record = None if token_id is None else await self._find(token_id)
        if record is None or not matches(record, secret):
            raise Unauthenticated(
                "TOKEN_UNKNOWN", f"this token is not known here; is it whole, and of this server? If not, {any_token()}"
            )
        if record.revoked_at is not None:
            raise Unauthenticated("TOKEN_REVOKED", f"this token was revoked; {any_token()}")
        if record.expires_at is not None and record.expires_at <= now():
            raise Unauthenticated("TOKEN_EXPIRED", f"this token has expired; {any_token()}")
        return Caller(
            record.tenant,
            record.token_id,
            record.scopes,
            user=_user(record, external_user_id),
            expires_at=record.expires_at,
        )

    def _of_settings(self, secret: str) -> Caller | None:
        digest = hashlib.sha256(secret.encode()).hexdigest()
        found: Caller | None = None
        for token in self._configured:  # all of them, so that time does not tell which one matched
            if hmac.compare_digest(token.sha256, digest):
                found = token.caller
        return found

    async def _find(self, token_id: str) -> TokenRecord | None:
        cached = self._cache.get(token_id)
        if cached is not None and time.monotonic() < cached[0]:
            return cached[1]
        if self._store is None:
            return None
        began, changes = time.monotonic(), self.changes
        record = await self._store.find(token_id)
        if record is not None and changes == self.changes:
            if len(self._cache) >= _MAX_CACHED:
                self._cache.clear()
            self._cache[token_id] = (began + CACHE_S, record)
        return record


def _secret(authorization: str | None) -> str:
    kind, _, secret = (authorization or "").partition(" ")
    secret = secret.strip()
    if kind.lower() != "bearer" or not secret:
        raise Unauthenticated(
            "TOKEN_MISSING",
            "this server wants a token: send 'authorization: Bearer TOKEN' (the Python client: token=, or "
            f"GRADWIRE_TOKEN). The first one was shown when the server first started; {any_token()}",
        )
    return secret


def _user(record: TokenRecord, external_user_id: str | None) -> str:
    """Whose conversations these are. An organisation's token and an external user belong together."""
    if record.kind is TokenKind.ORGANIZATION:
        if external_user_id is None:
            raise Unauthenticated(
                "EXTERNAL_USER_MISSING", f"an organisation's token acts for a user: send '{EXTERNAL_USER_HEADER}: ID'"
            )
        return _external(external_user_id)
    if external_user_id is not None:
        raise _no_external_user()
    return f"user:{record.user}" if record.user else f"token:{record.token_id}"


def _external(external_user_id: str) -> str:
    if not _EXTERNAL_USER.fullmatch(external_user_id):
        raise Unauthenticated(
            "EXTERNAL_USER_INVALID", f"{EXTERNAL_USER_HEADER} must be 1 to 200 visible ASCII characters, no spaces"
        )
    return f"external:{external_user_id}"


def _no_external_user() -> Unauthenticated:
    return Unauthenticated(
        "EXTERNAL_USER_NOT_ALLOWED", f"{EXTERNAL_USER_HEADER} goes with an organisation's token; this is one person's"
    )


def _local(external_user_id: str | None) -> Caller:
    """Without authentication an external user is taken at its word, so that what is tried here works there."""
    if external_user_id is None:
        return LOCAL_CALLER
    return Caller(LOCAL_CALLER.tenant, LOCAL_CALLER.name, LOCAL_CALLER.scopes, user=_external(external_user_id))
