"""The denominators of a loss: counted once in the whole batch, whatever becomes of its rows afterwards.

A micro-batch, a pack or a rank sees a part of the rows; dividing by what it sees would make the loss
depend on the split. Knows numpy only.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt


@dataclass(frozen=True, slots=True)
class LossNormalizer:
    """Counts of the whole batch of one fwd_bwd call."""

    mask_sum: float  # sum of the loss mask
    active_rows: int  # rows whose mask has any non-zero entry
    row_width: int  # S of the caller's [B, S] grid
    active_prompts: int = 0  # prompts with any such row; 0 where rows are not grouped by prompt

    @classmethod
    def of(
        cls, loss_mask: npt.NDArray[np.float32], row_offsets: npt.NDArray[np.int64], row_width: int
    ) -> LossNormalizer:
        """Count a flat mask [T] whose row r is [row_offsets[r], row_offsets[r + 1])."""
        set_before = np.concatenate(([0], np.cumsum(loss_mask != 0)))
        per_row = set_before[row_offsets[1:]] - set_before[row_offsets[:-1]]
        return cls(
            mask_sum=float(loss_mask.sum(dtype=np.float64)),
            active_rows=int(np.count_nonzero(per_row)),
            row_width=row_width,
        )
