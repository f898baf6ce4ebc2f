"""SessionService: what is stored of conversations with deployed language models."""

from __future__ import annotations

from typing import Any

from gradwire.server.codec.times import timestamp_us
from gradwire.server.domain.caller import current_caller
from gradwire.server.domain.deployments import Deployments
from gradwire.server.domain.sessions import Message, Session, SessionReader, Shelf
from gradwire.v1 import session_pb2, session_pb2_grpc

_PAGE_SIZE = 50


class SessionServicer(session_pb2_grpc.SessionServiceServicer):
    """Adapter of the conversations. The shelf comes from who calls, never from the request."""

    def __init__(self, deployments: Deployments, reader: SessionReader) -> None:
        self._deployments = deployments
        self._reader = reader

    def _shelf(self, request: Any) -> Shelf:
        return self._deployments.shelf(request.deployment_id, current_caller())

    async def ListSessions(
        self, request: session_pb2.ListSessionsRequest, context: Any
    ) -> session_pb2.ListSessionsResponse:
        size = request.page_size if request.HasField("page_size") else _PAGE_SIZE
        page = await self._reader.list(self._shelf(request), size, request.page_token)
        return session_pb2.ListSessionsResponse(
            sessions=map(_encode_session, page.sessions), next_page_token=page.next_page_token
        )

    async def GetSession(self, request: session_pb2.GetSessionRequest, context: Any) -> session_pb2.GetSessionResponse:
        size = request.page_size if request.HasField("page_size") else SessionReader.MAX_PAGE
        page = await self._reader.get(self._shelf(request), request.session_id, size, request.page_token)
        return session_pb2.GetSessionResponse(
            session=_encode_session(page.session),
            messages=map(_encode_message, page.messages),
            next_page_token=page.next_page_token,
        )

    async def DeleteSession(
        self, request: session_pb2.DeleteSessionRequest, context: Any
    ) -> session_pb2.DeleteSessionResponse:
        deleted = await self._reader.delete(self._shelf(request), request.session_id)
        return session_pb2.DeleteSessionResponse(deleted=deleted)


def _encode_session(session: Session) -> session_pb2.Session:
    return session_pb2.Session(
        session_id=session.session_id,
        created_at=timestamp_us(session.created_at),
        updated_at=timestamp_us(session.updated_at),
        num_messages=session.num_messages,
    )


def _encode_message(message: Message) -> session_pb2.SessionMessage:
    return session_pb2.SessionMessage(
        role=message.role,
        content=message.content,
        created_at=timestamp_us(message.created_at),
        incomplete=message.incomplete,
    )
