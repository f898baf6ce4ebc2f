"""Readers share, a writer is alone, and nobody overtakes."""

from __future__ import annotations

import asyncio

from gradwire.server.engines.exclusion import SharedOrAlone


async def test_a_writer_waits_for_readers_and_holds_later_ones_back() -> None:
    turns, log = SharedOrAlone(), list[str]()
    leave = asyncio.Event()

    async def read(name: str, until: asyncio.Event) -> None:
        async with turns.shared():
            log.append(name)
            await until.wait()

    async def write() -> None:
        async with turns.alone():
            assert log == ["first", "second"]
            await asyncio.sleep(0)
            log.append("writer")

    done = asyncio.Event()
    done.set()
    async with asyncio.TaskGroup() as group:
        group.create_task(read("first", leave))
        group.create_task(read("second", leave))
        await asyncio.sleep(0)
        writer = group.create_task(write())
        await asyncio.sleep(0)
        group.create_task(read("late", done))
        for _ in range(5):
            await asyncio.sleep(0)
        assert log == ["first", "second"] and not writer.done()
        leave.set()
    assert log == ["first", "second", "writer", "late"]


async def test_a_writer_that_gives_up_lets_the_others_in() -> None:
    turns = SharedOrAlone()
    async with turns.shared():
        writer = asyncio.ensure_future(turns.alone().__aenter__())
        await asyncio.sleep(0)
        writer.cancel()
        await asyncio.wait([writer])
        async with asyncio.timeout(1), turns.shared():
            pass
    async with asyncio.timeout(1), turns.alone():
        pass
