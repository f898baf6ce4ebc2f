"""A rollout as the program that plays it holds it: the address for its OpenAI client, and how it ends.

Leaving the `async with` ends the rollout, if nothing else has: as ok, or by what was raised.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from types import TracebackType
from typing import Protocol, Self

from gradwire.client._convert.rollouts import StepRewards
from gradwire.client.errors import FailedPreconditionError, NotFoundError
from gradwire.client.types.rollouts import Rollout, RolloutDetails, RolloutOutcome, RolloutRef

NO_HTTP_DOOR = "the server has no HTTP door; start it with --http HOST:PORT"


class Finishes(Protocol):
    """The part of `client.rollouts` that this needs."""

    async def get(
        self, rollout: RolloutRef, *, with_tokens: bool = False, timeout: float | None = None
    ) -> RolloutDetails: ...

    async def finish(
        self,
        rollout: RolloutRef,
        outcome: RolloutOutcome | str = RolloutOutcome.OK,
        *,
        reward: float | None = None,
        step_rewards: StepRewards | None = None,
        reason: str = "",
        timeout: float | None = None,
    ) -> Rollout: ...

    async def cancel(
        self, rollouts: RolloutRef, *, reason: str = "", timeout: float | None = None
    ) -> tuple[Rollout, ...]: ...


class AsyncOpenRollout:
    """Opened by entering it."""

    def __init__(self, client: Finishes, begin: Callable[[], Awaitable[tuple[Rollout, str]]]) -> None:
        self._client = client
        self._begin = begin
        self._opened: tuple[Rollout, str] | None = None
        self._finished = False
        self._entered = 0.0

    @property
    def rollout(self) -> Rollout:
        """As it was opened. RuntimeError before it is entered."""
        return self._known()[0]

    @property
    def rollout_id(self) -> str:
        """Its id."""
        return self.rollout.rollout_id

    @property
    def base_url(self) -> str:
        """For OpenAI clients: each call below it is recorded. RuntimeError from a server without an HTTP door."""
        url = self._known()[1]
        if not url:
            raise RuntimeError(NO_HTTP_DOOR)
        return url

    @property
    def time_left_s(self) -> float:
        """Seconds until its deadline, by this machine's clock; 0 after it. Hand it on to tools as their timeout."""
        timeout = self.rollout.spec.timeout_s or 0.0
        return max(0.0, self._entered + timeout - time.monotonic())

    @property
    def headers(self) -> dict[str, str]:
        """For clients whose address stays: with this header a call is recorded, too."""
        return {"x-gradwire-rollout": self.rollout_id}

    async def get(self, *, with_tokens: bool = False, timeout: float | None = None) -> RolloutDetails:
        """The rollout as it is now, and its calls."""
        return await self._client.get(self.rollout_id, with_tokens=with_tokens, timeout=timeout)

    async def finish(
        self,
        outcome: RolloutOutcome | str = RolloutOutcome.OK,
        *,
        reward: float | None = None,
        step_rewards: StepRewards | None = None,
        reason: str = "",
        timeout: float | None = None,
    ) -> Rollout:
        """Ends it. See `client.rollouts.finish`."""
        ended = await self._client.finish(
            self.rollout_id, outcome, reward=reward, step_rewards=step_rewards, reason=reason, timeout=timeout
        )
        self._finished = True
        return ended

    async def cancel(self, reason: str = "", *, timeout: float | None = None) -> Rollout:
        """Ends it as cancelled, with its calls that are under way; the `with` may then be left as ever.

        One that has ended stays as it is: the rollout that is returned says how.
        """
        (ended,) = await self._client.cancel(self.rollout_id, reason=reason, timeout=timeout)
        self._finished = True
        return ended

    def _known(self) -> tuple[Rollout, str]:
        if self._opened is None:
            raise RuntimeError("the rollout is not open yet; enter it with `with` / `async with`")
        return self._opened

    async def __aenter__(self) -> Self:
        if self._opened is not None:
            raise RuntimeError("the rollout was entered already; open another one")
        self._entered = time.monotonic()
        self._opened = await self._begin()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._finished:
            return
        outcome, reason = end_by(error)
        try:
            await self.finish(outcome, reason=reason)
        except (FailedPreconditionError, NotFoundError):
            return  # the server ended it before: by its deadline, or for a failure of its own


def end_by(error: BaseException | None) -> tuple[RolloutOutcome, str]:
    """Outcome and reason of a rollout that was left by an exception, or by none."""
    if error is None:
        return RolloutOutcome.OK, ""
    reason = f"{type(error).__name__}: {error}"[:4000]
    if isinstance(error, TimeoutError):
        return RolloutOutcome.TIMEOUT, reason
    if isinstance(error, asyncio.CancelledError) or not isinstance(error, Exception):
        return RolloutOutcome.CANCELLED, reason
    return RolloutOutcome.ENV_ERROR, reason
