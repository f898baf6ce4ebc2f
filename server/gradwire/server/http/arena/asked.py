"""A request on its way to a handler."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar
from urllib.parse import parse_qsl

from gradwire.server.errors import InvalidArgument
from gradwire.server.http.arena.paths import Route, Target
from gradwire.server.http.arena.requests import parsed
from gradwire.server.http.connect import negotiation
from gradwire.server.http.connect.body import Body
from gradwire.server.rpc.interceptors.step import Call

T = TypeVar("T")
_LONG_BYTES = 256 << 10
"""Reading or writing more than this would hold up the event loop."""


@dataclass(frozen=True, slots=True)
class Asked:
    """`scheme` is "http" or "https"; `query` what stands after the question mark."""

    route: Route
    target: Target
    call: Call
    body: Body
    scheme: str
    query: bytes

    @property
    def deployment_id(self) -> str:
        """Empty: the only one."""
        return self.target.deployment_id

    async def read(self, parse: Callable[[Mapping[str, Any]], T]) -> T:
        """The body, as `parse` makes it of a JSON object."""
        data = await self.body.whole(negotiation.announced_length(self.call.metadata))
        if len(data) > _LONG_BYTES:
            return await asyncio.to_thread(lambda: parsed(data, parse))
        return parsed(data, parse)

    async def no_body(self) -> None:
        """Read what should be nothing: only then it is known when the caller leaves."""
        await self.body.whole(negotiation.announced_length(self.call.metadata))

    def parameters(self, *known: str) -> dict[str, str]:
        """Of the query; raises InvalidArgument for what is not known."""
        try:
            given = dict(parse_qsl(self.query.decode("ascii"), strict_parsing=bool(self.query), max_num_fields=20))
        except ValueError as error:  # UnicodeDecodeError is one
            raise InvalidArgument.at("", "the query is no list of NAME=VALUE") from error
        for name in given:
            if name not in known:
                raise InvalidArgument.at(name[:80], f"is not known; the query may have {', '.join(known)}")
        return given


async def off_loop(size: int, work: Callable[[], T]) -> T:
    """`work`, in a thread when it is about this many bytes or more than that loop should wait for."""
    return await asyncio.to_thread(work) if size > _LONG_BYTES else work()
