"""What all fakes share: the life of an engine's processes, and the sizes of the model."""

from __future__ import annotations

import asyncio

from gradwire.server.engines.base import Progress
from gradwire.server.errors import Unavailable

VOCABULARY = 256
CONTEXT = 64
WEIGHT = "model.weight"


class FakeProcess:
    """What both fakes share: a start and an end that tests can stop or break, and a pulse."""

    def __init__(self) -> None:
        self.start_error: BaseException | None = None
        self.start_gate: asyncio.Event | None = None
        self.shutdown_error: Exception | None = None
        self.dead = ""
        self.health_gate: asyncio.Event | None = None
        self.shutdowns = 0

    async def start(self, progress: Progress) -> None:
        progress("loading")
        if self.start_gate is not None:
            await self.start_gate.wait()
        if self.start_error is not None:
            raise self.start_error

    async def check_health(self) -> None:
        if self.health_gate is not None:
            await self.health_gate.wait()
        if self.dead:
            raise Unavailable("ENGINE_DEAD", self.dead)

    async def shutdown(self) -> None:
        self.shutdowns += 1
        if self.shutdown_error is not None:
            raise self.shutdown_error
