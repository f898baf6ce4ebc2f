"""What is done around every call, whichever door it came through.

A step enters a call, leaves it, and looks at each request message. A chain runs its steps in order.
Nothing in here knows gRPC or HTTP: each door makes a `Call` and runs the chain around its handler.
"""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from types import TracebackType
from typing import Any

_PROXY_HEADERS = frozenset({"forwarded", "x-forwarded-for", "x-real-ip", "via"})


def is_forwarded(headers: Mapping[str, str]) -> bool:
    """A proxy sent this, by HTTP's headers or gRPC's metadata: its own address says nothing of the caller."""
    return not _PROXY_HEADERS.isdisjoint(headers)


@dataclass(slots=True)
class Call:
    """One call, as the steps see it."""

    method: str  # "/gradwire.v1.SamplingService/Generate"
    peer: str = ""  # as gRPC writes it: "ipv4:127.0.0.1:4711"
    metadata: dict[str, str] = field(default_factory=dict)
    began: float = 0.0  # by time.monotonic()
    known_until: float = 0.0  # likewise: then it is asked again who calls
    known_at: int = -1  # and also when the authenticator's count of changes is not this one any more
    heard: bool = False  # the first message of a client's stream has come

    @property
    def service(self) -> str:
        """ "gradwire.v1.SamplingService"."""
        return self.method.rsplit("/", 2)[-2]

    @property
    def forwarded(self) -> bool:
        """By a proxy: the peer is not who calls. No door has to say so, and none can forget to."""
        return is_forwarded(self.metadata)


class Step:
    """Override what matters. All of it runs in the task that serves the call."""

    async def enter(self, call: Call) -> None:
        """The call begins; an exception refuses it."""

    def leave(self, call: Call, error: BaseException | None) -> None:
        """The call that was entered is over, with this error or without one."""

    async def check(self, call: Call, message: Any) -> None:
        """Sees each request message before the handler does."""


class Chain:
    """Steps, the first outermost. All of them are entered before the first message is looked at."""

    def __init__(self, steps: Sequence[Step]) -> None:
        # A coroutine that has nothing to do would cost as much as one that has.
        self._enter = tuple(step for step in steps if _has(step, "enter") or _has(step, "leave"))
        self._check = tuple(step for step in steps if _has(step, "check"))

    def around(self, call: Call) -> Around:
        """`async with chain.around(call):` is the whole call."""
        return Around(self._enter, call)

    async def check(self, call: Call, message: Any) -> None:
        """Each step looks at a request message."""
        for step in self._check:
            await step.check(call, message)

    async def checked(self, call: Call, messages: AsyncIterator[Any]) -> AsyncIterator[Any]:
        """The messages of a client's stream, each after `check`."""
        async for message in messages:
            await self.check(call, message)
            yield message


class Around:
    """The steps around one call. (Generators as context managers, one in another, take three times as long.)"""

    __slots__ = ("_call", "_entered", "_steps")

    def __init__(self, steps: Sequence[Step], call: Call) -> None:
        self._steps = steps
        self._call = call
        self._entered = 0

    async def __aenter__(self) -> None:
        try:
            for step in self._steps:
                await step.enter(self._call)
                self._entered += 1
        except BaseException as error:
            self._leave(error)
            raise

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._leave(error)

    def _leave(self, error: BaseException | None) -> None:
        for step in reversed(self._steps[: self._entered]):
            step.leave(self._call, error)


def _has(step: Step, name: str) -> bool:
    return getattr(type(step), name) is not getattr(Step, name)


@cache
def _yields(function: Any) -> bool:
    return inspect.isasyncgenfunction(function)


async def answer_stream(function: Any, request: Any, context: Any) -> None:
    """Run the handler of a server's stream, of either kind: one that yields, or one that writes to its context.

    One that writes costs no hop per message here.
    """
    if _yields(function):
        async for response in function(request, context):
            await context.write(response)
    else:
        await function(request, context)
