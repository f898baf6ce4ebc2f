"""Outermost: whatever goes wrong becomes a status with google.rpc details.

An exception that is not a GradwireError is a bug of ours: its text may hold paths or secrets, so
the caller gets a correlation id and the log gets the rest.
"""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import grpc
from google.protobuf.message import DecodeError
from google.rpc import status_pb2
from grpc import aio
from grpc_status import rpc_status

from gradwire.server.codec.status import to_status
from gradwire.server.errors import GradwireError, InvalidArgument, Unimplemented
from gradwire.server.rpc.interceptors.around import Call, CallInterceptor

log = logging.getLogger(__name__)

_UNREADABLE = object()  # in place of a message


def unexpected(method: str, error: BaseException) -> status_pb2.Status:
    """Log a bug and make the status that the caller may see."""
    correlation_id = uuid.uuid4().hex
    log.error("%s failed, correlation id %s", method, correlation_id, exc_info=error)
    return to_status(
        GradwireError(
            "INTERNAL",
            f"an unexpected error; the server's log has it under {correlation_id}",
            metadata={"correlation_id": correlation_id},
        )
    )


class ErrorInterceptor(CallInterceptor):
    """Turns exceptions into statuses. A cancelled call stays cancelled."""

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[grpc.RpcMethodHandler[Any, Any] | None]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> grpc.RpcMethodHandler[Any, Any] | None:
        """Wrap the handler of a call; a method that is not served has an error with details, too."""
        handler = await super().intercept_service(continuation, handler_call_details)
        return handler if handler is not None else grpc.unary_unary_rpc_method_handler(_not_served)

    def reader(self, read: Callable[[bytes], Any] | None) -> Callable[[bytes], Any] | None:
        """gRPC answers an exception in here with UNKNOWN and its text; `check` can do better."""
        if read is None:
            return None

        def careful(data: bytes) -> Any:
            try:
                return read(data)
            except DecodeError:
                return _UNREADABLE

        return careful

    async def check(self, call: Call, message: Any) -> None:
        if message is _UNREADABLE:
            raise InvalidArgument.at("", "the bytes are no message of this method's type", reason="NOT_A_MESSAGE")

    @asynccontextmanager
    async def around(self, call: Call) -> AsyncIterator[None]:
        try:
            yield
        except (aio.AbortError, asyncio.CancelledError):
            raise
        except GradwireError as error:
            if type(error) is GradwireError:  # INTERNAL of ours: an operator wants to know
                log.error("%s: %s", call.method, error.message)
            await _abort(call, to_status(error))
        except Exception as error:
            await _abort(call, unexpected(call.method, error))


async def _not_served(request: bytes, context: Any) -> None:
    error = Unimplemented("METHOD_NOT_SERVED", "this server does not serve this method; GetCapabilities lists services")
    await context.abort_with_status(rpc_status.to_status(to_status(error)))


async def _abort(call: Call, status: status_pb2.Status) -> None:
    await call.context.abort_with_status(rpc_status.to_status(status))
