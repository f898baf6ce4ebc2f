"""Runs the chain of steps around each gRPC call, and ends a failed call with its status and details.

grpc.aio wants a wrapper per kind of call; this is the only place that knows the four kinds.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import suppress
from typing import Any

import grpc
from google.protobuf.message import DecodeError
from google.rpc import status_pb2
from grpc import aio
from grpc_status import rpc_status

from gradwire.server.codec.status import to_status
from gradwire.server.errors import draining
from gradwire.server.rpc.interceptors.cutting import CallsUnderWay, CutError
from gradwire.server.rpc.interceptors.errors import method_not_served, not_a_message, status_of
from gradwire.server.rpc.interceptors.patience import Patience
from gradwire.server.rpc.interceptors.step import Call, Chain, answer_stream

_UNREADABLE = object()  # in place of a message
_REFUSED_SENDS_SECONDS = 2.0
_PAUSE_SECONDS = 0.02


class ChainedMethods(grpc.GenericRpcHandler):
    """The methods of the gRPC door, each inside the chain.

    It takes what the generated `add_..._to_server` functions give to a server, and is itself the server's one handler.
    An interceptor could do the same, but grpc.aio then makes a handler anew for each call.
    """

    def __init__(self, chain: Chain) -> None:
        self._chain = chain
        self._methods: dict[str, grpc.RpcMethodHandler[Any, Any]] = {}
        self._calls = CallsUnderWay(draining)

    async def cut(self) -> None:
        """End the calls under way: their callers are told that the server drains."""
        await self._calls.cut()

    def add_generic_rpc_handlers(self, handlers: Any) -> None:
        """The same handlers come again, with their names, by `add_registered_method_handlers`."""

    def add_registered_method_handlers(
        self, service_name: str, method_handlers: Mapping[str, grpc.RpcMethodHandler[Any, Any]]
    ) -> None:
        """Take a service's methods."""
        for name, handler in method_handlers.items():
            path = f"/{service_name}/{name}"
            self._methods[path] = _wrap(self._chain, self._calls, handler, path)

    def service(self, handler_call_details: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler[Any, Any]:
        """A method that is not served has an error with details, too."""
        path = handler_call_details.method
        return self._methods.get(path) or grpc.unary_unary_rpc_method_handler(_not_served(path))


def _wrap(
    chain: Chain, calls: CallsUnderWay, handler: grpc.RpcMethodHandler[Any, Any], path: str
) -> grpc.RpcMethodHandler[Any, Any]:
    function = handler_function(handler)

    async def checked(call: Call, request: Any, context: Any) -> Any:
        if handler.request_streaming:
            # One that is answered in between may be silent for as long as its handler likes.
            return _Checked(chain, call, context, None if handler.response_streaming else Patience())
        if request is _UNREADABLE:
            raise not_a_message()
        await chain.check(call, request)
        return request

    async def serve(request: Any, context: Any) -> Any:
        metadata = {k: v for k, v in context.invocation_metadata() or () if isinstance(v, str)}
        call = Call(path, context.peer() or "", metadata)
        try:
            with calls.told_why():
                async with chain.around(call):
                    given = await checked(call, request, context)
                    if handler.response_streaming:
                        return await _answer_stream(function, given, context)
                    return await function(given, context)
        except (aio.AbortError, asyncio.CancelledError):
            raise
        except CutError as cut:
            await _abort(context, to_status(cut.why))
        except Exception as error:
            if handler.request_streaming:
                await _let_send(request, in_turn=handler.response_streaming, begun=call.heard)
            await _abort(context, status_of(path, error))

    make = _MAKERS[handler.request_streaming, handler.response_streaming]
    return make(
        serve,
        request_deserializer=_careful(handler.request_deserializer),
        response_serializer=handler.response_serializer,
    )


async def _answer_stream(function: Any, request: Any, context: Any) -> None:
    try:
        await answer_stream(function, request, context)
    except aio.InternalError as error:  # what was being written had no reader any more
        raise asyncio.CancelledError from error


async def _let_send(messages: AsyncIterator[Any], *, in_turn: bool, begun: bool) -> None:
    """Let a client that is refused finish sending, for a while.

    One that may wait for answers in between is done when it pauses after its first message, which it has `begun` with.
    grpc.aio clients that are still writing when the status arrives report INTERNAL instead of it (grpc issue 36066).
    """
    now = asyncio.get_running_loop().time
    end = now() + _REFUSED_SENDS_SECONDS
    with suppress(TimeoutError, aio.UsageError):  # UsageError: the handler had read everything
        async with asyncio.timeout_at(now() + _PAUSE_SECONDS if in_turn and begun else end) as limit:
            async for _ in messages:
                if in_turn:
                    limit.reschedule(min(end, now() + _PAUSE_SECONDS))


class _Checked:
    """The messages of a client's stream, each after `check`. (gRPC's own iterator is a generator, and costs a hop.)"""

    def __init__(self, chain: Chain, call: Call, context: Any, patience: Patience | None) -> None:
        self._chain = chain
        self._call = call
        self._read = context.read
        self._patience = patience

    def __aiter__(self) -> _Checked:
        return self

    async def __anext__(self) -> Any:
        message = await (self._read() if self._patience is None else self._patience.wait(self._read()))
        if message is aio.EOF:
            raise StopAsyncIteration
        self._call.heard = True
        if message is _UNREADABLE:
            raise not_a_message()
        await self._chain.check(self._call, message)
        return message


def _careful(read: Callable[[bytes], Any] | None) -> Callable[[bytes], Any] | None:
    """gRPC answers an exception while reading with UNKNOWN and its text; the chain can do better."""
    if read is None:
        return None

    def careful(data: bytes) -> Any:
        try:
            return read(data)
        except DecodeError:
            return _UNREADABLE

    return careful


_MAKERS: dict[tuple[bool, bool], Callable[..., Any]] = {
    (False, False): grpc.unary_unary_rpc_method_handler,
    (False, True): grpc.unary_stream_rpc_method_handler,
    (True, False): grpc.stream_unary_rpc_method_handler,
    (True, True): grpc.stream_stream_rpc_method_handler,
}


def handler_function(handler: grpc.RpcMethodHandler[Any, Any]) -> Any:
    """The servicer's method behind a handler."""
    if handler.request_streaming:
        return handler.stream_stream if handler.response_streaming else handler.stream_unary
    return handler.unary_stream if handler.response_streaming else handler.unary_unary


def _not_served(path: str) -> Callable[[bytes, Any], Awaitable[None]]:
    async def answer(request: bytes, context: Any) -> None:
        await _abort(context, to_status(method_not_served(path)))

    return answer


async def _abort(context: Any, status: status_pb2.Status) -> None:
    try:
        await context.abort_with_status(rpc_status.to_status(status))
    except (aio.InternalError, aio.UsageError) as error:  # there is nobody to tell
        raise asyncio.CancelledError from error
