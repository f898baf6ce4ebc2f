"""One server stream on the wire.

Knows: reading, cancelling, and that a stream nobody holds any more must be cancelled: grpc.aio keeps an
abandoned call alive for ever. Does not know: what the messages mean.
"""

from __future__ import annotations

import asyncio
import weakref
from typing import Generic

import grpc
import grpc.aio

from gradwire.client._core.rpc import Request, Response, Rpc
from gradwire.client._core.status import error_from_rpc, short_name
from gradwire.client.errors import CallCancelledError


class ServerStream(Generic[Response]):
    """Messages of one call, read one by one. Dropping the last reference cancels the call."""

    def __init__(self, call: grpc.aio.UnaryStreamCall[bytes, bytes], rpc: Rpc[Request, Response], address: str) -> None:
        self._call = call
        self._path = rpc.path
        self._parse = rpc.response.FromString
        self._address = address
        self._cancelled = False
        self._ended = False
        self._cancel = weakref.finalize(self, _cancel_soon, call, asyncio.get_running_loop())
        self._cancel.atexit = False

    async def read(self) -> Response | None:
        """The next message, None after the last. Raises GradwireError for a status other than OK."""
        if self._ended:
            return None
        try:
            data = await self._call.read()
        except grpc.aio.AioRpcError as error:
            self._ended = True
            raise error_from_rpc(error, self._path, self._address) from error
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if self._cancelled and not (task and task.cancelling()):
                raise self._cancelled_error() from None
            raise
        if not isinstance(data, bytes):  # the end is an object of its own
            self._ended = True
            if self._cancelled:
                raise self._cancelled_error()
            return None
        return self._parse(data)

    def cancel(self) -> None:
        """Ends the call; may be called from any thread, and again."""
        if not self._ended:
            self._cancelled = True
            self._cancel()

    def _cancelled_error(self) -> CallCancelledError:
        return CallCancelledError("this stream was cancelled here", method=short_name(self._path))


def _cancel_soon(call: grpc.aio.UnaryStreamCall[bytes, bytes], loop: asyncio.AbstractEventLoop) -> None:
    # A finalizer may run in any thread, and in the middle of anything: only the loop may touch the call.
    if not loop.is_closed():
        loop.call_soon_threadsafe(call.cancel)
