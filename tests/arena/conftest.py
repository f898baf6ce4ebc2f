"""Fixtures of the agents' tests: the fake deployment, and an environment without credentials."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from gradwire.client._core.loop import shared_loop
from tests.arena.fake import FakeAgent

_VARIABLES = (
    "ARENA_API_KEY", "ARENA_ORG_KEY", "ARENA_EXTERNAL_USER_ID", "ARENA_BASE_URL", "GRADWIRE_TOKEN", "GRADWIRE_ADDRESS",
)  # fmt: skip


@pytest.fixture(autouse=True)
def _plain_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in _VARIABLES:
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def fake() -> Iterator[FakeAgent]:
    """A fake deployment on the clients' loop: grpc.aio wants one loop."""
    made = FakeAgent()
    shared_loop().run(made.start())
    yield made
    shared_loop().run(made.stop())
