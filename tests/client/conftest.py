"""Fixtures of the clients' tests: the fake server, on the test's own loop or on the sync clients' one."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

import pytest
import pytest_asyncio

from gradwire.client import AsyncClient, Client
from gradwire.client._core.loop import shared_loop
from tests.client.fake import Fake


@pytest.fixture(autouse=True)
def _plain_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("GRADWIRE_TOKEN", raising=False)
    monkeypatch.delenv("GRADWIRE_ADDRESS", raising=False)


@pytest.fixture(params=["grpc", "http"])
def transport(request: pytest.FixtureRequest) -> str:
    """Each test that asks for a fake server runs over both."""
    return str(request.param)


@pytest_asyncio.fixture
async def fake(transport: str) -> AsyncIterator[Fake]:
    """A fake server on the test's loop."""
    server = await Fake(http=transport == "http").start()
    yield server
    await server.stop()


@pytest_asyncio.fixture
async def client(fake: Fake) -> AsyncIterator[AsyncClient]:
    """An async client of it."""
    async with AsyncClient(fake.address, timeout=20) as client:
        yield client


@pytest_asyncio.fixture
async def plain_client(fake: Fake) -> AsyncIterator[AsyncClient]:
    """One that sends all bytes over the connection."""
    async with AsyncClient(fake.address, timeout=20, shared_memory=False) as client:
        yield client


@pytest.fixture
def sync_fake(transport: str) -> Iterator[Fake]:
    """A fake server on the sync clients' loop: grpc.aio wants one loop."""
    server = shared_loop().run(Fake(http=transport == "http").start())
    yield server
    shared_loop().run(server.stop())


@pytest.fixture
def sync_client(sync_fake: Fake) -> Iterator[Client]:
    """A sync client of it."""
    with Client(sync_fake.address, timeout=20) as client:
        yield client
