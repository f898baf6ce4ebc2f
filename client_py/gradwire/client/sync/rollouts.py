"""`client.rollouts`: episodes of an agent whose model calls are recorded token by token.

Generated from `gradwire.client.aio.rollouts` by scripts/gen_sync_client.py; edit that instead.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from gradwire.client._convert.rollouts import StepRewards
from gradwire.client.aio.rollouts import AsyncRollouts
from gradwire.client.sync.opened import OpenRollout
from gradwire.client.sync.portal import Portal
from gradwire.client.sync.streams import RolloutWatch
from gradwire.client.types.jobs import JobRef
from gradwire.client.types.rollouts import (
    CollectedRollout,
    Rollout,
    RolloutDetails,
    RolloutOutcome,
    RolloutRef,
    RolloutSpec,
)


class Rollouts:
    """Opens, follows, ends and collects rollouts."""

    def __init__(self, client: AsyncRollouts, loop: Portal) -> None:
        self._async = client
        self._loop = loop

    def open(
        self,
        task_id: str = "",
        *,
        group_id: str = "",
        sample_index: int = 0,
        group_size: int = 0,
        timeout_s: float | None = None,
        max_calls: int = 0,
        max_sampled_tokens: int = 0,
        labels: Mapping[str, str] | None = None,
        job: JobRef | None = None,
        request_id: str | None = None,
        timeout: float | None = None,
    ) -> OpenRollout:
        """A rollout to enter, and to play in: its `base_url` is for OpenAI clients.

        See RolloutSpec for what it is opened with. Left without `finish`, it ends as ok, or by what was raised:
        TimeoutError as timeout, cancellation as cancelled, any other exception as env_error; once `max_calls` or
        `max_sampled_tokens` has refused a call, as truncated.
        """
        return OpenRollout(
            self._loop.call(
                lambda: self._async.open(
                    task_id,
                    group_id=group_id,
                    sample_index=sample_index,
                    group_size=group_size,
                    timeout_s=timeout_s,
                    max_calls=max_calls,
                    max_sampled_tokens=max_sampled_tokens,
                    labels=labels,
                    job=job,
                    request_id=request_id,
                    timeout=timeout,
                )
            ),
            self._loop,
        )

    def open_many(
        self,
        specs: Sequence[RolloutSpec | Mapping[str, Any]],
        *,
        job: JobRef | None = None,
        request_id: str | None = None,
        timeout: float | None = None,
    ) -> tuple[Rollout, ...]:
        """Opens 1 to 4096 rollouts, all or none, of a sampling job (default: the server's own).

        ResourceExhaustedError when the server keeps as many as it may: collect, and discard.
        """
        return self._loop.run(self._async.open_many(specs, job=job, request_id=request_id, timeout=timeout))

    def base_url(self, rollout: RolloutRef, *, timeout: float | None = None) -> str:
        """The address for OpenAI clients. RuntimeError from a server without an HTTP door."""
        return self._loop.run(self._async.base_url(rollout, timeout=timeout))

    def get(self, rollout: RolloutRef, *, with_tokens: bool = False, timeout: float | None = None) -> RolloutDetails:
        """A rollout as it is now, and its calls; `with_tokens` also their token ids and log-probs."""
        return self._loop.run(self._async.get(rollout, with_tokens=with_tokens, timeout=timeout))

    def watch(
        self, rollouts: RolloutRef | Sequence[RolloutRef] = (), *, group_id: str = "", timeout: float | None = None
    ) -> RolloutWatch:
        """Rollouts as they are, then each that changes: those named, those of a group, or all of the caller's.

        Ends when all that were named have ended; otherwise, without a `timeout`, it follows without end.
        ResourceExhaustedError (TOO_MANY_STREAMS) when the caller's tenant has a quarter of the service's places.
        """
        return RolloutWatch(
            self._loop.call(lambda: self._async.watch(rollouts, group_id=group_id, timeout=timeout)), self._loop
        )

    def finish(
        self,
        rollout: RolloutRef,
        outcome: RolloutOutcome | str = RolloutOutcome.OK,
        *,
        reward: float | None = None,
        step_rewards: StepRewards | None = None,
        reason: str = "",
        timeout: float | None = None,
    ) -> Rollout:
        """Ends a rollout, and its calls that are under way. The same again is fine.

        `outcome` says how it ended, and `reason` why, for people. `step_rewards` are those of the first steps, or by
        step: calls that count, from 0. FailedPreconditionError (ROLLOUT_ENDED) for one that ended otherwise, by its
        deadline for example.
        """
        return self._loop.run(
            self._async.finish(
                rollout, outcome, reward=reward, step_rewards=step_rewards, reason=reason, timeout=timeout
            )
        )

    def collect(
        self,
        rollouts: RolloutRef | Sequence[RolloutRef] = (),
        *,
        group_ids: Sequence[str] = (),
        whole_groups: bool = False,
        max_rollouts: int | None = None,
        min_rollouts: int | None = None,
        wait_s: float = 0.0,
        include_retried: bool = False,
        include_abandoned: bool = False,
        request_id: str | None = None,
        timeout: float | None = None,
    ) -> tuple[CollectedRollout, ...]:
        """Ended rollouts with their training rows, of whatever outcome; each is handed out once.

        `rollouts` names some, which are then given whether or not they were collected before; `group_ids` takes only
        those of some groups. `whole_groups` gives groups only when all of them have ended. Waits up to `wait_s` seconds
        for `min_rollouts` (default 1), or for all that are named, and returns what there is; at most `max_rollouts`
        (default 256). Answers that were asked for again, and such whose reader left, make no rows unless they are
        included. ResourceExhaustedError (TOO_MANY_STREAMS) when so many of the caller's tenant wait already as may
        `watch`.
        """
        return self._loop.run(
            self._async.collect(
                rollouts,
                group_ids=group_ids,
                whole_groups=whole_groups,
                max_rollouts=max_rollouts,
                min_rollouts=min_rollouts,
                wait_s=wait_s,
                include_retried=include_retried,
                include_abandoned=include_abandoned,
                request_id=request_id,
                timeout=timeout,
            )
        )

    def cancel(
        self, rollouts: RolloutRef | Sequence[RolloutRef], *, reason: str = "", timeout: float | None = None
    ) -> tuple[Rollout, ...]:
        """Ends rollouts as cancelled, all or none; those that have ended stay as they are."""
        return self._loop.run(self._async.cancel(rollouts, reason=reason, timeout=timeout))

    def discard(
        self, rollouts: RolloutRef | Sequence[RolloutRef] = (), *, collected: bool = False, timeout: float | None = None
    ) -> int:
        """Forgets rollouts, with `collected` all that were collected; how many. Unknown ones are passed over."""
        return self._loop.run(self._async.discard(rollouts, collected=collected, timeout=timeout))
