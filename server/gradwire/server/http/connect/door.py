"""The door: finds the method, runs the chain of steps and the servicer, and answers in the form asked for.

A call ends at once when its caller leaves, its deadline passes or the server closes: its task is cancelled, as
grpc.aio does, and so the engine's slot is free again.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

from google.protobuf.message import Message
from google.rpc import status_pb2

from gradwire.server.codec.status import to_status
from gradwire.server.errors import (
    DeadlineExceeded,
    GradwireError,
    InvalidArgument,
    Unimplemented,
    draining,
)
from gradwire.server.http.asgi import Send
from gradwire.server.http.body import Body
from gradwire.server.http.compression import check_encoding
from gradwire.server.http.connect import negotiation
from gradwire.server.http.connect.coding import decode
from gradwire.server.http.connect.context import CallAbortedError, HttpContext
from gradwire.server.http.connect.envelopes import messages
from gradwire.server.http.connect.methods import Method, MethodTable
from gradwire.server.http.connect.negotiation import Form
from gradwire.server.http.connect.replies import Reply, send_failure
from gradwire.server.http.headers import announced_length, content_type, names_this_host, peer_of
from gradwire.server.http.refusals import foreign_name
from gradwire.server.http.works import Ending, Works
from gradwire.server.rpc.interceptors.errors import method_not_served, status_of
from gradwire.server.rpc.interceptors.step import Call, Chain, answer_stream

_LAST_WORDS_S = 1.0  # for the end of a reply whose reader has stopped reading


class ConnectDoor:
    """An ASGI application. With `guarded` (tokens are asked for) it may be called by any name."""

    def __init__(
        self, methods: MethodTable, chain: Chain, *, max_message_bytes: int, patience_s: float, guarded: bool
    ) -> None:
        self._methods = methods
        self._chain = chain
        self._limit = max_message_bytes
        self._patience_s = patience_s
        self._guarded = guarded
        self._works = Works()

    async def __call__(self, scope: Any, receive: Any, send: Send) -> None:
        """Answer one request."""
        method = self._methods.find(scope["path"])
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
        if method is None:
            await send_failure(send, to_status(method_not_served(scope["path"])), http=404)
        elif not self._guarded and not names_this_host(headers):
            await send_failure(send, to_status(foreign_name()))
        elif scope["method"] != "POST":
            await send_failure(send, to_status(_only_post()), http=405, headers=((b"allow", b"POST"),))
        elif (form := negotiation.forms(method).get(content_type(headers))) is None:
            types = ", ".join(negotiation.forms(method))
            await send_failure(
                send, to_status(_wrong_type(method, types)), http=415, headers=((b"accept-post", types.encode()),)
            )
        else:
            peer = peer_of(scope.get("client"))
            call = Call(method.path, peer, headers)
            await self._answer(method, call, form, receive, form.reply(send, form.coding))

    async def _answer(self, method: Method, call: Call, form: Form, receive: Any, reply: Reply) -> None:
        try:
            negotiation.check_version(call.metadata)
            seconds = negotiation.timeout_s(call.metadata)
            name = "connect-content-encoding" if form.enveloped else "content-encoding"
            gzipped = check_encoding(call.metadata.get(name, ""))
        except GradwireError as error:
            await reply.fail(to_status(error))
            return
        ends = None if seconds is None else asyncio.get_running_loop().time() + seconds
        body = Body(receive, limit=self._limit, patience_s=self._patience_s, gzipped=gzipped)
        ending = await self._works.run(self._work(method, call, form, body, reply, ends), body, seconds=seconds)
        if ending is not Ending.OWN:
            await _last_words(reply, to_status(_late() if ending is Ending.LATE else draining()))

    async def _work(self, method: Method, call: Call, form: Form, body: Body, reply: Reply, ends: float | None) -> None:
        """The call itself; cancelled from outside, or by CallerLeft from within."""
        context = HttpContext(call, reply, ends)
        try:
            async with self._chain.around(call):
                await self._serve(method, call, form, body, reply, context)
        except CallAbortedError as error:
            await reply.fail(error.status)
        except Exception as error:
            await reply.fail(status_of(call.method, error))

    async def _serve(
        self, method: Method, call: Call, form: Form, body: Body, reply: Reply, context: HttpContext
    ) -> None:
        request: Any
        if method.streams_requests:
            request = self._chain.checked(call, _decoded(method, form, body))
        else:
            request = await self._single(method, call, form, body)
            await self._chain.check(call, request)
        if method.streams_responses:
            await answer_stream(method.function, request, context)
        else:
            await reply.message(await method.function(request, context))
        await reply.end()

    async def _single(self, method: Method, call: Call, form: Form, body: Body) -> Message:
        """The only message of a request."""
        if not form.enveloped:
            data = await body.whole(announced_length(call.metadata))
            return await decode(form.coding, data, method.request)
        found = [message async for message in _decoded(method, form, body, most=1)]
        if not found:
            raise InvalidArgument.at("", "the body holds no envelope; this method takes one", reason="BAD_ENVELOPE")
        return found[0]

    async def close(self) -> None:
        """End the calls that are still under way."""
        await self._works.close()


async def _decoded(method: Method, form: Form, body: Body, most: int | None = None) -> AsyncIterator[Message]:
    count = 0
    async for data in messages(body):
        count += 1
        if most is not None and count > most:
            raise InvalidArgument.at("", f"the body holds more than {most} envelope", reason="BAD_ENVELOPE")
        yield await decode(form.coding, data, method.request)


async def _last_words(reply: Reply, status: status_pb2.Status) -> None:
    try:
        async with asyncio.timeout(_LAST_WORDS_S):
            await reply.fail(status)
    except TimeoutError:
        pass  # it does not read: the connection is closed instead, as the reply is not whole


def _late() -> DeadlineExceeded:
    return DeadlineExceeded("CALL_TIMEOUT", "the call's deadline passed; Connect-Timeout-Ms gives it more")


def _only_post() -> Unimplemented:
    return Unimplemented("ONLY_POST", "calls are sent by POST")


def _wrong_type(method: Method, types: str) -> InvalidArgument:
    return InvalidArgument.at("", f"the Content-Type of {method.path} is one of: {types}", reason="WRONG_CONTENT_TYPE")
