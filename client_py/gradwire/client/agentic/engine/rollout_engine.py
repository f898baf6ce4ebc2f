"""`RolloutEngine`: its agents use any OpenAI client, and its tokens are those that the server recorded."""

from __future__ import annotations

import time
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

from gradwire.client.agentic.engine.deadline import remaining_s
from gradwire.client.agentic.engine.tasks import Task, run_tasks
from gradwire.client.agentic.engine.wrapper import BaseEngineWrapper
from gradwire.client.agentic.outcomes import Outcome
from gradwire.client.agentic.recorded import trajectory_of
from gradwire.client.agentic.trajectory import Trajectory
from gradwire.client.aio.client import AsyncClient
from gradwire.client.aio.opened import AsyncOpenRollout
from gradwire.client.types.shown import Brief


@dataclass(repr=False)
class Episode(Brief):
    """What an agent made of a task.

    `reward` is the run's; `messages` the conversation, of strings, for people; `outcome` "ok", or "truncated" where
    turns or tokens ran out; `step_rewards` those of the model's calls, in order; `env_s` and `reward_s` the seconds
    that tools and the reward took.
    """

    reward: float
    messages: Sequence[Mapping[str, str]] = ()
    outcome: Outcome | str = Outcome.OK
    step_rewards: Sequence[float] = ()
    env_s: float = 0.0
    reward_s: float = 0.0
    metrics: dict[str, float] = field(default_factory=dict)
    """`toolcall_reward` and `res_reward`, where they are told apart."""


class RolloutEngine(BaseEngineWrapper):
    """Plays each task in a rollout of its own; a subclass defines `play`, and has nothing to do with tokens."""

    task_deadline_s: ClassVar[float] = 600.0
    """Seconds for each task; a batch's deadline shortens it."""
    mask_constrained: ClassVar[bool] = False
    """What was sampled under a grammar, a forced tool call for example, is context and not trained."""

    def initialize(self) -> None:
        """Nothing is needed; a subclass may need something."""

    @abstractmethod
    async def play(self, rollout: AsyncOpenRollout, task: Task) -> Episode:
        """Plays one task. Each call to `rollout.base_url` by any OpenAI client is recorded.

        What it raises ends the task without a trajectory: TimeoutError as timeout, any other as the environment's.
        """

    def generate_agent_trajectories_async(self, tasks: list[Task]) -> list[Trajectory]:
        """The trajectories of the tasks that were played to an end; see `trajectory_of`."""
        return run_tasks(tasks, self._one, n_parallel=self.n_parallel_agents, deadline_s=self.task_deadline_s)

    async def _one(self, idx: int, task: Task) -> Trajectory:
        if not self.server_addresses:
            raise RuntimeError("the engine is not connected: call connect before it plays")
        address = self.server_addresses[idx % len(self.server_addresses)]
        host, _, job = address.partition("/jobs/")
        began = time.monotonic()
        name, left = str(task.get("id", idx)), remaining_s(self.task_deadline_s)
        async with AsyncClient(f"http://{host}", token=self.token) as client:
            open_ = client.rollouts.open(name, timeout_s=max(1.0, left or 1.0), job=int(job) if job else None)
            async with open_ as rollout:
                try:
                    episode = await self.play(rollout, task)
                    await rollout.finish(
                        episode.outcome, reward=episode.reward, step_rewards=list(episode.step_rewards) or None
                    )
                    (collected,) = await client.rollouts.collect(rollout.rollout)
                finally:
                    await client.rollouts.discard(rollout.rollout)
        total = time.monotonic() - began
        metrics = {
            "toolcall_reward": 0.0,
            "res_reward": episode.reward,
            "reward_time": episode.reward_s,
            "env_time": episode.env_s,
            "llm_time": total - episode.env_s - episode.reward_s,
            "total_time": total,
            **episode.metrics,
        }
        return trajectory_of(
            collected, idx, messages=episode.messages, task=task.get("question"), metrics=metrics,
            mask_constrained=self.mask_constrained,
        )  # fmt: skip
