"""What tests of rollouts share: a server on a fake engine, and a client of its OpenAI door."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import aiohttp
import numpy as np

from gradwire.v1 import rollout_pb2 as pb
from tests.rpc.support import Served

OK, CANCELLED = pb.ROLLOUT_OUTCOME_OK, pb.ROLLOUT_OUTCOME_CANCELLED
DONE, ABANDONED = pb.ROLLOUT_CALL_STATUS_DONE, pb.ROLLOUT_CALL_STATUS_ABANDONED


@dataclass
class Played:
    """A server, and an HTTP client of its OpenAI door."""

    served: Served
    http: aiohttp.ClientSession
    metadata: Any = None
    headers: dict[str, str] = field(default_factory=dict)

    @property
    def rpc(self) -> Any:
        return self.served.rollouts

    @property
    def engine(self) -> Any:
        return self.served.engines.samplers[0].openai

    async def open(self, *specs: pb.RolloutSpec, **options: Any) -> list[pb.Rollout]:
        request = pb.OpenRolloutsRequest(rollouts=specs or [pb.RolloutSpec()], **options)
        return list((await self.rpc.OpenRollouts(request, metadata=self.metadata)).rollouts)

    async def call(
        self, where: str, prompt: str = "abc", *, stream: bool = False, headers: Any = None
    ) -> tuple[int, Any]:
        body = {"prompt": prompt, "stream": stream}
        async with self.http.post(where, json=body, headers={**self.headers, **(headers or {})}) as response:
            return response.status, await (response.text() if stream else response.json())

    async def get(self, rollout: pb.Rollout, **options: Any) -> pb.GetRolloutResponse:
        request = pb.GetRolloutRequest(rollout_id=rollout.rollout_id, **options)
        return await self.rpc.GetRollout(request, metadata=self.metadata)

    async def finish(self, rollout: pb.Rollout, outcome: Any = OK, **options: Any) -> pb.Rollout:
        request = pb.FinishRolloutRequest(rollout_id=rollout.rollout_id, outcome=outcome, **options)
        return (await self.rpc.FinishRollout(request, metadata=self.metadata)).rollout

    async def collect(self, **options: Any) -> list[pb.CollectRolloutsResponse]:
        request = pb.CollectRolloutsRequest(**options)
        return [message async for message in self.rpc.CollectRollouts(request, metadata=self.metadata)]


def path(rollout: pb.Rollout) -> str:
    return f"{rollout.base_path}/completions"


def ids(text: str) -> bytes:
    return np.frombuffer(text.encode(), np.uint8).astype("<i4").tobytes()


def collected_once(played: Played, rollout: pb.Rollout) -> Callable[[], Any]:
    async def collected() -> bool:
        return (await played.get(rollout)).rollout.HasField("collected_at")

    return collected
