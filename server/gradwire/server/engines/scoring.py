"""Values that cross the border of a log-prob engine, and what is checked of rows before it sees them. Numpy only."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from gradwire.server.engines.sampling import LogProbs, TokenIds, TopLogProbs
from gradwire.server.engines.training import TrainingBatch
from gradwire.server.errors import InvalidArgument

VLLM, DEEPSPEED = "vllm", "deepspeed"


@dataclass(frozen=True, slots=True)
class LogProbConfig:
    """Everything that makes a log-prob job. 0 or None: not given, the engine decides."""

    model: str  # as the operator or the caller named it
    model_path: str = ""  # the Hugging Face folder it resolved to
    engine: str = VLLM  # "vllm" | "deepspeed"
    dtype: str = "auto"  # "auto": the model's own; "float32", "bfloat16", "float16" (vllm only)
    num_workers: int = 1  # each with a whole model
    max_model_len: int = 0
    max_log_probs: int = 20
    kv_cache_bytes: int = 0  # vllm only, as the next two
    gpu_memory_utilization: float = 0.0
    tensor_parallel_size: int = 0
    max_tokens_per_micro_batch: int = 0  # deepspeed only, as the next
    threads: int = 0


@dataclass(frozen=True, slots=True)
class RowScores:
    """A text's tokens scored: float32 [T], log p of token i given those before it, entry 0 NaN.

    `top` has [T, k], where k were asked for; -1 and -inf at entry 0.
    """

    log_probs: LogProbs
    top: TopLogProbs | None = None


@dataclass(frozen=True, slots=True)
class Scores:
    """All rows of one call, scored by weights of one version."""

    rows: tuple[RowScores, ...]
    weight_version: int


def check_rows(rows: Sequence[TokenIds], *, vocab_size: int, longest: int) -> None:
    """Raises InvalidArgument at `rows[i]` for one that is empty, too long, or holds ids outside the vocabulary."""
    for index, row in enumerate(rows):
        if not len(row):
            raise InvalidArgument.at(f"rows[{index}]", "is empty; give at least one token")
        if len(row) > longest:
            raise InvalidArgument.at(
                f"rows[{index}]",
                f"{len(row)} tokens are more than this job scores at once; at most {longest} fit",
                reason="PROMPT_TOO_LONG",
            )
        outside = (row < 0) | (row >= vocab_size)
        if outside.any():
            place = int(outside.argmax())
            raise InvalidArgument.at(
                f"rows[{index}]",
                f"token {place} is {int(row[place])}; the vocabulary has ids 0 to {vocab_size - 1}",
            )


def check_widths(batch: TrainingBatch, longest: int) -> None:
    """Raises InvalidArgument at `batch.input_ids`, naming the longest row, when it is too long."""
    lengths = np.diff(batch.row_offsets)
    if int(lengths.max()) > longest:
        raise InvalidArgument.at(
            "batch.input_ids",
            f"row {int(lengths.argmax())} has {int(lengths.max())} tokens; this job scores at most {longest} at once",
            reason="PROMPT_TOO_LONG",
        )


def refuse_foreign_fields(config: LogProbConfig, names: Sequence[str], engine: str) -> None:
    """Raises InvalidArgument for fields of the other engine that were given."""
    for name in names:
        if getattr(config, name):
            raise InvalidArgument.at(f"config.{name}", f"is a setting of the {engine} engine; leave it out")
