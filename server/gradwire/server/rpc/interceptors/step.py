"""What is done around every call, whichever door it came through.

A step is one context manager around a call and one look at each request message. A chain runs its steps in order.
Nothing in here knows gRPC or HTTP: each door makes a `Call` and runs the chain around its handler.
"""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from typing import Any


@dataclass(slots=True)
class Call:
    """One call, as the steps see it."""

    method: str  # "/gradwire.v1.SamplingService/Generate"
    peer: str = ""  # as gRPC writes it: "ipv4:127.0.0.1:4711"
    metadata: dict[str, str] = field(default_factory=dict)
    forwarded: bool = False  # by a proxy: the peer is not who calls

    @property
    def service(self) -> str:
        """ "gradwire.v1.SamplingService"."""
        return self.method.rsplit("/", 2)[-2]


class Step:
    """Override `around` and, where messages matter, `check`."""

    @asynccontextmanager
    async def around(self, call: Call) -> AsyncIterator[None]:
        """Runs around the whole call, in the task that serves it."""
        yield

    async def check(self, call: Call, message: Any) -> None:
        """Sees each request message before the handler does."""


class Chain(Step):
    """Steps, the first outermost. All of them are entered before the first message is looked at."""

    def __init__(self, steps: Sequence[Step]) -> None:
        self._steps = tuple(steps)
        # Entering a step that has nothing to do around a call would cost as much as one that has.
        self._around = tuple(step for step in steps if type(step).around is not Step.around)

    @asynccontextmanager
    async def around(self, call: Call) -> AsyncIterator[None]:
        async with AsyncExitStack() as stack:
            for step in self._around:
                await stack.enter_async_context(step.around(call))
            yield

    async def check(self, call: Call, message: Any) -> None:
        for step in self._steps:
            await step.check(call, message)

    async def checked(self, call: Call, messages: AsyncIterator[Any]) -> AsyncIterator[Any]:
        """The messages of a client's stream, each after `check`."""
        async for message in messages:
            await self.check(call, message)
            yield message


async def answer_stream(function: Any, request: Any, context: Any) -> None:
    """Run the handler of a server's stream, of either kind: one that yields, or one that writes to its context.

    One that writes costs no hop per message here.
    """
    if inspect.isasyncgenfunction(function):
        async for response in function(request, context):
            await context.write(response)
    else:
        await function(request, context)
