"""`client.admin`: what the server can do, and who may use it.

Generated from `gradwire.client.aio.admin` by scripts/gen_sync_client.py; edit that instead.
"""

from __future__ import annotations

from collections.abc import Sequence

from gradwire.client.aio.admin import AsyncAdmin
from gradwire.client.sync.portal import Portal
from gradwire.client.types.admin import Capabilities, CreatedToken, Scope, Token, TokenKind


class Admin:
    """Describes and administers the server."""

    def __init__(self, client: AsyncAdmin, loop: Portal) -> None:
        self._async = client
        self._loop = loop

    def get_capabilities(self, *, timeout: float | None = None) -> Capabilities:
        """What this server is and can do. Needs no scope."""
        return self._loop.run(self._async.get_capabilities(timeout=timeout))

    def create_token(
        self,
        tenant: str,
        scopes: Sequence[Scope | str],
        *,
        description: str = "",
        kind: TokenKind | str | None = None,
        lifetime_s: float | None = None,
        user: str = "",
        timeout: float | None = None,
    ) -> CreatedToken:
        """Makes a token of `tenant`. Its secret is in the result and never shown again.

        `scopes` are "inference", "training", "admin"; `description` is for people. `kind` is of one person by
        default. It lives `lifetime_s` seconds, for ever by default. All tokens of one `user` within the tenant reach
        that person's conversations; by default those of this token are its own.
        """
        return self._loop.run(
            self._async.create_token(
                tenant, scopes, description=description, kind=kind, lifetime_s=lifetime_s, user=user, timeout=timeout
            )
        )

    def list_tokens(self, tenant: str = "", *, timeout: float | None = None) -> tuple[Token, ...]:
        """All tokens, or those of `tenant`, without their secrets; newest first."""
        return self._loop.run(self._async.list_tokens(tenant, timeout=timeout))

    def revoke_token(self, token: Token | str, *, timeout: float | None = None) -> None:
        """Ends a token (or the one of that id). Ending it again is fine."""
        self._loop.run(self._async.revoke_token(token, timeout=timeout))
