"""A slow start says every so often that it goes on."""

from __future__ import annotations

import asyncio
import time

import pytest

from gradwire.server.engines import progress


async def test_lines_come_while_it_lasts_and_no_longer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "EVERY_S", 0.02)
    lines: list[str] = []
    began = time.monotonic()
    async with progress.still(lines.append, "starting it"):
        await asyncio.sleep(0.1)
    told = len(lines)
    assert 2 <= told <= (time.monotonic() - began) / 0.02 and lines[0] == "starting it: 0 s so far"
    await asyncio.sleep(0.06)
    assert len(lines) == told
