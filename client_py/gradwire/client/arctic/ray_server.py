"""A server as a Ray actor, and finding it: `comm_protocol="ray"`.

Knows: Ray, which is imported only when this is used. Ray names, supervises and finds; every call of a client goes
over gRPC, to the actor's own machine. The actor is owned by the process that made it and ends with it.
"""

from __future__ import annotations

import os
import uuid
from types import ModuleType
from typing import Any

from gradwire.client._core.extras import extra
from gradwire.client.arctic.attach import Attachment, ServerState
from gradwire.client.arctic.config import ArcticRLClientConfig
from gradwire.client.arctic.server import LocalServer

NAMESPACE = "gradwire"
# Ray sets these for an actor that asks for no CPU and no GPU; the server takes what its owner has.
_OWNERS = ("OMP_NUM_THREADS", "CUDA_VISIBLE_DEVICES")


class ServerActor:
    """Holds a server. Runs in a process of Ray's."""

    def __init__(self) -> None:
        self._server: LocalServer | None = None

    def start(self, owners: dict[str, str], **options: Any) -> dict[str, str]:
        """Starts the server; where it is."""
        env = {key: value for key, value in os.environ.items() if key not in _OWNERS} | owners
        self._server = LocalServer(env=env, **options)
        return self.address()

    def address(self) -> dict[str, str]:
        """Doors, and the Ray node that they are on. Empty while there is no server."""
        if self._server is None:
            return {}
        node = _ray().get_runtime_context().get_node_id()
        return {"grpc": self._server.grpc, "http": self._server.http, "node": node}

    def stop(self) -> None:
        """Stops the server."""
        if self._server is not None:
            self._server.stop()


def attach(config: ArcticRLClientConfig) -> Attachment:
    """Starts a server in a new actor, or finds one. Blocks."""
    ray = _ray()
    _connect(ray, config)
    if config.starts_server:
        return _start(ray, config)
    name, actor = _find(ray, config.ray_server)
    doors = ray.get(actor.address.remote())
    if not doors:
        raise RuntimeError(f"the Ray actor {name!r} holds no server; the one that made it has failed")
    return _attachment(ray, name, doors)


def _start(ray: ModuleType, config: ArcticRLClientConfig) -> Attachment:
    name = config.ray_server or f"gradwire-{uuid.uuid4().hex[:8]}"
    actor = ray.remote(num_cpus=0, max_restarts=0)(ServerActor).options(name=name, namespace=NAMESPACE).remote()

    def stop() -> None:
        try:
            ray.get(actor.stop.remote())
        except ray.exceptions.RayActorError:
            pass  # it has ended, and the server with it
        ray.kill(actor)

    owners = {key: os.environ[key] for key in _OWNERS if key in os.environ}
    try:
        doors = ray.get(
            actor.start.remote(
                owners,
                http="127.0.0.1:0",
                data_dir=config.checkpoint_path,
                logs=config.server_logs,
                startup_timeout=config.startup_timeout,
                check_interval=config.health_check_interval,
            )
        )
        attachment = _attachment(ray, name, doors)
    except ray.exceptions.RayTaskError as error:
        ray.kill(actor)
        kind = TimeoutError if isinstance(error.cause, TimeoutError) else RuntimeError
        raise kind(f"in the Ray actor {name!r}: {error.cause}") from error
    except BaseException:
        ray.kill(actor)
        raise
    attachment.on_stop.append(stop)
    return attachment


def _find(ray: ModuleType, name: str | None) -> tuple[str, Any]:
    if name is None:
        named = ray.util.list_named_actors(all_namespaces=True)
        servers = sorted(entry["name"] for entry in named if entry["namespace"] == NAMESPACE)
        if len(servers) != 1:
            found = f"there are {', '.join(servers)}" if servers else "there is none"
            raise ValueError(f"ray_server says which server to use: {found}")
        name = servers[0]
    try:
        return name, ray.get_actor(name, namespace=NAMESPACE)
    except ValueError:
        raise ValueError(f"there is no server {name!r} on this Ray cluster: it or its owner has ended") from None


def _attachment(ray: ModuleType, name: str, doors: dict[str, str]) -> Attachment:
    context = ray.get_runtime_context()
    if doors["node"] != context.get_node_id():
        raise RuntimeError(
            f"the server {name!r} is on another machine of the Ray cluster and serves only its own; run "
            '`gradwire serve` with TLS and tokens there and connect with backend="remote"'
        )
    state = ServerState(grpc=doors["grpc"], http=doors["http"], ray_server=name, ray_address=context.gcs_address)
    return Attachment(state, "ray")


def _connect(ray: ModuleType, config: ArcticRLClientConfig) -> None:
    """Connects this process to Ray, once."""
    if ray.is_initialized():
        return
    if not config.ray_auto_attach:
        raise RuntimeError("this process is not connected to Ray: call ray.init() first, or set ray_auto_attach=True")
    options: dict[str, Any] = {"namespace": NAMESPACE, "log_to_driver": config.server_logs}
    try:
        ray.init(address=config.ray_address or "auto", **options)
    except ConnectionError as error:
        if config.ray_address is not None or not config.starts_server:
            where = config.ray_address or "this machine"
            raise ConnectionError(f"there is no Ray cluster at {where}: {error}") from error
        ray.init(address="local", include_dashboard=False, **options)


def _ray() -> ModuleType:
    with extra("ray", 'comm_protocol="ray"'):
        import ray
    module: ModuleType = ray
    return module
