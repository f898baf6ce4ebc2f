"""Batches for the trainer's tests, and the plainest possible trainer to compare it with."""

from __future__ import annotations

import math
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from transformers import AutoModelForCausalLM

from gradwire.server.engines.deepspeed import DeepSpeedTrainer
from gradwire.server.engines.sharedmem import SharedSegment
from gradwire.server.engines.training import OptimizerConfig, TrainingBatch, TrainingConfig
from gradwire.server.losses.checks import default_mask
from gradwire.server.models import resolve_model
from tests.losses.plain import Row, plain_loss

TINY_VOCABULARY = 256
TIMES = {"forward_seconds", "loss_seconds", "backward_seconds", "tokens_per_second"}
"""Metrics that differ from run to run."""


def random_batch(seed: int, rows: int, *, longest: int = 30, vocabulary: int = TINY_VOCABULARY) -> TrainingBatch:
    """Rows of 3 to `longest` tokens, about 60 % of them scored; at least one in the first row."""
    rng = np.random.default_rng(seed)
    lengths = rng.integers(3, longest + 1, rows)
    offsets = np.concatenate(([0], np.cumsum(lengths))).astype(np.int64)
    total = int(offsets[-1])
    mask = (rng.random(total) < 0.6).astype(np.float32)
    mask[0] = 1
    mask[offsets[1:] - 1] = 0
    ids = rng.integers(0, vocabulary, total).astype(np.int32)
    advantages = rng.normal(size=total).astype(np.float32)
    return TrainingBatch(ids, offsets, longest, mask, {"advantages": advantages})


def group_batch(seed: int, *, prompts: int = 2, samples: int = 4, vocabulary: int = TINY_VOCABULARY) -> TrainingBatch:
    """GRPO's shape: each prompt with several completions, one of a single token among them."""
    rng = np.random.default_rng(seed)
    rows, masks = [], []
    for _ in range(prompts):
        prompt = rng.integers(0, vocabulary, int(rng.integers(9, 25)))
        for sample in range(samples):
            completion = rng.integers(0, vocabulary, 1 if sample == 0 else int(rng.integers(2, 12)))
            rows.append(np.concatenate((prompt, completion)))
            mask = np.zeros(len(rows[-1]), np.float32)
            mask[len(prompt) - 1 : -1] = 1
            masks.append(mask)
    order = rng.permutation(len(rows))
    return rows_batch([rows[i] for i in order], [masks[i] for i in order], rng)


def rows_batch(rows: list[Any], masks: list[Any], rng: np.random.Generator) -> TrainingBatch:
    """A batch of given rows and masks, with random advantages."""
    offsets = np.concatenate(([0], np.cumsum([len(row) for row in rows]))).astype(np.int64)
    ids = np.concatenate(rows).astype(np.int32)
    columns = {"advantages": rng.normal(size=len(ids)).astype(np.float32)}
    return TrainingBatch(ids, offsets, max(map(len, rows)), np.concatenate(masks).astype(np.float32), columns)


def select(batch: TrainingBatch, rows: list[int]) -> TrainingBatch:
    """Some rows of a batch, as a batch."""
    taken = np.concatenate([np.arange(batch.row_offsets[r], batch.row_offsets[r + 1]) for r in rows])
    lengths = np.diff(batch.row_offsets)[rows]
    assert batch.loss_mask is not None
    return TrainingBatch(
        batch.input_ids[taken],
        np.concatenate(([0], np.cumsum(lengths))).astype(np.int64),
        batch.row_width,
        batch.loss_mask[taken],
        {name: column[taken] for name, column in batch.columns.items()},
        None if batch.prompt_group_ids is None else batch.prompt_group_ids[rows],
    )


def plain_rows(batch: TrainingBatch, log_probs: Tensor, entropy: Tensor) -> list[Row]:
    """A batch and flat log-probs and entropy of it, row by row."""
    mask = default_mask(batch)
    rows = []
    for number, (start, end) in enumerate(pairwise(batch.row_offsets)):
        columns = {name: column[start:end].tolist() for name, column in batch.columns.items()}
        rows.append(
            Row(
                log_probs[start:end],
                entropy[start:end],
                mask[start:end].tolist(),
                columns.get("advantages"),
                columns.get("old_log_probs"),
                columns.get("prox_log_probs"),
                columns.get("ref_log_probs"),
                columns.get("versions"),
                0 if batch.prompt_group_ids is None else int(batch.prompt_group_ids[number]),
            )
        )
    return rows


class PlainTrainer:
    """Float64, one row at a time without padding, whole logits, torch's own optimizer."""

    def __init__(self, folder: Path, optimizer: Callable[[Any], torch.optim.Optimizer] | None = None) -> None:
        self.model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float64, attn_implementation="eager")
        self.optimizer = optimizer(self.model.parameters()) if optimizer else None

    def log_probs(self, batch: TrainingBatch, temperature: float = 1.0) -> tuple[Tensor, Tensor]:
        """Log-probs and entropy, flat on the batch's grid; each row's last entry is 0."""
        log_probs, entropies = [], []
        for start, end in pairwise(batch.row_offsets):
            row = torch.from_numpy(batch.input_ids[start:end].astype(np.int64))
            scores = (self.model(input_ids=row.unsqueeze(0)).logits[0] / temperature).log_softmax(-1)
            entropy = -(scores.exp() * scores).sum(-1)
            last = scores.new_zeros(1)
            log_probs += [scores[:-1].gather(-1, row[1:, None])[:, 0], last]
            entropies += [entropy[:-1], last]
        return torch.cat(log_probs), torch.cat(entropies)

    def loss(self, batch: TrainingBatch, name: str, options: dict[str, Any], *, version: int = 0) -> Tensor:
        """The loss of the whole batch at once, by the plain formulas and not by the registry."""
        log_probs, entropy = self.log_probs(batch, options.get("temperature", 1.0))
        rows = plain_rows(batch, log_probs, entropy)
        return plain_loss(rows, name, options, width=batch.row_width, version=version)

    def step(self, max_grad_norm: float = 1.0) -> float:
        """Clip, apply, clear; returns the norm before clipping."""
        assert self.optimizer is not None
        norm = torch.nn.utils.clip_grad_norm_(self.model.parameters(), max_grad_norm)
        self.optimizer.step()
        self.optimizer.zero_grad()
        return float(norm)

    def weights(self) -> dict[str, Tensor]:
        """Parameters by name."""
        return {name: parameter.detach() for name, parameter in self.model.named_parameters()}


def tiny_config(**changes: Any) -> TrainingConfig:
    """A job on the tiny model whose micro-batches are small, so that there are several."""
    values: dict[str, Any] = {
        "model": "tiny",
        "model_path": str(resolve_model("tiny")),
        "max_tokens_per_micro_batch": 50,
        "optimizer": OptimizerConfig(lr=1e-3),
        "threads": 1,
    }
    return TrainingConfig(**(values | changes))


@asynccontextmanager
async def running(config: TrainingConfig) -> AsyncIterator[DeepSpeedTrainer]:
    """A started trainer, stopped afterwards."""
    trainer = DeepSpeedTrainer(config)
    await trainer.start(lambda _: None)
    try:
        yield trainer
    finally:
        await trainer.shutdown()


async def weights_of(trainer: DeepSpeedTrainer) -> dict[str, Tensor]:
    """A trainer's weights in float32, through its export."""
    manifest = await trainer.weight_manifest("F32")
    with SharedSegment.create(manifest.total_bytes) as segment:
        try:
            await trainer.export_weights(segment.name, manifest)
            return {
                spec.name: torch.from_numpy(segment.array(spec.offset, spec.nbytes).copy())
                .view(torch.float32)
                .reshape(spec.shape)
                for spec in manifest.tensors
            }
        finally:
            segment.unlink()


def largest_difference(left: dict[str, Tensor], right: dict[str, Tensor]) -> float:
    """Over all tensors, which must have the same names."""
    assert left.keys() == right.keys()
    return max(float((left[name].double() - right[name].double()).abs().max()) for name in left)


def typical_difference(left: dict[str, Tensor], right: dict[str, Tensor]) -> float:
    """Root mean square over all numbers of all tensors."""
    squares = sum(float((left[name].double() - right[name].double()).square().sum()) for name in left)
    return math.sqrt(squares / sum(tensor.numel() for tensor in left.values()))
