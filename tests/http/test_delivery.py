"""What a server can see of a peer that closed its connection."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from typing import Any

import pytest

from gradwire.server.http.delivery import SCOPE_KEY, Delivery, unread
from gradwire.server.http.server import HttpServer, PatientProtocol
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


class Late:
    """An application that answers in the very moment in which its client's end is known, and the connection is not
    closed yet.
    """

    def __init__(self) -> None:
        self.begun = self.end_seen = False
        self.delivery: Delivery | None = None

    def serves(self, path: str) -> bool:
        return True

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        self.delivery, self.begun = scope["state"][SCOPE_KEY], True
        while not self.end_seen:  # noqa: ASYNC110 -- an event would come a turn of the loop too late
            await asyncio.sleep(0)
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]})
        await send({"type": "http.response.body", "body": b"ok"})

    async def close(self) -> None:
        pass


async def test_what_is_written_after_the_peers_end_is_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    late, told = Late(), PatientProtocol.eof_received

    def eof_received(protocol: PatientProtocol) -> None:
        late.end_seen = True
        told(protocol)

    monkeypatch.setattr(PatientProtocol, "eof_received", eof_received)
    unused: Any = Late()  # no request is for it
    server = HttpServer(unused, [], None, [late])
    host, port = (await server.start("127.0.0.1:0")).split(":")
    try:
        with socket.create_connection((host, int(port))) as peer:
            peer.sendall(b"GET / HTTP/1.1\r\nhost: localhost\r\n\r\n")
            await until(lambda: late.begun)
        await until(lambda: late.delivery is not None and late.delivery.lost is not None)
        assert late.delivery is not None and late.delivery.lost
    finally:
        late.end_seen = True
        await server.stop()
