"""Rows as the columns of a TrainingBatch, on the shifted grid.

Entry i of a column belongs to the prediction of token i + 1 (labels = roll(input_ids, -1)); a row's last entry
belongs to none and is 0.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from gradwire.client.agentic.training.samples import SampleRow
from gradwire.client.types.shown import Brief
from gradwire.client.types.training import TrainingBatch


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class KeptRow(Brief):
    """A row that goes into the batch."""

    idx: int
    row: int
    group: int
    """Number of its group."""
    tokens: SampleRow
    advantages: npt.NDArray[np.float64]
    """float64 [T], where the tokens are."""


def trainable(row: SampleRow) -> npt.NDArray[np.bool_]:
    """bool [T]: tokens that the loss can count. Nothing predicts a row's first token."""
    mask = row.trained.copy()
    mask[:1] = False
    return mask


def training_batch(rows: Sequence[KeptRow]) -> TrainingBatch:
    """The batch. ValueError when only some rows have log-probs or versions, or what is trained has one that is NaN."""
    masks = [trainable(row.tokens) for row in rows]
    log_probs = _column(rows, masks, "log_probs")
    versions = _column(rows, masks, "versions")
    return TrainingBatch(
        input_ids=[row.tokens.token_ids for row in rows],
        loss_mask=[_shifted(mask.astype(np.float32), mask) for mask in masks],
        advantages=[_shifted(row.advantages.astype(np.float32), mask) for row, mask in zip(rows, masks, strict=True)],
        old_log_probs_shifted=log_probs,
        versions=versions,
        prompt_group_ids=np.array([row.group for row in rows], np.int64),
    )


def _column(rows: Sequence[KeptRow], masks: Sequence[Any], name: str) -> list[Any] | None:
    missing = [row.idx for row in rows if getattr(row.tokens, name) is None]
    if len(missing) == len(rows):
        return None
    if missing:
        # Zeros in their place would be trained on as if they had been sampled with certainty.
        raise ValueError(f"idx {missing[0]} has no {name}, but others have: all rows of a batch have them, or none")
    for row, mask in zip(rows, masks, strict=True):
        values = getattr(row.tokens, name)[mask]
        if not np.isfinite(values).all() or (name == "versions" and (values < 0).any()):
            raise ValueError(f"idx {row.idx}: {name} of a trained token is not a number, infinite or out of range")
    return [_shifted(getattr(row.tokens, name), mask) for row, mask in zip(rows, masks, strict=True)]


def _shifted(values: Any, mask: npt.NDArray[np.bool_]) -> Any:
    """`values` of tokens on the shifted grid, 0 where the loss does not count."""
    shifted = np.zeros_like(values)
    shifted[:-1] = np.where(mask, values, 0)[1:]
    return shifted
