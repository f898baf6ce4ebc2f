"""Whether a batch can be trained on, checked before any work starts. Numpy only.

A non-finite number under the mask becomes an error that names its row, never a zero.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from gradwire.server.engines.training import TrainingBatch
from gradwire.server.errors import FieldViolation, InvalidArgument
from gradwire.server.losses.config import PROMPT_GROUP_IDS, LossConfig
from gradwire.server.losses.contract import rules_of
from gradwire.server.losses.registry import Loss

COLUMNS = ("advantages", "old_log_probs", "prox_log_probs", "ref_log_probs", "versions")
LOG_PROBS = frozenset({"old_log_probs", "prox_log_probs", "ref_log_probs"})
ROUNDING = 1e-3
"""How far above 0 a log-prob may come to stand by rounding."""
MOST_VERSIONS = 1 << 24
"""float32, in which columns travel, holds every whole number up to here."""

__all__ = ["COLUMNS", "check_layout", "check_loss_batch", "check_token_ids", "default_mask", "rows_of"]


def check_layout(batch: TrainingBatch) -> None:
    """Raises InvalidArgument when offsets, lengths or the mask's shape do not fit together."""
    offsets, total = batch.row_offsets, len(batch.input_ids)
    if len(offsets) < 2:
        raise InvalidArgument.at("batch.row_offsets", "holds no row; a batch has at least one")
    if offsets[0] != 0 or offsets[-1] != total or bool(np.any(np.diff(offsets) < 1)):
        raise InvalidArgument.at(
            "batch.row_offsets", f"must rise from 0 to the {total} tokens of input_ids, each row of at least one token"
        )
    longest = int(np.diff(offsets).max())
    if batch.row_width < longest:
        raise InvalidArgument.at("batch.row_width", f"is {batch.row_width}, but a row has {longest} tokens")
    columns = dict(batch.columns) if batch.loss_mask is None else {**batch.columns, "loss_mask": batch.loss_mask}
    for name, column in columns.items():
        if len(column) != total:
            raise InvalidArgument.at(f"batch.{name}", f"has {len(column)} entries, input_ids has {total}")
    groups = batch.prompt_group_ids
    if groups is not None and len(groups) != batch.num_rows:
        raise InvalidArgument.at(
            f"batch.{PROMPT_GROUP_IDS}", f"has {len(groups)} entries for {batch.num_rows} rows; it has one for each"
        )


def check_token_ids(batch: TrainingBatch, vocab_size: int) -> None:
    """Raises InvalidArgument naming the row of the first id outside [0, vocab_size)."""
    wrong = (batch.input_ids < 0) | (batch.input_ids >= vocab_size)
    if wrong.any():
        _fail(batch, "input_ids", int(np.flatnonzero(wrong)[0]), batch.input_ids, f"ids are in [0, {vocab_size})")


def check_row_lengths(batch: TrainingBatch, longest: int) -> None:
    """Raises InvalidArgument naming the first row of more than `longest` tokens; 0: any length will do."""
    lengths = np.diff(batch.row_offsets)
    if longest and int(lengths.max()) > longest:
        row = int(np.flatnonzero(lengths > longest)[0])
        raise InvalidArgument.at(
            "batch.input_ids", f"row {row} has {int(lengths[row])} tokens; the model has {longest} positions"
        )


def default_mask(batch: TrainingBatch) -> npt.NDArray[np.float32]:
    """The batch's mask, or ones everywhere but at each row's last entry, which scores nothing."""
    if batch.loss_mask is not None:
        return batch.loss_mask
    mask = np.ones(len(batch.input_ids), np.float32)
    mask[batch.row_offsets[1:] - 1] = 0
    return mask


def check_loss_batch(
    batch: TrainingBatch, loss: Loss, config: LossConfig, *, made_up: bool = False
) -> npt.NDArray[np.float32]:
    """The mask to train with. Raises InvalidArgument naming the column and the row that is wrong.

    `made_up`: the numbers are a formula's worked case, whose log-probs need be those of no policy.
    """
    check_layout(batch)
    _check_columns(batch, loss, config)
    mask = default_mask(batch)
    _check_mask(batch, mask, loss)
    scored = np.flatnonzero(mask)
    for name in COLUMNS:
        column = batch.columns.get(name)
        if column is not None:
            _check_finite(batch, name, column, scored)
            if name in LOG_PROBS and not made_up:
                _check_log_probs(batch, name, column, scored)
    _check_versions(batch, scored)
    _check_rows_together(batch, mask, loss)
    return mask


def rows_of(batch: TrainingBatch, positions: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """The rows that flat positions lie in."""
    return np.searchsorted(batch.row_offsets, positions, side="right") - 1


def _check_columns(batch: TrainingBatch, loss: Loss, config: LossConfig) -> None:
    rules = rules_of(config)
    for name in loss.columns:
        rules.need(f"the loss {loss.name!r}", name)
    present = {*batch.columns, *({PROMPT_GROUP_IDS} if batch.prompt_group_ids is not None else ())}
    violations = [
        FieldViolation(f"batch.{name}", why) for name, why in sorted(rules.needed.items()) if name not in present
    ]
    violations += [FieldViolation(f"batch.{name}", why) for name, why in rules.refused.items() if name in present]
    for name in sorted(set(batch.columns) - set(COLUMNS)):
        violations.append(FieldViolation(f"batch.{name}", f"unknown column. Columns: {', '.join(COLUMNS)}"))
    if violations:
        raise InvalidArgument(violations, reason="BATCH_INVALID")


def _check_mask(batch: TrainingBatch, mask: npt.NDArray[np.float32], loss: Loss) -> None:
    wrong = ~np.isfinite(mask) | (mask < 0)
    rule = "weights must be finite and >= 0"
    if not loss.fractional_mask:
        wrong |= (mask != 0) & (mask != 1)
        rule = f"entries must be 0 or 1 for the loss {loss.name!r}"
    if wrong.any():
        _fail(batch, "loss_mask", int(np.flatnonzero(wrong)[0]), mask, rule)
    ends = batch.row_offsets[1:] - 1
    if mask[ends].any():
        row = int(np.flatnonzero(mask[ends])[0])
        raise InvalidArgument.at(
            "batch.loss_mask",
            f"row {row}: its last entry is set, but no token follows that it could score; "
            "entry i scores token i + 1, so the last entry of a row is 0",
        )
    if not mask.any():
        raise InvalidArgument.at("batch.loss_mask", "is zero everywhere: there is nothing to train on")


def _check_finite(
    batch: TrainingBatch, name: str, column: npt.NDArray[np.float32], scored: npt.NDArray[np.int64]
) -> None:
    wrong = ~np.isfinite(column[scored])
    if wrong.any():
        _fail(batch, name, int(scored[np.flatnonzero(wrong)[0]]), column, "must be finite wherever loss_mask is set")


def _check_log_probs(
    batch: TrainingBatch, name: str, column: npt.NDArray[np.float32], scored: npt.NDArray[np.int64]
) -> None:
    wrong = column[scored] > ROUNDING
    if wrong.any():
        rule = "a log-prob is at most 0; negative log-likelihoods have the other sign"
        _fail(batch, name, int(scored[np.flatnonzero(wrong)[0]]), column, rule)


def _check_versions(batch: TrainingBatch, scored: npt.NDArray[np.int64]) -> None:
    versions = batch.columns.get("versions")
    if versions is None:
        return
    wrong = (versions[scored] < 0) | (versions[scored] > MOST_VERSIONS) | (versions[scored] % 1 != 0)
    if wrong.any():
        rule = f"wherever loss_mask is set it is a weight version, a whole number from 0 to {MOST_VERSIONS}"
        _fail(batch, "versions", int(scored[np.flatnonzero(wrong)[0]]), versions, rule)


def _check_rows_together(batch: TrainingBatch, mask: npt.NDArray[np.float32], loss: Loss) -> None:
    """Of a loss on groups of consecutive rows: whole groups, each row with something to score."""
    size = loss.rows_together
    if size == 1:
        return
    if batch.num_rows % size:
        raise InvalidArgument.at(
            "batch.input_ids",
            f"has {batch.num_rows} rows; the loss {loss.name!r} takes groups of {size} consecutive rows",
            reason="BATCH_INVALID",
        )
    scored = np.add.reduceat(mask, batch.row_offsets[:-1])
    if not scored.all():
        raise InvalidArgument.at(
            "batch.loss_mask",
            f"row {int(np.flatnonzero(scored == 0)[0])} has no scored token; the loss {loss.name!r} needs one in each",
            reason="BATCH_INVALID",
        )


def _fail(batch: TrainingBatch, name: str, position: int, column: npt.NDArray[Any], rule: str) -> None:
    row = int(rows_of(batch, np.array([position]))[0])
    entry = position - int(batch.row_offsets[row])
    raise InvalidArgument.at(
        f"batch.{name}", f"row {row}, entry {entry} is {column[position]}; {rule}", reason="BATCH_INVALID"
    )
