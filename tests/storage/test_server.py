"""A whole server on each database: what one process stored is there in the next."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from sqlalchemy.engine import URL

from gradwire.client import AsyncClient
from gradwire.server.domain import deploying
from tests.rpc.support import serving, until
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


async def test_two_servers_of_one_database_follow_each_other(
    url: URL, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(deploying, "REFRESH_S", 0.02)
    address = url.set(drivername=url.get_backend_name()).render_as_string(hide_password=False)
    async with (
        serving(tmp_path, database=address) as one,
        serving(tmp_path, database=address) as other,
        AsyncClient(one.app.grpc_address) as here,
        AsyncClient(other.app.grpc_address) as there,
    ):

        async def shown(version: int) -> bool:
            return [d.version for d in await there.deployments.list()] == ([version] if version else [])

        await here.deployments.deploy_llm("chat")
        await until(lambda: shown(1))
        assert (await there.inference.generate("abc", max_tokens=2)).replies[0].text == "cb"
        await here.deployments.deploy_llm("chat", system_prompt="Be brief.", replace=True)
        await until(lambda: shown(2))
        assert await here.deployments.undeploy("chat")
        await until(lambda: shown(0))
