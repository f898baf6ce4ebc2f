"""A server of the generated servicers for the transport and fault tests of the clients: no engine behind it.

Knows: recording what arrives, and failing on demand. A test sets `failures` (statuses to send before
answering) and reads `requests`, `metadata` and `cancelled`.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from typing import Any

import grpc
import grpc.aio
from google.protobuf.message import Message
from google.rpc import status_pb2

from gradwire.server.http.connect.door import ConnectDoor
from gradwire.server.http.connect.methods import MethodTable
from gradwire.server.http.server import HttpServer
from gradwire.server.rpc.interceptors.step import Chain
from gradwire.v1 import (
    sampling_pb2,
)
from tests.client.services import SERVICES
from tests.client.wire import Context, fail


class Fake:
    """What arrived, and what is to go wrong, by the RPC's bare name."""

    def __init__(self, *, http: bool = False) -> None:
        self.http = http
        self.requests: defaultdict[str, list[Any]] = defaultdict(list)
        self.metadata: defaultdict[str, list[dict[str, Any]]] = defaultdict(list)
        self.failures: defaultdict[str, list[status_pb2.Status]] = defaultdict(list)
        self.lingering: defaultdict[str, int] = defaultdict(int)  # calls that came so far as to stall
        self.cancelled: defaultdict[str, int] = defaultdict(int)  # of those
        self.applied: dict[str, Message] = {}
        self.uploads: list[bytes] = []
        self.max_message_bytes = 32 * 1024 * 1024
        self.deltas: list[list[sampling_pb2.CompletionDelta]] = []
        self.stall = False
        self.drop_responses = 0
        self.server: grpc.aio.Server | HttpServer | None = None
        self.port = 0

    @property
    def address(self) -> str:
        """Where it listens."""
        return f"{'http://' if self.http else ''}127.0.0.1:{self.port}"

    async def start(self, address: str = "127.0.0.1:0") -> Fake:
        """Listens; again on the same port after `stop` when given `self.address`."""
        if self.http:
            return await self._start_http(address.removeprefix("http://"))
        options = [("grpc.max_receive_message_length", self.max_message_bytes), ("grpc.so_reuseport", 0)]
        self.server = grpc.aio.server(options=options)
        for add, servicer in SERVICES:
            add(servicer(self), self.server)
        self.port = self.server.add_insecure_port(address) or self.port
        await self.server.start()
        return self

    async def _start_http(self, address: str) -> Fake:
        """The same servicers behind the server's own HTTP door."""
        methods: Any = MethodTable()
        for add, servicer in SERVICES:
            add(servicer(self), methods)
        door = ConnectDoor(methods, Chain([]), max_message_bytes=self.max_message_bytes, patience_s=60.0, guarded=False)
        self.server = HttpServer(door, [], None)
        self.port = int((await self.server.start(address)).rpartition(":")[2])
        return self

    async def stop(self) -> None:
        """Breaks all connections."""
        # Dropped here: a server that is collected after its loop has closed complains.
        server, self.server = self.server, None
        assert server is not None
        if isinstance(server, HttpServer):
            await server.stop()
        else:
            await server.stop(0)

    async def arrive(self, name: str, request: Message, context: Context) -> None:
        """Records the call, then fails it if a failure is left for it."""
        self.requests[name].append(request)
        self.metadata[name].append(dict(context.invocation_metadata() or ()))
        if self.failures[name]:
            await fail(context, self.failures[name].pop(0))
        if self.stall:
            await self.linger(name)

    async def linger(self, name: str) -> None:
        """Never answers; counts the cancellation."""
        self.lingering[name] += 1
        try:
            await asyncio.sleep(3600)
        except asyncio.CancelledError:
            self.cancelled[name] += 1
            raise
