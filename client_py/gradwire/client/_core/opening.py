"""Opening a channel: gRPC's, or the one over HTTP.

Knows: what each of them takes. Does not know: calls.
"""

from __future__ import annotations

import ssl
from dataclasses import dataclass
from typing import cast

import grpc
import grpc.aio

from gradwire.client._core.address import Address
from gradwire.client._core.extras import not_installed
from gradwire.client._core.options import channel_options, credentials, user_agent
from gradwire.client._core.transport import Channel
from gradwire.client.config import KeepAliveConfig, TLSConfig


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Everything that opening the channel takes. Its repr shows no secret."""

    address: Address
    credentials: grpc.ChannelCredentials | ssl.SSLContext | None
    metadata: tuple[tuple[str, str], ...]
    keepalive: KeepAliveConfig
    max_message_bytes: int
    server_name: str | None = None
    shared_memory: bool = False
    """Large tensors may go by shared memory, where the address is this host's."""

    def __repr__(self) -> str:
        return f"Endpoint({self.address.shown!r}, tls={self.credentials is not None})"

    def open(self) -> Channel:
        """A new channel, of the running loop. Nothing is sent yet."""
        return self._open_http() if self.address.http else self._open_grpc()

    def _open_grpc(self) -> Channel:
        options = channel_options(self.address, self.keepalive, self.max_message_bytes, self.server_name)
        target = self.address.target
        if self.credentials is None:
            return cast(Channel, grpc.aio.insecure_channel(target, options=options))
        assert isinstance(self.credentials, grpc.ChannelCredentials)
        return cast(Channel, grpc.aio.secure_channel(target, self.credentials, options=options))

    def _open_http(self) -> Channel:
        from gradwire.client._core.http.channel import HttpChannel  # aiohttp is loaded by those who use it

        assert not isinstance(self.credentials, grpc.ChannelCredentials)
        return HttpChannel(
            self.address.target,
            tls=self.credentials,
            server_name=self.server_name,
            local=self.address.local,
            max_message_bytes=self.max_message_bytes,
            keepalive=self.keepalive,
            user_agent=user_agent(),
        )


def transport_security(address: Address, tls: TLSConfig) -> grpc.ChannelCredentials | ssl.SSLContext:
    """Certificates as the address's transport wants them. OSError when a file cannot be read."""
    if not address.http:
        return credentials(tls)
    from gradwire.client._core.http.tls import tls_context

    return tls_context(tls)


def check_transport(address: Address) -> None:
    """ImportError that says what to install when the address's transport is not."""
    if address.http:
        from importlib.util import find_spec

        if find_spec("aiohttp") is None:
            raise not_installed("aiohttp", "http", address.shown)
