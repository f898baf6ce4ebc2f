"""What is kept of deployments, on both databases."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from gradwire.server.domain.deployment_records import DeploymentRecord
from gradwire.server.domain.deployments import DeploymentKind, LanguageModel, PolicyBundle
from gradwire.server.domain.sessions import MemoryScope
from gradwire.server.errors import InvalidArgument
from gradwire.server.storage.database import Database
from gradwire.server.storage.deployments import DatabaseDeployments

PARAMS = {"temperature": 0.25, "stop": ("a", "ü"), "stop_token_ids": (1, 2), "max_tokens": 7}
LLM = DeploymentRecord(
    "llm", 3, "acme", MemoryScope.ORGANIZATION, DeploymentKind.LLM, LanguageModel(0, 0, "be\0kind 🙂", PARAMS), 2**50
)
POLICY = DeploymentRecord("cart", 1, "acme", None, DeploymentKind.RL_POLICY, PolicyBundle("a/b.zip", True), 1)


async def test_records_come_back_as_they_were(database: Database, open_database: Callable[[], Database]) -> None:
    store = DatabaseDeployments(database)
    assert await store.find("llm") is None and await store.all() == []
    for record in (LLM, POLICY):
        await store.put(record)
    another = open_database()
    await another.open()
    assert await DatabaseDeployments(another).all() == [POLICY, LLM]
    assert await DatabaseDeployments(another).find("llm") == LLM


async def test_a_name_is_remembered_without_what_was_behind_it(database: Database) -> None:
    store = DatabaseDeployments(database)
    await store.put(LLM)
    await store.put(replace(LLM, source=None))
    assert await store.all() == [replace(LLM, source=None)]
    supervised = replace(POLICY, deployment_id="llm", kind=DeploymentKind.SUPERVISED, version=4)
    await store.put(supervised)
    assert await store.find("llm") == supervised


async def test_a_name_with_nul_is_nobodys(database: Database) -> None:
    asked = DatabaseDeployments(database).find("a\0b")
    if database.is_sqlite:
        assert await asked is None
    else:
        with pytest.raises(InvalidArgument, match="NUL"):
            await asked
