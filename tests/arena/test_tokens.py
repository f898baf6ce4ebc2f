"""Credentials on a whole server that wants them: persons' and organisations' tokens, expired, revoked."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from gradwire.client import AsyncClient
from gradwire.client.arena import ArenaAuthError, AsyncAgent
from tests.rpc.support import serving
from tests.rpc.test_auth import SECRETS, token


async def refused(address: str, status: int, text: str, **credential: Any) -> None:
    with pytest.raises(ArenaAuthError, match=text) as caught:
        async with AsyncAgent(address, **credential) as agent:
            await agent.generate("hi")
    assert caught.value.status_code == status
    assert not any(secret in str(caught.value) for key, secret in credential.items() if "key" in key)


async def test_credentials(tmp_path: Path) -> None:
    async with (
        serving(tmp_path, tokens=[token("admin")]) as served,
        AsyncClient(served.app.grpc_address, token=SECRETS["admin"]) as client,
    ):
        await client.deployments.deploy_llm("chat")
        address = f"grpc://{served.app.grpc_address}/chat"
        admin = client.admin
        person = await admin.create_token("acme", ["inference"])
        other = await admin.create_token("acme", ["inference"])
        company = await admin.create_token("acme", ["inference"], kind="organization")
        trainer = await admin.create_token("acme", ["training"])
        revoked = await admin.create_token("acme", ["inference"])
        await admin.revoke_token(revoked.token)
        expired = await admin.create_token("acme", ["inference"], lifetime_s=0.001)

        async with AsyncAgent(address) as agent:
            public = await agent.status()
            assert public.deployment_id == "chat" and public.agent is not None and public.agent.llm
            assert public.memory_scope == ""
        await refused(address, 401, "wants a token")
        await refused(address, 401, "not known", api_key="arena_pat_1_2")
        await refused(address, 401, "revoked", api_key=revoked.secret)
        await refused(address, 401, "expired", api_key=expired.secret)
        await refused(address, 401, "external-user", org_key=person.secret, external_user_id="u")
        await refused(address, 401, "organisation", api_key=company.secret)
        await refused(address, 403, "not allowed to use this deployment", api_key=trainer.secret)

        sessions: dict[str, list[str]] = {}
        callers: dict[str, dict[str, Any]] = {
            "person": {"api_key": person.secret},
            "other": {"api_key": other.secret},
            "u1": {"org_key": company.secret, "external_user_id": "u1"},
            "u2": {"org_key": company.secret, "external_user_id": "u2"},
        }
        for name, credential in callers.items():
            async with AsyncAgent(address, **credential) as agent:
                made = (await agent.generate("hi")).session_id
                sessions[name] = [s.session_id for s in await agent.list_sessions()]
                assert sessions[name] == [made]
        async with AsyncAgent(address, api_key=person.secret) as agent:
            await admin.revoke_token(person.token)  # in the middle: the next call is refused
            with pytest.raises(ArenaAuthError, match="revoked"):
                await agent.list_sessions()
