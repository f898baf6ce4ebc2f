"""Which server a client uses, and how it is reached: one that it starts, one that runs, or one that Ray finds.

Knows: addresses and who ends the server. Does not know: jobs.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypedDict

from gradwire.client.aio.client import AsyncClient
from gradwire.client.arctic.config import ArcticRLClientConfig
from gradwire.client.arctic.server import LocalServer
from gradwire.client.config import TLSConfig

_PORTS = {"grpc": 50051, "http": 8080}


class ServerState(TypedDict):
    """Where a server is. Plain text."""

    grpc: str
    """HOST:PORT of its gRPC door; empty when it is not known."""
    http: str
    """HOST:PORT of its HTTP door; empty when there is none, or it is not known."""
    ray_server: str
    """Name of its Ray actor; empty when there is none."""
    ray_address: str
    """Ray cluster of the actor; empty when there is none."""


@dataclass(slots=True)
class Attachment:
    """A server in use."""

    state: ServerState
    protocol: str
    tls: bool = False
    on_stop: list[Callable[[], None]] = field(default_factory=list)
    """Ends a server of its own."""

    @property
    def address(self) -> str:
        """As AsyncClient takes it."""
        if self.protocol == "http":
            return f"{'https' if self.tls else 'http'}://{self.state['http']}"
        return f"{'grpcs' if self.tls else 'grpc'}://{self.state['grpc']}"

    def client(self, config: ArcticRLClientConfig) -> AsyncClient:
        """A client of the server. Calls have no deadline of their own: an iteration takes as long as it takes."""
        ca = config.tls_ca_pem()
        return AsyncClient(
            self.address,
            token=config.secret(),
            tls=TLSConfig(root_certificates=ca.encode()) if ca is not None else None,
            timeout=None,
        )

    def reconnect(self, config: ArcticRLClientConfig) -> dict[str, Any]:
        """Fields of a configuration that leads to the same server."""
        if self.protocol == "ray":
            found = {name: self.state[name] or None for name in ("ray_server", "ray_address")}
            return {"backend": "local", **found}
        host, _, port = self.state["http" if self.protocol == "http" else "grpc"].rpartition(":")
        where = {"backend": "dss-platform", "host": host.strip("[]"), "port": int(port)}
        return {**where, "tls": self.tls, "tls_ca": config.tls_ca_pem()}

    def stop(self) -> None:
        """Stops the server if it is one's own. Blocks."""
        while self.on_stop:
            self.on_stop.pop()()


def attach(config: ArcticRLClientConfig, state: ServerState | None) -> Attachment:
    """The server of `config`, started if need be; or that of `state`. Blocks."""
    tls = config.tls or config.tls_ca is not None
    if state is not None:
        return _given(config, state, tls)
    if config.comm_protocol == "ray":
        from gradwire.client.arctic import ray_server

        return ray_server.attach(config)
    if config.starts_server:
        return _started(config)
    host = config.host or "127.0.0.1"
    where = f"[{host}]" if ":" in host else host
    address = f"{where}:{config.port or _PORTS[config.comm_protocol]}"
    grpc, http = ("", address) if config.comm_protocol == "http" else (address, "")
    return Attachment(ServerState(grpc=grpc, http=http, ray_server="", ray_address=""), config.comm_protocol, tls)


def _given(config: ArcticRLClientConfig, state: ServerState, tls: bool) -> Attachment:
    wanted = "http" if config.comm_protocol == "http" else "grpc"
    if not isinstance(state, dict) or not isinstance(state.get(wanted), str):
        raise ValueError("arctic_rl_server_state is what get_server_state() of a client returned")
    if not state[wanted]:  # type: ignore[literal-required]
        raise ValueError(f"arctic_rl_server_state names no {wanted} door; its client speaks another protocol")
    return Attachment(state, config.comm_protocol, tls)


def _started(config: ArcticRLClientConfig) -> Attachment:
    over_http = config.comm_protocol == "http"
    host = config.host or "127.0.0.1"
    door = f"{'[::1]' if host == '::1' else host}:{config.port or 0}"
    server = LocalServer(
        grpc="127.0.0.1:0" if over_http else door,
        http=door if over_http else None,
        data_dir=config.checkpoint_path,
        logs=config.server_logs,
        startup_timeout=config.startup_timeout,
        check_interval=config.health_check_interval,
    )
    state = ServerState(grpc=server.grpc, http=server.http, ray_server="", ray_address="")
    return Attachment(state, config.comm_protocol, on_stop=[server.stop])
