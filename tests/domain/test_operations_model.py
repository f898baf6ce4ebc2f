"""The operation log against a model: whatever is sent, repeated, dropped or fails, in whatever order.

The model is a sequence: each operation is applied at most once, in the order of its number, one at a
time, and every caller that gets a result gets the one of that application.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from gradwire.server.domain.operations import Operation, OperationLog
from gradwire.server.errors import FailedPrecondition

T = TypeVar("T")
NUMBERS = st.integers(1, 6)


class Failed(Exception):
    """What an operation that is told to fail raises."""


class OperationLogMachine(RuleBasedStateMachine):
    """Operation n has number n and id "n"; "other-n" is a second call that claims the same number."""

    @initialize()
    def begin(self) -> None:
        self.loop = asyncio.new_event_loop()
        self.log = self._run(self._new_log())
        self.applied: list[int] = []
        self.results: dict[int, str] = {}
        self.busy = 0
        self.calls: list[tuple[int, asyncio.Task[str]]] = []
        self.dropped: set[asyncio.Task[str]] = set()
        self.gates: dict[int, asyncio.Future[bool]] = {}  # of what has begun; its result: whether it succeeds

    async def _new_log(self) -> OperationLog:
        return OperationLog("job", max_result_bytes=15_000)

    def _run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        return self.loop.run_until_complete(coroutine)

    def _settle(self) -> None:
        async def some_turns() -> None:
            for _ in range(30):
                await asyncio.sleep(0)

        self._run(some_turns())

    async def _apply(self, number: int) -> str:
        assert self.busy == 0, "two operations at a time"
        self.busy += 1
        try:
            gate = self.gates[number] = self.loop.create_future()
            if not await gate:
                raise Failed
            self.applied.append(number)
            self.results[number] = f"{number} applied as {len(self.applied)}"
            return self.results[number]
        finally:
            self.busy -= 1
            self.gates.pop(number, None)

    @rule(number=NUMBERS, name=st.sampled_from(["", "other-"]))
    def send(self, number: int, name: str) -> None:
        operation = Operation(f"{name}{number}", number, b"payload")
        call = self.loop.create_task(self.log.run(operation, lambda: self._apply(number), nbytes=lambda _: 5_000))
        self.calls.append((number, call))
        self._settle()

    @rule(data=st.data())
    def drop(self, data: st.DataObject) -> None:
        """A caller goes away."""
        waiting = [call for _, call in self.calls if not call.done()]
        if waiting:
            self._drop(waiting[data.draw(st.integers(0, len(waiting) - 1))])
            self._settle()

    @rule(data=st.data())
    def drop_without_a_pause(self, data: st.DataObject) -> None:
        """A caller goes away and sends again before anything else happens."""
        waiting = [(number, call) for number, call in self.calls if not call.done()]
        if waiting:
            number, call = waiting[data.draw(st.integers(0, len(waiting) - 1))]
            self._drop(call)
            self.send(number, "")

    def _drop(self, call: asyncio.Task[str]) -> None:
        self.dropped.add(call)
        call.cancel()

    @rule(succeed=st.booleans())
    def finish(self, succeed: bool) -> None:
        """The operation that runs comes to its end."""
        for gate in self.gates.values():
            gate.set_result(succeed)
        self._settle()

    @invariant()
    def applied_once_and_in_order(self) -> None:
        assert self.applied == list(range(1, len(self.applied) + 1))

    @invariant()
    def callers_get_the_result_of_the_one_application(self) -> None:
        for number, call in self.calls:
            if not call.done() or call in self.dropped:
                continue
            assert not call.cancelled(), "cancelled, though nobody dropped it"
            match call.exception():
                case None:
                    assert call.result() == self.results[number]
                case FailedPrecondition() as error:
                    assert error.reason in ("SEQUENCE_REUSED", "RESULT_DROPPED")
                    assert number in self.results
                case Failed():
                    pass
                case error:
                    raise AssertionError(f"call {number} ended with {error!r}")

    @invariant()
    def nothing_is_forgotten_or_stuck(self) -> None:
        """When nothing runs, whoever still waits waits for a number that nobody has sent."""
        if not self.gates:
            assert all(call.done() or number > len(self.applied) + 1 for number, call in self.calls)

    def teardown(self) -> None:
        if not hasattr(self, "loop"):
            return
        closing = self.loop.create_task(self.log.close())
        self._settle()
        self.finish(True)
        self.loop.run_until_complete(closing)
        assert all(call.done() for _, call in self.calls)
        self._run(asyncio.sleep(0))
        for _, call in self.calls:
            if not call.cancelled():
                call.exception()
        self.loop.close()


TestOperationLog = OperationLogMachine.TestCase
TestOperationLog.settings = settings(max_examples=60, stateful_step_count=30)
