"""The operation log: applied once, in order, and what becomes of retries, gaps, failures and callers that leave."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from gradwire.server.domain.operations import SMALL_RESULT_BYTES, Operation, OperationLog
from gradwire.server.errors import AlreadyExists, FailedPrecondition, GradwireError


class Ledger:
    """Operations that were applied, in order; each can be made to wait or to fail."""

    def __init__(self) -> None:
        self.applied: list[str] = []
        self.begun = asyncio.Event()

    def op(self, name: str, *, gate: asyncio.Event | None = None, error: Exception | None = None) -> Callable[
        [], Awaitable[str]
    ]:  # fmt: skip
        async def apply() -> str:
            self.begun.set()
            if gate is not None:
                await gate.wait()
            if error is not None:
                raise error
            self.applied.append(name)
            return f"result of {name}, application {len(self.applied)}"

        return apply


def identity(request_id: str = "", number: int | None = None, payload: str = "p") -> Operation:
    return Operation(request_id, number, payload.encode())


async def settle() -> None:
    """Let every task that can run do so."""
    for _ in range(20):
        await asyncio.sleep(0)


async def test_same_id_and_payload_gets_the_first_result_and_is_applied_once() -> None:
    log, ledger = OperationLog("job"), Ledger()
    first = await log.run(identity("a"), ledger.op("a"))
    again = await log.run(identity("a"), ledger.op("a"))
    assert again == first
    assert ledger.applied == ["a"]


async def test_same_id_with_another_payload_is_refused() -> None:
    log, ledger = OperationLog("job"), Ledger()
    await log.run(identity("a"), ledger.op("a"))
    with pytest.raises(AlreadyExists) as caught:
        await log.run(identity("a", payload="q"), ledger.op("other"))
    assert caught.value.reason == "REQUEST_ID_REUSED"
    assert ledger.applied == ["a"]


async def test_without_an_id_a_call_is_applied_each_time() -> None:
    log, ledger = OperationLog("job"), Ledger()
    await log.run(identity(), ledger.op("a"))
    await log.run(identity(), ledger.op("a"))
    assert ledger.applied == ["a", "a"]


async def test_duplicates_at_the_same_time_share_one_application() -> None:
    log, ledger, gate = OperationLog("job"), Ledger(), asyncio.Event()
    calls = [asyncio.create_task(log.run(identity("a"), ledger.op("a", gate=gate))) for _ in range(5)]
    await settle()
    gate.set()
    assert len(set(await asyncio.gather(*calls))) == 1
    assert ledger.applied == ["a"]


async def test_an_early_number_is_held_until_the_gap_is_filled() -> None:
    log, ledger = OperationLog("job"), Ledger()
    late = asyncio.create_task(log.run(identity("c", 3), ledger.op("c")))
    middle = asyncio.create_task(log.run(identity("b", 2), ledger.op("b")))
    await settle()
    assert ledger.applied == []
    await log.run(identity("a", 1), ledger.op("a"))
    await asyncio.gather(middle, late)
    assert ledger.applied == ["a", "b", "c"]


async def test_a_gap_that_stays_is_an_error_at_the_deadline_and_names_the_next_number() -> None:
    log, ledger = OperationLog("job"), Ledger()
    with pytest.raises(FailedPrecondition) as caught:
        await log.run(identity("b", 2), ledger.op("b"), timeout=0.01)
    assert caught.value.reason == "SEQUENCE_GAP"
    assert caught.value.metadata == {"next_sequence_number": "1"}
    await log.run(identity("a", 1), ledger.op("a"))
    await log.run(identity("b", 2), ledger.op("b"))  # the same id, now in its turn
    assert ledger.applied == ["a", "b"]


async def test_a_number_that_was_applied_cannot_be_used_by_another_call() -> None:
    log, ledger = OperationLog("job"), Ledger()
    await log.run(identity("a", 1), ledger.op("a"))
    with pytest.raises(FailedPrecondition) as caught:
        await log.run(identity("b", 1), ledger.op("b"))
    assert caught.value.reason == "SEQUENCE_REUSED"
    assert caught.value.metadata == {"next_sequence_number": "2"}


async def test_of_two_calls_with_one_number_at_the_same_time_one_is_applied() -> None:
    log, ledger, gate = OperationLog("job"), Ledger(), asyncio.Event()
    calls = [asyncio.create_task(log.run(identity(name, 1), ledger.op(name, gate=gate))) for name in "abc"]
    waiting = [asyncio.create_task(log.run(identity(f"w{n}", n), ledger.op(f"w{n}"))) for n in (2, 3, 4)]
    await settle()
    gate.set()
    results = await asyncio.gather(*calls, return_exceptions=True)
    await asyncio.gather(*waiting)
    assert ledger.applied == ["a", "w2", "w3", "w4"]
    assert [getattr(result, "reason", "applied") for result in results] == [
        "applied", "SEQUENCE_REUSED", "SEQUENCE_REUSED",
    ]  # fmt: skip


async def test_a_failure_is_not_kept_and_its_number_is_still_free() -> None:
    log, ledger = OperationLog("job"), Ledger()
    with pytest.raises(GradwireError, match="boom"):
        await log.run(identity("a", 1), ledger.op("a", error=GradwireError("BOOM", "boom")))
    await log.run(identity("a", 1), ledger.op("a"))
    await log.run(identity("b", 2), ledger.op("b"))
    assert ledger.applied == ["a", "b"]


async def test_everyone_who_waits_for_a_failure_gets_it() -> None:
    log, ledger, gate = OperationLog("job"), Ledger(), asyncio.Event()
    failing = ledger.op("a", gate=gate, error=GradwireError("BOOM", "boom"))
    calls = [asyncio.create_task(log.run(identity("a"), failing)) for _ in range(2)]
    await settle()
    gate.set()
    results = await asyncio.gather(*calls, return_exceptions=True)
    assert [getattr(result, "reason", None) for result in results] == ["BOOM", "BOOM"]


async def test_what_has_begun_goes_on_without_its_caller_and_serves_the_retry() -> None:
    log, ledger, gate = OperationLog("job"), Ledger(), asyncio.Event()
    call = asyncio.create_task(log.run(identity("a", 1), ledger.op("a", gate=gate)))
    await ledger.begun.wait()
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    gate.set()
    result = await log.run(identity("a", 1), ledger.op("a"))
    assert result == "result of a, application 1"
    assert ledger.applied == ["a"]


async def test_what_has_not_begun_is_dropped_with_its_caller() -> None:
    log, ledger, gate = OperationLog("job"), Ledger(), asyncio.Event()
    running = asyncio.create_task(log.run(identity("a"), ledger.op("a", gate=gate)))
    await ledger.begun.wait()
    queued = asyncio.create_task(log.run(identity("b"), ledger.op("b")))
    held = asyncio.create_task(log.run(identity("c", 7), ledger.op("c")))
    await settle()
    queued.cancel()
    held.cancel()
    gate.set()
    await running
    await settle()
    assert ledger.applied == ["a"]


async def test_a_retry_right_after_its_caller_left_is_not_cancelled_with_it() -> None:
    log, ledger, gate = OperationLog("job"), Ledger(), asyncio.Event()
    running = asyncio.create_task(log.run(identity("a"), ledger.op("a", gate=gate)))
    queued = asyncio.create_task(log.run(identity("b"), ledger.op("b")))
    await settle()
    queued.cancel()
    retry = asyncio.create_task(log.run(identity("b"), ledger.op("b")))
    gate.set()
    await running
    assert (await retry).startswith("result of b")
    assert ledger.applied == ["a", "b"]


async def test_one_of_two_waiting_callers_may_leave() -> None:
    log, ledger, gate = OperationLog("job"), Ledger(), asyncio.Event()
    running = asyncio.create_task(log.run(identity("a"), ledger.op("a", gate=gate)))
    first, second = (asyncio.create_task(log.run(identity("b"), ledger.op("b"))) for _ in range(2))
    await settle()
    first.cancel()
    gate.set()
    await running
    assert (await second).startswith("result of b")


async def test_operations_run_one_at_a_time_in_order_of_arrival() -> None:
    log, ledger, gate = OperationLog("job"), Ledger(), asyncio.Event()
    calls = [asyncio.create_task(log.run(identity(), ledger.op(name, gate=gate))) for name in "abcd"]
    await settle()
    gate.set()
    await asyncio.gather(*calls)
    assert ledger.applied == ["a", "b", "c", "d"]


async def test_close_waits_for_what_has_begun_and_refuses_the_rest() -> None:
    log, ledger, gate = OperationLog("job"), Ledger(), asyncio.Event()
    running = asyncio.create_task(log.run(identity("a", 1), ledger.op("a", gate=gate)))
    await ledger.begun.wait()
    queued = asyncio.create_task(log.run(identity("b"), ledger.op("b")))
    held = asyncio.create_task(log.run(identity("c", 9), ledger.op("c")))
    await settle()
    closing = asyncio.create_task(log.close())
    await settle()
    assert not closing.done()
    gate.set()
    await closing
    assert await running
    for refused in (queued, held, asyncio.create_task(log.run(identity("d"), ledger.op("d")))):
        with pytest.raises(FailedPrecondition) as caught:
            await refused
        assert caught.value.reason == "JOB_DESTROYED"
    assert ledger.applied == ["a"]


async def test_only_the_last_operations_are_remembered() -> None:
    log, ledger = OperationLog("job", max_operations=2), Ledger()
    for name in "abc":
        await log.run(identity(name), ledger.op(name))
    await settle()
    await log.run(identity("c"), ledger.op("c"))
    await log.run(identity("a"), ledger.op("a"))
    assert ledger.applied == ["a", "b", "c", "a"]


async def test_a_held_operation_does_not_stop_the_forgetting_of_others() -> None:
    log, ledger = OperationLog("job", max_operations=2, max_result_bytes=10_000), Ledger()
    held = asyncio.create_task(log.run(identity("held", 2), ledger.op("held")))
    await settle()
    for number in range(10):
        await log.run(identity(f"o{number}"), ledger.op("o"), nbytes=lambda _: 8_000)
    await settle()
    assert log.result_bytes == 8_000
    held.cancel()


async def test_large_results_are_dropped_but_never_applied_again() -> None:
    log, ledger = OperationLog("job", max_result_bytes=25_000), Ledger()
    for name in "abc":
        await log.run(identity(name), ledger.op(name), nbytes=lambda _: 10_000)
    await settle()
    assert log.result_bytes == 20_000
    with pytest.raises(FailedPrecondition) as caught:
        await log.run(identity("a"), ledger.op("a"))
    assert caught.value.reason == "RESULT_DROPPED"
    with pytest.raises(AlreadyExists):
        await log.run(identity("a", payload="q"), ledger.op("a"))
    assert (await log.run(identity("b"), ledger.op("b"))).startswith("result of b")
    assert ledger.applied == ["a", "b", "c"]


async def test_the_newest_result_is_kept_whatever_its_size() -> None:
    log, ledger = OperationLog("job", max_result_bytes=1_000), Ledger()
    first = await log.run(identity("a"), ledger.op("a"), nbytes=lambda _: 1_000_000)
    await settle()
    assert await log.run(identity("a"), ledger.op("a")) == first


async def test_small_results_outlive_large_ones() -> None:
    log, ledger = OperationLog("job", max_result_bytes=0), Ledger()
    await log.run(identity("step"), ledger.op("step"), nbytes=lambda _: SMALL_RESULT_BYTES)
    for name in "ab":
        await log.run(identity(name), ledger.op(name), nbytes=lambda _: 10_000_000)
    await settle()
    assert (await log.run(identity("step"), ledger.op("step"))).startswith("result of step")
