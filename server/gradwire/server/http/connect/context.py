"""What a servicer sees of a call that came over HTTP: the part of grpc.aio.ServicerContext that is used."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, NoReturn

import grpc
from google.protobuf.message import Message
from google.rpc import status_pb2

from gradwire.server.codec.status import DETAILS_KEY
from gradwire.server.http.connect.replies import Reply
from gradwire.server.rpc.interceptors.step import Call


class CallAbortedError(Exception):
    """A servicer that knows gRPC (the one for health) ended the call with a status."""

    def __init__(self, status: status_pb2.Status) -> None:
        super().__init__(status.message)
        self.status = status


class HttpContext:
    """`ends` is the call's deadline on the loop's clock."""

    def __init__(self, call: Call, reply: Reply, ends: float | None) -> None:
        self._call = call
        self._reply = reply
        self._ends = ends

    async def write(self, message: Message) -> None:
        """Send a message; waits while the caller does not read."""
        await self._reply.message(message)

    def time_remaining(self) -> float | None:
        """Seconds until the deadline."""
        return None if self._ends is None else max(0.0, self._ends - asyncio.get_running_loop().time())

    def peer(self) -> str:
        """As gRPC writes it."""
        return self._call.peer

    def invocation_metadata(self) -> Sequence[tuple[str, str]]:
        """The request's headers."""
        return tuple(self._call.metadata.items())

    async def abort(self, code: grpc.StatusCode, details: str = "", trailing_metadata: Any = ()) -> NoReturn:
        """End the call with a status; that of the trailers, where there is one."""
        for key, value in trailing_metadata:
            if key == DETAILS_KEY:
                raise CallAbortedError(status_pb2.Status.FromString(value))
        raise CallAbortedError(status_pb2.Status(code=code.value[0], message=details))
