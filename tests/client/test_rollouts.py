"""What callers write of rollouts, before anything is sent."""

from __future__ import annotations

import asyncio
from typing import Any

import numpy as np
import pytest

from gradwire.client import Client, RolloutOutcome, RolloutSpec
from gradwire.client._convert.rollouts import reward_to_proto, rollout_ids, spec_to_proto, step_rewards_to_proto
from gradwire.client.aio.opened import end_by


def test_a_spec_is_a_dataclass_or_a_dict() -> None:
    spec = RolloutSpec("t", group_id="g", sample_index=2, timeout_s=1.5, max_calls=3, labels={"a": "b"})
    message = spec_to_proto(spec)
    assert (message.task_id, message.group_id, message.sample_index, message.max_calls) == ("t", "g", 2, 3)
    assert (message.timeout.ToMilliseconds(), dict(message.labels)) == (1500, {"a": "b"})
    assert spec_to_proto({"task_id": "t", "max_calls": 3}).max_calls == 3
    assert not spec_to_proto({}).HasField("timeout")
    with pytest.raises(TypeError, match="did you mean 'max_calls'"):
        spec_to_proto({"max_call": 3})
    with pytest.raises(ValueError, match="timeout_s"):
        spec_to_proto({"timeout_s": float("nan")})


def test_rewards_are_those_of_the_first_steps_or_by_step() -> None:
    assert [(r.step, r.reward) for r in step_rewards_to_proto([0.5, 1])] == [(0, 0.5), (1, 1)]
    assert [(r.step, r.reward) for r in step_rewards_to_proto({3: 2.0})] == [(3, 2)]
    assert step_rewards_to_proto(None) == []
    assert reward_to_proto(np.float32(0.5)) == 0.5
    wrong: Any
    for wrong in ("1.0", None, [1.0, 2.0], np.zeros(2)):
        with pytest.raises(TypeError, match=r"step_rewards\[1\] is .*; it must be a number"):
            step_rewards_to_proto([0.0, wrong])


def test_what_is_no_rollout_is_named() -> None:
    assert rollout_ids("ro-1") == ["ro-1"]
    assert rollout_ids(["ro-1", "ro-2"]) == ["ro-1", "ro-2"]
    wrong: Any = [7]
    with pytest.raises(TypeError, match=r"^rollouts\[0\] is 7 \(int\)"):
        rollout_ids(wrong)
    with Client("localhost:1") as client:
        with pytest.raises(ValueError, match="did you mean 'truncated'"):
            client.rollouts.finish("ro-1", "truncate")
        with pytest.raises(RuntimeError, match="enter it"):
            _ = client.rollouts.open().base_url


@pytest.mark.parametrize(
    ("error", "outcome"),
    [
        (None, RolloutOutcome.OK),
        (TimeoutError("tool"), RolloutOutcome.TIMEOUT),
        (asyncio.CancelledError(), RolloutOutcome.CANCELLED),
        (KeyboardInterrupt(), RolloutOutcome.CANCELLED),
        (ZeroDivisionError("1/0"), RolloutOutcome.ENV_ERROR),
    ],
)
def test_the_exception_that_leaves_a_rollout_is_its_end(error: BaseException | None, outcome: RolloutOutcome) -> None:
    found, reason = end_by(error)
    assert found is outcome
    assert reason.startswith(type(error).__name__ if error else "")
