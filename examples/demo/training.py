"""The loop of GRPO (arXiv 2402.03300) on a gradwire server, and its measurements."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from demo.metrics import Metrics
from demo.rollout import Rollouts, roll_out, training_batch
from demo.task import Task
from demo.terminal import Terminal
from gradwire.client import Client, Job

HELD_OUT_SAMPLES = 4
MAX_TOKENS = 8  # a bare number takes four at most; a few more let the model find that out
T = TypeVar("T")

EVALUATION_SEED = 1_000_003  # the same dice before and after, whatever the run's seed


@dataclass(frozen=True, slots=True)
class Sizes:
    """How much of everything."""

    steps: int
    prompts: int
    group: int
    evaluate_every: int
    seed: int


class Grpo:
    """Trains `job` on `task`, sampling from the server's own sampler, which follows the job's weights."""

    def __init__(
        self, client: Client, job: Job, task: Task, sizes: Sizes, metrics: Metrics, terminal: Terminal
    ) -> None:
        self._client, self._job, self._task = client, job, task
        self._sizes, self._metrics, self._terminal = sizes, metrics, terminal

    def run(self) -> tuple[Rollouts, Rollouts]:
        """All steps; the held-out rollouts before and after."""
        sizes = self._sizes
        before = after = self.evaluate(0)
        began = time.monotonic()
        for step in range(1, sizes.steps + 1):
            self._step(step, began)
            if step % sizes.evaluate_every == 0 or step == sizes.steps:
                after = self.evaluate(step)
        return before, after

    def evaluate(self, step: int) -> Rollouts:
        """Mean reward on problems that are never trained on."""
        self._terminal.live("measuring on held-out problems")
        found, seconds = timed(
            lambda: roll_out(
                self._client,
                self._task,
                self._task.held_out,
                samples=HELD_OUT_SAMPLES,
                max_tokens=MAX_TOKENS,
                seed=EVALUATION_SEED,
            )
        )
        self._metrics.add("held_out", step=step, reward=found.reward, accuracy=found.accuracy, seconds=seconds)
        self._terminal.say(
            f"held-out reward {found.reward:.3f}, right answers {found.accuracy:.0%} "
            f"({len(found.scores)} problems, {HELD_OUT_SAMPLES} samples each)"
        )
        return found

    def _step(self, step: int, began: float) -> None:
        sizes, client, job = self._sizes, self._client, self._job
        title = f"step {step}/{sizes.steps}"
        self._terminal.live(f"{title}: sampling")
        problems = self._task.draw(sizes.prompts)
        rollouts, sample_s = timed(
            lambda: roll_out(
                client,
                self._task,
                problems,
                samples=sizes.group,
                max_tokens=MAX_TOKENS,
                # Repeatable, and no two runs or steps with the same dice.
                seed=sizes.seed * 100_000 + step,
            )
        )
        record: dict[str, Any] = {
            "step": step,
            "reward": rollouts.reward,
            "accuracy": rollouts.accuracy,
            "tokens": rollouts.tokens,
            "sample_s": sample_s,
            "tokens_per_s": rollouts.tokens / sample_s,
            "loss": None,
            "grad_norm": None,
        }
        batch = training_batch(rollouts)
        if batch is None:
            self._metrics.add("step", **record)
            self._terminal.say(f"{title}  reward {rollouts.reward:.3f}  all groups agree: nothing to learn from")
            return
        self._terminal.live(f"{title}: reward {rollouts.reward:.3f}, training on {len(batch.input_ids)} rows")
        found, train_s = timed(lambda: client.training.fwd_bwd(job, batch, loss="grpo", timeout=600))
        stepped, step_s = timed(lambda: client.training.step(job, timeout=600))
        synced, sync_s = timed(lambda: client.weights.sync(job, timeout=600))
        record |= {
            "loss": found.loss,
            "grad_norm": stepped.grad_norm,
            **{name: found.metrics[name] for name in ("approx_kl", "clip_fraction", "ratio_max", "entropy")},
            "rows": len(batch.input_ids),
            "weight_version": synced.weight_version,
            "train_s": train_s,
            "step_s": step_s,
            "sync_s": sync_s,
        }
        self._metrics.add("step", **record)
        left = (time.monotonic() - began) / step * (sizes.steps - step)
        self._terminal.say(
            f"{title}  reward {rollouts.reward:.3f}  loss {found.loss:+.4f}  grad norm {stepped.grad_norm:.2f}  "
            f"{rollouts.tokens / sample_s:.0f} tok/s  weights v{synced.weight_version}  "
            f"sample {sample_s:.1f} train {train_s + step_s:.1f} sync {sync_s:.1f} s  {left / 60:.1f} min left"
        )


def timed(work: Callable[[], T]) -> tuple[T, float]:
    """The result, and the seconds it took."""
    began = time.monotonic()
    return work(), time.monotonic() - began
