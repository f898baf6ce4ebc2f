"""The frame of our interceptors: one context manager around a call, one look at each request message.

grpc.aio wants a wrapper per kind of call; this is the only place that knows the four kinds.
"""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import grpc
from grpc import aio


@dataclass(slots=True)
class Call:
    """One call, as the interceptors see it."""

    method: str  # "/gradwire.v1.SamplingService/Generate"
    context: aio.ServicerContext[Any, Any]
    metadata: dict[str, str] = field(default_factory=dict)

    @property
    def service(self) -> str:
        """ "gradwire.v1.SamplingService"."""
        return self.method.rsplit("/", 2)[-2]


class CallInterceptor(aio.ServerInterceptor):
    """Override `around` and, where messages matter, `check`."""

    @asynccontextmanager
    async def around(self, call: Call) -> AsyncIterator[None]:
        """Runs around the whole call, in the task that serves it."""
        yield

    async def check(self, call: Call, message: Any) -> None:
        """Sees each request message before the handler does."""

    def reader(self, read: Callable[[bytes], Any] | None) -> Callable[[bytes], Any] | None:
        """What makes messages of bytes; only the outermost interceptor's is used."""
        return read

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[grpc.RpcMethodHandler[Any, Any] | None]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> grpc.RpcMethodHandler[Any, Any] | None:
        """Wrap the handler of a call; an unknown method has none."""
        handler = await continuation(handler_call_details)
        if handler is None:
            return handler
        return _wrap(self, handler, handler_call_details)


def _wrap(
    interceptor: CallInterceptor, handler: grpc.RpcMethodHandler[Any, Any], details: grpc.HandlerCallDetails
) -> grpc.RpcMethodHandler[Any, Any]:
    def enter(context: Any) -> tuple[Call, AbstractAsyncContextManager[None]]:
        metadata = {k: v for k, v in details.invocation_metadata or () if isinstance(v, str)}
        call = Call(details.method, context, metadata)
        return call, interceptor.around(call)

    async def checked(call: Call, messages: AsyncIterator[Any]) -> AsyncIterator[Any]:
        async for message in messages:
            await interceptor.check(call, message)
            yield message

    def requests(call: Call, request: Any) -> Any:
        return checked(call, request) if handler.request_streaming else request

    async def unary_response(request: Any, context: Any) -> Any:
        call, around = enter(context)
        async with around:
            if not handler.request_streaming:
                await interceptor.check(call, request)
            return await inner(requests(call, request), context)

    async def stream_response(request: Any, context: Any) -> None:
        # A handler that writes to its context costs no hop per message here; one that yields does.
        call, around = enter(context)
        async with around:
            if not handler.request_streaming:
                await interceptor.check(call, request)
            if inspect.isasyncgenfunction(inner):
                async for response in inner(requests(call, request), context):
                    await context.write(response)
            else:
                await inner(requests(call, request), context)

    inner: Any = _function(handler)
    make = _MAKERS[handler.request_streaming, handler.response_streaming]
    return make(
        stream_response if handler.response_streaming else unary_response,
        request_deserializer=interceptor.reader(handler.request_deserializer),
        response_serializer=handler.response_serializer,
    )


_MAKERS: dict[tuple[bool, bool], Callable[..., Any]] = {
    (False, False): grpc.unary_unary_rpc_method_handler,
    (False, True): grpc.unary_stream_rpc_method_handler,
    (True, False): grpc.stream_unary_rpc_method_handler,
    (True, True): grpc.stream_stream_rpc_method_handler,
}


def _function(handler: grpc.RpcMethodHandler[Any, Any]) -> Any:
    if handler.request_streaming:
        return handler.stream_stream if handler.response_streaming else handler.stream_unary
    return handler.unary_stream if handler.response_streaming else handler.unary_unary
