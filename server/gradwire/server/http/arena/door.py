"""The door for the Arena's clients: finds the route, runs the chain of steps around its handler, answers failures."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gradwire.server.errors import NotFound, draining
from gradwire.server.http.arena.answers import Answer
from gradwire.server.http.arena.asked import Asked
from gradwire.server.http.arena.errors import in_wire_terms
from gradwire.server.http.arena.handlers import Handler
from gradwire.server.http.arena.paths import Route, looks_like_ours, method_name, target_of
from gradwire.server.http.asgi import Send
from gradwire.server.http.body import Body, BodyLimits
from gradwire.server.http.headers import names_this_host, peer_of
from gradwire.server.http.refusals import foreign_name, wrong_verb
from gradwire.server.http.works import Ending, Works
from gradwire.server.rpc.interceptors.errors import shown
from gradwire.server.rpc.interceptors.step import Call, Chain


class ArenaDoor:
    """An ASGI application. With `guarded` (tokens are asked for) it may be called by any name."""

    def __init__(
        self,
        handlers: Mapping[Route, Handler],
        chain: Chain,
        *,
        limits: BodyLimits,
        guarded: bool,
    ) -> None:
        self._handlers = handlers
        self._chain = chain
        self._limits = limits
        self._guarded = guarded
        self._works = Works()

    def serves(self, path: str) -> bool:
        """Whether a path is one of this door's, or looks like it."""
        return looks_like_ours(path)

    async def __call__(self, scope: Any, receive: Any, send: Send) -> None:
        """Answer one request."""
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
        answer = Answer(send)
        target = target_of(scope["path"])
        if target is None:
            await answer.fail(_no_such_path(scope["path"]))
        elif not self._guarded and not names_this_host(headers):
            await answer.fail(foreign_name())
        elif (route := target.routes.get(scope["method"])) is None:
            verbs = ", ".join(target.routes)
            await answer.fail(wrong_verb(verbs), status=405, headers=[(b"allow", verbs.encode())])
        else:
            peer = peer_of(scope.get("client"))
            call = Call(method_name(route), peer, headers)
            body = Body(receive, limit=self._limits.max_bytes, patience_s=self._limits.patience_s, gzipped=False)
            asked = Asked(route, target, call, body, scope["scheme"], scope["query_string"])
            if await self._works.run(self._work(asked, answer), body) is not Ending.OWN:
                await answer.fail(draining())

    async def _work(self, asked: Asked, answer: Answer) -> None:
        try:
            async with self._chain.around(asked.call):
                await self._handlers[asked.route](asked, answer)
        except Exception as error:
            await answer.fail(in_wire_terms(shown(asked.call.method, error)))

    async def close(self) -> None:
        """End the calls that are still under way."""
        await self._works.close()


def _no_such_path(path: str) -> NotFound:
    return NotFound(
        "path",
        path,
        f"nothing at {path[:200]}; a deployment has /status, /get_action, /predict, /generate, /generate_stream and "
        "/sessions, below /deployments/NAME",
    )
