"""One engine for the whole session: it takes ten seconds to start. Tests leave it as they found it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
import uvloop

from gradwire.server.engines.vllm.engine import VllmSampler
from tests.engines.vllm import support


@pytest.fixture(scope="session")
def event_loop_policy() -> asyncio.AbstractEventLoopPolicy:
    """The server's loop."""
    return uvloop.EventLoopPolicy()


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def sampler() -> AsyncIterator[VllmSampler]:
    """`tiny`, tied, fp32, awake, weight version 0."""
    engine = await support.started(support.config())
    yield engine
    await engine.shutdown()


@pytest.fixture(scope="session")
def reference() -> support.Reference:
    """`tiny` by Hugging Face's code."""
    return support.Reference()
