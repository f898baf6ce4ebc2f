"""A batch that cannot be trained on is refused before any work, naming row and column."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from gradwire.server.engines.training import TrainingBatch
from gradwire.server.errors import InvalidArgument
from gradwire.server.losses import LossNormalizer, resolve_loss
from gradwire.server.losses.checks import check_loss_batch, default_mask
from gradwire.server.losses.prepare import prepare_batch


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


@pytest.mark.parametrize("column", ["old_log_probs", "prox_log_probs", "ref_log_probs"])
def test_a_log_prob_above_0_names_the_row(column: str) -> None:
    said = refusal(with_value(column, 6, 2.5))
    assert f"batch.{column}: row 2, entry 1 is 2.5; a log-prob is at most 0; negative log-likelihoods" in said
    loss = resolve_loss("grpo")
    for position, value in ((6, 0.0005), (2, 2.5)):  # rounding; outside the mask
        check_loss_batch(with_value(column, position, value), loss, loss.parse({}))
    check_loss_batch(with_value("advantages", 6, 2.5), loss, loss.parse({}))


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
        ({"prompt_group_ids": np.array([1, 2])}, "has 2 entries for 3 rows"),
    ],
    ids=str,
)
def test_layout(changes: dict[str, Any], text: str) -> None:
    assert text in refusal(batch(**changes))


def test_without_a_mask_everything_but_the_last_entries_counts() -> None:
    mask = default_mask(batch(loss_mask=None))
    assert mask.tolist() == [1, 1, 0, 1, 0, 1, 1, 1, 0]


def with_prox() -> TrainingBatch:
    """Distances (old - prox)^2 of the scored entries: 0.01, 0.04, 0.09, 0.16, 0.25."""
    prox = np.full(9, -1, np.float32)
    prox[[0, 1, 3, 6, 7]] += np.array([0.1, 0.2, 0.3, 0.4, 0.5], np.float32)
    return batch(columns={**batch().columns, "prox_log_probs": prox})


@pytest.mark.parametrize(("threshold", "kept"), [(1.0, [0, 1, 3, 6, 7]), (0.08, [0, 1, 3, 6]), (0.025, [0])])
def test_m2po_drops_the_largest_until_the_mean_is_below(threshold: float, kept: list[int]) -> None:
    loss = resolve_loss("grpo")
    prepared = prepare_batch(with_prox(), loss, loss.parse({"m2_threshold": threshold}))
    assert np.flatnonzero(prepared.mask).tolist() == kept
    assert prepared.dropped == 5 - len(kept)
    assert prepared.whole.mask_sum == len(kept)


def test_m2po_that_would_leave_nothing_is_refused() -> None:
    loss = resolve_loss("grpo")
    with pytest.raises(InvalidArgument, match=r"m2_threshold: 0\.001 leaves no token: the smallest .* is 0\.01"):
        prepare_batch(with_prox(), loss, loss.parse({"m2_threshold": 0.001}))


def test_tokens_and_number_of_prompts() -> None:
    loss = resolve_loss("grpo")
    given = batch(prompt_group_ids=np.array([8, -3, 8]))
    prepared = prepare_batch(given, loss, loss.parse({"loss_agg_mode": "prompt-mean"}))
    assert prepared.batch.columns["prompt_tokens"].tolist() == [4, 4, 4, 1, 1, 4, 4, 4, 4]
    assert prepared.whole.active_prompts == 2


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"m2_threshold": 1}, "batch.prox_log_probs: m2_threshold needs this column"),
        ({"prox_logp_method": "loglinear"}, "batch.versions: prox_logp_method 'loglinear' needs this column"),
        ({"prox_logp_method": "metrics"}, "batch.prox_log_probs: prox_logp_method 'metrics' needs this column"),
        ({"behav_imp_weight_cap": 2}, "batch.prox_log_probs: behav_imp_weight_cap needs this column"),
        ({"use_decoupled_loss": True}, "batch.prox_log_probs: use_decoupled_loss needs this column"),
        ({"loss_agg_mode": "prompt-mean"}, "batch.prompt_group_ids: loss_agg_mode 'prompt-mean' needs this column"),
    ],
    ids=str,
)
def test_options_need_their_columns(options: dict[str, Any], text: str) -> None:
    assert text in refusal(batch(), **options)


def test_columns_that_an_option_makes_itself_are_refused() -> None:
    assert "batch.prox_log_probs: prox_logp_method 'loglinear' estimates this column" in refusal(
        with_prox(), prox_logp_method="loglinear"
    )
    assert "reference_free takes a uniform reference" in refusal(
        with_value("ref_log_probs", 0, 0), "dpo", reference_free=True
    )


@pytest.mark.parametrize("value", [-1, 0.5, 2.0**25, float("nan")])
def test_versions_are_whole_numbers(value: float) -> None:
    assert "batch.versions: row 2, entry 1 is" in refusal(with_value("versions", 6, value))


def test_dpo_takes_pairs_with_something_to_score() -> None:
    ref = {"ref_log_probs": np.zeros(9, np.float32)}
    assert "has 3 rows; the loss 'dpo' takes groups of 2 consecutive rows" in refusal(batch(columns=ref), "dpo")
    even = {"row_offsets": np.array([0, 3, 9]), "row_width": 6, "columns": ref}
    one_sided = np.array([1, 1, 0, 0, 0, 0, 0, 0, 0], np.float32)
    assert "row 1 has no scored token" in refusal(batch(**even, loss_mask=one_sided), "dpo")
    assert "batch.ref_log_probs: the loss 'dpo' needs this column" in refusal(batch(), "dpo")


def test_denominators() -> None:
    given = batch()
    assert given.loss_mask is not None
    whole = LossNormalizer.of(given.loss_mask, given.row_offsets, 7)
    assert whole == LossNormalizer(mask_sum=5.0, active_rows=3, row_width=7)
    empty_row = np.array([1, 1, 0, 0, 0, 0, 1, 1, 0], np.float32)
    assert LossNormalizer.of(empty_row, given.row_offsets, 7).active_rows == 2
