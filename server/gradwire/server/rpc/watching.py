"""Streams that tell what happens for as long as their client likes: only to one who is still known."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import TypeVar

from gradwire.server.domain.caller import confirm_caller

T = TypeVar("T")

ASK_S = 10.0


async def while_known(events: AsyncGenerator[T]) -> AsyncGenerator[T]:
    """Each event as it comes. Who calls is asked again before each, and now and then while none comes.

    Raises Unauthenticated when the caller's token was revoked or has expired. `aclosing` it, as any generator.
    """
    async with aclosing(events):
        while True:
            coming = asyncio.ensure_future(anext(events, None))
            try:
                while not coming.done():
                    await asyncio.wait([coming], timeout=ASK_S)
                    await confirm_caller()
            finally:
                if not coming.done():
                    coming.cancel()
                    await asyncio.wait([coming])
            event = coming.result()
            if event is None:
                return
            yield event
