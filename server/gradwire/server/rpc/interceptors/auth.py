"""Who is calling, and may they: bearer tokens, scopes per service, deny by default."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from ipaddress import ip_address
from urllib.parse import unquote

from gradwire.server.domain.caller import LOCAL_CALLER, Caller, set_caller
from gradwire.server.errors import PermissionDenied, Unauthenticated
from gradwire.server.rpc.interceptors.step import Call, Step

# Services that need no token: a load balancer has none. Reflection shows only what is public.
_OPEN = frozenset({"grpc.health.v1.Health", "grpc.reflection.v1alpha.ServerReflection"})
_OPEN_METHODS = frozenset({"/gradwire.v1.AdminService/GetCapabilities"})
_SCOPES = {
    "gradwire.v1.SamplingService": "INFERENCE",
    "gradwire.v1.InferenceService": "INFERENCE",
    "gradwire.v1.SessionService": "INFERENCE",
    "gradwire.v1.TrainingService": "TRAINING",
    "gradwire.v1.WeightService": "TRAINING",
    "gradwire.v1.JobService": "TRAINING",
    "gradwire.v1.AdminService": "ADMIN",
}
# Methods that stop or empty an engine that others sample from, too: whoever only samples must not call them.
_METHOD_SCOPES = {
    f"/gradwire.v1.SamplingService/{method}": "TRAINING"
    for method in ("Sleep", "Wake", "Pause", "Resume", "ResetPrefixCache")
}


@dataclass(frozen=True, slots=True)
class KnownToken:
    """A token by the SHA-256 of its secret, in hex."""

    sha256: str
    caller: Caller


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


class Auth(Step):
    """With no tokens configured every caller is the local one: the server then only binds to loopback."""

    def __init__(self, tokens: Sequence[KnownToken]) -> None:
        self._tokens = tuple(tokens)

    @asynccontextmanager
    async def around(self, call: Call) -> AsyncIterator[None]:
        same_host = is_same_host(call.peer) and not call.forwarded
        if call.service not in _OPEN and call.method not in _OPEN_METHODS:
            caller = self.identify(call.metadata) if self._tokens else LOCAL_CALLER
            scope = _METHOD_SCOPES.get(call.method) or _SCOPES.get(call.service, "ADMIN")
            if scope not in caller.scopes:
                what = call.method if call.method in _METHOD_SCOPES else call.service
                raise PermissionDenied(
                    "MISSING_SCOPE",
                    f"this token may not call {what}; it needs the scope {scope}",
                    metadata={"scope": scope},
                )
            set_caller(replace(caller, same_host=same_host))
        yield

    def identify(self, metadata: Mapping[str, str]) -> Caller:
        """The caller that the token in `metadata` names; raises Unauthenticated."""
        header = metadata.get("authorization", "")
        kind, _, secret = header.partition(" ")
        if kind.lower() != "bearer" or not secret:
            raise Unauthenticated(
                "TOKEN_MISSING", "this server wants a token: send the header (metadata) 'authorization: Bearer TOKEN'"
            )
        digest = hashlib.sha256(secret.strip().encode()).hexdigest()
        found: Caller | None = None
        for token in self._tokens:  # all of them, so that time does not tell which one matched
            if hmac.compare_digest(token.sha256, digest):
                found = token.caller
        if found is None:
            raise Unauthenticated("TOKEN_UNKNOWN", "this token is not known here; it was revoked or mistyped")
        return found
