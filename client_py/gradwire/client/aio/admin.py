"""`client.admin`: what the server can do, and who may use it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from gradwire.client._convert.admin import capabilities_from_proto, token_from_proto
from gradwire.client._convert.messages import put, put_field
from gradwire.client._convert.times import duration
from gradwire.client._core.connection import Connection
from gradwire.client._core.rpc import Rpc
from gradwire.client.types.admin import Capabilities, CreatedToken, Scope, Token, TokenKind
from gradwire.v1 import admin_pb2 as pb

_SERVICE = "/gradwire.v1.AdminService/"
_CAPABILITIES = Rpc(
    _SERVICE + "GetCapabilities", pb.GetCapabilitiesRequest, pb.GetCapabilitiesResponse, repeatable=True
)
# Sent twice it makes two tokens, and the first one's secret is known to nobody.
_CREATE = Rpc(_SERVICE + "CreateToken", pb.CreateTokenRequest, pb.CreateTokenResponse, repeatable=False, changes=True)
_LIST = Rpc(_SERVICE + "ListTokens", pb.ListTokensRequest, pb.ListTokensResponse, repeatable=True)
_REVOKE = Rpc(_SERVICE + "RevokeToken", pb.RevokeTokenRequest, pb.RevokeTokenResponse, repeatable=True)


class AsyncAdmin:
    """Describes and administers the server."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    async def get_capabilities(self, *, timeout: float | None = None) -> Capabilities:
        """What this server is and can do. Needs no scope."""
        request = pb.GetCapabilitiesRequest()
        found = capabilities_from_proto(await self._connection.unary(_CAPABILITIES, request, timeout=timeout))
        return replace(found, http_url=self._connection.reachable(found.http_url))

    async def create_token(
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
        request = pb.CreateTokenRequest(lifetime=duration(lifetime_s, "lifetime_s"))
        put(request, description=description, kind=kind, tenant=tenant, scopes=scopes, user=user)
        response = await self._connection.unary(_CREATE, request, timeout=timeout)
        return CreatedToken(token_from_proto(response.token), response.secret)

    async def list_tokens(self, tenant: str = "", *, timeout: float | None = None) -> tuple[Token, ...]:
        """All tokens, or those of `tenant`, without their secrets; newest first."""
        found: list[Token] = []
        request = put(pb.ListTokensRequest(), tenant=tenant)
        while True:
            page = await self._connection.unary(_LIST, request, timeout=timeout)
            found += map(token_from_proto, page.tokens)
            if not page.next_page_token:
                return tuple(found)
            request.page_token = page.next_page_token

    async def revoke_token(self, token: Token | str, *, timeout: float | None = None) -> None:
        """Ends a token (or the one of that id). Ending it again is fine."""
        request = pb.RevokeTokenRequest()
        put_field(request, "token_id", token.token_id if isinstance(token, Token) else token, "token")
        await self._connection.unary(_REVOKE, request, timeout=timeout)
