"""The HTTP server beside gRPC, on the same event loop and one port: Connect, OpenAI's and the Arena's APIs, pages."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Sequence
from typing import Any, Protocol

import uvicorn
from starlette.applications import Starlette
from starlette.routing import BaseRoute
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.server import ServerState

from gradwire.server.addresses import split_address
from gradwire.server.config import TlsSettings
from gradwire.server.http.delivery import SCOPE_KEY, Delivery, unread

_HEAD_S = 30.0  # seconds for the head of a request
_KEEP_ALIVE_S = 120  # seconds without a request; clients give up idle connections earlier
_CLOSE_S = 1  # seconds for the last answers to leave
# A peer that vanished without a word is noticed after about a minute: its call ends then.
_PROBES = {"TCP_KEEPIDLE": 30, "TCP_KEEPINTVL": 10, "TCP_KEEPCNT": 3}


class PatientProtocol(HttpToolsProtocol):
    """uvicorn's, which by itself waits for ever for the head of a request, and for a body that nobody reads.

    It tells of each answer whether it was delivered: a peer that sends its next request has read what came before.
    """

    _waiting: asyncio.TimerHandle | None = None
    _peer_left = False

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._deliveries: list[Delivery] = []  # of requests in their order, as long as it is not known
        self._wait()

    def on_message_begin(self) -> None:
        super().on_message_begin()
        if self.cycle is not None and self.cycle.response_complete:
            self._settle(lost=False)
        self._deliveries.append(Delivery())
        self.scope["state"][SCOPE_KEY] = self._deliveries[-1]

    def eof_received(self) -> None:
        self._peer_left = True  # asyncio closes now, and what is written from here on goes nowhere
        super().eof_received()

    def on_response_complete(self) -> None:
        if self._peer_left:
            self._settle(lost=True)
        elif self.pipeline:  # the next one was sent before this was read: nothing will tell
            self._deliveries.pop(0).settle(False)
        super().on_response_complete()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self.cycle is None or self.cycle.response_complete:
            self._wait()
        else:
            self._stop_waiting()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_waiting()
        ended = self.cycle is None or self.cycle.response_complete
        closed_by_peer = self.cycle is not None and self.cycle.keep_alive
        lost = not ended or exc is not None or (closed_by_peer and unread(self.transport))
        super().connection_lost(exc)
        self._settle(lost)

    def _settle(self, lost: bool) -> None:
        for delivery in self._deliveries:
            delivery.settle(lost)
        self._deliveries.clear()

    def _wait(self) -> None:
        if self._waiting is None:
            self._waiting = self.loop.call_later(_HEAD_S, self._give_up)

    def _stop_waiting(self) -> None:
        if self._waiting is not None:
            self._waiting.cancel()
            self._waiting = None

    def _give_up(self) -> None:
        self._waiting = None
        if self.cycle is None or self.cycle.response_complete:
            self.transport.close()


class Application(Protocol):
    """An ASGI application that can be closed."""

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Answer one request."""

    async def close(self) -> None:
        """End the calls that are still under way."""


class Door(Application, Protocol):
    """An API of its own, by its paths."""

    def serves(self, path: str) -> bool:
        """Whether a path is one of its own, or looks like it."""


class HttpServer:
    """Listens, and hands each request to the door that its path is of, or to a page.

    Of uvicorn it takes the protocol, not `uvicorn.Server`: that one handles signals, and polls.
    """

    def __init__(
        self, door: Application, pages: Sequence[BaseRoute], tls: TlsSettings | None, others: Sequence[Door] = ()
    ) -> None:
        """`door` gets what is nobody else's."""
        self._door = door
        self._others = tuple(others)
        self._pages = Starlette(routes=list(pages))
        self._page_paths = frozenset(getattr(page, "path", "") for page in pages)
        self._tls = tls
        self._state = ServerState()
        self._listening: asyncio.Server | None = None

    async def start(self, address: str) -> str:
        """Listen; the address with its real port."""
        config = uvicorn.Config(
            self._dispatch,
            ws="none",
            interface="asgi3",
            log_config=None,
            access_log=False,
            lifespan="off",
            proxy_headers=False,  # who calls is not for a header to say
            timeout_keep_alive=_KEEP_ALIVE_S,
            **_tls_options(self._tls),
        )
        config.load()

        def protocol() -> PatientProtocol:
            return PatientProtocol(config, self._state, {})

        listener = _listen(address)
        self._listening = await asyncio.get_running_loop().create_server(protocol, sock=listener, ssl=config.ssl)
        host, _ = split_address(address)
        shown = f"[{host}]" if ":" in host else host
        return f"{shown}:{listener.getsockname()[1]}"

    async def stop(self) -> None:
        """End the calls under way and close; last answers have a moment to leave."""
        if self._listening is None:
            return
        self._listening.close()
        await self._door.close()
        for other in self._others:
            await other.close()
        for connection in list(self._state.connections):
            connection.shutdown()
        if self._state.tasks:
            await asyncio.wait(self._state.tasks, timeout=_CLOSE_S)
        for task in self._state.tasks:
            task.cancel()
        for connection in list(self._state.connections):
            connection.shutdown()

    async def _dispatch(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["path"] in self._page_paths:
            await self._pages(scope, receive, send)
            return
        found = next((other for other in self._others if other.serves(scope["path"])), self._door)
        await found(scope, receive, send)


def _listen(address: str) -> socket.socket:
    host, port = split_address(address)
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # The protocol is named: asyncio turns Nagle's algorithm off only where it is, and an answer may wait 40 ms for it.
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)  # connections inherit it
    for name, value in _PROBES.items():
        if hasattr(socket, name):
            listener.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
    try:
        listener.bind((host, port))
    except OSError as error:
        listener.close()
        raise OSError(f"cannot listen on {address}: {error.strerror}") from error
    return listener


def _tls_options(tls: TlsSettings | None) -> dict[str, Any]:
    if tls is None:
        return {}
    options: dict[str, Any] = {"ssl_certfile": str(tls.certificate), "ssl_keyfile": str(tls.key)}
    if tls.client_ca is not None:
        options |= {"ssl_ca_certs": str(tls.client_ca), "ssl_cert_reqs": ssl.CERT_REQUIRED}
    return options
