"""Letting go, in time, of what nobody asks for any more."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

log = logging.getLogger(__name__)

INTERVAL_S = 1.0


async def expire_forever(*stores: Callable[[], None]) -> None:
    """Call each now and then, until cancelled."""
    while True:
        await asyncio.sleep(INTERVAL_S)
        for expire in stores:
            try:
                expire()
            except Exception:  # a bug of one store must not end the others' tidying for good
                log.exception("letting go of what is too old")
