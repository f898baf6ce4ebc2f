"""Who is calling, and may they: bearer tokens, scopes per service, deny by default."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache, partial
from ipaddress import ip_address
from typing import Any
from urllib.parse import unquote

from gradwire.server.domain.authentication import CACHE_S, EXTERNAL_USER_HEADER, Authenticator
from gradwire.server.domain.caller import ANONYMOUS, Caller, set_caller
from gradwire.server.domain.credentials import now
from gradwire.server.domain.token_advice import with_scope
from gradwire.server.errors import PermissionDenied
from gradwire.server.rpc.interceptors.step import Call, Step

# Services that need no token: a load balancer has none. Reflection shows only what is public.
_OPEN = frozenset({"grpc.health.v1.Health", "grpc.reflection.v1alpha.ServerReflection"})
_OPEN_METHODS = frozenset({"/gradwire.v1.AdminService/GetCapabilities"})
# What a deployment is. The Arena documents it as public; without a token one is told less. A token that is sent has to
# be a good one: a client learns as it connects that its own is not.
_PUBLIC = frozenset({"/gradwire.v1.InferenceService/GetStatus", "/gradwire.arena.v1/Status"})
_SCOPES = {
    "gradwire.v1.SamplingService": "INFERENCE",
    "gradwire.v1.InferenceService": "INFERENCE",
    "gradwire.v1.SessionService": "INFERENCE",
    "gradwire.v1.RolloutService": "INFERENCE",
    "gradwire.openai.v1": "INFERENCE",
    "gradwire.arena.v1": "INFERENCE",
    "gradwire.v1.TrainingService": "TRAINING",
    "gradwire.v1.WeightService": "TRAINING",
    "gradwire.v1.JobService": "TRAINING",
    "gradwire.v1.DeploymentService": "ADMIN",
    "gradwire.v1.AdminService": "ADMIN",
}
# Methods that stop or empty an engine that others sample from, too: whoever only samples must not call them.
_METHOD_SCOPES = {
    f"/gradwire.v1.SamplingService/{method}": "TRAINING"
    for method in ("Sleep", "Wake", "Pause", "Resume", "ResetPrefixCache")
}
# Methods that whoever may use a deployment may call as well, so as to find it.
_ALSO = {f"/gradwire.v1.DeploymentService/{method}": "INFERENCE" for method in ("GetDeployment", "ListDeployments")}


@lru_cache(4096)  # a peer is a connection: the same for call after call
def is_same_host(peer: str) -> bool:
    """Whether a peer, as gRPC writes it (`ipv4:127.0.0.1:4711`, `ipv6:%5B::1%5D:4711`), is on this host."""
    scheme, _, rest = unquote(peer).partition(":")
    if scheme in ("unix", "unix-abstract"):
        return True
    if scheme not in ("ipv4", "ipv6"):
        return False
    try:
        address = ip_address(rest.rpartition(":")[0].strip("[]"))
    except ValueError:
        return False
    mapped = getattr(address, "ipv4_mapped", None)
    return bool((mapped or address).is_loopback)


def _missing_scope(method: str, caller: Caller, scope: str) -> PermissionDenied:
    text = f"this token may not call {method}: it needs the scope {scope}; {with_scope(caller, scope)}"
    return PermissionDenied("MISSING_SCOPE", text, metadata={"scope": scope})


class Auth(Step):
    """The scopes of services, for callers that the authenticator knows."""

    def __init__(self, authenticator: Authenticator) -> None:
        self._authenticator = authenticator

    async def enter(self, call: Call) -> None:
        same_host = is_same_host(call.peer) and not call.forwarded
        call.known_at = self._authenticator.changes  # of before: a token may be ended during the look
        caller = await self._caller(call)
        caller = caller if caller.same_host == same_host else replace(caller, same_host=same_host)
        set_caller(caller, partial(self.check, call, None))
        left = CACHE_S if caller.expires_at is None else min(CACHE_S, (caller.expires_at - now()) / 1e6)
        call.known_until = time.monotonic() + left

    async def check(self, call: Call, message: Any) -> None:
        """A stream may outlive its token: who calls is asked again, at once when one was ended on this server."""
        if call.known_at != self._authenticator.changes or time.monotonic() > call.known_until:
            await self.enter(call)

    async def _caller(self, call: Call) -> Caller:
        """Raises Unauthenticated, and PermissionDenied for a method that is not the caller's to call."""
        if call.service in _OPEN or call.method in _OPEN_METHODS:
            return ANONYMOUS
        public = call.method in _PUBLIC
        if public and "authorization" not in call.metadata and not self.is_open:
            return ANONYMOUS
        caller = await self.identify(call.metadata)
        scope = _METHOD_SCOPES.get(call.method) or _SCOPES.get(call.service, "ADMIN")
        also = _ALSO.get(call.method)
        if not public and scope not in caller.scopes and also not in caller.scopes:
            raise _missing_scope(call.method, caller, also or scope)
        return caller

    @property
    def is_open(self) -> bool:
        """Nobody needs a token: the server then only binds to loopback."""
        return self._authenticator.is_open

    async def identify(self, metadata: Mapping[str, str]) -> Caller:
        """The caller that metadata, or HTTP's headers, name; raises Unauthenticated."""
        return await self._authenticator.identify(metadata.get("authorization"), metadata.get(EXTERNAL_USER_HEADER))
