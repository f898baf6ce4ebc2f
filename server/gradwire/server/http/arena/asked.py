"""A request on its way to a handler."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar
from urllib.parse import parse_qsl

from gradwire.server.errors import InvalidArgument
from gradwire.server.http.arena.paths import Route, Target
from gradwire.server.http.arena.requests import parsed
from gradwire.server.http.body import Body
from gradwire.server.http.headers import announced_length
from gradwire.server.http.json_body import off_loop
from gradwire.server.rpc.interceptors.step import Call

T = TypeVar("T")


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
        data = await self.body.whole(announced_length(self.call.metadata))
        return await off_loop(len(data), lambda: parsed(data, parse))

    async def no_body(self) -> None:
        """Read what should be nothing: only then it is known when the caller leaves."""
        await self.body.whole(announced_length(self.call.metadata))

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
