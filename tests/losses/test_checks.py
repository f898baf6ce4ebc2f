"""A batch that cannot be trained on is refused before any work, naming row and column."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from gradwire.server.engines.training import TrainingBatch
from gradwire.server.errors import InvalidArgument
from gradwire.server.losses import LossNormalizer, resolve_loss
from gradwire.server.losses.checks import check_loss_batch, default_mask


def batch(**changes: Any) -> TrainingBatch:
    """Rows of 3, 2 and 4 tokens."""
    offsets = np.array([0, 3, 5, 9])
    mask = np.array([1, 1, 0, 1, 0, 0, 1, 1, 0], np.float32)
    columns = {"advantages": np.ones(9, np.float32), "old_log_probs": np.full(9, -1, np.float32)}
    base: dict[str, Any] = {
        "input_ids": np.arange(9, dtype=np.int32),
        "row_offsets": offsets,
        "row_width": 4,
        "loss_mask": mask,
        "columns": columns,
    }
    return TrainingBatch(**{**base, **changes})


def refusal(wrong: TrainingBatch, name: str = "grpo", **options: Any) -> str:
    loss = resolve_loss(name)
    with pytest.raises(InvalidArgument) as caught:
        check_loss_batch(wrong, loss, loss.parse(options))
    return caught.value.message


def with_value(column: str, position: int, value: float) -> TrainingBatch:
    columns = {name: values.copy() for name, values in batch().columns.items()}
    columns.setdefault(column, np.zeros(9, np.float32))[position] = value
    return batch(columns=columns)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
@pytest.mark.parametrize("column", ["advantages", "old_log_probs", "prox_log_probs", "ref_log_probs"])
def test_non_finite_under_the_mask_names_the_row(column: str, value: float) -> None:
    assert f"batch.{column}: row 2, entry 1 is" in refusal(with_value(column, 6, value))


def test_non_finite_outside_the_mask_is_nobodys_business() -> None:
    loss = resolve_loss("grpo")
    check_loss_batch(with_value("old_log_probs", 2, float("nan")), loss, loss.parse({}))


def test_all_zero_mask() -> None:
    assert "zero everywhere" in refusal(batch(loss_mask=np.zeros(9, np.float32)))


def test_the_last_entry_of_a_row_scores_nothing() -> None:
    mask = np.zeros(9, np.float32)
    mask[4] = 1
    assert "row 1: its last entry is set" in refusal(batch(loss_mask=mask))


def test_masks_of_policy_losses_are_binary_and_weights_are_for_cross_entropy() -> None:
    mask = batch().loss_mask
    assert mask is not None
    half = mask / 2
    assert "row 0, entry 0 is 0.5; entries must be 0 or 1" in refusal(batch(loss_mask=half))
    loss = resolve_loss("cross_entropy")
    check_loss_batch(batch(loss_mask=half), loss, loss.parse({}))
    assert "must be finite and >= 0" in refusal(batch(loss_mask=-half), "cross_entropy")


def test_missing_and_unknown_columns() -> None:
    assert "batch.advantages: the loss 'grpo' needs this column" in refusal(batch(columns={}))
    assert "use_kl_loss needs this column" in refusal(batch(), use_kl_loss=True)
    assert "unknown column" in refusal(batch(columns={**batch().columns, "values": np.zeros(9, np.float32)}))


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"row_offsets": np.array([0])}, "at least one"),
        ({"row_offsets": np.array([0, 3, 5, 8])}, "must rise from 0 to the 9 tokens"),
        ({"row_offsets": np.array([0, 3, 3, 9])}, "must rise"),
        ({"row_width": 3}, "a row has 4 tokens"),
        ({"loss_mask": np.ones(8, np.float32)}, "has 8 entries, input_ids has 9"),
    ],
    ids=str,
)
def test_layout(changes: dict[str, Any], text: str) -> None:
    assert text in refusal(batch(**changes))


def test_without_a_mask_everything_but_the_last_entries_counts() -> None:
    mask = default_mask(batch(loss_mask=None))
    assert mask.tolist() == [1, 1, 0, 1, 0, 1, 1, 1, 0]


def test_denominators() -> None:
    given = batch()
    assert given.loss_mask is not None
    whole = LossNormalizer.of(given.loss_mask, given.row_offsets, 7)
    assert whole == LossNormalizer(mask_sum=5.0, active_rows=3, row_width=7)
    empty_row = np.array([1, 1, 0, 0, 0, 0, 1, 1, 0], np.float32)
    assert LossNormalizer.of(empty_row, given.row_offsets, 7).active_rows == 2
