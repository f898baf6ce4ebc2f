"""`client.sessions`: read and delete stored conversations with deployed language models.

Generated from `gradwire.client.aio.sessions` by scripts/gen_sync_client.py; edit that instead.
"""

from __future__ import annotations

from gradwire.client.aio.sessions import AsyncSessions
from gradwire.client.sync.portal import Portal
from gradwire.client.types.inference import Conversation, Session


class Sessions:
    """Conversations of a deployment: `deployment_id`, or the only one."""

    def __init__(self, client: AsyncSessions, loop: Portal) -> None:
        self._async = client
        self._loop = loop

    def list(
        self, *, limit: int | None = None, deployment_id: str = "", timeout: float | None = None
    ) -> tuple[Session, ...]:
        """The caller's sessions, the most recently updated first: all of them, or the newest `limit`."""
        return self._loop.run(self._async.list(limit=limit, deployment_id=deployment_id, timeout=timeout))

    def get(self, session_id: str, *, deployment_id: str = "", timeout: float | None = None) -> Conversation:
        """A session and all its messages, the oldest first. Another user's is NotFoundError, as one that never was."""
        return self._loop.run(self._async.get(session_id, deployment_id=deployment_id, timeout=timeout))

    def delete(self, session_id: str, *, deployment_id: str = "", timeout: float | None = None) -> bool:
        """Deletes a session and its messages; whether there was one. Deleting again is fine."""
        return self._loop.run(self._async.delete(session_id, deployment_id=deployment_id, timeout=timeout))
