"""The ArcticRL clients: one surface, three ways to a server.

Knows: which class speaks what. Does not know: anything else; the methods are in `training` and `sampling`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gradwire.client._convert.nearest import unknown_name
from gradwire.client.arctic.attach import ServerState
from gradwire.client.arctic.config import ArcticRLClientConfig
from gradwire.client.arctic.sampling import ArcticRLSampling
from gradwire.client.arctic.training import ArcticRLTraining


class ArcticRLClient(ArcticRLTraining, ArcticRLSampling):
    """What the three clients have in common, which is all but the way to the server."""


class ArcticRLGrpcClient(ArcticRLClient):
    """Calls over gRPC."""

    protocol = "grpc"


class ArcticRLHTTPClient(ArcticRLClient):
    """Calls over HTTP, with the same messages."""

    protocol = "http"


class ArcticRLRayClient(ArcticRLClient):
    """The server is a Ray actor, found by Ray; calls go over gRPC."""

    protocol = "ray"


CLIENTS: Mapping[str, type[ArcticRLClient]] = {
    kind.protocol: kind for kind in (ArcticRLGrpcClient, ArcticRLHTTPClient, ArcticRLRayClient)
}


def create_arctic_rl_client(
    config: ArcticRLClientConfig | Mapping[str, Any], arctic_rl_server_state: ServerState | None = None
) -> ArcticRLClient:
    """The client of `config.comm_protocol`. Blocks until its jobs are ready, inside a running event loop too.

    `arctic_rl_server_state` is another client's `get_server_state()`: its server is used, and not stopped.
    """
    protocol = config.get("comm_protocol", "grpc") if isinstance(config, Mapping) else config.comm_protocol
    if protocol not in CLIENTS:
        raise ValueError(unknown_name("comm_protocol", protocol, CLIENTS))
    return CLIENTS[protocol](config, arctic_rl_server_state)
