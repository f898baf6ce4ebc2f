"""The conversations of the caller with a deployment. The shelf comes from who calls, never from the request."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Any

from gradwire.server.domain.caller import current_caller
from gradwire.server.domain.deployments import Deployments
from gradwire.server.domain.sessions import Message, Session, SessionReader
from gradwire.server.errors import InvalidArgument, NotFound
from gradwire.server.http.arena.answers import Answer
from gradwire.server.http.arena.asked import Asked

_NEXT_HEADER = b"x-gradwire-next-page-token"
_MAX_PAGES = 16  # of messages; each is 1000 of them or 8 MiB
_COUNT = re.compile("[0-9]{1,9}")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class Conversations:
    """`/sessions`. The wire knows no pages: without `page_size` an answer holds as much as one well can."""

    def __init__(self, deployments: Deployments, reader: SessionReader) -> None:
        self._deployments = deployments
        self._reader = reader

    async def all(self, asked: Asked, answer: Answer) -> None:
        """`GET /sessions?page_size=&page_token=`: the newest first, 1000 unless asked for fewer."""
        shelf = self._deployments.shelf(asked.deployment_id, current_caller())
        await asked.no_body()
        size, token = _page(asked)
        page = await self._reader.list(shelf, size, token)
        await answer.json([_times(session) for session in page.sessions], headers=_next(page.next_page_token))

    async def one(self, asked: Asked, answer: Answer) -> None:
        """`GET /sessions/ID?page_size=&page_token=`: all of it, up to 16,000 messages, unless asked for a page."""
        shelf = self._deployments.shelf(asked.deployment_id, current_caller())
        await asked.no_body()
        size, token = _page(asked)
        most = 1 if "page_size" in asked.parameters("page_size", "page_token") else _MAX_PAGES
        messages: list[Message] = []
        for _ in range(most):
            page = await self._reader.get(shelf, asked.target.session_id, size, token)
            messages += page.messages
            token = page.next_page_token
            if not token:
                break
        rows = [{"role": message.role, "content": message.content} for message in messages]
        await answer.json({"success": True, **_times(page.session), "messages": rows}, headers=_next(token))

    async def delete(self, asked: Asked, answer: Answer) -> None:
        """`DELETE /sessions/ID`: 204, or 404 when the caller has none such."""
        shelf = self._deployments.shelf(asked.deployment_id, current_caller())
        await asked.no_body()
        name = asked.target.session_id
        if not await self._reader.delete(shelf, name):
            raise NotFound("session", name, f"session_id: you have no session {name!r} here")
        await answer.nothing()


def _page(asked: Asked) -> tuple[int, str]:
    given = asked.parameters("page_size", "page_token")
    size = given.get("page_size", str(SessionReader.MAX_PAGE))
    if not _COUNT.fullmatch(size) or not 1 <= int(size) <= SessionReader.MAX_PAGE:
        raise InvalidArgument.at("page_size", f"must be 1 to {SessionReader.MAX_PAGE}, got {size[:40]!r}")
    return int(size), given.get("page_token", "")


def _next(token: str) -> list[tuple[bytes, bytes]]:
    return [(_NEXT_HEADER, token.encode())] if token else []


def _times(session: Session) -> dict[str, Any]:
    created, updated = (iso(time) for time in (session.created_at, session.updated_at))
    return {"session_id": session.session_id, "created_at": created, "last_updated": updated}


def iso(microseconds: int) -> str:
    """A Unix time in ISO 8601, UTC."""
    return (_EPOCH + timedelta(microseconds=microseconds)).isoformat()
