"""What a server can see of a peer that closed its connection."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from typing import Any

import pytest

from gradwire.server.http.delivery import Delivery, unread
from tests.rpc.support import until


def nothing(peer: socket.socket, transport: Any) -> None:
    peer.close()


def read(peer: socket.socket, transport: Any) -> None:
    transport.write(b"answer")
    assert peer.recv(100) == b"answer"
    peer.close()


def refused(peer: socket.socket, transport: Any) -> None:
    peer.close()
    transport.write(b"answer")


def not_sent(peer: socket.socket, transport: Any) -> None:
    transport.write(bytes(50 << 20))  # more than fits between the two
    peer.shutdown(socket.SHUT_WR)


@pytest.mark.parametrize(("end", "left"), [(nothing, False), (read, False), (refused, True), (not_sent, True)])
async def test_what_a_peer_leaves_unread(end: Callable[[socket.socket, Any], None], left: bool) -> None:
    found: list[bool] = []
    made: list[Any] = []

    class Protocol(asyncio.Protocol):
        def connection_made(self, transport: Any) -> None:
            made.append(transport)

        def eof_received(self) -> None:
            found.append(unread(made[0]))

    loop = asyncio.get_running_loop()
    listening = await loop.create_server(Protocol, "127.0.0.1", 0)
    async with listening:
        with socket.create_connection(listening.sockets[0].getsockname()[:2]) as peer:
            await until(lambda: bool(made))
            end(peer, made[0])
            await until(lambda: bool(found))
        made[0].abort()
    assert found == [left]


def test_it_is_told_once() -> None:
    delivery = Delivery()
    told: list[bool] = []
    delivery.then(told.append)
    delivery.settle(True)
    delivery.settle(False)
    delivery.then(told.append)
    assert (delivery.lost, told) == (True, [True, True])
