"""The ArcticRL client: forward-backward passes, steps, sampling and weight syncs, as its document shows them.

    from gradwire.client.arctic import ArcticRLClientConfig, create_arctic_rl_client

    config = ArcticRLClientConfig(model_name="tiny", training_gpus=1, sampling_gpus=1)
    async with create_arctic_rl_client(config) as client:
        print(await client.generate(["Hello, world!"], {"max_tokens": 20}))

Thin: everything goes through `gradwire.client.AsyncClient`. docs/arctic.md has the rest.
"""

from __future__ import annotations

from gradwire.client.arctic.attach import ServerState
from gradwire.client.arctic.client import (
    ArcticRLClient,
    ArcticRLGrpcClient,
    ArcticRLHTTPClient,
    ArcticRLRayClient,
    create_arctic_rl_client,
)
from gradwire.client.arctic.config import ArcticRLClientConfig
from gradwire.client.arctic.streams import ArcticRLStream
from gradwire.client.arctic.sync import SyncArcticRLClient, SyncArcticRLStream
from gradwire.client.arctic.warning import ArcticRLWarning

__all__ = [
    "ArcticRLClient",
    "ArcticRLClientConfig",
    "ArcticRLGrpcClient",
    "ArcticRLHTTPClient",
    "ArcticRLRayClient",
    "ArcticRLStream",
    "ArcticRLWarning",
    "ServerState",
    "SyncArcticRLClient",
    "SyncArcticRLStream",
    "create_arctic_rl_client",
]
