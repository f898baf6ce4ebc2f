"""AdminService: what the server is and can do."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from gradwire.server.errors import Unimplemented
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
    """What does not change while the server runs."""

    version: str
    services: tuple[str, ...]
    device: str
    max_message_bytes: int
    max_upload_bytes: int
    losses: Sequence[LossDescription]
    model: str
    engines: tuple[str, ...]
    shared_memory: bool


class AdminServicer(admin_pb2_grpc.AdminServiceServicer):
    """Tokens are set in the configuration in this version; their calls say so."""

    def __init__(self, capabilities: Capabilities) -> None:
        facts = capabilities
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
        return self._response

    async def CreateToken(self, request: Any, context: Any) -> admin_pb2.CreateTokenResponse:
        raise _configured("CreateToken")

    async def ListTokens(self, request: Any, context: Any) -> admin_pb2.ListTokensResponse:
        raise _configured("ListTokens")

    async def RevokeToken(self, request: Any, context: Any) -> admin_pb2.RevokeTokenResponse:
        raise _configured("RevokeToken")


def _configured(method: str) -> Unimplemented:
    return Unimplemented(
        "NOT_IN_THIS_VERSION", f"{method}: tokens of this version are set in the server's configuration, [[tokens]]"
    )
