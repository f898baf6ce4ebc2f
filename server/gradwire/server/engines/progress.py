"""Lines for people while something slow says nothing itself."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from gradwire.server.engines.base import Progress

EVERY_S = 10.0


@asynccontextmanager
async def still(progress: Progress, what: str) -> AsyncIterator[None]:
    """While inside: "WHAT: 20 s so far", every ten seconds."""
    began = time.monotonic()

    async def tell() -> None:
        while True:
            await asyncio.sleep(EVERY_S)
            progress(f"{what}: {time.monotonic() - began:.0f} s so far")

    task = asyncio.create_task(tell())
    try:
        yield
    finally:
        task.cancel()
