"""Whether the peer took an answer, as far as a server can see it."""

from __future__ import annotations

import asyncio
import fcntl
import socket
import sys
import termios
from collections.abc import Callable

SCOPE_KEY = "gradwire.delivery"  # in the `state` of an ASGI scope


class Delivery:
    """Of one answer. `lost` is None until it is known, which for an idle connection may take minutes."""

    def __init__(self) -> None:
        self.lost: bool | None = None
        self._told: list[Callable[[bool], None]] = []

    def then(self, tell: Callable[[bool], None]) -> None:
        """Call `tell(lost)` once it is known."""
        if self.lost is None:
            self._told.append(tell)
        else:
            tell(self.lost)

    def settle(self, lost: bool) -> None:
        """It is known now. Only the first time counts."""
        if self.lost is None:
            self.lost = lost
            for tell in self._told:
                tell(lost)


def unread(transport: asyncio.BaseTransport) -> bool:
    """Whether a peer that closed its connection left bytes of ours behind: not acknowledged, or refused.

    Who has read everything has acknowledged everything before it closes. TLS has a last word of its own that nobody
    reads, and so nothing is said of it here.
    """
    connection = transport.get_extra_info("socket")
    if connection is None or transport.get_extra_info("ssl_object") is not None:
        return False
    try:
        refused = connection.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) != 0
        waiting = fcntl.ioctl(connection.fileno(), termios.TIOCOUTQ, bytes(4))
    except OSError:
        return False  # the socket is gone, or the system does not tell
    return refused or int.from_bytes(waiting, sys.byteorder) > 0
