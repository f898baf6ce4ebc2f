"""Rollouts, their calls and their rows <-> messages."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from gradwire.server.codec.sampling import encode_finish, encode_spans
from gradwire.server.codec.times import duration, timestamp
from gradwire.server.domain.rollouts.assembly import Assembly, Dropped, Row, RowStart, Turn
from gradwire.server.domain.rollouts.calls import Call, CallStatus, Exchange, log_probs_of, retried, steps
from gradwire.server.domain.rollouts.following import Wanted
from gradwire.server.domain.rollouts.rollout import DEFAULT_TIMEOUT_S, MOST_CALLS, End, Outcome, Rollout, Spec
from gradwire.server.engines.sampling import CompletionDelta, SamplingParams, TokenIds
from gradwire.server.errors import InvalidArgument
from gradwire.v1 import rollout_pb2 as pb
from gradwire.v1 import sampling_params_pb2

_OUTCOMES: dict[Outcome, Any] = {o: getattr(pb, f"ROLLOUT_OUTCOME_{o.name}") for o in Outcome}
_STATUSES: dict[CallStatus, Any] = {s: getattr(pb, f"ROLLOUT_CALL_STATUS_{s.name}") for s in CallStatus}
_STARTS: dict[RowStart, Any] = {s: getattr(pb, f"ROW_START_{s.name}") for s in RowStart}
_OUTCOME_OF = {number: outcome for outcome, number in _OUTCOMES.items()}
_MESSAGE_BYTES = 1 << 20  # of rows in one message, one row at least; clients take 4 MiB by default


def decode_spec(message: pb.RolloutSpec) -> Spec:
    """A spec with its defaults."""
    return Spec(
        task_id=message.task_id,
        group_id=message.group_id,
        sample_index=message.sample_index,
        group_size=message.group_size,
        timeout_s=message.timeout.ToTimedelta().total_seconds() if message.HasField("timeout") else DEFAULT_TIMEOUT_S,
        max_calls=message.max_calls or MOST_CALLS,
        max_sampled_tokens=message.max_sampled_tokens,
        labels=dict(message.labels),
    )


def decode_end(message: pb.FinishRolloutRequest) -> End:
    """How a caller ends a rollout."""
    rewards: dict[int, float] = {}
    for place, entry in enumerate(message.step_rewards):
        if entry.step in rewards:
            raise InvalidArgument.at(f"step_rewards[{place}].step", f"{entry.step} stands here a second time")
        rewards[entry.step] = entry.reward
    return End(
        _OUTCOME_OF[message.outcome],
        message.reason,
        message.reward if message.HasField("reward") else None,
        rewards,
    )


def decode_wanted(message: pb.CollectRolloutsRequest) -> Wanted:
    """What a collector takes, with its defaults."""
    return Wanted(
        rollout_ids=tuple(dict.fromkeys(message.rollout_ids)),
        groups=frozenset(message.group_ids),
        whole_groups=message.whole_groups,
        at_most=message.max_rollouts if message.HasField("max_rollouts") else (len(message.rollout_ids) or 256),
        at_least=message.min_rollouts if message.HasField("min_rollouts") else 1,
        wait_s=message.wait.ToTimedelta().total_seconds(),
        request_id=message.request_id,
    )


def encode_rollout(rollout: Rollout) -> pb.Rollout:
    """A rollout as it is now."""
    spec, end = rollout.spec, rollout.end
    message = pb.Rollout(
        rollout_id=rollout.rollout_id,
        job_id=rollout.job.job_id,
        spec=pb.RolloutSpec(
            task_id=spec.task_id,
            group_id=spec.group_id or spec.task_id,
            sample_index=spec.sample_index,
            group_size=spec.group_size,
            timeout=duration(spec.timeout_s),
            max_calls=spec.max_calls,
            max_sampled_tokens=spec.max_sampled_tokens,
            labels=spec.labels,
        ),
        base_path=f"/rollouts/{rollout.rollout_id}/v1",
        opened_at=timestamp(rollout.opened_at),
        deadline=timestamp(rollout.deadline_at),
        num_calls=len(rollout.calls),
        num_running_calls=rollout.num_running_calls,
        num_sampled_tokens=rollout.num_sampled_tokens,
        num_bytes=rollout.num_bytes,
        limit_reached=rollout.limit_reached,
    )
    if end is not None:
        message.outcome = _OUTCOMES[end.outcome]
        message.reason = end.reason
        if end.reward is not None:
            message.reward = end.reward
        for step, reward in sorted(end.step_rewards.items()):
            message.step_rewards.add(step=step, reward=reward)
    for name, time in (("ended_at", rollout.ended_at), ("collected_at", rollout.collected_at)):
        if time is not None:
            getattr(message, name).CopyFrom(timestamp(time))
    return message


def encode_calls(calls: list[Call], *, with_tokens: bool) -> Iterator[pb.RolloutCall]:
    """The calls of a rollout."""
    again = retried(calls)
    step_of = steps(calls, again)
    for call in calls:
        message = pb.RolloutCall(
            call_index=call.index,
            request_id=call.asked.request_id,
            endpoint=call.asked.endpoint,
            status=_STATUSES[CallStatus.RETRIED if call.index in again else call.status],
            step=step_of.get(call.index),
            streamed=call.asked.streamed,
            num_retries=call.asked.num_retries,
            constrained=call.asked.constrained,
            error=call.error,
            begun_at=timestamp(call.begun_at),
            prompts=[_prompt(exchange, with_tokens) for exchange in call.prompts()],
        )
        if call.ended_at is not None:
            message.ended_at.CopyFrom(timestamp(call.ended_at))
        if call.params is not None and call.exchanges:
            message.sampling_params.CopyFrom(_params(call.params))
        yield message


def _params(params: SamplingParams) -> sampling_params_pb2.SamplingParams:
    return sampling_params_pb2.SamplingParams(
        n=params.n,
        temperature=params.temperature,
        top_p=params.top_p,
        top_k=params.top_k,
        min_p=params.min_p,
        max_tokens=params.max_tokens,
        min_tokens=params.min_tokens,
        seed=params.seed,
        presence_penalty=params.presence_penalty,
        frequency_penalty=params.frequency_penalty,
        repetition_penalty=params.repetition_penalty,
        logit_bias=params.logit_bias,
    )


def _prompt(exchange: Exchange, with_tokens: bool) -> pb.RolloutPrompt:
    return pb.RolloutPrompt(
        num_tokens=len(exchange.prompt),
        token_ids=_ids(exchange.prompt) if with_tokens else b"",
        completions=[_completion(completion, with_tokens) for completion in exchange.completions()],
    )


def _completion(completion: CompletionDelta, with_tokens: bool) -> pb.RolloutCompletion:
    return pb.RolloutCompletion(
        index=completion.index,
        num_tokens=len(completion.token_ids),
        token_ids=_ids(completion.token_ids) if with_tokens else b"",
        log_probs=_floats(log_probs_of(completion)) if with_tokens else b"",
        weight_spans=encode_spans(completion.weight_spans),
        finish_reason=encode_finish(completion.finish_reason),
    )


def encode_collected(rollout: Rollout, assembly: Assembly) -> Iterator[pb.CollectRolloutsResponse]:
    """A rollout and its rows, in as many messages as they take."""
    message = pb.CollectRolloutsResponse(rollout=encode_rollout(rollout), dropped=map(_dropped, assembly.dropped))
    size = 0
    for row in assembly.rows:
        encoded = _row(row)
        if size and size + encoded.ByteSize() > _MESSAGE_BYTES:
            yield message
            message, size = pb.CollectRolloutsResponse(), 0
        message.rows.append(encoded)
        size += encoded.ByteSize()
    yield message


def _row(row: Row) -> pb.RolloutRow:
    return pb.RolloutRow(
        token_ids=_ids(row.token_ids),
        loss_mask=row.loss_mask.tobytes(),
        log_probs=_floats(row.log_probs),
        turns=map(_turn, row.turns),
        start=_STARTS[row.start],
        parent=row.parent,
        num_shared_tokens=row.num_shared_tokens,
    )


def _turn(turn: Turn) -> pb.RowTurn:
    return pb.RowTurn(
        call_index=turn.call_index,
        prompt_index=turn.prompt_index,
        completion_index=turn.completion_index,
        step=turn.step,
        start=turn.start,
        end=turn.end,
        weight_spans=encode_spans(turn.weight_spans),
        finish_reason=encode_finish(turn.finish_reason),
        constrained=turn.constrained,
    )


def _dropped(dropped: Dropped) -> pb.DroppedCompletion:
    return pb.DroppedCompletion(
        call_index=dropped.call_index,
        prompt_index=dropped.prompt_index,
        completion_index=dropped.completion_index,
        status=_STATUSES[dropped.status],
        num_tokens=dropped.num_tokens,
    )


def _ids(tokens: TokenIds) -> bytes:
    return tokens.astype("<i4", copy=False).tobytes()


def _floats(values: npt.NDArray[np.float32]) -> bytes:
    return values.astype("<f4", copy=False).tobytes()
