"""Rows forward through a model, without gradients: what trainers and scorers have in common.

Knows: micro-batches, and that ranks keep step. Does not know: losses, optimizers, deepspeed. Everything here
is a collective: all ranks call it with the same arguments but for their rows.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from gradwire.server.engines.deepspeed.collective import Ranks
from gradwire.server.engines.deepspeed.model import tensors_of
from gradwire.server.engines.deepspeed.packing import MicroBatch, plan
from gradwire.server.engines.deepspeed.rank_loss import RankBatch, check_finite

Floats = npt.NDArray[np.float32]


@torch.no_grad()
def forward_rows(
    model: Callable[..., Any],
    ranks: Ranks,
    parts: Sequence[MicroBatch],
    batch: RankBatch,
    temperature: float,
    *,
    also: Callable[[MicroBatch], None] | None = None,
) -> tuple[Floats, Floats]:
    """Log-probs and entropy of the rows' own tokens where the mask is set, 0 elsewhere; float32 [T] each.

    `parts` are the batch's micro-batches; `also` sees each one after it was run.
    """
    log_probs, entropy = np.zeros(len(batch.mask), np.float32), np.zeros(len(batch.mask), np.float32)
    for index in range(ranks.highest(len(parts))):
        part = parts[index] if index < len(parts) else dummy()
        lp, h = model(*tensors_of(part, ranks.device), temperature)
        if index < len(parts):
            log_probs[part.source], entropy[part.source] = lp.float().cpu().numpy(), h.float().cpu().numpy()
            if also is not None:
                also(part)
    rows = np.repeat(np.arange(len(batch.row_ids)), np.diff(batch.row_offsets))
    everything = np.arange(len(batch.row_ids))
    ranks.attempt(lambda: check_finite(torch.from_numpy(log_probs), rows, everything, batch.row_ids))
    return log_probs, entropy


def dummy() -> MicroBatch:
    """The smallest micro-batch: keeps a rank without rows in step with its peers."""
    return plan(np.zeros(2, np.int32), np.array([0, 2]), np.array([1, 0], np.float32), budget=2)[0]
