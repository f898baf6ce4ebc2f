"""A server on fake engines for each test."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.rpc.support import Served, serving


@pytest.fixture
async def served(tmp_path: Path) -> AsyncIterator[Served]:
    """A server without tokens and TLS, with a built-in sampler."""
    async with serving(tmp_path) as running:
        yield running
