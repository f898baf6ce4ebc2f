"""What tests of rollouts share: a server on a fake engine, and a client of its OpenAI door."""

from __future__ import annotations

import asyncio
import json
import re
import socket
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import aiohttp
import numpy as np

from gradwire.v1 import rollout_pb2 as pb
from tests.rpc.support import Served

OK, CANCELLED = pb.ROLLOUT_OUTCOME_OK, pb.ROLLOUT_OUTCOME_CANCELLED
DONE, ABANDONED = pb.ROLLOUT_CALL_STATUS_DONE, pb.ROLLOUT_CALL_STATUS_ABANDONED
RETRIED = pb.ROLLOUT_CALL_STATUS_RETRIED


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


def counted(retries: object) -> dict[str, str]:
    return {"x-stainless-retry-count": str(retries)}


async def send(played: Played, where: str, headers: dict[str, str], *, stream: bool = False) -> socket.socket:
    """A request whose answer nobody reads."""
    body = json.dumps({"prompt": "abc", "stream": stream}).encode()
    host, port = str(played.served.app.http_address).split(":")
    lines = [f"POST {where} HTTP/1.1", f"host: {host}", f"content-length: {len(body)}"]
    lines += [f"{name}: {value}" for name, value in headers.items()]
    loop, connection = asyncio.get_running_loop(), socket.socket()
    connection.setblocking(False)
    await loop.sock_connect(connection, (host, int(port)))
    await loop.sock_sendall(connection, "\r\n".join([*lines, "", ""]).encode() + body)
    return connection


async def read_id(connection: socket.socket) -> str:
    """The whole answer's, or the stream's."""
    data = b""
    while not data.endswith((b"}", b"\r\n0\r\n\r\n")):
        data += (piece := await asyncio.get_running_loop().sock_recv(connection, 1 << 16))
        assert piece, data
    found = re.search(rb'(?:"id": ?"|data: )([0-9a-f]{32})', data)
    assert found, data
    return found[1].decode()


async def statuses(played: Played, rollout: pb.Rollout) -> list[Any]:
    return [call.status for call in (await played.get(rollout)).calls]
