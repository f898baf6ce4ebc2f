"""`AsyncOpenRollout` for plain code."""

from __future__ import annotations

from types import TracebackType
from typing import Self

from gradwire.client._convert.rollouts import StepRewards
from gradwire.client.aio.opened import AsyncOpenRollout
from gradwire.client.sync.portal import Portal
from gradwire.client.types.rollouts import Rollout, RolloutDetails, RolloutOutcome


class OpenRollout:
    """Opened by entering it. Leaving the `with` ends the rollout, if nothing else has: as ok, or by what was raised."""

    def __init__(self, client: AsyncOpenRollout, loop: Portal) -> None:
        self._async = client
        self._loop = loop

    @property
    def rollout(self) -> Rollout:
        """As it was opened. RuntimeError before it is entered."""
        return self._async.rollout

    @property
    def rollout_id(self) -> str:
        """Its id."""
        return self._async.rollout_id

    @property
    def base_url(self) -> str:
        """For OpenAI clients: each call below it is recorded. RuntimeError from a server without an HTTP door."""
        return self._async.base_url

    @property
    def time_left_s(self) -> float:
        """Seconds until its deadline, by this machine's clock; 0 after it. Hand it on to tools as their timeout."""
        return self._async.time_left_s

    @property
    def headers(self) -> dict[str, str]:
        """For clients whose address stays: with this header a call is recorded, too."""
        return self._async.headers

    def get(self, *, with_tokens: bool = False, timeout: float | None = None) -> RolloutDetails:
        """The rollout as it is now, and its calls."""
        return self._loop.run(self._async.get(with_tokens=with_tokens, timeout=timeout))

    def finish(
        self,
        outcome: RolloutOutcome | str = RolloutOutcome.OK,
        *,
        reward: float | None = None,
        step_rewards: StepRewards | None = None,
        reason: str = "",
        timeout: float | None = None,
    ) -> Rollout:
        """Ends it. See `client.rollouts.finish`."""
        return self._loop.run(
            self._async.finish(outcome, reward=reward, step_rewards=step_rewards, reason=reason, timeout=timeout)
        )

    def cancel(self, reason: str = "", *, timeout: float | None = None) -> Rollout:
        """Ends it as cancelled, with its calls that are under way; the `with` may then be left as ever.

        One that has ended stays as it is: the rollout that is returned says how.
        """
        return self._loop.run(self._async.cancel(reason, timeout=timeout))

    def __enter__(self) -> Self:
        self._loop.run(self._async.__aenter__())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._loop.run(self._async.__aexit__(kind, error, trace))
