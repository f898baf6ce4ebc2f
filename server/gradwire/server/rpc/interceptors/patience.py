"""How long an upload may keep the server waiting: it holds a place, and room for all that it announced."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import Any

from google.protobuf.message import Message

from gradwire.server.errors import DeadlineExceeded

PATIENCE_S = 120.0  # the clients' chunks come in that time at 16 KiB a second
SLOWEST = 16 << 10  # bytes a second, once the patience is used up; the same at the HTTP door


class Patience:
    """With the sender of one upload. What the server itself takes between messages costs none."""

    def __init__(self) -> None:
        self._left = PATIENCE_S

    async def wait(self, message: Awaitable[Any]) -> Any:
        """The next message. Raises DeadlineExceeded."""
        now = asyncio.get_running_loop().time
        began = now()
        try:
            async with asyncio.timeout(self._left):
                found = await message
        except TimeoutError:
            raise DeadlineExceeded(
                "UPLOAD_TOO_SLOW",
                f"nothing came for {self._left:.0f} s; send the upload again, at 16 KiB a second at least",
            ) from None
        self._left -= now() - began
        if isinstance(found, Message):
            self._left += found.ByteSize() / SLOWEST
        return found
