"""Rollouts, their calls and their rows, both ways."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import Any

import numpy as np

from gradwire.client._convert.enums import enum_from_proto
from gradwire.client._convert.messages import as_mapping, fill, put_field
from gradwire.client._convert.nearest import check_names
from gradwire.client._convert.prompts import encodable
from gradwire.client._convert.sampling import params_from_proto, spans_from_proto
from gradwire.client._convert.tensors import float32_from_bytes, int32_from_bytes
from gradwire.client._convert.times import duration, moment, seconds
from gradwire.client._core.arguments import check, given, items
from gradwire.client.types.rollouts import (
    DroppedCompletion,
    Rollout,
    RolloutCall,
    RolloutCallStatus,
    RolloutCompletion,
    RolloutOutcome,
    RolloutPrompt,
    RolloutRef,
    RolloutRow,
    RolloutSpec,
    RowStart,
    RowTurn,
)
from gradwire.client.types.sampling import FinishReason
from gradwire.v1 import rollout_pb2 as pb
from gradwire.v1 import sampling_pb2

StepRewards = Sequence[float] | Mapping[int, float]
"""A reward for each of the first steps, or rewards by step."""


def rollout_id(rollout: RolloutRef, where: str = "rollout") -> str:
    """Id of a rollout. TypeError for what is none."""
    if isinstance(rollout, Rollout):
        return rollout.rollout_id
    check(rollout, where, str, "a Rollout or its id")
    return encodable(rollout, where)


def rollout_ids(rollouts: RolloutRef | Sequence[RolloutRef]) -> list[str]:
    """Ids of one rollout, or of several."""
    if isinstance(rollouts, Rollout | str):
        return [rollout_id(rollouts, "rollouts")]
    several = items(rollouts, "rollouts", "a Rollout or its id, or a list of such")
    return [rollout_id(rollout, f"rollouts[{number}]") for number, rollout in enumerate(several)]


def specs_to_proto(specs: Sequence[RolloutSpec | Mapping[str, Any]]) -> list[pb.RolloutSpec]:
    """Several specs, each as `spec_to_proto` has it."""
    several = items(specs, "specs", "a list of RolloutSpec or dicts")
    return [spec_to_proto(spec, f"specs[{number}]") for number, spec in enumerate(several)]


def spec_to_proto(spec: RolloutSpec | Mapping[str, Any], where: str = "spec") -> pb.RolloutSpec:
    """A spec. TypeError names the key nearest to an unknown one."""
    values = dict(as_mapping(spec, where, "RolloutSpec"))
    check_names("rollout key", values, [field.name for field in fields(RolloutSpec)], TypeError)
    message = pb.RolloutSpec(timeout=duration(values.pop("timeout_s", None), f"{where}.timeout_s"))
    fill(message, values, where)
    return message


def step_rewards_to_proto(rewards: StepRewards | None) -> list[pb.StepReward]:
    """Rewards by step. TypeError names the one that is no number."""
    if rewards is None:
        return []
    if isinstance(rewards, Mapping):
        return [_step_reward(step, reward) for step, reward in rewards.items()]
    several = items(rewards, "step_rewards", "a list of numbers, or a dict of such by step")
    return [_step_reward(step, reward) for step, reward in enumerate(several)]


def _step_reward(step: int, reward: Any) -> pb.StepReward:
    message = pb.StepReward(reward=reward_to_proto(reward, f"step_rewards[{step!r}]"))
    put_field(message, "step", step, "step_rewards: a step")
    return message


def reward_to_proto(reward: Any, where: str = "reward") -> float:
    """A number, also an array's or a tensor's only one. TypeError for what is none."""
    try:
        if not isinstance(reward, str | bytes):
            return float(reward)
    except (TypeError, ValueError, RuntimeError, OverflowError):
        pass  # told below
    raise TypeError(f"{where} is {given(reward)}; it must be a number")


def rollout_from_proto(message: pb.Rollout) -> Rollout:
    """A rollout."""
    spec = message.spec
    return Rollout(
        rollout_id=message.rollout_id,
        job_id=message.job_id,
        spec=RolloutSpec(
            task_id=spec.task_id,
            group_id=spec.group_id,
            sample_index=spec.sample_index,
            group_size=spec.group_size,
            timeout_s=seconds(spec.timeout),
            max_calls=spec.max_calls,
            max_sampled_tokens=spec.max_sampled_tokens,
            labels=dict(spec.labels),
        ),
        base_path=message.base_path,
        outcome=enum_from_proto(RolloutOutcome, pb.RolloutOutcome, message.outcome),
        reason=message.reason,
        reward=message.reward if message.HasField("reward") else None,
        step_rewards={entry.step: entry.reward for entry in message.step_rewards},
        opened_at=moment(message, "opened_at"),
        deadline=moment(message, "deadline"),
        ended_at=moment(message, "ended_at"),
        collected_at=moment(message, "collected_at"),
        num_calls=message.num_calls,
        num_running_calls=message.num_running_calls,
        num_sampled_tokens=message.num_sampled_tokens,
        num_bytes=message.num_bytes,
        limit_reached=message.limit_reached,
    )


def call_from_proto(message: pb.RolloutCall) -> RolloutCall:
    """A call."""
    return RolloutCall(
        call_index=message.call_index,
        request_id=message.request_id,
        endpoint=message.endpoint,
        status=enum_from_proto(RolloutCallStatus, pb.RolloutCallStatus, message.status),
        step=message.step if message.HasField("step") else None,
        streamed=message.streamed,
        num_retries=message.num_retries,
        error=message.error,
        begun_at=moment(message, "begun_at"),
        ended_at=moment(message, "ended_at"),
        prompts=tuple(map(_prompt, message.prompts)),
        constrained=message.constrained,
        sampling_params=params_from_proto(message.sampling_params) if message.HasField("sampling_params") else None,
    )


def _prompt(message: pb.RolloutPrompt) -> RolloutPrompt:
    completions = tuple(map(_completion, message.completions))
    return RolloutPrompt(message.num_tokens, int32_from_bytes(message.token_ids), completions)


def _completion(message: pb.RolloutCompletion) -> RolloutCompletion:
    return RolloutCompletion(
        index=message.index,
        num_tokens=message.num_tokens,
        token_ids=int32_from_bytes(message.token_ids),
        log_probs=float32_from_bytes(message.log_probs),
        weight_spans=spans_from_proto(message.weight_spans),
        finish_reason=enum_from_proto(FinishReason, sampling_pb2.FinishReason, message.finish_reason),
    )


def row_from_proto(message: pb.RolloutRow) -> RolloutRow:
    """A training row."""
    return RolloutRow(
        token_ids=int32_from_bytes(message.token_ids),
        loss_mask=np.frombuffer(message.loss_mask, np.bool_).copy(),
        log_probs=float32_from_bytes(message.log_probs),
        turns=tuple(map(_turn, message.turns)),
        start=enum_from_proto(RowStart, pb.RowStart, message.start),
        parent=message.parent if message.HasField("parent") else None,
        num_shared_tokens=message.num_shared_tokens,
    )


def _turn(message: pb.RowTurn) -> RowTurn:
    return RowTurn(
        call_index=message.call_index,
        prompt_index=message.prompt_index,
        completion_index=message.completion_index,
        step=message.step if message.HasField("step") else None,
        start=message.start,
        end=message.end,
        weight_spans=spans_from_proto(message.weight_spans),
        finish_reason=enum_from_proto(FinishReason, sampling_pb2.FinishReason, message.finish_reason),
        constrained=message.constrained,
    )


def dropped_from_proto(message: pb.DroppedCompletion) -> DroppedCompletion:
    """A completion that is in no row."""
    return DroppedCompletion(
        call_index=message.call_index,
        prompt_index=message.prompt_index,
        completion_index=message.completion_index,
        status=enum_from_proto(RolloutCallStatus, pb.RolloutCallStatus, message.status),
        num_tokens=message.num_tokens,
    )
