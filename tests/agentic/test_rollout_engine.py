"""`RolloutEngine` on a real server: what a task's fault is, and that nothing of a failed one stays on the server."""

from __future__ import annotations

import asyncio
from typing import Any

import openai
import pytest

from gradwire.client import Client, NotFoundError
from gradwire.client.agentic import Episode, Outcome, RolloutEngine, StepTrajectory, run_engine
from tests.serving import ServerProcess


class Agent(RolloutEngine):
    """Asks once; task 1 breaks its environment, task 2 asks for what no model does, task 3 hangs, task 4 never asks."""

    task_deadline_s = 5.0
    seen: list[str]

    def initialize(self) -> None:
        self.seen = []

    async def play(self, rollout: Any, task: dict[str, Any]) -> Episode:
        self.seen.append(rollout.rollout_id)
        async with openai.AsyncOpenAI(base_url=rollout.base_url, api_key="none", max_retries=0) as model:
            if task["id"] != 4:
                tokens = -1 if task["id"] == 2 else 3
                await model.completions.create(model="any", prompt="hi", max_tokens=tokens)
        if task["id"] == 1:
            raise KeyError("the game")
        await asyncio.sleep(60 if task["id"] == 3 else 0)
        return Episode(
            0.5, [{"role": "assistant", "content": "x"}], step_rewards=[0.25], env_s=0.1,
            metrics={"toolcall_reward": 0.2},
        )  # fmt: skip


def agent(address: str) -> Agent:
    made = Agent("agent", ...)
    made.initialize()
    made.connect([address])
    return made


def test_each_task_has_its_own_end_and_leaves_nothing_behind(server: ServerProcess) -> None:
    engine = agent(server.doors["http"])
    batch = run_engine(engine, [{"question": "?"}] * 5)
    (kept,) = batch.trajectories
    assert isinstance(kept, StepTrajectory)
    assert (kept.idx, kept.trajectory_reward, kept.response_masks.tolist()) == (0, 0.5, [1, 1, 1])
    assert kept.prompt_tokens.tolist() == list(b"hi") and kept.response_versions is not None
    assert (kept.steps[0].reward, kept.steps[0].model_response, kept.steps[0].done) == (0.25, "x", True)
    metrics = kept.metrics
    assert (metrics["steps"], metrics["toolcall_reward"], metrics["env_time"]) == (1, 0.2, 0.1)
    assert metrics["llm_time"] == pytest.approx(metrics["total_time"] - 0.1)
    assert batch.outcomes == {
        1: Outcome.ENV_ERROR, 2: Outcome.ENV_ERROR, 3: Outcome.TIMEOUT, 4: Outcome.ENV_ERROR,
    }  # fmt: skip
    reasons = {failure.idx: failure.reason for failure in batch.failures}
    assert reasons[1] == "KeyError: 'the game'"
    assert "max_tokens" in reasons[2] and "0 calls count" in reasons[4]
    assert len(engine.seen) == 5
    with Client(server.address) as client:
        for rollout_id in engine.seen:
            with pytest.raises(NotFoundError):
                client.rollouts.get(rollout_id)


def test_a_server_that_cannot_be_asked_is_the_machines_fault(server: ServerProcess) -> None:
    for address in (f"{server.doors['http']}/jobs/999999", "127.0.0.1:9"):
        batch = run_engine(agent(address), [{"question": "?"}])
        assert batch.outcomes == {0: Outcome.INFRA_ERROR}, batch.failures
    unconnected = Agent("agent", ...)
    (failure,) = run_engine(unconnected, [{"question": "?"}]).failures
    assert "not connected" in failure.reason
