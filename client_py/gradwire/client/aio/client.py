"""AsyncClient: one connection to a server, and a sub-client for each of its services.

Knows: options, the environment's defaults, health. Does not know: any RPC of gradwire's own.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping
from types import NoneType, TracebackType
from typing import Self

import grpc.aio

from gradwire.client._core.address import parse_address
from gradwire.client._core.arguments import check, whole
from gradwire.client._core.connection import Connection, check_timeout
from gradwire.client._core.countdown import Countdown
from gradwire.client._core.health import CHECK, Health, decode_check, encode_check
from gradwire.client._core.opening import Endpoint, check_transport, transport_security
from gradwire.client._core.options import bearer, check_metadata, wants_shared_memory
from gradwire.client._core.status import error_from_rpc
from gradwire.client.aio.admin import AsyncAdmin
from gradwire.client.aio.deployments import AsyncDeployments
from gradwire.client.aio.inference import AsyncInference
from gradwire.client.aio.jobs import AsyncJobs
from gradwire.client.aio.rollouts import AsyncRollouts
from gradwire.client.aio.sampling import AsyncSampling
from gradwire.client.aio.sessions import AsyncSessions
from gradwire.client.aio.training import AsyncTraining
from gradwire.client.aio.weights import AsyncWeights
from gradwire.client.config import KeepAliveConfig, RetryConfig, TLSConfig
from gradwire.client.errors import DeadlineExceededError, NotFoundError, UnavailableError, UnimplementedError

DEFAULT_TIMEOUT_S = 600.0
DEFAULT_MAX_MESSAGE_BYTES = 256 * 1024 * 1024
_MOST_MESSAGE_BYTES = 2**31 - 1
_POLL_S = 0.2


def endpoint(
    address: str | None,
    token: str | None,
    tls: TLSConfig | bool | None,
    metadata: Mapping[str, str] | None,
    keepalive: KeepAliveConfig,
    max_message_bytes: int,
    shared_memory: bool | None = None,
) -> Endpoint:
    """Where and how to connect. ValueError when a token would travel in the clear."""
    check(address, "address", (str, NoneType), 'text, such as "host:50051"')
    check(token, "token", (str, NoneType), "text", secret=True)
    check(tls, "tls", (TLSConfig, bool, NoneType), "a TLSConfig, True or False", secret=True)
    check(keepalive, "keepalive", KeepAliveConfig, "a KeepAliveConfig")
    check(shared_memory, "shared_memory", (bool, NoneType), "True or False")
    if whole(max_message_bytes, "max_message_bytes") > _MOST_MESSAGE_BYTES:
        raise ValueError(f"max_message_bytes is {max_message_bytes}; it is at most {_MOST_MESSAGE_BYTES}")
    where = parse_address(address)
    check_transport(where)
    config = TLSConfig() if tls is True or (tls is None and where.tls) else tls or None
    if where.tls and config is None:
        plain = where.secure_form.replace("s://", "://", 1)
        raise ValueError(f"tls=False contradicts {where.secure_form}; write {plain}, or leave tls out")
    if where.http and config is not None and not where.tls:
        raise ValueError(f"tls= contradicts {where.shown}; write {where.secure_form}")
    check(metadata, "metadata", (Mapping, NoneType), "a dict from text to text", secret=True)
    for key, value in (metadata or {}).items():
        check(key, "a key of metadata", str, "text")
        check(value, f"metadata[{key!r}]", (str, bytes), "text", secret=True)
        check_metadata(key.lower(), value)
    extra = tuple((key.lower(), value) for key, value in (metadata or {}).items())
    if any(key == "authorization" for key, _ in extra):
        raise ValueError("metadata holds 'authorization'; pass the secret as token=, which keeps it out of logs")
    chosen = token if token is not None else os.environ.get("GRADWIRE_TOKEN") or None
    return Endpoint(
        address=where,
        credentials=transport_security(where, config) if config else None,
        metadata=bearer(chosen, where, secure=config is not None) + extra,
        keepalive=keepalive,
        max_message_bytes=max_message_bytes,
        server_name=config.server_name if config else None,
        shared_memory=wants_shared_memory(shared_memory),
    )


class AsyncClient:
    """Client for asyncio. It belongs to the event loop that first uses it; make one for each loop."""

    def __init__(
        self,
        address: str | None = None,
        *,
        token: str | None = None,
        tls: TLSConfig | bool | None = None,
        timeout: float | None = DEFAULT_TIMEOUT_S,
        retry: RetryConfig | None = None,
        keepalive: KeepAliveConfig | None = None,
        max_message_bytes: int = DEFAULT_MAX_MESSAGE_BYTES,
        metadata: Mapping[str, str] | None = None,
        shared_memory: bool | None = None,
    ) -> None:
        """Opens nothing yet: the first call connects.

        `address` is "host:port", "grpc://host:port", "grpcs://host:port" (TLS) or "unix:///path"; or, for the server's
        HTTP door, "http://host:port" or "https://host:port" (the same calls; takes the extra `http`). Default
        GRADWIRE_ADDRESS, then 127.0.0.1:50051. `token` is sent as a bearer token; default GRADWIRE_TOKEN;
        ValueError when it would travel to another machine in the clear. `tls` names certificates. `timeout`
        is the deadline of each call that names none, in seconds (None: no deadline). `max_message_bytes` is
        the largest message either way. `metadata` goes with every call. `shared_memory`: large arrays go to a server
        on this host by shared memory; by default they do, unless GRADWIRE_SHARED_MEMORY is false.
        """
        keepalive = KeepAliveConfig() if keepalive is None else keepalive
        retry = RetryConfig() if retry is None else retry
        check(retry, "retry", RetryConfig, "a RetryConfig")
        end = endpoint(address, token, tls, metadata, keepalive, max_message_bytes, shared_memory)
        self._connection = Connection(end, retry, timeout)
        self.admin = AsyncAdmin(self._connection)
        """What the server can do, and who may use it."""
        self.deployments = AsyncDeployments(self._connection)
        """Agents behind names."""
        self.inference = AsyncInference(self._connection)
        """Deployed agents."""
        self.jobs = AsyncJobs(self._connection)
        """The engines that callers make, use and destroy."""
        self.rollouts = AsyncRollouts(self._connection, self.admin)
        """Episodes of agents, recorded token by token."""
        self.sampling = AsyncSampling(self._connection)
        """Completions and log-probs."""
        self.sessions = AsyncSessions(self._connection)
        """Stored conversations."""
        self.training = AsyncTraining(self._connection, self.admin)
        """Forward and backward, steps, checkpoints."""
        self.weights = AsyncWeights(self._connection)
        """Weights into a sampler."""

    @property
    def address(self) -> str:
        """The server's address."""
        return self._connection.address

    async def health(self, service: str = "", *, timeout: float | None = 10.0) -> Health:
        """Health of a service by full name ("gradwire.v1.SamplingService"), or of the whole server.

        UnavailableError when no server answers. A service that is not known is Health.SERVICE_UNKNOWN.
        """
        connection = self._connection
        check(service, "service", str, "text")
        call = connection.channel().unary_unary(CHECK)(encode_check(service), timeout=connection.deadline(timeout))
        try:
            return decode_check(await call)
        except grpc.aio.AioRpcError as error:
            found = error_from_rpc(error, CHECK, self.address)
            if isinstance(found, NotFoundError):
                return Health.SERVICE_UNKNOWN
            raise found from error

    async def wait_ready(self, timeout: float = 60.0, *, service: str = "") -> None:
        """Waits until the server (or one service of it) serves. DeadlineExceededError says what it saw last."""
        countdown = Countdown(check_timeout(timeout))
        while True:
            seen = await self._look(service, countdown.left())
            if seen is None:
                return
            if countdown.left() <= _POLL_S:
                raise DeadlineExceededError(f"{self.address} is not ready after {timeout:g} s: {seen}")
            await asyncio.sleep(_POLL_S)

    async def _look(self, service: str, timeout: float) -> str | None:
        try:
            health = await self.health(service, timeout=min(timeout, 5.0))
        except UnimplementedError:
            return None  # A server without health answers, and that is what can be known.
        except (UnavailableError, DeadlineExceededError) as error:
            return error.message
        return None if health is Health.SERVING else f"its health is {health.value}"

    async def close(self) -> None:
        """Ends heartbeats, cancels what is under way and closes the connection. Closing again is fine."""
        await self.jobs._close()
        await self._connection.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.address!r})"
