"""AdminService: what the server is and can do, and the tokens of those who may use it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from gradwire.server.codec.times import timestamp_us
from gradwire.server.domain import credentials
from gradwire.server.domain.authentication import Authenticator
from gradwire.server.domain.credentials import TokenKind, TokenRecord, TokenStore
from gradwire.server.domain.cursors import decode_cursor, encode_cursor
from gradwire.v1 import admin_pb2, admin_pb2_grpc, weight_pb2


@dataclass(frozen=True, slots=True)
class LossDescription:
    """A loss as the registry describes it."""

    name: str
    aliases: tuple[str, ...]
    config_keys: tuple[str, ...]
    description: str


@dataclass(frozen=True, slots=True)
class Capabilities:
    """What does not change once the server runs."""

    version: str
    services: tuple[str, ...]
    device: str
    max_message_bytes: int
    max_upload_bytes: int
    losses: Sequence[LossDescription]
    model: str
    engines: tuple[str, ...]
    shared_memory: bool
    http_url: Callable[[], str]  # known once the HTTP door is open; empty without one


_KINDS = {
    admin_pb2.TOKEN_KIND_UNSPECIFIED: TokenKind.PROFILE,
    admin_pb2.TOKEN_KIND_PROFILE: TokenKind.PROFILE,
    admin_pb2.TOKEN_KIND_ORGANIZATION: TokenKind.ORGANIZATION,
}
_PAGE_SIZE = 100


class AdminServicer(admin_pb2_grpc.AdminServiceServicer):
    """Adapter of the server's description and of its tokens."""

    def __init__(self, capabilities: Capabilities, tokens: TokenStore, authenticator: Authenticator) -> None:
        facts = capabilities
        self._tokens = tokens
        self._authenticator = authenticator
        self._http_url = facts.http_url
        self._response = admin_pb2.GetCapabilitiesResponse(
            version=facts.version,
            services=facts.services,
            device=facts.device,
            max_message_bytes=facts.max_message_bytes,
            max_upload_bytes=facts.max_upload_bytes,
            losses=[
                admin_pb2.LossInfo(
                    name=loss.name, aliases=loss.aliases, config_keys=loss.config_keys, description=loss.description
                )
                for loss in facts.losses
            ],
            weight_transports=[weight_pb2.WEIGHT_TRANSPORT_SHARED_MEMORY],
            shared_memory=facts.shared_memory,
            model=facts.model,
            engines=facts.engines,
        )

    async def GetCapabilities(
        self, request: admin_pb2.GetCapabilitiesRequest, context: Any
    ) -> admin_pb2.GetCapabilitiesResponse:
        response = admin_pb2.GetCapabilitiesResponse(http_url=self._http_url())
        response.MergeFrom(self._response)
        return response

    async def CreateToken(self, request: admin_pb2.CreateTokenRequest, context: Any) -> admin_pb2.CreateTokenResponse:
        new = credentials.new_token(
            tenant=request.tenant,
            scopes=frozenset(_scope_name(number) for number in request.scopes),
            kind=_KINDS[request.kind],
            user=request.user,
            description=request.description,
            lifetime_s=request.lifetime.ToNanoseconds() / 1e9 if request.HasField("lifetime") else None,
        )
        await self._tokens.add(new.record)
        return admin_pb2.CreateTokenResponse(token=_encode_token(new.record), secret=new.secret)

    async def ListTokens(self, request: admin_pb2.ListTokensRequest, context: Any) -> admin_pb2.ListTokensResponse:
        size = request.page_size if request.HasField("page_size") else _PAGE_SIZE
        found, after = await self._tokens.page(request.tenant, size, decode_cursor(request.page_token, str))
        return admin_pb2.ListTokensResponse(tokens=map(_encode_token, found), next_page_token=encode_cursor(after))

    async def RevokeToken(self, request: admin_pb2.RevokeTokenRequest, context: Any) -> admin_pb2.RevokeTokenResponse:
        try:
            await credentials.revoke(self._tokens, request.token_id)
        finally:  # also when the caller has gone: the token ends all the same
            self._authenticator.forget(request.token_id)
        return admin_pb2.RevokeTokenResponse()


def _scope_name(number: admin_pb2.Scope) -> str:
    return str(admin_pb2.Scope.Name(number)).removeprefix("SCOPE_")


def _encode_token(record: TokenRecord) -> admin_pb2.Token:
    return admin_pb2.Token(
        token_id=record.token_id,
        description=record.description,
        kind=f"TOKEN_KIND_{record.kind.name}",
        tenant=record.tenant,
        scopes=[f"SCOPE_{name}" for name in sorted(record.scopes)],
        created_at=timestamp_us(record.created_at),
        expires_at=None if record.expires_at is None else timestamp_us(record.expires_at),
        revoked_at=None if record.revoked_at is None else timestamp_us(record.revoked_at),
        user=record.user,
    )
