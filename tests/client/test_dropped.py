"""A server that drops calls, as gRPC's does with those that reach it just as it stops."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import numpy as np
import pytest

from gradwire.client import AsyncClient, UnavailableError
from gradwire.client._core.blocking import at_once
from gradwire.client.arena import Agent
from gradwire.client.config import RetryConfig

_HEADERS, _RST_STREAM, _SETTINGS = 1, 3, 4
_CANCEL = (8).to_bytes(4)
_END_OF_ALL = 5  # of the headers, and of the stream
_STATUS = b"\x88" + b"".join(  # HPACK: 200, and each name and value as it is
    bytes([0, len(name)]) + name + bytes([len(value)]) + value
    for name, value in (
        (b"content-type", b"application/grpc"),
        (b"grpc-status", b"1"),
        (b"grpc-message", b"CANCELLED"),
    )
)
_SAID = "dropped the call|ends its streams"  # the latter where grpc.aio was still writing: it then tells no reason
RETRY = RetryConfig(max_attempts=3, initial_backoff_s=0.01)


class Dropping:
    """HTTP/2 by hand: each call is reset, or ended with a status, as soon as it begins."""

    def __init__(self, *, status: bool) -> None:
        self.status = status
        self.calls = 0
        self.address = ""
        self.serving: list[asyncio.Future[None]] = []

    def connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Another client."""
        self.serving.append(asyncio.ensure_future(self.serve(reader, writer)))

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readexactly(24)  # the client's preface
        writer.write(_frame(_SETTINGS))
        try:
            while True:
                head = await reader.readexactly(9)
                await reader.readexactly(int.from_bytes(head[:3]))
                if head[3] == _SETTINGS and not head[4]:
                    writer.write(_frame(_SETTINGS, flags=1))
                elif head[3] == _HEADERS:
                    self.calls += 1
                    if self.status:
                        writer.write(_frame(_HEADERS, flags=_END_OF_ALL, stream=head[5:], payload=_STATUS))
                    else:
                        writer.write(_frame(_RST_STREAM, stream=head[5:], payload=_CANCEL))
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()


def _frame(kind: int, *, flags: int = 0, stream: bytes = bytes(4), payload: bytes = b"") -> bytes:
    return len(payload).to_bytes(3) + bytes([kind, flags]) + stream + payload


@asynccontextmanager
async def dropping(*, status: bool) -> AsyncIterator[Dropping]:
    made = Dropping(status=status)
    server = await asyncio.start_server(made.connected, "127.0.0.1", 0)
    made.address = "{}:{}".format(*server.sockets[0].getsockname())
    try:
        yield made
    finally:
        server.close()
        await asyncio.gather(*made.serving)


@pytest.mark.parametrize("in_turn", [False, True])
@pytest.mark.parametrize("blocking", [False, True])
@pytest.mark.parametrize("status", [False, True])
async def test_a_call_that_the_server_drops_is_repeated_where_that_is_safe(
    status: bool, blocking: bool, in_turn: bool
) -> None:
    async with dropping(status=status) as server, AsyncClient(server.address, retry=RETRY, timeout=10.0) as client:

        async def ask(**options: Any) -> None:
            with pytest.raises(UnavailableError, match=_SAID):
                await client.inference.get_action(np.zeros(2, np.float32), in_turn=in_turn, **options)

        def block(**options: Any) -> None:
            with Agent(f"grpc://{server.address}", retry=RETRY, probe_on_init=False) as agent:
                ask = agent._async._arrays.get_action
                with pytest.raises(UnavailableError, match=_SAID):
                    at_once(ask(np.zeros(2, np.float32), in_turn=in_turn, **options))

        for options, attempts in (({}, 3), ({"session_id": "s"}, 1)):
            server.calls = 0
            await (asyncio.to_thread(block, **options) if blocking else ask(**options))
            assert server.calls == attempts
