"""A whole server on each database: what one process stored is there in the next."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from sqlalchemy.engine import URL

from gradwire.client import AsyncClient
from tests.rpc.support import serving
from tests.rpc.test_auth import SECRETS, token


async def test_tokens_deployments_and_conversations_outlive_the_server(url: URL, tmp_path: Path) -> None:
    address = url.set(drivername=url.get_backend_name()).render_as_string(hide_password=False)
    settings: dict[str, Any] = {"tokens": [token("admin")], "database": address}
    secret, replies = "", []
    for _ in range(2):
        async with (
            serving(tmp_path, **settings) as served,
            AsyncClient(served.app.grpc_address, token=SECRETS["admin"]) as admin,
        ):
            if not secret:
                secret = (await admin.admin.create_token("acme", ["inference"], user="ann")).secret
                await admin.deployments.deploy_llm("chat")
            async with AsyncClient(served.app.grpc_address, token=secret) as ann:
                replies.append((await ann.inference.generate("abc", session_id="s", max_tokens=2)).replies[0].text)
                messages = (await ann.sessions.get("s")).messages
                assert [m.content for m in messages] == [text for reply in replies for text in ("abc", reply)]
    assert replies == ["cb", "cb"]
    assert not (tmp_path / "data" / "gradwire.db").exists()  # the default was not used instead
