"""RolloutService: opens, shows, ends and hands out rollouts."""

from __future__ import annotations

import asyncio
from contextlib import aclosing, nullcontext
from typing import Any

from gradwire.server.codec.rollouts import (
    decode_end,
    decode_spec,
    decode_wanted,
    encode_calls,
    encode_collected,
    encode_rollout,
)
from gradwire.server.domain.caller import confirm_caller, current_caller
from gradwire.server.domain.registry import JobRegistry
from gradwire.server.domain.rollouts.assembly import Assembly, assemble
from gradwire.server.domain.rollouts.rollout import Rollout
from gradwire.server.domain.rollouts.shelf import Shelf
from gradwire.server.domain.rollouts.store import RolloutStore
from gradwire.server.errors import ResourceExhausted
from gradwire.server.observability.metrics import CallMetrics
from gradwire.server.rpc.shares import StreamShares
from gradwire.server.rpc.watching import while_known
from gradwire.v1 import rollout_pb2 as pb
from gradwire.v1 import rollout_pb2_grpc


class RolloutServicer(rollout_pb2_grpc.RolloutServiceServicer):
    """Adapter of the rollouts. The shelf comes from who calls, never from the request."""

    def __init__(
        self, jobs: JobRegistry, rollouts: RolloutStore, metrics: CallMetrics, max_message_bytes: int,
        watching: StreamShares, waiting: StreamShares,
    ) -> None:  # fmt: skip
        self._jobs = jobs
        self._metrics = metrics
        self._rollouts = rollouts
        self._max_message_bytes = max_message_bytes
        self._watching = watching
        self._waiting = waiting

    def _shelf(self) -> Shelf:
        return self._rollouts.shelf(current_caller().tenant)

    async def OpenRollouts(self, request: pb.OpenRolloutsRequest, context: Any) -> pb.OpenRolloutsResponse:
        job = self._jobs.sampling(request.job_id, current_caller())
        opened = self._shelf().open(job, [decode_spec(spec) for spec in request.rollouts], request.request_id)
        return pb.OpenRolloutsResponse(rollouts=map(encode_rollout, opened))

    async def GetRollout(self, request: pb.GetRolloutRequest, context: Any) -> pb.GetRolloutResponse:
        rollout = self._shelf().get(request.rollout_id)
        if request.with_tokens and rollout.num_bytes > self._max_message_bytes:
            raise ResourceExhausted(
                "MESSAGE_TOO_LARGE",
                f"the tokens of rollout {rollout.rollout_id} take {rollout.num_bytes} bytes, a message at most "
                f"{self._max_message_bytes}: leave with_tokens out, or collect its rows",
            )
        calls = encode_calls(rollout.calls, with_tokens=request.with_tokens)
        return pb.GetRolloutResponse(rollout=encode_rollout(rollout), calls=calls)

    async def WatchRollouts(self, request: pb.WatchRolloutsRequest, context: Any) -> None:  # type: ignore[override]
        with self._watching.one(current_caller().tenant):
            watch = self._shelf().watch(request.rollout_ids, request.group_id)
            async with aclosing(while_known(watch)) as news:
                async for rollout, gone in news:
                    await context.write(pb.WatchRolloutsResponse(rollout=encode_rollout(rollout), gone=gone))

    async def FinishRollout(self, request: pb.FinishRolloutRequest, context: Any) -> pb.FinishRolloutResponse:
        rollout = self._shelf().get(request.rollout_id)
        rollout.finish(decode_end(request))
        return pb.FinishRolloutResponse(rollout=encode_rollout(rollout))

    async def CollectRollouts(self, request: pb.CollectRolloutsRequest, context: Any) -> None:  # type: ignore[override]
        shelf, wanted = self._shelf(), decode_wanted(request)
        with self._waiting.one(current_caller().tenant) if wanted.wait_s else nullcontext():
            found, claimed = await shelf.collect(wanted)
        written = 0
        try:
            await confirm_caller()  # it may have waited for long
            for rollout in found:
                assembly = await asyncio.to_thread(_assembled, rollout, request)
                for message in encode_collected(rollout, assembly):
                    await context.write(message)
                written += 1
                for row in assembly.rows:
                    self._metrics.row_collected(row.start)
        finally:
            if written < len(found):
                shelf.give_back(wanted, claimed)

    async def CancelRollouts(self, request: pb.CancelRolloutsRequest, context: Any) -> pb.CancelRolloutsResponse:
        cancelled = self._shelf().cancel(request.rollout_ids, request.reason)
        return pb.CancelRolloutsResponse(rollouts=map(encode_rollout, cancelled))

    async def DiscardRollouts(self, request: pb.DiscardRolloutsRequest, context: Any) -> pb.DiscardRolloutsResponse:
        count = self._shelf().discard(request.rollout_ids, collected=request.collected)
        return pb.DiscardRolloutsResponse(num_discarded=count)


def _assembled(rollout: Rollout, request: pb.CollectRolloutsRequest) -> Assembly:
    return assemble(rollout.calls, include_retried=request.include_retried, include_abandoned=request.include_abandoned)
