"""A server on fake engines for each test."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import numpy as np
import numpy.typing as npt
import pytest
import pytest_asyncio

from gradwire.server.engines.sharedmem import read_segment
from tests.rpc.rollouts import Played
from tests.rpc.support import Served, serving


@pytest.fixture
async def served(tmp_path: Path) -> AsyncIterator[Served]:
    """A server without tokens and TLS, with a built-in sampler."""
    async with serving(tmp_path) as running:
        yield running


@pytest_asyncio.fixture
async def played(tmp_path: Path) -> AsyncIterator[Played]:
    """The same with an HTTP door, and room for 20 rollouts."""
    async with (
        serving(tmp_path, http="127.0.0.1:0", limits={"max_rollouts": 20}) as served,
        aiohttp.ClientSession(f"http://{served.app.http_address}") as http,
    ):
        yield Played(served, http)


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of the segments that the server was asked to read."""
    found: list[str] = []

    def reading(name: str, offset: int, into: npt.NDArray[np.uint8]) -> None:
        found.append(name)
        read_segment(name, offset, into)

    monkeypatch.setattr("gradwire.server.codec.shared.read_segment", reading)
    return found
