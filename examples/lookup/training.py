"""The loop: rollouts -> to_training_batch -> fwd_bwd -> step -> sync, and measurements in between."""

from __future__ import annotations

import asyncio
import random
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from openai import AsyncOpenAI

from gradwire.client import AsyncClient, Job
from gradwire.client.agentic import AgentBatch, to_training_batch
from lookup.agent import Played, play
from lookup.task import Market, Task

Record = dict[str, Any]
AT_ONCE = 16  # rollouts under way
EVALUATION_SEED = 77_000_000


@dataclass(frozen=True, slots=True)
class Sizes:
    """How much of everything."""

    steps: int = 12
    tasks: int = 8
    """A step."""
    group: int = 8
    """Rollouts a task."""
    held_out: int = 64
    """Tasks to measure with."""
    evaluate_every: int = 4
    seed: int = 0
    entropy_coeff: float = 0.01
    """Keeps the model from settling on one answer before it has seen others."""


class AgenticGrpo:
    """Trains `job` on a market, sampling from the server's own sampler, which follows the job's weights."""

    def __init__(
        self, client: AsyncClient, job: Job, market: Market, sizes: Sizes, record: Callable[[Record], None]
    ) -> None:
        self._client, self._job, self._market, self._sizes = client, job, market, sizes
        self._record = record
        self._dice = random.Random(sizes.seed)
        self._gate = asyncio.Semaphore(AT_ONCE)
        self._run = uuid.uuid4().hex[:8]  # groups of another run on the same server are not ours

    async def run(self) -> tuple[float, float]:
        """All steps; the held-out reward before and after."""
        url = (await self._client.admin.get_capabilities()).http_url
        async with AsyncOpenAI(base_url=f"{url}/v1", api_key="none", max_retries=4) as openai:
            before = after = await self._evaluate(openai, 0)
            for step in range(1, self._sizes.steps + 1):
                self._record({"kind": "step", "step": step, **await self._step(openai, step)})
                if step % self._sizes.evaluate_every == 0 or step == self._sizes.steps:
                    after = await self._evaluate(openai, step)
        return before, after

    async def _evaluate(self, openai: AsyncOpenAI, step: int) -> float:
        """Mean reward on tasks that are never trained on; these calls are not recorded."""

        async def one(place: int, task: Task) -> Played:
            async with self._gate:
                return await play(openai, self._market, task, seed=EVALUATION_SEED + 2 * place)

        tasks = self._market.held_out(self._sizes.held_out)
        played = await asyncio.gather(*(one(place, task) for place, task in enumerate(tasks)))
        reward = sum(own.reward for own in played) / len(played)
        self._record({"kind": "held_out", "step": step, "reward": reward, **_shares(played)})
        return reward

    async def _step(self, openai: AsyncOpenAI, step: int) -> Record:
        tasks = {f"run {self._run}, step {step}: {task.item}": task for task in self._draw()}
        played = await self._roll_out(openai, step, tasks)
        collected = await self._client.rollouts.collect(group_ids=list(tasks), whole_groups=True, max_rollouts=4096)
        made = to_training_batch(collected, mode="step")
        record = {"reward": made.stats.reward_mean or 0.0, "loss": None, "grad_norm": None, **_shares(played)}
        record |= {"rows": made.stats.num_rows, "dropped": made.stats.num_dropped_rows}
        if made.batch is not None:
            record |= await self._train(made)
        await self._client.rollouts.discard([found.rollout for found in collected])
        return record

    async def _roll_out(self, openai: AsyncOpenAI, step: int, tasks: Mapping[str, Task]) -> list[Played]:
        """A group of rollouts for each task. One that fails ends as env_error, is told, and spoils nothing."""
        sizes = self._sizes

        async def one(place: int, name: str, sample: int) -> Played:
            async with (
                self._gate,
                self._client.rollouts.open(name, sample_index=sample, group_size=sizes.group) as rollout,
            ):
                recorded = openai.with_options(base_url=rollout.base_url)
                seed = (sizes.seed * 1000 + step) * 2000 + 2 * place  # no two calls with the same dice
                played = await play(recorded, self._market, tasks[name], seed=seed)
                await rollout.finish(reward=played.reward, step_rewards=played.rewards)
                return played

        rollouts = [(name, sample) for name in tasks for sample in range(sizes.group)]
        found = await asyncio.gather(
            *(one(place, *rollout) for place, rollout in enumerate(rollouts)), return_exceptions=True
        )
        failures = [own for own in found if isinstance(own, BaseException)]
        if len(failures) == len(found):
            raise failures[0]
        for failure in failures:
            self._record({"kind": "failure", "step": step, "error": f"{type(failure).__name__}: {failure}"})
        return [own for own in found if isinstance(own, Played)]

    def _draw(self) -> list[Task]:
        return self._market.draw(self._dice, self._sizes.tasks)

    async def _train(self, made: AgentBatch) -> Record:
        assert made.batch is not None
        training, config = self._client.training, {"entropy_coeff": self._sizes.entropy_coeff}
        found = await training.fwd_bwd(self._job, made.batch, loss="grpo", loss_config=config, timeout=600)
        stepped = await training.step(self._job, timeout=600)
        synced = await self._client.weights.sync(self._job, timeout=600)
        return {
            "loss": found.loss,
            "grad_norm": stepped.grad_norm,
            # 1 where trainer and sampler hold the same weights and the recorded tokens are those that were sampled.
            "ratio_max": found.metrics["ratio_max"],
            "entropy": found.metrics["entropy"],
            "weight_version": synced.weight_version,
        }


def _shares(played: list[Played]) -> Record:
    """How many looked something up, and how many gave the right answer in the end."""
    return {
        "looked_up": sum(len(own.replies) > 1 for own in played) / len(played),
        "accuracy": sum(own.correct for own in played) / len(played),
    }
