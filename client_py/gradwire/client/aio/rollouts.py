"""`client.rollouts`: episodes of an agent whose model calls are recorded token by token."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from gradwire.client._convert.enums import enum_to_proto
from gradwire.client._convert.jobs import job_id
from gradwire.client._convert.messages import put
from gradwire.client._convert.operation import fresh
from gradwire.client._convert.rollouts import (
    StepRewards,
    call_from_proto,
    dropped_from_proto,
    reward_to_proto,
    rollout_from_proto,
    rollout_id,
    rollout_ids,
    row_from_proto,
    specs_to_proto,
    step_rewards_to_proto,
)
from gradwire.client._convert.times import duration
from gradwire.client._core.attempts import part_of
from gradwire.client._core.connection import Connection
from gradwire.client._core.rpc import Rpc
from gradwire.client.aio.admin import AsyncAdmin
from gradwire.client.aio.opened import NO_HTTP_DOOR, AsyncOpenRollout
from gradwire.client.aio.streams import AsyncRolloutWatch
from gradwire.client.types.jobs import JobRef
from gradwire.client.types.rollouts import (
    CollectedRollout,
    DroppedCompletion,
    Rollout,
    RolloutDetails,
    RolloutOutcome,
    RolloutRef,
    RolloutRow,
    RolloutSpec,
)
from gradwire.v1 import rollout_pb2 as pb

_SERVICE = "/gradwire.v1.RolloutService/"
_OPEN = Rpc(_SERVICE + "OpenRollouts", pb.OpenRolloutsRequest, pb.OpenRolloutsResponse, repeatable=True)
_GET = Rpc(_SERVICE + "GetRollout", pb.GetRolloutRequest, pb.GetRolloutResponse, repeatable=True)
_FINISH = Rpc(_SERVICE + "FinishRollout", pb.FinishRolloutRequest, pb.FinishRolloutResponse, repeatable=True)
_CANCEL = Rpc(_SERVICE + "CancelRollouts", pb.CancelRolloutsRequest, pb.CancelRolloutsResponse, repeatable=True)
_DISCARD = Rpc(_SERVICE + "DiscardRollouts", pb.DiscardRolloutsRequest, pb.DiscardRolloutsResponse, repeatable=True)
_WATCH = Rpc(
    _SERVICE + "WatchRollouts", pb.WatchRolloutsRequest, pb.WatchRolloutsResponse, repeatable=True, streaming=True
)
# Not left to the channel to repeat: it stops at the first message, and the request id allows more.
_COLLECT = Rpc(
    _SERVICE + "CollectRollouts",
    pb.CollectRolloutsRequest,
    pb.CollectRolloutsResponse,
    repeatable=False,
    streaming=True,
)
_GRACE_S = 60.0


class AsyncRollouts:
    """Opens, follows, ends and collects rollouts."""

    def __init__(self, connection: Connection, admin: AsyncAdmin) -> None:
        self._connection = connection
        self._admin = admin

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
    ) -> AsyncOpenRollout:
        """A rollout to enter, and to play in: its `base_url` is for OpenAI clients.

        See RolloutSpec for what it is opened with. Left without `finish`, it ends as ok, or by what was raised:
        TimeoutError as timeout, cancellation as cancelled, any other exception as env_error; once `max_calls` or
        `max_sampled_tokens` has refused a call, as truncated.
        """
        spec = put(
            pb.RolloutSpec(timeout=duration(timeout_s, "timeout_s")),
            task_id=task_id,
            group_id=group_id,
            sample_index=sample_index,
            group_size=group_size,
            max_calls=max_calls,
            max_sampled_tokens=max_sampled_tokens,
            labels=labels,
        )
        request = put(pb.OpenRolloutsRequest(job_id=job_id(job), rollouts=[spec]), request_id=fresh(request_id))
        self._connection.deadline(timeout)  # a wrong one is told now, as all else is

        async def begin() -> tuple[Rollout, str]:
            (rollout,) = await self._opened(request, timeout)
            with part_of(request):  # repeated with its id, the same rollout is opened again
                url = (await self._admin.get_capabilities(timeout=timeout)).http_url
            return rollout, url + rollout.base_path if url else ""

        return AsyncOpenRollout(self, begin)

    async def open_many(
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
        request = pb.OpenRolloutsRequest(job_id=job_id(job), rollouts=specs_to_proto(specs))
        return await self._opened(put(request, request_id=fresh(request_id)), timeout)

    async def _opened(self, request: pb.OpenRolloutsRequest, timeout: float | None) -> tuple[Rollout, ...]:
        return tuple(map(rollout_from_proto, (await self._connection.unary(_OPEN, request, timeout=timeout)).rollouts))

    async def base_url(self, rollout: RolloutRef, *, timeout: float | None = None) -> str:
        """The address for OpenAI clients. RuntimeError from a server without an HTTP door."""
        name = rollout_id(rollout)
        url = (await self._admin.get_capabilities(timeout=timeout)).http_url
        if not url:
            raise RuntimeError(NO_HTTP_DOOR)
        return f"{url}/rollouts/{name}/v1"

    async def get(
        self, rollout: RolloutRef, *, with_tokens: bool = False, timeout: float | None = None
    ) -> RolloutDetails:
        """A rollout as it is now, and its calls; `with_tokens` also their token ids and log-probs."""
        request = put(pb.GetRolloutRequest(rollout_id=rollout_id(rollout)), with_tokens=with_tokens)
        response = await self._connection.unary(_GET, request, timeout=timeout)
        return RolloutDetails(rollout_from_proto(response.rollout), tuple(map(call_from_proto, response.calls)))

    def watch(
        self,
        rollouts: RolloutRef | Sequence[RolloutRef] = (),
        *,
        group_id: str = "",
        timeout: float | None = None,
    ) -> AsyncRolloutWatch:
        """Rollouts as they are, then each that changes: those named, those of a group, or all of the caller's.

        Ends when all that were named have ended; otherwise, without a `timeout`, it follows without end.
        ResourceExhaustedError (TOO_MANY_STREAMS) when the caller's tenant has a quarter of the service's places.
        """
        request = put(pb.WatchRolloutsRequest(rollout_ids=rollout_ids(rollouts)), group_id=group_id)
        limit = math.inf if timeout is None else timeout
        return AsyncRolloutWatch(self._connection.stream(_WATCH, request, timeout=limit))

    async def finish(
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
        request = pb.FinishRolloutRequest(
            rollout_id=rollout_id(rollout),
            outcome=enum_to_proto(pb.RolloutOutcome, outcome, "outcome"),
            reward=None if reward is None else reward_to_proto(reward),
            step_rewards=step_rewards_to_proto(step_rewards),
        )
        put(request, reason=reason)
        return rollout_from_proto((await self._connection.unary(_FINISH, request, timeout=timeout)).rollout)

    async def collect(
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
        request = pb.CollectRolloutsRequest(
            rollout_ids=rollout_ids(rollouts), wait=duration(0.0 if wait_s is None else wait_s, "wait_s")
        )
        put(
            request,
            group_ids=group_ids,
            whole_groups=whole_groups,
            max_rollouts=max_rollouts,
            min_rollouts=min_rollouts,
            include_retried=include_retried,
            include_abandoned=include_abandoned,
            request_id=fresh(request_id),
        )
        limit = self._connection.deadline(timeout)
        longer = request.wait.seconds + _GRACE_S
        patience = math.inf if limit is None else max(limit, longer) if timeout is None else limit

        async def attempt(remaining: float | None) -> tuple[CollectedRollout, ...]:
            return await self._collected(request, math.inf if remaining is None else remaining)

        return await self._connection.repeat(attempt, _COLLECT, request, patience, safe=True)

    async def _collected(self, request: pb.CollectRolloutsRequest, timeout: float) -> tuple[CollectedRollout, ...]:
        wire = self._connection.stream(_COLLECT, request, timeout=timeout)
        found: list[tuple[Rollout, list[RolloutRow], tuple[DroppedCompletion, ...]]] = []
        while (message := await wire.read()) is not None:
            if message.HasField("rollout"):
                found.append((rollout_from_proto(message.rollout), [], tuple(map(dropped_from_proto, message.dropped))))
            found[-1][1].extend(map(row_from_proto, message.rows))
        return tuple(CollectedRollout(rollout, tuple(rows), dropped) for rollout, rows, dropped in found)

    async def cancel(
        self, rollouts: RolloutRef | Sequence[RolloutRef], *, reason: str = "", timeout: float | None = None
    ) -> tuple[Rollout, ...]:
        """Ends rollouts as cancelled, all or none; those that have ended stay as they are."""
        request = put(pb.CancelRolloutsRequest(rollout_ids=rollout_ids(rollouts)), reason=reason)
        response = await self._connection.unary(_CANCEL, request, timeout=timeout)
        return tuple(map(rollout_from_proto, response.rollouts))

    async def discard(
        self,
        rollouts: RolloutRef | Sequence[RolloutRef] = (),
        *,
        collected: bool = False,
        timeout: float | None = None,
    ) -> int:
        """Forgets rollouts, with `collected` all that were collected; how many. Unknown ones are passed over."""
        request = put(pb.DiscardRolloutsRequest(rollout_ids=rollout_ids(rollouts)), collected=collected)
        return (await self._connection.unary(_DISCARD, request, timeout=timeout)).num_discarded
