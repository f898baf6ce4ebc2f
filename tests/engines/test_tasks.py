"""Work that is done together, and work that its caller cannot end."""

from __future__ import annotations

import asyncio
import gc

import pytest

from gradwire.server.engines.tasks import to_the_end, together


async def test_the_first_failure_ends_the_others_and_is_raised_as_it_is() -> None:
    ended: list[str] = []

    async def waits() -> int:
        try:
            await asyncio.Event().wait()
        finally:
            ended.append("waits")
        return 1

    async def fails() -> int:
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        await together([waits(), fails()])
    assert ended == ["waits"]

    async def gives(number: int) -> int:
        await asyncio.sleep(0.001 * (3 - number))
        return number

    assert await together(gives(number) for number in range(3)) == [0, 1, 2]


@pytest.mark.parametrize("fails", [False, True])
async def test_work_goes_on_without_its_caller(fails: bool, caplog: pytest.LogCaptureFixture) -> None:
    done = asyncio.Event()

    async def work() -> None:
        here = asyncio.get_running_loop().create_future()
        asyncio.get_running_loop().call_later(0.02, lambda future: future.set_result(None), here)
        await here
        done.set()
        if fails:
            raise ValueError("too late for anyone")

    caller = asyncio.create_task(to_the_end(work()))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    caller.cancel()
    with pytest.raises(asyncio.CancelledError):
        await caller
    gc.collect()  # nobody but asyncio knows of the work any more
    async with asyncio.timeout(5):
        await done.wait()
    await asyncio.sleep(0.01)
    assert ("too late for anyone" in caplog.text) is fails
