"""What a loss must know of the whole batch before its rows go their ways. Numpy only.

A denominator, a prompt's tokens, or the set of tokens that M2PO drops cannot be found by a worker that sees some of
the rows: they are settled here, once, and travel with the rows.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from gradwire.server.engines.training import TrainingBatch
from gradwire.server.errors import InvalidArgument
from gradwire.server.losses.checks import check_loss_batch
from gradwire.server.losses.config import LossConfig
from gradwire.server.losses.family import GrpoConfig
from gradwire.server.losses.normalizer import LossNormalizer
from gradwire.server.losses.registry import Loss

Floats = npt.NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class PreparedBatch:
    """A checked batch with only the columns that its loss reads, and counts of the whole."""

    batch: TrainingBatch
    mask: Floats
    whole: LossNormalizer
    dropped: int = 0  # tokens that M2PO took out of the mask


def prepare_batch(batch: TrainingBatch, loss: Loss, config: LossConfig, *, made_up: bool = False) -> PreparedBatch:
    """Raises InvalidArgument naming the column and the row that is wrong. `made_up`: see check_loss_batch."""
    mask = check_loss_batch(batch, loss, config, made_up=made_up)
    columns = dict(batch.columns)
    dropped = 0
    if isinstance(config, GrpoConfig):
        if not config.uses_versions:
            columns.pop("versions", None)
        if config.m2_threshold is not None:
            kept = second_moment_mask(columns["old_log_probs"], columns["prox_log_probs"], mask, config.m2_threshold)
            dropped = int(np.count_nonzero(mask) - np.count_nonzero(kept))
            mask = kept
    whole = LossNormalizer.of(mask, batch.row_offsets, batch.row_width)
    if config.loss_agg_mode == "prompt-mean":
        assert batch.prompt_group_ids is not None  # checked: the configuration needs it
        columns["prompt_tokens"], prompts = tokens_of_prompts(mask, batch.row_offsets, batch.prompt_group_ids)
        whole = replace(whole, active_prompts=prompts)
    return PreparedBatch(replace(batch, columns=columns), mask, whole, dropped)


def second_moment_mask(old: Floats, prox: Floats, mask: Floats, threshold: float) -> Floats:
    """The mask [T] without the fewest tokens whose removal brings the mean of (old - prox)^2 below the threshold.

    The largest go first (M2PO, arXiv 2510.01161); among equals, the later ones. Raises InvalidArgument when not
    even the smallest alone is below it.
    """
    scored = np.flatnonzero(mask)
    moments = np.square(old[scored].astype(np.float64) - prox[scored].astype(np.float64))
    order = np.argsort(moments, kind="stable")
    means = np.cumsum(moments[order]) / np.arange(1, len(order) + 1)
    # Means of ever more of the smallest never fall: those below the threshold stand first.
    keep = int(np.count_nonzero(means < threshold))
    if not keep:
        raise InvalidArgument.at(
            "loss.config.m2_threshold",
            f"{threshold} leaves no token: the smallest (old - prox)^2 of the batch is {moments.min():.3g}",
            reason="BATCH_INVALID",
        )
    kept = np.zeros_like(mask)
    kept[scored[order[:keep]]] = mask[scored[order[:keep]]]
    return kept


def tokens_of_prompts(
    mask: Floats, row_offsets: npt.NDArray[np.int64], prompt_group_ids: npt.NDArray[np.int64]
) -> tuple[Floats, int]:
    """For each entry [T] the sum of the mask over all rows of its prompt; and the prompts that have any."""
    per_row = np.add.reduceat(mask.astype(np.float64), row_offsets[:-1])
    _, prompt = np.unique(prompt_group_ids, return_inverse=True)
    per_prompt = np.bincount(prompt, weights=per_row)
    tokens = np.repeat(per_prompt[prompt], np.diff(row_offsets)).astype(mask.dtype)
    return tokens, int(np.count_nonzero(per_prompt))
