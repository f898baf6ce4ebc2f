"""Client: the sync face of AsyncClient, on the process's one background loop.

Knows: which sub-clients there are. Does not know: any RPC. Safe to use from several threads, and where a
loop already runs, as in Jupyter.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import TracebackType
from typing import Self

from gradwire.client._core.health import Health
from gradwire.client.aio.client import DEFAULT_MAX_MESSAGE_BYTES, DEFAULT_TIMEOUT_S, AsyncClient
from gradwire.client.config import KeepAliveConfig, RetryConfig, TLSConfig
from gradwire.client.sync.admin import Admin
from gradwire.client.sync.deployments import Deployments
from gradwire.client.sync.inference import Inference
from gradwire.client.sync.jobs import Jobs
from gradwire.client.sync.portal import Portal
from gradwire.client.sync.rollouts import Rollouts
from gradwire.client.sync.sampling import Sampling
from gradwire.client.sync.sessions import Sessions
from gradwire.client.sync.training import Training
from gradwire.client.sync.weights import Weights


class Client:
    """Client for plain code: each call returns when it is done. Ctrl-C cancels the call that waits."""

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
        self._async = AsyncClient(
            address,
            token=token,
            tls=tls,
            timeout=timeout,
            retry=retry,
            keepalive=keepalive,
            max_message_bytes=max_message_bytes,
            metadata=metadata,
            shared_memory=shared_memory,
        )
        self._loop = Portal(self._async)
        self.admin = Admin(self._async.admin, self._loop)
        """What the server can do, and who may use it."""
        self.deployments = Deployments(self._async.deployments, self._loop)
        """Agents behind names."""
        self.inference = Inference(self._async.inference, self._loop)
        """Deployed agents."""
        self.jobs = Jobs(self._async.jobs, self._loop)
        """The engines that callers make, use and destroy."""
        self.rollouts = Rollouts(self._async.rollouts, self._loop)
        """Episodes of agents, recorded token by token."""
        self.sampling = Sampling(self._async.sampling, self._loop)
        """Completions and log-probs."""
        self.sessions = Sessions(self._async.sessions, self._loop)
        """Stored conversations."""
        self.training = Training(self._async.training, self._loop)
        """Forward and backward, steps, checkpoints."""
        self.weights = Weights(self._async.weights, self._loop)
        """Weights into a sampler."""

    @property
    def address(self) -> str:
        """The server's address."""
        return self._async.address

    def health(self, service: str = "", *, timeout: float | None = 10.0) -> Health:
        """Health of a service by full name ("gradwire.v1.SamplingService"), or of the whole server.

        UnavailableError when no server answers. A service that is not known is Health.SERVICE_UNKNOWN.
        """
        return self._loop.run(self._async.health(service, timeout=timeout))

    def wait_ready(self, timeout: float = 60.0, *, service: str = "") -> None:
        """Waits until the server (or one service of it) serves. DeadlineExceededError says what it saw last."""
        self._loop.run(self._async.wait_ready(timeout, service=service))

    def close(self) -> None:
        """Ends heartbeats, cancels what is under way and closes the connection. Closing again is fine."""
        self._loop.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.address!r})"
