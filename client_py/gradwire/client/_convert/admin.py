"""Capabilities and tokens, from messages."""

from __future__ import annotations

from gradwire.client._convert.enums import enum_from_proto
from gradwire.client._convert.times import moment
from gradwire.client._convert.weights import transport_from_proto
from gradwire.client.types.admin import Capabilities, LossInfo, Scope, Token, TokenKind
from gradwire.v1 import admin_pb2 as pb


def capabilities_from_proto(response: pb.GetCapabilitiesResponse) -> Capabilities:
    """What the server is and can do."""
    losses = tuple(
        LossInfo(loss.name, tuple(loss.aliases), tuple(loss.config_keys), loss.description) for loss in response.losses
    )
    return Capabilities(
        version=response.version,
        services=tuple(response.services),
        device=response.device,
        max_message_bytes=response.max_message_bytes,
        max_upload_bytes=response.max_upload_bytes,
        losses=losses,
        weight_transports=tuple(transport_from_proto(number) for number in response.weight_transports),
        shared_memory=response.shared_memory,
        model=response.model,
        engines=tuple(response.engines),
        http_url=response.http_url,
    )


def token_from_proto(message: pb.Token) -> Token:
    """A token without its secret."""
    return Token(
        token_id=message.token_id,
        description=message.description,
        kind=enum_from_proto(TokenKind, pb.TokenKind, message.kind),
        tenant=message.tenant,
        scopes=tuple(enum_from_proto(Scope, pb.Scope, number) for number in message.scopes),
        created_at=moment(message, "created_at"),
        expires_at=moment(message, "expires_at"),
        revoked_at=moment(message, "revoked_at"),
        user=message.user,
    )
