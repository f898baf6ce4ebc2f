"""For the operator: `/health` for load balancers, `/metrics` for Prometheus."""

from __future__ import annotations

from collections.abc import Callable

from prometheus_client import REGISTRY as DEFAULT_REGISTRY
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_LATEST
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from gradwire.server.errors import GradwireError
from gradwire.server.http.headers import peer_of
from gradwire.server.observability.samplers import SamplerMetrics
from gradwire.server.rpc.interceptors.auth import Auth, is_same_host
from gradwire.server.rpc.interceptors.step import is_forwarded

HealthFacts = Callable[[], tuple[bool, dict[str, str]]]
"""Whether the server serves, and the state of each job."""


class OperatorPages:
    """Pages for whoever runs the server. From another host they take a token, all but whether the server serves."""

    def __init__(self, registry: CollectorRegistry, samplers: SamplerMetrics, facts: HealthFacts, auth: Auth) -> None:
        self._registry = registry
        self._samplers = samplers
        self._facts = facts
        self._auth = auth
        self.routes = [Route("/health", self._health), Route("/metrics", self._metrics)]

    async def _refusal(self, request: Request) -> str:
        """Why a caller may not look; empty when it may."""
        headers = dict(request.headers)
        client = (request.client.host, request.client.port) if request.client else None
        if is_same_host(peer_of(client)) and not is_forwarded(headers):
            return ""
        if self._auth.is_open:  # this machine alone: not what a proxy passes on either
            return "this page is for programs on this machine"
        try:
            await self._auth.identify(headers)
        except GradwireError as error:
            return error.message
        return ""

    async def _health(self, request: Request) -> Response:
        serving, jobs = self._facts()
        facts: dict[str, object] = {"serving": serving}
        if not await self._refusal(request):
            facts["jobs"] = jobs
        return JSONResponse(facts, status_code=200 if serving else 503)

    async def _metrics(self, request: Request) -> Response:
        if refusal := await self._refusal(request):
            return PlainTextResponse(refusal + "\n", status_code=401, headers={"www-authenticate": "Bearer"})
        text = generate_latest(self._registry) + await self._samplers.text() + generate_latest(DEFAULT_REGISTRY)
        return Response(text, media_type=CONTENT_TYPE_LATEST)
