"""The operator's door: `/health` for load balancers, `/metrics` for Prometheus (vLLM's own included)."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable

import uvicorn
from prometheus_client import REGISTRY as DEFAULT_REGISTRY
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_LATEST
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from gradwire.server.config import split_address

HealthFacts = Callable[[], tuple[bool, dict[str, str]]]
"""Whether the server serves, and the state of each job."""


class OperatorDoor:
    """A small HTTP server beside gRPC, on the same event loop."""

    def __init__(self, registry: CollectorRegistry, facts: HealthFacts) -> None:
        self._registry = registry
        self._facts = facts
        self._server: uvicorn.Server | None = None
        self._task: asyncio.Task[None] | None = None

    async def start(self, address: str) -> str:
        """Listen; the address with its real port."""
        host, port = split_address(address)
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        listener = socket.socket(family, socket.SOCK_STREAM)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((host, port))
        except OSError as error:
            listener.close()
            raise OSError(f"cannot listen on {address}: {error.strerror}") from error
        routes = [Route("/health", self._health), Route("/metrics", self._metrics)]
        config = uvicorn.Config(Starlette(routes=routes), log_config=None, access_log=False, lifespan="off")
        self._server = uvicorn.Server(config)
        # Signals belong to the process, not to this door.
        self._task = asyncio.create_task(self._server._serve(sockets=[listener]))
        shown = f"[{host}]" if ":" in host else host
        return f"{shown}:{listener.getsockname()[1]}"

    async def stop(self) -> None:
        """Close the door."""
        if self._server is not None and self._task is not None:
            self._server.should_exit = True
            await self._task

    async def _health(self, request: Request) -> Response:
        serving, jobs = self._facts()
        return JSONResponse({"serving": serving, "jobs": jobs}, status_code=200 if serving else 503)

    async def _metrics(self, request: Request) -> Response:
        text = generate_latest(self._registry) + generate_latest(DEFAULT_REGISTRY)
        return Response(text, media_type=CONTENT_TYPE_LATEST)
