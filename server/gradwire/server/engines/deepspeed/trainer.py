"""One rank of a training job: forward, backward, step. The heart of a worker process.

Knows: deepspeed's engine, micro-batches, the registry of losses. Does not know: gRPC, processes, how
checkpoints lie on disk (checkpoint/) or how weights leave (export.py). Every method is a collective: all
ranks call it with the same arguments but for their rows.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from gradwire.server.engines.deepspeed.backend import start_backend
from gradwire.server.engines.deepspeed.forward import Floats, dummy, forward_rows
from gradwire.server.engines.deepspeed.gradients import all_finite, gradient_store, restore, snapshot
from gradwire.server.engines.deepspeed.model import tensors_of
from gradwire.server.engines.deepspeed.model_mark import model_mark
from gradwire.server.engines.deepspeed.packing import MicroBatch, plan
from gradwire.server.engines.deepspeed.rank_loss import LossCall, RankBatch, loss_gradient, with_version
from gradwire.server.engines.deepspeed.residency import Residency, release_unused
from gradwire.server.engines.deepspeed.schedule import learning_rate
from gradwire.server.engines.deepspeed.stopwatch import Stopwatch
from gradwire.server.engines.deepspeed.storages import model_storages, training_storages
from gradwire.server.engines.training import StepResult, TrainerPart, TrainingConfig
from gradwire.server.errors import FailedPrecondition
from gradwire.server.losses import LossNormalizer, resolve_loss
from gradwire.server.losses.compute import load_loss
from gradwire.server.losses.metrics import Metric, merge_metrics


@dataclass(frozen=True, slots=True)
class RankResult:
    """This rank's summand of a call. Arrays are flat on the rank's rows, 0 where the mask is 0."""

    metrics: Mapping[str, Metric]
    micro_batches: int
    log_probs: Floats
    entropy: Floats


class Trainer:
    """One rank. `steps` counts optimizer steps; `weight_version` also rises when a checkpoint is loaded."""

    def __init__(self, config: TrainingConfig, *, rank: int, world: int, master_port: int) -> None:
        self.config = config
        started = start_backend(config, rank=rank, world=world, master_port=master_port)
        self.engine, self.policy, self.ranks = started.engine, started.policy, started.ranks
        self.optimizer = started.optimizer
        self.gradients = gradient_store(self.engine)
        self.residency = Residency(
            self.ranks,
            {
                TrainerPart.MODEL: lambda: model_storages(self.policy),
                TrainerPart.TRAINING: lambda: training_storages(
                    self.policy, self.engine.optimizer, self.optimizer, self.gradients
                ),
            },
        )
        self.accumulated = 0  # fwd_bwd calls since the last step, or since gradients were dropped
        self.steps = 0
        self.weight_version = 0
        # Now, while the folder is what was loaded. Only rank 0 reads and writes checkpoints' facts.
        marked = config.lora is not None and rank == 0
        self.base_mark = model_mark(Path(config.model_path)) if marked else ""

    def fwd_bwd(self, batch: RankBatch, name: str, options: Mapping[str, Any], whole: LossNormalizer) -> RankResult:
        """Add the gradients of these rows' share of the loss.

        All or nothing: every micro-batch's log-probs and loss are checked on all ranks before its backward
        pass, and what earlier micro-batches of the call added is taken back when a later one fails.
        """
        loss = resolve_loss(name)
        config = self.ranks.attempt(lambda: with_version(loss.parse(options), batch, self.weight_version))
        call = LossCall(loss, config, self.ranks.attempt(lambda: load_loss(loss)), whole)
        clock = Stopwatch(self.ranks.device)
        parts = self._plan(batch, loss.rows_together)
        rounds = self.ranks.highest(len(parts))
        # A copy of the gradients (0.15 s for 135 M parameters on two cores) is cheaper than a forward pass ahead
        # (2.4 s), and only needed where a failure can follow a backward pass onto gradients of earlier calls.
        saved = snapshot(self.gradients) if self.accumulated and rounds > 1 else None
        log_probs, entropy = np.zeros(len(batch.mask), np.float32), np.zeros(len(batch.mask), np.float32)
        metrics: list[Mapping[str, Metric]] = []
        for index in range(rounds):
            part = parts[index] if index < len(parts) else None
            try:
                found = self._one_round(part, batch, call, clock)
            except BaseException:
                self._roll_back(saved, after=index)
                raise
            if part is not None and found is not None:
                metrics.append(found.metrics)
                log_probs[part.source], entropy[part.source] = found.log_probs, found.entropy
        self.accumulated += 1
        return RankResult(merge_metrics([*metrics, clock.metrics()]), len(parts), log_probs, entropy)

    def fwd_no_grad(self, batch: RankBatch, temperature: float) -> tuple[Floats, Floats]:
        """Log-probs and entropy of the rows' own tokens where the mask is set, 0 elsewhere."""
        return forward_rows(self.engine, self.ranks, self._plan(batch), batch, temperature)

    def step(self, *, lr: float | None, max_grad_norm: float | None) -> StepResult:
        """Apply the accumulated gradients and clear them.

        Raises FailedPrecondition when there are none, and when they are not finite: then weights, optimizer
        state and version stay as they are, and the gradients are cleared, since no later call could mend them.
        """
        if not self.accumulated:
            raise FailedPrecondition("NO_GRADIENTS", "there are no accumulated gradients: call fwd_bwd before step")
        rate = learning_rate(self.config.optimizer, self.config.scheduler, self.steps) if lr is None else lr
        limit = self.config.max_grad_norm if max_grad_norm is None else max_grad_norm
        if self.ranks.highest(int(not all_finite(self.gradients))):
            raise self._not_finite()
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        norm = self._step_plain(limit) if self.engine.zero_optimization_stage() == 0 else self._step_zero(limit)
        self.accumulated = 0
        if not math.isfinite(norm):
            raise self._not_finite()
        self.steps += 1
        self.weight_version += 1
        return StepResult(grad_norm=norm, lr=rate, weight_version=self.weight_version, step=self.steps)

    def zero_grad(self) -> int:
        """Drop the accumulated gradients; of how many calls."""
        dropped, self.accumulated = self.accumulated, 0
        self.gradients.clear()
        return dropped

    def empty_cache(self) -> None:
        """Give back what allocators, and DeepSpeed at stage 3, hold without need. Nothing that counts changes."""
        if self.engine.zero_optimization_stage() == 3 and TrainerPart.MODEL not in self.residency.asleep:
            self.engine.empty_partition_cache()
        release_unused()

    def _one_round(
        self, part: MicroBatch | None, batch: RankBatch, call: LossCall, clock: Stopwatch
    ) -> RankResult | None:
        """One micro-batch, or an empty one that only keeps the ranks' collectives in step."""
        planned = part or dummy()
        with clock.measure("forward"):
            # [2, N]: the log-probs and the entropy of the scored tokens.
            scored = self.engine(*tensors_of(planned, self.ranks.device), call.config.temperature)
        with clock.measure("loss"):
            if part is None:
                self.ranks.agree(None)
                surrogate, metrics = 0.0 * scored.sum(), None
            else:
                gradient, metrics = self.ranks.attempt(lambda: loss_gradient(part, batch, scored, call))
                # Its gradient by the scored values is the loss's own, which was seen to be finite.
                surrogate = (scored * gradient).sum()
        with clock.measure("backward"):
            # DeepSpeed averages over the ranks; the loss is a sum over them.
            self.engine.backward(surrogate * self.ranks.world)
        if metrics is None:
            return None
        log_probs, entropy = scored.detach().float().cpu().numpy()
        return RankResult(metrics, 1, log_probs, entropy)

    def _plan(self, batch: RankBatch, together: int = 1) -> list[MicroBatch]:
        return plan(
            batch.input_ids,
            batch.row_offsets,
            batch.mask,
            budget=self.config.max_tokens_per_micro_batch,
            packing=self.config.packing,
            together=together,
        )

    def _roll_back(self, saved: list[Tensor | None] | None, *, after: int) -> None:
        if saved is not None:
            restore(self.gradients, saved)
        elif after and not self.accumulated:
            self.gradients.clear()

    def _step_plain(self, limit: float) -> float:
        """Stage 0: reduce, measure, clip, step."""
        grads = [p.grad for p in self.policy.parameters() if p.grad is not None]
        self.ranks.average(grads)
        norm = float(torch.nn.utils.get_total_norm(grads))
        if not math.isfinite(norm):
            return norm
        if limit and norm > limit:
            for grad in grads:
                grad.mul_(limit / (norm + 1e-6))
        self.engine.step()
        return norm

    def _step_zero(self, limit: float) -> float:
        """Stages 1 to 3: DeepSpeed reduces, measures and clips inside its step."""
        self.engine.optimizer.clip_grad = limit
        self.engine.step()
        norm = self.engine.get_global_grad_norm()
        return math.nan if norm is None else float(norm)

    def _not_finite(self) -> FailedPrecondition:
        self.zero_grad()
        return FailedPrecondition(
            "GRADIENT_NOT_FINITE",
            "the accumulated gradients are not finite; they were cleared, and weights and optimizer are as before. "
            "Run fwd_bwd again with smaller advantages or fewer rows; if it comes back, the weights have grown too "
            "large: load an earlier checkpoint and train with a lower learning rate",
        )
