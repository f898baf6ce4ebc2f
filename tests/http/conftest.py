"""A server with an HTTP door, on fake engines, for each test."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.http.support import serving_http
from tests.rpc.support import Served


@pytest.fixture
async def served(tmp_path: Path) -> AsyncIterator[Served]:
    """Without tokens and TLS, with a built-in sampler."""
    async with serving_http(tmp_path) as running:
        yield running
