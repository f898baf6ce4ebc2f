"""`client.sessions`: read and delete stored conversations with deployed language models."""

from __future__ import annotations

from gradwire.client._convert.inference import session_from_proto, session_message_from_proto
from gradwire.client._convert.messages import put
from gradwire.client._core.arguments import whole
from gradwire.client._core.connection import Connection
from gradwire.client._core.rpc import Rpc
from gradwire.client.types.inference import Conversation, Session, SessionMessage
from gradwire.v1 import session_pb2 as pb

_SERVICE = "/gradwire.v1.SessionService/"
_PAGE = 1000
_LIST = Rpc(_SERVICE + "ListSessions", pb.ListSessionsRequest, pb.ListSessionsResponse, repeatable=True)
_GET = Rpc(_SERVICE + "GetSession", pb.GetSessionRequest, pb.GetSessionResponse, repeatable=True)
_DELETE = Rpc(_SERVICE + "DeleteSession", pb.DeleteSessionRequest, pb.DeleteSessionResponse, repeatable=True)


class AsyncSessions:
    """Conversations of a deployment: `deployment_id`, or the only one."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    async def list(
        self, *, limit: int | None = None, deployment_id: str = "", timeout: float | None = None
    ) -> tuple[Session, ...]:
        """The caller's sessions, the most recently updated first: all of them, or the newest `limit`."""
        if limit is not None and whole(limit, "limit", "a whole number, or None for all") < 1:
            raise ValueError(f"limit is {limit}; it is at least 1, or None for all")
        found: list[Session] = []
        request = put(pb.ListSessionsRequest(), deployment_id=deployment_id)
        while True:
            request.page_size = _PAGE if limit is None else min(_PAGE, limit - len(found))
            page = await self._connection.unary(_LIST, request, timeout=timeout)
            found += map(session_from_proto, page.sessions)
            if not page.next_page_token or len(found) == limit:
                return tuple(found)
            request.page_token = page.next_page_token

    async def get(self, session_id: str, *, deployment_id: str = "", timeout: float | None = None) -> Conversation:
        """A session and all its messages, the oldest first. Another user's is NotFoundError, as one that never was."""
        messages: list[SessionMessage] = []
        request = put(pb.GetSessionRequest(), deployment_id=deployment_id, session_id=session_id)
        while True:
            page = await self._connection.unary(_GET, request, timeout=timeout)
            messages += map(session_message_from_proto, page.messages)
            if not page.next_page_token:
                return Conversation(session_from_proto(page.session), tuple(messages))
            request.page_token = page.next_page_token

    async def delete(self, session_id: str, *, deployment_id: str = "", timeout: float | None = None) -> bool:
        """Deletes a session and its messages; whether there was one. Deleting again is fine."""
        request = put(pb.DeleteSessionRequest(), deployment_id=deployment_id, session_id=session_id)
        return (await self._connection.unary(_DELETE, request, timeout=timeout)).deleted
