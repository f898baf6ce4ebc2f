"""The ready-made agents, on a real server whose model says random things: what was sampled is what is trained."""

from __future__ import annotations

import re
import runpy
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gradwire.client.agentic import (
    EngineBatch,
    Outcome,
    RolloutEngine,
    StepTrajectory,
    deadline_in,
    load_engine_class,
    run_engine,
    to_training_batch,
)
from gradwire.client.types.rollouts import RolloutCallStatus
from tests.serving import ServerProcess

AGENTS = Path(__file__).parents[2] / "examples" / "agentic"
TASKS = [{"id": f"sum {number}", "question": "What is 2 + 3?", "ground_truth": "5"} for number in range(3)]
# A grammar of JSON lets a random model write blanks for ever.
NO_BLANKS = {"32": -100, "9": -100, "13": -100}

Sampled = list[tuple[tuple[int, ...], tuple[float, ...]]]


class Recorded:
    """A ready-made engine, and what the server says that its model sampled for each task."""

    def __init__(self, server: ServerProcess, name: str, **arguments: Any) -> None:
        base: Any = load_engine_class(AGENTS / f"{name}_agent.py")
        sampled: dict[str, Sampled] = {}

        class Engine(base):
            async def play(self, rollout: Any, task: dict[str, Any]) -> Any:
                episode = await super().play(rollout, task)
                calls = (await rollout.get(with_tokens=True)).calls
                assert {call.status for call in calls} <= {RolloutCallStatus.DONE, RolloutCallStatus.FAILED}
                sampled[task["id"]] = [
                    (tuple(completion.token_ids.tolist()), tuple(completion.log_probs.tolist()))
                    for call in calls
                    for prompt in call.prompts
                    for completion in prompt.completions
                ]
                return episode

        self.kind: Any = Engine
        self.engine: RolloutEngine = Engine(name, ..., **arguments)
        self.engine.connect([server.doors["http"]])
        self.sampled = sampled

    def play(self) -> list[StepTrajectory]:
        """The three tasks; every trajectory holds exactly what was sampled for its task."""
        batch: EngineBatch = run_engine(self.engine, TASKS, deadline_s=100)
        assert not batch.failures, batch.failures
        trajectories = [item for item in batch.trajectories if isinstance(item, StepTrajectory)]
        assert [item.idx for item in trajectories] == [0, 1, 2]
        for trajectory, task in zip(trajectories, TASKS, strict=True):
            assert sorted(trained(trajectory)) == sorted(self.sampled[task["id"]])
            assert len(trajectory.steps) == trajectory.metrics["steps"] == len(self.sampled[task["id"]])
        together = to_training_batch(trajectories, group_size=3)
        assert together.batch is not None
        count = sum(len(ids) for calls in self.sampled.values() for ids, _ in calls)
        assert together.stats.num_trained_tokens == count
        return trajectories


def trained(trajectory: StepTrajectory) -> Sampled:
    """The tokens and log-probs that the masks single out, step by step, over all rows."""
    assert trajectory.response_log_probs is not None and trajectory.response_steps is not None
    rows = [
        (
            trajectory.response_tokens,
            trajectory.response_masks,
            trajectory.response_log_probs,
            trajectory.response_steps,
        ),
        *((s.tokens, s.masks, s.log_probs, s.steps) for s in trajectory.segments),
    ]
    found: Sampled = []
    for row in rows:
        tokens, masks, log_probs, steps = (np.asarray(column) for column in row)
        for step in np.unique(steps[masks == 1]):
            here = (masks == 1) & (steps == step)
            found.append((tuple(tokens[here].tolist()), tuple(log_probs[here].tolist())))
    return found


def test_a_react_agent_copes_with_a_model_that_says_anything(server: ServerProcess) -> None:
    recorded = Recorded(server, "react", max_steps=3, sampling_params={"max_tokens": 30, "temperature": 1.0})
    for trajectory in recorded.play():
        assert (trajectory.outcome, trajectory.trajectory_reward, len(trajectory.steps)) == (Outcome.TRUNCATED, 0.0, 3)
        assert "neither an action nor an answer" in trajectory.chat_completions[-1]["content"]


def test_a_react_agent_acts_observes_and_answers_in_one_row(server: ServerProcess) -> None:
    recorded = Recorded(
        server, "react", sampling_params={"structured_outputs": {"regex": "Action: calculate\\[2 \\+ 3\\]|Answer: 5"}},
        max_steps=10,
    )  # fmt: skip
    for trajectory in recorded.play():
        assert not trajectory.segments  # plain letters encode to what was sampled
        texts = [message["content"] for message in trajectory.chat_completions[2:]]
        assert set(texts[1::2]) <= {"Observation: 5"}
        answered = texts[-1] == "Answer: 5"
        assert answered == (trajectory.outcome == Outcome.OK) == (trajectory.trajectory_reward == 1.0)
        assert [step.model_response for step in trajectory.steps] == texts[::2]
        assert [step.done for step in trajectory.steps][-2:] in ([False, True], [True])


def test_a_react_agent_stops_where_the_context_ends(server: ServerProcess) -> None:
    recorded = Recorded(server, "react", sampling_params={"max_tokens": 900, "ignore_eos": True}, max_steps=5)
    for trajectory in recorded.play():
        assert trajectory.outcome == Outcome.TRUNCATED and 1 <= len(trajectory.steps) < 5


@pytest.mark.parametrize("first_tool", [None, "add"])
def test_an_agent_on_langgraph_is_recorded_without_its_doing(server: ServerProcess, first_tool: str | None) -> None:
    recorded = Recorded(
        server, "langgraph", max_steps=2,
        sampling_params={"max_tokens": 200 if first_tool else 20, "temperature": 1.0, "logit_bias": NO_BLANKS},
    )  # fmt: skip
    recorded.kind.first_tool = first_tool
    for trajectory in recorded.play():
        roles = [message["role"] for message in trajectory.chat_completions]
        assert roles == ["system", "user", "assistant", *(["tool", "assistant"] if first_tool else [])]
        assert ("tool_calls" in trajectory.chat_completions[2]) == (first_tool is not None)


@pytest.mark.parametrize("name", ["react", "langgraph"])
def test_an_agent_that_is_run_as_a_script_says_how_it_is_played(name: str) -> None:
    with pytest.raises(SystemExit, match=f'load_engine."{name}_agent.py"'):
        runpy.run_path(str(AGENTS / f"{name}_agent.py"), run_name="__main__")


def react() -> Any:
    return load_engine_class(AGENTS / "react_agent.py")


async def test_what_a_tool_does_is_an_observation() -> None:
    kind = react()

    tools = {**kind.tools, "hang": lambda text: time.sleep(20), "fail": lambda text: 1 / 0}
    engine = type("Engine", (kind,), {"tools": tools, "tool_timeout_s": 1.0})("tools", ...)
    assert await engine._observe("so\nAction: calculate[2 * (3 + 4)]\n") == "14"
    assert await engine._observe("Action: calculate[__import__('os')]") == (
        "calculate failed: \"__import__('os')\" is no sum"
    )
    assert "gave nothing within 1 s" in await engine._observe("Action: hang[]")
    assert await engine._observe("Action: fail[]") == "fail failed: division by zero"
    assert "there is no tool search; there is calculate" in await engine._observe("Action: search[x]")
    with deadline_in(0.0), pytest.raises(TimeoutError):
        await engine._observe("Action: calculate[1]")


@pytest.mark.parametrize(
    "text", ["2 ** 9999999", "1 / 0", "9" * 5000, "(" * 9999, "True", "a", "", "1,", "2 if 1 else 3"]
)
def test_the_calculator_calculates_and_nothing_else(text: str) -> None:
    calculate = react().play.__globals__["calculate"]
    assert calculate(" -7 + 1.5 * 2 ") == "-4"
    with pytest.raises(ValueError, match=re.escape(repr(text))):
        calculate(text)
